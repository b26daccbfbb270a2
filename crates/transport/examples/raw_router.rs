//! The limit that the sockets alone set: a ROUTER that answers each request with a task, and counts results.
//!
//! No JSON, no leases, no store: what a whole dispatcher does in a second is compared with this. Its other half is
//! `raw_client`. A message of one frame is a request; it is answered with a header frame and a body. A longer one is a
//! result, and counted.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use bytes::Bytes;
use dispatcher_transport::socket::{BackendKind, Endpoint, RouterEvent, RouterOptions, RouterSocket, Sent};
use std::error::Error;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: raw_router ENDPOINT BACKEND REPLY_BYTES TASKS, such as: raw_router ipc:///tmp/raw/s omq 8192 \
                     100000; start raw_client with the same endpoint in another terminal";

/// As long as the mark and the header of a task are.
const HEADER: &[u8] = &[b'h'; 160];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, backend, reply, tasks] = arguments.as_slice() else { return Err(USAGE.into()) };
    let endpoint: Endpoint = endpoint.parse()?;
    let backend: BackendKind = backend.parse()?;
    let body = Bytes::from(vec![b'b'; reply.parse()?]);
    let tasks: u64 = tasks.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(&endpoint, backend, body, tasks))
}

/// Serves until `tasks` results have come, and says how fast that was.
async fn serve(endpoint: &Endpoint, backend: BackendKind, body: Bytes, tasks: u64) -> Result<(), Box<dyn Error>> {
    let mut router = RouterSocket::bind(endpoint, RouterOptions { backend, ..RouterOptions::default() }).await?;
    println!("{backend} listens at {}", router.endpoint());
    let (mut results, mut unsent, mut most_peers) = (0_u64, 0_u64, 0);
    let mut began = None;
    let mut events = Vec::new();
    while results < tasks {
        router.next_many(&mut events, 64).await?;
        for event in events.drain(..) {
            let RouterEvent::Message { peer, frames } = event else { continue };
            if frames.len() > 1 {
                results += 1;
            } else {
                began.get_or_insert_with(Instant::now);
                let task = vec![Bytes::from_static(HEADER), body.clone()];
                unsent += u64::from(router.try_send(peer, task) != Sent::Sent);
            }
        }
        most_peers = most_peers.max(router.stats().connections);
    }
    let took = began.map_or(Duration::ZERO, |began| began.elapsed());
    println!(
        "{results} tasks of {} bytes with {most_peers} peers in {:.2} s: {:.0} tasks/s; {unsent} could not be sent",
        body.len(),
        took.as_secs_f64(),
        results as f64 / took.as_secs_f64(),
    );
    router.close(Duration::from_millis(200)).await;
    Ok(())
}
