//! How fast a sender is that has a place for which others wait.
//!
//! Owns the measure. Time is counted in ticks that were really looked at, so that a process which itself stood still, stopped or
//! starved, blames nobody for it.

use std::time::Duration;
use tokio::time::Instant;

const TICK: Duration = Duration::from_millis(500);
/// So long one may bring next to nothing while a single one waits. The more wait, the shorter, so that many who stopped do not
/// keep the others out one after the other.
const PATIENCE: u32 = 20;
/// The shortest patience, in ticks: a lost packet or two on a busy line.
const PATIENCE_LEAST: u32 = 3;
/// What a sender has to bring in a tick, in bytes: half of what a line of 1 Mbit/s does.
const LEAST: usize = 32 * 1024;

/// The pace of one message.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the tick that is under way ends.
    tick_ends: Option<Instant>,
    /// Ticks since it was judged last.
    ticks: u32,
    /// How much of the message was there then.
    had: usize,
}

impl Pace {
    /// The time that it waited for its place is not its own.
    pub(super) fn had_to_wait(&mut self) {
        self.tick_ends = None;
    }

    /// When to look again, whatever comes meanwhile.
    pub(super) fn next_look(&mut self) -> Instant {
        *self.tick_ends.get_or_insert_with(|| Instant::now() + TICK)
    }

    /// Whether too little came, of a message of which there is so much, while so many wait.
    pub(super) fn is_too_slow(&mut self, have: usize, waiting: usize) -> bool {
        if Instant::now() < self.next_look() {
            return false;
        }
        self.tick_ends = None;
        self.ticks += 1;
        let came = have.saturating_sub(self.had);
        if came >= LEAST.saturating_mul(self.ticks as usize) || waiting == 0 {
            // Only the time counts in which it keeps others out.
            (self.ticks, self.had) = (0, have);
            return false;
        }
        let patience = PATIENCE / u32::try_from(waiting).unwrap_or(u32::MAX);
        self.ticks >= patience.max(PATIENCE_LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_until_cut(pace: &mut Pace, mut have: usize, each: usize, waiting: usize) -> Option<u32> {
        (1..=200).find(|_| {
            have += each;
            pace.tick_ends = Some(Instant::now());
            pace.is_too_slow(have, waiting)
        })
    }

    // Rules D1, W5.
    #[test]
    fn who_stops_has_ten_seconds_and_less_the_more_wait() {
        for (waiting, ticks) in
            [(0, None), (1, Some(20)), (2, Some(10)), (4, Some(5)), (60, Some(3)), (usize::MAX, Some(3))]
        {
            assert_eq!(ticks_until_cut(&mut Pace::default(), 0, 0, waiting), ticks, "{waiting} wait");
        }
    }

    #[test]
    fn who_brings_enough_goes_on_and_who_brings_less_does_not() {
        assert_eq!(ticks_until_cut(&mut Pace::default(), 0, LEAST, 60), None);
        assert_eq!(ticks_until_cut(&mut Pace::default(), 0, LEAST - 1, 60), Some(3));
    }

    #[test]
    fn what_was_brought_before_others_waited_is_no_credit() {
        let mut pace = Pace::default();
        assert_eq!(ticks_until_cut(&mut pace, 0, 100 * LEAST, 1), None);
        assert_eq!(ticks_until_cut(&mut pace, 200 * 100 * LEAST, 0, 1), Some(20));
    }

    #[test]
    fn however_long_nobody_looked_it_is_one_tick() {
        let mut pace = Pace { tick_ends: Instant::now().checked_sub(Duration::from_secs(60)), ..Pace::default() };
        assert!(!pace.is_too_slow(0, 60));
        assert_eq!(pace.ticks, 1);
        pace.had_to_wait();
        assert!(!pace.is_too_slow(0, 60), "a tick begins only now");
        assert_eq!(pace.ticks, 1);
    }
}
