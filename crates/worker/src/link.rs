//! The thread that talks: it carries out the session's effects over a socket and brings it what happens.
//!
//! **Owns** the socket, what waits to be sent on it, and the way to the slots. **Refuses to know** the rules of the
//! conversation, which are [`crate::session`]'s, and does no work on files itself: a busy task or disk cannot keep back a
//! beat (cases F69, F71).
//!
//! **Invariants**: what waits to be sent is dropped with its connection; a task is handed to its slot only after `begun`
//! was given to the socket and the socket has run; beats overtake whatever waits.

use crate::cancel::Cancel;
use crate::delivery::parts_of;
use crate::files::{FileDone, FileJob};
use crate::outbox::{Outbox, Waiting};
use crate::run::{Stop, WorkerError};
use crate::scratch::Scratch;
use crate::session::{Effect, EndReason, Ended, Event, Note, Session, TaskInput, TaskOrder};
use crate::slot::{Job, JobInput};
use bytes::Bytes;
use crossbeam_channel::Sender;
use dispatcher_core::time::TimeMs;
use dispatcher_core::wire::{FromWorker, TokenText};
use dispatcher_transport::codec::{decode_to_worker, encode_from_worker};
use dispatcher_transport::socket::{
    BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, Sent, SocketError,
};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// For how long the socket is waited for before something is received again.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long what is left may take to be sent at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// How many pieces of results are read or waiting to be sent at once.
const PIECES: usize = 4;
/// How often the socket's own tasks get their turn between `begun` and the start of its task. One turn hands the message
/// to the connection, another one writes it.
const TURNS: usize = 3;
/// How many events are taken before what they brought about is sent.
const BATCH: usize = 64;

/// What slots and the files thread tell the link.
#[derive(Debug)]
pub(crate) enum Told {
    /// A slot's work is over.
    Ended { slot: usize, token: TokenText, how: Ended },
    /// Something was done with a file.
    File(FileDone),
    /// A thread of this worker died.
    Died { thread: String },
}

/// Something that waits to be sent, or to happen once what stands before it was sent.
#[derive(Debug)]
enum Out {
    Message(FromWorker),
    /// A result or cause, whose bytes are looked up when its turn comes.
    Finished(TokenText),
    /// A result or cause with its bytes.
    Loaded(Arc<Waiting>, Vec<Bytes>),
    /// A piece of a part.
    Piece(FromWorker, Bytes),
    /// A task goes to its slot.
    Start {
        slot: usize,
        job: Box<Job>,
    },
}

/// A piece that the dispatcher wants.
#[derive(Debug)]
struct Wanted {
    token: TokenText,
    name: String,
    offset: u64,
    length: u64,
}

/// The way to one slot.
#[derive(Debug)]
pub(crate) struct SlotWay {
    pub(crate) jobs: Sender<Job>,
    pub(crate) cancel: Option<Cancel>,
}

/// The link with all that it needs.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The place of the one in use.
    pub(crate) at: usize,
    /// Whether it was said that nobody answers.
    pub(crate) is_away: bool,
    pub(crate) backend: BackendKind,
    pub(crate) slots: Vec<SlotWay>,
    pub(crate) files: Sender<FileJob>,
    pub(crate) told: UnboundedReceiver<Told>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) started: Instant,
    pub(crate) wires: Wires,
    /// Where the inputs are that were fetched, or are being.
    pub(crate) fetched: HashMap<TokenText, PathBuf>,
    pub(crate) end: Option<EndReason>,
}

/// What belongs to the connection.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    socket: Option<DealerSocket>,
    /// Counts the connections, so that what was read for an earlier one is not sent on this one.
    connection: u64,
    urgent: Option<FromWorker>,
    out: VecDeque<Out>,
    wanted: VecDeque<Wanted>,
    pieces: usize,
    /// Whether something was sent since the socket last ran.
    fresh: bool,
}

