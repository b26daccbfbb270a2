//! A dispatcher process: recovers what a crash left, starts the stages, and tells how it ended.
//!
//! **Owns** the wiring of channels and threads, and the order of start and end. **Refuses to know** what the stages do.
//!
//! Ending is a cascade: the router ends when its workers are gone, the receiver when the router is, the finaliser when
//! both are and everything received is written.

use crate::clock::Clock;
use crate::finaliser::names::ResultNames;
use crate::finaliser::{Finaliser, Parts};
use crate::http::{Http, Pages};
use crate::legacy::decode::{self, Undecoded};
use crate::legacy::sink::{Sink, SinkParts};
use crate::mailbox::{Outlet, mailbox};
use crate::meters::Meters;
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::recovery;
use crate::report::{Delivery, Order};
use crate::router::{Router, RouterParts};
use crate::shared::{DrainMode, Shared};
use crate::stage::{self, HowEnded, StageEnd, StageFailure};
use crate::wake::Wake;
use crossbeam_channel::{Receiver as Channel, Sender, bounded, unbounded};
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::in_flight::{InFlightSet, Limits};
use dispatcher_core::legacy::LegacyLimits;
use dispatcher_core::time::SpanMs;
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::TokenText;
use dispatcher_store::archive::Archive;
use dispatcher_store::{DispatcherInfo, Store};
use dispatcher_transport::socket::{BackendKind, Endpoint, PullOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Reports that wait for the receiver, and again for the finaliser (rule D1).
const REPORTS_MAX: usize = 10_000;
/// Threads that read what is in results of the legacy wire.
const DECODERS: [&str; 2] = ["decoder-0", "decoder-1"];

/// How a dispatcher is set up.
#[derive(Clone, Debug)]
pub struct DispatcherConfig {
    /// Where workers connect.
    pub endpoint: Endpoint,
    /// The socket implementation; workers need not have the same one.
    pub backend: BackendKind,
    /// The host's name, for the store.
    pub host: String,
    /// Bounds of the leases in memory.
    pub limits: Limits,
    /// Bounds of the workers' connections.
    pub fleet: FleetLimits,
    /// The legacy wire.
    pub legacy: LegacyWire,
    /// What a worker may take from the end of a task's time limit to the end of its processes.
    pub kill_grace: SpanMs,
    /// Claimed tasks held ready for the workers of each service.
    pub claim_ahead: usize,
    /// How long a lost store is waited for.
    pub store_patience: Duration,
    /// How long a drain may take.
    pub drain_limit: Duration,
    /// Whose the workers are.
    pub workers: Workers,
    /// How results are named in the archive.
    pub naming: ResultNames,
    /// Where the HTTP endpoint listens, if anywhere.
    pub http: Option<SocketAddr>,
    /// After so many tasks (not counting repeats) nothing new is handed out (rule S5).
    pub task_limit: Option<u64>,
    /// The state folder, in which others can wake this dispatcher.
    pub wake_in: Option<PathBuf>,
}

/// The legacy wire: requests come where all workers connect, results on a socket of their own (rules W1–W3, W6).
#[derive(Clone, Debug, Default)]
pub struct LegacyWire {
    /// Where results come; `None`: workers of that wire are not served.
    pub results: Option<Endpoint>,
    /// The longest result, in bytes. Who sends more is cut off.
    pub max_result: Option<usize>,
    /// Bounds of its workers.
    pub limits: LegacyLimits,
    /// After how much silence the system asks whether a peer is still there, on both sockets.
    pub keep_alive: Option<Duration>,
}

/// Whose the workers are, and so what becomes of them when the dispatcher ends.
#[derive(Clone, Debug)]
pub enum Workers {
    /// They belong to this process, and die with it.
    Ours {
        /// The tokens of the tasks that an earlier process was working on at its end.
        worked_on: Vec<TokenText>,
    },
    /// They are processes of their own: they go on while a dispatcher is away, and come back (rule S4).
    Elsewhere,
}

/// A running dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    ends: Channel<StageEnd>,
    nudges: Sender<()>,
    shared: Arc<Shared>,
    set: Arc<InFlightSet>,
    progress: Arc<Progress>,
    http: Option<SocketAddr>,
    results: Option<Endpoint>,
}

/// How a dispatcher ended.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to, or everything is done.
    Well {
        /// Whether every task has ended and is published.
        finished: bool,
        /// Whether the drain was through within its limit.
        in_time: bool,
    },
    /// A stage died; the others are ended with the process (rule S2).
    Died {
        /// Which one.
        stage: &'static str,
        /// How.
        how: HowEnded,
    },
}

