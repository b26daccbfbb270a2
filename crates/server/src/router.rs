//! The router: the one stage that speaks to workers.
//!
//! **Owns** the socket, the fleet (sessions and what each worker has), and the stock of claimed tasks on their way to a
//! worker. **Refuses to know** files, rows and decisions: it asks and is told.
//!
//! Invariants: it never waits for anybody (rule D1); a lease is on record before its task's first byte leaves (rule L2);
//! what a send refuses is undone (rule L9); it always reads, so whatever is sent to it can be sent.

use crate::clock::Clock;
use crate::inputs::{Answered, Inputs};
use crate::mailbox::{Mailbox, mailbox};
use crate::meters::Meters;
use crate::report::{Arrival, Order, Work};
use crate::shared::{DrainMode, Shared};
use crate::stage::StageFailure;
use bytes::Bytes;
use crossbeam_channel::{Sender, TrySendError};
use dispatcher_core::fleet::{Fleet, FleetLimits, NoiseKind, WorkerView};
use dispatcher_core::id::LeaseId;
use dispatcher_core::in_flight::InFlightSet;
use dispatcher_core::legacy::{LegacyDesk, LegacyLimits};
use dispatcher_core::noise::NoiseMeter;
use dispatcher_core::session::PeerId;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::token::TokenKey;
use dispatcher_store::Record;
use dispatcher_transport::codec::{self, CodecError};
use dispatcher_transport::legacy::is_request;
use dispatcher_transport::socket::{BackendKind, Endpoint, RouterEvent, RouterOptions, RouterSocket};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

mod act;
mod hand_out;
mod legacy;
mod orders;
mod stock;
mod workers;

use stock::{Stock, Tag};

/// How often sessions are looked after. Each turn counts at most 1 s as silence, so this is well below.
const TICK: Duration = Duration::from_millis(100);
/// Events of one turn; then everybody else has theirs.
const EVENTS_A_TURN: usize = 64;
/// Reports that may wait for a full receiver before workers are asked to keep theirs.
const WAITING_MAX: usize = 1024;
/// How long the socket may take to flush at its end.
const LINGER: Duration = Duration::from_secs(2);
/// How long an ending dispatcher waits for tasks that its workers have not begun.
const GIVE_BACK_LIMIT: SpanMs = SpanMs(1000);
/// Lines about one kind of noise come at most so often (rule G3).
const NOISE_EVERY: SpanMs = SpanMs(5000);

/// What a router is built from.
pub struct RouterParts {
    /// Where to listen.
    pub endpoint: Endpoint,
    /// The socket implementation.
    pub backend: BackendKind,
    /// Bounds of connections and workers.
    pub fleet: FleetLimits,
    /// Bounds of the workers of the legacy wire; `None`: they are not served, since nobody takes their results.
    pub legacy: Option<LegacyLimits>,
    /// After how much silence the system asks whether a peer is still there (rule W6).
    pub keep_alive: Option<Duration>,
    /// Signs and reads tokens.
    pub key: TokenKey,
    /// What a worker may take to end a task's processes.
    pub kill_grace: SpanMs,
    /// How long a drain may take.
    pub drain_limit: Duration,
    /// What is measured.
    pub meters: Arc<Meters>,
    /// Wakes the finaliser: something may have become claimable.
    pub nudges: Sender<()>,
    /// The leases.
    pub set: Arc<InFlightSet>,
    /// What the stages share.
    pub shared: Arc<Shared>,
    /// The time.
    pub clock: Clock,
}

/// The router's own state.
pub struct Router {
    parts: RouterParts,
    runtime: Option<tokio::runtime::Runtime>,
    socket: RouterSocket,
    fleet: Fleet,
    legacy: LegacyDesk,
    /// Whether a task went to a worker of the legacy wire last: where both wait they take turns.
    served_legacy: bool,
    stock: Stock,
    /// The service that a task was handed out of last.
    served_last: String,
    /// Work that is with a worker: for its input's pieces and the cap of its result.
    out: HashMap<LeaseId, Work>,
    inputs: Inputs<Tag>,
    answers: Mailbox<Answered<Tag>>,
    orders: Mailbox<Order>,
    receiver: Sender<Arrival>,
    /// What a full receiver could not take yet, in order.
    waiting: VecDeque<Arrival>,
    noise: NoiseMeter<NoiseKind>,
    workers_noted_at: Option<TimeMs>,
    draining_since: Option<TimeMs>,
}

