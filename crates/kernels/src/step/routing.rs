//! Which experts a step's tokens go to.
//!
//! Every row chooses its experts by itself; then one task sorts the choices by expert, so that an expert multiplies all
//! of its rows as one product. A sorted choice has a rank, and is a row of the buffers of [`RowSet::Routed`]. What is
//! computed for a row does not depend on the other rows of the step.

use std::cell::UnsafeCell;

use super::operation::{RowSet, Rows};

/// How scores of experts become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Probabilities over all experts.
    Softmax,
    /// Probabilities over the chosen experts.
    SoftmaxOfChosen,
    /// Each expert's score by itself.
    Sigmoid,
}

/// How rows choose their experts. The highest are chosen, of equal ones the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingOptions {
    /// How scores become weights.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub is_normalized: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

impl RoutingOptions {
    /// Fills the first half of `choices` with the numbers of the chosen experts and the second with their weights. The
    /// logits, one for each expert, are changed. `selection_bias` is added to the scores by which experts are chosen,
    /// but not to their weights; `output_scales` multiplies the weights of each expert.
    ///
    /// # Panics
    /// When there are more choices than experts, or a vector is shorter than the logits.
    pub fn choose(
        &self,
        logits: &mut [f32],
        selection_bias: Option<&[f32]>,
        output_scales: Option<&[f32]>,
        choices: &mut [f32],
    ) {
        let (experts, weights) = choices.split_at_mut(choices.len() / 2);
        match selection_bias {
            None => {
                prefer(experts, logits.len(), |expert| logits[expert]);
                gate(self.gating, logits);
            }
            Some(bias) => {
                gate(self.gating, logits);
                prefer(experts, logits.len(), |expert| logits[expert] + bias[expert]);
            }
        }
        weights.iter_mut().zip(&*experts).for_each(|(weight, expert)| *weight = logits[*expert as usize]);
        if self.gating == Gating::SoftmaxOfChosen {
            softmax(weights);
        }
        let mut factor = self.scale;
        if self.is_normalized {
            // No smaller than the smallest normal number in half precision, as in llama.cpp.
            factor /= weights.iter().sum::<f32>().max(6.103_515_6e-5);
        }
        for (weight, expert) in weights.iter_mut().zip(&*experts) {
            *weight *= factor * output_scales.map_or(1.0, |scales| scales[*expert as usize]);
        }
    }
}

/// Fills `experts` with the numbers of those that score highest.
fn prefer(experts: &mut [f32], n_experts: usize, score: impl Fn(usize) -> f32) {
    for slot in 0..experts.len() {
        let is_free = |expert: &usize| !experts[..slot].contains(&(*expert as f32));
        let better = |best: usize, expert: usize| if score(expert) > score(best) { expert } else { best };
        let best = (0..n_experts).filter(is_free).reduce(better).expect("there are more experts than choices");
        experts[slot] = best as f32;
    }
}

fn gate(gating: Gating, logits: &mut [f32]) {
    match gating {
        Gating::Softmax => softmax(logits),
        Gating::SoftmaxOfChosen => {}
        Gating::Sigmoid => logits.iter_mut().for_each(|logit| *logit = 1.0 / (1.0 + (-*logit).exp())),
    }
}

fn softmax(values: &mut [f32]) {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - largest).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

/// One set of rows that choose experts.
pub(super) struct Router {
    /// The set of the rows that choose.
    pub(super) base: RowSet,
    pub(super) n_experts: usize,
    pub(super) n_used: usize,
    /// What every row chose.
    pub(super) choices: Rows,
    plan: PlanCell,
}

struct PlanCell(UnsafeCell<RoutePlan>);

// SAFETY: one task of a phase of its own writes the plan, and only later phases read it.
unsafe impl Sync for PlanCell {}

impl Router {
    pub(super) fn new(base: RowSet, n_experts: usize, n_used: usize, choices: Rows) -> Self {
        Router { base, n_experts, n_used, choices, plan: PlanCell(UnsafeCell::default()) }
    }

