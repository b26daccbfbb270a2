//! The end of a bounded run (rule S5): after so many tasks, or when every task has ended.
//!
//! Owns which tasks count against a limit and the moment when it is over. A limit counts tasks, not attempts: a repeat of
//! one that counts already is always claimed.

use super::Finaliser;
use crate::report::Order;
use crate::stage::StageFailure;
use dispatcher_core::id::TaskId;
use dispatcher_store::{ClaimedTask, TaskFilter, TaskState};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// How many tasks may still be begun, and those that were and are not over.
#[derive(Debug)]
pub(super) struct TaskLimit {
    left: u64,
    open: HashSet<TaskId>,
}

impl TaskLimit {
    pub(super) fn new(tasks: u64) -> Self {
        Self { left: tasks, open: HashSet::new() }
    }

    /// How many tasks a claim may bring, of `room` that there is. Repeats come first among their like, so that asking for
    /// some more than are open finds them.
    pub(super) fn most(&self, room: usize) -> usize {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let repeats = if self.open.is_empty() { 0 } else { self.open.len() * 2 + 8 };
        room.min(left.saturating_add(repeats))
    }

    /// Whether a claimed task may be handed out.
    pub(super) fn admit(&mut self, task: &ClaimedTask) -> bool {
        let id = task.lease.task;
        if self.open.contains(&id) {
            return true;
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.open.insert(id)
    }

    /// A task is over.
    pub(super) fn over(&mut self, task: TaskId) {
        self.open.remove(&task);
    }

    fn is_reached(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }
}

impl Finaliser {
    /// Ends a bounded run: its limit is reached, or everything is imported and nothing is ready, leased, in a batch or to be
    /// published.
    pub(super) fn finish_when_empty(&mut self) -> Result<(), StageFailure> {
        let shared = &self.parts.shared;
        let reached = self.limit.as_ref().is_some_and(TaskLimit::is_reached);
        let quiet = (shared.finish_when_empty.load(Ordering::Acquire) || reached)
            && !shared.is_draining()
            && shared.stock.total() == 0
            && self.parts.set.counts().in_flight == 0
            && self.publishing.is_empty()
            && (self.now() < self.claim_at || reached);
        if !quiet {
            return Ok(());
        }
        while !self.batch.is_empty() {
            self.write_batch()?;
        }
        let finished = !self.has_open_tasks()?;
        if finished || reached {
            self.parts.shared.finished.store(finished, Ordering::Release);
            self.parts.shared.begin_drain(self.parts.drain_when_empty);
            self.order(Order::Drain)?;
        }
        Ok(())
    }

    fn has_open_tasks(&self) -> Result<bool, StageFailure> {
        let filter = TaskFilter { states: vec![TaskState::Ready, TaskState::Leased], ..TaskFilter::default() };
        let open = self.patiently(|store| {
            let filter = filter.clone();
            async move { store.tasks(&filter, TaskId(0), 1).await }
        })?;
        Ok(!open.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::{CorpusId, EntryName, Epoch, LeaseId, Run, ServiceId};
    use dispatcher_core::time::SpanMs;

    fn claimed(id: i64) -> ClaimedTask {
        ClaimedTask {
            lease: LeaseId { task: TaskId(id), run: Run(1), epoch: Epoch(1) },
            service: ServiceId(1),
            corpus: CorpusId(1),
            entry: EntryName(Vec::new()),
            input_size: 0,
            input_mtime_ns: 0,
            charged: 0,
            timeout_ms: SpanMs::seconds(1),
            last_cause: None,
        }
    }

    // Rule S5. Case F61.
    #[test]
    fn a_limit_counts_tasks_and_not_their_repeats() {
        let mut limit = TaskLimit::new(2);
        assert!(limit.admit(&claimed(1)) && limit.admit(&claimed(2)));
        assert!(limit.admit(&claimed(1)), "a repeat");
        assert!(!limit.admit(&claimed(3)), "a third task");
        assert!(!limit.is_reached());
        limit.over(TaskId(1));
        assert!(limit.most(100) > 1, "a repeat of the other may come");
        limit.over(TaskId(2));
        assert!(limit.is_reached());
        assert_eq!(limit.most(100), 0);
    }

    // Rule S5.
    #[test]
    fn a_limit_of_nothing_is_reached_at_once() {
        assert!(TaskLimit::new(0).is_reached());
    }
}
