//! The decoder on the processor, over the kernels of this project.
//!
//! Weights are copied once into the order that the kernels like to read; the file is not needed after that. What the
//! decoder computes is described once as a program of the kernels ([`decoder`](self)), and a step of any batch is one run
//! of it on threads that stay.

mod decoder;
mod weights;

use std::num::NonZeroUsize;

use hone_kernels::pool::{Pool, physical_cores};
use hone_kernels::step::{Program, Sequence};
use hone_kernels::{BLOCK_POSITIONS, KvFormat};

use super::{Backend, BackendError, BatchEntry, KvCacheFormat, Logits};
use crate::decoder::DecoderSpec;
use crate::gguf::Gguf;
use crate::kv_cache::{BLOCK_TOKENS, BlockId};

const _: () = assert!(BLOCK_TOKENS == BLOCK_POSITIONS, "the cache's blocks are those of the kernels");

/// A decoder's weights and cache in memory, and the threads that compute with them.
pub struct NativeBackend {
    program: Program,
    pool: Pool,
    vocab_size: usize,
}

impl NativeBackend {
    /// Loads a model's weights; `n_threads` compute with them, as many as there are physical cores where none is said.
    /// Keys and values are stored as `kv_cache` says.
    ///
    /// # Errors
    /// When the file's tensors are not those that `spec` describes.
    pub fn load(
        gguf: &Gguf,
        spec: &DecoderSpec,
        n_threads: Option<usize>,
        kv_cache: KvCacheFormat,
    ) -> Result<Self, BackendError> {
        let n_threads = n_threads.and_then(NonZeroUsize::new).unwrap_or_else(physical_cores);
        let mut pool = Pool::new(n_threads);
        let program = decoder::program(spec, weights::load(gguf, spec, &mut pool)?, kv_format(kv_cache));
        Ok(NativeBackend { program, pool, vocab_size: spec.vocab_size })
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    fn device_name(&self) -> String {
        "cpu".to_owned()
    }

    fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    fn forward(&mut self, batch: &[BatchEntry<'_>]) -> Result<Logits<'_>, BackendError> {
        let logits = self.program.run(&mut self.pool, batch.iter().map(sequence))?;
        Ok(Logits::new(logits, self.vocab_size))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.program.copy_block(from, to);
        Ok(())
    }
}

fn sequence<'a>(entry: &BatchEntry<'a>) -> Sequence<'a> {
    Sequence {
        tokens: entry.tokens,
        position: entry.position,
        blocks: entry.blocks,
        first_selected: entry.logits.start,
        n_selected: entry.logits.len(),
    }
}

/// The name that the kernels have for a format.
fn kv_format(kv_cache: KvCacheFormat) -> KvFormat {
    match kv_cache {
        KvCacheFormat::F16 => KvFormat::F16,
        KvCacheFormat::Q8_0 => KvFormat::Q8_0,
    }
}