    /// # Safety
    /// No one replaces the plan meanwhile.
    pub(super) unsafe fn plan(&self) -> &RoutePlan {
        // SAFETY: the caller's promise.
        unsafe { &*self.plan.0.get() }
    }

    /// # Safety
    /// No one else uses the plan meanwhile.
    #[allow(clippy::mut_from_ref, reason = "only the task of the planning phase asks for it")]
    pub(super) unsafe fn plan_mut(&self) -> &mut RoutePlan {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.plan.0.get() }
    }
}

/// The choices of a step, sorted by expert. Kept between steps to reuse its memory.
#[derive(Default)]
pub(super) struct RoutePlan {
    /// By row and choice.
    ranks: Vec<u32>,
    /// By rank.
    rows: Vec<u32>,
    experts: Vec<u32>,
    weights: Vec<f32>,
    /// Experts that have rows, those with the most first.
    active: Vec<ActiveExpert>,
    n_tasks: usize,
    /// The next rank of every expert, while ranks are given out.
    next: Vec<u32>,
}

/// An expert with its rows.
#[derive(Clone, Copy)]
pub(super) struct ActiveExpert {
    pub(super) expert: usize,
    pub(super) first_rank: usize,
    pub(super) n_rows: usize,
    /// The tasks of a product that belong to it.
    first_task: usize,
    pub(super) n_tasks: usize,
}

/// What reading an expert's weights costs, in rows that are multiplied with them.
const READING_ROWS: usize = 6;

impl RoutePlan {
    /// Sorts the choices of `n_rows` rows and divides a product over all of them into about `n_pieces` tasks of about
    /// equal cost. `choice` is given a row and the number of its choice, and returns the expert and its weight.
    pub(super) fn make(
        &mut self,
        [n_rows, n_used, n_experts, n_pieces]: [usize; 4],
        choice: impl Fn(usize, usize) -> (usize, f32),
    ) {
        self.next.clear();
        self.next.resize(n_experts, 0);
        let slots = || (0..n_rows).flat_map(|row| (0..n_used).map(move |slot| (row, slot)));
        slots().for_each(|(row, slot)| self.next[choice(row, slot).0] += 1);
        self.activate(n_pieces);
        let n_ranks = n_rows * n_used;
        self.ranks.clear();
        self.rows.resize(n_ranks, 0);
        self.experts.resize(n_ranks, 0);
        self.weights.resize(n_ranks, 0.0);
        for (row, slot) in slots() {
            let (expert, weight) = choice(row, slot);
            let rank = self.next[expert] as usize;
            self.next[expert] += 1;
            self.ranks.push(rank as u32);
            (self.rows[rank], self.experts[rank], self.weights[rank]) = (row as u32, expert as u32, weight);
        }
    }

    /// Lists the experts that have rows, and turns the number of each one's rows into its first rank.
    fn activate(&mut self, n_pieces: usize) {
        self.active.clear();
        let mut first_rank = 0;
        for (expert, next) in self.next.iter_mut().enumerate() {
            let n_rows = std::mem::replace(next, first_rank as u32) as usize;
            if n_rows > 0 {
                self.active.push(ActiveExpert { expert, first_rank, n_rows, first_task: 0, n_tasks: 0 });
            }
            first_rank += n_rows;
        }
        self.active.sort_by_key(|active| std::cmp::Reverse(active.n_rows));
        let total = first_rank + READING_ROWS * self.active.len();
        self.n_tasks = 0;
        for active in &mut self.active {
            active.first_task = self.n_tasks;
            active.n_tasks = ((active.n_rows + READING_ROWS) * n_pieces).div_ceil(total.max(1));
            self.n_tasks += active.n_tasks;
        }
    }

