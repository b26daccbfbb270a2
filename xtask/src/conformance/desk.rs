//! The dispatcher's side of the v1 wire, played step by step by a check.
//!
//! **Owns** the socket, the program under test, what was said and in which order. **Refuses to know** what a check is
//! about: what holds for every message is the `ledger`'s. It hears one program at a time; beats are answered, and credit
//! counted, as a matter of course.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::Status;
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, PartSpec, ToWorker, TokenText};
use dispatcher_transport::codec::{MARK, decode_from_worker};
use dispatcher_transport::link::send_to_worker;
use dispatcher_transport::socket::{Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket, Sent};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::time::{Instant, timeout_at};

use super::ledger::Ledger;
use super::process::{Places, Program, Rig, SERVICE};

/// How often a program has to beat, in milliseconds: often, so that checks are quick.
pub(super) const BEAT_MS: u64 = 100;
const DEAD_AFTER_MS: u64 = 30_000;
/// Small limits, so that they are met: they are in force because `welcome` says so.
pub(super) const INLINE_MAX: usize = 4_096;
pub(super) const CHUNK_MAX: u64 = 16_384;
/// The limit of tasks that are not about it, in milliseconds.
const LIMIT_MS: u64 = 600_000;
/// How many messages a failed check tells.
const STORY: usize = 16;

/// A message with its bodies.
type Said = (FromWorker, Vec<Bytes>);

/// What a program says when it comes.
#[derive(Debug, Clone)]
pub(super) struct Hello {
    pub(super) name: String,
    pub(super) incarnation: String,
    pub(super) services: Vec<String>,
    pub(super) slots: u32,
    pub(super) proto: u32,
    pub(super) holds: Vec<(TokenText, HoldState)>,
}

/// A result as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) status: Status,
    pub(super) parts: Vec<PartSpec>,
    /// The part named `result`, where it has one.
    pub(super) bytes: Option<Vec<u8>>,
}

/// The dispatcher's side.
pub(super) struct Desk {
    rig: Rig,
    /// Ended before its folder is removed.
    program: Option<Program>,
    folder: TempDir,
    router: Option<RouterSocket>,
    endpoint: Endpoint,
    peer: Option<PeerId>,
    pub(super) ledger: Ledger,
    /// Whether beats are answered.
    pub(super) answers_beats: bool,
    story: Vec<String>,
    tasks: u64,
}

fn options() -> RouterOptions {
    RouterOptions::default()
}

impl Desk {
    /// Listens on a port of its own; the program is not started.
    pub(super) async fn open(rig: &Rig) -> Result<Self> {
        let any = Endpoint::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let router = RouterSocket::bind(&any, options()).await?;
        let endpoint = router.endpoint().clone();
        Ok(Self {
            rig: rig.clone(),
            folder: tempfile::Builder::new().prefix("conform").tempdir()?,
            router: Some(router),
            endpoint,
            program: None,
            peer: None,
            ledger: Ledger::default(),
            answers_beats: true,
            story: Vec::new(),
            tasks: 0,
        })
    }

    /// Listens on a Unix socket instead.
    pub(super) async fn move_to_ipc(&mut self) -> Result<()> {
        self.cut().await;
        self.endpoint = Endpoint::ipc(self.folder.path().join("run/socket"))?;
        self.listen().await
    }

    // --- the program ---

    /// Starts the program.
    pub(super) fn start(&mut self) -> Result<()> {
        self.start_at(&self.endpoint.to_string())
    }

    /// Starts the program with these addresses.
    pub(super) fn start_at(&mut self, connect: &str) -> Result<()> {
        let places = Places { connect: connect.to_owned(), ..Places::default() };
        self.program = Some(self.rig.start(self.folder.path(), &places)?);
        Ok(())
    }

    pub(super) fn address(&self) -> String {
        self.endpoint.to_string()
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        self.program.as_ref().context("the program was started")?.signal(signal)
    }

