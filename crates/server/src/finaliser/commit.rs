//! One batch from beginning to end: stage, sync, commit, apply, answer.
//!
//! Owns this order (rule D7), and what each answer of the store means for memory, the archive, the worker and people.

use super::names::ResultPlace;
use super::{Finaliser, Pending, lease_of};
use crate::hooks;
use crate::meters::Meters;
use crate::report::{Order, PartBytes, Reported, Reporting, place_not_known};
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::claim::Standing;
use dispatcher_core::id::{EntryName, LeaseId, Run};
use dispatcher_core::in_flight::{LeaseState, Receipt};
use dispatcher_core::reap::Taken;
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_core::slot::Settlement;
use dispatcher_core::time::TimeMs;
use dispatcher_core::wire::AckWord;
use dispatcher_store::archive::{ArchiveError, NewPart, Source};
use dispatcher_store::{Answer, PartRef, Publication, Record};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a full disk is left alone before the batch is tried again.
const SPACE_PAUSE: Duration = Duration::from_millis(500);
/// Due leases that one sweep takes at most; the rest falls to the next.
const SWEEP_MAX: usize = 1024;

/// What a batch is when it is committed: records, and beside each what keeps the reaper away until it is applied.
struct Ready {
    records: Vec<Record>,
    receipts: Vec<Option<Receipt>>,
    /// Which of them a worker reported with what belongs to it: it waits for a word, whatever the word is.
    reported: Vec<bool>,
    /// When the reports among them had arrived.
    arrived: Vec<Instant>,
}

impl Finaliser {
    /// Writes up to a batch of what waits, and tells everybody what became of it.
    pub(super) fn write_batch(&mut self) -> Result<(), StageFailure> {
        let pending = self.batch.take();
        if pending.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let ready = self.stage(pending)?;
        hooks::pass("synced");
        let meters = Arc::clone(&self.parts.meters);
        meters.sync.record(began.elapsed());
        let records = Arc::new(ready.records);
        meters.batch.record(records.len() as f64);
        let now = self.now();
        let answers = Meters::timed(&meters.commit, || {
            self.patiently(|store| {
                let records = Arc::clone(&records);
                async move { store.mark_done(&records, now).await }
            })
        })?;
        hooks::pass("committed");
        ready.arrived.iter().for_each(|arrived| meters.durable.record(arrived.elapsed()));
        let began = Instant::now();
        let records = Arc::unwrap_or_clone(records);
        for ((record, answer), reported) in records.into_iter().zip(answers).zip(ready.reported) {
            self.apply(record, answer, reported, now)?;
        }
        meters.apply.record(began.elapsed());
        drop(ready.receipts);
        Ok(())
    }

    /// Puts all bytes of the batch into the archive and syncs them, however long the disk is full.
    fn stage(&mut self, pending: Vec<Pending>) -> Result<Ready, StageFailure> {
        let mut waited = false;
        let ready = loop {
            match self.try_stage(&pending)? {
                Some(records) => break records,
                None => {
                    waited = true;
                    self.rest(SPACE_PAUSE)?;
                }
            }
        };
        if waited {
            self.go_on();
        }
        let arrived = pending.iter().filter_map(|item| match item {
            Pending::Record(..) => None,
            Pending::Report(reported, _) => Some(reported.arrived),
        });
        let arrived = arrived.collect();
        let reported = pending.iter().map(|item| matches!(item, Pending::Report(..))).collect();
        let receipts = pending.into_iter().map(|item| match item {
            Pending::Record(_, receipt) => receipt,
            Pending::Report(mut reported, _) => reported.receipt.take(),
        });
        Ok(Ready { records: ready, receipts: receipts.collect(), reported, arrived })
    }

