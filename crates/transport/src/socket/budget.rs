//! How many bytes one peer may send. Pure.
//!
//! Owns an allowance that refills with time and grows by what was asked for. High-water marks count messages, not bytes,
//! and the ROUTER is always read, so this is what tells a flood from a busy worker.

use std::time::{Duration, Instant};

/// What each frame costs beside its bytes: without it a flood of empty frames would be free.
const FRAME_COST: u64 = 64;

/// The allowance of one peer, in bytes.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u64,
    asked_for: u64,
    burst: u64,
    per_second: u64,
    filled: Instant,
}

impl Allowance {
    /// A full allowance: `burst` bytes at once, refilled by `per_second`.
    pub(super) const fn new(burst: u64, per_second: u64, now: Instant) -> Self {
        Self { left: burst, asked_for: 0, burst, per_second, filled: now }
    }

    /// Lets `bytes` more come, beside the allowance: somebody asked for them.
    pub(super) const fn expect(&mut self, bytes: u64) {
        self.asked_for = self.asked_for.saturating_add(bytes);
    }

    /// Takes the cost of a message off. `false` if the peer has spent more than it may.
    pub(super) fn spend<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>, now: Instant) -> bool {
        let cost = frames.into_iter().fold(0_u64, |sum, frame| sum.saturating_add(FRAME_COST + frame.len() as u64));
        self.refill(now);
        let free = cost.min(self.asked_for);
        self.asked_for -= free;
        let within = self.left >= cost - free;
        self.left = self.left.saturating_sub(cost - free);
        within
    }

    fn refill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.filled);
        // Whole milliseconds only, so that a message every few microseconds does not round its refill away.
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            self.left = self.left.saturating_add(millis.saturating_mul(self.per_second) / 1000).min(self.burst);
            self.filled += Duration::from_millis(millis);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: [u8; 936] = [0; 936]; // with its frame's cost: 1,000

    fn send(allowance: &mut Allowance, now: Instant) -> bool {
        allowance.spend([BODY.as_slice()], now)
    }

    #[test]
    fn a_peer_may_send_its_burst_at_once_and_then_what_refills() {
        let start = Instant::now();
        let mut allowance = Allowance::new(3_000, 1_000, start);
        assert!((0..3).all(|_| send(&mut allowance, start)));
        assert!(!send(&mut allowance, start), "the burst is spent");
        assert!(!send(&mut allowance, start + Duration::from_millis(999)), "not refilled yet");
        assert!(send(&mut allowance, start + Duration::from_millis(2_000)));
    }

    #[test]
    fn what_was_asked_for_comes_on_top_and_only_once() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1_000, 0, start);
        allowance.expect(2_000);
        assert!((0..3).all(|_| send(&mut allowance, start)));
        assert!(!send(&mut allowance, start));
    }

    #[test]
    fn rest_never_saves_up_more_than_the_burst_and_empty_frames_are_not_free() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1_000, 1_000_000, start);
        let later = start + Duration::from_secs(86_400);
        assert!(send(&mut allowance, later));
        assert!(!send(&mut allowance, later));
        let mut allowance = Allowance::new(640, 0, start);
        assert!(allowance.spend([[].as_slice(); 10], start));
        assert!(!allowance.spend([[].as_slice()], start));
    }
}
