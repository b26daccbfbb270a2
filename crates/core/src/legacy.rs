//! The dispatcher's side of the legacy wire: who asks for work, whose turn it is, and which tasks await a result
//! (rules W1, W5, A3, L8).
//!
//! **Owns** the requests that wait for a task and how long they may, the window of each connection, how many bytes may be on
//! their way to a worker that may not read, and what becomes of the leases of a worker that went away.
//!
//! **Refuses to know** sockets, rows and results: a result comes on another socket and names its worker; whoever decides
//! about it says here that the lease is over.
//!
//! The wire has no sign of life but the connection itself. A worker whose connection is gone has a grace to come back under
//! its name; then its leases are lost. One that went within a moment of a hand-out may never have got it, so that costs
//! nothing, also where it comes back. Its other leases wait for their time limit then.
//!
//! **Invariants**: a request is answered once, by a task or by "nothing now", after [`LegacyLimits::patience`] at the latest;
//! a connection never has more than [`LegacyLimits::window`] open leases
//! whose result is not here; whatever a peer can grow has a cap; when all have
//! left and all leases are over, nothing stays.

use crate::id::{LeaseId, WorkerKey};
use crate::session::PeerId;
use crate::text;
use crate::time::{SpanMs, TimeMs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many answers that had no room are tried again for one connection at each tick: who asks a million times and never
/// reads is owed as many, and costs the others no more than this.
const OWED_A_TICK: usize = 64;

/// What one connection of the legacy wire, and all of them, may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyLimits {
    /// Open leases of one connection.
    pub window: usize,
    /// How long a request waits for a task before it is told that there is nothing. A worker that is told so sleeps, some of
    /// them for a minute.
    pub patience: SpanMs,
    /// How long a worker whose connection is gone may take to come back under its name.
    pub grace: SpanMs,
    /// A connection that goes so soon after a hand-out may not have got it.
    pub delivery: SpanMs,
    /// Requests of one connection that may wait; one more is told that there is nothing.
    pub asks: usize,
    /// Bytes on their way to one connection, unless it is a single task.
    pub unread_each: u64,
    /// Bytes on their way to all connections together.
    pub unread_all: u64,
}

/// A task larger than this counts as one that a connection may be stuck with, in bytes.
const LARGE: u64 = 1024 * 1024;
/// Services that one connection can offer.
const SERVICES_MAX: usize = 16;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LegacyEffect {
    /// Tell the peer that there is nothing now.
    SayNothingNow {
        /// The connection.
        peer: PeerId,
    },
    /// The worker is gone, and with it what it had.
    Lost {
        /// Who.
        worker: Arc<WorkerKey>,
        /// The lease.
        lease: LeaseId,
        /// Whether it got the task, as far as anybody can know.
        delivered: bool,
    },
}

/// A worker, for listings.
#[derive(Clone, Copy, Debug)]
pub struct LegacyWorker<'a> {
    /// Who.
    pub worker: &'a Arc<WorkerKey>,
    /// What it asked for.
    pub services: &'a BTreeSet<String>,
    /// Its open leases.
    pub leases: usize,
    /// When it asked last.
    pub heard_at: TimeMs,
}

/// One connection.
#[derive(Debug)]
struct Caller {
    worker: Arc<WorkerKey>,
    services: BTreeSet<String>,
    asks: usize,
    leases: BTreeSet<LeaseId>,
    unread: u64,
    heard_at: TimeMs,
    /// Its queue was full: nothing is given to it before the next tick.
    full: bool,
    /// Answers of "nothing now" for which its queue had no room.
    owed: usize,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Ask {
    peer: PeerId,
    since: TimeMs,
}

/// A lease that awaits its result.
#[derive(Debug)]
struct Out {
    worker: Arc<WorkerKey>,
    /// The connection it went out on, while that is there.
    peer: Option<PeerId>,
    bytes: u64,
    handed_at: TimeMs,
    /// Since when its worker is away.
    away: Option<TimeMs>,
    /// Its result is here and waits to be decided.
    brought: bool,
}

/// All workers of the legacy wire.
#[derive(Debug)]
pub struct LegacyDesk {
    limits: LegacyLimits,
    draining: bool,
    callers: BTreeMap<PeerId, Caller>,
    asks: BTreeMap<String, VecDeque<Ask>>,
    out: BTreeMap<LeaseId, Out>,
    unread: u64,
}

impl Default for LegacyLimits {
    fn default() -> Self {
        Self {
            window: 4,
            patience: SpanMs(1000),
            grace: SpanMs(5000),
            delivery: SpanMs(1000),
            asks: 64,
            unread_each: 64 * 1024 * 1024,
            unread_all: 256 * 1024 * 1024,
        }
    }
}

impl Caller {
    const fn new(worker: Arc<WorkerKey>, now: TimeMs) -> Self {
        Self {
            worker,
            services: BTreeSet::new(),
            asks: 0,
            leases: BTreeSet::new(),
            unread: 0,
            heard_at: now,
            full: false,
            owed: 0,
        }
    }
}

impl Out {
    /// Whether its worker got it, as far as anybody can know: its connection was there long enough after the hand-out.
    fn was_delivered(&self, delivery: SpanMs) -> bool {
        self.away.is_none_or(|away| away.since(self.handed_at) >= delivery)
    }

