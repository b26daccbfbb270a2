//! A small dispatcher for one worker: it says what a test tells it to, and answers beats by itself.

use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, PartSpec, ToWorker, TokenText};
use dispatcher_transport::codec::decode_from_worker;
use dispatcher_transport::link::send_to_worker;
use dispatcher_transport::socket::{Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket, Sent};
use dispatcher_worker::exec::{CommandTemplate, ExecConfig, ExecWorker};
use dispatcher_worker::{Stop, Worker, WorkerConfig, WorkerError, WorkerSummary, run_worker};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const CHUNK: u64 = 128 * 1024;

/// A dispatcher with at most one worker.
pub(crate) struct Fake {
    router: RouterSocket,
    peer: Option<PeerId>,
    pub(crate) beat_ms: u64,
    pub(crate) beats: u64,
    pub(crate) granted: u64,
    /// What was said while something else was listened for.
    later: VecDeque<(FromWorker, Vec<Bytes>)>,
}

/// A worker on a thread of its own.
pub(crate) struct Running {
    pub(crate) stop: Stop,
    thread: JoinHandle<Result<WorkerSummary, WorkerError>>,
}

pub(crate) fn token(name: &str) -> TokenText {
    TokenText(name.to_owned())
}

/// Runs a test's side of a conversation.
pub(crate) fn talk(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.expect("the conversation goes on") });
}

pub(crate) fn config(dir: &TempDir) -> WorkerConfig {
    let endpoint = Endpoint::ipc(dir.path().join("run/s")).unwrap();
    WorkerConfig::new(endpoint, "worker", "life", "service", dir.path().join("scratch"))
}

pub(crate) fn shell(script: &str) -> Arc<dyn Worker> {
    Arc::new(ExecWorker::new(ExecConfig::new(CommandTemplate::parse(script, true).unwrap())))
}

pub(crate) fn start(config: WorkerConfig, work: Arc<dyn Worker>) -> Running {
    let stop = Stop::new();
    let signal = stop.clone();
    Running { stop, thread: thread::spawn(move || run_worker(config, work, signal)) }
}

impl Running {
    pub(crate) fn join(self) -> WorkerSummary {
        self.end().unwrap()
    }

    /// How it ended, where that may be badly.
    pub(crate) fn end(self) -> Result<WorkerSummary, WorkerError> {
        self.thread.join().unwrap()
    }
}

impl Fake {
    pub(crate) async fn listen(dir: &TempDir) -> Self {
        Self::listen_at(&Endpoint::ipc(dir.path().join("run/s")).unwrap()).await
    }

    pub(crate) async fn listen_at(endpoint: &Endpoint) -> Self {
        let router = RouterSocket::bind(endpoint, RouterOptions::default()).await.unwrap();
        Self { router, peer: None, beat_ms: 2_000, beats: 0, granted: 0, later: VecDeque::new() }
    }

