//! Replies of the legacy wire: to which attempt each belongs, and what it means.
//!
//! Owns the attribution (rules C11–C13): memory knows the worker of an attempt that it leased; leases that a command took
//! away are remembered here; for all else the store is asked, once a turn for all that came. From then on a reply is like one
//! of the v1 wire.

use super::{Finaliser, Pending};
use crate::legacy::{LegacyReply, LegacySaid};
use crate::report::{Order, PartBytes, Reported, Reporting, Work};
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use dispatcher_core::in_flight::Reply;
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::slot::{Answered, NoResult};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::wire::AckWord;
use dispatcher_store::{Record, Trail};
use std::collections::HashMap;

/// So many leases that a command took away are remembered before old ones are looked for.
const REMEMBERED: usize = 10_000;

/// A lease that a command took away from a worker of the legacy wire, which may still bring its result.
#[derive(Debug)]
pub(super) struct TakenAway {
    worker: String,
    lease: LeaseId,
    at: TimeMs,
}

impl Finaliser {
    /// A command took this lease away. Its worker knows nothing of that, and the note of its hand-out may still be on its way
    /// to the store (rules C6, L8).
    pub(super) fn remember_taken_away(&mut self, lease: LeaseId, at: TimeMs) {
        let Some(worker) = self.parts.set.worker_of(lease).filter(WorkerKey::is_legacy) else { return };
        if self.taken_away.len() >= REMEMBERED {
            let window = SpanMs(u64::try_from(self.parts.set.limits().window_ms).unwrap_or(0));
            self.taken_away.retain(|_, taken| taken.iter().any(|taken| at.since(taken.at) < window));
        }
        self.taken_away.entry(lease.task).or_default().push(TakenAway { worker: worker.name, lease, at });
    }

    /// Tasks of a later run are not for workers that may still bring a result of an earlier one (rule L8).
    pub(super) fn name_who_worked_earlier(&self, work: &mut [Work]) -> Result<(), StageFailure> {
        let of_later_runs = work.iter().map(|work| work.task.lease).filter(|lease| lease.run > Run::FIRST);
        let tasks: Vec<TaskId> = of_later_runs.map(|lease| lease.task).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        let trails = self.patiently(|store| {
            let tasks = tasks.clone();
            async move { store.trails(&tasks).await }
        })?;
        let mut earlier: HashMap<TaskId, _> = trails.iter().map(|t| (t.newest.task, t.worked_earlier())).collect();
        for work in work {
            let LeaseId { task, run, .. } = work.task.lease;
            work.worked_earlier = earlier.remove(&task).unwrap_or_default();
            let taken_away = self.taken_away.get(&task).into_iter().flatten().filter(|taken| taken.lease.run < run);
            work.worked_earlier.extend(taken_away.map(|taken| (taken.worker.clone(), taken.at)));
        }
        Ok(())
    }

    /// Takes a reply, or keeps it until the store is asked whose it is.
    pub(super) fn take_legacy(&mut self, reply: LegacyReply) -> Result<(), StageFailure> {
        let given = Reply::by_worker(reply.task, &reply.worker, reply.service);
        let taken_away =
            self.taken_away.get(&reply.task).and_then(|taken| taken.iter().rfind(|t| t.worker == reply.worker));
        match self.parts.set.given_to_worker(given).or_else(|| taken_away.map(|taken| taken.lease)) {
            Some(lease) => self.attributed(reply, lease),
            None => {
                self.unattributed.push(reply);
                Ok(())
            }
        }
    }

    /// Asks the store about the replies that memory cannot place.
    pub(super) fn attribute(&mut self) -> Result<(), StageFailure> {
        if self.unattributed.is_empty() {
            return Ok(());
        }
        // What is about to be written may say whose they are.
        while !self.batch.is_empty() {
            self.write_batch()?;
        }
        let replies = std::mem::take(&mut self.unattributed);
        let mut tasks: Vec<TaskId> = replies.iter().map(|reply| reply.task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let trails = self.patiently(|store| {
            let tasks = tasks.clone();
            async move { store.trails(&tasks).await }
        })?;
        let trails: HashMap<TaskId, Trail> = trails.into_iter().map(|trail| (trail.newest.task, trail)).collect();
        for reply in replies {
            match trails.get(&reply.task) {
                // It names another service than the task's: it says nothing of the task (rule C12).
                Some(trail) if trail.service != reply.service => {
                    tracing::debug!(task = reply.task.0, "a result that names another service than its task");
                }
                // The store counts what it does not know (rule C7).
                found => {
                    let nothing = LeaseId { task: reply.task, run: Run(0), epoch: Epoch::NONE };
                    let lease = found.and_then(|trail| trail.attempt_of(&reply.worker));
                    self.attributed(reply, lease.unwrap_or(nothing))?;
                }
            }
        }
        Ok(())
    }

    /// A reply whose attempt is known.
    fn attributed(&mut self, reply: LegacyReply, lease: LeaseId) -> Result<(), StageFailure> {
        let cap = self.services.iter().find(|known| known.id == reply.service).map(|known| known.settings.result_cap);
        match reply.said {
            Err(why) => self.unusable_legacy(Reply::by_worker(reply.task, &reply.worker, reply.service), why),
            Ok(said) => {
                let now = self.now();
                let (worker, receipt, held) = (WorkerKey::legacy(&reply.worker), reply.receipt, Some(reply.held));
                let LegacySaid { verdict, messages, part, bytes } = said.within(cap.unwrap_or(u64::MAX));
                let (parts, bytes) = match part {
                    Some(part) => (vec![part], vec![PartBytes::Memory(bytes)]),
                    None => Default::default(),
                };
                let (at, arrived) = (reply.at, reply.arrived);
                if lease.epoch == Epoch::NONE {
                    // There is no such task, so its bytes are nobody's.
                    let (status, messages, parts) = (Status::NoProblem, Vec::new(), Vec::new());
                    let record = Record::Result { lease, worker, status, messages, parts, at };
                    self.batch.push(Pending::Record(record, None), Urgency::Prompt, now);
                    return Ok(());
                }
                let reported = Reported { lease, worker, verdict, messages, parts, at, arrived, receipt, held };
                self.batch.push(Pending::Report(reported, bytes), Urgency::Prompt, now);
                Ok(())
            }
        }
    }

    /// A reply that is no result: its task stays in flight for the reaper, and a usable one may still come (rules R1, R8).
    fn unusable_legacy(&self, reply: Reply<'_>, why: Message) -> Result<(), StageFailure> {
        tracing::debug!(task = reply.task.0, "a reply of the legacy wire that is no result: {}", why.details);
        // Without a token it may be that of an earlier attempt, so the deadline stays.
        match self.parts.set.answered(reply, NoResult::Unusable(why), self.now()) {
            // Who ends now does not wait for it any longer (rule S1).
            Answered::Waits(lease) | Answered::DueAtOnce(lease) => {
                self.order(Order::Answer { lease, word: AckWord::Refused, why: None })
            }
            _ => Ok(()),
        }
    }
}

impl LegacySaid {
    /// A result above its service's cap is a verdict: Invalid, without its bytes (rule R7).
    fn within(mut self, cap: u64) -> Self {
        let Some(size) = self.part.as_ref().map(|part| part.size).filter(|size| *size > cap) else { return self };
        self.messages.push(Message {
            severity: Severity::Invalid,
            category: "dispatcher".to_owned(),
            what: "result_too_large".to_owned(),
            details: format!("the result has {size} bytes, and the service's cap is {cap}; raise it with --result-cap"),
        });
        self.verdict = Reporting::Result(Status::Invalid);
        self.part = None;
        self
    }
}
