//! The finaliser: the one stage that writes.
//!
//! **Owns** the batch, the reaper's clock, claims ahead, publication, and telling the router what became of each report.
//! **Refuses to know** sockets, sessions and wires.
//!
//! Invariants: a batch is staged, synced, committed and only then answered, in this order (rule D7); while the store is
//! away or the disk is full nothing is leased (rule D3); the reaper sweeps on this stage's own clock, whatever the
//! workers do (rule X1); one turn of the loop does each duty once.

use crate::clock::Clock;
use crate::legacy::LegacyReply;
use crate::mailbox::Outlet;
use crate::meters::Meters;
use crate::progress::Progress;
use crate::recovery::Adopted;
use crate::report::{Delivery, Order, PartBytes, Question, Reported};
use crate::shared::{DrainMode, Shared};
use crate::stage::StageFailure;
use bounded::TaskLimit;
use corpora::Corpora;
use crossbeam_channel::{Receiver as Channel, RecvTimeoutError, select};
use dispatcher_core::batch::{Batcher, Urgency};
use dispatcher_core::id::{EntryName, LeaseId, TaskId, WorkerKey};
use dispatcher_core::in_flight::{InFlightSet, Receipt};
use dispatcher_core::report::Message;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::archive::Archive;
use dispatcher_store::{ClaimedTask, CommandId, DispatcherId, OpenLease, Publication, Record, Service, Store};
use legacy::TakenAway;
use names::ResultNames;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

mod adopted;
mod bounded;
mod claims;
mod commit;
mod control;
mod corpora;
mod legacy;
pub mod names;
mod patience;
mod publish;
mod questions;

/// Reports that close a batch (rule D2).
pub const BATCH_MAX: usize = 1024;
/// How long a batch may wait for more after its first item (rule D2).
pub const BATCH_WAIT: SpanMs = SpanMs(300);
/// A commit costs the same for one report as for ten. So soon after one, for so many times as long as it took, the writer
/// does not count as idle: what comes in a stream shares its commits, and what comes alone does not wait, nor do so many
/// that their commit is worth its cost.
const REST: u64 = 2;
/// It rests no longer than this.
const REST_MAX: SpanMs = SpanMs(10);
/// So many reports wait for no rest.
const WORTH_IT: usize = 64;
/// How often the reaper sweeps, and how often a dry store is asked again.
pub const SWEEP_EVERY: SpanMs = SpanMs(250);

/// What the finaliser is built from.
pub struct Parts {
    /// Reports and notes.
    pub deliveries: Channel<Delivery>,
    /// Wakes: something may have become claimable.
    pub nudges: Channel<()>,
    /// The way to the router.
    pub router: Outlet<Order>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The archive.
    pub archive: Arc<dyn Archive>,
    /// The leases.
    pub set: Arc<InFlightSet>,
    /// What the stages share.
    pub shared: Arc<Shared>,
    /// What people see.
    pub progress: Arc<Progress>,
    /// What is measured.
    pub meters: Arc<Meters>,
    /// The time.
    pub clock: Clock,
    /// Who we are in the store.
    pub dispatcher: DispatcherId,
    /// Claimed tasks to hold ready for the workers of each service.
    pub claim_ahead: usize,
    /// How long a lost store is waited for.
    pub store_patience: Duration,
    /// How long a drain may wait for a store, or for space.
    pub drain_limit: Duration,
    /// How results are named in the archive.
    pub naming: ResultNames,
    /// What was out before this process began, and may still come.
    pub adopted: Adopted,
    /// How long its workers are waited for.
    pub grace: SpanMs,
    /// From the end of a task's time limit on the v1 wire to when it is cut off.
    pub cut_off: SpanMs,
    /// What is waited for when every task has ended.
    pub drain_when_empty: DrainMode,
    /// After so many tasks nothing new is handed out (rule S5).
    pub task_limit: Option<u64>,
}

/// One thing for the next batch.
pub(crate) enum Pending {
    /// Ready to be written; keeps its receipt until then.
    Record(Record, Option<Receipt>),
    /// Its bytes are to be staged first.
    Report(Reported, Vec<PartBytes>),
}

