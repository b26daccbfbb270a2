//! The `omq` implementation of the boundary, with its guards.
//!
//! Owns everything that depends on how omq-tokio behaves; `docs/adr/0003-socket-boundary.md` lists what was seen of it and
//! which guard answers it. [`send`] alone calls its sending functions.

mod dealer;
mod pull;
mod router;
mod send;

pub(super) use dealer::OmqDealer;
pub(super) use pull::OmqPull;
pub(super) use router::OmqRouter;

use super::endpoint::Place;
use super::{Endpoint, SocketError};
use bytes::Bytes;
use omq_proto::endpoint::Host;
use omq_tokio::{Endpoint as OmqEndpoint, Error, IpcPath, Message, Options, Payload};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// How many messages the implementation queues for one peer. Few, so that a stuck peer holds little; what a turn of the
/// dispatcher has beyond that waits in our own queue, which counts bytes.
const SEND_HWM: u32 = 8;

/// How many received messages the implementation queues for us, all peers together.
const RECV_HWM: u32 = 64;

/// How many messages are taken from a socket at once, and how many may be before other tasks of the thread get their
/// turn: the connections themselves are such tasks.
const BATCH: usize = 64;

/// Below this a frame is copied out. A received frame keeps the 128 KB chunk it lies in, so a short one that is kept
/// would cost many times its size; a longer one at most four times.
const COPY_BELOW: usize = 32 * 1024;

/// The options that both sockets share: a message's size, counted as the implementation does, and small queues.
///
/// The path for large messages is off: it keeps up to 64 MB of buffers with a connection.
fn options(max_message: usize, max_frames: usize) -> Options {
    let slots = max_frames.saturating_mul(size_of::<Payload>());
    Options::new()
        .max_message_size(max_message.saturating_add(slots))
        .disable_large_message_path()
        .send_hwm(SEND_HWM)
        .recv_hwm(RECV_HWM)
}

fn to_omq(endpoint: &Endpoint) -> OmqEndpoint {
    match endpoint.place() {
        Place::Ipc(path) => OmqEndpoint::Ipc(IpcPath::Filesystem(path.clone())),
        Place::Tcp(address) => OmqEndpoint::Tcp { host: Host::Ip(address.ip()), port: address.port() },
    }
}

/// `asked` with the port that `got` has.
fn resolved(asked: &Endpoint, got: &OmqEndpoint) -> Endpoint {
    if let (Place::Tcp(address), OmqEndpoint::Tcp { port, .. }) = (asked.place(), got) {
        return Endpoint::tcp(SocketAddr::new(address.ip(), *port)).unwrap_or_else(|_| asked.clone());
    }
    asked.clone()
}

/// The frames of a received message, the short ones copied out.
fn frames(message: &Message) -> Vec<Bytes> {
    (0..message.len())
        .map(|index| match message.part_slice(index) {
            Some(frame) if frame.len() < COPY_BELOW => Bytes::copy_from_slice(frame),
            _ => message.part_bytes(index).unwrap_or_default(),
        })
        .collect()
}

fn refused(what: &'static str, error: &Error) -> SocketError {
    match error {
        Error::Closed => SocketError::Closed,
        _ => SocketError::Refused { what, why: error.to_string() },
    }
}

/// What a bind's failure means.
fn bind_error(endpoint: &Endpoint, error: &Error) -> SocketError {
    match error {
        Error::Io(e) if e.kind() == ErrorKind::AddrInUse => {
            SocketError::InUse { endpoint: endpoint.clone(), why: "another socket listens there".to_owned() }
        }
        _ => refused("cannot listen", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_functions_are_called_in_one_file() {
        let elsewhere = [
            include_str!("omq.rs"),
            include_str!("omq/router.rs"),
            include_str!("omq/dealer.rs"),
            include_str!("omq/pull.rs"),
            include_str!("omq/pull/link.rs"),
            include_str!("omq/pull/frames.rs"),
            include_str!("omq/pull/pace.rs"),
        ];
        for source in elsewhere {
            let product = source.split("#[cfg(test)]").next().unwrap_or_default();
            for call in ["socket.send", "socket.try_send", "send_to(", "send_many(", ".sink("] {
                assert!(!product.contains(call), "{call} outside of send.rs");
            }
        }
    }

    #[test]
    fn a_short_frame_does_not_keep_the_chunk_that_it_came_in() {
        let chunk = Bytes::from(vec![1; 128 * 1024]);
        let lies_within = |frame: &Bytes| chunk.as_ptr_range().contains(&frame.as_ptr());
        let message =
            Message::multipart([chunk.slice(..1_000), chunk.slice(1_000..1_000 + COPY_BELOW), chunk.slice(9..9)]);
        let frames = frames(&message);
        assert_eq!(frames.iter().map(Bytes::len).collect::<Vec<_>>(), [1_000, COPY_BELOW, 0]);
        assert!(!lies_within(&frames[0]) && lies_within(&frames[1]), "a long one is not copied");
    }
}
