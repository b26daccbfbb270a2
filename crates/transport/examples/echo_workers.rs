//! Workers that do nothing but answer: many connections in one process, for measuring a dispatcher.
//!
//! Each says hello, keeps a credit open, and answers every task at once with a result of a fixed size, as any worker of
//! the v1 wire would: it fetches a large input, says `begun`, sends its `result`, and the pieces of a large one when they
//! are wanted. The process ends when so many results were acknowledged, and prints how many that were in a second.

#![expect(clippy::print_stdout, reason = "the figure is what the program is for")]

use bytes::Bytes;
use dispatcher_core::report::Status;
use dispatcher_core::wire::{FromWorker, Hold, HoldState, PART_RESULT, PROTO, PartSpec, ToWorker, TokenText};
use dispatcher_transport::codec;
use dispatcher_transport::socket::{BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, Sent};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: echo_workers ENDPOINT omq|zeromq SERVICE WORKERS CREDIT RESULT_BYTES TASKS [TASKS_PER_SECOND]";

/// How often a paced worker asks for more.
const PACE: Duration = Duration::from_millis(5);

/// What every worker of the process does.
struct Job {
    endpoint: Endpoint,
    backend: BackendKind,
    service: String,
    credit: u64,
    result: Bytes,
    sha256: String,
    /// Tasks a second of one worker; none: as fast as they come.
    pace: Option<f64>,
    left: Cell<u64>,
}

