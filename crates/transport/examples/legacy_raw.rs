//! The limit that the sockets of the legacy wire set alone: a ROUTER that answers each request with a task, and a PULL whose
//! messages are counted.
//!
//! No leases, no logs, no store: what a whole dispatcher does in a second is compared with this. Its workers are those of
//! `legacy_echo`.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use bytes::Bytes;
use dispatcher_core::id::TaskId;
use dispatcher_transport::legacy::{decode_result, encode_task, is_request};
use dispatcher_transport::socket::{
    BackendKind, Endpoint, PullOptions, PullSocket, RouterEvent, RouterOptions, RouterSocket, Sent,
};
use std::error::Error;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: legacy_raw REQUESTS RESULTS BACKEND INPUT_BYTES TASKS, such as: legacy_raw \
                     tcp://127.0.0.1:51695 tcp://127.0.0.1:51696 omq 8192 10000";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [requests, results, backend, input, tasks] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (requests, results): (Endpoint, Endpoint) = (requests.parse()?, results.parse()?);
    let backend: BackendKind = backend.parse()?;
    let (input, tasks) = (Bytes::from(vec![b'i'; input.parse()?]), tasks.parse()?);
    // As in a dispatcher, each socket has a thread.
    let taking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(take(&results, backend, tasks))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&requests, backend, &input, &taking))?;
    let seconds = taking.join().map_err(|_| "a panic")??;
    println!("{tasks} tasks in {seconds:.2} s: {:.0} tasks/s", f64::from(u32::try_from(tasks)?) / seconds);
    Ok(())
}

/// Answers every request until all results have come.
async fn serve<T>(
    endpoint: &Endpoint,
    backend: BackendKind,
    input: &Bytes,
    taking: &std::thread::JoinHandle<T>,
) -> Result<(), Box<dyn Error>> {
    let mut router = RouterSocket::bind(endpoint, RouterOptions { backend, ..RouterOptions::default() }).await?;
    println!("listens at {}", router.endpoint());
    let (mut events, mut next) = (Vec::new(), 0_i64);
    while !taking.is_finished() {
        let _ = tokio::time::timeout(Duration::from_millis(20), router.next_many(&mut events, 64)).await;
        for event in events.drain(..) {
            let RouterEvent::Message { peer, frames } = event else { continue };
            if is_request(&frames) {
                next += 1;
                if router.try_send(peer, encode_task(TaskId(next), input.clone())) != Sent::Sent {
                    return Err("an answer could not be sent".into());
                }
            }
        }
    }
    router.close(Duration::from_millis(200)).await;
    Ok(())
}

/// Counts results; how many seconds they took from the first to the last.
async fn take(endpoint: &Endpoint, backend: BackendKind, tasks: u64) -> Result<f64, String> {
    let options = PullOptions { backend, ..PullOptions::default() };
    let mut pull = PullSocket::bind(endpoint, options).await.map_err(|e| e.to_string())?;
    let mut began = None;
    for _ in 0..tasks {
        let brought = pull.next().await.map_err(|e| e.to_string())?;
        decode_result(brought.frames).map_err(|e| e.to_string())?;
        began.get_or_insert_with(Instant::now);
    }
    let seconds = began.map_or(0.0, |began: Instant| began.elapsed().as_secs_f64());
    pull.close().await;
    Ok(seconds)
}
