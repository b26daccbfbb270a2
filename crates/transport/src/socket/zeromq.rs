//! The `zeromq` implementation of the boundary, with its guards.
//!
//! Owns everything that depends on how the crate zeromq behaves; `docs/adr/0003-socket-boundary.md` lists what was seen of
//! it, which guard answers it, and what no guard can answer. [`send`] alone calls its sending functions.
//!
//! The crate has no limits of its own but the sizes of read buffers. So it is for addresses that only this machine can
//! reach, and its limits here are kept after the fact: a message is measured when it is there.

mod dealer;
mod held;
mod pull;
mod router;
mod send;

pub(super) use dealer::ZeromqDealer;
pub(super) use pull::ZeromqPull;
pub(super) use router::ZeromqRouter;

use super::SocketError;
use super::listen::Listener;
use ::zeromq::{MultiPeerBackend, ZmqError};
use bytes::Bytes;
use std::sync::Weak;
use std::time::Duration;
use tokio::time::Instant;

/// How many messages are taken from a socket before other tasks of the thread get their turn: the connections' writers are
/// such tasks.
const BATCH: usize = 64;

/// Below this a frame is copied out: it is a slice of what was read at once, up to 64 KB, which it would keep.
const COPY_BELOW: usize = 32 * 1024;

/// What each frame counts beside its bytes when a message is measured, as the other implementation does.
const FRAME_COST: usize = 64;

/// How often it is looked whether a closed socket has written everything: nothing tells.
const FLUSH_LOOK: Duration = Duration::from_millis(1);

/// A received frame, on its own where it is short.
fn kept(frame: Bytes) -> Bytes {
    if frame.len() < COPY_BELOW { Bytes::copy_from_slice(&frame) } else { frame }
}

/// Whether a message is longer than a message may be.
fn too_long(frames: &[Bytes], max_message: usize, max_frames: usize) -> bool {
    let size = frames.iter().fold(0_usize, |sum, frame| sum.saturating_add(frame.len() + FRAME_COST));
    size > max_message.saturating_add(max_frames.saturating_mul(FRAME_COST))
}

fn theirs(listener: Listener) -> ::zeromq::Listener {
    match listener {
        Listener::Tcp(listener) => listener.into(),
        Listener::Ipc(listener) => listener.into(),
    }
}

fn refused(what: &'static str, error: &ZmqError) -> SocketError {
    SocketError::Refused { what, why: error.to_string() }
}

/// Waits until the tasks of a dropped socket have written what they had, at most until `end`.
///
/// Each of them holds the socket's inside until it is done.
async fn flushed(inside: Weak<dyn MultiPeerBackend>, end: Instant) {
    while inside.strong_count() > 0 && Instant::now() < end {
        tokio::time::sleep(FLUSH_LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_functions_are_called_in_one_file() {
        let elsewhere = [
            include_str!("zeromq.rs"),
            include_str!("zeromq/router.rs"),
            include_str!("zeromq/dealer.rs"),
            include_str!("zeromq/pull.rs"),
        ];
        for source in elsewhere {
            let product = source.split("#[cfg(test)]").next().unwrap_or_default();
            for name in ["SocketSend", "prelude", "socket.send", ".split()"] {
                assert!(!product.contains(name), "{name} outside of send.rs");
            }
        }
    }

    #[test]
    fn a_message_is_measured_with_all_its_frames_empty_ones_too() {
        let message = |frames: usize, each: usize| vec![Bytes::from(vec![0; each]); frames];
        assert!(!too_long(&message(2, 500), 1_000, 2));
        assert!(too_long(&message(2, 501), 1_000, 2));
        assert!(too_long(&message(100, 0), 1_000, 2));
    }

    #[test]
    fn a_short_frame_does_not_keep_what_was_read_with_it() {
        let read = Bytes::from(vec![1; 64 * 1024]);
        let lies_within = |frame: &Bytes| read.as_ptr_range().contains(&frame.as_ptr());
        assert!(!lies_within(&kept(read.slice(..COPY_BELOW - 1))) && lies_within(&kept(read.slice(..COPY_BELOW))));
    }
}
