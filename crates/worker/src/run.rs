//! A whole worker: its threads, and how they start and end.
//!
//! Owns the configuration, the stop signal, and the wiring of link, slots and files. Installs no signal handler (rule S6)
//! and reads no configuration file.

use crate::files;
use crate::link::{Link, SlotWay, Told, Wires};
use crate::outbox::{Outbox, OutboxKind};
use crate::scratch::Scratch;
use crate::session::{AnswerCounts, Session, SessionConfig, StopLevel};
use crate::slot;
use crate::work::Worker;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_transport::limits::MAX_HOLDS;
use dispatcher_transport::socket::{BackendKind, Endpoint, SocketError};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// The most tasks that may run and wait at once: what is left of a list of holds beside a full outbox.
const TASKS_MAX: u32 = 400;

/// What a worker has to know.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Where the dispatcher is. Where several are named they are tried in turn: after a link that worked the same one
    /// first, then the next.
    pub endpoints: Vec<Endpoint>,
    /// The socket implementation; it need not be the dispatcher's.
    pub backend: BackendKind,
    /// The worker's name: a label for people.
    pub name: String,
    /// Which life of that name this is: random for each start.
    pub incarnation: String,
    /// The services it can do.
    pub services: Vec<String>,
    /// How many tasks it works on at once.
    pub slots: u32,
    /// How many more tasks it asks for, which wait here. As many as slots keeps short tasks coming; 0 suits long ones.
    pub prefetch: u32,
    /// A folder for inputs and results under way. It belongs to this worker alone while it runs.
    pub scratch: PathBuf,
    /// Where finished results wait for their answer.
    pub outbox: OutboxKind,
    /// With this many unanswered results it asks for nothing more; at most 1,000.
    pub outbox_max_results: usize,
    /// With this many bytes of unanswered results it asks for nothing more.
    pub outbox_max_bytes: u64,
    /// For how long answers are waited for at the end, after a drain; 5 s at most after [`Stop::now`], and where all that
    /// is left is on disk and the dispatcher is away.
    pub linger: Duration,
    /// Where the jitter between connections comes from. `None`: it is drawn at random, so that workers that start
    /// together do not dial together.
    pub seed: Option<u64>,
}

/// Tells a worker to end (rule S1). Clones are the same signal; it may be given from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Option<StopLevel>>>);

/// What a worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSummary {
    /// Tasks that came.
    pub received: u64,
    /// Results and causes that work brought.
    pub finished: u64,
    /// Tasks given back.
    pub released: u64,
    /// Tasks that the dispatcher ended.
    pub cancelled: u64,
    /// What became of results, causes and tasks given back.
    pub answers: AnswerCounts,
    /// Results and causes without an answer. On disk they are sent again by the next life of this worker.
    pub unanswered: u64,
    /// Those of them that are not on disk: their tasks are done again.
    pub unsaved: u64,
    /// Tasks that were given back without an answer. The dispatcher finds out by itself that they are free.
    pub unconfirmed: u64,
    /// Connections that came up.
    pub connections: u64,
}

/// Why a worker cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The configuration makes no sense.
    #[error("{what}")]
    Config {
        /// What is wrong and what to do.
        what: String,
    },
    /// Something with files or threads failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The dispatcher will not have this worker.
    #[error("the dispatcher refuses this worker: {message}")]
    Refused {
        /// Why, in its words.
        message: String,
    },
    /// A thread of the worker died; a fault of the worker itself.
    #[error("{thread} of the worker died")]
    Died {
        /// Which.
        thread: String,
    },
}

impl WorkerConfig {
    /// A configuration with everything that has a sensible default: one dispatcher, one slot, nothing prefetched, the outbox in memory,
    /// 1,000 results or 1 GB waiting at most, 5 s for the last answers.
    #[must_use]
    pub fn new(endpoint: Endpoint, name: &str, incarnation: &str, service: &str, scratch: PathBuf) -> Self {
        Self {
            endpoints: vec![endpoint],
            backend: BackendKind::default(),
            name: name.to_owned(),
            incarnation: incarnation.to_owned(),
            services: vec![service.to_owned()],
            slots: 1,
            prefetch: 0,
            scratch,
            outbox: OutboxKind::Memory,
            outbox_max_results: 1_000,
            outbox_max_bytes: 1_000_000_000,
            linger: Duration::from_secs(5),
            seed: None,
        }
    }

    fn check(&self) -> Result<(), WorkerError> {
        let what = if self.slots == 0 {
            "a worker needs at least one slot".to_owned()
        } else if self.slots.saturating_add(self.prefetch) > TASKS_MAX {
            format!("slots and prefetched tasks may be {TASKS_MAX} together; start another worker for more")
        } else if self.endpoints.is_empty() {
            "a worker needs the address of a dispatcher".to_owned()
        } else if self.services.is_empty() {
            "a worker needs at least one service".to_owned()
        } else if self.outbox_max_results.saturating_add(TASKS_MAX as usize) > MAX_HOLDS {
            format!("the outbox may have {} results waiting at most", MAX_HOLDS - TASKS_MAX as usize)
        } else {
            return Ok(());
        };
        Err(WorkerError::Config { what })
    }

    fn session(&self) -> Result<SessionConfig, WorkerError> {
        Ok(SessionConfig {
            endpoints: self.endpoints.len(),
            name: self.name.clone(),
            incarnation: self.incarnation.clone(),
            services: self.services.clone(),
            slots: self.slots,
            prefetch: self.prefetch,
            outbox_max_results: self.outbox_max_results,
            outbox_max_bytes: self.outbox_max_bytes,
            linger_ms: SpanMs(u64::try_from(self.linger.as_millis()).unwrap_or(u64::MAX)),
            keeps_results: matches!(self.outbox, OutboxKind::Disk(_)),
            seed: self.seed.map_or_else(drawn_seed, Ok)?,
        })
    }
}

