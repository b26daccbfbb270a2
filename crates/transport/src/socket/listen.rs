//! Where sockets listen that are made here and handed to an implementation.
//!
//! Owns the listening sockets: so a path is claimed first, and what an implementation has no option for is set on them.
//! Connections inherit it.

use super::endpoint::Place;
use super::ipc::{self, Claim};
use super::{Endpoint, SocketError};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it waits before it tries again to bind.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens, and blocks.
pub(super) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

/// A place that was taken.
pub(super) struct Listening {
    pub(super) listener: Listener,
    pub(super) claim: Option<Claim>,
    /// As asked for, with the port that the system chose.
    pub(super) endpoint: Endpoint,
}

/// Binds as soon as the address is free: who had it before may need a moment to be gone.
pub(super) async fn patiently<T>(
    patience: Duration,
    bind: impl AsyncFn() -> Result<T, SocketError>,
) -> Result<T, SocketError> {
    let until = Instant::now() + patience;
    loop {
        match bind().await {
            Err(SocketError::InUse { .. }) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
}

/// Listens at `endpoint`; connections are probed after the silence of `keep_alive` (rule W6).
pub(super) async fn listen(endpoint: &Endpoint, keep_alive: Option<Duration>) -> Result<Listening, SocketError> {
    match endpoint.place() {
        Place::Ipc(path) => {
            let claim = ipc::claim(path, endpoint).await?;
            let listener = replace(path).map_err(|e| bind_error(endpoint, &e))?;
            Ok(Listening { listener: Listener::Ipc(listener), claim: Some(claim), endpoint: endpoint.clone() })
        }
        Place::Tcp(address) => {
            let (listener, got) = bind(*address, keep_alive).map_err(|e| bind_error(endpoint, &e))?;
            let endpoint = Endpoint::tcp(got).unwrap_or_else(|_| endpoint.clone());
            Ok(Listening { listener: Listener::Tcp(listener), claim: None, endpoint })
        }
    }
}

/// Binds `path`, and removes the socket that a dead server left there. The path is claimed, so that nobody lives there.
fn replace(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

fn bind(address: SocketAddr, keep_alive: Option<Duration>) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    if let Some(idle) = keep_alive {
        let probes = TcpKeepalive::new().with_time(idle).with_interval(Duration::from_secs(30)).with_retries(4);
        SockRef::from(&listener).set_tcp_keepalive(&probes)?;
    }
    let got = listener.local_addr()?;
    Ok((listener, got))
}

/// What a bind's failure means.
fn bind_error(endpoint: &Endpoint, error: &io::Error) -> SocketError {
    if error.kind() == ErrorKind::AddrInUse {
        return SocketError::InUse { endpoint: endpoint.clone(), why: "another socket listens there".to_owned() };
    }
    SocketError::Refused { what: "cannot listen", why: error.to_string() }
}
