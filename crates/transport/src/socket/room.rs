//! How many bytes of received messages are held, from their arrival until nobody needs them any more.
//!
//! Owns the count, and who may go on when there is no room. Refuses to know what a message is.
//!
//! **Invariants**
//! - Short messages have a share of their own, so that senders of long ones never keep them out.
//! - A long message is counted as it comes, not as it is announced.
//! - Messages that are half here never wait for each other for ever: one at a time may go on beyond the room, to its end.
//!   So at most the room and one message are held.
//! - Whoever waits for the same share is served in the order of asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A message of at most so many bytes is short. A connection may hold as much of an unfinished one without asking.
pub(super) const SHORT: usize = 16 * 1024;
/// What a permit stands for, in bytes.
const UNIT: usize = 1024;
/// Of the whole room, short messages have the part that this divides off.
const SHORT_SHARE: usize = 4;

/// The room of one socket. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Room {
    short: Share,
    long: Share,
    /// The right to go on beyond the room: there is one.
    beyond: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
struct Share {
    permits: Arc<Semaphore>,
    most: usize,
}

/// The place of one message in the room of its socket. Whoever drops it gives the place back.
#[derive(Debug, Default)]
pub struct Held {
    permits: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

/// Counts somebody who waits, however the wait ends.
struct Waiting(Arc<AtomicUsize>);

impl Room {
    /// A room of `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        let short = (bytes / SHORT_SHARE).max(SHORT);
        Self {
            short: Share::new(short),
            long: Share::new(bytes.saturating_sub(short).max(SHORT)),
            beyond: Arc::new(Semaphore::new(1)),
            waiting: Arc::default(),
        }
    }

    /// Waits for the place of a whole message of `bytes`.
    pub(super) async fn whole(&self, bytes: usize) -> Held {
        let mut held = Held::default();
        if bytes <= SHORT {
            held.permits = self.short.take(self.short.units(bytes)).await;
        } else {
            self.grow(&mut held, bytes).await;
        }
        held
    }

    /// Waits until `held` is the place of `bytes` of a long message. One that is beyond the room already may go on.
    pub(super) async fn grow(&self, held: &mut Held, bytes: usize) {
        let more = self.long.units(bytes).saturating_sub(held.units());
        if more == 0 || held.beyond.is_some() {
            return;
        }
        if let Ok(permits) = Arc::clone(&self.long.permits).try_acquire_many_owned(more) {
            held.add(permits);
            return;
        }
        let _waiting = Waiting::new(&self.waiting);
        tokio::select! {
            biased;
            permits = self.long.take(more) => permits.into_iter().for_each(|permits| held.add(permits)),
            beyond = Arc::clone(&self.beyond).acquire_owned() => held.beyond = beyond.ok(),
        }
    }

    /// How many wait for the place of a long message.
    pub(super) fn wanted_by(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Share {
    fn new(bytes: usize) -> Self {
        let most = bytes / UNIT;
        Self { permits: Arc::new(Semaphore::new(most)), most }
    }

    /// What `bytes` take of this share; at most all of it, so that a single message always comes to its turn.
    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.most)).unwrap_or(u32::MAX)
    }

    async fn take(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.permits).acquire_many_owned(units).await.ok()
    }
}

impl Held {
    /// Whether it is the place of anything.
    pub(super) const fn is_empty(&self) -> bool {
        self.permits.is_none() && self.beyond.is_none()
    }

    fn units(&self) -> u32 {
        let units = self.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    fn add(&mut self, permits: OwnedSemaphorePermit) {
        match &mut self.permits {
            Some(held) => held.merge(permits),
            none => *none = Some(permits),
        }
    }
}

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const KB: usize = 1024;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        future.now_or_never()
    }

    // Rule D1.
    #[test]
    fn long_messages_never_keep_short_ones_out() {
        let room = Room::new(128 * KB);
        let long = now(room.whole(1000 * KB)).expect("a single one has room, whatever its size");
        let beyond = now(room.whole(1000 * KB)).expect("one may be beyond the room");
        assert!(now(room.whole(20 * KB)).is_none(), "the next long one waits");
        let short: Vec<_> = (0..4).map(|_| now(room.whole(8 * KB)).expect("short ones have a share")).collect();
        assert!(now(room.whole(8 * KB)).is_none(), "which ends, too");
        drop((short, long, beyond));
        assert!(now(room.whole(8 * KB)).is_some() && now(room.whole(1000 * KB)).is_some());
    }

    // Rule D1.
    #[test]
    fn of_messages_that_are_half_here_one_may_always_go_on() {
        let room = Room::new(128 * KB);
        let (mut one, mut two, mut three) = (Held::default(), Held::default(), Held::default());
        for held in [&mut one, &mut two, &mut three] {
            now(room.grow(held, 32 * KB)).expect("there is room for 96 KB");
        }
        assert!(room.wanted_by() == 0);
        now(room.grow(&mut one, 64 * KB)).expect("the first to ask goes on");
        now(room.grow(&mut one, 1000 * KB)).expect("to its end");
        let mut waits = Box::pin(room.grow(&mut two, 64 * KB));
        assert!(now(waits.as_mut()).is_none() && room.wanted_by() == 1);
        drop(one);
        now(waits).expect("its place is free again");
        assert!(room.wanted_by() == 0);
        drop((two, three));
        assert!(now(room.whole(96 * KB)).is_some(), "everything came back");
    }
}