impl Dispatcher {
    /// Recovers and starts.
    ///
    /// # Errors
    /// Where the store cannot be read, a limit is wrong, or the endpoint cannot be bound.
    pub fn start(
        config: DispatcherConfig,
        store: Arc<dyn Store>,
        archive: Arc<dyn Archive>,
    ) -> Result<Self, StageFailure> {
        let clock = Clock::start();
        let lost = |e: dispatcher_store::StoreError| StageFailure::StoreLost(e.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StageFailure::System(format!("no event loop: {e}")))?;
        let key = runtime.block_on(store.token_key()).map_err(lost)?;
        let info = DispatcherInfo { id: None, host: config.host.clone(), endpoint: config.endpoint.to_string() };
        let id = runtime.block_on(store.register(&info, clock.now())).map_err(lost)?;
        let set = InFlightSet::new(config.limits).map_err(|e| StageFailure::System(e.to_string()))?;
        let set = Arc::new(set);
        let key = TokenKey::new(key);
        let adopted = runtime
            .block_on(recovery::recover(&*store, &*archive, id, &config, &key, &clock))
            .map_err(StageFailure::StoreLost)?;

        let shared = Arc::new(Shared::default());
        let progress = Arc::new(Progress::default());
        let meters = Arc::new(Meters::default());
        let (ends_to, ends) = unbounded();
        let (to_receiver, arrivals) = bounded(REPORTS_MAX);
        let (to_finaliser, deliveries) = bounded(REPORTS_MAX);
        let (nudges, nudged) = bounded(1);
        let (to_router, orders) = mailbox(config.limits.hard_limit);

        let services = runtime.block_on(store.services()).map_err(lost)?;
        shared.services.set(services.into_iter().map(|service| (service.name, service.id)));
        shared.routed_at.store(clock.now().0, Ordering::Relaxed);
        let pages = Pages {
            store: Arc::clone(&store),
            set: Arc::clone(&set),
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            meters: Arc::clone(&meters),
            clock,
        };
        let finaliser = Finaliser::new(Parts {
            deliveries,
            nudges: nudged,
            router: to_router.clone(),
            store,
            meters: Arc::clone(&meters),
            archive: Arc::clone(&archive),
            set: Arc::clone(&set),
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            clock,
            dispatcher: id,
            claim_ahead: config.claim_ahead,
            store_patience: config.store_patience,
            drain_limit: config.drain_limit,
            naming: config.naming,
            task_limit: config.task_limit,
            adopted,
            grace: config.fleet.dead_after,
            cut_off: config.kill_grace.plus(config.fleet.dead_after),
            drain_when_empty: match config.workers {
                Workers::Ours { .. } => DrainMode::WorkersLeft,
                Workers::Elsewhere => DrainMode::Received,
            },
        })?;
        let sink = start_sink(&config, &to_finaliser, &to_router, &set, &shared, clock)?;
        let receiver =
            Receiver::new(arrivals, to_finaliser, to_router, archive.spool().to_owned(), Arc::clone(&progress), clock);
        let router = RouterParts {
            endpoint: config.endpoint,
            backend: config.backend,
            fleet: config.fleet,
            legacy: config.legacy.results.is_some().then_some(config.legacy.limits),
            keep_alive: config.legacy.keep_alive,
            key,
            kill_grace: config.kill_grace,
            drain_limit: config.drain_limit,
            nudges: nudges.clone(),
            meters,
            set: Arc::clone(&set),
            shared: Arc::clone(&shared),
            clock,
        };
        let router = Router::bind(router, to_receiver, orders)?;
        stage::start("finaliser", &ends_to, || finaliser.run())?;
        stage::start("receiver", &ends_to, || receiver.run())?;
        stage::start("router", &ends_to, || router.run())?;
        let results = sink.as_ref().map(|sink| sink.socket.endpoint().clone());
        if let Some(sink) = sink {
            sink.start(&ends_to)?;
        }
        let http = config.http.map(|address| start_http(address, pages, &ends_to)).transpose()?;
        if let Some(folder) = &config.wake_in {
            let wake = Wake::listen(folder).map_err(|e| StageFailure::System(format!("no wake socket: {e}")))?;
            let nudges = nudges.clone();
            stage::start("wake", &ends_to, move || wake.run(&nudges))?;
        }
        Ok(Self { ends, nudges, shared, set, progress, http, results })
    }