impl Router {
    /// Listens.
    ///
    /// # Errors
    /// Where the endpoint cannot be bound or the system gives no thread.
    pub fn bind(parts: RouterParts, receiver: Sender<Arrival>, orders: Mailbox<Order>) -> Result<Self, StageFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StageFailure::System(format!("no event loop for the router: {e}")))?;
        let options =
            RouterOptions { backend: parts.backend, keep_alive: parts.keep_alive, ..RouterOptions::default() };
        let socket = runtime
            .block_on(RouterSocket::bind(&parts.endpoint, options))
            .map_err(|e| StageFailure::Socket(e.to_string()))?;
        let (outlet, answers) = mailbox(stock::READS_MAX);
        let inputs = Inputs::start(stock::READS_MAX, outlet)
            .map_err(|e| StageFailure::System(format!("no thread to read inputs: {e}")))?;
        Ok(Self {
            fleet: Fleet::new(parts.fleet.clone(), parts.key.clone()),
            legacy: LegacyDesk::new(parts.legacy.clone().unwrap_or_default()),
            served_legacy: false,
            parts,
            runtime: Some(runtime),
            socket,
            stock: Stock::default(),
            served_last: String::new(),
            out: HashMap::new(),
            inputs,
            answers,
            orders,
            receiver,
            waiting: VecDeque::new(),
            noise: NoiseMeter::new(NOISE_EVERY),
            workers_noted_at: None,
            draining_since: None,
        })
    }

    /// Routes until it is told to drain and the workers are gone.
    ///
    /// # Errors
    /// Where the socket cannot go on, or a neighbour is gone.
    pub fn run(mut self) -> Result<(), StageFailure> {
        let Some(runtime) = self.runtime.take() else {
            return Err(StageFailure::System("the router was started twice".to_owned()));
        };
        let routed = runtime.block_on(self.route());
        self.parts.shared.router_over.store(true, Ordering::Release);
        self.flush_all();
        runtime.block_on(self.socket.close(LINGER));
        routed
    }

    /// The loop: one source of events after the other, then what follows from them.
    async fn route(&mut self) -> Result<(), StageFailure> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = Vec::with_capacity(EVENTS_A_TURN);
        loop {
            tokio::select! {
                read = self.socket.next_many(&mut events, EVENTS_A_TURN) => {
                    read.map_err(|e| StageFailure::Socket(e.to_string()))?;
                }
                () = self.orders.noticed() => {}
                () = self.answers.noticed() => {}
                _ = ticks.tick() => self.tick()?,
            }
            let began = Instant::now();
            for event in events.drain(..) {
                self.event(event)?;
            }
            while let Some(order) = self.orders.try_next() {
                self.order(order)?;
            }
            while let Some(answer) = self.answers.try_next() {
                self.input_read(answer)?;
            }
            self.flush()?;
            self.flush_peers()?;
            self.hand_out()?;
            self.parts.meters.route.record(began.elapsed());
            if self.is_over() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// One event of the socket.
    fn event(&mut self, event: RouterEvent) -> Result<(), StageFailure> {
        let now = self.now();
        let mut effects = Vec::new();
        let mut bodies = Vec::new();
        match event {
            // Nothing is owed to a connection before it says hello.
            RouterEvent::Arrived { .. } => {}
            RouterEvent::Departed { peer } => {
                self.legacy.departed(peer, now);
                self.fleet.departed(peer, now, &mut effects);
            }
            RouterEvent::Message { peer, frames } if is_request(&frames) => return self.request(peer, &frames),
            RouterEvent::Message { peer, frames } => match codec::decode_from_worker(&frames) {
                Ok((message, with)) => {
                    bodies = with;
                    let length = bodies.iter().map(|body| body.len() as u64).sum();
                    self.fleet.heard(peer, message, length, now, &mut effects);
                }
                // What nobody can say the wire of is not answered: a worker of the legacy wire would take it for a task.
                Err(CodecError::NotV1) if self.fleet.worker_at(peer).is_none() => {
                    self.count_noise(NoiseKind::Malformed);
                }
                Err(e) => {
                    tracing::debug!(peer = peer.0, "a message that cannot be read: {e}");
                    self.fleet.malformed(peer, now, &mut effects);
                }
            },
        }
        self.act(effects, &bodies)
    }

    /// Looks after sessions, reads that hang, and the end.
    fn tick(&mut self) -> Result<(), StageFailure> {
        let now = self.now();
        self.parts.shared.routed_at.store(now.0, Ordering::Relaxed);
        self.parts.shared.to_receiver.store(self.receiver.len() + self.waiting.len(), Ordering::Relaxed);
        let mut effects = Vec::new();
        self.fleet.tick(now, &mut effects);
        self.act(effects, &[])?;
        self.tick_legacy(now)?;
        self.give_up_slow_reads(now)?;
        self.resume()?;
        self.note_workers(now)?;
        if let Some(path) = self.parts.endpoint.path().filter(|path| !path.exists()) {
            let what = format!("somebody removed {}, and no worker can connect any more", path.display());
            return Err(StageFailure::Socket(what));
        }
        if self.parts.shared.is_draining() {
            self.drain()?;
        }
        Ok(())
    }

    /// There may be room again for answers that had to stay with their workers.
    fn resume(&mut self) -> Result<(), StageFailure> {
        let room = WAITING_MAX.saturating_sub(self.waiting.len());
        if room == 0 || self.fleet.deferred() == 0 {
            return Ok(());
        }
        let mut effects = Vec::new();
        self.fleet.resume(room, &mut effects);
        self.act(effects, &[])
    }

    /// Passes a report on, or keeps it until the receiver has room.
    fn pass_on(&mut self, arrival: Arrival) -> Result<(), StageFailure> {
        if !self.waiting.is_empty() {
            self.waiting.push_back(arrival);
            return Ok(());
        }
        match self.receiver.try_send(arrival) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(arrival)) => {
                self.waiting.push_back(arrival);
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => Err(StageFailure::NeighbourGone("receiver")),
        }
    }

    /// Notes something for the store.
    fn note(&mut self, record: Record) -> Result<(), StageFailure> {
        self.pass_on(Arrival::Note(record))
    }

    /// Sends on what waited, as far as there is room.
    fn flush(&mut self) -> Result<(), StageFailure> {
        while let Some(arrival) = self.waiting.pop_front() {
            match self.receiver.try_send(arrival) {
                Ok(()) => {}
                Err(TrySendError::Full(arrival)) => {
                    self.waiting.push_front(arrival);
                    return Ok(());
                }
                Err(TrySendError::Disconnected(_)) => return Err(StageFailure::NeighbourGone("receiver")),
            }
        }
        Ok(())
    }

    /// Tries again what workers' queues had no room for.
    fn flush_peers(&mut self) -> Result<(), StageFailure> {
        let (now, mut effects) = (self.now(), Vec::new());
        self.fleet.flush(now, &mut effects);
        self.act(effects, &[])
    }

    /// At the end nobody has to be answered any more, so that waiting for the receiver is right.
    fn flush_all(&mut self) {
        for arrival in self.waiting.drain(..) {
            if self.receiver.send(arrival).is_err() {
                return;
            }
        }
    }

    /// Whether so much waits that workers should keep what they have.
    fn is_overloaded(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    fn now(&self) -> TimeMs {
        self.parts.clock.now()
    }

    /// Whether the drain is through, or has had its time. Workers that are away go on by themselves, and what they bring
    /// lands after the next start (rules S1, S4).
    fn is_over(&self) -> bool {
        let Some((since, mode)) = self.draining_since.zip(self.parts.shared.drain_mode()) else { return false };
        let spent = |limit: SpanMs| self.now().since(since) >= limit;
        let mut workers = self.fleet.workers();
        let through = match mode {
            DrainMode::WorkersLeft => workers.all(|worker| worker.peer.is_none()),
            DrainMode::InFlight => {
                self.waiting.is_empty() && self.legacy.awaited() == 0 && workers.all(|worker| worker.leases == 0)
            }
            // What has not begun comes back in a moment, or with the worker after the next start.
            DrainMode::Received => {
                let settled = |worker: WorkerView<'_>| {
                    worker.answering == 0
                        && (worker.peer.is_none() || worker.begun == worker.leases || spent(GIVE_BACK_LIMIT))
                };
                // The legacy wire has no outbox: what is awaited there comes now or is computed again.
                self.waiting.is_empty() && self.legacy.awaited() == 0 && workers.all(settled)
            }
        };
        let limit = SpanMs(u64::try_from(self.parts.drain_limit.as_millis()).unwrap_or(u64::MAX));
        if !through && spent(limit) {
            self.parts.shared.drain_spent.store(true, Ordering::Release);
            return true;
        }
        through
    }

    /// Sends a message; a full or vanished peer is told to the fleet, which undoes what depends on it.
    fn send(&mut self, peer: PeerId, message: &dispatcher_core::wire::ToWorker, bodies: &[Bytes]) -> bool {
        use dispatcher_transport::socket::Sent;
        match dispatcher_transport::link::send_to_worker(&mut self.socket, peer, message, bodies) {
            Sent::Sent => true,
            Sent::Full | Sent::Gone => false,
        }
    }
}