/// The finaliser's own state.
pub struct Finaliser {
    parts: Parts,
    runtime: tokio::runtime::Runtime,
    batch: Batcher<Pending>,
    services: Vec<Service>,
    corpora: Corpora,
    /// Whose turn it is among services of one priority.
    turn: usize,
    /// What the results of claimed tasks are called in the archive.
    names: HashMap<TaskId, EntryName>,
    /// Leases from before this process began, until their workers have come or are given up.
    awaited: HashMap<LeaseId, OpenLease>,
    awaited_until: TimeMs,
    unsent_until: TimeMs,
    /// All that were expected are here.
    all_seen: bool,
    /// Tasks that were taken over while it was not known where their results go.
    unplaced: Vec<ClaimedTask>,
    /// Workers of the process before this one that have not come back yet.
    expected: HashSet<WorkerKey>,
    /// Replies of the legacy wire of which only the store can say to which attempt they belong.
    unattributed: Vec<LegacyReply>,
    /// Leases that commands took away from workers of the legacy wire.
    taken_away: HashMap<TaskId, Vec<TakenAway>>,
    publishing: VecDeque<Publication>,
    publish_again_at: TimeMs,
    /// From when on the writer counts as idle again.
    idle_at: TimeMs,
    sweep_at: TimeMs,
    claim_at: TimeMs,
    control_at: TimeMs,
    limit: Option<TaskLimit>,
    /// Commands that are not through, oldest first, and whether files go with what they delete.
    commands: VecDeque<(CommandId, bool)>,
}

/// What woke the loop.
enum Woken {
    Delivery(Box<Delivery>),
    Nudge,
    Time,
    RouterGone,
}