/// One worker.
struct Worker {
    job: Rc<Job>,
    socket: DealerSocket,
    out: VecDeque<(FromWorker, Vec<Bytes>)>,
    /// Tasks that came, those answered and not acknowledged, and inputs under way with what is missing of each.
    received: u64,
    held: BTreeMap<TokenText, HoldState>,
    fetching: BTreeMap<TokenText, (u64, u64)>,
    inline_max: u64,
    chunk_max: u64,
    granted: u64,
    began: Instant,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, backend, service, workers, credit, bytes, tasks] =
        args.get(..7).and_then(|args| args.as_array()).ok_or(USAGE)?;
    let (workers, tasks): (u32, u64) = (workers.parse()?, tasks.parse()?);
    let result = Bytes::from(vec![b'x'; bytes.parse()?]);
    let rate = args.get(7).map(|rate| rate.parse::<f64>()).transpose()?;
    let job = Rc::new(Job {
        endpoint: endpoint.parse()?,
        backend: backend.parse()?,
        service: service.clone(),
        credit: credit.parse()?,
        sha256: sha256(&result)?,
        result,
        pace: rate.map(|rate| rate / f64::from(workers)),
        left: Cell::new(tasks),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let workers: Vec<_> = (0..workers).map(|n| local.spawn_local(work(Rc::clone(&job), n))).collect();
    let began = Instant::now();
    runtime.block_on(local.run_until(async {
        for worker in workers {
            worker.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    }))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{{\"tasks_per_s\":{:.1},\"seconds\":{seconds:.3}}}", f64::from(u32::try_from(tasks)?) / seconds);
    Ok(())
}

/// The checksum, by the program that every system has: an example has no digest of its own.
fn sha256(bytes: &[u8]) -> Result<String, Box<dyn Error>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(bytes)?;
    let said = String::from_utf8(child.wait_with_output()?.stdout)?;
    Ok(said.chars().take(64).collect())
}

async fn work(job: Rc<Job>, n: u32) -> Result<(), String> {
    let options = DealerOptions { backend: job.backend, ..DealerOptions::default() };
    let socket = DealerSocket::connect(&job.endpoint, options).map_err(|e| e.to_string())?;
    let mut worker = Worker {
        job,
        socket,
        out: VecDeque::new(),
        received: 0,
        held: BTreeMap::new(),
        fetching: BTreeMap::new(),
        inline_max: 0,
        chunk_max: 0,
        granted: 0,
        began: Instant::now(),
    };
    let (mut beats, mut paces) = (tokio::time::interval(Duration::from_secs(2)), tokio::time::interval(PACE));
    let mut beat = 0;
    while worker.job.left.get() > 0 {
        tokio::select! {
            event = worker.socket.next() => worker.heard(event.map_err(|e| e.to_string())?, n)?,
            _ = beats.tick() => {
                beat += 1;
                let holds = worker.held.iter().map(|(token, state)| Hold { token: token.clone(), state: *state }).collect();
                worker.out.push_back((FromWorker::Beat { n: beat, received: worker.received, holds }, Vec::new()));
            }
            _ = paces.tick() => worker.ask(),
        }
        worker.send().await;
    }
    Ok(())
}

impl Worker {
    fn heard(&mut self, event: DealerEvent, n: u32) -> Result<(), String> {
        let frames = match event {
            DealerEvent::Disconnected => return Err("the dispatcher is gone".to_owned()),
            DealerEvent::Connected => {
                let (name, services) = (format!("echo-{n}"), vec![self.job.service.clone()]);
                let incarnation = "1".to_owned();
                let hello =
                    FromWorker::Hello { proto: PROTO, name, incarnation, services, slots: 1, holds: Vec::new() };
                self.out.push_back((hello, Vec::new()));
                return Ok(());
            }
            DealerEvent::Message { frames } => frames,
        };
        match codec::decode_to_worker(&frames).map_err(|e| e.to_string())?.0 {
            ToWorker::Welcome { inline_max, chunk_max, .. } => {
                (self.inline_max, self.chunk_max, self.began) = (inline_max, chunk_max, Instant::now());
                self.ask();
            }
            ToWorker::Task { token, size, .. } => {
                self.received += 1;
                self.held.insert(token.clone(), HoldState::Running);
                if size > self.inline_max {
                    self.fetching.insert(token.clone(), (0, size));
                    self.fetch(&token);
                } else {
                    self.answer(token);
                }
            }
            ToWorker::Chunk { token, .. } => self.fetch(&token),
            ToWorker::Want { token, name, offset, length } => {
                let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(self.job.result.len());
                let piece = self.job.result.slice(at(offset)..at(offset.saturating_add(length)));
                self.out.push_back((FromWorker::Part { token, name, offset }, vec![piece]));
            }
            ToWorker::Ack { token, .. } => {
                self.held.remove(&token);
                self.job.left.set(self.job.left.get().saturating_sub(1));
                self.ask();
            }
            ToWorker::Error { message, .. } => return Err(message),
            _ => {}
        }
        Ok(())
    }

    /// Asks for the next piece of an input, or answers when there is none left.
    fn fetch(&mut self, token: &TokenText) {
        let Some((offset, size)) = self.fetching.get_mut(token) else { return };
        if offset == size {
            self.fetching.remove(token);
            return self.answer(token.clone());
        }
        let length = self.chunk_max.min(*size - *offset);
        let ask = FromWorker::Fetch { token: token.clone(), offset: *offset, length };
        *offset += length;
        self.out.push_back((ask, Vec::new()));
    }

    fn answer(&mut self, token: TokenText) {
        self.held.insert(token.clone(), HoldState::Finished);
        self.out.push_back((FromWorker::Begun { token: token.clone() }, Vec::new()));
        let size = self.job.result.len() as u64;
        let spec = PartSpec { name: PART_RESULT.to_owned(), size, sha256: self.job.sha256.clone() };
        let parts = if size == 0 { Vec::new() } else { vec![spec] };
        let bodies = if size == 0 || size > self.inline_max { Vec::new() } else { vec![self.job.result.clone()] };
        let messages = Vec::new();
        self.out.push_back((FromWorker::Result { token, status: Status::NoProblem, messages, parts }, bodies));
    }

    /// Asks for more once a quarter of the credit is used up, or as the pace allows.
    fn ask(&mut self) {
        if self.inline_max == 0 {
            return;
        }
        let wanted = self.received - self.held.len() as u64 + self.job.credit;
        let granted = match self.job.pace {
            None if wanted - self.granted < (self.job.credit / 4).max(1) => return,
            None => wanted,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of tasks, never negative"
            )]
            Some(pace) => wanted.min((self.began.elapsed().as_secs_f64() * pace) as u64),
        };
        if granted > self.granted {
            self.granted = granted;
            self.out.push_back((FromWorker::Ready { granted }, Vec::new()));
        }
    }

    async fn send(&mut self) {
        while let Some((message, bodies)) = self.out.pop_front() {
            let frames = codec::encode_from_worker(&message, &bodies);
            if self.socket.send(frames, Duration::from_millis(20)).await != Sent::Sent {
                self.out.push_front((message, bodies));
                return;
            }
        }
    }
}