    /// Something may have become claimable.
    pub fn nudge(&self) {
        // One waiting nudge says as much as many.
        let _ = self.nudges.try_send(());
    }

    /// Everything is imported: end when every task has ended (rule S5).
    pub fn finish_when_empty(&self) {
        self.shared.finish_when_empty.store(true, Ordering::Release);
        self.nudge();
    }

    /// Lease nothing more, and end when what `mode` says is through (rule S1).
    pub fn drain(&self, mode: DrainMode) {
        self.shared.begin_drain(mode);
        self.nudge();
    }

    /// Whether it drains, by whatever asked for it.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// The stages' ends, for a select; take them through [`Dispatcher::ended`].
    #[must_use]
    pub const fn ends(&self) -> &Channel<StageEnd> {
        &self.ends
    }

    /// What the end of a stage means: `None` while others still have to end.
    #[must_use]
    pub fn ended(&self, end: StageEnd) -> Option<Ended> {
        // Who only misses a neighbour follows it: the neighbour's own report says why, and comes too.
        if matches!(end.how, HowEnded::Failed(StageFailure::NeighbourGone(_))) {
            return None;
        }
        if end.how == HowEnded::Failed(StageFailure::DrainSpent) {
            return Some(Ended::Well { finished: false, in_time: false });
        }
        if end.how != HowEnded::Asked {
            return Some(Ended::Died { stage: end.name, how: end.how });
        }
        // The finaliser is the last of the cascade. Where nobody asked for an end it follows one that died, whose own report
        // may come after it.
        (end.name == "finaliser" && self.shared.is_draining()).then(|| Ended::Well {
            finished: self.shared.finished.load(Ordering::Acquire),
            in_time: !self.shared.drain_spent.load(Ordering::Acquire),
        })
    }

    /// Whether every task has ended and is published, so that the workers may go.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire)
    }

    /// Where the HTTP endpoint listens.
    #[must_use]
    pub const fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where results of the legacy wire come.
    #[must_use]
    pub const fn results(&self) -> Option<&Endpoint> {
        self.results.as_ref()
    }

    /// So many lines of the log were dropped so far.
    pub fn note_dropped_lines(&self, lines: u64) {
        self.shared.dropped_lines.store(lines, Ordering::Relaxed);
    }

    /// What is waited for, where nothing is handed out before it is there: space, a lost store.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        self.shared.waits_for(&self.progress)
    }

    /// Tasks in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.set.counts().in_flight
    }

    /// Claimed tasks that wait for a worker.
    #[must_use]
    pub fn in_stock(&self) -> usize {
        self.shared.stock.total()
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}

fn start_http(address: SocketAddr, pages: Pages, ends: &Sender<StageEnd>) -> Result<SocketAddr, StageFailure> {
    let (http, bound) = Http::listen(address, pages)?;
    stage::start("http", ends, || http.run())?;
    Ok(bound)
}

/// The sink with its decoders, before they run.
struct LegacySink {
    socket: Sink,
    undecoded: Channel<Undecoded>,
    finaliser: Sender<Delivery>,
}

/// Listens for results of the legacy wire, where that is asked for.
fn start_sink(
    config: &DispatcherConfig,
    finaliser: &Sender<Delivery>,
    router: &Outlet<Order>,
    set: &Arc<InFlightSet>,
    shared: &Arc<Shared>,
    clock: Clock,
) -> Result<Option<LegacySink>, StageFailure> {
    let Some(endpoint) = config.legacy.results.clone() else { return Ok(None) };
    let defaults = PullOptions::default();
    let options = PullOptions {
        backend: config.backend,
        max_message: config.legacy.max_result.unwrap_or(defaults.max_message),
        keep_alive: config.legacy.keep_alive,
        ..defaults
    };
    let (decoders, undecoded) = unbounded();
    let (router, set, shared) = (router.clone(), Arc::clone(set), Arc::clone(shared));
    let socket = Sink::bind(SinkParts { endpoint, options, decoders, router, set, shared, clock })?;
    Ok(Some(LegacySink { socket, undecoded, finaliser: finaliser.clone() }))
}

impl LegacySink {
    fn start(self, ends: &Sender<StageEnd>) -> Result<(), StageFailure> {
        for name in DECODERS {
            let (undecoded, finaliser) = (self.undecoded.clone(), self.finaliser.clone());
            stage::start(name, ends, move || decode::run(&undecoded, &finaliser))?;
        }
        let socket = self.socket;
        stage::start("sink", ends, || socket.run())?;
        Ok(())
    }
}