    /// Kills the program, which has no chance to say anything.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.program.take().context("the program was started")?.kill()?;
        while self.peer.is_some() {
            self.turn("the end of its connection", self.deadline()).await?;
        }
        self.ledger.killed();
        Ok(())
    }

    /// Waits until the program has ended by itself.
    pub(super) async fn end(&mut self) -> Result<std::process::ExitStatus> {
        let patience = self.rig.patience;
        self.program.as_mut().context("the program was started")?.end(patience).await
    }

    // --- the socket ---

    /// Goes away without a word.
    pub(super) async fn cut(&mut self) {
        self.tell("(the dispatcher goes away)");
        if let Some(router) = self.router.take() {
            router.close(Duration::ZERO).await;
        }
        self.peer = None;
    }

    /// Listens again, where it did before.
    pub(super) async fn listen(&mut self) -> Result<()> {
        self.tell("(the dispatcher is back)");
        self.router = Some(RouterSocket::bind(&self.endpoint, options()).await?);
        Ok(())
    }

    /// Ends the connection, and goes on listening.
    pub(super) fn disconnect(&mut self) {
        self.tell("(the dispatcher ends the connection)");
        if let (Some(router), Some(peer)) = (&mut self.router, self.peer.take()) {
            router.disconnect(peer);
        }
    }

    // --- hearing ---

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.rig.patience
    }

    /// What the program says next, beats and credit aside.
    pub(super) async fn hear(&mut self, what: &str) -> Result<Said> {
        let until = self.deadline();
        loop {
            if let Some(said) = self.turn(what, until).await? {
                return Ok(said);
            }
        }
    }

    /// The same, where nothing but `what` may come.
    pub(super) async fn expect(&mut self, what: &str, is_it: impl FnOnce(&FromWorker) -> bool) -> Result<Said> {
        let said = self.hear(what).await?;
        ensure!(is_it(&said.0), "expected {what}, and it said {}", brief(&said.0));
        Ok(said)
    }

    /// Takes one event; returns what the program said, unless it is a matter of course.
    async fn turn(&mut self, what: &str, until: Instant) -> Result<Option<Said>> {
        let Some(router) = &mut self.router else { bail!("nobody listens") };
        match timeout_at(until, router.next()).await {
            Ok(event) => self.take(event?),
            Err(_) => Err(self.missing(what)),
        }
    }

    fn take(&mut self, event: RouterEvent) -> Result<Option<Said>> {
        match event {
            RouterEvent::Arrived { peer } => {
                self.tell("(a connection comes up)");
                self.peer = Some(peer);
                self.ledger.connected();
                Ok(None)
            }
            RouterEvent::Departed { peer } => {
                if self.peer == Some(peer) {
                    self.tell("(its connection is gone)");
                    self.peer = None;
                }
                Ok(None)
            }
            RouterEvent::Message { peer, frames } if self.peer == Some(peer) => {
                let said =
                    decode_from_worker(&frames).map_err(|error| anyhow!("what it says cannot be read: {error}"))?;
                self.note(&said.0);
                self.ledger.hear(&said.0, &said.1)?;
                self.routine(said)
            }
            RouterEvent::Message { .. } => Ok(None),
        }
    }

    /// Answers beats; the rest is for the check.
    fn routine(&mut self, said: Said) -> Result<Option<Said>> {
        match said.0 {
            FromWorker::Ready { .. } => Ok(None),
            FromWorker::Beat { n, .. } => {
                if self.answers_beats {
                    self.send(&ToWorker::Beat { n, unknown: Vec::new() }, &[])?;
                }
                Ok(None)
            }
            _ => Ok(Some(said)),
        }
    }

    fn missing(&mut self, what: &str) -> anyhow::Error {
        let seconds = self.rig.patience.as_secs();
        let ended = self.program.as_mut().and_then(Program::ended);
        let ended = ended.map_or_else(String::new, |status| format!("; the program has ended with {status}"));
        anyhow!("{what} did not come within {seconds} s{ended}")
    }

    /// Goes on until something is so; what is said meanwhile is nobody's business but routine.
    pub(super) async fn until(&mut self, what: &str, mut is_so: impl FnMut(&Ledger) -> bool) -> Result<()> {
        let until = self.deadline();
        while !is_so(&self.ledger) {
            if let Some((message, _)) = self.turn(what, until).await? {
                bail!("expected {what}, and it said {}", brief(&message));
            }
        }
        Ok(())
    }

    /// Waits for so many more lists of what the program has.
    pub(super) async fn beats(&mut self, count: u64) -> Result<()> {
        let target = self.ledger.lists + count;
        self.until("a beat", |ledger| ledger.lists >= target).await
    }

    /// Waits for the next list, or for what the program says before it.
    pub(super) async fn hear_or_list(&mut self, what: &str) -> Result<Option<FromWorker>> {
        let (until, seen) = (self.deadline(), self.ledger.lists);
        while self.ledger.lists == seen {
            if let Some((message, _)) = self.turn(what, until).await? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Lets so many milliseconds pass, in which nothing but beats may come.
    pub(super) async fn quiet(&mut self, ms: u64) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            let Some(router) = &mut self.router else { bail!("nobody listens") };
            if let Ok(event) = timeout_at(until, router.next()).await
                && let Some((message, _)) = self.take(event?)?
            {
                bail!("nothing but beats is said before welcome, and it said {}", brief(&message));
            }
        }
        Ok(())
    }

    /// Waits until a list has `token` in this state.
    pub(super) async fn until_listed(&mut self, token: &TokenText, state: HoldState) -> Result<()> {
        let what = format!("a beat that lists the task as {state:?}");
        self.until(&what, |ledger| ledger.holds.get(token) == Some(&state)).await
    }

    /// Waits until a list comes without `token`.
    pub(super) async fn forgotten(&mut self, token: &TokenText) -> Result<()> {
        let seen = self.ledger.lists;
        let is_gone = |ledger: &Ledger| ledger.lists > seen && !ledger.holds.contains_key(token);
        self.until("a beat that lists the task no more", is_gone).await
    }

    // --- saying ---

    pub(super) fn say(&mut self, message: &ToWorker) -> Result<()> {
        self.say_with(message, &[])
    }

    pub(super) fn say_with(&mut self, message: &ToWorker, bodies: &[Bytes]) -> Result<()> {
        self.tell(&format!("D {}", serde_json::to_string(message)?));
        self.send(message, bodies)
    }

    fn send(&mut self, message: &ToWorker, bodies: &[Bytes]) -> Result<()> {
        let peer = self.peer.context("its connection is gone")?;
        let router = self.router.as_mut().context("nobody listens")?;
        ensure!(send_to_worker(router, peer, message, bodies) == Sent::Sent, "it does not read what it is sent");
        Ok(())
    }

    /// Says something that the codec would not.
    pub(super) fn say_raw(&mut self, header: &serde_json::Value, bodies: &[Bytes]) -> Result<()> {
        self.tell(&format!("D {header}"));
        let peer = self.peer.context("its connection is gone")?;
        let router = self.router.as_mut().context("nobody listens")?;
        let head = [Bytes::from_static(MARK), Bytes::from(header.to_string())];
        let frames = head.into_iter().chain(bodies.iter().cloned()).collect();
        ensure!(router.try_send(peer, frames) == Sent::Sent, "it does not read what it is sent");
        Ok(())
    }

    // --- whole steps ---

    /// Waits for the next connection's hello.
    pub(super) async fn hello(&mut self) -> Result<Hello> {
        let (message, _) = self.expect("hello", |said| matches!(said, FromWorker::Hello { .. })).await?;
        let FromWorker::Hello { proto, name, incarnation, services, slots, holds } = message else {
            bail!("hello is hello");
        };
        let holds = holds.into_iter().map(|hold| (hold.token, hold.state)).collect();
        Ok(Hello { name, incarnation, services, slots, proto, holds })
    }

    /// The welcome that keeps everything but `drop`.
    pub(super) fn welcome(hello: &Hello, drop: &[TokenText]) -> ToWorker {
        let keep = hello.holds.iter().map(|(token, _)| token).filter(|token| !drop.contains(token)).cloned().collect();
        ToWorker::Welcome {
            beat_ms: BEAT_MS,
            dead_after_ms: DEAD_AFTER_MS,
            inline_max: INLINE_MAX as u64,
            chunk_max: CHUNK_MAX,
            keep,
            drop: drop.to_vec(),
        }
    }

    pub(super) fn say_welcome(&mut self, hello: &Hello, drop: &[TokenText]) -> Result<()> {
        drop.iter().for_each(|token| self.ledger.settled(token));
        self.ledger.welcomed(CHUNK_MAX);
        self.say(&Self::welcome(hello, drop))
    }

    /// Hears hello and says welcome.
    pub(super) async fn greet(&mut self) -> Result<Hello> {
        let hello = self.hello().await?;
        self.say_welcome(&hello, &[])?;
        Ok(hello)
    }

    /// The same with a program that was not started yet.
    pub(super) async fn begin(&mut self) -> Result<Hello> {
        self.start()?;
        self.greet().await
    }

    /// Waits until the program asks for a task.
    pub(super) async fn asked(&mut self) -> Result<()> {
        self.until("ready, with a task more", |ledger| ledger.credit() > 0).await
    }

    /// A token that no task had. They are opaque: their lengths and letters differ.
    fn token(&mut self) -> TokenText {
        self.tasks += 1;
        let length = match self.tasks % 4 {
            0 => 128,
            1 => 54,
            2 => 8,
            _ => 22,
        };
        let begin = format!("{}-_", self.tasks);
        let rest = ('a'..='z').chain('A'..='Z').cycle();
        TokenText(begin.chars().chain(rest).take(length).collect())
    }

    fn task(&self, token: &TokenText, size: usize, limit_ms: u64) -> ToWorker {
        let entry = EntryName(format!("folder/{}.txt", self.tasks).into_bytes());
        ToWorker::Task {
            token: token.clone(),
            task: TaskId(i64::try_from(self.tasks).unwrap_or(1)),
            service: SERVICE.to_owned(),
            corpus: "trials".to_owned(),
            entry,
            size: size as u64,
            limit_ms,
            attempt: self.tasks,
        }
    }

    /// Hands out a task once it is asked for; its input comes with it where it is small and not empty.
    pub(super) async fn hand(&mut self, input: &[u8]) -> Result<TokenText> {
        self.hand_within(input, LIMIT_MS).await
    }

    /// A task that is sent by other means: with this input in its message.
    pub(super) fn compose(&mut self, input: &[u8]) -> (TokenText, ToWorker) {
        let token = self.token();
        self.ledger.gave(&token, input.to_vec());
        let task = self.task(&token, input.len(), LIMIT_MS);
        (token, task)
    }

    pub(super) async fn hand_within(&mut self, input: &[u8], limit_ms: u64) -> Result<TokenText> {
        self.asked().await?;
        let token = self.token();
        self.ledger.gave(&token, input.to_vec());
        self.hand_again(&token, limit_ms)?;
        Ok(token)
    }

    /// Hands out a task that was given before.
    pub(super) fn hand_again(&mut self, token: &TokenText, limit_ms: u64) -> Result<()> {
        let input = Bytes::copy_from_slice(self.ledger.input(token));
        let task = self.task(token, input.len(), limit_ms);
        let is_inline = (1..=INLINE_MAX).contains(&input.len());
        self.say_with(&task, if is_inline { std::slice::from_ref(&input) } else { &[] })
    }

    /// Answers fetches until the task begins.
    pub(super) async fn begun(&mut self, token: &TokenText) -> Result<()> {
        loop {
            match self.hear("begun, or a fetch").await?.0 {
                FromWorker::Fetch { .. } => self.serve_next()?,
                FromWorker::Begun { token: told } if told == *token => return Ok(()),
                other => bail!("expected begun, and it said {}", brief(&other)),
            }
        }
    }

    /// Answers the oldest fetch.
    pub(super) fn serve_next(&mut self) -> Result<()> {
        let (token, offset, length) = self.ledger.next_fetch().context("it waits for a piece")?;
        let piece = piece(self.ledger.input(&token), offset, length)?;
        self.say_with(&ToWorker::Chunk { token, offset }, &[piece])
    }

    /// Hears the result of a task, without the bytes that do not come with it.
    pub(super) async fn announced(&mut self, token: &TokenText) -> Result<(Status, Vec<PartSpec>, Vec<Bytes>)> {
        let (message, bodies) = self.expect("a result", |said| matches!(said, FromWorker::Result { .. })).await?;
        let FromWorker::Result { token: told, status, parts, .. } = message else { bail!("a result is a result") };
        ensure!(told == *token, "it is the result of another task, {}", told.0);
        Ok((status, parts, bodies))
    }

    /// Hears the result of a task, and gets its bytes.
    pub(super) async fn result(&mut self, token: &TokenText) -> Result<Report> {
        let (status, parts, bodies) = self.announced(token).await?;
        let mut report = Report { status, parts: parts.clone(), bytes: None };
        ensure!(bodies.is_empty() || bodies.len() == parts.len(), "{} parts, {} bodies", parts.len(), bodies.len());
        let total: u64 = parts.iter().map(|part| part.size).sum();
        ensure!(bodies.is_empty() || total <= INLINE_MAX as u64, "{total} bytes, and inline_max is {INLINE_MAX}");
        for (at, part) in parts.iter().enumerate() {
            let bytes = match bodies.get(at) {
                Some(body) => body.to_vec(),
                None => self.pull(token, part).await?,
            };
            check_bytes(part, &bytes)?;
            if part.name == "result" {
                report.bytes = Some(bytes);
            }
        }
        Ok(report)
    }

    /// Wants a part from its beginning to its end, two pieces at a time.
    pub(super) async fn pull(&mut self, token: &TokenText, part: &PartSpec) -> Result<Vec<u8>> {
        let (mut asked, mut bytes) = (0, Vec::new());
        while (bytes.len() as u64) < part.size {
            while asked < part.size && asked < bytes.len() as u64 + 2 * CHUNK_MAX {
                let length = CHUNK_MAX.min(part.size - asked);
                self.want(token, &part.name, asked, length)?;
                asked += length;
            }
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(&self.part(offset).await?);
        }
        Ok(bytes)
    }

    pub(super) fn want(&mut self, token: &TokenText, name: &str, offset: u64, length: u64) -> Result<()> {
        self.ledger.wanted(token, name, offset, length);
        self.say(&ToWorker::Want { token: token.clone(), name: name.to_owned(), offset, length })
    }

    /// Hears the piece from `offset` on.
    pub(super) async fn part(&mut self, offset: u64) -> Result<Bytes> {
        let is_it = |said: &FromWorker| matches!(said, FromWorker::Part { offset: told, .. } if *told == offset);
        let (_, bodies) = self.expect("the piece that was wanted", is_it).await?;
        bodies.into_iter().next().context("a piece has a body")
    }

    pub(super) fn ack(&mut self, token: &TokenText, answer: AckWord) -> Result<()> {
        self.ledger.settled(token);
        self.say(&ToWorker::Ack { token: token.clone(), answer, why: None })
    }

    pub(super) fn cancel(&mut self, token: &TokenText) -> Result<()> {
        self.ledger.settled(token);
        self.say(&ToWorker::Cancel { token: token.clone(), why: "cancelled by a check".to_owned() })
    }

    /// One task from its beginning to its end: the result is the input.
    pub(super) async fn whole_task(&mut self, input: &[u8]) -> Result<()> {
        let token = self.hand(input).await?;
        self.begun(&token).await?;
        self.echoed(&token).await?;
        self.ack(&token, AckWord::Stored)?;
        self.forgotten(&token).await
    }

    /// Hears the result of a task, which has to be its input.
    pub(super) async fn echoed(&mut self, token: &TokenText) -> Result<Report> {
        let report = self.result(token).await?;
        ensure!(report.status == Status::NoProblem, "the status is {:?}", report.status);
        let bytes = report.bytes.as_deref().context("the result has no part named result")?;
        let input = self.ledger.input(token);
        ensure!(bytes == input, "the result has {} bytes and is not the input of {}", bytes.len(), input.len());
        Ok(report)
    }

    /// An input whose work goes on until its gate is opened.
    pub(super) fn gated(&self, name: &str) -> (PathBuf, Vec<u8>) {
        let gate = self.folder.path().join(name);
        let input = format!("wait:{}\n", gate.display()).into_bytes();
        (gate, input)
    }

    // --- telling ---

    /// Beats that follow each other are told by the last of them.
    fn note(&mut self, message: &FromWorker) {
        const BEAT: &str = "W {\"type\":\"beat\"";
        let line = format!("W {}", brief(message));
        if line.starts_with(BEAT) && self.story.last().is_some_and(|last| last.starts_with(BEAT)) {
            self.story.pop();
        }
        self.story.push(line);
    }

    fn tell(&mut self, what: &str) {
        self.story.push(what.chars().take(300).collect());
    }

    /// The fault with the last of what was said, and of what the program printed.
    pub(super) fn with_story(&self, error: anyhow::Error) -> anyhow::Error {
        let said = std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        let printed: Vec<_> = said.lines().rev().take(STORY).collect();
        let last = self.story.iter().skip(self.story.len().saturating_sub(STORY));
        let mut lines = vec![format!("{error:#}")];
        lines.extend(last.map(|line| format!("  {line}")));
        lines.extend(printed.iter().rev().map(|line| format!("  program: {line}")));
        anyhow!(lines.join("\n"))
    }
}

/// A message on one line that is not too long.
fn brief(message: &FromWorker) -> String {
    let text = serde_json::to_string(message).unwrap_or_default();
    text.chars().take(300).collect()
}

fn piece(bytes: &[u8], offset: u64, length: u64) -> Result<Bytes> {
    let (from, length) = (usize::try_from(offset)?, usize::try_from(length)?);
    bytes.get(from..from + length).map(Bytes::copy_from_slice).context("a piece lies within its input")
}

fn check_bytes(part: &PartSpec, bytes: &[u8]) -> Result<()> {
    ensure!(bytes.len() as u64 == part.size, "part {} has {} bytes and says {}", part.name, bytes.len(), part.size);
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(digest == part.sha256, "the sha256 of part {} is not that of its bytes", part.name);
    Ok(())
}
