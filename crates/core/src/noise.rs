//! Noise: what a broken or hostile peer can repeat is counted, and at most one line an interval is due (rule G3).
//!
//! Owns the counting. Knows neither what the kinds mean nor how a line is written: it says that one is due, and for how
//! many.
//!
//! **Invariants**: no occurrence is lost (lines plus what is pending add up to all); memory is one entry a kind, so kinds
//! are an enum of the caller's, never a text from outside.

use crate::time::{SpanMs, TimeMs};
use std::collections::BTreeMap;

/// Counts occurrences by kind and says when a line about them is due.
///
/// ```
/// use dispatcher_core::noise::{NoiseLine, NoiseMeter};
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let mut noise = NoiseMeter::new(SpanMs::seconds(5));
/// assert_eq!(noise.count("malformed", TimeMs(0)), Some(NoiseLine { count: 1 }));
/// assert_eq!(noise.count("malformed", TimeMs(1)), None);
/// assert_eq!(noise.count("malformed", TimeMs(5000)), Some(NoiseLine { count: 2 }));
/// assert_eq!(noise.total(&"malformed"), 3);
/// ```
#[derive(Clone, Debug)]
pub struct NoiseMeter<K> {
    interval: SpanMs,
    kinds: BTreeMap<K, Kind>,
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseLine {
    /// How many there were since the last line of this kind, this one included.
    pub count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    total: u64,
    pending: u64,
    line_at: TimeMs,
}

impl<K: Ord + Clone> NoiseMeter<K> {
    /// A meter that allows one line per kind and `interval`.
    #[must_use]
    pub const fn new(interval: SpanMs) -> Self {
        Self { interval, kinds: BTreeMap::new() }
    }

    /// Counts one occurrence of `kind` at `now`. The first of a kind is told at once; after that the next one at or after
    /// the interval, with the count since the last line, itself included.
    ///
    /// A clock that was set back does not silence a kind for longer than one interval: the interval then counts anew.
    #[must_use]
    pub fn count(&mut self, kind: K, now: TimeMs) -> Option<NoiseLine> {
        let Some(seen) = self.kinds.get_mut(&kind) else {
            self.kinds.insert(kind, Kind { total: 1, pending: 0, line_at: now });
            return Some(NoiseLine { count: 1 });
        };
        seen.total = seen.total.saturating_add(1);
        seen.pending = seen.pending.saturating_add(1);
        seen.line_at = seen.line_at.min(now);
        if now.since(seen.line_at) < self.interval {
            return None;
        }
        seen.line_at = now;
        Some(NoiseLine { count: std::mem::take(&mut seen.pending) })
    }

    /// How many occurrences of `kind` there have been in all.
    #[must_use]
    pub fn total(&self, kind: &K) -> u64 {
        self.kinds.get(kind).map_or(0, |seen| seen.total)
    }

    /// Every kind seen so far with its total, in the order of the kinds.
    pub fn totals(&self) -> impl Iterator<Item = (&K, u64)> {
        self.kinds.iter().map(|(kind, seen)| (kind, seen.total))
    }

    /// What was counted since each kind's last line and not told yet: for one last line at the end.
    pub fn take_pending(&mut self) -> Vec<(K, NoiseLine)> {
        let pending = self.kinds.iter_mut().filter(|(_, seen)| seen.pending > 0);
        pending.map(|(kind, seen)| (kind.clone(), NoiseLine { count: std::mem::take(&mut seen.pending) })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Rule G3. Case F23.
    #[test]
    fn the_first_is_told_at_once_and_a_flood_once_an_interval() {
        let mut noise = NoiseMeter::new(SpanMs(5000));
        let lines: Vec<_> = (0..200_000_i64)
            .filter_map(|i| noise.count("malformed", TimeMs(i / 10)).map(|line| (i / 10, line.count)))
            .collect();
        assert_eq!(lines, [(0, 1), (5000, 50_000), (10_000, 50_000), (15_000, 50_000)]);
        assert_eq!(noise.total(&"malformed"), 200_000);
        assert_eq!(noise.take_pending(), [("malformed", NoiseLine { count: 49_999 })]);
        assert_eq!(noise.take_pending(), []);
    }

    // Rule G3.
    #[test]
    fn kinds_do_not_silence_each_other() {
        let mut noise = NoiseMeter::new(SpanMs(5000));
        assert_eq!(noise.count("unknown", TimeMs(0)), Some(NoiseLine { count: 1 }));
        assert_eq!(noise.count("refused", TimeMs(1)), Some(NoiseLine { count: 1 }));
        assert_eq!(noise.count("unknown", TimeMs(4999)), None);
        assert_eq!(noise.count("unknown", TimeMs(5000)), Some(NoiseLine { count: 2 }));
    }

    // Rule G3. Case F56.
    #[test]
    fn a_clock_set_back_delays_a_line_by_one_interval_at_most() {
        let mut noise = NoiseMeter::new(SpanMs(5000));
        let _first = noise.count((), TimeMs(3_600_000));
        assert_eq!(noise.count((), TimeMs(0)), None);
        assert_eq!(noise.count((), TimeMs(5000)), Some(NoiseLine { count: 2 }));
    }

    proptest! {
        // Rule G3.
        #[test]
        fn totals_are_exact_and_lines_keep_their_distance(
            steps in proptest::collection::vec((0..3_u8, 0..4000_i64), 0..300),
        ) {
            let mut noise = NoiseMeter::new(SpanMs(5000));
            let (mut now, mut told, mut counted) = (0, [0_u64; 3], [0_u64; 3]);
            let mut last_line: [Option<i64>; 3] = [None; 3];
            for (kind, step) in steps {
                now += step;
                counted[usize::from(kind)] += 1;
                if let Some(line) = noise.count(kind, TimeMs(now)) {
                    told[usize::from(kind)] += line.count;
                    if let Some(last) = last_line[usize::from(kind)].replace(now) {
                        prop_assert!(now - last >= 5000);
                    }
                }
            }
            for (kind, line) in noise.take_pending() {
                told[usize::from(kind)] += line.count;
            }
            prop_assert_eq!(told, counted);
            for kind in 0..3_u8 {
                prop_assert_eq!(noise.total(&kind), counted[usize::from(kind)]);
            }
        }
    }
}