    /// Stages and syncs once; `None` where there is no space. Staging the same part twice is the same as once.
    fn try_stage(&mut self, pending: &[Pending]) -> Result<Option<Vec<Record>>, StageFailure> {
        let mut records = Vec::with_capacity(pending.len());
        // A sync also makes the renames durable that this batch marks as done.
        let mut to_sync = pending.iter().any(|item| matches!(item, Pending::Record(Record::Published { .. }, _)));
        let mut staged = false;
        for item in pending {
            records.push(match item {
                Pending::Record(record, _) => record.clone(),
                Pending::Report(reported, bytes) => match self.stage_report(reported, bytes)? {
                    Ok(parts) => {
                        staged |= !parts.is_empty();
                        record_of(reported, parts)
                    }
                    Err(NotStaged::Archive(ArchiveError::Full { place })) => return Ok(self.no_space(&place)),
                    Err(NotStaged::Archive(error)) => not_usable(reported, not_writable(&error)),
                    Err(NotStaged::NoPlace) => not_usable(reported, place_not_known()),
                },
            });
        }
        to_sync |= staged;
        if !to_sync {
            return Ok(Some(records));
        }
        if staged {
            hooks::pass("staged");
        }
        match self.parts.archive.sync() {
            Ok(()) => Ok(Some(records)),
            Err(ArchiveError::Full { place }) => Ok(self.no_space(&place)),
            Err(error) => {
                // After a failed sync nothing counts as staged: the whole batch is staged anew.
                tracing::debug!("the archive: {error}");
                self.hold(format!("the archive: {}; see to it, work goes on by itself", error.trouble()));
                Ok(None)
            }
        }
    }

    fn no_space<T>(&self, place: &str) -> Option<T> {
        self.hold(format!("space for results in {place}: free some, work goes on by itself"));
        None
    }

    /// Stages the parts of one report. A task that is known nowhere gets none: the store will say so.
    fn stage_report(
        &mut self,
        reported: &Reported,
        bytes: &[PartBytes],
    ) -> Result<Result<Vec<PartRef>, NotStaged>, StageFailure> {
        let is_result = matches!(reported.verdict, Reporting::Result(_));
        if bytes.is_empty() && !is_result {
            return Ok(Ok(Vec::new()));
        }
        let name = match self.place_of(reported.lease.task)? {
            ResultPlace::Named(name) => name,
            ResultPlace::NoTask => return Ok(Ok(Vec::new())),
            // A cause needs no place; what its program printed is let go.
            ResultPlace::NotKnown if !is_result => return Ok(Ok(Vec::new())),
            ResultPlace::NotKnown => return Ok(Err(NotStaged::NoPlace)),
        };
        let parts = reported.parts.iter().zip(bytes).map(|(spec, bytes)| {
            let source = match bytes {
                PartBytes::Memory(bytes) => Source::Bytes(bytes),
                PartBytes::Spool(path) => Source::Spool(path),
            };
            self.parts.archive.stage(reported.lease, &name, NewPart { name: &spec.name, sha256: &spec.sha256, source })
        });
        Ok(parts.collect::<Result<_, _>>().map_err(NotStaged::Archive))
    }

    /// Applies what the store decided of one record.
    fn apply(&mut self, record: Record, answer: Answer, reported: bool, now: TimeMs) -> Result<(), StageFailure> {
        let lease = lease_of(&record);
        let Some(settlement) = settlement(&record, &answer) else {
            // A report that changes nothing is answered all the same: its worker would wait for that for ever.
            return if reported { self.answer(&record, &answer) } else { Ok(()) };
        };
        self.awaited.remove(&lease);
        // A reply of the legacy wire may be for a claim that no worker was given yet: it goes to nobody any more.
        let of_legacy = matches!(&record, Record::Result { worker, .. } if worker.is_legacy());
        if of_legacy && self.parts.set.lease_state(lease) == LeaseState::Unknown && is_the_end(&answer) {
            self.order(Order::Revoked { leases: vec![lease], why: "the task has its result".to_owned() })?;
        }
        self.parts.set.settle(lease, &settlement, now);
        self.needs_no_place(lease);
        if let Some(limit) = self.limit.as_mut().filter(|_| is_the_end(&answer)) {
            limit.over(lease.task);
        }
        match &answer {
            Answer::Stored { replaced, repeat } => self.stored(&record, *replaced, *repeat)?,
            Answer::Requeued { not_before, .. } => {
                self.parts.progress.requeued();
                self.claim_at = self.claim_at.min(*not_before);
            }
            Answer::DeadLettered { .. } => {
                self.parts.progress.ended(Status::Fatal, None);
                // What the last attempt brought beside its cause is published like a result (rule R5).
                self.await_place(lease, Status::Fatal, parts_of(&record));
            }
            Answer::Refused { .. } => self.parts.progress.ended(Status::Fatal, None),
            Answer::Noted | Answer::Superseded { .. } | Answer::Stale | Answer::Cancelled | Answer::Unknown => {
                self.discard(lease, parts_of(&record))
            }
        }
        self.answer(&record, &answer)
    }

