//! How many bytes the implementation holds for its peers. Pure, but for a wake-up.
//!
//! The implementation queues 100,000 messages of any size for each peer and tells nobody how many there are. But it drops
//! a message as soon as it is written into the connection's buffer, and a message of ours notices: its first frame has an
//! owner that gives the message's cost back. Owns that count, for each peer and over all.

use crate::socket::PeerId;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What one message costs beside its bytes.
const MESSAGE_COST: usize = 256;

/// How much may be held, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// For one peer.
    pub(super) each: usize,
    /// For all peers together.
    pub(super) all: usize,
}

/// What is held. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    counts: Arc<Mutex<Counts>>,
    freed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<PeerId, usize>,
    all: usize,
}

/// A frame that gives its message's cost back when it is dropped.
struct Counted {
    frame: Bytes,
    peer: PeerId,
    cost: usize,
    held: Held,
}

impl Held {
    /// Counts `frames` for `peer`, and returns them ready to be sent; as they were, as an error, where there is no room.
    ///
    /// The cost comes back as soon as the first of the returned frames is dropped.
    pub(super) fn count(&self, peer: PeerId, mut frames: Vec<Bytes>, room: Room) -> Result<Vec<Bytes>, Vec<Bytes>> {
        let cost = frames.iter().fold(MESSAGE_COST, |sum, frame| sum.saturating_add(frame.len()));
        {
            let mut counts = self.counts();
            let of = counts.of.get(&peer).copied().unwrap_or(0);
            if of.saturating_add(cost) > room.each || counts.all.saturating_add(cost) > room.all {
                return Err(frames);
            }
            counts.of.insert(peer, of + cost);
            counts.all += cost;
        }
        match frames.first_mut() {
            Some(first) => {
                let counted = Counted { frame: std::mem::take(first), peer, cost, held: self.clone() };
                *first = Bytes::from_owner(counted);
            }
            None => self.give_back(peer, cost),
        }
        Ok(frames)
    }

    /// Forgets what is held for `peer`: its connection is gone. What of it is still stuck in a write keeps nobody else
    /// from being sent to.
    pub(super) fn forget(&self, peer: PeerId) {
        let mut counts = self.counts();
        let of = counts.of.remove(&peer).unwrap_or(0);
        counts.all -= of;
    }

    /// How many bytes are held for all peers together.
    pub(super) fn all(&self) -> usize {
        self.counts().all
    }

    /// Waits until something was given back, now or since the last such wait.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn give_back(&self, peer: PeerId, cost: usize) {
        let mut counts = self.counts();
        let Some(of) = counts.of.get_mut(&peer) else { return };
        *of -= cost;
        counts.all -= cost;
        drop(counts);
        self.freed.notify_one();
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing under the lock can fail half-way.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.give_back(self.peer, self.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { each: 1_000, all: 1_500 };
    const ONE: PeerId = PeerId(1);
    const TWO: PeerId = PeerId(2);

    fn message() -> Vec<Bytes> {
        vec![Bytes::from_static(&[7; 144]), Bytes::from_static(&[8; 100])] // 500 with its cost
    }

    #[test]
    fn what_is_held_is_bounded_for_each_peer_and_over_all_and_comes_back_when_it_is_dropped() {
        let held = Held::default();
        let first = held.count(ONE, message(), ROOM).expect("there is room");
        let _second = held.count(ONE, message(), ROOM).expect("there is room");
        assert_eq!(held.count(ONE, message(), ROOM), Err(message()), "this peer has its share");
        let _third = held.count(TWO, message(), ROOM).expect("there is room");
        assert_eq!(held.count(TWO, message(), ROOM), Err(message()), "all of them have theirs");
        assert_eq!(first, message(), "nothing of a message changes");
        drop(first);
        assert_eq!(held.all(), 1_000);
        assert!(held.count(TWO, message(), ROOM).is_ok());
    }

    #[test]
    fn what_is_stuck_with_a_peer_that_is_gone_counts_no_more() {
        let held = Held::default();
        let stuck = held.count(ONE, message(), ROOM).expect("there is room");
        held.forget(ONE);
        assert_eq!(held.all(), 0);
        drop(stuck);
        assert_eq!(held.all(), 0);
    }

    #[test]
    fn messages_of_no_frame_or_an_empty_one_are_given_back_too() {
        let held = Held::default();
        drop(held.count(ONE, vec![], ROOM));
        let empty = held.count(ONE, vec![Bytes::new()], ROOM).expect("there is room");
        assert_eq!(held.all(), MESSAGE_COST);
        drop(empty);
        assert_eq!(held.all(), 0);
    }
}
