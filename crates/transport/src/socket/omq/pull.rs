//! A PULL over omq's codec.
//!
//! Owns where it listens, its connections, and the short queue through which their messages come. The socket that the
//! implementation has holds a whole message for each connection, however many there are, and has no way to make one wait in
//! the middle. So its codec alone is used, on connections of our own (`link.rs`), which all share one room (`room.rs`).

mod frames;
mod link;
mod pace;

use self::frames::FRAME_COST;
use self::link::{Link, Port};
use crate::socket::ipc::Claim;
use crate::socket::listen::{Listening, listen};
use crate::socket::room::Room;
use crate::socket::{Brought, Endpoint, PullOptions, SocketError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::{JoinHandle, JoinSet};

/// Whole messages that wait to be taken, all connections together. Their bytes are counted elsewhere.
const WAITING: usize = 64;
/// How long it waits before it tries again to accept.
const PAUSE: Duration = Duration::from_millis(50);

pub(in crate::socket) struct OmqPull {
    endpoint: Endpoint,
    messages: Receiver<Brought>,
    accepting: JoinHandle<()>,
    /// Last, so that the path is given up after the socket.
    _claim: Option<Claim>,
}

/// A socket that listens.
enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

/// A stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How many connections there may be.
struct Places {
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
}

impl OmqPull {
    pub(in crate::socket) async fn bind(endpoint: &Endpoint, options: &PullOptions) -> Result<Self, SocketError> {
        let Listening { listener, claim, endpoint } = listen(endpoint, options.keep_alive).await?;
        let listener =
            Listener::new(listener).map_err(|e| SocketError::Refused { what: "cannot listen", why: e.to_string() })?;
        let (sender, messages) = mpsc::channel(WAITING);
        let port = Port {
            max_message: options.max_message.saturating_add(options.max_frames.saturating_mul(FRAME_COST)),
            handshake: options.handshake,
            room: Room::new(options.held_max),
            messages: sender,
        };
        let places = Places {
            connections: Arc::new(Semaphore::new(options.max_connections)),
            handshakes: Arc::new(Semaphore::new(options.max_handshakes)),
        };
        let accepting = tokio::spawn(accept_all(listener, Arc::new(port), places));
        Ok(Self { endpoint, messages, accepting, _claim: claim })
    }

    pub(in crate::socket) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(in crate::socket) async fn next(&mut self) -> Result<Brought, SocketError> {
        self.messages.recv().await.ok_or(SocketError::Closed)
    }

    pub(in crate::socket) async fn close(self: Box<Self>) {
        self.accepting.abort();
        // It was cancelled; its connections end with it.
        let _ = self.accepting.await;
        if let Some(path) = self.endpoint.path() {
            // Where it cannot be removed, the next one to listen there replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves whoever comes. Where it ends, its connections do.
async fn accept_all(listener: Listener, port: Arc<Port>, places: Places) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(stream) => {
                let place = Arc::clone(&places.connections).try_acquire_owned();
                let handshake = Arc::clone(&places.handshakes).try_acquire_owned();
                let (Ok(place), Ok(handshake)) = (place, handshake) else {
                    tracing::debug!("too many connections that bring results: one was closed");
                    continue;
                };
                let port = Arc::clone(&port);
                connections.spawn(async move {
                    let mut link = Link::new(stream, &port);
                    let shaken = link.shake_hands().await;
                    drop(handshake);
                    let end = match shaken {
                        Ok(()) => link.bring().await,
                        refused => refused,
                    };
                    if let Err(why) = end {
                        tracing::debug!("a connection that brought results ended: {why}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Listener {
    /// On the current runtime.
    fn new(listener: crate::socket::listen::Listener) -> io::Result<Self> {
        match listener {
            crate::socket::listen::Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            crate::socket::listen::Listener::Ipc(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Self::Ipc)
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Ipc(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

impl std::fmt::Debug for OmqPull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OmqPull").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
