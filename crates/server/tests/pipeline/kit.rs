//! What the pipeline's tests share: a dispatcher in a folder of its own, and workers good and bad.

use bytes::Bytes;
use crossbeam_channel::Receiver;
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::in_flight::Limits;
use dispatcher_core::report::Status;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::{AckWord, FromWorker, Hold, PROTO, ToWorker, TokenText};
use dispatcher_server::inputs::mtime_of;
use dispatcher_server::{Dispatcher, DispatcherConfig, DrainMode, Ended, LegacyWire, ResultNames, Workers};
use dispatcher_store::archive::{FileArchive, FileArchiveOptions, Layout};
use dispatcher_store::{
    Command, CommandId, CommandOutcome, CommandPage, Entry, MemoryStore, ServiceSettings, Store, StoreError, Story,
    Summary, TaskFilter, TaskState,
};
use dispatcher_transport::codec;
use dispatcher_transport::socket::{BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, Sent};
use dispatcher_worker::{Assignment, Cancel, OutPart, Outcome, Stop, Worker, WorkerConfig, WorkerSummary, run_worker};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Beyond this a test is stuck; nothing waits for it to pass.
pub const TOO_LONG: Duration = Duration::from_secs(120);
/// The service of the tests.
pub const SERVICE: &str = "echo";

/// A dispatcher, and all that it works on.
pub struct Place {
    dir: TempDir,
    pub store: Arc<dyn Store>,
    runtime: Runtime,
    dispatcher: Dispatcher,
    config: DispatcherConfig,
}

/// What a test may choose.
pub struct Setup {
    /// The sockets of the dispatcher and of good workers.
    pub backend: BackendKind,
    /// Where the dispatcher listens, if not at a path in its own folder.
    pub endpoint: Option<Endpoint>,
    pub store: Arc<dyn Store>,
    pub fleet: FleetLimits,
    pub legacy: LegacyWire,
    pub limits: Limits,
    pub service: ServiceSettings,
    pub inputs: usize,
    pub workers: Workers,
    pub task_limit: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            backend: BackendKind::default(),
            endpoint: None,
            store: Arc::new(MemoryStore::new()),
            fleet: FleetLimits::default(),
            legacy: LegacyWire::default(),
            limits: Limits::default(),
            service: ServiceSettings::default(),
            inputs: 1,
            workers: Workers::Ours { worked_on: Vec::new() },
            task_limit: None,
        }
    }
}

impl Setup {
    /// A dispatcher whose workers live on without it.
    pub fn serving(inputs: usize) -> Self {
        Self { inputs, workers: Workers::Elsewhere, ..Self::default() }
    }

    /// The same, which soon finds that one is gone.
    pub fn impatient(inputs: usize) -> Self {
        let fleet = FleetLimits { beat: SpanMs(100), dead_after: SpanMs(600), ..FleetLimits::default() };
        Self { fleet, ..Self::serving(inputs) }
    }
}

impl Place {
    /// Imports small inputs and starts a dispatcher on them.
    pub fn start(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let inputs = dir.path().join("in");
        let sockets = dir.path().join("s");
        std::fs::create_dir(&inputs).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(&sockets).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let entries: Vec<Entry> = (0..setup.inputs).map(|i| input(&inputs, i)).collect();
        let store = setup.store;
        runtime.block_on(async {
            let service = store.put_service(SERVICE, &setup.service).await.unwrap();
            let corpus = store.put_corpus("inputs", inputs.as_os_str().as_bytes()).await.unwrap();
            store.import(service.id, corpus.id, &entries).await.unwrap();
        });
        let endpoint = setup.endpoint.unwrap_or_else(|| Endpoint::ipc(sockets.join("r")).unwrap());
        let config = DispatcherConfig {
            endpoint,
            backend: setup.backend,
            host: "here".to_owned(),
            limits: setup.limits,
            fleet: setup.fleet,
            legacy: setup.legacy,
            kill_grace: SpanMs(100),
            claim_ahead: 256,
            store_patience: Duration::from_secs(1),
            drain_limit: Duration::from_secs(20),
            workers: setup.workers,
            naming: ResultNames::ByEntry,
            http: None,
            task_limit: setup.task_limit,
            wake_in: None,
        };
        let dispatcher = start_in(&dir, &config, &store);
        Self { dir, store, runtime, dispatcher, config }
    }

