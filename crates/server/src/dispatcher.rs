//! A dispatcher process: recovers what a crash left, starts the stages, and tells how it ended.
//!
//! **Owns** the wiring of channels and threads, and the order of start and end. **Refuses to know** what the stages do.
//!
//! Ending is a cascade: the router ends when its workers are gone, the receiver when the router is, the finaliser when
//! both are and everything received is written.

use crate::clock::Clock;
use crate::finaliser::{Finaliser, Parts, Shared};
use crate::mailbox::mailbox;
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::recovery;
use crate::router::{Router, RouterParts};
use crate::stage::{self, HowEnded, StageEnd, StageFailure};
use crossbeam_channel::{Receiver as Channel, Sender, bounded, unbounded};
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::in_flight::{InFlightSet, Limits};
use dispatcher_core::time::SpanMs;
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::TokenText;
use dispatcher_store::archive::Archive;
use dispatcher_store::{DispatcherInfo, Store};
use dispatcher_transport::socket::{BackendKind, Endpoint};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Reports that wait for the receiver, and again for the finaliser (rule D1).
const REPORTS_MAX: usize = 10_000;

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
    /// What a worker may take from the end of a task's time limit to the end of its processes.
    pub kill_grace: SpanMs,
    /// Claimed tasks held ready for workers.
    pub claim_ahead: usize,
    /// How long a lost store is waited for.
    pub store_patience: Duration,
    /// How long the workers are waited for at the end.
    pub drain_limit: Duration,
    /// The tokens of the tasks that an earlier process, whose workers died with it, was working on at its end.
    pub worked_on: Vec<TokenText>,
}

/// A running dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    ends: Channel<StageEnd>,
    nudges: Sender<()>,
    shared: Arc<Shared>,
    set: Arc<InFlightSet>,
    progress: Arc<Progress>,
}

/// How a dispatcher ended.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to, or everything is done.
    Well {
        /// Whether every task has ended and is published.
        finished: bool,
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
        let before = recovery::Before::of(&config.worked_on, &key, &config.host);
        runtime
            .block_on(recovery::recover(&*store, &*archive, id, &before, &clock))
            .map_err(StageFailure::StoreLost)?;

        let shared = Arc::new(Shared::default());
        let progress = Arc::new(Progress::default());
        let (ends_to, ends) = unbounded();
        let (to_receiver, arrivals) = bounded(REPORTS_MAX);
        let (to_finaliser, deliveries) = bounded(REPORTS_MAX);
        let (nudges, nudged) = bounded(1);
        let (to_router, orders) = mailbox(config.limits.hard_limit);

        let finaliser = Finaliser::new(Parts {
            deliveries,
            nudges: nudged,
            router: to_router.clone(),
            store,
            archive: Arc::clone(&archive),
            set: Arc::clone(&set),
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            clock,
            dispatcher: id,
            claim_ahead: config.claim_ahead,
            store_patience: config.store_patience,
        })?;
        let receiver =
            Receiver::new(arrivals, to_finaliser, to_router, archive.spool().to_owned(), Arc::clone(&progress), clock);
        let router = RouterParts {
            endpoint: config.endpoint,
            backend: config.backend,
            fleet: config.fleet,
            key,
            kill_grace: config.kill_grace,
            drain_limit: config.drain_limit,
            set: Arc::clone(&set),
            shared: Arc::clone(&shared),
            clock,
        };
        let router = Router::bind(router, to_receiver, orders)?;
        stage::start("finaliser", &ends_to, || finaliser.run())?;
        stage::start("receiver", &ends_to, || receiver.run())?;
        stage::start("router", &ends_to, || router.run())?;
        Ok(Self { ends, nudges, shared, set, progress })
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

    /// Lease nothing more, and end when the workers are gone (rule S1).
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Release);
        self.nudge();
    }

    /// The stages' ends, for a select; take them through [`Dispatcher::ended`].
    #[must_use]
    pub const fn ends(&self) -> &Channel<StageEnd> {
        &self.ends
    }

    /// What the end of a stage means: `None` while others still have to end.
    #[must_use]
    pub fn ended(&self, end: StageEnd) -> Option<Ended> {
        if end.how != HowEnded::Asked {
            return Some(Ended::Died { stage: end.name, how: end.how });
        }
        // The finaliser is the last of the cascade.
        (end.name == "finaliser").then(|| Ended::Well { finished: self.shared.finished.load(Ordering::Acquire) })
    }

    /// Whether every task has ended and is published, so that the workers may go.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire)
    }

    /// Tasks in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.set.counts().in_flight
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}
