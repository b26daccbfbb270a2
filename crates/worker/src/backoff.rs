//! How long to wait before the next connection: doubling, capped, and jittered so that a thousand workers of a restarted
//! dispatcher do not come back in the same moment.
//!
//! Pure: the randomness comes from a seed.

use dispatcher_core::time::SpanMs;

/// The wait before the first new try, at most.
const FIRST: SpanMs = SpanMs(100);
/// The longest wait.
const CAP: SpanMs = SpanMs(5_000);

/// The waits between tries that fail.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    state: u64,
    failures: u32,
}

impl Backoff {
    /// Waits drawn from `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed, failures: 0 }
    }

    /// A try succeeded: the next wait is short again.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait before the next try: between half and the whole of the doubled wait.
    pub(crate) fn next(&mut self) -> SpanMs {
        let whole = FIRST.times(1 << self.failures.min(16)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        self.spread(whole)
    }

    /// A short wait, for a try at something else.
    pub(crate) const fn short(&mut self) -> SpanMs {
        self.spread(FIRST)
    }

    const fn spread(&mut self, SpanMs(whole): SpanMs) -> SpanMs {
        let half = whole / 2;
        SpanMs(half + self.draw() % (whole - half + 1))
    }

    /// SplitMix64: enough to spread workers out, and no more is asked of it.
    const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Cases F05, F21.
    #[test]
    fn waits_double_up_to_the_cap_and_never_overflow() {
        let mut backoff = Backoff::new(7);
        for failures in 0..2_000u32 {
            let wait = backoff.next();
            let whole = if failures < 6 { 100 << failures } else { 5_000 };
            assert!(wait >= SpanMs(whole / 2) && wait <= SpanMs(whole), "wait {failures} was {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    // Case F21.
    #[test]
    fn workers_with_other_seeds_spread_out() {
        let mut in_window = [0u32; 10];
        for seed in 0..1_000 {
            let mut backoff = Backoff::new(seed);
            (0..8).for_each(|_| {
                backoff.next();
            });
            let wait = backoff.next().0;
            in_window[usize::try_from((wait - 2_500).min(2_499) / 250).unwrap()] += 1;
        }
        assert!(in_window.iter().all(|n| (50..=200).contains(n)), "{in_window:?}");
    }
}