    /// The tasks of a product.
    pub(super) fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    /// The expert that a task of a product belongs to, and the number of the task among its own.
    pub(super) fn task(&self, task: usize) -> (ActiveExpert, usize) {
        let after = self.active.partition_point(|active| active.first_task <= task);
        let active = self.active[after - 1];
        (active, task - active.first_task)
    }

    /// Where the result of a row's choice is.
    pub(super) fn rank(&self, index: usize) -> usize {
        self.ranks[index] as usize
    }

    /// The row whose choice has this rank.
    pub(super) fn row(&self, rank: usize) -> usize {
        self.rows[rank] as usize
    }

    /// The expert that the choice of this rank fell on.
    pub(super) fn expert(&self, rank: usize) -> usize {
        self.experts[rank] as usize
    }

    /// The weight of the choice of this rank.
    pub(super) fn weight(&self, rank: usize) -> f32 {
        self.weights[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: RoutingOptions, bias: Option<&[f32]>, experts: [f32; 2], weights: [f32; 2]) {
        let mut choices = [0.0; 4];
        options.choose(&mut [0.0, 1.0, 3.0, 2.0], bias, None, &mut choices);
        assert_eq!(choices[..2], experts);
        for (ours, expected) in choices[2..].iter().zip(weights) {
            assert!((ours - expected).abs() < 1e-5, "{ours} and not {expected}");
        }
    }

    #[test]
    fn scores_become_weights() {
        let plain = RoutingOptions { gating: Gating::Softmax, is_normalized: false, scale: 1.0 };
        let e = |x: f32| x.exp();
        let sum = 1.0 + e(1.0) + e(2.0) + e(3.0);
        check(plain, None, [2.0, 3.0], [e(3.0) / sum, e(2.0) / sum]);
        let chosen = [e(3.0) / (e(3.0) + e(2.0)), e(2.0) / (e(3.0) + e(2.0))];
        check(RoutingOptions { is_normalized: true, ..plain }, None, [2.0, 3.0], chosen);
        check(RoutingOptions { gating: Gating::SoftmaxOfChosen, ..plain }, None, [2.0, 3.0], chosen);
        let sigmoid = |x: f32| 1.0 / (1.0 + e(-x));
        let sigmoids = RoutingOptions { gating: Gating::Sigmoid, scale: 2.0, ..plain };
        check(sigmoids, None, [2.0, 3.0], [2.0 * sigmoid(3.0), 2.0 * sigmoid(2.0)]);
        let bias = [0.9, 0.0, 0.0, 0.0];
        check(sigmoids, Some(&bias), [0.0, 2.0], [2.0 * sigmoid(0.0), 2.0 * sigmoid(3.0)]);
    }

    #[test]
    fn every_choice_has_a_rank_among_its_experts() {
        let choices = [[3, 0], [0, 1], [3, 0], [3, 4]];
        let mut plan = RoutePlan::default();
        for _ in 0..2 {
            plan.make([4, 2, 5, 10], |row, slot| (choices[row][slot], (10 * row + slot) as f32));
            for (row, slot) in (0..4).flat_map(|row| [(row, 0), (row, 1)]) {
                let rank = plan.rank(2 * row + slot);
                assert_eq!((plan.row(rank), plan.expert(rank)), (row, choices[row][slot]));
                assert_eq!(plan.weight(rank), (10 * row + slot) as f32);
            }
            let mut seen: Vec<(usize, usize)> = (0..plan.n_tasks())
                .map(|task| plan.task(task))
                .map(|(active, part)| {
                    assert!(part < active.n_tasks);
                    let ranks = active.first_rank..active.first_rank + active.n_rows;
                    assert!(ranks.clone().all(|rank| plan.expert(rank) == active.expert));
                    (active.expert, active.n_rows)
                })
                .collect();
            seen.dedup();
            assert_eq!(seen, [(0, 3), (3, 3), (1, 1), (4, 1)]);
        }
        plan.make([0, 2, 5, 10], |_, _| unreachable!());
        assert_eq!(plan.n_tasks(), 0);
    }
}
