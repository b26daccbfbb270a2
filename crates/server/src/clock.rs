//! What time it is: the wall clock once, at start, and the monotonic clock from then on.
//!
//! Owns the rule that a step of the wall clock neither stops the reaper nor makes everything due: deadlines and stored
//! times come from here and from nowhere else.

use dispatcher_core::time::TimeMs;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The process's clock. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_at_start: TimeMs,
    started: Instant,
}

impl Clock {
    /// A clock that starts with the wall clock's present time.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_at(wall_now())
    }

    /// A clock that starts with `wall`, whatever the machine's clock says.
    #[must_use]
    pub fn starting_at(wall: TimeMs) -> Self {
        Self { wall_at_start: wall, started: Instant::now() }
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> TimeMs {
        let run = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        TimeMs(self.wall_at_start.0.saturating_add(run))
    }
}

/// The wall clock, also where it stands before 1970.
fn wall_now() -> TimeMs {
    let millis = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    TimeMs(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => millis(before.duration()).saturating_neg(),
    })
}
