//! One connection as the session sees it: whether it is there, what was asked for on it, and its beats.

use dispatcher_core::time::{SpanMs, TimeMs};

/// Beats that may stay unanswered before the connection is given up.
const UNANSWERED_MAX: u64 = 3;
/// The bounds of what a dispatcher may ask for as the span between beats.
const BEAT_MIN_MS: u64 = 10;
const BEAT_MAX_MS: u64 = 60_000;
/// The bounds of the piece length that a dispatcher may ask for, in bytes.
const CHUNK_MIN: u64 = 1_024;
const CHUNK_MAX: u64 = 1_048_576;

/// How far the way to the dispatcher is.
#[derive(Debug)]
pub(super) enum Link {
    /// No connection; one is built at this time.
    Waiting { until: TimeMs },
    /// One is being built, and given up at this time.
    Connecting { until: TimeMs },
    /// `hello` was sent; the connection is given up at this time.
    Greeting { until: TimeMs },
    /// The dispatcher said welcome.
    Open(Connection),
}

/// A connection on which the dispatcher said welcome.
#[derive(Debug)]
pub(super) struct Connection {
    /// Up to how many bytes travel inside a message.
    pub(super) inline_max: u64,
    /// The longest piece of a file, in bytes.
    pub(super) chunk_max: u64,
    /// Tasks asked for in all.
    pub(super) granted: u64,
    /// Tasks that came in all.
    pub(super) received: u64,
    /// Whether the dispatcher hands out nothing more on it.
    pub(super) draining: bool,
    /// When the next beat is due.
    pub(super) next_beat: TimeMs,
    beat_ms: SpanMs,
    beats: u64,
    answered: u64,
}

impl Link {
    /// The connection, where there is one that may be used.
    pub(super) const fn open(&self) -> Option<&Connection> {
        match self {
            Self::Open(open) => Some(open),
            _ => None,
        }
    }

    /// When the clock has something to say about it.
    pub(super) const fn wake_at(&self) -> Option<TimeMs> {
        match self {
            Self::Waiting { until } | Self::Connecting { until } | Self::Greeting { until } => Some(*until),
            Self::Open(open) => Some(open.next_beat),
        }
    }
}

impl Connection {
    /// A connection on which nothing was said yet beyond welcome. Numbers that make no sense are bent into bounds.
    pub(super) fn new(beat_ms: u64, inline_max: u64, chunk_max: u64, now: TimeMs) -> Self {
        let beat_ms = SpanMs(beat_ms.clamp(BEAT_MIN_MS, BEAT_MAX_MS));
        Self {
            inline_max: inline_max.min(CHUNK_MAX),
            chunk_max: chunk_max.clamp(CHUNK_MIN, CHUNK_MAX),
            granted: 0,
            received: 0,
            draining: false,
            next_beat: now.after(beat_ms),
            beat_ms,
            beats: 0,
            answered: 0,
        }
    }

    /// Counts a beat that is due: its number and the tasks received so far, or `None` where too many before it were not
    /// answered.
    ///
    /// Beats are counted and not the time, so that a worker that was stopped for a while does not give up a connection
    /// which is in order.
    pub(super) fn beat(&mut self, now: TimeMs) -> Option<(u64, u64)> {
        if self.beats - self.answered >= UNANSWERED_MAX {
            return None;
        }
        self.beats += 1;
        self.next_beat = now.after(self.beat_ms);
        Some((self.beats, self.received))
    }

    /// The dispatcher answered beat `n`, and so all before it.
    pub(super) fn answered(&mut self, n: u64) {
        self.answered = self.answered.max(n.min(self.beats));
    }
}
