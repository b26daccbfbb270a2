//! Workers of the legacy wire that do nothing but answer: many of them in one process, for measuring a dispatcher.
//!
//! Each has its two sockets, as existing workers do: it asks, gets a task with its input, and brings a result of a fixed size,
//! an archive with a log in it; then it asks again. Nothing tells it whether the result arrived. The process ends when so many
//! results were brought, and prints how many that were in a second.

#![expect(clippy::print_stdout, reason = "the figure is what the program is for")]

use bytes::Bytes;
use omq_tokio::{Message, Options, Socket, SocketType};
use std::cell::Cell;
use std::error::Error;
use std::io::{Cursor, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const USAGE: &str = "usage: legacy_echo REQUESTS RESULTS SERVICE WORKERS RESULT_BYTES TASKS [TASKS_PER_SECOND], such as: \
                     legacy_echo tcp://127.0.0.1:51695 tcp://127.0.0.1:51696 echo 16 8192 10000";

/// How long a worker waits that was told that there is nothing.
const NAP: Duration = Duration::from_millis(5);

struct Job {
    requests: String,
    results: String,
    service: String,
    result: Bytes,
    /// How long one worker takes for a task at least; none: as fast as they come.
    pace: Option<Duration>,
    /// Results that are still to be brought.
    left: Cell<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [requests, results, service, workers, bytes, tasks] =
        args.get(..6).and_then(|args| args.as_array()).ok_or(USAGE)?;
    let (workers, tasks): (u32, u32) = (workers.parse()?, tasks.parse()?);
    let rate = args.get(6).map(|rate| rate.parse::<f64>()).transpose()?;
    let job = Rc::new(Job {
        requests: requests.clone(),
        results: results.clone(),
        service: service.clone(),
        result: archive(bytes.parse()?)?,
        pace: rate.map(|rate| Duration::from_secs_f64(f64::from(workers) / rate)),
        left: Cell::new(tasks.into()),
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
    println!("{{\"tasks_per_s\":{:.1},\"seconds\":{seconds:.3}}}", f64::from(tasks) / seconds);
    Ok(())
}

/// An archive of about `size` bytes, with a log of two lines.
fn archive(size: usize) -> Result<Bytes, Box<dyn Error>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("cortex.log", SimpleFileOptions::default())?;
    writer.write_all(b"Info:echo:begin nothing to do\nWarning:echo:idle nothing was done\n")?;
    // What the directory and the log take.
    let body = vec![b'x'; size.saturating_sub(400)];
    writer.start_file("body", SimpleFileOptions::default().compression_method(CompressionMethod::Stored))?;
    writer.write_all(&body)?;
    Ok(writer.finish()?.into_inner().into())
}

async fn work(job: Rc<Job>, n: u32) -> Result<(), String> {
    let told = |e: omq_tokio::Error| e.to_string();
    let name = format!("echo:{n}");
    let dealer = Socket::try_new(SocketType::Dealer, Options::new().identity(name.clone())).map_err(told)?;
    let push = Socket::try_new(SocketType::Push, Options::new()).map_err(told)?;
    dealer.connect(job.requests.as_str()).await.map_err(told)?;
    push.connect(job.results.as_str()).await.map_err(told)?;
    let mut paces = job.pace.map(tokio::time::interval);
    while job.left.get() > 0 {
        if let Some(paces) = &mut paces {
            paces.tick().await;
        }
        dealer.send(Message::single(job.service.clone())).await.map_err(told)?;
        // Who is told nothing any more, because the last results are under way elsewhere, is done.
        let answer = match tokio::time::timeout(Duration::from_secs(2), dealer.recv()).await {
            Ok(answer) => answer.map_err(told)?,
            Err(_) => continue,
        };
        let id = answer.part_bytes(0).unwrap_or_default();
        if id == "0" {
            tokio::time::sleep(NAP).await;
            continue;
        }
        let frames = [Bytes::from(name.clone()), Bytes::from(job.service.clone()), id, job.result.clone()];
        push.send(Message::multipart(frames)).await.map_err(told)?;
        job.left.set(job.left.get().saturating_sub(1));
    }
    push.close_with_linger(Some(Duration::from_secs(10))).await.map_err(told)?;
    Ok(())
}