    /// Ends the dispatcher, as a signal does, and says how it ended.
    pub fn drain(&self, mode: DrainMode) -> Ended {
        self.dispatcher.drain(mode);
        self.ended()
    }

    /// Waits for the dispatcher's end.
    pub fn ended(&self) -> Ended {
        loop {
            let end = self.dispatcher.ends().recv_timeout(TOO_LONG).unwrap();
            if let Some(ended) = self.dispatcher.ended(end) {
                return ended;
            }
        }
    }

    /// Starts another dispatcher on what the one before has left.
    pub fn start_again(self) -> Self {
        let Self { dir, store, runtime, config, dispatcher } = self;
        drop(dispatcher);
        let dispatcher = start_in(&dir, &config, &store);
        Self { dir, store, runtime, dispatcher, config }
    }

    /// Gives a command as another process does, and waits for what becomes of it.
    pub fn command(&self, command: &Command) -> CommandOutcome {
        let id = self.submit(command);
        self.dispatcher.nudge();
        wait_until("the command is through", || self.outcome(id).is_some());
        self.outcome(id).unwrap()
    }

    /// Writes a command down and leaves it.
    pub fn submit(&self, command: &Command) -> CommandId {
        self.ask(self.store.submit(command, "a test", TimeMs(0)))
    }

    /// What became of a command.
    pub fn outcome(&self, id: CommandId) -> Option<CommandOutcome> {
        self.ask(self.store.commands(&CommandPage { id: Some(id), max: 1, ..CommandPage::default() })).remove(0).outcome
    }

    /// The task that a token is for.
    pub fn task_of(&self, token: &TokenText) -> TaskId {
        TokenKey::new(self.ask(self.store.token_key())).read(token).unwrap().task
    }

    /// What the store answers.
    pub fn ask<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> T {
        self.runtime.block_on(asked).unwrap()
    }

    /// Imports more small inputs, for this service.
    pub fn import(&self, service: &str, names: std::ops::Range<usize>, priority: i32) {
        let inputs = self.dir.path().join("in");
        let entries: Vec<Entry> = names.map(|i| Entry { priority, ..input(&inputs, i) }).collect();
        self.runtime.block_on(async {
            let service = self.store.put_service(service, &ServiceSettings::default()).await.unwrap();
            let corpus = self.store.put_corpus("inputs", inputs.as_os_str().as_bytes()).await.unwrap();
            self.store.import(service.id, corpus.id, &entries).await.unwrap();
        });
        self.dispatcher.nudge();
    }

    /// Imports inputs of these sizes.
    pub fn import_sized(&self, sizes: &[usize]) {
        let inputs = self.dir.path().join("in");
        let entry = |(n, size): (usize, &usize)| {
            let path = inputs.join(format!("{n:06}"));
            let bytes: Vec<u8> = (0..*size).map(|at| u8::try_from((at + n) % 251).unwrap()).collect();
            std::fs::write(&path, bytes).unwrap();
            let meta = std::fs::metadata(&path).unwrap();
            let name = EntryName(format!("{n:06}").into_bytes());
            Entry { name, size: meta.len(), mtime_ns: mtime_of(&meta), priority: 0 }
        };
        let entries: Vec<Entry> = sizes.iter().enumerate().map(entry).collect();
        self.runtime.block_on(async {
            let service = self.store.put_service(SERVICE, &ServiceSettings::default()).await.unwrap();
            let corpus = self.store.put_corpus("inputs", inputs.as_os_str().as_bytes()).await.unwrap();
            self.store.import(service.id, corpus.id, &entries).await.unwrap();
        });
        self.dispatcher.nudge();
    }

    /// No difference between the books and the rows, and nothing out.
    pub fn assert_balance(&self) {
        let audit = self.runtime.block_on(self.store.audit()).unwrap();
        assert_eq!((audit.differences, audit.out), (Vec::new(), 0), "the books balance and nothing is out");
    }

    pub fn endpoint(&self) -> Endpoint {
        self.config.endpoint.clone()
    }