    /// Tells the worker what became of its report, where it was one.
    fn answer(&self, record: &Record, answer: &Answer) -> Result<(), StageFailure> {
        match ack(record, answer) {
            Some((word, why)) => self.order(Order::Answer { lease: lease_of(record), word, why }),
            None => Ok(()),
        }
    }

    /// A result stands: it is to be published, and people see it.
    fn stored(&mut self, record: &Record, replaced: Option<Standing>, repeat: bool) -> Result<(), StageFailure> {
        let Record::Result { lease, status, parts, .. } = record else { return Ok(()) };
        if repeat {
            return Ok(());
        }
        self.parts.progress.ended(*status, replaced.map(|stood| stood.status));
        self.parts.progress.stored(parts.iter().map(|part| part.length).sum());
        if replaced.is_some() || lease.run > Run::FIRST {
            // What waits for its place and lost it meanwhile is not published any more.
            self.publishing.retain(|waiting| waiting.lease.task != lease.task);
        }
        self.await_place(*lease, *status, parts);
        Ok(())
    }

    /// What stands gets its place after those that were committed before it.
    fn await_place(&mut self, lease: LeaseId, status: Status, parts: &[PartRef]) {
        let place = parts.first().map(|part| part.place.clone());
        let entry = self.names.remove(&lease.task).or(place).unwrap_or(EntryName(Vec::new()));
        if parts.iter().any(PartRef::is_to_be_placed) {
            let parts = parts.to_vec();
            self.publishing.push_back(Publication { lease, entry, status, parts, published: false });
        }
    }

    /// Forgets staged parts that did not win. What stays is swept at the next start.
    fn discard(&self, lease: LeaseId, parts: &[PartRef]) {
        if parts.is_empty() {
            return;
        }
        if let Err(e) = self.parts.archive.discard(lease, parts) {
            tracing::debug!(%lease, "a result that did not win could not be removed: {e}");
        }
    }

    /// One sweep of the reaper: what is due joins the batch, and its workers are told to stop.
    pub(super) fn sweep(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        self.sweep_at = now.after(super::SWEEP_EVERY);
        let sweep = self.parts.set.sweep(now, SWEEP_MAX);
        hooks::pass("swept");
        let (requeued, dead, forgotten) = (sweep.requeued.len(), sweep.dead.len(), sweep.forgotten.len());
        if requeued + dead + forgotten > 0 {
            tracing::info!(requeued, dead, forgotten, "swept");
        }
        for taken in sweep.requeued.into_iter().chain(sweep.dead) {
            let why = why_due(&taken);
            self.order(Order::Cut { lease: taken.lease, why: why.details.clone() })?;
            self.batch.push(Pending::Record(expired(taken, why, now), None), Urgency::Prompt, now);
        }
        Ok(())
    }
}

/// A lease past its deadline as a record. On the v1 wire the clock starts at `begun`, and the worker itself ends the
/// task at its limit; who comes this far hangs (rules L3, A3).
fn expired(taken: Taken, why: Message, at: TimeMs) -> Record {
    Record::Ended {
        lease: taken.lease,
        worker: taken.worker,
        ending: taken.ending,
        began: taken.began,
        why,
        messages: Vec::new(),
        parts: Vec::new(),
        at,
    }
}

/// Why a lease fell due: nothing usable came of it, or nothing at all (rules R8, X3).
fn why_due(taken: &Taken) -> Message {
    let told = taken.retry.run.reason.as_deref().filter(|_| taken.ending == Ending::Unusable);
    if let Some(told) = told {
        return told.clone();
    }
    Message {
        severity: Severity::Fatal,
        category: "timeout".to_owned(),
        what: "cut_off".to_owned(),
        details: "the task's time limit passed and its worker did not end it".to_owned(),
    }
}

