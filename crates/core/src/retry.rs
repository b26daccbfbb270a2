//! What an attempt costs, whether there is another one, when, and the queue of retries of a service without a store.
//!
//! Owns the accounts of one run (rules A2, X2), the back-off, and [`Requeues`]. Knows nothing of leases that are out: it
//! is told how they ended. With a store, [`crate::finalise`] writes the delay into the task's row, retries come back by a
//! claim, and nothing of [`Requeues`] is used.
//!
//! Invariants: a delay is never longer than [`MAX_DELAY`] and never falls as retries grow, before jitter. A task has at
//! most one entry in [`Requeues`].

mod requeues;

pub use requeues::{Look, Requeues};

use crate::id::{Epoch, LeaseId, Run, TaskId};
use crate::lease::Terms;
use crate::report::{Ending, Message};
use crate::time::SpanMs;

/// How many free endings a run has before they are charged like others (rule A2).
pub const FREE_ENDINGS: u32 = 10;

/// The longest delay before a retry (rule R4).
pub const MAX_DELAY: SpanMs = SpanMs::seconds(3600);

/// What comes after an attempt without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Budget is left: the task goes back to its service's queue.
    Requeue,
    /// The budget is spent: the run ends here.
    DeadLetter,
}

/// Whether an attempt that ended so is charged to the budget of its run (rule A2).
///
/// Only what a worker began is charged. `began` says whether work had begun, by the worker's word or because it has to
/// be assumed; a worker's own word about its attempt (a cause, an unusable reply, a time limit) implies it. The worker
/// of a killed dispatcher is passed as not begun. After [`FREE_ENDINGS`] free ones in a run even those are charged, so
/// that nothing goes round for ever.
///
/// ```
/// use dispatcher_core::report::Ending;
/// use dispatcher_core::retry::charge;
///
/// assert!(charge(Ending::WorkerLost, true, 0));
/// assert!(!charge(Ending::WorkerLost, false, 9));
/// assert!(charge(Ending::WorkerLost, false, 10));
/// ```
#[must_use]
pub const fn charge(ending: Ending, began: bool, free_so_far: u32) -> bool {
    let free = match ending {
        // An operator's word ends the task and not only the attempt: there is nothing to charge it to.
        Ending::Cancelled => return false,
        Ending::Undeliverable | Ending::HandedBack => true,
        Ending::WorkerLost | Ending::Expired => !began,
        Ending::Accepted
        | Ending::Superseded
        | Ending::Stale
        | Ending::TimeLimit
        | Ending::Unusable
        | Ending::RetryableCause => false,
    };
    !free || free_so_far >= FREE_ENDINGS
}

/// What comes after an attempt, with `charged` attempts spent of `budget` (rule X2). A budget of zero is read as one.
#[must_use]
pub const fn next(charged: u32, budget: u32) -> Next {
    let spent = if budget == 0 { charged >= 1 } else { charged >= budget };
    if spent { Next::DeadLetter } else { Next::Requeue }
}

/// The delay before the retry after `charged` charged attempts, before jitter: `base` after the first, doubled for each
/// further one, at most [`MAX_DELAY`] (rule R4). Nothing for a `base` of nothing.
#[must_use]
pub fn backoff(charged: u32, base: SpanMs) -> SpanMs {
    let doublings = charged.saturating_sub(1);
    let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
    base.times(factor).min(MAX_DELAY)
}

/// The delay before the retry of `task` after `charged` charged attempts: [`backoff`], less up to half of it by a jitter that
/// depends on the task alone, so that what failed together does not return together (rule R4).
///
/// ```
/// use dispatcher_core::id::TaskId;
/// use dispatcher_core::retry::delay;
/// use dispatcher_core::time::SpanMs;
///
/// let third = delay(3, SpanMs::seconds(1), TaskId(42));
/// assert!(third >= SpanMs::seconds(2) && third <= SpanMs::seconds(4));
/// ```
#[must_use]
pub fn delay(charged: u32, base: SpanMs, task: TaskId) -> SpanMs {
    let whole = backoff(charged, base).0;
    let spread = whole / 2;
    SpanMs(whole - mix(task.0.unsigned_abs()) % (spread + 1))
}

/// Spreads neighbouring numbers over the whole range (the finaliser of SplitMix64).
const fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A run as far as it has come: what its attempts have spent and what was heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSoFar {
    /// Which run.
    pub run: Run,
    /// The first attempt of it that can be known; lower ones are stale (rule L14). [`Epoch::NONE`] where the run comes
    /// from a row, whose number is fence enough.
    pub first: Epoch,
    /// The newest attempt.
    pub newest: Epoch,
    /// Attempts so far, charged or not.
    pub attempts: u32,
    /// Charged attempts that have ended: the retries of rule L3.
    pub charged: u32,
    /// Free endings (rule A2).
    pub freed: u32,
    /// The terms of the run.
    pub terms: Terms,
    /// The last retryable cause (rules L7, X3).
    pub cause: Option<Box<Message>>,
    /// The last reason that the dispatcher saw itself (rule X3).
    pub reason: Option<Box<Message>>,
}