    pub fn inputs(&self) -> PathBuf {
        self.dir.path().join("in")
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    pub fn summary(&self) -> Summary {
        self.runtime.block_on(self.store.summary(&TaskFilter::default())).unwrap()
    }

    pub fn count(&self, state: TaskState) -> u64 {
        self.summary().by_state.iter().find(|(s, _)| *s == state).map_or(0, |(_, n)| *n)
    }

    pub fn story(&self, task: i64) -> Story {
        self.runtime.block_on(self.store.story(TaskId(task))).unwrap().unwrap()
    }

    /// Runs until every task has ended, with the workers that are there, and ends them.
    pub fn finish(self, stops: &[Stop]) -> Finished {
        self.dispatcher.finish_when_empty();
        let began = Instant::now();
        let ends: Receiver<_> = self.dispatcher.ends().clone();
        loop {
            if self.dispatcher.is_finished() {
                stops.iter().for_each(Stop::drain);
            }
            assert!(began.elapsed() < TOO_LONG, "it does not finish: {:?}", self.summary());
            let Ok(end) = ends.recv_timeout(Duration::from_millis(20)) else { continue };
            match self.dispatcher.ended(end) {
                Some(Ended::Well { finished, .. }) => {
                    assert!(finished);
                    break;
                }
                Some(died) => panic!("{died:?}"),
                None => {}
            }
        }
        let audit = self.runtime.block_on(self.store.audit()).unwrap();
        assert_eq!(audit.differences, [], "the books balance");
        assert_eq!(audit.out, 0, "no lease is left over");
        assert_eq!(self.dispatcher.in_flight(), 0);
        Finished { place: self }
    }
}

/// A place after its end.
pub struct Finished {
    pub place: Place,
}

fn start_in(dir: &TempDir, config: &DispatcherConfig, store: &Arc<dyn Store>) -> Dispatcher {
    let archive = FileArchive::open(FileArchiveOptions {
        out: dir.path().join("out"),
        state: dir.path().join("out/.dispatcher"),
        layout: Layout::same_names(),
    });
    Dispatcher::start(config.clone(), Arc::clone(store), Arc::new(archive.unwrap())).unwrap()
}

/// The i-th input.
fn input(folder: &std::path::Path, i: usize) -> Entry {
    let path = folder.join(format!("{i:06}"));
    std::fs::write(&path, format!("input {i}")).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    let name = EntryName(format!("{i:06}").into_bytes());
    Entry { name, size: meta.len(), mtime_ns: mtime_of(&meta), priority: 0 }
}

/// Answers with its input, at once.
pub struct Echo;

impl Worker for Echo {
    fn work(&self, task: &Assignment, _cancel: &Cancel) -> Outcome {
        Outcome::done(vec![OutPart::result(task.input.read().unwrap())])
    }
}

/// A worker on threads of its own.
pub struct Running {
    pub stop: Stop,
    pub thread: JoinHandle<WorkerSummary>,
}

/// Starts a good worker.
pub fn start_worker(place: &Place, name: &str, slots: u32, work: Arc<dyn Worker>) -> Running {
    let stop = Stop::new();
    let scratch = place.dir.path().join(format!("scratch-{name}"));
    let config = WorkerConfig {
        backend: place.config.backend,
        slots,
        prefetch: slots,
        ..WorkerConfig::new(place.endpoint(), name, name, SERVICE, scratch)
    };
    let asked = stop.clone();
    let thread = std::thread::spawn(move || run_worker(config, work, asked).unwrap());
    Running { stop, thread }
}

/// A worker that does only what a test says. Its socket lives on a thread of its own, so that what is said leaves at once.
pub struct Puppet {
    say: tokio::sync::mpsc::UnboundedSender<Vec<Bytes>>,
    heard: Receiver<DealerEvent>,
    /// Messages that were passed over.
    kept: RefCell<VecDeque<(ToWorker, Vec<Bytes>)>>,
    thread: JoinHandle<()>,
}

impl Puppet {
    /// Connects and says hello.
    pub fn join(place: &Place, name: &str, slots: u32) -> Self {
        Self::join_with(place, name, slots, &[SERVICE], Vec::new()).0
    }