/// A complete report as a record.
fn record_of(reported: &Reported, parts: Vec<PartRef>) -> Record {
    let (lease, worker, at) = (reported.lease, reported.worker.clone(), reported.at);
    let messages = reported.messages.clone();
    match &reported.verdict {
        Reporting::Result(status) => Record::Result { lease, worker, status: *status, messages, parts, at },
        Reporting::Retryable(cause) => Record::Ended {
            lease,
            worker: Some(worker),
            ending: Ending::RetryableCause,
            began: true,
            why: cause.clone(),
            messages,
            parts,
            at,
        },
    }
}

/// Why the parts of a report are not staged.
enum NotStaged {
    /// The archive refuses them.
    Archive(ArchiveError),
    /// It is not known where they go (rules C12, G8).
    NoPlace,
}

/// A report whose bytes the archive refuses.
fn not_writable(error: &ArchiveError) -> Message {
    Message {
        severity: Severity::Error,
        category: "unusable".to_owned(),
        what: "not_writable".to_owned(),
        details: error.to_string(),
    }
}

/// A report whose bytes have no place: no verdict (rule R1).
fn not_usable(reported: &Reported, why: Message) -> Record {
    Record::Ended {
        lease: reported.lease,
        worker: Some(reported.worker.clone()),
        ending: Ending::Unusable,
        began: true,
        why,
        messages: reported.messages.clone(),
        parts: Vec::new(),
        at: reported.at,
    }
}

/// The staged parts of a record.
fn parts_of(record: &Record) -> &[PartRef] {
    match record {
        Record::Result { parts, .. } | Record::Ended { parts, .. } => parts,
        _ => &[],
    }
}

/// Whether the task has ended, and is not to be done again.
const fn is_the_end(answer: &Answer) -> bool {
    !matches!(answer, Answer::Noted | Answer::Requeued { .. } | Answer::Superseded { .. })
}

/// What the decision means for the lease in memory; `None` where it means nothing.
fn settlement(record: &Record, answer: &Answer) -> Option<Settlement> {
    let lease = lease_of(record);
    Some(match answer {
        Answer::Noted => match record {
            Record::Returned { .. } => Settlement::Returned,
            _ => return None,
        },
        Answer::Stored { .. } => match record {
            Record::Result { status, .. } => {
                Settlement::Stands(Standing { epoch: lease.epoch, status: *status, origin: Origin::Worker })
            }
            _ => return None,
        },
        Answer::Superseded { by } => Settlement::Superseded { by: *by },
        Answer::Stale => Settlement::Stale,
        Answer::Cancelled => Settlement::Cancelled,
        Answer::Unknown => Settlement::Unknown,
        Answer::Refused { .. } => Settlement::DeadLettered(stand_in(lease, Origin::ReaperStandIn)),
        Answer::Requeued { charged, .. } => Settlement::Requeued { charged: *charged },
        Answer::DeadLettered { origin, .. } => Settlement::DeadLettered(stand_in(lease, *origin)),
    })
}

/// A stand-in of the dispatcher as it stands.
const fn stand_in(lease: LeaseId, origin: Origin) -> Standing {
    Standing { epoch: lease.epoch, status: Status::Fatal, origin }
}

/// What the worker is told; nothing of notes, and nothing of what it did not report.
fn ack(record: &Record, answer: &Answer) -> Option<(AckWord, Option<String>)> {
    match record {
        Record::Result { .. } | Record::Ended { worker: Some(_), .. } => {}
        _ => return None,
    }
    Some(match answer {
        Answer::Noted | Answer::Stored { .. } | Answer::Requeued { .. } => (AckWord::Stored, None),
        Answer::DeadLettered { reason, .. } => (AckWord::Stored, Some(reason.details.clone())),
        Answer::Superseded { by } => {
            (AckWord::Superseded, Some(format!("attempt {} stands with {}", by.epoch.attempt(), by.status.as_str())))
        }
        Answer::Stale => (AckWord::Stale, None),
        Answer::Cancelled => (AckWord::Cancelled, None),
        Answer::Unknown => (AckWord::Unknown, None),
        Answer::Refused { why } => (AckWord::Refused, Some(why.clone())),
    })
}