impl RunSoFar {
    /// Books the end of the newest attempt, and says whether it was charged and what comes next (rules A2, X2). A free
    /// ending never ends a run.
    pub(crate) fn end_attempt(&mut self, ending: Ending, began: bool) -> (bool, Next) {
        if charge(ending, began, self.freed) {
            self.charged = self.charged.saturating_add(1);
            (true, next(self.charged, self.terms.budget))
        } else {
            self.freed = self.freed.saturating_add(1);
            (false, Next::Requeue)
        }
    }

    /// Whether a retryable cause of the newest attempt is told by the last one that the budget allows (rule R5).
    pub(crate) fn is_last_attempt(&self) -> bool {
        next(self.charged.saturating_add(1), self.terms.budget) == Next::DeadLetter
    }
}

/// A task that waits to be leased again in the same run (rule X2): it keeps time-out, attempts, cause and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The task.
    pub task: TaskId,
    /// Its run so far.
    pub run: RunSoFar,
}

impl Retry {
    /// The lease whose end this retry follows.
    #[must_use]
    pub const fn after(&self) -> LeaseId {
        LeaseId { task: self.task, run: self.run.run, epoch: self.run.newest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule A2.
    #[test]
    fn only_what_a_worker_began_is_charged() {
        for ending in Ending::ALL {
            let free_when_begun = matches!(ending, Ending::Undeliverable | Ending::HandedBack | Ending::Cancelled);
            let free_when_not = free_when_begun || matches!(ending, Ending::WorkerLost | Ending::Expired);
            assert_eq!(charge(ending, true, 0), !free_when_begun, "{ending:?}, begun");
            assert_eq!(charge(ending, false, 0), !free_when_not, "{ending:?}, not begun");
        }
    }

    // Rules A2, A4. Case F19.
    #[test]
    fn a_run_has_ten_free_endings_and_the_next_one_is_charged() {
        for ending in [Ending::Undeliverable, Ending::HandedBack, Ending::WorkerLost] {
            assert!((0..FREE_ENDINGS).all(|free| !charge(ending, false, free)));
            assert!(charge(ending, false, FREE_ENDINGS));
            assert!(charge(ending, false, u32::MAX));
        }
    }

    // Rule X2.
    #[test]
    fn a_run_ends_when_its_budget_is_spent_and_has_at_least_one_attempt() {
        assert_eq!([0, 1, 2, 3, 4].map(|n| next(n, 3) == Next::DeadLetter), [false, false, false, true, true]);
        assert_eq!([next(0, 0), next(1, 0)], [Next::Requeue, Next::DeadLetter]);
    }

    // Rule R4. Case F21.
    #[test]
    fn the_delay_doubles_to_the_cap_and_never_overflows_or_falls() {
        let base = SpanMs::seconds(1);
        assert_eq!([1, 2, 3, 4].map(|n| backoff(n, base).0), [1000, 2000, 4000, 8000]);
        let mut last = SpanMs::ZERO;
        for charged in (0..=1000).chain([i32::MAX as u32, u32::MAX]) {
            let whole = backoff(charged, base);
            assert!(whole >= last && whole <= MAX_DELAY, "after {charged}");
            for task in [0, 1, -1, i64::MIN, i64::MAX].map(TaskId) {
                let jittered = delay(charged, base, task);
                assert!(jittered <= whole && jittered.0 >= whole.0 / 2, "after {charged} of {task:?}");
            }
            last = whole;
        }
        assert_eq!(backoff(u32::MAX, SpanMs(u64::MAX)), MAX_DELAY);
        assert_eq!(delay(7, SpanMs::ZERO, TaskId(3)), SpanMs::ZERO);
    }

    // Case F21.
    #[test]
    fn five_thousand_tasks_that_fail_together_do_not_come_back_together() {
        let base = SpanMs::seconds(60);
        let after = |task| u64::try_from(task % 1000).unwrap() + delay(1, base, TaskId(task)).0;
        let mut back = (1..=5000).map(after).collect::<Vec<_>>();
        back.sort_unstable();
        let busiest = (0..back.len()).map(|i| back[i..].partition_point(|t| *t < back[i] + 1000)).max();
        assert!(busiest <= Some(500), "{busiest:?} of 5000 in one second");
    }
}