    /// The same with these services, and with what it still holds; also what it is told to keep and to drop.
    pub fn join_with(
        place: &Place,
        name: &str,
        slots: u32,
        services: &[&str],
        holds: Vec<Hold>,
    ) -> (Self, Vec<TokenText>, Vec<TokenText>) {
        let (say, says) = tokio::sync::mpsc::unbounded_channel();
        let (hear, heard) = crossbeam_channel::unbounded();
        let endpoint = place.endpoint();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(play(&endpoint, says, &hear));
        });
        let puppet = Self { say, heard, kept: RefCell::default(), thread };
        while !matches!(puppet.event(), DealerEvent::Connected) {}
        puppet.say(&FromWorker::Hello {
            proto: PROTO,
            name: name.to_owned(),
            incarnation: name.to_owned(),
            services: services.iter().map(|service| (*service).to_owned()).collect(),
            slots,
            holds,
        });
        let (said, _) = puppet.hear_until("a welcome", |said| matches!(said, ToWorker::Welcome { .. }));
        let ToWorker::Welcome { keep, drop, .. } = said else { unreachable!() };
        (puppet, keep, drop)
    }

    /// Sends an empty good result and waits for the word about it.
    pub fn finish(&self, token: &TokenText) -> AckWord {
        let (token, status) = (token.clone(), Status::NoProblem);
        self.say(&FromWorker::Result { token: token.clone(), status, messages: Vec::new(), parts: Vec::new() });
        let meant = |said: &ToWorker| matches!(said, ToWorker::Ack { token: of, .. } if *of == token);
        let (said, _) = self.hear_until("the word about a result", meant);
        let ToWorker::Ack { answer, .. } = said else { unreachable!() };
        answer
    }

    /// The answer to a beat shows that what was said before it was heard.
    pub fn beat(&self, n: u64, received: u64, holds: Vec<Hold>) {
        self.say(&FromWorker::Beat { n, received, holds });
        self.hear_until("the answer to the beat", |said| matches!(said, ToWorker::Beat { n: of, .. } if *of == n));
    }

    fn event(&self) -> DealerEvent {
        self.heard.recv_timeout(TOO_LONG).unwrap()
    }

    pub fn say(&self, message: &FromWorker) {
        self.say_with(message, &[]);
    }

    pub fn say_with(&self, message: &FromWorker, bodies: &[Bytes]) {
        self.say_frames(codec::encode_from_worker(message, bodies));
    }

    pub fn say_frames(&self, frames: Vec<Bytes>) {
        self.say.send(frames).unwrap();
    }

    /// The next message that is meant, and its bytes; others are kept for later.
    pub fn hear_until(&self, what: &str, meant: impl Fn(&ToWorker) -> bool) -> (ToWorker, Vec<Bytes>) {
        let mut kept = self.kept.borrow_mut();
        let place = kept.iter().position(|(said, _)| meant(said));
        if let Some(message) = place.and_then(|at| kept.remove(at)) {
            return message;
        }
        loop {
            match self.event() {
                DealerEvent::Message { frames } => {
                    let (said, bodies) = codec::decode_to_worker(&frames).unwrap();
                    if meant(&said) {
                        return (said, bodies);
                    }
                    kept.push_back((said, bodies));
                }
                DealerEvent::Disconnected => panic!("cut while waiting for {what}"),
                DealerEvent::Connected => {}
            }
        }
    }

    /// The next task's token.
    pub fn hear_task(&self) -> TokenText {
        let (said, _) = self.hear_until("a task", |said| matches!(said, ToWorker::Task { .. }));
        let ToWorker::Task { token, .. } = said else { unreachable!() };
        token
    }

    /// Says goodbye and goes.
    pub fn leave(self) {
        self.say(&FromWorker::Bye);
        self.vanish();
    }

    /// Goes away without a word, after what was said has left.
    pub fn vanish(self) {
        drop(self.say);
        self.thread.join().unwrap();
    }
}

/// The life of a puppet's socket: sends what it is told, tells what it hears.
async fn play(
    endpoint: &Endpoint,
    mut says: tokio::sync::mpsc::UnboundedReceiver<Vec<Bytes>>,
    hear: &crossbeam_channel::Sender<DealerEvent>,
) {
    let mut socket = DealerSocket::connect(endpoint, DealerOptions::default()).unwrap();
    loop {
        tokio::select! {
            said = says.recv() => match said {
                Some(frames) => assert_eq!(socket.send(frames, TOO_LONG).await, Sent::Sent),
                None => break,
            },
            event = socket.next() => {
                // A test that no longer listens does not mind.
                let _ = hear.send(event.unwrap());
            }
        }
    }
    socket.close(TOO_LONG).await;
}

/// Waits until `condition` holds, giving the processor away in between.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TOO_LONG, "waited too long until {what}");
        std::thread::yield_now();
    }
}
