//! The only place that calls the implementation's sending functions; `cargo xtask lint` holds every other file to that.
//!
//! They wait where a queue is full, with the table of peers locked. So each is polled once and never waited for: the
//! queues are far longer than what [`super::held`] lets into them, and a message that still finds one full is dropped.

use ::zeromq::{DealerSocket, RouterSocket, SocketSend, ZmqError, ZmqMessage};
use bytes::Bytes;
use futures_util::FutureExt;

/// What became of one attempt.
pub(super) enum Attempt {
    /// It is in the implementation's queue.
    Sent,
    /// The queue is full.
    Full,
    /// There is nobody to send to.
    Gone,
}

/// Tries to send to the peer of a ROUTER that has the routing identity `route`.
pub(super) fn to_peer(socket: &mut RouterSocket, route: &Bytes, frames: Vec<Bytes>) -> Attempt {
    let Ok(mut message) = ZmqMessage::try_from(frames) else { return no_frame() };
    message.push_front(route.clone());
    attempt(socket.send(message).now_or_never())
}

/// Tries to send over the link of a DEALER.
pub(super) fn over_link(socket: &mut DealerSocket, frames: Vec<Bytes>) -> Attempt {
    let Ok(message) = ZmqMessage::try_from(frames) else { return no_frame() };
    attempt(socket.send(message).now_or_never())
}

fn attempt(polled_once: Option<Result<(), ZmqError>>) -> Attempt {
    match polled_once {
        Some(Ok(())) => Attempt::Sent,
        Some(Err(error)) => {
            tracing::debug!(%error, "nobody to send to");
            Attempt::Gone
        }
        None => Attempt::Full,
    }
}

fn no_frame() -> Attempt {
    tracing::error!("a message of ours without a frame");
    Attempt::Gone
}
