//! Which experts a step's tokens go to.
//!
//! Every row chooses its experts by itself; then one task sorts the choices by expert, so that an expert multiplies all
//! of its rows as one product. A sorted choice has a rank, and is a row of the buffers of [`RowSet::Routed`]. The
//! results of a row do not depend on the other rows of the step.

use std::cell::UnsafeCell;

use super::operation::{RowSet, Rows};

/// One set of rows that choose experts.
pub(super) struct Router {
    /// The set of the rows that choose.
    pub(super) base: RowSet,
    pub(super) n_experts: usize,
    pub(super) n_used: usize,
    /// The choices of every row.
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
    /// The next rank of every expert, while ranks are assigned.
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

/// The cost of reading an expert's weights, in rows that are multiplied with them.
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

    /// Experts that have rows.
    pub(super) fn active(&self) -> &[ActiveExpert] {
        &self.active
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

    /// The expert of the choice with this rank.
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
