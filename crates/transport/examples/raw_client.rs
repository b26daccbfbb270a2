//! The other half of `raw_router`: DEALERs that ask for tasks and answer each with a result, and nothing else.
//!
//! Each of them has `CREDIT` requests open. They end when the router does.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use bytes::Bytes;
use dispatcher_transport::socket::{BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, Sent};
use std::error::Error;
use std::time::Duration;

const USAGE: &str = "usage: raw_client ENDPOINT BACKEND DEALERS CREDIT RESULT_BYTES, such as: raw_client \
                     ipc:///tmp/raw/s omq 16 8 8192; start raw_router with the same endpoint in another terminal";

/// As long as the mark and the header of a result are.
const HEADER: &[u8] = &[b'h'; 160];
type Failure = Box<dyn Error + Send + Sync>;

const REQUEST: &[u8] = b"ready";
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, backend, dealers, credit, result] = arguments.as_slice() else { return Err(USAGE.into()) };
    let endpoint: Endpoint = endpoint.parse()?;
    let options = DealerOptions { backend: backend.parse()?, ..DealerOptions::default() };
    let (dealers, credit): (usize, usize) = (dealers.parse()?, credit.parse()?);
    let body = Bytes::from(vec![b'r'; result.parse()?]);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let work = |_| tokio::spawn(work(endpoint.clone(), options.clone(), credit, body.clone()));
        let mut done = 0;
        for worker in (0..dealers).map(work).collect::<Vec<_>>() {
            done += worker.await??;
        }
        println!("{done} tasks done by {dealers} dealers over {}", options.backend);
        Ok(())
    })
}

/// Works over one link, until that ends; returns how many results were sent.
async fn work(endpoint: Endpoint, options: DealerOptions, credit: usize, body: Bytes) -> Result<u64, Failure> {
    let backend: BackendKind = options.backend;
    let mut dealer = DealerSocket::connect(&endpoint, options)?;
    let mut done = 0;
    loop {
        let asks = match dealer.next().await? {
            DealerEvent::Connected => credit,
            DealerEvent::Message { .. } => {
                let result = vec![Bytes::from_static(HEADER), body.clone()];
                if dealer.send(result, PATIENCE).await == Sent::Full {
                    return Err(format!("the link over {backend} took nothing for {PATIENCE:?}").into());
                }
                done += 1;
                1
            }
            DealerEvent::Disconnected => return Ok(done),
        };
        for _ in 0..asks {
            // Where the link is gone, its end is told next.
            let _ = dealer.send(vec![Bytes::from_static(REQUEST)], PATIENCE).await;
        }
    }
}
