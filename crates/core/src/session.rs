//! One worker's connection: its credit, what waits for its queue to have room, what it fetches and what it is asked for.
//!
//! Owns the counts of one connection and when it may be given more. Knows nothing of other connections, of leases'
//! fates or of sockets; [`crate::fleet`] puts the connections together.
//!
//! **Invariants**: never more tasks sent than granted; at most `task_window` tasks sent whose arrival is unproven; every
//! list that the peer makes grow has a cap in [`crate::fleet::FleetLimits`].

use crate::fleet::FleetLimits;
use crate::fleet::LifeId;
use crate::fleet::transfer::Transfer;
use crate::id::LeaseId;
use crate::time::SpanMs;
use crate::wire::{ToWorker, TokenText};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A connection, as whoever owns the sockets numbers it. Never used again for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// A connection whose worker said hello.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) life: LifeId,
    /// Tells this connection from the worker's earlier ones.
    pub(crate) number: u64,
    /// Set until the worker is welcomed.
    pub(crate) greeting: Option<Greeting>,
    pub(crate) credit: Credit,
    /// The worker's newest beat.
    pub(crate) beat: u64,
    pub(crate) queue: Queue,
    pub(crate) fetches: Fetches,
    pub(crate) transfers: BTreeMap<LeaseId, Transfer>,
    /// The lease whose transfer was asked for a piece last; the next one is the one after it.
    pub(crate) last_pull: Option<LeaseId>,
    /// Settled leases that the worker may still list until it has read so.
    pub(crate) settled: BTreeSet<LeaseId>,
    /// Leases that the store does not know as this worker's: told at each beat that lists them, without another look.
    pub(crate) refused: BTreeSet<LeaseId>,
    /// Its place in the turns of its services, while it can be sent a task.
    pub(crate) turn: Option<u64>,
    /// Its place in the turns of those that can be asked for a piece.
    pub(crate) pull_turn: Option<u64>,
}

/// A hello that is not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) listed: Vec<LeaseId>,
    pub(crate) forged: Vec<TokenText>,
}

/// How many tasks the worker asked for, was sent, and has proved to have received, each since its hello.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    granted: u64,
    sent: u64,
    received: u64,
    /// Since when the arrival of some task is unproven and no other was proved, on the listening clock.
    unproven_since: Option<SpanMs>,
}

/// What the connection's queue had no room for, and when to try again.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether nothing new is sent.
    full: bool,
    /// Since when nothing got through, on the listening clock.
    refusing_since: Option<SpanMs>,
    /// Whether something was refused since the last try.
    refused: bool,
    /// Whether the last try tried anything.
    tried: bool,
    /// How long the next try waits, and until when.
    delay: SpanMs,
    next_try: SpanMs,
}

/// Something to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Message(ToWorker),
    Chunk(Fetch),
}

/// A piece of an input that the worker asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) lease: LeaseId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Pieces of inputs: how many are being read or sent, and which wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    waiting: VecDeque<Fetch>,
    under_way: VecDeque<LeaseId>,
}

impl Session {
    pub(crate) fn new(life: LifeId, number: u64) -> Self {
        Self {
            life,
            number,
            greeting: Some(Greeting::default()),
            credit: Credit::default(),
            beat: 0,
            queue: Queue::default(),
            fetches: Fetches::default(),
            transfers: BTreeMap::new(),
            last_pull: None,
            settled: BTreeSet::new(),
            refused: BTreeSet::new(),
            turn: None,
            pull_turn: None,
        }
    }

    /// Whether the connection itself may be sent a task now.
    pub(crate) fn is_open(&self, limits: &FleetLimits) -> bool {
        self.greeting.is_none() && !self.queue.is_full() && self.credit.allows(limits)
    }

    /// Whether the worker may be asked for one more piece.
    pub(crate) fn can_be_asked(&self, limits: &FleetLimits) -> bool {
        !self.queue.is_full()
            && self.pieces_outstanding() < limits.outstanding_per_peer
            && self.transfers.values().any(Transfer::has_more)
    }

    /// Pieces asked for and not arrived, or arrived and not taken.
    pub(crate) fn pieces_outstanding(&self) -> usize {
        self.transfers.values().map(Transfer::outstanding).sum()
    }

    /// The transfer whose turn it is among those that have something left to ask for.
    pub(crate) fn next_pull(&self) -> Option<LeaseId> {
        let has_more = |(lease, transfer): (&LeaseId, &Transfer)| transfer.has_more().then_some(*lease);
        let after = self.last_pull.and_then(|last| {
            let later = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.transfers.range(later).find_map(has_more)
        });
        after.or_else(|| self.transfers.iter().find_map(has_more))
    }

