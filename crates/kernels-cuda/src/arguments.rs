//! The launch arguments of kernels: the structs of `cuda/types.h`, field by field.
//!
//! Pointers are addresses in the device's memory. All structs are plain data without padding.

use bytemuck::{Pod, Zeroable};

use crate::device::{Address, Matmul};

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        })*
    };
}

pub(crate) const SET_TOKENS: u32 = 0;
pub(crate) const SET_SELECTED: u32 = 1;
pub(crate) const SET_ROUTED: u32 = 2;

/// Maximum number of matrices of one launch.
pub(crate) const MAX_OUTPUTS: usize = 4;
/// Ranks per tile.
pub(crate) const TILE_RANKS: usize = 8;
/// Maximum number of operations passed with a launch.
pub(crate) const MAX_FEW_OPERATIONS: usize = 8;

arguments! {
    BatchTables {
        tokens: Address,
        positions: Address,
        sequence_of: Address,
        selected: Address,
        blocks: Address,
        block_starts: Address,
        first_rows: Address,
        first_selected: Address,
        n_tokens: u32,
        n_selected: u32,
        n_sequences: u32,
        reserved: u32,
    }
    PartAt {
        data: Address,
        stride: u32,
        width: u32,
    }
    QuantizedAt {
        quants: Address,
        scales: Address,
        sums: Address,
        bf16: Address,
        width: u32,
        reserved: u32,
    }
    KvAt {
        segments: Address,
        block_bytes: u64,
        keys_offset: u64,
        values_offset: u64,
        segment_blocks: u32,
        row_bytes: u32,
        n_kv_heads: u32,
        head_dim: u32,
        format: u32,
        reserved: u32,
    }
    RoutesAt {
        choices: Address,
        ranks: Address,
        rows: Address,
        experts: Address,
        weights: Address,
        tiles: Address,
        n_tiles: Address,
        n_experts: u32,
        n_used: u32,
    }
    MatrixAt {
        data: Address,
        row_bytes: u64,
        tensor_type: u32,
        n_rows: u32,
        n_columns: u32,
        reserved: u32,
    }
    Operation {
        op: u32,
        n0: u32,
        n1: u32,
        n2: u32,
        f0: f32,
        f1: f32,
        flags: u32,
        reserved: u32,
        a: PartAt,
        b: PartAt,
        c: PartAt,
        v0: Address,
        v1: Address,
        q: QuantizedAt,
        m: MatrixAt,
        kv: KvAt,
        routes: RoutesAt,
    }
    RowsArguments {
        batch: BatchTables,
        operations: Address,
        n_operations: u32,
        set: u32,
        slice_width: u32,
        reserved: u32,
    }
    FewRowsArguments {
        batch: BatchTables,
        operations: [Operation; MAX_FEW_OPERATIONS],
        n_operations: u32,
        set: u32,
        slice_width: u32,
        reserved: u32,
    }
    OutputAt {
        matrix: MatrixAt,
        to: PartAt,
        add: u32,
        first_row: u32,
    }
    ProductArguments {
        outputs: [OutputAt; MAX_OUTPUTS],
        input: QuantizedAt,
        n_outputs: u32,
        n_out: u32,
        n_rows: u32,
        reserved: u32,
    }
    DequantizeArguments {
        matrix: MatrixAt,
        to: Address,
        first_row: u32,
        n_rows: u32,
    }
    PlanArguments {
        routes: RoutesAt,
        n_rows: u32,
        reserved: u32,
    }
    SpreadArguments {
        routes: RoutesAt,
        from: QuantizedAt,
        to: QuantizedAt,
    }
    ExpertProductArguments {
        outputs: [OutputAt; MAX_OUTPUTS],
        matrix_bytes: [u64; MAX_OUTPUTS],
        input: QuantizedAt,
        routes: RoutesAt,
        n_outputs: u32,
        n_out: u32,
    }
    AttentionArguments {
        batch: BatchTables,
        kv: KvAt,
        queries: PartAt,
        to: PartAt,
        sinks: Address,
        partials: Address,
        set: u32,
        n_heads: u32,
        scale: f32,
        soft_cap: f32,
        window_kind: u32,
        window: u32,
        n_splits: u32,
        reserved: u32,
        quantized: QuantizedAt,
    }
    StatesArguments {
        batch: BatchTables,
        before: Address,
        written: Address,
        written_after: Address,
        written_starts: Address,
        state_offset: u64,
        n_channels: u32,
        n_taps: u32,
        n_heads: u32,
        key_dim: u32,
        value_dim: u32,
        reserved: u32,
    }
    ConvolveArguments {
        states: StatesArguments,
        from: PartAt,
        to: PartAt,
        taps: Address,
        bias: Address,
        has_silu: u32,
        reserved: u32,
    }
    RecurArguments {
        states: StatesArguments,
        keys: PartAt,
        queries: PartAt,
        values: PartAt,
        decays: PartAt,
        strengths: PartAt,
        to: PartAt,
        n_keys: u32,
        is_delta: u32,
        is_interleaved: u32,
        reserved: u32,
    }
    MatmulArguments {
        weights: Address,
        input: Address,
        to: Address,
        weights_stride: u64,
        input_stride: u64,
        to_stride: u64,
        n_rows: u32,
        n_out: u32,
        n_columns: u32,
        add: u32,
    }
}

impl From<&Matmul> for MatmulArguments {
    fn from(matmul: &Matmul) -> Self {
        MatmulArguments {
            weights: matmul.weights,
            input: matmul.input,
            to: matmul.to,
            weights_stride: matmul.n_columns as u64,
            input_stride: matmul.n_columns as u64,
            to_stride: matmul.to_stride as u64,
            n_rows: matmul.n_rows as u32,
            n_out: matmul.n_out as u32,
            n_columns: matmul.n_columns as u32,
            add: u32::from(matmul.add),
        }
    }
}