/// A seed that no other worker has.
fn drawn_seed() -> Result<u64, WorkerError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| WorkerError::io("draw a random number", e.into()))?;
    Ok(u64::from_le_bytes(bytes))
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A signal that has not been given.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Finish what has begun, give back the rest, and end.
    pub fn drain(&self) {
        self.raise(StopLevel::Drain);
    }

    /// Stop what runs, give everything back uncharged, and end.
    pub fn now(&self) {
        self.raise(StopLevel::Now);
    }

    fn raise(&self, level: StopLevel) {
        self.0.send_modify(|current| *current = (*current).max(Some(level)));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<StopLevel>> {
        self.0.subscribe()
    }
}

impl WorkerError {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }
}

/// Tells the link when a thread ends by a panic.
struct DeathNotice {
    name: String,
    link: UnboundedSender<Told>,
}

impl Drop for DeathNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.link.send(Told::Died { thread: std::mem::take(&mut self.name) });
        }
    }
}

/// Runs a worker until `stop` is given or it cannot go on. Blocks: this thread becomes the one that talks to the
/// dispatcher, and each slot gets a thread of its own, as do the files.
///
/// After [`Stop::now`] it still waits for [`Worker::work`] to return; commands are ended by force, and work in Rust has
/// to look at its signal.
///
/// # Errors
/// [`WorkerError`]. A dispatcher that is away is none: it is waited for.
pub fn run_worker(config: WorkerConfig, work: Arc<dyn Worker>, stop: Stop) -> Result<WorkerSummary, WorkerError> {
    config.check()?;
    let session = config.session()?;
    let scratch = Scratch::open(&config.scratch)
        .map_err(|e| WorkerError::io(format!("use the scratch folder {}", config.scratch.display()), e))?;
    let (outbox, finished) =
        Outbox::open(&config.outbox, scratch.kept()).map_err(|e| WorkerError::io("open the outbox", e))?;
    let (scratch, outbox) = (Arc::new(scratch), Arc::new(outbox));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| WorkerError::io("start the link", e))?;
    let (tell, told) = unbounded_channel();
    thread::scope(|scope| {
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            let notice = DeathNotice { name: name.clone(), link: tell.clone() };
            let body = move || {
                let _notice = notice;
                body();
            };
            let spawned = thread::Builder::new().name(name).spawn_scoped(scope, body);
            spawned.map(drop).map_err(|e| WorkerError::io("start a thread", e))
        };
        let mut slots = Vec::new();
        for n in 0..config.slots as usize {
            let (jobs, receiver) = crossbeam_channel::bounded(1);
            let (work, outbox, folders, tell) = (Arc::clone(&work), Arc::clone(&outbox), scratch.slot(n), tell.clone());
            slots.push(SlotWay { jobs, cancel: None });
            let ended = move |token, how| drop(tell.send(Told::Ended { slot: n, token, how }));
            spawn(format!("slot {n}"), Box::new(move || slot::work_on(&receiver, &*work, &outbox, folders, ended)))?;
        }
        let (files, receiver) = crossbeam_channel::unbounded();
        let (forget, done) = (Arc::clone(&outbox), tell.clone());
        spawn(
            "files".to_owned(),
            Box::new(move || {
                files::work_on(&receiver, |token| forget.forget(token), |file| drop(done.send(Told::File(file))));
            }),
        )?;
        let session = Session::new(session, finished, TimeMs(0));
        let mut link = Link {
            session,
            endpoints: config.endpoints,
            at: 0,
            is_away: false,
            backend: config.backend,
            slots,
            files,
            told,
            outbox,
            scratch,
            started: Instant::now(),
            wires: Wires::default(),
            fetched: HashMap::new(),
            end: None,
        };
        let ended = runtime.block_on(link.run(&stop));
        let counts = link.session.counts();
        ended.map(|()| WorkerSummary {
            received: counts.received,
            finished: counts.finished,
            released: counts.released,
            cancelled: counts.cancelled,
            answers: counts.answers,
            unanswered: counts.unanswered,
            unsaved: link.outbox.unsaved(),
            unconfirmed: counts.unconfirmed,
            connections: counts.connections,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> WorkerConfig {
        let endpoint = Endpoint::ipc("/run/nowhere/s").unwrap();
        WorkerConfig::new(endpoint, "worker", "life", "service", PathBuf::from("scratch"))
    }

    // Cases F05, F21.
    #[test]
    fn workers_that_start_together_do_not_dial_together_unless_told_to() {
        let seed = |config: &WorkerConfig| config.session().unwrap().seed;
        assert_ne!(seed(&config()), seed(&config()));
        assert_eq!(seed(&WorkerConfig { seed: Some(7), ..config() }), 7);
    }

    #[test]
    fn what_makes_no_sense_is_told_before_anything_starts() {
        let told = |config: WorkerConfig| config.check().unwrap_err().to_string();
        assert!(told(WorkerConfig { endpoints: Vec::new(), ..config() }).contains("address"));
        assert!(told(WorkerConfig { services: Vec::new(), ..config() }).contains("service"));
        assert!(told(WorkerConfig { slots: 0, ..config() }).contains("slot"));
        assert!(told(WorkerConfig { slots: 300, prefetch: 101, ..config() }).contains("400"));
    }
}
