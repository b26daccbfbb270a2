//! The reaper: what a sweep takes, what it returns, and the words of a dead letter.
//!
//! Owns rules X1–X3, X5, X7 and X8 above the single slot. Runs no clock and sends nothing: whoever owns a clock calls
//! [`InFlightSet::sweep`] and does what the [`Sweep`] says. With a store that is the finaliser, which appends both lists to
//! its own batch; it never sends to itself.

use crate::id::{LeaseId, WorkerKey};
use crate::in_flight::InFlightSet;
use crate::report::{Ending, Message, Severity};
use crate::retry::Retry;
use crate::time::{SpanMs, TimeMs};

/// The category of what the dispatcher says itself.
pub const CATEGORY: &str = "dispatcher";
/// A run whose budget is spent and of which nothing was ever heard (rule X3).
pub const NEVER_COMPLETED: &str = "never_completed_with_retries";
/// An attempt that took longer than its service allows.
pub const TIME_LIMIT: &str = "time_limit";
/// An attempt whose worker is gone.
pub const WORKER_LOST: &str = "worker_lost";
/// A reply that was no result.
pub const UNUSABLE: &str = "unusable_reply";

/// What one sweep did (rules X7, X8). The caller sends, writes or queues it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Leases that ran out with budget left: their tasks go back to their own services' queues. Earliest deadline first.
    pub requeued: Vec<Taken>,
    /// Leases that ran out and spent the budget; each has its [`Taken::dead`]. Without a store they are sent last.
    pub dead: Vec<Taken>,
    /// Held tasks whose window is over, by their newest lease.
    pub forgotten: Vec<LeaseId>,
    /// Whether `max` leases were taken, so that more may be due.
    pub more: bool,
}

/// A lease that the reaper took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The lease.
    pub lease: LeaseId,
    /// Who had it, where that is known.
    pub worker: Option<WorkerKey>,
    /// How the attempt ended.
    pub ending: Ending,
    /// Whether work had begun, and so whether the attempt is charged (rule A2).
    pub began: bool,
    /// Whether it was charged.
    pub charged: bool,
    /// The message of the dead letter, where the budget is spent (rule X3).
    pub dead: Option<Message>,
    /// The run so far, this end included, and what goes back to the queue where budget is left (rule X2).
    pub retry: Retry,
}

/// How many entries of the index are looked at under one lock.
const PIECE: usize = 256;

impl InFlightSet {
    /// Forgets what has been held long enough, so that there is room; then takes up to `max` due leases that have no open
    /// receipt (rules X1, X2, X5, X8).
    ///
    /// It costs what is due, not what is in flight, and holds no lock from one task to the next.
    ///
    /// ```
    /// use dispatcher_core::id::{ServiceId, TaskId, WorkerKey};
    /// use dispatcher_core::in_flight::{InFlightSet, Limits};
    /// use dispatcher_core::lease::Terms;
    /// use dispatcher_core::time::{SpanMs, TimeMs};
    ///
    /// let set = InFlightSet::new(Limits::default())?;
    /// let worker = WorkerKey { name: "w1".into(), incarnation: "a".into() };
    /// let terms = Terms { budget: 1, ..Terms::new(ServiceId(1), SpanMs::seconds(1)) };
    /// set.lease_fresh(TaskId(7), &worker, terms, TimeMs(0))?;
    ///
    /// assert!(set.sweep(TimeMs(1000), 10).dead.is_empty());
    /// let sweep = set.sweep(TimeMs(1001), 10);
    /// let why = sweep.dead[0].dead.as_ref().map(|message| message.what.as_str());
    /// assert_eq!(why, Some("never_completed_with_retries"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "what is not requeued or reported is lost"]
    pub fn sweep(&self, now: TimeMs, max: usize) -> Sweep {
        let mut sweep = Sweep { forgotten: self.forget_ended(now), ..Sweep::default() };
        let mut after = None;
        let mut left = max;
        while left > 0 {
            let due = self.due_after(now, after, PIECE.min(left));
            let Some(last) = due.last() else { break };
            after = Some(*last);
            for taken in due.iter().filter_map(|(_, task)| self.expire(*task, now)) {
                left -= 1;
                if taken.dead.is_some() { &mut sweep.dead } else { &mut sweep.requeued }.push(taken);
            }
        }
        sweep.more = left == 0;
        sweep
    }

    fn forget_ended(&self, now: TimeMs) -> Vec<LeaseId> {
        let mut forgotten = Vec::new();
        let mut after = None;
        loop {
            let ended = self.ended_after(now, after, PIECE);
            let Some(last) = ended.last() else { return forgotten };
            after = Some(*last);
            forgotten.extend(ended.iter().filter_map(|(_, task)| self.forget(*task, now)));
        }
    }
}

/// The message of a dead letter: a Fatal with the last retryable cause; else with the last reason that was seen; else
/// that nothing ever came (rule X3).
#[must_use]
pub fn dead_letter_reason(cause: Option<&Message>, reason: Option<&Message>) -> Message {
    match cause.or(reason) {
        Some(message) => Message { severity: Severity::Fatal, ..message.clone() },
        None => seen(NEVER_COMPLETED, String::new()),
    }
}

/// The reason of an attempt that was cut off at the time limit.
#[must_use]
pub fn time_limit_reason(limit: SpanMs) -> Message {
    seen(TIME_LIMIT, format!("cut off after its time limit of {} ms", limit.0))
}

/// The reason of an attempt whose worker is gone; `details` say how that was seen.
#[must_use]
pub fn worker_lost_reason(details: impl Into<String>) -> Message {
    seen(WORKER_LOST, details)
}

/// The reason of an attempt whose reply was no result; `details` say what was wrong with it (rule R1).
#[must_use]
pub fn unusable_reason(details: impl Into<String>) -> Message {
    seen(UNUSABLE, details)
}

fn seen(what: &str, details: impl Into<String>) -> Message {
    Message { severity: Severity::Fatal, category: CATEGORY.into(), what: what.into(), details: details.into() }
}
