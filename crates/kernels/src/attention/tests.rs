use std::collections::BTreeMap;

use half::f16;

use super::plan::{Plan, Span};
use super::*;
use crate::arch::portable;
use crate::elementwise::tests::{available, cases, numbers, sized};
use crate::platform::Kernels;

const GEOMETRY: Geometry = Geometry {
    n_heads: sized(6, 2),
    n_kv_heads: sized(2, 1),
    head_dim: sized(64, 2),
    scale: 0.3,
    soft_cap: None,
    window: None,
};

/// Sequences with scattered blocks, and keys and values at every position.
struct Case {
    geometry: Geometry,
    spans: Vec<Span>,
    blocks: Vec<Vec<u32>>,
    layer: KvLayer,
    queries: Vec<f32>,
    sinks: Option<Vec<f32>>,
    /// Key and value by sequence, position and head.
    cached: BTreeMap<(usize, usize, usize), [Vec<f64>; 2]>,
}

impl Case {
    /// `sequences` gives the position and the number of the new tokens of each.
    fn new(geometry: Geometry, sequences: &[(usize, usize)]) -> Self {
        Self::stored(KvFormat::F16, geometry, sequences)
    }

    fn stored(format: KvFormat, geometry: Geometry, sequences: &[(usize, usize)]) -> Self {
        let mut layer = KvLayer::new(format, geometry.n_kv_heads, geometry.head_dim);
        let (mut spans, mut blocks, mut n_rows, mut n_blocks) = (Vec::new(), Vec::new(), 0, 0);
        for &(position, n_tokens) in sequences {
            spans.push(Span { first_row: n_rows, position, n_tokens });
            n_rows += n_tokens;
            let n_own = (position + n_tokens).div_ceil(BLOCK_TOKENS) as u32;
            blocks.push((0..n_own).rev().map(|index| n_blocks + index).collect());
            n_blocks += n_own;
        }
        layer.grow(n_blocks as usize);
        let queries = numbers(1, n_rows * geometry.n_heads * geometry.head_dim, 2.0);
        let mut case = Case { geometry, spans, blocks, layer, queries, sinks: None, cached: BTreeMap::new() };
        case.fill();
        case
    }

    fn fill(&mut self) {
        for (sequence, span) in self.spans.iter().enumerate() {
            for position in 0..span.position + span.n_tokens {
                for kv_head in 0..self.geometry.n_kv_heads {
                    let (key, value) = self.key_and_value(sequence, position, kv_head);
                    let block = self.blocks[sequence][position / BLOCK_TOKENS];
                    // SAFETY: no one else accesses the layer.
                    unsafe { self.layer.write(block, position % BLOCK_TOKENS, kv_head, &key, &value) }
                    let doubles = |halves: Vec<f16>| halves.into_iter().map(f64::from).collect();
                    self.cached.insert((sequence, position, kv_head), [key, value].map(doubles));
                }
            }
        }
    }

    fn key_and_value(&self, sequence: usize, position: usize, kv_head: usize) -> (Vec<f16>, Vec<f16>) {
        let seed = 7 + (sequence * 10_000 + position) * 64 + kv_head * 2;
        let halves = |seed: usize| {
            numbers(seed as u32, self.geometry.head_dim, 1.0).into_iter().map(f16::from_f32).collect::<Vec<f16>>()
        };
        (halves(seed), halves(seed + 1))
    }

    /// The formula, in double precision.
    fn naive(&self) -> Vec<f64> {
        let Geometry { n_heads, head_dim, .. } = self.geometry;
        let mut out = Vec::new();
        for (sequence, span) in self.spans.iter().enumerate() {
            for token in 0..span.n_tokens {
                for head in 0..n_heads {
                    let start = ((span.first_row + token) * n_heads + head) * head_dim;
                    let query = &self.queries[start..start + head_dim];
                    out.extend(self.naive_head(sequence, span.position + token, head, query));
                }
            }
        }
        out
    }

    fn naive_head(&self, sequence: usize, position: usize, head: usize, query: &[f32]) -> Vec<f64> {
        let kv_head = head / self.geometry.group();
        let seen = self.geometry.first_visible(position)..position + 1;
        let cached: Vec<_> = seen.map(|position| &self.cached[&(sequence, position, kv_head)]).collect();
        let score = |key: &[f64]| {
            let dot: f64 = query.iter().zip(key).map(|(x, y)| f64::from(*x) * y).sum();
            let score = dot * f64::from(self.geometry.scale);
            self.geometry.soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
        };
        let weights: Vec<f64> = cached.iter().map(|[key, _]| score(key).exp()).collect();
        let sink = self.sinks.as_ref().map_or(0.0, |sinks| f64::from(sinks[head]).exp());
        let sum: f64 = weights.iter().sum::<f64>() + sink;
        let element = |index: usize| {
            weights.iter().zip(&cached).map(|(weight, [_, value])| weight * value[index]).sum::<f64>() / sum
        };
        (0..self.geometry.head_dim).map(element).collect()
    }

