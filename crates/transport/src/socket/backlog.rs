//! What waits for a peer that is about to take it. Pure.
//!
//! The implementation's own queue is a handful of messages, so that a stuck peer holds little; one turn of the dispatcher
//! may have a hundred for a healthy peer. Owns the queue between the two, bounded for each peer and over all of them.

use bytes::Bytes;
use std::collections::VecDeque;

/// What one message costs beside its bytes.
const MESSAGE_COST: usize = 256;

/// The messages that wait for one peer.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<Vec<Bytes>>,
    bytes: usize,
}

/// How much may wait, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// For one peer.
    pub(super) each: usize,
    /// For all peers together.
    pub(super) all: usize,
}

impl Backlog {
    /// Appends `frames` if there is room for them, here and in `total`, the bytes that wait for all peers together.
    pub(super) fn push(&mut self, frames: Vec<Bytes>, room: Room, total: &mut usize) -> bool {
        let cost = cost(&frames);
        if self.bytes.saturating_add(cost) > room.each || total.saturating_add(cost) > room.all {
            return false;
        }
        self.bytes += cost;
        *total += cost;
        self.waiting.push_back(frames);
        true
    }

    /// Takes the oldest message out.
    pub(super) fn pop(&mut self, total: &mut usize) -> Option<Vec<Bytes>> {
        let frames = self.waiting.pop_front()?;
        let cost = cost(&frames);
        self.bytes = self.bytes.saturating_sub(cost);
        *total = total.saturating_sub(cost);
        Some(frames)
    }

    /// Forgets everything: the peer is gone.
    pub(super) fn clear(&mut self, total: &mut usize) {
        *total = total.saturating_sub(self.bytes);
        self.bytes = 0;
        self.waiting = VecDeque::new();
    }
}

fn cost(frames: &[Bytes]) -> usize {
    frames.iter().fold(MESSAGE_COST, |sum, frame| sum.saturating_add(frame.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { each: 1_000, all: 1_500 };

    fn message() -> Vec<Bytes> {
        vec![Bytes::from_static(&[7; 144]), Bytes::from_static(&[8; 100])] // 500 with its cost
    }

    #[test]
    fn a_backlog_is_bounded_for_each_peer_and_over_all() {
        let (mut one, mut two, mut total) = (Backlog::default(), Backlog::default(), 0);
        assert!(one.push(message(), ROOM, &mut total) && one.push(message(), ROOM, &mut total));
        assert!(!one.push(message(), ROOM, &mut total), "this peer has its share");
        assert!(two.push(message(), ROOM, &mut total));
        assert!(!two.push(message(), ROOM, &mut total), "all of them have theirs");
        assert_eq!(one.pop(&mut total), Some(message()));
        assert!(two.push(message(), ROOM, &mut total));
        two.clear(&mut total);
        assert_eq!(total, 500);
        assert!(two.pop(&mut total).is_none() && one.pop(&mut total).is_some());
    }
}
