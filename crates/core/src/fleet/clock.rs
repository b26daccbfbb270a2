//! The listening clock and the taking of turns.

use crate::session::PeerId;
use crate::time::{SpanMs, TimeMs};
use std::collections::BTreeSet;

/// Measures how long *we* listened: each call adds at most a second, so that nobody is lost because this process was
/// stopped or slow, and a step of the clock changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListeningClock {
    listened: SpanMs,
    last: Option<TimeMs>,
}

impl ListeningClock {
    /// The most that one call adds.
    const STEP_MAX: SpanMs = SpanMs(1000);

    /// Moves the clock to `now`; returns what it shows.
    pub(crate) fn advance(&mut self, now: TimeMs) -> SpanMs {
        let step = self.last.map_or(SpanMs::ZERO, |last| now.since(last));
        self.last = Some(now);
        self.listened = self.listened.plus(step.min(Self::STEP_MAX));
        self.listened
    }

    pub(crate) const fn listened(self) -> SpanMs {
        self.listened
    }

    /// Whether at least `span` was listened since `since`.
    pub(crate) const fn has_passed(self, since: SpanMs, span: SpanMs) -> bool {
        self.listened.0.saturating_sub(since.0) >= span.0
    }
}

/// Connections that want something, served by how long they have waited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(BTreeSet<(u64, PeerId)>);

impl Turns {
    /// Adds a connection that waits since `turn`, a number that grows with time.
    pub(crate) fn insert(&mut self, turn: u64, peer: PeerId) {
        self.0.insert((turn, peer));
    }

    pub(crate) fn remove(&mut self, turn: u64, peer: PeerId) {
        self.0.remove(&(turn, peer));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PeerId> {
        self.0.iter().map(|(_, peer)| *peer)
    }

    /// Whose turn it is: who has waited longest.
    pub(crate) fn first(&self) -> Option<PeerId> {
        self.iter().next()
    }
}