impl Finaliser {
    /// A finaliser over `parts`.
    ///
    /// # Errors
    /// Where the system gives no event loop.
    pub fn new(parts: Parts) -> Result<Self, StageFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StageFailure::System(format!("no event loop for the finaliser: {e}")))?;
        let now = parts.clock.now();
        let limit = parts.task_limit.map(TaskLimit::new);
        Ok(Self {
            parts,
            limit,
            runtime,
            batch: Batcher::new(BATCH_MAX, BATCH_WAIT),
            services: Vec::new(),
            corpora: Corpora::new(),
            turn: 0,
            names: HashMap::new(),
            awaited: HashMap::new(),
            unplaced: Vec::new(),
            expected: HashSet::new(),
            awaited_until: now,
            unsent_until: now,
            all_seen: false,
            unattributed: Vec::new(),
            taken_away: HashMap::new(),
            publishing: VecDeque::new(),
            publish_again_at: now,
            idle_at: now,
            sweep_at: now,
            claim_at: now,
            control_at: now,
            commands: VecDeque::new(),
        })
    }

    /// Finalises until the router and the receiver are gone and everything received is written.
    ///
    /// # Errors
    /// Where the store stays away for longer than it is waited for, or the router vanished without ending.
    pub fn run(mut self) -> Result<(), StageFailure> {
        self.learn_names()?;
        self.adopt()?;
        self.find_unpublished()?;
        loop {
            match self.wait() {
                Woken::Delivery(delivery) => self.take(*delivery)?,
                Woken::Nudge => {
                    self.claim_at = self.now();
                    self.control_at = self.now();
                }
                Woken::Time => {}
                Woken::RouterGone => return self.close(),
            }
            let idle = self.take_what_waits()?;
            self.attribute()?;
            self.parts.shared.to_finaliser.store(self.parts.deliveries.len(), Ordering::Relaxed);
            self.turn(idle)?;
        }
    }

    /// Does each duty that is due, once.
    fn turn(&mut self, idle: bool) -> Result<(), StageFailure> {
        let now = self.now();
        if now >= self.sweep_at {
            self.sweep(now)?;
        }
        let rested = now >= self.idle_at || self.batch.awaited() >= WORTH_IT;
        if self.batch.is_due(now, idle && rested) {
            self.write_batch()?;
            let rest = self.now().since(now).times(REST).0.min(REST_MAX.0);
            self.idle_at = self.now().after(SpanMs(rest));
        }
        self.publish()?;
        self.give_up_awaited(now)?;
        self.return_unsent(now);
        self.control(now)?;
        self.claim_ahead()?;
        self.finish_when_empty()
    }

    /// Everything is received: writes it, publishes what can be, and ends.
    fn close(&mut self) -> Result<(), StageFailure> {
        self.attribute()?;
        while !self.batch.is_empty() {
            self.write_batch()?;
        }
        self.publish_again_at = self.now();
        self.publish()?;
        while !self.batch.is_empty() {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Waits for the next delivery, nudge or duty.
    fn wait(&self) -> Woken {
        let now = self.now();
        let mut next = self.sweep_at.min(self.next_command());
        let awaited = (self.batch.awaited() > 0).then_some(self.idle_at);
        for at in [self.batch.deadline(), awaited, self.next_publication(), self.next_claim()].into_iter().flatten() {
            next = next.min(at);
        }
        let patience = Duration::from_millis(next.since(now).0);
        select! {
            recv(self.parts.deliveries) -> delivery => delivery.map_or(Woken::RouterGone, |delivery| Woken::Delivery(Box::new(delivery))),
            recv(self.parts.nudges) -> _ => Woken::Nudge,
            default(patience) => Woken::Time,
        }
    }

    /// Takes what is there without waiting, up to a full batch. Returns whether nothing more is there.
    fn take_what_waits(&mut self) -> Result<bool, StageFailure> {
        while !self.batch.is_full() {
            match self.parts.deliveries.recv_timeout(Duration::ZERO) {
                Ok(delivery) => self.take(delivery)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Handles one delivery.
    fn take(&mut self, delivery: Delivery) -> Result<(), StageFailure> {
        let now = self.now();
        match delivery {
            Delivery::Note(record) => {
                let urgency = urgency(&record);
                self.batch.push(Pending::Record(record, None), urgency, now);
            }
            Delivery::Complete { reported, bytes } => {
                self.batch.push(Pending::Report(reported, bytes), Urgency::Prompt, now);
            }
            Delivery::Unusable { mut reported, why } => {
                let receipt = reported.receipt.take();
                self.batch.push(Pending::Record(unusable(reported, why), receipt), Urgency::Prompt, now);
            }
            Delivery::Ask(Question::Holds { worker, holds }) => self.answer_holds(worker, holds)?,
            Delivery::Workers(notes) => {
                self.seen(&notes);
                self.note_workers(notes)?;
            }
            Delivery::Legacy(reply) => self.take_legacy(*reply)?,
        }
        Ok(())
    }

    fn now(&self) -> TimeMs {
        self.parts.clock.now()
    }

    /// Tells the router. Once it drains it may have left already: who was to be told asks again after the next start.
    fn order(&self, order: Order) -> Result<(), StageFailure> {
        if self.parts.router.send(order) || self.parts.shared.is_draining() {
            Ok(())
        } else {
            Err(StageFailure::NeighbourGone("router"))
        }
    }
}

/// Whether a record makes somebody wait (rule D2: hand-outs and begins alone close a batch only in time).
const fn urgency(record: &Record) -> Urgency {
    match record {
        // A worker without a token is known by this note alone: the sooner it is written the less a kill can forget.
        Record::HandedOut { began: true, .. } => Urgency::Prompt,
        Record::HandedOut { .. } | Record::Began { .. } | Record::Published { .. } => Urgency::Relaxed,
        _ => Urgency::Prompt,
    }
}

/// An unusable reply as a record: no verdict, the attempt ends and is charged (rule R1).
fn unusable(reported: Reported, why: Message) -> Record {
    Record::Ended {
        lease: reported.lease,
        worker: Some(reported.worker),
        ending: dispatcher_core::report::Ending::Unusable,
        began: true,
        why,
        messages: reported.messages,
        parts: Vec::new(),
        at: reported.at,
    }
}

/// The lease that a record speaks of.
const fn lease_of(record: &Record) -> LeaseId {
    match record {
        Record::HandedOut { lease, .. }
        | Record::Began { lease, .. }
        | Record::Result { lease, .. }
        | Record::Ended { lease, .. }
        | Record::InputFailed { lease, .. }
        | Record::Returned { lease }
        | Record::Published { lease } => *lease,
    }
}
