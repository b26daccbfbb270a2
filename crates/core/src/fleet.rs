//! All workers of the v1 wire, as the dispatcher sees them: who is connected, who has which lease, what each may be sent
//! next, who is lost.
//!
//! **Owns** the conversation of `docs/protocol.md` on the dispatcher's side: hellos and holds, credit, begins, beats,
//! answers and the pulling of their bytes, fetches, acknowledgements, the drain, and the loss of workers.
//!
//! **Refuses to know** sockets, the state of tasks and the store. What is to be done is pushed as [`Effect`]s in the order
//! in which it is to be done; whoever drives the fleet does it and tells what came of it. There is one driver, on one
//! thread, which never waits.
//!
//! **Invariants**
//! - A lease is with at most one worker; a worker's leases outlive its connections (a disconnect alone is no loss).
//! - Never more tasks sent than granted. Nothing is sent past a full queue; what waits for it is bounded.
//! - Each [`Effect::Answered`] is acknowledged once, or deferred and pushed again.
//! - Never more than [`FleetLimits::wanted_total`] bytes wanted and not taken.
//! - Each lease of a lost worker is named once, in [`Effect::WorkerLost`] or [`Effect::NotHeld`].
//! - Silence is measured on a listening clock: a process that slept loses nobody.
//! - No message makes it panic, and whatever a peer can grow has a cap. When all have left, nothing stays.
//!
//! Start reading at [`Fleet::heard`] in `fleet/hear.rs`.

mod clock;
mod effect;
mod hear;
mod hello;
mod life;
mod limits;
mod pull;
mod shared;
pub(crate) mod transfer;

pub use effect::{Answer, AnswerBytes, Cut, Effect, LostLease, NoiseKind, NotHeldWhy, Piece, Said, Warning};
pub(crate) use life::LifeId;
pub use limits::FleetLimits;

use crate::id::{LeaseId, WorkerKey};
use crate::session::{PeerId, Session, Waiting};
use crate::time::{SpanMs, TimeMs};
use crate::token::TokenKey;
use crate::wire::{AckWord, ToWorker, TokenText};
use clock::{ListeningClock, Turns};
use life::{Held, Roster};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transfer::Budget;

/// A lease that the store confirms to be its worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub lease: LeaseId,
    /// The size of its input in bytes.
    pub size: u64,
}

/// All workers of the v1 wire.
#[derive(Debug)]
pub struct Fleet {
    limits: FleetLimits,
    key: TokenKey,
    clock: ListeningClock,
    draining: bool,
    roster: Roster,
    sessions: BTreeMap<PeerId, Session>,
    turns: BTreeMap<String, Turns>,
    pull_turns: Turns,
    full: BTreeSet<PeerId>,
    /// Leases of lost workers whose answers are in the driver's hands.
    orphans: BTreeSet<LeaseId>,
    /// Those whose answers could not be taken: to be told at the next tick.
    lost_late: Vec<(Arc<WorkerKey>, LostLease)>,
    inline: Budget,
    wanted: Budget,
}

impl Fleet {
    /// A fleet without workers, which reads and signs tokens with `key`.
    #[must_use]
    pub fn new(limits: FleetLimits, key: TokenKey) -> Self {
        let chunk_max = limits.chunk_max.max(1);
        // Less than one piece in all would let no transfer begin.
        let wanted = Budget::new(limits.wanted_total.max(chunk_max));
        let inline = Budget::new(limits.inline_budget);
        Self {
            limits: FleetLimits { chunk_max, outstanding_per_peer: limits.outstanding_per_peer.max(1), ..limits },
            key,
            clock: ListeningClock::default(),
            draining: false,
            roster: Roster::default(),
            sessions: BTreeMap::new(),
            turns: BTreeMap::new(),
            pull_turns: Turns::default(),
            full: BTreeSet::new(),
            orphans: BTreeSet::new(),
            lost_late: Vec::new(),
            inline,
            wanted,
        }
    }

    /// What this fleet allows.
    #[must_use]
    pub const fn limits(&self) -> &FleetLimits {
        &self.limits
    }

    /// The token of `lease`, as it goes into [`ToWorker::Task`].
    #[must_use]
    pub fn token(&self, lease: LeaseId) -> TokenText {
        self.key.sign(lease)
    }

    /// The worker whose turn it is to get a task of `service`: it asked for one, reads what it is sent, and owes no
    /// answer that could not be taken. None where nobody can take one, or during the drain.
    ///
    /// Send the task, then say what the socket said with [`Self::sent`] or [`Self::unsent`].
    ///
    /// Until then it answers the same. Workers are served by how long they have waited, whatever the service.
    #[must_use]
    pub fn next_taker(&self, service: &str) -> Option<PeerId> {
        self.turns.get(service)?.first()
    }

