//! Claims ahead: keeps a small stock of claimed tasks ready, so that a worker never waits for the store.
//!
//! Owns when to claim, how much, and the turns of the services; and the moment when a bounded run is over (rule S5).

use super::{Finaliser, Pending, SWEEP_EVERY};
use crate::hooks;
use crate::report::{Order, Work};
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{Claim, ClaimedTask, Record, Service, TaskFilter, TaskState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Finaliser {
    /// When the store is to be asked next; `None` while there is no reason to.
    pub(super) fn next_claim(&self) -> Option<TimeMs> {
        let wanted = self.room() > 0 || self.parts.shared.finish_when_empty.load(Ordering::Acquire);
        (wanted && self.may_claim()).then_some(self.claim_at)
    }

    /// Claims where the stock is low and the store may have something.
    pub(super) fn claim_ahead(&mut self) -> Result<(), StageFailure> {
        let room = self.room();
        if room == 0 || !self.may_claim() || self.now() < self.claim_at {
            return Ok(());
        }
        if self.services.is_empty() {
            self.learn_names()?;
        }
        let mut left = room;
        for n in 0..self.services.len() {
            let service = self.services[n].clone();
            if left == 0 {
                break;
            }
            left -= self.claim_of(&service, left)?;
        }
        // Turns: the next claim begins with another service.
        if !self.services.is_empty() {
            self.services.rotate_left(1);
        }
        if left > 0 {
            self.claim_at = self.now().after(SWEEP_EVERY);
        }
        Ok(())
    }

    /// Claims up to `max` tasks of a service and sends them to the router.
    fn claim_of(&mut self, service: &Service, max: usize) -> Result<usize, StageFailure> {
        if service.settings.paused {
            return Ok(0);
        }
        let ask = Claim { dispatcher: self.parts.dispatcher, service: service.id, max };
        let now = self.now();
        let claimed = self.patiently(|store| {
            let ask = ask.clone();
            async move { store.claim(&ask, now).await }
        })?;
        if claimed.is_empty() {
            return Ok(0);
        }
        if claimed.iter().any(|task| !self.corpora.contains_key(&task.corpus)) {
            self.learn_names()?;
        }
        hooks::pass("claimed");
        let count = claimed.len();
        let work: Vec<Work> = claimed.into_iter().filter_map(|task| self.work(service, task)).collect();
        self.parts.shared.buffered.fetch_add(work.len(), Ordering::AcqRel);
        self.order(Order::Claimed(work))?;
        Ok(count)
    }

    /// A claimed task with all that is needed to hand it out. One of a corpus that is not known goes back, and is asked
    /// about again at its next claim (rule G8).
    fn work(&mut self, service: &Service, task: ClaimedTask) -> Option<Work> {
        let Some(corpus) = self.corpora.get(&task.corpus) else {
            tracing::warn!(task = task.lease.task.0, corpus = task.corpus.0, "the task's corpus is not known");
            let back = Record::Returned { lease: task.lease };
            self.batch.push(Pending::Record(back, None), Urgency::Relaxed, self.parts.clock.now());
            return None;
        };
        self.entries.insert(task.lease.task, task.entry.clone());
        let path =
            Path::new(std::ffi::OsStr::from_bytes(&corpus.root.0)).join(std::ffi::OsStr::from_bytes(&task.entry.0));
        Some(Work {
            service: service.name.clone(),
            corpus: corpus.name.clone(),
            budget: service.settings.budget,
            result_cap: service.settings.result_cap,
            path,
            task,
        })
    }

    /// Reads the services and corpora; they are few.
    fn learn_names(&mut self) -> Result<(), StageFailure> {
        self.services = self.patiently(|store| async move { store.services().await })?;
        let corpora = self.patiently(|store| async move { store.corpora().await })?;
        self.corpora = corpora.into_iter().map(|corpus| (corpus.id, corpus)).collect();
        Ok(())
    }

    /// How many tasks the stock lacks; none before it is half empty, so that claims come in batches.
    fn room(&self) -> usize {
        let buffered = self.parts.shared.buffered.load(Ordering::Acquire);
        if buffered * 2 > self.parts.claim_ahead { 0 } else { self.parts.claim_ahead - buffered }
    }

    fn may_claim(&self) -> bool {
        !self.is_draining() && !self.parts.shared.holding.load(Ordering::Acquire) && !self.parts.set.is_saturated()
    }

    /// Ends a bounded run: everything is imported, and nothing is ready, leased, in a batch or to be published.
    pub(super) fn finish_when_empty(&mut self) -> Result<(), StageFailure> {
        let shared = &self.parts.shared;
        let quiet = shared.finish_when_empty.load(Ordering::Acquire)
            && !shared.finished.load(Ordering::Acquire)
            && shared.buffered.load(Ordering::Acquire) == 0
            && self.parts.set.counts().in_flight == 0
            && self.publishing.is_empty()
            && self.now() < self.claim_at;
        if !quiet {
            return Ok(());
        }
        while !self.batch.is_empty() {
            self.write_batch()?;
        }
        let filter = TaskFilter::default();
        let summary = self.patiently(|store| {
            let filter = filter.clone();
            async move { store.summary(&filter).await }
        })?;
        let open =
            summary.by_state.iter().any(|(state, n)| *n > 0 && matches!(state, TaskState::Ready | TaskState::Leased));
        if open {
            return Ok(());
        }
        self.parts.shared.finished.store(true, Ordering::Release);
        self.parts.shared.draining.store(true, Ordering::Release);
        self.order(Order::Drain)
    }
}
