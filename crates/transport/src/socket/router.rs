//! The dispatcher's side: a ROUTER with its peers, whichever implementation runs below.

use super::listen;
use super::omq::OmqRouter;
use super::zeromq::ZeromqRouter;
use super::{BackendKind, Endpoint, PeerId, Sent, SocketError};
use crate::limits::{MAX_FRAMES, MAX_MESSAGE};
use bytes::Bytes;
use std::time::Duration;

/// How many connections may be had, however few files may be open.
const LEAST_CONNECTIONS: usize = 16;

/// What happens at a ROUTER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// A peer is connected. It comes before the peer's first message.
    Arrived {
        /// The peer.
        peer: PeerId,
    },
    /// A message.
    Message {
        /// From whom.
        peer: PeerId,
        /// Its frames, without the routing identity. Nothing of them was looked at.
        frames: Vec<Bytes>,
    },
    /// A peer is gone. It comes after all messages that were received from it, and once for each arrival.
    Departed {
        /// The peer.
        peer: PeerId,
    },
}

/// The limits of a ROUTER.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Which implementation runs. Not all of them keep every limit below; `docs/adr/0003-socket-boundary.md` has the list.
    pub backend: BackendKind,
    /// The most frames that a message has. It counts for the size only: each costs 64 bytes beside its own.
    pub max_frames: usize,
    /// The most bytes that a message has. Who announces more is cut off before any of it is held.
    pub max_message: usize,
    /// The most connections at once. One more is closed as soon as it is known, and may try again.
    ///
    /// The limit of open files may make it less: a quarter of that is left for files.
    pub max_connections: usize,
    /// How many handshakes may be under way at once.
    pub max_handshakes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How many bytes a peer may send at once; who sends more is cut off.
    pub burst_bytes: u64,
    /// How many bytes of that come back each second.
    ///
    /// What was asked for ([`RouterSocket::expect`]) comes on top, so no worker has a reason to send as much.
    pub bytes_per_second: u64,
    /// How many bytes may wait for one peer. A hundred inputs that travel inside their task are less.
    pub backlog_each: usize,
    /// How many bytes may wait for all peers together.
    pub backlog_all: usize,
    /// After how much silence the system asks whether a peer is still there (rule W6); `None`: as the system has it.
    pub keep_alive: Option<Duration>,
    /// For how long a bind is tried again while somebody else listens there.
    pub bind_patience: Duration,
}

/// What a ROUTER has seen, for numbers and for log lines (rule G3). Counts never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Peers that are connected now. This one does fall.
    pub connections: usize,
    /// Peers that were turned away because there were too many.
    pub turned_away: u64,
    /// Peers that were cut off because they sent more than they may.
    pub over_allowance: u64,
}

/// A ROUTER: listens, and knows its peers apart.
///
/// Its events have to be taken all the time ([`RouterSocket::next_many`]), also by who only wants to send: sockets make
/// progress while it is waited for them. Dropping it closes it without waiting for what is still to be sent.
#[derive(Debug)]
pub struct RouterSocket {
    backend: Backend,
}

/// The implementations, chosen by [`RouterOptions::backend`].
#[derive(Debug)]
enum Backend {
    Omq(Box<OmqRouter>),
    Zeromq(Box<ZeromqRouter>),
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            backend: BackendKind::default(),
            max_frames: MAX_FRAMES,
            max_message: MAX_MESSAGE,
            max_connections: 4_096,
            max_handshakes: 1_024,
            handshake: Duration::from_secs(4),
            burst_bytes: 256 * 1024 * 1024,
            bytes_per_second: 256 * 1024 * 1024,
            backlog_each: 8 * 1024 * 1024,
            backlog_all: 64 * 1024 * 1024,
            keep_alive: None,
            bind_patience: Duration::from_secs(5),
        }
    }
}

impl RouterOptions {
    /// Keeps the connections, and the handshakes on their way to become some, within three quarters of the open files
    /// that the system allows: at the limit, neither files nor the database could be opened any more.
    pub(super) fn within_open_files(mut self) -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
        self.max_connections = self.max_connections.min((files / 2).max(LEAST_CONNECTIONS));
        self.max_handshakes = self.max_handshakes.min((files / 4).max(LEAST_CONNECTIONS));
        self
    }
}