impl Link {
    /// Talks until the session is over.
    pub(crate) async fn run(&mut self, stop: &Stop) -> Result<(), WorkerError> {
        let mut stop = stop.subscribe();
        let mut effects = Vec::new();
        self.happens(Event::Tick, &mut effects)?;
        loop {
            if let Some(level) = *stop.borrow_and_update() {
                self.happens(Event::Stop(level), &mut effects)?;
            }
            self.send().await?;
            if let Some(end) = self.end.take() {
                return self.leave(end).await;
            }
            let wake = self.wake_after();
            tokio::select! {
                biased;
                told = self.told.recv() => match told {
                    Some(told) => self.told(told, &mut effects)?,
                    None => return Err(WorkerError::Died { thread: "every slot".to_owned() }),
                },
                event = next(&mut self.wires.socket) => self.heard(event?, &mut effects)?,
                _ = stop.changed() => {}
                () = tokio::time::sleep(wake) => self.happens(Event::Tick, &mut effects)?,
            }
            // Slots that end at the same time are answered for together.
            for _ in 0..BATCH {
                let Ok(told) = self.told.try_recv() else { break };
                self.told(told, &mut effects)?;
            }
        }
    }

    fn now(&self) -> TimeMs {
        TimeMs(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn wake_after(&self) -> Duration {
        let due = self.session.wake_at().map_or(u64::MAX, |at| at.since(self.now()).0);
        let due = Duration::from_millis(due).min(Duration::from_secs(3_600));
        if self.wires.out.is_empty() { due } else { due.min(PATIENCE) }
    }

    fn told(&mut self, told: Told, effects: &mut Vec<Effect>) -> Result<(), WorkerError> {
        match told {
            Told::Ended { slot, token, how } => {
                if let Some(way) = self.slots.get_mut(slot) {
                    way.cancel = None;
                }
                self.happens(Event::Ended { slot, token, how }, effects)
            }
            Told::File(done) => self.file_done(done, effects),
            Told::Died { thread } => Err(WorkerError::Died { thread }),
        }
    }

    fn heard(&mut self, event: DealerEvent, effects: &mut Vec<Effect>) -> Result<(), WorkerError> {
        match event {
            DealerEvent::Connected => {
                if std::mem::take(&mut self.is_away) {
                    tracing::warn!("a dispatcher is there again");
                }
                self.happens(Event::Up, effects)
            }
            DealerEvent::Disconnected => self.happens(Event::Down, effects),
            DealerEvent::Message { frames } => match decode_to_worker(&frames) {
                Ok((message, mut bodies)) => {
                    let body = bodies.pop().unwrap_or_default();
                    self.happens(Event::Received { message, body }, effects)
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the dispatcher sent something unreadable");
                    Ok(())
                }
            },
        }
    }

    fn file_done(&mut self, done: FileDone, effects: &mut Vec<Effect>) -> Result<(), WorkerError> {
        let here = self.wires.connection;
        match done {
            FileDone::Written { token, upto: Ok(upto) } => self.happens(Event::Written { token, upto }, effects),
            FileDone::Written { token, upto: Err(e) } => {
                self.happens(Event::InputFailed { token, why: e.to_string() }, effects)
            }
            FileDone::Loaded { token, waiting, bodies, connection } => {
                match bodies {
                    Ok(bodies) if connection == here && self.session.is_finished(&token) => {
                        self.wires.out.push_back(Out::Loaded(waiting, bodies));
                    }
                    Ok(_) => {}
                    Err(e) => tracing::error!(error = %e, "a finished result cannot be read back"),
                }
                Ok(())
            }
            FileDone::Piece { token, name, offset, bytes, connection } => {
                if connection != here {
                    return Ok(());
                }
                match bytes {
                    Ok(Some(bytes)) => {
                        self.wires.out.push_back(Out::Piece(FromWorker::Part { token, name, offset }, bytes));
                    }
                    Ok(None) => self.piece_through(),
                    Err(e) => {
                        tracing::error!(error = %e, "a piece of a finished result cannot be read");
                        self.piece_through();
                    }
                }
                Ok(())
            }
        }
    }

    /// Hands an event to the session and carries out what it says.
    fn happens(&mut self, event: Event, effects: &mut Vec<Effect>) -> Result<(), WorkerError> {
        self.session.handle(event, self.now(), effects);
        for effect in effects.drain(..) {
            self.carry_out(effect)?;
        }
        self.read_wanted();
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), WorkerError> {
        match effect {
            Effect::Connect { endpoint } => self.connect(endpoint)?,
            Effect::Disconnect => self.wires.drop_connection(),
            // A beat overtakes what waits: on a slow line a long queue must not look like death. Its list of holds says
            // nothing that what it overtakes would not say again.
            Effect::Send(beat @ FromWorker::Beat { .. }) => self.wires.urgent = Some(beat),
            Effect::Send(message) => self.wires.out.push_back(Out::Message(message)),
            Effect::SendFinished { token } => self.wires.out.push_back(Out::Finished(token)),
            Effect::SendPart { token, name, offset, length } => {
                self.wires.wanted.push_back(Wanted { token, name, offset, length });
            }
            Effect::Write { token, offset, bytes } => {
                let new_path = || self.scratch.fetch_path();
                let path = self.fetched.entry(token.clone()).or_insert_with(new_path).clone();
                self.on_files(FileJob::Write { token, path, offset, bytes });
            }
            Effect::Start { slot, token, order, input } => self.prepare(slot, token, *order, input)?,
            Effect::Abort { slot, why } => {
                if let Some(cancel) = self.slots.get(slot).and_then(|way| way.cancel.as_ref()) {
                    cancel.cancel(why);
                }
            }
            Effect::Forget { token } => {
                if let Some(path) = self.fetched.remove(&token) {
                    self.on_files(FileJob::Remove { path });
                }
                // The thread for files is not woken for what has none.
                if !self.outbox.forget_without_files(&token) {
                    self.on_files(FileJob::Forget { token });
                }
            }
            Effect::Note(note) => self.log(&note),
            Effect::End(reason) => self.end = Some(reason),
        }
        Ok(())
    }

    fn connect(&mut self, at: usize) -> Result<(), WorkerError> {
        self.wires.drop_connection();
        self.at = at;
        if let Some(endpoint) = self.endpoints.get(at) {
            tracing::debug!(%endpoint, "connecting");
            let options = DealerOptions { backend: self.backend, ..DealerOptions::default() };
            self.wires.socket = Some(DealerSocket::connect(endpoint, options)?);
        }
        Ok(())
    }

    fn log(&mut self, note: &Note) {
        let endpoint = self.endpoints.get(self.at).map(ToString::to_string);
        match note {
            // Once for each absence: whoever waits for work wants to know, and not every few seconds.
            Note::NoAnswer if !std::mem::replace(&mut self.is_away, true) => {
                tracing::warn!(endpoint, "no answer from the dispatcher; it is tried again until it is there");
            }
            Note::NoAnswer => tracing::debug!(endpoint, "no answer from the dispatcher"),
            Note::BeatsUnanswered => {
                tracing::warn!(endpoint, "the dispatcher answers no more; the connection is built anew");
            }
            Note::Error { code, message } => tracing::warn!(endpoint, ?code, message, "the dispatcher objects"),
            Note::Answered { token, answer, why } => tracing::info!(token = token.0, ?answer, why, "answered"),
            Note::InputFailed { token, why } => {
                tracing::error!(token = token.0, why, "an input cannot be written down");
            }
        }
    }

    /// Leaves a task to be handed to its slot once what stands before it was sent. It can be told to stop from now on.
    fn prepare(
        &mut self,
        slot: usize,
        token: TokenText,
        order: TaskOrder,
        input: TaskInput,
    ) -> Result<(), WorkerError> {
        let cancel = Cancel::new().map_err(|e| WorkerError::io("make a signal for a task", e))?;
        let input = match input {
            TaskInput::Inline(bytes) => JobInput::Here(bytes),
            TaskInput::Fetched => JobInput::Fetched(self.fetched.remove(&token).unwrap_or_default()),
        };
        if let Some(way) = self.slots.get_mut(slot) {
            way.cancel = Some(cancel.clone());
        }
        let job = Job { token, order, input, cancel, inline_max: self.session.inline_max() };
        self.wires.out.push_back(Out::Start { slot, job: Box::new(job) });
        Ok(())
    }

    /// Leaves a job to the thread for files. Its end is told by itself.
    fn on_files(&self, job: FileJob) {
        let _ = self.files.send(job);
    }

    fn piece_through(&mut self) {
        self.wires.pieces = self.wires.pieces.saturating_sub(1);
        self.read_wanted();
    }

    /// Has the next wanted pieces read: few at once, so that memory does not depend on what is wanted.
    fn read_wanted(&mut self) {
        while self.wires.pieces < PIECES
            && let Some(Wanted { token, name, offset, length }) = self.wires.wanted.pop_front()
        {
            if let Some(waiting) = self.outbox.get(&token) {
                self.wires.pieces += 1;
                let connection = self.wires.connection;
                self.on_files(FileJob::Piece { token, waiting, name, offset, length, connection });
            }
        }
    }

    // --- sending ---

    /// Sends what waits, as far as the socket takes it, and starts the tasks whose `begun` was sent.
    async fn send(&mut self) -> Result<(), WorkerError> {
        while let Some(message) = self.wires.urgent.take() {
            if !self.wires.try_send(&message, &[]).await {
                self.wires.urgent = Some(message);
                return Ok(());
            }
        }
        while let Some(out) = self.wires.out.pop_front() {
            if let Some(back) = self.send_one(out).await? {
                self.wires.out.push_front(back);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends one thing; returns it where the socket takes nothing more for now.
    async fn send_one(&mut self, out: Out) -> Result<Option<Out>, WorkerError> {
        let sent = match &out {
            Out::Message(message) => self.wires.try_send(message, &[]).await,
            Out::Loaded(waiting, bodies) => self.wires.try_send(&waiting.message, bodies).await,
            Out::Piece(message, bytes) => {
                let sent = self.wires.try_send(message, std::slice::from_ref(bytes)).await;
                if sent {
                    self.piece_through();
                }
                sent
            }
            Out::Finished(token) => self.send_finished(token).await,
            Out::Start { .. } => true,
        };
        if !sent {
            return Ok(Some(out));
        }
        if let Out::Start { slot, job } = out {
            self.start(slot, *job).await?;
        }
        Ok(None)
    }

    /// Sends a result with its bytes where they are few and here, without them where they are many, and has them read
    /// where they are few and on disk.
    async fn send_finished(&mut self, token: &TokenText) -> bool {
        let Some(waiting) = self.outbox.get(token) else { return true };
        let is_small = waiting.bytes() <= self.session.inline_max();
        if !is_small {
            return match without_parts(&waiting.message) {
                Some(cause) => self.wires.try_send(&cause, &[]).await,
                None => self.wires.try_send(&waiting.message, &[]).await,
            };
        }
        if let Some(bodies) = waiting.bodies_here() {
            return self.wires.try_send(&waiting.message, &bodies).await;
        }
        self.on_files(FileJob::Load { token: token.clone(), waiting, connection: self.wires.connection });
        true
    }

    /// Hands a task to its slot, once the socket has run.
    async fn start(&mut self, slot: usize, job: Job) -> Result<(), WorkerError> {
        if std::mem::take(&mut self.wires.fresh) {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
        let died = || WorkerError::Died { thread: format!("slot {slot}") };
        self.slots.get(slot).ok_or_else(died)?.jobs.send(job).map_err(|_| died())
    }

    /// Sends what is left and closes the socket.
    async fn leave(&mut self, end: EndReason) -> Result<(), WorkerError> {
        let until = Instant::now() + FAREWELL;
        while !(self.wires.out.is_empty() && self.wires.urgent.is_none()) && Instant::now() < until {
            if self.wires.socket.is_none() {
                break;
            }
            self.send().await?;
        }
        if let Some(socket) = self.wires.socket.take() {
            socket.close(FAREWELL).await;
        }
        match end {
            EndReason::Stopped => Ok(()),
            EndReason::Refused { message } => Err(WorkerError::Refused { message }),
        }
    }
}

impl Wires {
    /// Drops the connection and what waited for it. Tasks that wait for their start keep their place: `begun` may have
    /// left already, and the next `hello` says that they run.
    fn drop_connection(&mut self) {
        self.socket = None;
        self.connection += 1;
        self.urgent = None;
        self.out.retain(|out| matches!(out, Out::Start { .. }));
        self.wanted.clear();
        self.pieces = 0;
    }

    /// Whether `message` is through with: sent, or its connection is gone and it with it.
    async fn try_send(&mut self, message: &FromWorker, bodies: &[Bytes]) -> bool {
        let Some(socket) = &mut self.socket else { return true };
        self.fresh = true;
        socket.send(encode_from_worker(message, bodies), PATIENCE).await != Sent::Full
    }
}

/// A cause whose parts are too large to travel with it, without them; `None` for a result, whose parts are wanted later.
fn without_parts(message: &FromWorker) -> Option<FromWorker> {
    match message {
        FromWorker::Retryable { token, cause, messages, .. } if !parts_of(message).is_empty() => {
            let (token, cause, messages) = (token.clone(), cause.clone(), messages.clone());
            Some(FromWorker::Retryable { token, cause, messages, parts: Vec::new() })
        }
        _ => None,
    }
}

/// The next event of the socket; waits for ever where there is none.
async fn next(socket: &mut Option<DealerSocket>) -> Result<DealerEvent, SocketError> {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}
