//! The socket on which results of the legacy wire come: a PULL, whichever implementation runs below.

use super::listen;
use super::omq::OmqPull;
use super::room::Held;
use super::zeromq::ZeromqPull;
use super::{BackendKind, Endpoint, SocketError};
use bytes::Bytes;
use std::time::Duration;

/// The limits of a PULL.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Which implementation runs. Not all of them keep every limit below; `docs/adr/0003-socket-boundary.md` has the list.
    pub backend: BackendKind,
    /// The most bytes that a message has. Who announces more is cut off; what a connection costs is bounded by it.
    pub max_message: usize,
    /// The most frames that a message has. It counts for the size only: each costs 64 bytes beside its own.
    pub max_frames: usize,
    /// How many bytes of messages are held at once, from their arrival until they are dropped with their [`Held`], and beside
    /// what each connection may have of an unfinished one (16 KB). A single message may go beyond it.
    pub held_max: usize,
    /// The most connections at once; more are closed as soon as they are seen.
    pub max_connections: usize,
    /// How many handshakes may be under way at once.
    pub max_handshakes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// After how much silence the system asks whether a peer is still there (rule W6); `None`: as the system has it.
    pub keep_alive: Option<Duration>,
    /// For how long a bind is tried again while somebody else listens there.
    pub bind_patience: Duration,
}

/// A message, and its place among the bytes that may be held.
#[derive(Debug)]
pub struct Brought {
    /// Its frames. Nothing of them was looked at.
    pub frames: Vec<Bytes>,
    /// Keep it as long as the bytes.
    pub held: Held,
}

/// A PULL: listens, and gives one message after the other. Who does not take them, or keeps their places, makes the senders
/// wait: what is held is bounded, whatever is announced and by however many. A sender that has a place which others wait
/// for, and brings next to nothing for 10 s, is cut off.
///
/// It has no heartbeats of its own: a peer that is only waited for would lose what it had sent. It answers those of others.
#[derive(Debug)]
pub struct PullSocket {
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Omq(Box<OmqPull>),
    Zeromq(Box<ZeromqPull>),
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            backend: BackendKind::default(),
            max_message: 64 * 1024 * 1024,
            max_frames: 4096,
            held_max: 32 * 1024 * 1024,
            max_connections: 4_096,
            max_handshakes: 1_024,
            handshake: Duration::from_secs(4),
            keep_alive: None,
            bind_patience: Duration::from_secs(5),
        }
    }
}

impl PullSocket {
    /// Listens at `endpoint`. Must be called within a Tokio runtime, on which the socket then lives.
    ///
    /// # Errors
    /// Those of [`super::RouterSocket::bind`].
    pub async fn bind(endpoint: &Endpoint, options: PullOptions) -> Result<Self, SocketError> {
        options.backend.may_use(endpoint)?;
        let options = options.within_open_files();
        let backend = listen::patiently(options.bind_patience, async || {
            Ok(match options.backend {
                BackendKind::Omq => Backend::Omq(Box::new(OmqPull::bind(endpoint, &options).await?)),
                BackendKind::Zeromq => Backend::Zeromq(Box::new(ZeromqPull::bind(endpoint, &options).await?)),
            })
        });
        Ok(Self { backend: backend.await? })
    }

    /// Where it listens: as given, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        match &self.backend {
            Backend::Omq(pull) => pull.endpoint(),
            Backend::Zeromq(pull) => pull.endpoint(),
        }
    }

    /// Waits for the next message. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// [`SocketError::Closed`] when the socket died; there is nothing to wait for then.
    pub async fn next(&mut self) -> Result<Brought, SocketError> {
        match &mut self.backend {
            Backend::Omq(pull) => pull.next().await,
            Backend::Zeromq(pull) => pull.next().await,
        }
    }

    /// Stops listening and closes every connection.
    pub async fn close(self) {
        match self.backend {
            Backend::Omq(pull) => pull.close().await,
            Backend::Zeromq(pull) => pull.close().await,
        }
    }
}

impl PullOptions {
    /// Keeps the connections within a quarter of the open files that the system allows, beside those of the ROUTER.
    pub(super) fn within_open_files(mut self) -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
        self.max_connections = self.max_connections.min((files / 4).max(16));
        self.max_handshakes = self.max_handshakes.min((files / 8).max(16));
        self
    }
}
