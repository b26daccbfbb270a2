//! What is leased, on which terms, and until when.
//!
//! Owns the terms that a run takes from its service, the grant that is to become a lease, the reasons to refuse one, and
//! the arithmetic of deadlines (rule L3). Knows nothing of the slots that leases live in or of who asks for one.
//!
//! Invariant: no terms make a deadline wrap. What would lie past the end of time never falls due.

use crate::claim::Standing;
use crate::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use crate::report::Message;
use crate::time::{SpanMs, TimeMs};

/// When the clock of a lease starts (rule L1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseStart {
    /// When the task goes to its worker. Delivery counts as the start of work (rule A2).
    Now,
    /// When the worker says that work has begun. Until then the lease lives as long as its worker.
    AtBegun,
}

/// By what the results of a lease are told apart from those of another (rules L8, C11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToldApart {
    /// By a token that the worker gives back.
    ByToken,
    /// By the worker's name only, as on the legacy wire.
    ByWorker,
}

/// What a run takes from its service at its first dispatch, and keeps (rule L3).
///
/// ```
/// use dispatcher_core::id::ServiceId;
/// use dispatcher_core::lease::Terms;
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let terms = Terms::new(ServiceId(1), SpanMs::seconds(60));
/// // The first attempt may take a minute, the second two.
/// assert_eq!(terms.deadline(TimeMs(0), 0), TimeMs(60_000));
/// assert_eq!(terms.deadline(TimeMs(0), 1), TimeMs(120_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The service, to whose queue a retry goes back (rule X2).
    pub service: ServiceId,
    /// How many charged attempts the run may spend. Zero is read as one.
    pub budget: u32,
    /// How long a first attempt may take.
    pub timeout: SpanMs,
    /// When the clock starts.
    pub start: LeaseStart,
    /// How much longer than the time limit the dispatcher waits before it cuts the attempt off: on v1 the kill grace and
    /// the time after which a silent worker is lost; nothing elsewhere.
    pub cut_off: SpanMs,
    /// By what results are told apart.
    pub told_apart: ToldApart,
}

/// The budget of a run where the service says nothing else.
pub const DEFAULT_BUDGET: u32 = 3;

impl Terms {
    /// Terms of a service whose leases start when they are handed out and whose results carry tokens, with the default
    /// budget and nothing beyond the time-out.
    #[must_use]
    pub const fn new(service: ServiceId, timeout: SpanMs) -> Self {
        Self {
            service,
            budget: DEFAULT_BUDGET,
            timeout,
            start: LeaseStart::Now,
            cut_off: SpanMs::ZERO,
            told_apart: ToldApart::ByToken,
        }
    }

    /// How long an attempt may take after `retries` charged ones: (retries + 1) × time-out (rule L3).
    #[must_use]
    pub fn limit(&self, retries: u32) -> SpanMs {
        self.timeout.times(u64::from(retries) + 1)
    }

    /// When an attempt after `retries` charged ones is cut off, whose clock starts at `start` (rule L3).
    #[must_use]
    pub fn deadline(&self, start: TimeMs, retries: u32) -> TimeMs {
        start.after(self.limit(retries).plus(self.cut_off))
    }
}

/// The deadline of a lease that is due at once, whatever time it is.
pub const DUE_AT_ONCE: TimeMs = TimeMs(i64::MIN);

/// Whether a lease with this deadline is due: strictly after it (rule L3).
#[must_use]
pub fn is_due(deadline: TimeMs, now: TimeMs) -> bool {
    now > deadline
}

/// A claim from the store that is to become a lease.
///
/// The run and what it has spent come from the row. A service without a store has [`Terms`] only; the set numbers its
/// runs and attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The task, its run and the claim.
    pub lease: LeaseId,
    /// The worker it goes to; `None` where a lease is adopted whose hand-out was never written.
    pub worker: Option<WorkerKey>,
    /// The terms of the run.
    pub terms: Terms,
    /// Charged attempts of the run so far.
    pub retries: u32,
    /// Uncharged attempts of the run so far (rule A2).
    pub freed: u32,
    /// The last retryable cause of the run.
    pub cause: Option<Message>,
    /// The last reason of the run that the dispatcher saw itself.
    pub reason: Option<Message>,
}

