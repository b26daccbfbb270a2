//! Workers that do nothing but answer: many connections in one process, for measuring a dispatcher.
//!
//! Each says hello, keeps a credit open, and answers every task at once with a result of a fixed size, as any worker of
//! the v1 wire would: `begun`, then `result`. The process ends when so many results were acknowledged.
//!
//! `echo_workers ENDPOINT SERVICE WORKERS CREDIT RESULT_BYTES TASKS [omq|zeromq]`

use bytes::Bytes;
use dispatcher_core::report::Status;
use dispatcher_core::wire::{FromWorker, PART_RESULT, PROTO, PartSpec, ToWorker, TokenText};
use dispatcher_transport::codec;
use dispatcher_transport::socket::{DealerEvent, DealerOptions, DealerSocket, Endpoint, Sent};
use std::collections::VecDeque;
use std::error::Error;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What every worker of the process does.
struct Job {
    endpoint: Endpoint,
    service: String,
    credit: u64,
    body: Bytes,
    sha256: String,
    left: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, service, workers, credit, bytes, tasks] = args
        .get(..6)
        .and_then(|a| a.as_array())
        .ok_or("usage: echo_workers ENDPOINT SERVICE WORKERS CREDIT RESULT_BYTES TASKS")?;
    let tasks: u64 = tasks.parse()?;
    let body = Bytes::from(vec![b'x'; bytes.parse()?]);
    let job = Rc::new(Job {
        endpoint: endpoint.parse()?,
        service: service.clone(),
        credit: credit.parse()?,
        sha256: sha256(&body),
        body,
        left: AtomicU64::new(tasks),
    });
    let workers: u64 = workers.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let local = tokio::task::LocalSet::new();
    for n in 0..workers {
        local.spawn_local(work(Rc::clone(&job), n));
    }
    runtime.block_on(local.run_until(async {
        while job.left.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }));
    let seconds = began.elapsed().as_secs_f64();
    println!("{:.0} tasks/s, {tasks} in {seconds:.3} s", tasks as f64 / seconds);
    Ok(())
}

/// The checksum that `sha256sum` prints: an example has no digest of its own.
fn sha256(body: &[u8]) -> String {
    use std::io::Write;
    let child = std::process::Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut child = child.expect("sha256sum is there");
    child.stdin.take().expect("a pipe").write_all(body).expect("writes");
    let out = child.wait_with_output().expect("ends");
    String::from_utf8_lossy(&out.stdout).chars().take(64).collect()
}

/// One worker.
async fn work(job: Rc<Job>, n: u64) {
    let mut socket = DealerSocket::connect(&job.endpoint, DealerOptions::default()).expect("connects");
    let mut out: VecDeque<(FromWorker, Vec<Bytes>)> = VecDeque::new();
    let (mut received, mut beats) = (0, 0);
    let mut beat = tokio::time::interval(Duration::from_secs(2));
    let mut held: Vec<TokenText> = Vec::new();
    loop {
        tokio::select! {
            event = socket.next() => match event.expect("an event") {
                DealerEvent::Connected => {
                    let hello = FromWorker::Hello {
                        proto: PROTO, name: format!("echo-{n}"), incarnation: "1".to_owned(),
                        services: vec![job.service.clone()], slots: 1, holds: Vec::new(),
                    };
                    out.push_back((hello, Vec::new()));
                }
                DealerEvent::Disconnected => return,
                DealerEvent::Message { frames } => match codec::decode_to_worker(&frames).expect("reads").0 {
                    ToWorker::Welcome { .. } => out.push_back((FromWorker::Ready { granted: job.credit }, Vec::new())),
                    ToWorker::Task { token, .. } => {
                        received += 1;
                        out.push_back((FromWorker::Begun { token: token.clone() }, Vec::new()));
                        held.push(token.clone());
                        out.push_back(result(&job, token));
                        if received % (job.credit / 4).max(1) == 0 {
                            out.push_back((FromWorker::Ready { granted: job.credit + received }, Vec::new()));
                        }
                    }
                    ToWorker::Ack { token, .. } => {
                        held.retain(|t| *t != token);
                        job.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(1))).ok();
                    }
                    _ => {}
                },
            },
            _ = beat.tick() => {
                beats += 1;
                let holds = held.iter().map(|token| dispatcher_core::wire::Hold { token: token.clone(), state: dispatcher_core::wire::HoldState::Finished });
                out.push_back((FromWorker::Beat { n: beats, received, holds: holds.collect() }, Vec::new()));
            }
        }
        while let Some((message, bodies)) = out.pop_front() {
            match socket.send(codec::encode_from_worker(&message, &bodies), Duration::from_millis(20)).await {
                Sent::Sent => {}
                Sent::Full => {
                    out.push_front((message, bodies));
                    break;
                }
                Sent::Gone => break,
            }
        }
    }
}

fn result(job: &Job, token: TokenText) -> (FromWorker, Vec<Bytes>) {
    let size = job.body.len() as u64;
    let parts = if size == 0 {
        Vec::new()
    } else {
        vec![PartSpec { name: PART_RESULT.to_owned(), size, sha256: job.sha256.clone() }]
    };
    let bodies = if size == 0 { Vec::new() } else { vec![job.body.clone()] };
    (FromWorker::Result { token, status: Status::NoProblem, messages: Vec::new(), parts }, bodies)
}
