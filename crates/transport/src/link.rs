//! Messages of both wires over the sockets: the codecs and the boundary put together.
//!
//! Owns what both need to know of each other: that a `want` lets the wanted bytes come on top of what its worker may send
//! of its own accord.

use crate::codec::{encode_from_worker, encode_to_worker};
use crate::limits::MAX_HEADER;
use crate::socket::{DealerSocket, PeerId, RouterSocket, Sent};
use bytes::Bytes;
use dispatcher_core::wire::{FromWorker, ToWorker};

/// Sends `message` with `bodies` to the worker at `peer`, or says at once why not.
pub fn send_to_worker(router: &mut RouterSocket, peer: PeerId, message: &ToWorker, bodies: &[Bytes]) -> Sent {
    if let ToWorker::Want { length, .. } = message {
        router.expect(peer, length.saturating_add(MAX_HEADER as u64));
    }
    router.try_send(peer, encode_to_worker(message, bodies))
}

/// Sends `frames` of the legacy wire to the worker at `peer`, or says at once why not.
pub fn send_legacy(router: &mut RouterSocket, peer: PeerId, frames: Vec<Bytes>) -> Sent {
    router.try_send(peer, frames)
}

/// Sends `message` with `bodies` to the dispatcher, or says at once why not.
pub fn send_from_worker(dealer: &mut DealerSocket, message: &FromWorker, bodies: &[Bytes]) -> Sent {
    dealer.try_send(encode_from_worker(message, bodies))
}
