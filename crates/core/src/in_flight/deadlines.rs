//! The index of deadlines: which leases fall due next, and which windows end.
//!
//! Has exactly one entry for each lease whose clock runs and one for each held task; a transition that settles a lease
//! takes its entry away. So it is never larger than the set, and a sweep costs what is due, not what is in flight.

use super::counters::Footprint;
use crate::id::TaskId;
use crate::lease::is_due;
use crate::time::TimeMs;
use std::collections::BTreeSet;
use std::ops::Bound;

/// A place in the index.
pub(crate) type Entry = (TimeMs, TaskId);

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    leases: BTreeSet<Entry>,
    windows: BTreeSet<Entry>,
}

impl Deadlines {
    pub(super) fn shift(&mut self, task: TaskId, before: &Footprint, after: &Footprint) {
        shift(&mut self.leases, task, before.due, after.due);
        shift(&mut self.windows, task, before.until, after.until);
    }

    /// Up to `max` due leases, the earliest deadlines first, from behind `after`.
    pub(super) fn due(&self, now: TimeMs, after: Option<Entry>, max: usize) -> Vec<Entry> {
        from(&self.leases, after).take_while(|(deadline, _)| is_due(*deadline, now)).take(max).copied().collect()
    }

    /// Up to `max` windows that have ended, that instant included, the earliest first, from behind `after` (rule X5).
    pub(super) fn ended(&self, now: TimeMs, after: Option<Entry>, max: usize) -> Vec<Entry> {
        from(&self.windows, after).take_while(|(until, _)| *until <= now).take(max).copied().collect()
    }

    /// How many entries there are: of leases, of windows.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.leases.len(), self.windows.len())
    }
}

fn from(entries: &BTreeSet<Entry>, after: Option<Entry>) -> impl Iterator<Item = &Entry> {
    entries.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}

fn shift(entries: &mut BTreeSet<Entry>, task: TaskId, before: Option<TimeMs>, after: Option<TimeMs>) {
    if before != after {
        if let Some(at) = before {
            entries.remove(&(at, task));
        }
        if let Some(at) = after {
            entries.insert((at, task));
        }
    }
}