    /// Where it listens.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.router.endpoint().clone()
    }

    /// The port where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint().to_string().strip_prefix("tcp://").unwrap().parse().unwrap()
    }

    /// What the worker says next, beats and credit aside. Takes it for granted that it stays connected.
    pub(crate) async fn hear(&mut self) -> (FromWorker, Vec<Bytes>) {
        match self.later.pop_front() {
            Some(said) => said,
            None => self.hear_new().await,
        }
    }

    async fn hear_new(&mut self) -> (FromWorker, Vec<Bytes>) {
        loop {
            if let Some(said) = self.turn().await {
                return said;
            }
            assert!(self.peer.is_some() || self.beats == 0, "the worker is there");
        }
    }

    /// Waits until the worker's connection is gone.
    pub(crate) async fn departs(&mut self) {
        while self.peer.is_none() {
            self.turn().await;
        }
        while self.peer.is_some() {
            self.turn().await;
        }
    }

    /// Waits until the worker's connection is gone, unless it is gone already.
    pub(crate) async fn departs_if_there(&mut self) {
        while self.peer.is_some() {
            self.turn().await;
        }
    }

    /// Waits until the worker has asked for `granted` tasks in all.
    pub(crate) async fn is_asked_for(&mut self, granted: u64) {
        while self.granted < granted {
            assert!(self.turn().await.is_none(), "only credit and beats are expected");
        }
    }

    /// Waits until the worker has sent `beats` more beats.
    pub(crate) async fn beats(&mut self, beats: u64) {
        let until = self.beats + beats;
        while self.beats < until {
            assert!(self.turn().await.is_none(), "only credit and beats are expected");
        }
    }

    /// Takes one event; returns what the worker said, unless it is a matter of course.
    pub(crate) async fn turn(&mut self) -> Option<(FromWorker, Vec<Bytes>)> {
        let (peer, frames) = match self.router.next().await.unwrap() {
            RouterEvent::Arrived { peer } => {
                self.peer = Some(peer);
                self.granted = 0;
                return None;
            }
            RouterEvent::Departed { peer } => {
                self.peer = self.peer.filter(|other| *other != peer);
                return None;
            }
            RouterEvent::Message { peer, frames } => (peer, frames),
        };
        assert_eq!(Some(peer), self.peer);
        let (message, bodies) = decode_from_worker(&frames).unwrap();
        match message {
            FromWorker::Ready { granted } => {
                assert!(granted > self.granted);
                self.granted = granted;
                None
            }
            FromWorker::Beat { n, .. } => {
                self.beats += 1;
                self.say(ToWorker::Beat { n, unknown: Vec::new() });
                None
            }
            message => Some((message, bodies)),
        }
    }

    pub(crate) fn say(&mut self, message: ToWorker) {
        self.say_with(message, &[]);
    }

    pub(crate) fn say_with(&mut self, message: ToWorker, bodies: &[Bytes]) {
        let sent = send_to_worker(&mut self.router, self.peer.unwrap(), &message, bodies);
        assert_eq!(sent, Sent::Sent, "{message:?}");
    }

    /// Hears a hello and says welcome; returns what the worker holds.
    pub(crate) async fn greet(&mut self) -> Vec<(String, HoldState)> {
        let (FromWorker::Hello { holds, services, .. }, _) = self.hear().await else { panic!("a hello") };
        assert_eq!(services, ["service"]);
        self.say(ToWorker::Welcome {
            beat_ms: self.beat_ms,
            dead_after_ms: 30_000,
            inline_max: 64 * 1024,
            chunk_max: CHUNK,
            keep: holds.iter().map(|hold| hold.token.clone()).collect(),
            drop: Vec::new(),
        });
        holds.into_iter().map(|Hold { token, state }| (token.0, state)).collect()
    }

    /// Hands out a task with the input `input`, which travels with it unless it is large.
    pub(crate) fn hand(&mut self, name: &str, input: &[u8], limit_ms: u64) {
        let task = ToWorker::Task {
            token: token(name),
            task: TaskId(7),
            service: "service".to_owned(),
            corpus: "corpus".to_owned(),
            entry: EntryName(format!("folder/{name}.txt").into_bytes()),
            size: input.len() as u64,
            limit_ms,
            attempt: 1,
        };
        let bodies = if input.len() <= 64 * 1024 { vec![Bytes::copy_from_slice(input)] } else { Vec::new() };
        self.say_with(task, &bodies);
    }

    pub(crate) async fn begun(&mut self, name: &str) {
        assert_eq!(self.hear().await.0, FromWorker::Begun { token: token(name) });
    }

    /// Answers fetches of `input` until the task begins.
    pub(crate) async fn serve(&mut self, name: &str, input: &[u8]) {
        loop {
            match self.hear().await.0 {
                FromWorker::Fetch { token, offset, length } => {
                    assert!(token.0 == name && length <= CHUNK);
                    let from = usize::try_from(offset).unwrap();
                    let piece = Bytes::copy_from_slice(&input[from..from + usize::try_from(length).unwrap()]);
                    self.say_with(ToWorker::Chunk { token, offset }, &[piece]);
                }
                FromWorker::Begun { token } => return assert_eq!(token.0, name),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Hears a result and gets the bytes of its parts, with or after it.
    pub(crate) async fn result(&mut self, name: &str) -> (FromWorker, BTreeMap<String, Vec<u8>>) {
        let (message, bodies) = self.hear().await;
        let FromWorker::Result { token: told, parts, .. } = &message else { panic!("a result, not {message:?}") };
        assert_eq!(*told, token(name));
        let mut bytes = BTreeMap::new();
        if !bodies.is_empty() || parts.is_empty() {
            bytes.extend(parts.iter().zip(&bodies).map(|(part, body)| (part.name.clone(), body.to_vec())));
            return (message, bytes);
        }
        for part in parts {
            bytes.insert(part.name.clone(), self.pull(name, part).await);
        }
        (message, bytes)
    }

    /// Wants a part piece by piece, two at a time.
    async fn pull(&mut self, name: &str, part: &PartSpec) -> Vec<u8> {
        let (mut asked, mut bytes) = (0, Vec::new());
        while (bytes.len() as u64) < part.size {
            while asked < part.size && asked - (bytes.len() as u64) < 2 * CHUNK {
                let length = CHUNK.min(part.size - asked);
                self.say(ToWorker::Want { token: token(name), name: part.name.clone(), offset: asked, length });
                asked += length;
            }
            let (message, bodies) = self.hear_new().await;
            let FromWorker::Part { offset, .. } = message else {
                self.later.push_back((message, bodies));
                continue;
            };
            assert_eq!(offset, bytes.len() as u64);
            bytes.extend_from_slice(&bodies[0]);
        }
        bytes
    }

    pub(crate) fn stored(&mut self, name: &str) {
        self.say(ToWorker::Ack { token: token(name), answer: AckWord::Stored, why: None });
    }

    /// Goes away without a word.
    pub(crate) async fn vanish(self) {
        self.router.close(Duration::ZERO).await;
    }
}

pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.file_name().into_string().unwrap());
        }
    }
    files.sort();
    files
}