    fn ours(&self, kernels: &Kernels) -> Vec<f32> {
        let mut plan = Plan::default();
        plan.make(&self.geometry, &self.spans);
        let mut out = vec![f32::NAN; self.queries.len()];
        let mut partials = vec![f32::NAN; plan.n_partials * self.geometry.partial_width()];
        let width = self.geometry.n_heads * self.geometry.head_dim;
        let attention = Attention {
            geometry: self.geometry,
            layer: &self.layer,
            queries: self.queries.as_ptr(),
            query_stride: width,
            out: out.as_mut_ptr(),
            out_stride: width,
            partials: partials.as_mut_ptr(),
            sinks: self.sinks.as_deref(),
        };
        let mut scratch = Scratch::new(std::iter::once(&self.geometry));
        for task in &plan.tasks {
            // SAFETY: the machine has the instruction set, and the buffers are those of the plan.
            unsafe { kernels.attention.attend(&attention, task, &self.blocks[task.sequence], &mut scratch) }
        }
        for merged in &plan.merges {
            // SAFETY: as above.
            unsafe { kernels.attention.merge(&attention, merged) }
        }
        out
    }
}

#[track_caller]
fn check(geometry: Geometry, sequences: &[(usize, usize)]) {
    check_within(1e-5, geometry, sequences);
}

#[track_caller]
fn check_within(tolerance: f64, geometry: Geometry, sequences: &[(usize, usize)]) {
    check_case(tolerance, &Case::new(geometry, sequences));
}

#[track_caller]
fn check_case(tolerance: f64, case: &Case) {
    let (geometry, expected) = (case.geometry, case.naive());
    for kernels in available() {
        let ours = case.ours(kernels);
        for (index, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
            let difference = (f64::from(*ours) - expected).abs();
            assert!(difference < tolerance, "{kernels:?}, {geometry:?}: element {index} is {ours}, not {expected}");
        }
    }
}

#[test]
fn one_new_token() {
    for position in cases(&[0, 32, 31, 1, 127, 128, 500], 2) {
        check(GEOMETRY, &[(*position, 1)]);
    }
}

#[test]
fn a_prompt() {
    for n_tokens in cases(&[2, 21, 33, 150], 1) {
        check(GEOMETRY, &[(0, *n_tokens)]);
    }
}