    /// How many tasks of `service` could be sent now if no other service was served: what is worth claiming ahead.
    #[must_use]
    pub fn open_credit(&self, service: &str) -> u64 {
        let open = |peer| self.sessions.get(&peer).map_or(0, |session| session.credit.open(&self.limits));
        self.turns.get(service).map_or(0, |turns| turns.iter().map(open).fold(0, u64::saturating_add))
    }

    /// The services that somebody can take a task of now.
    pub fn wanted_services(&self) -> impl Iterator<Item = &str> {
        self.turns.keys().map(String::as_str)
    }

    /// The socket took the task: `lease`, whose input has `size` bytes, is with the worker of `peer` from now on.
    ///
    /// Returns false, and does nothing, where there is no such connection: undo the lease (rule L9).
    pub fn sent(&mut self, peer: PeerId, lease: LeaseId, size: u64, now: TimeMs) -> bool {
        let clock = self.clock.advance(now);
        let Some(session) = self.sessions.get_mut(&peer) else {
            return false;
        };
        session.queue.went_through();
        session.settled.remove(&lease);
        session.refused.remove(&lease);
        let (life, at) = (session.life, (session.number, session.credit.send(clock)));
        self.detach(lease);
        self.place(life, lease, Held::new(Some(at), false, Some(size)));
        self.leave_turns(peer);
        self.refresh(peer);
        true
    }