impl RouterSocket {
    /// Listens at `endpoint`. Must be called within a Tokio runtime, on which the socket then lives.
    ///
    /// An `ipc://` socket is bound in a folder that only its owner can enter (made if missing), under a lock file beside
    /// it, and only after a look whether somebody listens there: a live server's socket is never removed.
    ///
    /// # Errors
    /// [`SocketError::InUse`] when `bind_patience` is spent, [`SocketError::Folder`], [`SocketError::File`], or
    /// [`SocketError::Refused`].
    pub async fn bind(endpoint: &Endpoint, options: RouterOptions) -> Result<Self, SocketError> {
        options.backend.may_use(endpoint)?;
        let options = options.within_open_files();
        let backend = listen::patiently(options.bind_patience, async || {
            Ok(match options.backend {
                BackendKind::Omq => Backend::Omq(Box::new(OmqRouter::bind(endpoint, &options).await?)),
                BackendKind::Zeromq => Backend::Zeromq(Box::new(ZeromqRouter::bind(endpoint, &options).await?)),
            })
        });
        Ok(Self { backend: backend.await? })
    }

    /// Where it listens: as given, with the port that the system chose.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        match &self.backend {
            Backend::Omq(router) => router.endpoint(),
            Backend::Zeromq(router) => router.endpoint(),
        }
    }

    /// Appends up to `max` events to `out` and says how many; it waits for the first only. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// [`SocketError::Closed`] when the socket died; there is nothing to wait for then.
    pub async fn next_many(&mut self, out: &mut Vec<RouterEvent>, max: usize) -> Result<usize, SocketError> {
        match &mut self.backend {
            Backend::Omq(router) => router.next_many(out, max).await,
            Backend::Zeromq(router) => router.next_many(out, max).await,
        }
    }

    /// Waits for the next event. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// Those of [`Self::next_many`].
    pub async fn next(&mut self) -> Result<RouterEvent, SocketError> {
        match &mut self.backend {
            Backend::Omq(router) => router.next().await,
            Backend::Zeromq(router) => router.next().await,
        }
    }

    /// Sends `frames` to `peer`, or says at once why not.
    ///
    /// [`Sent::Full`] means that `backlog_each` bytes wait for this peer already, or `backlog_all` for all of them: it
    /// has not read for a while.
    pub fn try_send(&mut self, peer: PeerId, frames: Vec<Bytes>) -> Sent {
        match &mut self.backend {
            Backend::Omq(router) => router.try_send(peer, frames),
            Backend::Zeromq(router) => router.try_send(peer, frames),
        }
    }

    /// The routing identity of `peer`: the one that it chose, or else one that was made up. It is a label, not a proof.
    #[must_use]
    pub fn identity(&self, peer: PeerId) -> Option<&Bytes> {
        match &self.backend {
            Backend::Omq(router) => router.identity(peer),
            Backend::Zeromq(router) => router.identity(peer),
        }
    }

    /// Lets `bytes` more come from `peer` than it may send of its own accord: they were asked for.
    pub fn expect(&mut self, peer: PeerId, bytes: u64) {
        match &mut self.backend {
            Backend::Omq(router) => router.expect(peer, bytes),
            Backend::Zeromq(router) => router.expect(peer, bytes),
        }
    }

    /// Closes the connection of `peer`. What waits for it is dropped, nothing more of it is told but its departure.
    pub fn disconnect(&mut self, peer: PeerId) {
        match &mut self.backend {
            Backend::Omq(router) => router.disconnect(peer),
            Backend::Zeromq(router) => router.disconnect(peer),
        }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        match &self.backend {
            Backend::Omq(router) => router.stats(),
            Backend::Zeromq(router) => router.stats(),
        }
    }

    /// Stops listening, waits up to `linger` until all that was to be sent has left, and closes every connection.
    pub async fn close(self, linger: Duration) {
        match self.backend {
            Backend::Omq(router) => router.close(linger).await,
            Backend::Zeromq(router) => router.close(linger).await,
        }
    }
}
