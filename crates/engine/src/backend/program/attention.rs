//! Attention over a cache of keys and values.

use hone_kernels::step::{AttentionOptions, KvLayerId, Part, RowOperation, VectorId};

use super::buffers::Stream;
use super::{Description, InProgram};
use crate::backend::tensors::{AttentionParts, AttentionProjections};
use crate::decoder::{AttentionSpec, KeysAndValues, QkNorm, Sharpening};

/// A layer's part of the cache.
pub(super) type CachedLayer = KvLayerId;

impl<S: InProgram> Description<'_, S> {
    /// Everything up to the attention output.
    pub(super) fn attention(&mut self, stream: &Stream, parts: &AttentionParts<S>, attention: &AttentionSpec) -> Part {
        let (query_width, kv_width) = (attention.query_width(), attention.kv_width());
        let &Stream { projected, mixed, prepared, .. } = stream;
        let queries = projected.part(0, query_width);
        let keys = projected.part(query_width, kv_width);
        let values = projected.part(query_width + kv_width, kv_width);
        // Queries with their gates are taken apart.
        let zipped = self.spec.output_gate.then(|| projected.part(query_width + 2 * kv_width, 2 * query_width));
        self.project(stream, parts, [zipped.unwrap_or(queries), keys, values]);
        let gate = zipped.map(|from| {
            let gate = prepared.part(0, query_width);
            let head_dim = attention.head_dim;
            self.pending.push(RowOperation::Unzip { from, head_dim, first: queries, second: gate });
            gate
        });
        self.position(stream, queries, parts.query_norm, attention);
        if let Some(Sharpening { rate, interval, offset }) = attention.sharpening {
            self.pending.push(RowOperation::Sharpen { values: queries, rate, interval, offset });
        }
        let layer = self.cached_layer(stream, parts, attention, keys, values);
        self.flush(stream.set);
        let to = mixed.part(0, query_width);
        self.builder.attention(&AttentionOptions {
            layer,
            queries,
            to,
            scale: self.spec.attention_scale,
            soft_cap: self.spec.attention_soft_cap,
            window: attention.window,
            sinks: parts.sinks,
        });
        self.pending.extend(gate.map(|gate| RowOperation::GateSigmoid { values: to, gate }));
        to
    }

    /// Writes keys and values into the layer's cache without attending to them.
    pub(super) fn keys_and_values(
        &mut self,
        stream: &Stream,
        parts: &AttentionParts<S>,
        attention: &AttentionSpec,
    ) -> CachedLayer {
        let AttentionProjections::Split { key: Some(key), value: Some(value), .. } = parts.input else {
            unreachable!("a head has both")
        };
        let width = attention.kv_width();
        let (keys, values) = (stream.projected.part(0, width), stream.projected.part(width, width));
        self.product(stream.input, &[(key, keys), (value, values)]);
        let layer = self.cached_layer(stream, parts, attention, keys, values);
        self.flush(stream.set);
        layer
    }

    /// Queries, keys and values, as far as the layer has its own.
    fn project(&mut self, stream: &Stream, parts: &AttentionParts<S>, [queries, keys, values]: [Part; 3]) {
        match parts.input {
            AttentionProjections::Split { query, key, value } => {
                let mut outputs = vec![(query, queries)];
                outputs.extend(key.map(|key| (key, keys)));
                outputs.extend(value.map(|value| (value, values)));
                self.product(stream.input, &outputs);
                if key.is_some() && value.is_none() {
                    self.pending.push(RowOperation::Copy { from: keys, to: values });
                }
            }
            AttentionProjections::Fused(all) => {
                let width = queries.width() + keys.width() + values.width();
                self.product(stream.input, &[(all, stream.projected.part(0, width))]);
            }
        }
    }

    /// Writes keys and values into the layer's cache, or finds the cache of the layer that has.
    fn cached_layer(
        &mut self,
        stream: &Stream,
        parts: &AttentionParts<S>,
        attention: &AttentionSpec,
        keys: Part,
        values: Part,
    ) -> KvLayerId {
        if let KeysAndValues::OfLayer(index) = attention.keys_and_values {
            self.cached.push(None);
            return self.cached[index - self.layers.start]
                .expect("layers share what an earlier one with attention has");
        }
        self.position(stream, keys, parts.key_norm, attention);
        if let Some(weight) = parts.value_norm {
            self.norm(values, weight);
        }
        let (format, builder) = (self.formats.kv_cache, &mut self.builder);
        let own = || builder.kv_layer(format, attention.n_kv_heads, attention.head_dim);
        let layer = self.head_cache.unwrap_or_else(own);
        self.pending.push(RowOperation::WriteKv { layer, keys, values });
        self.cached.push(Some(layer));
        layer
    }

    fn position(&mut self, stream: &Stream, heads: Part, norm: Option<VectorId>, attention: &AttentionSpec) {
        let head_dim = attention.head_dim;
        let rotate = attention.rope.map(|rope| RowOperation::Rotate { heads, head_dim, rope: stream.ropes[rope] });
        let is_late = attention.qk_norm == Some(QkNorm::BareAfterRotation);
        if let Some(weight) = norm.filter(|_| !is_late) {
            self.norm(heads, weight);
        }
        self.pending.extend(rotate);
        if let Some(weight) = norm.filter(|_| is_late) {
            self.norm(heads, weight);
        }
    }
}
