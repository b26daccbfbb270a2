//! The bounds of the set, and whether they agree with each other.

use crate::slot::Moment;
use crate::time::{SpanMs, TimeMs};

/// The bounds of an [`InFlightSet`](super::InFlightSet). Its memory never grows beyond them (rules L10, X4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No task is leased while so many are in flight.
    pub max_in_flight: usize,
    /// So many may be in flight through what cannot be refused; one more is
    /// [`LeaseRefusal::HardLimit`](crate::lease::LeaseRefusal::HardLimit).
    pub hard_limit: usize,
    /// The late-result window in milliseconds: how long a task is held. Zero or less: nothing is.
    pub window_ms: i64,
    /// So many may be held.
    pub max_held: usize,
    /// Into how many parts with a lock of their own the map is cut: a power of two, at least 2.
    pub shards: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_in_flight: 8000, hard_limit: 10_000, window_ms: 3_600_000, max_held: 50_000, shards: 64 }
    }
}

/// Why a set cannot be made with these limits. Checked when the configuration is loaded (rule L10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Nothing could ever be leased.
    #[error("max_in_flight is 0: nothing could be leased")]
    NothingInFlight,
    /// The hard limit does not lie strictly above the other.
    #[error("the hard limit {hard_limit} does not lie above max_in_flight {max_in_flight}")]
    HardLimitNotAbove {
        /// `max_in_flight`.
        max_in_flight: usize,
        /// `hard_limit`.
        hard_limit: usize,
    },
    /// The map cannot be cut so.
    #[error("{0} shards: a power of two from 2 on is needed")]
    Shards(usize),
}

impl Limits {
    /// Whether the limits agree with each other (rule L10).
    ///
    /// # Errors
    /// Where they do not.
    pub fn check(&self) -> Result<(), LimitsError> {
        let Self { max_in_flight, hard_limit, shards, .. } = *self;
        if max_in_flight == 0 {
            return Err(LimitsError::NothingInFlight);
        }
        if hard_limit <= max_in_flight {
            return Err(LimitsError::HardLimitNotAbove { max_in_flight, hard_limit });
        }
        if shards < 2 || !shards.is_power_of_two() {
            return Err(LimitsError::Shards(shards));
        }
        Ok(())
    }

    /// How many tasks may be held: none without a window.
    pub(super) const fn room_to_hold(&self) -> usize {
        if self.window_ms > 0 { self.max_held } else { 0 }
    }

    pub(super) fn moment(&self, now: TimeMs) -> Moment {
        Moment { now, until: now.after(SpanMs(u64::try_from(self.window_ms).unwrap_or(0))) }
    }
}
