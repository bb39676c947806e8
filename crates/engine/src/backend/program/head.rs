//! The head that predicts the token after the next one, for speculation.
//!
//! At each position, it reads a token together with the model's output for the token before. So a step also writes the
//! keys and values of the head for all of its tokens: they are then in the same blocks as those of the layers, and the
//! model's output for the last token is part of the state, so that the head needs no bookkeeping of its own. The phases
//! after those of a step predict one token, from values that the caller passes.

use hone_kernels::step::{ConvolutionOptions, MatrixId, QuantizedRows, RowOperation, Rows, VectorId};

use super::buffers::Stream;
use super::{Description, InProgram, Linear};
use crate::backend::tensors::{HeadParts, MixerParts};
use crate::decoder::Mixer;

/// Rows for users of the head.
pub(in crate::backend) struct HeadRows {
    /// The model's output for the token before, an input of the phases after a step.
    pub(in crate::backend) previous: Rows,
    /// The output of the model, or of the head, for the selected tokens.
    pub(in crate::backend) hidden: Rows,
}

/// The beginning and the end of the model, which the head uses where it lacks its own.
pub(super) struct ModelEnds {
    pub(super) embeddings: Option<MatrixId>,
    pub(super) norm: VectorId,
    pub(super) output: Linear,
    pub(super) logits: Rows,
}

/// The buffers of the head, for all tokens.
struct HeadBuffers {
    /// The output of the model, or of the head.
    hidden: Rows,
    /// The output for the token before.
    previous: Rows,
    /// The token's embedding, and the output for the token before.
    joined: Rows,
    input: QuantizedRows,
}

impl<S: InProgram> Description<'_, S> {
    /// The end of the model, and its head.
    pub(super) fn head(
        &mut self,
        [tokens, selected]: [&Stream; 2],
        parts: &HeadParts<S>,
        mixer: &Mixer,
        model: &ModelEnds,
    ) -> HeadRows {
        let (MixerParts::Attention(attention_parts), Mixer::Attention(attention)) = (&parts.layer.mixer, mixer) else {
            unreachable!("a head attends")
        };
        let width = self.spec.hidden_size;
        let buffers = HeadBuffers {
            hidden: self.builder.rows(tokens.set, width),
            previous: self.builder.rows(tokens.set, width),
            joined: self.builder.rows(tokens.set, 2 * width),
            input: self.builder.quantized(tokens.set, 2 * width, self.formats.activations),
        };
        let embeddings = parts.embeddings.or(model.embeddings).expect("a head without its own reads the model's");

        self.give_hidden([tokens, selected], buffers.hidden, model.norm);
        self.pending.push(RowOperation::Gather { from: tokens.state.all(), to: selected.state.all() });
        self.logits(selected, model.output, model.logits);
        self.shift(&buffers);
        self.join(tokens, parts, embeddings, &buffers);
        self.read_stream(tokens, parts.layer.mixer_norm);
        self.head_cache = Some(self.keys_and_values(tokens, attention_parts, attention));

        self.builder.end_step();
        self.angles(tokens);
        self.join(tokens, parts, embeddings, &buffers);
        let mixed = self.mix(tokens, &parts.layer, mixer);
        self.after_mixer(tokens, &parts.layer, mixed);
        self.feed_forward(tokens, &parts.layer);
        self.give_hidden([tokens, selected], buffers.hidden, parts.norm.unwrap_or(model.norm));
        self.logits(selected, parts.output.unwrap_or(model.output), model.logits);
        HeadRows { previous: buffers.previous, hidden: selected.normed }
    }

    /// Norms the residual stream of all tokens, which the head reads, and makes it the input of the selected tokens'
    /// next product.
    fn give_hidden(&mut self, [tokens, selected]: [&Stream; 2], hidden: Rows, norm: VectorId) {
        self.pending.push(RowOperation::Copy { from: tokens.hidden.all(), to: hidden.all() });
        self.norm(hidden.all(), norm);
        self.flush(tokens.set);
        self.pending.push(RowOperation::Gather { from: hidden.all(), to: selected.normed.all() });
        self.pending.push(RowOperation::Quantize { from: selected.normed.all(), to: selected.input });
        self.flush(selected.set);
    }

    /// Moves the model's output to the next token, also from the last token of a step to the first of the next: this is
    /// a convolution whose only nonzero tap meets the token before.
    fn shift(&mut self, buffers: &HeadBuffers) {
        let shape = self.spec.head_state().expect("there is a head");
        let layer = self.builder.state_layer(shape);
        let mut taps = vec![1.0; shape.n_channels];
        taps.resize(shape.n_taps * shape.n_channels, 0.0);
        let taps = self.builder.vector(taps);
        let (from, to) = (buffers.hidden.all(), buffers.previous.all());
        self.builder.convolution(&ConvolutionOptions { layer, from, to, taps, bias: None, has_silu: false });
    }

    /// Makes the residual stream of the head's block from a token and the output for the token before.
    fn join(&mut self, stream: &Stream, parts: &HeadParts<S>, embeddings: MatrixId, buffers: &HeadBuffers) {
        let width = self.spec.hidden_size;
        let &HeadBuffers { previous, joined, input, .. } = buffers;
        let (token, before) = (joined.part(0, width), joined.part(width, width));
        let scale = self.spec.embedding_scale.unwrap_or(1.0);
        self.pending.push(RowOperation::Embed { table: embeddings, scale, to: stream.normed });
        self.norm(stream.normed.all(), parts.token_norm);
        self.pending.push(RowOperation::Copy { from: stream.normed.all(), to: token });
        self.pending.push(RowOperation::Copy { from: previous.all(), to: before });
        self.norm(before, parts.hidden_norm);
        self.pending.push(RowOperation::Quantize { from: joined.all(), to: input });
        self.flush(stream.set);
        self.product(input, &[(parts.input, stream.hidden.all())]);
    }
}