#[test]
fn a_prompt_after_another() {
    check(GEOMETRY, &[(45, sized(70, 1))]);
    check(GEOMETRY, &[(sized(600, 60), sized(3, 1))]);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn ragged_sequences() {
    check(GEOMETRY, &[(0, 40), (700, 1), (3, 1), (64, 5)]);
}

#[test]
fn windows() {
    for window in cases(&[32, 1, 16, 100, 1000], 1) {
        check(
            Geometry { window: Some(Window::Sliding(*window)), ..GEOMETRY },
            &[(0, sized(150, 1)), (513, 1), (sized(90, 31), sized(4, 2))],
        );
    }
}

#[test]
fn chunks() {
    for length in cases(&[32, 1, 20, 100, 1000], 1) {
        let geometry = Geometry { window: Some(Window::Chunk(*length)), ..GEOMETRY };
        check(geometry, &[(0, sized(150, 1)), (513, 1), (sized(90, 31), sized(14, 2))]);
    }
}

#[test]
fn sinks_take_a_part_of_the_weights() {
    let mut case = Case::new(GEOMETRY, &[(0, sized(40, 2)), (sized(700, 33), 1)]);
    for level in cases(&[0.0, -3.0, 5.0, 80.0, -80.0], 1) {
        case.sinks = Some(numbers(3, GEOMETRY.n_heads, 1.0).iter().map(|sink| sink + level).collect());
        check_case(1e-5, &case);
    }
    case.sinks = Some(vec![1e4; GEOMETRY.n_heads]);
    assert!(case.ours(&portable::KERNELS).iter().all(|value| *value == 0.0), "nothing is left of the values");
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn soft_caps() {
    check(Geometry { soft_cap: Some(3.0), ..GEOMETRY }, &[(0, 40), (300, 1)]);
    check(Geometry { soft_cap: Some(3.0), window: Some(Window::Sliding(20)), ..GEOMETRY }, &[(0, 40), (300, 1)]);
}

#[test]
fn heads_of_every_width_and_number() {
    for &head_dim in cases(&[20, 2, 32, 80, 96, 128, 256], 1) {
        let scale = 1.0 / (head_dim as f32).sqrt();
        check(Geometry { head_dim, scale, ..GEOMETRY }, &[(30, sized(5, 1)), (sized(300, 0), 1)]);
    }
    for &(n_heads, n_kv_heads) in cases(&[(5, 1), (3, 3), (1, 1), (13, 1), (80, 1), (28, 4)], 1) {
        check(Geometry { n_heads, n_kv_heads, ..GEOMETRY }, &[(30, sized(5, 1)), (sized(300, 0), 1)]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn large_scores() {
    // Scores of several hundred leave fewer digits after the decimal point.
    check_within(1e-4, Geometry { scale: 30.0, head_dim: 32, ..GEOMETRY }, &[(0, 40), (300, 1)]);
}

#[test]
fn long_contexts_are_cut_and_short_ones_are_not() {
    let geometry = Geometry { n_heads: 6, n_kv_heads: 2, ..GEOMETRY };
    let tasks = |position, n_tokens| {
        let mut plan = Plan::default();
        plan.make(&geometry, &[Span { first_row: 0, position, n_tokens }]);
        (plan.tasks.len(), plan.merges.len())
    };
    assert_eq!(tasks(100, 1), (2, 0));
    assert_eq!(tasks(2047, 1), (8, 2));
    assert_eq!(tasks(0, 21), (2, 0));
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes and reaches the same memory as others")]
fn a_tokens_result_does_not_depend_on_what_is_computed_beside_it() {
    for window in [None, Some(Window::Sliding(300)), Some(Window::Chunk(300))] {
        let geometry = Geometry { window, ..GEOMETRY };
        for set in available() {
            let first_row = |spans: &[(usize, usize)]| {
                let results = Case::new(geometry, spans).ours(set);
                bits(&results[..geometry.n_heads * geometry.head_dim])
            };
            for position in [5, 250, 500, 511, 512, 1300] {
                let alone = first_row(&[(position, 1)]);
                for n_tokens in [9, 200] {
                    let beside = first_row(&[(position, n_tokens), (700, 3), (40, 1)]);
                    assert_eq!(beside, alone, "{set:?} {window:?} {position} {n_tokens}");
                }
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_copied_block_holds_the_same() {
    let mut case = Case::new(GEOMETRY, &[(0, sized(40, 4))]);
    let before = case.ours(&portable::KERNELS);
    case.layer.grow(200);
    case.layer.copy_block(case.blocks[0][0], 199);
    case.blocks[0][0] = 199;
    assert_eq!(case.ours(&portable::KERNELS), before);
}

/// Elements are below 1, so a step of the quants is below 1/127, and rounding changes elements by at most half of that:
/// in the scores, which sum up 64 such errors, and in the values.
#[test]
fn a_cache_in_8_bits_gives_nearly_the_same() {
    for &window in cases(&[None, Some(Window::Sliding(100))], 1) {
        for &head_dim in cases(&[20, 32, 64, 80, 128], 1) {
            let geometry = Geometry { window, head_dim, ..GEOMETRY };
            check_case(
                0.02,
                &Case::stored(
                    KvFormat::Q8_0,
                    geometry,
                    &[(0, sized(40, 1)), (sized(700, 33), 1), (sized(64, 1), sized(5, 1))],
                ),
            );
        }
    }
}

#[test]
fn a_copied_block_in_8_bits_holds_the_same() {
    let mut case = Case::stored(KvFormat::Q8_0, GEOMETRY, &[(0, sized(40, 4))]);
    let before = case.ours(&portable::KERNELS);
    case.layer.grow(200);
    case.layer.copy_block(case.blocks[0][0], 199);
    case.blocks[0][0] = 199;
    assert_eq!(case.ours(&portable::KERNELS), before);
}

#[test]
fn a_cache_in_8_bits_takes_little_more_than_half() {
    let bytes = |format| KvLayer::new(format, 1, 128).block_bytes();
    assert_eq!(bytes(KvFormat::F16), 2 * 32 * 128 * 2);
    assert_eq!(bytes(KvFormat::Q8_0), 2 * 32 * 128 * 34 / 32);
}
