//! The local HTTP endpoint: is it alive, is it ready, how is it.
//!
//! Owns three pages. `/healthz` answers 200 while the router turns, `/readyz` while tasks are handed out as well, and
//! `/metrics` is for Prometheus. Changes nothing, and takes no words from its callers.

use crate::clock::Clock;
use crate::meters::{Meters, PICTURE_AGE, Picture};
use crate::progress::Progress;
use crate::shared::Shared;
use crate::stage::StageFailure;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use dispatcher_core::in_flight::InFlightSet;
use dispatcher_store::{BookLine, Service, Store, StoreError, Summary, TaskFilter};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::Mutex;

/// How long the router may be silent before it counts as dead, in milliseconds: a hundred of its ticks.
const SILENCE_MAX_MS: i64 = 10_000;

/// What the pages show.
pub struct Pages {
    /// The store.
    pub store: Arc<dyn Store>,
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
}

/// What was read from the store for a picture.
#[derive(Clone, Default)]
struct Facts {
    services: Vec<Service>,
    tasks: Summary,
    books: Vec<BookLine>,
    up: bool,
}

struct Served {
    pages: Pages,
    facts: Mutex<Option<(Instant, Facts)>>,
}

/// A bound endpoint.
pub struct Http {
    listener: TcpListener,
    served: Arc<Served>,
}

impl Http {
    /// Listens at `address`, and says where: the system chooses the port for 0.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub fn listen(address: SocketAddr, pages: Pages) -> Result<(Self, SocketAddr), StageFailure> {
        let failed = |e: std::io::Error| {
            StageFailure::System(format!(
                "cannot listen on http://{address}: {e}; choose another with --http, or --http off"
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok((Self { listener, served: Arc::new(Served { pages, facts: Mutex::new(None) }) }, bound))
    }

    /// Answers as long as the process lives.
    ///
    /// # Errors
    /// Where the listener fails.
    pub fn run(self) -> Result<(), StageFailure> {
        let failed = |e: std::io::Error| StageFailure::System(format!("the HTTP endpoint failed: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let pages = Router::new()
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self.served);
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
            axum::serve(listener, pages).await.map_err(failed)
        })
    }
}

impl Pages {
    /// Why it is not alive.
    fn dead(&self) -> Option<&'static str> {
        let silent = self.clock.now().0.saturating_sub(self.shared.routed_at.load(Ordering::Relaxed));
        (silent > SILENCE_MAX_MS).then_some("the router does not turn")
    }

    /// Why nothing is handed out.
    fn not_ready(&self) -> Option<String> {
        if let Some(dead) = self.dead() {
            return Some(dead.to_owned());
        }
        if self.shared.is_draining() {
            return Some("draining".to_owned());
        }
        self.shared.waits_for(&self.progress).map(|what| format!("waiting for {what}"))
    }
}

async fn health(State(served): State<Arc<Served>>) -> impl IntoResponse {
    match served.pages.dead() {
        None => (StatusCode::OK, "alive\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

async fn ready(State(served): State<Arc<Served>>) -> impl IntoResponse {
    match served.pages.not_ready() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(served): State<Arc<Served>>) -> impl IntoResponse {
    let facts = served.facts().await;
    let pages = &served.pages;
    let picture = Picture {
        set: &pages.set,
        shared: &pages.shared,
        progress: &pages.progress,
        services: &facts.services,
        tasks: &facts.tasks,
        books: &facts.books,
        store_up: facts.up && !pages.shared.holding.load(Ordering::Acquire),
    };
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], pages.meters.render(&picture))
}

impl Served {
    /// The store's facts, a few seconds old at most; the last known ones where it does not answer.
    async fn facts(&self) -> Facts {
        let mut kept = self.facts.lock().await;
        if let Some((at, facts)) = &*kept
            && at.elapsed() < PICTURE_AGE
        {
            return facts.clone();
        }
        let facts = match read(&*self.pages.store).await {
            Ok(facts) => facts,
            Err(e) => {
                tracing::warn!("the store did not answer for the metrics: {e}");
                Facts { up: false, ..kept.take().map(|(_, facts)| facts).unwrap_or_default() }
            }
        };
        *kept = Some((Instant::now(), facts.clone()));
        facts
    }
}

async fn read(store: &dyn Store) -> Result<Facts, StoreError> {
    Ok(Facts {
        services: store.services().await?,
        tasks: store.summary(&TaskFilter::default()).await?,
        books: store.books().await?,
        up: true,
    })
}
