//! The only place that calls the implementation's sending functions; `cargo xtask lint` holds every other file to that.
//!
//! Whoever sends to a ROUTER's peer must not wait for that peer, so that one stuck peer cannot hold up the others. Owns
//! the two attempts that answer at once, and the two waits: the one for a ROUTER's peer is polled beside all else and
//! never waited for, the one of a DEALER has one link and a caller that wants to wait.

use bytes::Bytes;
use omq_tokio::{Error, Message, Socket, TrySendError};

/// What became of one attempt.
pub(super) enum Attempt {
    /// It is in the implementation's queue.
    Sent,
    /// The queue is full. The message comes back.
    Full(Message),
    /// There is nobody to send to.
    Gone,
}

/// The message with `frames`.
pub(super) fn message(frames: Vec<Bytes>) -> Message {
    Message::multipart(frames)
}

/// Tries to send to the peer of a ROUTER that has the routing identity `route`.
pub(super) fn to_peer(socket: &Socket, route: &Bytes, message: Message) -> Attempt {
    attempt(socket.try_send_to(route, message))
}

/// Sends to the peer of a ROUTER as soon as there is room. `false` if the peer is gone.
pub(super) async fn to_peer_when_it_reads(socket: Socket, route: Bytes, message: Message) -> bool {
    socket.send_to(route, message).await.is_ok()
}

/// Tries to send over the link of a DEALER.
pub(super) fn over_link(socket: &Socket, message: Message) -> Attempt {
    attempt(socket.try_send(message))
}

/// Sends over the link of a DEALER as soon as there is room. Dropped before that, it has sent nothing.
pub(super) async fn over_link_when_it_takes(socket: &Socket, message: Message) -> Attempt {
    match socket.send(message).await {
        Ok(()) => Attempt::Sent,
        Err(_) => Attempt::Gone,
    }
}

fn attempt(result: Result<(), TrySendError>) -> Attempt {
    match result {
        Ok(()) => Attempt::Sent,
        Err(TrySendError::Full(message)) => Attempt::Full(message),
        Err(TrySendError::Closed | TrySendError::Error(Error::Unroutable | Error::Closed)) => Attempt::Gone,
        Err(TrySendError::Error(error)) => {
            // The others are about the form of a message or about other kinds of sockets.
            tracing::error!(%error, "the socket refuses a message of ours");
            Attempt::Gone
        }
    }
}
