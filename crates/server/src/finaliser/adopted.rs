//! Leases from before this process began (rule S4).
//!
//! Owns what is awaited of them: their workers come back and go on, or are given up after a grace. Results are accepted
//! whether awaited or not; the store decides.

use super::{Finaliser, Pending};
use crate::report::Order;
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::id::{LeaseId, WorkerKey};
use dispatcher_core::lease::{Grant, LeaseStart, Terms, ToldApart};
use dispatcher_core::report::{Ending, Message, Severity};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{OpenLease, Record, WorkerNote};

/// How long a worker may take to come back that was not noted before the process that gave it a task was killed. Its first
/// tries are a fraction of a second apart.
const UNNOTED: SpanMs = SpanMs(3000);

impl Finaliser {
    /// Takes over what was out: in flight again with the clock it had, and known to the router.
    pub(super) fn adopt(&mut self) -> Result<(), StageFailure> {
        let adopted = std::mem::take(&mut self.parts.adopted);
        self.expected = adopted.expected;
        let now = self.now();
        let (mut out, mut legacy) = (Vec::with_capacity(adopted.leases.len()), Vec::new());
        for open in adopted.leases {
            self.put_in_flight(&open, now)?;
            let service = self.services.iter().find(|service| service.id == open.task.service).cloned();
            match service.and_then(|service| self.known_work(&service, &open.task)) {
                Some(work) => out.push(work),
                None => {
                    self.corpora.miss(open.task.corpus, now);
                    self.parts.shared.unplaced.add(open.task.lease.task);
                    self.unplaced.push(open.task.clone());
                }
            }
            match open.worker {
                // That wire has no word for what a worker holds: it is waited for until its time limit.
                Some(worker) if worker.is_legacy() => legacy.push((open.task.lease, worker)),
                worker => {
                    self.awaited.insert(open.task.lease, OpenLease { worker, ..open });
                }
            }
        }
        self.awaited_until = now.after(self.parts.grace);
        self.unsent_until = now.after(self.parts.grace.min(UNNOTED));
        if !out.is_empty() {
            self.order(Order::Adopted(out))?;
        }
        if legacy.is_empty() { Ok(()) } else { self.order(Order::AdoptedLegacy(legacy)) }
    }

    /// What was adopted while its corpus was not known has a place for its result as soon as it is (rule C12).
    pub(super) fn place_adopted(&mut self) {
        if self.unplaced.is_empty() {
            return;
        }
        let mut placed = Vec::new();
        for task in std::mem::take(&mut self.unplaced) {
            let service = self.services.iter().find(|service| service.id == task.service).cloned();
            match service.and_then(|service| self.known_work(&service, &task)) {
                Some(work) => placed.push(work),
                None => self.unplaced.push(task),
            }
        }
        placed.iter().for_each(|work| self.parts.shared.unplaced.remove(work.task.lease.task));
        if !placed.is_empty() {
            // A router that has left already needs no place.
            let _ = self.order(Order::Adopted(placed));
        }
    }

    /// A lease is over: where its result would have gone is asked no more.
    pub(super) fn needs_no_place(&mut self, lease: LeaseId) {
        if let Some(at) = self.unplaced.iter().position(|task| task.lease == lease) {
            self.unplaced.swap_remove(at);
            self.parts.shared.unplaced.remove(lease.task);
        }
    }

    fn put_in_flight(&self, open: &OpenLease, now: TimeMs) -> Result<(), StageFailure> {
        let task = &open.task;
        let budget = self.services.iter().find(|service| service.id == task.service).map_or(1, |s| s.settings.budget);
        let is_legacy = open.worker.as_ref().is_some_and(WorkerKey::is_legacy);
        let grant = Grant {
            lease: task.lease,
            worker: open.worker.clone(),
            terms: Terms {
                service: task.service,
                budget,
                timeout: task.timeout_ms,
                start: if is_legacy { LeaseStart::Now } else { LeaseStart::AtBegun },
                cut_off: if is_legacy { SpanMs::ZERO } else { self.parts.cut_off },
                told_apart: if is_legacy { ToldApart::ByWorker } else { ToldApart::ByToken },
            },
            retries: task.charged,
            freed: 0,
            cause: task.last_cause.clone(),
            reason: None,
        };
        // A clock that was set back since would make the limit longer than a whole time-out.
        let began_at = open.began_at.map(|at| at.min(now));
        match self.parts.set.adopt(grant, open.handed_at, began_at, now) {
            Ok(_) => Ok(()),
            Err(full @ dispatcher_core::lease::LeaseRefusal::HardLimit { .. }) => {
                Err(StageFailure::HardLimit(full.to_string()))
            }
            Err(refusal) => {
                tracing::debug!(lease = %task.lease, "a lease was not adopted: {refusal}");
                Ok(())
            }
        }
    }

    /// A worker has come with a lease that was awaited, or with one whose hand-out was never written: it is written now.
    pub(super) fn returned(&mut self, lease: LeaseId, worker: &WorkerKey, now: TimeMs) {
        let Some(open) = self.awaited.remove(&lease) else { return };
        if open.worker.is_none() {
            let record = Record::HandedOut { lease, worker: worker.clone(), at: now, began: worker.is_legacy() };
            self.batch.push(Pending::Record(record, None), Urgency::Relaxed, now);
        }
    }

    /// These workers are here. Once all that were connected before are, and said what they hold, a claim whose hand-out was
    /// never written is with none of them: it goes back without waiting for the end of the grace. But not at once: a worker
    /// may have had its first task before it was noted itself.
    pub(super) fn seen(&mut self, notes: &[WorkerNote]) {
        // Where nobody is known to have been there, anybody may come.
        if self.expected.is_empty() {
            return;
        }
        for note in notes.iter().filter(|note| note.connected) {
            self.expected.remove(&note.worker);
        }
        self.all_seen = self.expected.is_empty();
    }

    /// Gives back what none of the workers has.
    pub(super) fn return_unsent(&mut self, now: TimeMs) {
        if !self.all_seen || now < self.unsent_until {
            return;
        }
        self.all_seen = false;
        let unsent: Vec<LeaseId> =
            self.awaited.iter().filter(|(_, open)| open.worker.is_none()).map(|(lease, _)| *lease).collect();
        for lease in unsent {
            self.awaited.remove(&lease);
            self.batch.push(Pending::Record(Record::Returned { lease }, None), Urgency::Prompt, now);
        }
    }

    /// Gives up the workers that did not come back in time.
    pub(super) fn give_up_awaited(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        if self.awaited.is_empty() || now < self.awaited_until {
            return Ok(());
        }
        let lost = self.awaited.values().filter(|open| open.worker.is_some()).count();
        if lost > 0 {
            tracing::warn!(leases = lost, "workers did not come back after the start");
        }
        for (_, open) in std::mem::take(&mut self.awaited) {
            self.batch.push(Pending::Record(given_up(open, now), None), Urgency::Prompt, now);
        }
        Ok(())
    }
}

/// A lease whose worker did not come back. Where no hand-out was written none happened, as far as anybody knows.
fn given_up(open: OpenLease, at: TimeMs) -> Record {
    let lease = open.task.lease;
    let Some(worker) = open.worker else { return Record::Returned { lease } };
    Record::Ended {
        lease,
        worker: Some(worker),
        ending: Ending::WorkerLost,
        began: open.began_at.is_some(),
        why: Message {
            severity: Severity::Error,
            category: "dispatcher".to_owned(),
            what: "worker_lost".to_owned(),
            details: "the worker did not come back after the dispatcher was started again".to_owned(),
        },
        messages: Vec::new(),
        parts: Vec::new(),
        at,
    }
}
