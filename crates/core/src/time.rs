//! Time as an argument: points and spans in whole milliseconds.
//!
//! Owns saturating arithmetic, so that a clock before 1970, past 2038 or at the end of its range neither panics nor
//! wraps. Knows no clock: whoever calls says what time it is.

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the epoch of the caller's clock (the Unix epoch in the dispatcher).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimeMs(pub i64);

/// A span of time in milliseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpanMs(pub u64);

impl TimeMs {
    /// This point moved by `span` into the future, or the last point there is.
    #[must_use]
    pub fn after(self, span: SpanMs) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// The span from `earlier` to this point; zero where `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> SpanMs {
        SpanMs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl SpanMs {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// This span `times` over, or the longest there is.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// The two spans one after the other.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
