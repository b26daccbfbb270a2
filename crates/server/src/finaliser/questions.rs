//! What only the store can answer for the router.
//!
//! Owns the look-ups about tasks that memory does not know; "unknown" is said by the store, never by a memory miss.

use super::Finaliser;
use crate::report::Order;
use crate::stage::StageFailure;
use dispatcher_core::fleet::Kept;
use dispatcher_core::id::{LeaseId, TaskId, WorkerKey};
use dispatcher_core::wire::HoldState;
use dispatcher_store::{TaskFilter, TaskRow, TaskState};
use std::collections::HashMap;

impl Finaliser {
    /// Sorts what a worker holds: what is finished it sends anyway and is told then; of the rest it goes on with what may
    /// still be of use.
    pub(super) fn answer_holds(
        &mut self,
        worker: WorkerKey,
        holds: Vec<(LeaseId, HoldState)>,
    ) -> Result<(), StageFailure> {
        let rows = self.rows_of(holds.iter().map(|(lease, _)| lease.task).collect())?;
        let (keep, drop) = holds.into_iter().partition::<Vec<_>, _>(|(lease, state)| {
            *state == HoldState::Finished || rows.get(&lease.task).is_some_and(|row| is_of_use(row, *lease))
        });
        let size = |lease: LeaseId| rows.get(&lease.task).map_or(0, |row| row.input_size);
        let now = self.now();
        keep.iter().for_each(|(lease, _)| self.returned(*lease, &worker, now));
        let keep = keep.into_iter().map(|(lease, _)| Kept { lease, size: size(lease) }).collect();
        let drop = drop.into_iter().map(|(lease, _)| lease).collect();
        self.order(Order::Holds { worker, keep, drop })
    }

    pub(super) fn rows_of(&self, ids: Vec<TaskId>) -> Result<HashMap<TaskId, TaskRow>, StageFailure> {
        let max = ids.len();
        let filter = TaskFilter { ids, ..TaskFilter::default() };
        let rows = self.patiently(|store| {
            let filter = filter.clone();
            async move { store.tasks(&filter, TaskId(0), max).await }
        })?;
        Ok(rows.into_iter().map(|row| (row.id, row)).collect())
    }
}

/// Whether a result under `lease` might still land.
fn is_of_use(row: &TaskRow, lease: LeaseId) -> bool {
    let usable_stands = row.standing.is_some_and(|stands| stands.status.is_usable());
    row.run == lease.run && lease.epoch <= row.epoch && row.state != TaskState::Cancelled && !usable_stands
}