impl Grant {
    /// The grant of a run's first attempt: nothing spent, no cause (rule L14).
    #[must_use]
    pub const fn new(lease: LeaseId, worker: WorkerKey, terms: Terms) -> Self {
        Self { lease, worker: Some(worker), terms, retries: 0, freed: 0, cause: None, reason: None }
    }
}

/// A lease on record (rule L2). The task may be sent now, and not before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The task, its run and its claim: what a token signs.
    pub lease: LeaseId,
    /// Attempts of this run, this one included.
    pub attempts: u32,
    /// Charged attempts of this run before this one.
    pub retries: u32,
    /// How long the worker may take.
    pub limit: SpanMs,
    /// When it is cut off; `None` while its clock has not started.
    pub deadline: Option<TimeMs>,
    /// The newest retryable cause of this run (rule L7).
    pub cause: Option<Message>,
}

/// Why a task was not leased.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefusal {
    /// Ids below 1 are never tracked (rule L11).
    #[error("task id {0} is below 1")]
    Untracked(TaskId),
    /// As many tasks are in flight as may be; the worker is told to wait (rule L10).
    #[error("{limit} tasks are in flight already")]
    Saturated {
        /// `max_in_flight`.
        limit: usize,
    },
    /// The hard limit is filled and one more came that cannot be refused: the process ends (rule L10).
    #[error("the hard limit of {limit} tasks in flight is filled")]
    HardLimit {
        /// `hard_limit`.
        limit: usize,
    },
    /// It belongs to a run before the one in flight or held (rule L6).
    #[error("run {current} of the task is under way", current = .current.0)]
    OlderRun {
        /// The run that the set has.
        current: Run,
    },
    /// A newer claim of the same run has been leased, or this very claim has ended.
    #[error("claim {newest} of the task was leased", newest = .newest.0)]
    OlderClaim {
        /// The newest claim that the set has.
        newest: Epoch,
    },
    /// A result of this run was accepted meanwhile (rule L5).
    #[error("the task was finished by attempt {attempt}", attempt = .by.epoch.attempt())]
    Finished {
        /// What stands.
        by: Standing,
    },
    /// The worker had the task in an earlier run, and its results could not be told apart (rule L8).
    #[error("worker {worker} had the task in an earlier run")]
    WorkedEarlier {
        /// The worker's name.
        worker: String,
    },
    /// The set does not know the task of this retry: whether it is finished is to be looked up first (rule L12).
    #[error("the task is not known here and has to be looked up")]
    LookFirst,
}

impl LeaseRefusal {
    /// Whether a queued retry that is refused so leaves its queue for good (rule L12). It stays where only the moment
    /// or the worker was wrong.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Untracked(_) | Self::OlderRun { .. } | Self::OlderClaim { .. } | Self::Finished { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SpanMs = SpanMs::seconds(3600);

    // Rule L3.
    #[test]
    fn each_charged_attempt_makes_the_next_one_longer_and_the_cut_off_is_added_once() {
        let terms = Terms { cut_off: SpanMs::seconds(35), ..Terms::new(ServiceId(1), HOUR) };
        assert_eq!(terms.limit(0), HOUR);
        assert_eq!(terms.limit(2), HOUR.times(3));
        assert_eq!(terms.deadline(TimeMs(5), 2), TimeMs(5 + 3 * 3_600_000 + 35_000));
    }

    // Rule L3.
    #[test]
    fn a_lease_is_due_strictly_after_its_deadline() {
        assert!(!is_due(TimeMs(10), TimeMs(9)));
        assert!(!is_due(TimeMs(10), TimeMs(10)));
        assert!(is_due(TimeMs(10), TimeMs(11)));
        assert!(is_due(DUE_AT_ONCE, TimeMs(i64::MIN + 1)));
    }

    // Rule L3. Case F21. Case F56.
    #[test]
    fn a_deadline_past_the_end_of_time_saturates_and_never_falls_due() {
        let terms = Terms::new(ServiceId(1), SpanMs(u64::MAX));
        let deadline = terms.deadline(TimeMs(1), u32::MAX);
        assert_eq!(deadline, TimeMs(i64::MAX));
        assert!(!is_due(deadline, TimeMs(i64::MAX)));
        let before_1970 = Terms::new(ServiceId(1), HOUR).deadline(TimeMs(-3_600_001), 0);
        assert_eq!(before_1970, TimeMs(-1));
    }
}