    /// A worker of that name is here again. What it may never have got it does not go on with.
    fn come_back(&mut self, delivery: SpanMs) {
        if self.was_delivered(delivery) {
            self.away = None;
        }
    }
}

impl LegacyDesk {
    /// A desk without workers.
    #[must_use]
    pub const fn new(limits: LegacyLimits) -> Self {
        Self {
            limits,
            draining: false,
            callers: BTreeMap::new(),
            asks: BTreeMap::new(),
            out: BTreeMap::new(),
            unread: 0,
        }
    }

    /// What this desk allows.
    #[must_use]
    pub const fn limits(&self) -> &LegacyLimits {
        &self.limits
    }

    /// The worker of `peer`, whose socket's identity is `identity`, asks for a task of `service` (rule W1). Returns whether
    /// it is a new one.
    pub fn asked(
        &mut self,
        peer: PeerId,
        identity: &[u8],
        service: &str,
        now: TimeMs,
        effects: &mut Vec<LegacyEffect>,
    ) -> bool {
        let is_new = !self.callers.contains_key(&peer);
        if is_new {
            let worker = Arc::new(worker_of(identity, peer));
            self.welcome_back(&worker);
            self.callers.insert(peer, Caller::new(worker, now));
        }
        let Some(caller) = self.callers.get_mut(&peer) else { return false };
        caller.heard_at = now;
        let grew = caller.services.len() < SERVICES_MAX && caller.services.insert(service.to_owned());
        if self.draining || caller.asks >= self.limits.asks {
            effects.push(LegacyEffect::SayNothingNow { peer });
        } else {
            caller.asks += 1;
            self.asks.entry(service.to_owned()).or_default().push_back(Ask { peer, since: now });
        }
        is_new || grew
    }

    /// The connection whose turn it is to get a task of `service` with an input of `bytes`.
    #[must_use]
    pub fn next_taker(&self, service: &str, bytes: u64) -> Option<PeerId> {
        let asks = self.asks.get(service)?;
        asks.iter().map(|ask| ask.peer).find(|peer| self.may_take(*peer, bytes))
    }

    /// Connections that ask for `service` and have room in their windows, the one that waits longest first.
    pub fn takers(&self, service: &str) -> impl Iterator<Item = PeerId> {
        self.asks.get(service).into_iter().flatten().map(|ask| ask.peer).filter(|peer| self.may_take(*peer, 0))
    }

    /// Whether somebody asks for it and waits.
    #[must_use]
    pub fn is_asked_for(&self, service: &str) -> bool {
        self.asks.contains_key(service)
    }

    /// Whether somebody connected has ever asked for it.
    #[must_use]
    pub fn is_offered(&self, service: &str) -> bool {
        self.callers.values().any(|caller| caller.services.contains(service))
    }

    /// Whether the connection may have one more task, with an input of `bytes`.
    #[must_use]
    pub fn may_take(&self, peer: PeerId, bytes: u64) -> bool {
        let fits = |unread: u64, most: u64| unread == 0 || unread.saturating_add(bytes) <= most;
        self.callers.get(&peer).is_some_and(|caller| {
            !caller.full
                && caller.leases.len() < self.limits.window
                && fits(caller.unread, self.limits.unread_each)
                && fits(self.unread, self.limits.unread_all)
        })
    }

    /// The worker of a connection.
    #[must_use]
    pub fn worker_at(&self, peer: PeerId) -> Option<&Arc<WorkerKey>> {
        self.callers.get(&peer).map(|caller| &caller.worker)
    }

