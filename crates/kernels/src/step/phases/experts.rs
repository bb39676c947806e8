//! The phases of a mixture of experts.

use super::Execution;
use crate::step::operation::{ExpertProductPhase, ExpertsId, QuantizedRows, RowOperation, RowSet};
use crate::step::routing::{RoutePlan, Router};
use crate::step::{Part, RouterId};

/// Products with experts are cut into this many pieces per thread.
const PIECES_PER_THREAD: usize = 8;

impl Execution<'_> {
    fn router(&self, router: RouterId) -> &Router {
        &self.program.routers[router.0]
    }

    /// The plan of a router, after its phase.
    fn routes(&self, router: RouterId) -> &RoutePlan {
        // SAFETY: the plan is replaced by the one task of its phase, and only operations of later phases read it.
        unsafe { self.router(router).plan() }
    }

    /// Runs operations that choose experts, or depend on the choice.
    pub(super) fn route_row(&self, set: RowSet, row: usize, operation: &RowOperation) {
        let program = self.program;
        match *operation {
            RowOperation::Route { router, logits, options, selection_bias, output_scales } => {
                let vector = |id: crate::step::VectorId| program.vectors[id.0].as_slice();
                let choices = self.part_mut(row, self.router(router).choices.all());
                let (bias, scales) = (selection_bias.map(vector), output_scales.map(vector));
                options.choose(self.part_mut(row, logits), bias, scales, choices);
            }
            RowOperation::Weigh { values } => {
                let weight = self.routes_of(set).weight(row);
                self.kernels.elementwise.scale(self.part_mut(row, values), weight);
            }
            RowOperation::AddExpertBias { biases, to } => {
                let expert = self.routes_of(set).expert(row);
                let bias = &program.vectors[biases.0][expert * to.width..(expert + 1) * to.width];
                self.kernels.elementwise.add(self.part_mut(row, to), bias);
            }
            RowOperation::Combine { router, from, is_weighted, to } => {
                self.combine(row, router, from.all(), is_weighted, to);
            }
            _ => unreachable!("the operation has nothing to do with experts"),
        }
    }

    fn routes_of(&self, set: RowSet) -> &RoutePlan {
        match set {
            RowSet::Routed(router) => self.routes(router),
            _ => unreachable!("the builder has checked that the rows are routed"),
        }
    }

    /// Sums in the order of the choices, which depends only on the row.
    fn combine(&self, row: usize, router: RouterId, from: Part, is_weighted: bool, to: Part) {
        let (routes, n_used) = (self.routes(router), self.router(router).n_used);
        let out = self.part_mut(row, to);
        out.fill(0.0);
        for slot in 0..n_used {
            let rank = routes.rank(row * n_used + slot);
            let weight = if is_weighted { routes.weight(rank) } else { 1.0 };
            self.kernels.elementwise.add_scaled(out, self.part(rank, from), weight);
        }
    }

    pub(super) fn plan_routes(&self, router: RouterId) {
        let Router { base, n_experts, n_used, choices, .. } = *self.router(router);
        let choice = |row: usize, slot: usize| {
            let choices = self.part(row, choices.all());
            (choices[slot] as usize, choices[n_used + slot])
        };
        let n_pieces = self.n_threads * PIECES_PER_THREAD;
        // SAFETY: this is the only task of the phase.
        let plan = unsafe { self.router(router).plan_mut() };
        plan.make([self.n_rows(base), n_used, n_experts, n_pieces], choice);
    }

    pub(super) fn spread(&self, router: RouterId, from: QuantizedRows, to: QuantizedRows, task: usize) {
        let (routes, source) = (self.routes(router), self.program.activations(from));
        for rank in self.rows_of(to.set, task) {
            // SAFETY: both have rows of the same width and for the same readers; the row is the task's, and no one
            // writes to the source.
            unsafe { self.program.activations(to).copy_row_shared(rank, source, routes.row(rank)) }
        }
    }

    pub(super) fn reserve_experts(&self, router: RouterId, sets: &[ExpertsId]) {
        let experts = self.routes(router).active().iter().map(|active| active.expert);
        // SAFETY: this is the only task of the phase.
        unsafe { self.program.expert_cache.reserve(&self.program.experts, sets, experts) }
    }

    pub(super) fn missing_experts(&self) -> &[(ExpertsId, usize)] {
        // SAFETY: matrices are reserved in a phase of its own.
        unsafe { self.program.expert_cache.missing() }
    }

    pub(super) fn pack_expert(&self, task: usize) {
        let (set, expert) = self.missing_experts()[task];
        // SAFETY: every missing matrix is listed once, and products are other phases.
        unsafe { self.program.experts[set.0].pack(expert) }
    }

    pub(super) fn n_expert_tasks(&self, product: &ExpertProductPhase) -> usize {
        self.routes(product.router).n_tasks()
    }

    /// A piece of the matrices of one expert, with all rows that chose it.
    pub(super) fn expert_product(&self, product: &ExpertProductPhase, task: usize) {
        let (active, part) = self.routes(product.router).task(task);
        let groups = part * product.n_groups / active.n_tasks..(part + 1) * product.n_groups / active.n_tasks;
        let ranks = active.first_rank..active.first_rank + active.n_rows;
        // SAFETY: the phases before this one have packed the missing matrices.
        let matrix = |id: ExpertsId| unsafe { self.program.experts[id.0].matrix(active.expert) };
        match product.shared {
            Some(only) if self.n_rows(only.set) == 1 => {
                self.multiply(&product.outputs, matrix, groups, only, 0..1, active.first_rank);
            }
            _ => self.multiply(&product.outputs, matrix, groups, product.input, ranks, active.first_rank),
        }
    }
}