    /// The socket did not take the task: the worker's queue is full. The lease never came here; undo it (rule L9).
    pub fn unsent(&mut self, peer: PeerId, now: TimeMs, effects: &mut Vec<Effect>) {
        let clock = self.clock.advance(now);
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.queue.was_refused(clock);
            self.full.insert(peer);
            effects.push(Effect::Noise { peer, kind: NoiseKind::QueueFull });
            self.refresh(peer);
        }
    }

    /// The socket did not take the message of an [`Effect::Send`]: the worker's queue is full. It is kept and sent by a
    /// later [`Self::flush`]; a worker for which too much waits is cut off.
    pub fn full(&mut self, peer: PeerId, message: ToWorker, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        self.keep_waiting(peer, Waiting::Message(message), effects);
    }

    /// Tries again what queues had no room for. To be called once a turn, after the sockets had time to write.
    pub fn flush(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        let clock = self.clock.advance(now);
        let full: Vec<_> = self.full.iter().copied().collect();
        for peer in full {
            let Some(session) = self.sessions.get_mut(&peer) else {
                self.full.remove(&peer);
                continue;
            };
            for waiting in session.queue.retry(clock, self.limits.retry_burst) {
                match waiting {
                    Waiting::Message(message) => effects.push(Effect::Send { peer, message }),
                    Waiting::Chunk(fetch) if self.roster.place(fetch.lease) == Some(session.life) => {
                        session.fetches.again(fetch);
                        effects.push(fetch.asked(peer));
                    }
                    Waiting::Chunk(_) => {}
                }
            }
            if !session.queue.is_full() {
                self.full.remove(&peer);
                self.refresh(peer);
                self.serve_fetches(peer, effects);
                self.pump(effects);
            }
        }
    }

    /// The connection is gone. Its worker is not lost by that: it has [`FleetLimits::dead_after`] to come back.
    pub fn departed(&mut self, peer: PeerId, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        if let Some(life) = self.close(peer, Cut::Departed, effects) {
            self.forget_if_empty(life, effects);
        }
        self.pump(effects);
    }

    /// Time has passed: finds who is lost, who does not read, and who does not send what it promised. To be called every
    /// quarter of a second or so, also when nobody speaks (rule A3).
    pub fn tick(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        let clock = self.clock.advance(now);
        for (worker, lost) in std::mem::take(&mut self.lost_late) {
            effects.push(Effect::NotHeld { worker, leases: vec![lost], why: NotHeldWhy::Gone });
        }
        let (stuck_after, dead_after) = (self.limits.stuck_after, self.limits.dead_after);
        let silent = |heard_at| self.clock.has_passed(heard_at, dead_after);
        let lost: Vec<_> = self.roster.lives().filter(|(_, life)| silent(life.heard_at)).map(|(id, _)| id).collect();
        for life in lost {
            self.lose(life, effects);
        }
        let is_stuck = |session: &Session| {
            session.queue.is_stuck(clock, stuck_after) || session.credit.is_stuck(clock, stuck_after)
        };
        let stuck: Vec<_> = self.sessions.iter().filter(|(_, s)| is_stuck(s)).map(|(peer, _)| *peer).collect();
        for peer in stuck {
            self.cut_stuck(peer, effects);
        }
        let is_stalled = |session: &Session| session.transfers.values().any(|t| t.is_stalled(clock, dead_after));
        let stalled: Vec<_> = self.sessions.iter().filter(|(_, s)| is_stalled(s)).map(|(peer, _)| *peer).collect();
        for peer in stalled {
            self.cut(peer, Cut::Stalled, effects);
        }
        self.pump(effects);
    }

    /// The store's answer to [`Effect::HoldsClaimed`], in one call or several: these leases are the worker's, those are
    /// not. A worker that waits for its welcome gets it with the last of them.
    pub fn settle(&mut self, worker: &WorkerKey, keep: &[Kept], drop: &[LeaseId], effects: &mut Vec<Effect>) {
        let Some(id) = self.roster.find(worker) else {
            let lost = |kept: &Kept| LostLease { lease: kept.lease, began: false };
            let leases: Vec<_> = keep.iter().filter(|k| self.roster.place(k.lease).is_none()).map(lost).collect();
            if !leases.is_empty() {
                effects.push(Effect::NotHeld { worker: Arc::new(worker.clone()), leases, why: NotHeldWhy::Gone });
            }
            return;
        };
        for kept in keep {
            self.keep(id, *kept);
        }
        self.refuse_claims(id, drop, effects);
        if let Some(peer) = self.roster.get(id).and_then(|life| life.peer) {
            self.welcome_if_settled(peer, effects);
            self.refresh(peer);
        }
        self.forget_if_empty(id, effects);
    }

    /// Tells the worker what became of its answer, and forgets the lease. Where its worker is absent nobody is told: it
    /// answers again when it is back, and the store answers the same.
    pub fn ack(&mut self, lease: LeaseId, answer: AckWord, why: Option<String>, effects: &mut Vec<Effect>) {
        let token = self.token(lease);
        self.end(lease, ToWorker::Ack { token, answer, why }, effects);
    }

    /// Tells the worker to stop working on the lease, and forgets it.
    pub fn cancel(&mut self, lease: LeaseId, why: String, effects: &mut Vec<Effect>) {
        let token = self.token(lease);
        self.end(lease, ToWorker::Cancel { token, why }, effects);
    }

    /// Hands out nothing more, from now on, and tells every worker so (rule S1).
    pub fn drain(&mut self, effects: &mut Vec<Effect>) {
        self.draining = true;
        let peers: Vec<_> = self.sessions.keys().copied().collect();
        for peer in peers {
            self.refresh(peer);
            if self.sessions.get(&peer).is_some_and(|session| session.greeting.is_none()) {
                effects.push(Effect::Send { peer, message: ToWorker::Drain });
            }
        }
    }

    /// The worker that has `lease`.
    #[must_use]
    pub fn worker_of(&self, lease: LeaseId) -> Option<&Arc<WorkerKey>> {
        self.roster.place(lease).and_then(|life| self.roster.get(life)).map(|life| &life.worker)
    }

    /// The worker that speaks on `peer`.
    #[must_use]
    pub fn worker_at(&self, peer: PeerId) -> Option<&Arc<WorkerKey>> {
        self.sessions.get(&peer).and_then(|session| self.roster.get(session.life)).map(|life| &life.worker)
    }

    /// Every worker that is connected or awaited, in a fixed order.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.roster.lives().map(|(_, life)| WorkerView {
            worker: &life.worker,
            peer: life.peer,
            services: &life.services,
            slots: life.slots,
            leases: life.leases().len(),
            begun: life.leases().values().filter(|held| held.began).count(),
            answering: life.answering(),
            silent: SpanMs(self.clock.listened().0.saturating_sub(life.heard_at.0)),
        })
    }

    /// How many leases are with workers.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.roster.lease_count()
    }

    /// Bytes of answers held for the driver, and bytes wanted or not yet taken.
    #[must_use]
    pub const fn bytes_held(&self) -> (u64, u64) {
        (self.inline.total(), self.wanted.total())
    }
}

/// A worker, for listings.
#[derive(Clone, Copy, Debug)]
pub struct WorkerView<'a> {
    /// Who.
    pub worker: &'a Arc<WorkerKey>,
    /// Its connection; none while it is awaited.
    pub peer: Option<PeerId>,
    /// What it can do.
    pub services: &'a [String],
    /// How many tasks it works on at once.
    pub slots: u32,
    /// How many leases it has.
    pub leases: usize,
    /// How many of them have begun.
    pub begun: usize,
    /// How many of them have an answer that is whole and in the driver's hands.
    pub answering: usize,
    /// For how long it has been silent while we listened.
    pub silent: SpanMs,
}