    /// The socket took the task: the request is answered, and the lease is out.
    pub fn sent(&mut self, peer: PeerId, service: &str, lease: LeaseId, bytes: u64, now: TimeMs) {
        self.take_ask(peer, service);
        let Some(caller) = self.callers.get_mut(&peer) else { return };
        caller.leases.insert(lease);
        caller.unread = caller.unread.saturating_add(bytes);
        self.unread = self.unread.saturating_add(bytes);
        let worker = Arc::clone(&caller.worker);
        self.out.insert(lease, Out { worker, peer: Some(peer), bytes, handed_at: now, away: None, brought: false });
    }

    /// The socket did not take the task, because the peer is gone: its request is forgotten (rule L9).
    pub fn gone(&mut self, peer: PeerId, service: &str) {
        self.take_ask(peer, service);
    }

    /// The socket did not take the task, because the peer does not read: its request waits on (rule L9).
    pub fn full(&mut self, peer: PeerId) {
        if let Some(caller) = self.callers.get_mut(&peer) {
            caller.full = true;
        }
    }

    /// The socket had no room for the answer of [`LegacyEffect::SayNothingNow`]; it is given at a later tick.
    pub fn not_told(&mut self, peer: PeerId) {
        if let Some(caller) = self.callers.get_mut(&peer) {
            caller.owed = caller.owed.saturating_add(1);
        }
    }

    /// A lease that was out before this process began. It waits for its limit.
    pub fn adopted(&mut self, lease: LeaseId, worker: WorkerKey, now: TimeMs) {
        self.out.insert(
            lease,
            Out { worker: Arc::new(worker), peer: None, bytes: 0, handed_at: now, away: None, brought: false },
        );
    }

    /// The result of the lease is here, and waits to be decided: its worker is free for another task.
    pub fn brought(&mut self, lease: LeaseId) {
        let Some(out) = self.out.get_mut(&lease) else { return };
        let bytes = std::mem::take(&mut out.bytes);
        if let Some(caller) = out.peer.and_then(|peer| self.callers.get_mut(&peer)) {
            caller.leases.remove(&lease);
            caller.unread = caller.unread.saturating_sub(bytes);
        }
        self.unread = self.unread.saturating_sub(bytes);
        out.brought = true;
    }

    /// The lease is over, or its worker has said that no result will come. Forgetting one that is not there changes nothing.
    pub fn over(&mut self, lease: LeaseId) {
        self.forget(lease);
    }

    /// The lease was taken away from its worker. Returns its connection where that is to be closed: it may never have read a
    /// large input, and would hold it for ever.
    pub fn cut(&mut self, lease: LeaseId) -> Option<PeerId> {
        let out = self.forget(lease)?;
        out.peer.filter(|_| out.bytes >= LARGE)
    }

    fn forget(&mut self, lease: LeaseId) -> Option<Out> {
        let out = self.out.remove(&lease)?;
        if let Some(caller) = out.peer.and_then(|peer| self.callers.get_mut(&peer)) {
            caller.leases.remove(&lease);
            caller.unread = caller.unread.saturating_sub(out.bytes);
        }
        self.unread = self.unread.saturating_sub(out.bytes);
        Some(out)
    }

    /// The connection is gone; its worker may come back.
    pub fn departed(&mut self, peer: PeerId, now: TimeMs) {
        let Some(caller) = self.callers.remove(&peer) else { return };
        for queue in self.asks.values_mut() {
            queue.retain(|ask| ask.peer != peer);
        }
        self.asks.retain(|_, queue| !queue.is_empty());
        self.unread = self.unread.saturating_sub(caller.unread);
        let is_elsewhere = self.callers.values().any(|other| other.worker == caller.worker);
        for lease in caller.leases {
            if let Some(out) = self.out.get_mut(&lease) {
                (out.peer, out.bytes) = (None, 0);
                out.away = Some(now);
                if is_elsewhere {
                    out.come_back(self.limits.delivery);
                }
            }
        }
    }

