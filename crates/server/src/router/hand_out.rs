//! Hand-outs: from the stock to a worker with credit.
//!
//! Owns the order lease → send → note, and its undoing where the socket refuses (rules L2, L9).

use super::stock::Loaded;
use super::{Router, StageFailure};
use crate::report::Work;
use dispatcher_core::id::WorkerKey;
use dispatcher_core::lease::{Grant, LeaseRefusal, LeaseStart, Terms, ToldApart};
use dispatcher_core::session::PeerId;
use dispatcher_core::wire::ToWorker;
use dispatcher_store::Record;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Hand-outs of one turn; then the socket is read again.
const HAND_OUTS_A_TURN: usize = 64;

/// What came of one hand-out.
pub(super) enum HandOut {
    /// The task is on its way.
    Done,
    /// This worker cannot take it; another may.
    NotThisOne,
    /// Nobody can be given anything now.
    Stop,
}

impl Router {
    /// Hands out what is ready, service by service in turn, as far as workers asked and limits allow. The first turn is that
    /// of the service after the one served last: where one place becomes free at a time, each has its share all the same.
    pub(super) fn hand_out(&mut self) -> Result<(), StageFailure> {
        self.hand_out_in_turn()?;
        // What has left made room for what waits to be read.
        self.read_more();
        Ok(())
    }

    fn hand_out_in_turn(&mut self) -> Result<(), StageFailure> {
        let mut services: Vec<String> =
            self.stock.ready.iter().filter(|(_, queue)| !queue.is_empty()).map(|(name, _)| name.clone()).collect();
        let after = services.partition_point(|name| *name <= self.served_last);
        services.rotate_left(after);
        let mut left = HAND_OUTS_A_TURN;
        let mut more = !services.is_empty();
        while more && left > 0 && self.may_lease() {
            more = false;
            for service in &services {
                match self.hand_out_one(service)? {
                    Some(HandOut::Done) => {
                        self.served_last.clone_from(service);
                        more = true;
                        left = left.saturating_sub(1);
                    }
                    Some(HandOut::NotThisOne) => more = true,
                    Some(HandOut::Stop) => return Ok(()),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Nothing is leased while the store is away, at a drain, or when reports wait.
    fn may_lease(&self) -> bool {
        let shared = &self.parts.shared;
        !shared.holding.load(Ordering::Acquire)
            && !shared.is_draining()
            && !self.is_overloaded()
            && !self.parts.set.is_saturated()
    }

    /// Hands out the next task of a service, if there is one and somebody takes it.
    fn hand_out_one(&mut self, service: &str) -> Result<Option<HandOut>, StageFailure> {
        let Some(first) = self.stock.ready.get(service).and_then(VecDeque::front) else { return Ok(None) };
        if self.is_at_its_cap(&first.work) {
            return Ok(None);
        }
        if self.is_legacys_turn(service)
            && let Some(outcome) = self.hand_out_legacy(service)?
        {
            return Ok(Some(outcome));
        }
        let Some(peer) = self.fleet.next_taker(service) else { return Ok(None) };
        let Some(loaded) = self.stock.pop(service) else { return Ok(None) };
        self.try_hand_out(peer, loaded).map(Some)
    }

    /// Whether as many tasks of its service are in flight as may be.
    fn is_at_its_cap(&self, work: &Work) -> bool {
        let in_flight = || self.parts.set.in_flight_of(work.task.service);
        work.max_in_flight.is_some_and(|cap| in_flight() >= usize::try_from(cap).unwrap_or(usize::MAX))
    }

    /// Leases, sends, notes; or undoes.
    fn try_hand_out(&mut self, peer: PeerId, loaded: Loaded) -> Result<HandOut, StageFailure> {
        let now = self.now();
        let Some(worker) = self.fleet.worker_at(peer).cloned() else {
            return Ok(self.put_back(loaded, HandOut::NotThisOne));
        };
        let task = &loaded.work.task;
        let lease = task.lease;
        let terms = Terms {
            service: task.service,
            budget: loaded.work.budget,
            timeout: task.timeout_ms,
            start: LeaseStart::AtBegun,
            cut_off: self.parts.kill_grace.plus(self.parts.fleet.dead_after),
            told_apart: ToldApart::ByToken,
        };
        let leased = match self.parts.set.lease(grant(&loaded.work, &worker, terms), now) {
            Ok(leased) => leased,
            Err(refusal) => return self.refused(loaded, &refusal),
        };
        let message = ToWorker::Task {
            token: self.fleet.token(lease),
            task: lease.task,
            service: loaded.work.service.clone(),
            corpus: loaded.work.corpus.clone(),
            entry: task.entry.clone(),
            size: task.input_size,
            limit_ms: leased.limit.0,
            attempt: lease.epoch.attempt(),
        };
        let small = loaded.body.as_ref().filter(|body| body.len() as u64 <= self.parts.fleet.inline_max).cloned();
        if !self.send(peer, &message, small.as_slice()) {
            self.parts.set.undo(lease, now);
            let mut effects = Vec::new();
            self.fleet.unsent(peer, now, &mut effects);
            self.act(effects, &[])?;
            return Ok(self.put_back(loaded, HandOut::NotThisOne));
        }
        self.served_legacy = false;
        self.fleet.sent(peer, lease, task.input_size, now);
        self.parts.shared.stock.take(loaded.work.task.service);
        self.out.insert(lease, loaded.work);
        crate::hooks::pass("handed_out");
        self.note(Record::HandedOut { lease, worker: (*worker).clone(), at: now, began: false })?;
        Ok(HandOut::Done)
    }

    /// The task goes to the front of its queue, uncharged.
    pub(super) fn put_back(&mut self, loaded: Loaded, what: HandOut) -> HandOut {
        self.stock.push_front(loaded);
        what
    }

    /// The set refuses: at the limit the task waits; a claim that is out of date goes back to the store.
    pub(super) fn refused(&mut self, loaded: Loaded, refusal: &LeaseRefusal) -> Result<HandOut, StageFailure> {
        match refusal {
            LeaseRefusal::Saturated { .. } => Ok(self.put_back(loaded, HandOut::Stop)),
            LeaseRefusal::HardLimit { .. } => Err(StageFailure::HardLimit(refusal.to_string())),
            _ => {
                tracing::debug!(lease = %loaded.work.task.lease, "a claim was not leased: {refusal}");
                self.parts.shared.stock.take(loaded.work.task.service);
                self.note(Record::Returned { lease: loaded.work.task.lease })?;
                Ok(HandOut::Done)
            }
        }
    }
}

/// The claim of a task as a lease for `worker`.
pub(super) fn grant(work: &Work, worker: &WorkerKey, terms: Terms) -> Grant {
    let task = &work.task;
    Grant {
        lease: task.lease,
        worker: Some(worker.clone()),
        terms,
        retries: task.charged,
        freed: 0,
        cause: task.last_cause.clone(),
        reason: None,
    }
}
