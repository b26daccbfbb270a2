//! What others know of the workers: which services are offered, and how each worker is.
//!
//! Owns how often that is told. A snapshot replaces the one before it, so that book-keeping costs the same however many
//! tasks pass (case F36).

use super::{Router, StageFailure};
use crate::report::Arrival;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::WorkerNote;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// How often it is noted how the workers are.
const NOTE_EVERY: SpanMs = SpanMs(2000);

/// Workers that come within this time of each other are noted together.
const TOGETHER: SpanMs = SpanMs(100);

impl Router {
    /// Tells which services somebody can do, so that they are claimed for.
    pub(super) fn offer(&self) {
        let connected = || self.fleet.workers().filter(|worker| worker.peer.is_some());
        let count = connected().count() + self.legacy.workers().count();
        self.parts.shared.workers.store(count, Ordering::Relaxed);
        let mut services: BTreeSet<String> = connected().flat_map(|worker| worker.services.iter().cloned()).collect();
        services.extend(self.legacy.workers().flat_map(|worker| worker.services.iter().cloned()));
        if self.parts.shared.offered.set(services) {
            // One waiting nudge says as much as many.
            let _ = self.parts.nudges.try_send(());
        }
    }

    /// Notes a worker that has just come, before it gets anything: after a kill it is known who has to come back. Where many
    /// come together the next tick notes them all.
    pub(super) fn note_newcomer(&mut self) -> Result<(), StageFailure> {
        let now = self.now();
        let alone = self.workers_noted_at.is_none_or(|at| now.since(at) >= TOGETHER);
        self.workers_noted_at = None;
        if alone { self.note_workers(now) } else { Ok(()) }
    }

    /// Notes how the workers are, every now and then.
    pub(super) fn note_workers(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        self.offer();
        if self.workers_noted_at.is_some_and(|at| now.since(at) < NOTE_EVERY) || self.is_overloaded() {
            return Ok(());
        }
        self.workers_noted_at = Some(now);
        let notes = self.fleet.workers().map(|worker| WorkerNote {
            worker: (**worker.worker).clone(),
            services: worker.services.to_vec(),
            slots: worker.slots,
            connected: worker.peer.is_some(),
            heard_at: TimeMs(now.0.saturating_sub(i64::try_from(worker.silent.0).unwrap_or(i64::MAX))),
        });
        let legacy = self.legacy.workers().map(|worker| WorkerNote {
            worker: (**worker.worker).clone(),
            services: worker.services.iter().cloned().collect(),
            slots: 1,
            connected: true,
            heard_at: worker.heard_at,
        });
        let notes = notes.chain(legacy).collect();
        self.pass_on(Arrival::Workers(notes))
    }
}
