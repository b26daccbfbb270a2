//! A small proxy between a worker and its dispatcher, which breaks links as a network does.

use rustix::net::sockopt::set_socket_linger;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the links of the moment suffer. Later ones are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They are reset.
    Reset,
    /// They stay and take every byte, and none arrives.
    Silence,
}

/// A listener on a port of its own that passes everything on to one address.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    fault: watch::Sender<Option<Fault>>,
    links: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, faults) = watch::channel(None);
        let links = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&links);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if let Ok(far) = TcpStream::connect(target).await {
                    counted.fetch_add(1, Ordering::Relaxed);
                    // Only faults from now on are this link's.
                    let mut faults = faults.clone();
                    faults.mark_unchanged();
                    tokio::spawn(pass_on(near, far, faults));
                }
            }
        });
        Self { address, fault, links }
    }

    /// Links that were passed on so far.
    pub(crate) fn links(&self) -> usize {
        self.links.load(Ordering::Relaxed)
    }

    pub(crate) fn strike(&self, fault: Fault) {
        self.fault.send_replace(Some(fault));
    }
}

async fn pass_on(mut near: TcpStream, mut far: TcpStream, mut faults: watch::Receiver<Option<Fault>>) {
    let fault = tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => None,
        _ = faults.changed() => *faults.borrow(),
    };
    match fault {
        None => {}
        Some(Fault::Reset) => {
            // Closing with unsent time zero is what a reset is.
            for side in [&near, &far] {
                set_socket_linger(side, Some(Duration::ZERO)).unwrap();
            }
        }
        Some(Fault::Silence) => {
            // Until the worker gives the link up.
            let _ = tokio::io::copy(&mut near, &mut tokio::io::sink()).await;
        }
    }
}