    /// Remembers that `lease` is settled, so that a beat which crosses the answer does not claim it.
    pub(crate) fn note_settled(&mut self, lease: LeaseId, most: usize) {
        self.settled.insert(lease);
        if self.settled.len() > most {
            self.settled.pop_first();
        }
    }

    /// Remembers that `lease` is refused.
    pub(crate) fn note_refused(&mut self, lease: LeaseId, most: usize) {
        self.refused.insert(lease);
        if self.refused.len() > most {
            self.refused.pop_first();
        }
    }
}

impl Credit {
    /// Notes what the worker asked for in all. A lower number than before is an older message's and changes nothing.
    pub(crate) fn grant(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
    }

    /// Notes one more task sent; returns its number on this connection, from 1.
    pub(crate) fn send(&mut self, clock: SpanMs) -> u64 {
        self.sent = self.sent.saturating_add(1);
        self.unproven_since.get_or_insert(clock);
        self.sent
    }

    /// Notes that the first `received` tasks of this connection have arrived. More than were sent is not believed.
    pub(crate) fn prove(&mut self, received: u64, clock: SpanMs) {
        let received = received.min(self.sent);
        if received > self.received {
            self.received = received;
            self.unproven_since = (received < self.sent).then_some(clock);
        }
    }

    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// Whether tasks were sent and none proved to have arrived for `span`.
    pub(crate) fn is_stuck(&self, clock: SpanMs, span: SpanMs) -> bool {
        self.unproven_since.is_some_and(|since| clock.0.saturating_sub(since.0) >= span.0)
    }

    /// How many more tasks the worker asks for.
    pub(crate) fn open(&self, limits: &FleetLimits) -> u64 {
        self.granted.saturating_sub(self.sent).min(limits.max_credit)
    }

    fn allows(&self, limits: &FleetLimits) -> bool {
        self.open(limits) > 0 && self.sent - self.received < limits.task_window
    }
}

impl Queue {
    /// The longest wait between two tries, in milliseconds.
    const DELAY_MAX: SpanMs = SpanMs(64);

    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    /// Whether nothing got through for `span`.
    pub(crate) fn is_stuck(&self, clock: SpanMs, span: SpanMs) -> bool {
        self.refusing_since.is_some_and(|since| clock.0.saturating_sub(since.0) >= span.0)
    }

    /// Notes that the socket refused something.
    pub(crate) fn was_refused(&mut self, clock: SpanMs) {
        self.full = true;
        self.refusing_since.get_or_insert(clock);
        if !self.refused {
            self.refused = true;
            self.delay = self.delay.times(2).max(SpanMs(1)).min(Self::DELAY_MAX);
            self.next_try = clock.plus(self.delay);
        }
    }

    /// Notes that the socket took something.
    pub(crate) const fn went_through(&mut self) {
        self.refusing_since = None;
        self.delay = SpanMs::ZERO;
    }

    /// Keeps something to be sent again; false where too much waits already.
    pub(crate) fn keep(&mut self, waiting: Waiting, most: usize) -> bool {
        if self.waiting.len() >= most {
            return false;
        }
        self.waiting.push_back(waiting);
        true
    }

    /// What to try again now, at most `most`. Once all of it got through the queue counts as having room again.
    pub(crate) fn retry(&mut self, clock: SpanMs, most: usize) -> Vec<Waiting> {
        let refused = std::mem::take(&mut self.refused);
        if refused && clock < self.next_try {
            self.refused = true;
            return Vec::new();
        }
        if !refused && self.tried {
            self.went_through();
        }
        // Where a task was refused and nothing else waits, the next task is the try.
        self.full = !self.waiting.is_empty();
        self.tried = self.full;
        self.waiting.drain(..self.waiting.len().min(most)).collect()
    }
}

impl Fetches {
    /// Notes a fetch; false where too many wait already.
    pub(crate) fn ask(&mut self, fetch: Fetch, most: usize) -> bool {
        if self.waiting.len() >= most {
            return false;
        }
        self.waiting.push_back(fetch);
        true
    }

    /// The next fetch to serve, where fewer than `at_once` are under way.
    pub(crate) fn next(&mut self, at_once: usize) -> Option<Fetch> {
        if self.under_way.len() >= at_once {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.under_way.push_back(next.lease);
        Some(next)
    }

    /// The oldest one under way is sent, or will not be.
    pub(crate) fn done(&mut self) {
        self.under_way.pop_front();
    }

    /// One that the queue had no room for is under way again.
    pub(crate) fn again(&mut self, fetch: Fetch) {
        self.under_way.push_back(fetch.lease);
    }

    /// Forgets what waits or is under way for `lease`.
    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.waiting.retain(|fetch| fetch.lease != lease);
        self.under_way.retain(|under_way| *under_way != lease);
    }
}
