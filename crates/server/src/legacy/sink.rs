//! The sink: takes results of the legacy wire from its socket.
//!
//! **Owns** the PULL. **Refuses to know** what is in a result.
//!
//! Invariants: a message that is none of the wire's is counted, dropped, and harms no other (rule W5); each result keeps its
//! place among the bytes that the socket may hold until it is written, so that the senders wait and memory is bounded
//! (rule D1); a result of a task that is in flight keeps the reaper away from its arrival on (rule R3). It ends when the
//! router has, after what came until then.

use super::decode::Undecoded;
use crate::clock::Clock;
use crate::mailbox::Outlet;
use crate::report::Order;
use crate::shared::Shared;
use crate::stage::StageFailure;
use crossbeam_channel::Sender;
use dispatcher_core::in_flight::{InFlightSet, Reply};
use dispatcher_core::noise::NoiseMeter;
use dispatcher_core::time::SpanMs;
use dispatcher_transport::legacy::{LegacyResult, decode_result};
use dispatcher_transport::socket::{Brought, Endpoint, PullOptions, PullSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked whether the router has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long nothing has to come, at the end, until all that came is taken.
const LAST_WAIT: Duration = Duration::from_millis(20);
/// Lines about one kind of noise come at most so often (rule G3).
const NOISE_EVERY: SpanMs = SpanMs(5000);

/// What is counted instead of logged line by line (rule G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Noise {
    /// Frames that are no result.
    Malformed,
    /// A result for a service that there is not.
    NoService,
    /// A result larger than one may be.
    TooLarge,
}

/// What a sink is built from.
pub(crate) struct SinkParts {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: PullOptions,
    pub(crate) decoders: Sender<Undecoded>,
    pub(crate) router: Outlet<Order>,
    pub(crate) set: Arc<InFlightSet>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
}

/// The sink's own state.
pub(crate) struct Sink {
    parts: SinkParts,
    runtime: tokio::runtime::Runtime,
    socket: PullSocket,
    noise: NoiseMeter<Noise>,
}

impl Sink {
    /// Listens.
    pub(crate) fn bind(parts: SinkParts) -> Result<Self, StageFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StageFailure::System(format!("no event loop for the sink: {e}")))?;
        let socket = runtime
            .block_on(PullSocket::bind(&parts.endpoint, parts.options.clone()))
            .map_err(|e| StageFailure::Socket(e.to_string()))?;
        Ok(Self { parts, runtime, socket, noise: NoiseMeter::new(NOISE_EVERY) })
    }

    /// Where it listens.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        self.socket.endpoint()
    }

    /// Takes results until the router has ended and nothing more comes.
    pub(crate) fn run(self) -> Result<(), StageFailure> {
        let Self { parts, runtime, mut socket, mut noise } = self;
        runtime.block_on(async {
            loop {
                let over = parts.shared.router_over.load(Ordering::Acquire);
                let patience = if over { LAST_WAIT } else { LOOK_EVERY };
                let brought = match tokio::time::timeout(patience, socket.next()).await {
                    Ok(brought) => brought.map_err(|e| StageFailure::Socket(e.to_string()))?,
                    Err(_) if over => break,
                    Err(_) => continue,
                };
                take(&parts, &mut noise, brought)?;
            }
            socket.close().await;
            Ok(())
        })
    }
}

/// Handles one message.
fn take(parts: &SinkParts, noise: &mut NoiseMeter<Noise>, brought: Brought) -> Result<(), StageFailure> {
    let Brought { frames, held } = brought;
    let result = match decode_result(frames) {
        Ok(result) => result,
        Err(why) => {
            tracing::debug!("a message that is no result: {why}");
            count(parts, noise, Noise::Malformed);
            return Ok(());
        }
    };
    let Some(service) = parts.shared.services.id_of(&result.service) else {
        tracing::debug!(service = result.service, "a result for a service that there is not");
        count(parts, noise, Noise::NoService);
        return Ok(());
    };
    // The socket cuts off who announces much more; to the byte it is known here.
    if result.size() > parts.options.max_message as u64 {
        tracing::debug!(
            task = result.task.0,
            worker = result.worker,
            bytes = result.size(),
            "a result that is too large"
        );
        count(parts, noise, Noise::TooLarge);
        return Ok(());
    }
    let (arrived, at) = (Instant::now(), parts.clock.now());
    // Where it is not known where a result goes, nothing is held off for it (rule C12).
    let is_placed = !parts.shared.unplaced.has(result.task);
    let reply = Reply::by_worker(result.task, &result.worker, service);
    let receipt = is_placed.then(|| parts.set.receipt(reply)).flatten();
    crate::hooks::pass("sunk");
    if let Some(lease) = parts.set.given_to_worker(reply) {
        // The router ends first, and then nobody is to be given anything.
        let _ = parts.router.send(Order::Brought(lease));
    }
    let (task, worker) = (result.task, result.worker.clone());
    let file = LegacyResult::into_file(result);
    let undecoded = Undecoded { task, service, worker, file, at, arrived, receipt, held };
    // What is held is counted above, so that this never waits.
    parts.decoders.send(undecoded).map_err(|_| StageFailure::NeighbourGone("decoder"))
}

fn count(parts: &SinkParts, noise: &mut NoiseMeter<Noise>, kind: Noise) {
    parts.shared.noise.fetch_add(1, Ordering::Relaxed);
    if let Some(line) = noise.count(kind, parts.clock.now()) {
        tracing::warn!(?kind, count = line.count, "messages on the port for results that could not be taken");
    }
}
