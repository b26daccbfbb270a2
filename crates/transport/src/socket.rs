//! The socket boundary: a ROUTER and a PULL for the dispatcher, a DEALER for a worker, and the events of their peers.
//!
//! Owns where sockets may listen ([`Endpoint`]), the guards around the ZeroMQ implementation, and the promise about the
//! order of events. Refuses to know what is in a message. Nothing above this module knows which implementation runs:
//! there are `omq` and `zeromq`, chosen by [`BackendKind`], and in each of them `send.rs` is the only place that calls
//! the crate's sending functions.
//!
//! **Invariants**
//! - A [`PeerId`] names one connection and is never used again by its socket.
//! - [`RouterEvent::Arrived`] comes before the first message of its peer; exactly one [`RouterEvent::Departed`] follows
//!   it, after all messages that were received from that peer.
//! - [`RouterSocket::try_send`] never waits, whatever its peer does; a peer that does not read is told apart from the
//!   others by [`Sent::Full`].
//! - Every wait of this module may be dropped at any moment and nothing is lost by it.
//!
//! Sockets live on the caller's Tokio runtime; a current-thread one is what they are made for.

mod backend;
mod backlog;
mod budget;
mod dealer;
mod endpoint;
mod ipc;
mod listen;
mod omq;
mod peers;
mod pull;
mod room;
mod router;
mod zeromq;

pub use backend::{BackendKind, UnknownBackend};
pub use dealer::{DealerEvent, DealerOptions, DealerSocket};
pub use dispatcher_core::session::PeerId;
pub use endpoint::{Endpoint, EndpointError};
pub use pull::{Brought, PullOptions, PullSocket};
pub use room::Held;
pub use router::{RouterEvent, RouterOptions, RouterSocket, RouterStats};

use std::path::PathBuf;

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that was not sent has to be undone (rule L9)"]
pub enum Sent {
    /// It is on its way. It may still be lost with its connection.
    Sent,
    /// The peer has not taken what it was sent before, and there is no room for more.
    Full,
    /// There is no such peer, or no longer.
    Gone,
}

/// Why a socket cannot be had or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody else listens there.
    #[error("{endpoint} is in use: {why}")]
    InUse {
        /// Where.
        endpoint: Endpoint,
        /// How that is known.
        why: String,
    },
    /// The folder of an `ipc://` socket would let other users in, or is none.
    #[error("{path}: {why}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A file operation failed.
    #[error("{what} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The ZeroMQ implementation refuses.
    #[error("{what}: {why}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What it says.
        why: String,
    },
    /// The socket is closed.
    #[error("the socket is closed")]
    Closed,
}
