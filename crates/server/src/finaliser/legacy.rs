//! Replies of the legacy wire: to which attempt each belongs, and what it means.
//!
//! Owns the attribution (rules C11–C13): memory knows the worker of an attempt that it leased; for all else the store is
//! asked, once a turn for all that came. From then on a reply is like one of the v1 wire.

use super::{Finaliser, Pending};
use crate::legacy::{LegacyReply, LegacySaid};
use crate::report::{Order, PartBytes, Reported, Reporting};
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use dispatcher_core::in_flight::Reply;
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::slot::{Answered, NoResult};
use dispatcher_core::wire::AckWord;
use dispatcher_store::Trail;
use std::collections::HashMap;

impl Finaliser {
    /// Takes a reply, or keeps it until the store is asked whose it is.
    pub(super) fn take_legacy(&mut self, reply: LegacyReply) -> Result<(), StageFailure> {
        let given = Reply::by_worker(reply.task, &reply.worker, reply.service);
        match self.parts.set.given_to_worker(given) {
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
                Some(trail) => {
                    let lease = trail.attempt_of(&reply.worker);
                    self.attributed(reply, lease)?;
                }
                // The store counts what it does not know (rule C7).
                None => {
                    let nothing = LeaseId { task: reply.task, run: Run(0), epoch: Epoch::NONE };
                    self.attributed(reply, nothing)?;
                }
            }
        }
        Ok(())
    }

    /// A reply whose attempt is known.
    fn attributed(&mut self, reply: LegacyReply, lease: LeaseId) -> Result<(), StageFailure> {
        let cap = self.services.iter().find(|known| known.id == reply.service).map(|known| known.settings.result_cap);
        match reply.said {
            Err(why) => self.unusable_legacy(lease, why),
            Ok(said) => {
                let now = self.now();
                let (worker, receipt, held) = (WorkerKey::legacy(&reply.worker), reply.receipt, Some(reply.held));
                let LegacySaid { verdict, messages, part, bytes } = said.within(cap.unwrap_or(u64::MAX));
                let (parts, bytes) = match part {
                    Some(part) => (vec![part], vec![PartBytes::Memory(bytes)]),
                    None => Default::default(),
                };
                let (at, arrived) = (reply.at, reply.arrived);
                let reported = Reported { lease, worker, verdict, messages, parts, at, arrived, receipt, held };
                self.batch.push(Pending::Report(reported, bytes), Urgency::Prompt, now);
                Ok(())
            }
        }
    }

    /// A reply that is no result: its task stays in flight for the reaper, and a usable one may still come (rules R1, R8).
    fn unusable_legacy(&mut self, lease: LeaseId, why: Message) -> Result<(), StageFailure> {
        tracing::debug!(%lease, "a reply of the legacy wire that is no result: {}", why.details);
        let now = self.now();
        match self.parts.set.answered(lease, NoResult::Unusable(why), now) {
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
