//! What the fleet wants done, effect by effect.
//!
//! Owns the translation from effects to sends, leases, reports and log lines; decides nothing of its own but what a
//! result above its cap means (rule R7).

use super::stock::Fetch;
use super::{Router, StageFailure};
use crate::report::{Arrival, Question, Reported, Reporting, place_not_known};
use bytes::Bytes;
use dispatcher_core::fleet::{Answer, AnswerBytes, Effect, LostLease, NoiseKind, NotHeldWhy, Piece, Said, Warning};
use dispatcher_core::id::{LeaseId, WorkerKey};
use dispatcher_core::report::{Ending, Message, Severity, Status};
use dispatcher_core::wire::PART_RESULT;
use dispatcher_store::Record;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Router {
    /// Does what the fleet asked for. `bodies` are those of the message just heard.
    pub(super) fn act(&mut self, effects: Vec<Effect>, bodies: &[Bytes]) -> Result<(), StageFailure> {
        for effect in effects {
            self.act_on(effect, bodies)?;
        }
        Ok(())
    }

    fn act_on(&mut self, effect: Effect, bodies: &[Bytes]) -> Result<(), StageFailure> {
        match effect {
            Effect::Send { peer, message } => {
                if !self.send(peer, &message, &[]) {
                    let (now, mut more) = (self.now(), Vec::new());
                    self.fleet.full(peer, message, now, &mut more);
                    self.act(more, &[])?;
                }
            }
            Effect::Disconnect { peer, why } => {
                tracing::debug!(peer = peer.0, ?why, "cut");
                self.socket.disconnect(peer);
            }
            Effect::Joined { worker, slots, returned, .. } => {
                tracing::info!(%worker, slots, returned, "a worker joined");
                self.offer();
                self.note_newcomer()?;
            }
            Effect::HoldsClaimed { worker, holds } => {
                self.pass_on(Arrival::Ask(Question::Holds { worker: (*worker).clone(), holds }))?;
            }
            Effect::Begun { lease, .. } => self.begun(lease)?,
            Effect::Answered(answer) => self.answered(answer, bodies)?,
            Effect::PieceArrived(piece) => self.piece(piece, bodies)?,
            Effect::AllTaken { .. } => {}
            Effect::TransferEnded { lease, .. } => self.pass_on(Arrival::Drop(lease))?,
            Effect::FetchAsked { peer, lease, offset, length } => self.fetch(peer, Fetch { lease, offset, length })?,
            Effect::NotHeld { worker, leases, why } => self.not_held(&worker, &leases, why)?,
            Effect::WorkerLost { worker, leases } => self.lost(&worker, &leases)?,
            Effect::WorkerLeft { worker } => tracing::info!(%worker, "a worker left"),
            Effect::Noise { kind, .. } => self.count_noise(kind),
            Effect::Warn(warning) => warn(&warning),
        }
        Ok(())
    }

    /// Work began: the clock of the lease starts (rule L1).
    fn begun(&mut self, lease: LeaseId) -> Result<(), StageFailure> {
        let at = self.now();
        if self.parts.set.begun(lease, at) {
            self.note(Record::Began { lease, at })?;
        }
        Ok(())
    }

    /// A worker is done with a lease.
    fn answered(&mut self, answer: Box<Answer>, bodies: &[Bytes]) -> Result<(), StageFailure> {
        if self.is_overloaded() {
            // It stays with its worker for now (rule D1).
            self.fleet.defer(answer);
            return Ok(());
        }
        let now = self.now();
        let answer = *answer;
        let lease = answer.lease;
        if matches!(answer.said, Said::Result(_)) && self.parts.shared.unplaced.has(lease.task) {
            // No receipt, and none of its bytes (rule C12).
            return self.ended(lease, &answer.worker, Ending::Unusable, true, place_not_known());
        }
        let verdict = match answer.said {
            Said::Result(status) => Reporting::Result(status),
            Said::Retryable(cause) => Reporting::Retryable(cause),
            Said::Release => {
                let why = own("handed_back", "the worker gave the task back");
                return self.ended(lease, &answer.worker, Ending::HandedBack, false, why);
            }
            Said::Unusable(what) => {
                let why = own("unusable", &what);
                return self.ended(lease, &answer.worker, Ending::Unusable, true, why);
            }
        };
        let reported = Reported {
            lease,
            worker: (*answer.worker).clone(),
            verdict,
            messages: answer.messages,
            parts: answer.parts,
            at: now,
            arrived: Instant::now(),
            receipt: self.parts.set.receipt(lease),
            held: None,
        };
        let size = reported.parts.iter().filter(|p| p.name == PART_RESULT).map(|p| p.size).max().unwrap_or(0);
        if let Some(cap) = self.out.get(&lease).map(|work| work.result_cap).filter(|cap| size > *cap) {
            return self.pass_on(above_cap(reported, size, cap));
        }
        match answer.bytes {
            // Parts without a byte in all are parts all the same: empty results.
            AnswerBytes::None => {
                let bodies = vec![Bytes::new(); reported.parts.len()];
                self.pass_on(Arrival::Whole { reported, bodies })
            }
            AnswerBytes::Here => self.pass_on(Arrival::Whole { reported, bodies: bodies.to_vec() }),
            AnswerBytes::Wanted => {
                let mut effects = Vec::new();
                self.pass_on(Arrival::Begin(reported))?;
                self.fleet.want(lease, now, &mut effects);
                self.act(effects, &[])
            }
        }
    }

    /// A piece of a large result.
    fn piece(&mut self, piece: Piece, bodies: &[Bytes]) -> Result<(), StageFailure> {
        let Some(bytes) = bodies.first().cloned() else { return Ok(()) };
        self.pass_on(Arrival::Piece { piece, bytes })
    }

    /// Leases that never reached their worker, or that it no longer has (rule L9).
    fn not_held(&mut self, worker: &WorkerKey, leases: &[LostLease], why: NotHeldWhy) -> Result<(), StageFailure> {
        let details = match why {
            NotHeldWhy::NotListed => "the worker's list of what it holds does not have it",
            NotHeldWhy::Stuck => "the worker does not read what it is sent",
            NotHeldWhy::Gone => "the worker was gone before it was known whether it should go on",
        };
        for lost in leases {
            let ending = if lost.began { Ending::WorkerLost } else { Ending::Undeliverable };
            self.ended(lost.lease, worker, ending, lost.began, own("not_held", details))?;
        }
        Ok(())
    }

    /// The leases of a worker that is lost (rule A3).
    fn lost(&mut self, worker: &WorkerKey, leases: &[LostLease]) -> Result<(), StageFailure> {
        tracing::warn!(%worker, leases = leases.len(), "a worker is lost");
        for lost in leases {
            let why = own("worker_lost", "nothing was heard of the worker for too long");
            self.ended(lost.lease, worker, Ending::WorkerLost, lost.began, why)?;
        }
        Ok(())
    }

    /// An attempt ended without a result.
    pub(super) fn ended(
        &mut self,
        lease: LeaseId,
        worker: &WorkerKey,
        ending: Ending,
        began: bool,
        why: Message,
    ) -> Result<(), StageFailure> {
        let at = self.now();
        self.note(Record::Ended {
            lease,
            worker: Some(worker.clone()),
            ending,
            began,
            why,
            messages: Vec::new(),
            parts: Vec::new(),
            at,
        })
    }

    /// Counts what a peer can repeat at will; a line now and then says how much (rule G3).
    pub(super) fn count_noise(&mut self, kind: NoiseKind) {
        let now = self.now();
        self.parts.shared.noise.fetch_add(1, Ordering::Relaxed);
        if let Some(line) = self.noise.count(kind, now) {
            if kind == NoiseKind::NotServed {
                tracing::warn!(
                    count = line.count,
                    "existing CorTeX workers ask for tasks here and get none: say with --legacy-results where their results come"
                );
                return;
            }
            tracing::warn!(?kind, count = line.count, "messages that could not be taken as they were");
        }
    }
}

/// A result above its service's cap is a verdict: Invalid, without its bytes (rule R7).
fn above_cap(mut reported: Reported, size: u64, cap: u64) -> Arrival {
    reported.messages.push(Message {
        severity: Severity::Invalid,
        category: "dispatcher".to_owned(),
        what: "result_too_large".to_owned(),
        details: format!("the result has {size} bytes, and the service's cap is {cap}; raise it with --result-cap"),
    });
    reported.verdict = Reporting::Result(Status::Invalid);
    reported.parts = Vec::new();
    Arrival::Whole { reported, bodies: Vec::new() }
}

/// A reason that the dispatcher saw itself.
pub(super) fn own(what: &str, details: &str) -> Message {
    Message {
        severity: Severity::Error,
        category: "dispatcher".to_owned(),
        what: what.to_owned(),
        details: details.to_owned(),
    }
}

fn warn(warning: &Warning) {
    match warning {
        Warning::NameShared { worker, other } => {
            tracing::warn!(%worker, %other, "two live workers have one name; they count as two");
        }
        Warning::Stuck { worker } => tracing::warn!(%worker, "the worker does not read what it is sent"),
    }
}