    /// Time has passed: requests that waited long enough are told that there is nothing, and who did not come back is lost.
    pub fn tick(&mut self, now: TimeMs, effects: &mut Vec<LegacyEffect>) {
        let is_over = |since: TimeMs, span: SpanMs| now < since || now.since(since) >= span;
        for (peer, caller) in &mut self.callers {
            caller.full = false;
            let some = caller.owed.min(OWED_A_TICK);
            caller.owed -= some;
            effects.extend(std::iter::repeat_n(LegacyEffect::SayNothingNow { peer: *peer }, some));
        }
        let mut told = Vec::new();
        for queue in self.asks.values_mut() {
            queue.retain(|ask| {
                let waits = !is_over(ask.since, self.limits.patience);
                if !waits {
                    told.push(ask.peer);
                }
                waits
            });
        }
        self.tell(told, effects);
        let gone = |out: &Out| out.away.is_some_and(|since| is_over(since, self.limits.grace));
        let lost: Vec<_> = self.out.iter().filter(|(_, out)| gone(out)).map(|(lease, _)| *lease).collect();
        for lease in lost {
            if let Some(out) = self.out.remove(&lease) {
                let delivered = out.was_delivered(self.limits.delivery);
                effects.push(LegacyEffect::Lost { worker: out.worker, lease, delivered });
            }
        }
    }

    /// Nothing more is handed out: whoever waits is told so at once (rule S1).
    pub fn drain(&mut self, effects: &mut Vec<LegacyEffect>) {
        self.draining = true;
        let told = std::mem::take(&mut self.asks).into_values().flatten().map(|ask| ask.peer).collect();
        self.tell(told, effects);
    }

    /// Answers requests that were taken out of their queues.
    fn tell(&mut self, peers: Vec<PeerId>, effects: &mut Vec<LegacyEffect>) {
        self.asks.retain(|_, queue| !queue.is_empty());
        for peer in peers {
            if let Some(caller) = self.callers.get_mut(&peer) {
                caller.asks = caller.asks.saturating_sub(1);
            }
            effects.push(LegacyEffect::SayNothingNow { peer });
        }
    }

    /// Every worker that is connected, in a fixed order.
    pub fn workers(&self) -> impl Iterator<Item = LegacyWorker<'_>> {
        self.callers.values().map(|caller| LegacyWorker {
            worker: &caller.worker,
            services: &caller.services,
            leases: caller.leases.len(),
            heard_at: caller.heard_at,
        })
    }

    /// How many leases await a result from a worker that is connected.
    #[must_use]
    pub fn awaited(&self) -> usize {
        let is_here = |out: &&Out| {
            out.brought
                || out.peer.is_some()
                || self.callers.values().any(|caller| caller.worker.name == out.worker.name)
        };
        self.out.values().filter(is_here).count()
    }

    /// A worker of that name is here again: what it had when it went is its own still.
    fn welcome_back(&mut self, worker: &WorkerKey) {
        for out in self.out.values_mut().filter(|out| out.worker.name == worker.name) {
            out.come_back(self.limits.delivery);
        }
    }

    /// Takes the oldest request of a connection for a service.
    fn take_ask(&mut self, peer: PeerId, service: &str) {
        let Some(queue) = self.asks.get_mut(service) else { return };
        if let Some(at) = queue.iter().position(|ask| ask.peer == peer) {
            queue.remove(at);
            if let Some(caller) = self.callers.get_mut(&peer) {
                caller.asks = caller.asks.saturating_sub(1);
            }
        }
        if queue.is_empty() {
            self.asks.remove(service);
        }
    }
}

impl WorkerKey {
    /// A worker of the legacy wire, which has a name and no incarnation: no worker of the v1 wire has an empty one.
    #[must_use]
    pub fn legacy(name: &str) -> Self {
        Self { name: text::clean_line(name.as_bytes(), text::NAME_MAX).text.into_owned(), incarnation: String::new() }
    }

    /// Whether it is one of the legacy wire.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.incarnation.is_empty()
    }
}

/// How the names of workers begin whose sockets have no identity.
pub const NAMELESS: &str = "anonymous-";

/// The name of a worker that asks: its socket's identity. Where it set none the library made one up, which begins with a
/// NUL; results of such a worker are taken for the newest attempt (rule C11).
fn worker_of(identity: &[u8], peer: PeerId) -> WorkerKey {
    if identity.first().is_none_or(|first| *first == 0) {
        return WorkerKey::legacy(&format!("{NAMELESS}{}", peer.0));
    }
    WorkerKey::legacy(&text::clean_line(identity, text::NAME_MAX).text)
}

#[cfg(test)]
mod tests;
