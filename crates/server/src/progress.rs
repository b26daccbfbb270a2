//! How far the work is, for whoever shows it.
//!
//! Owns counters that the finaliser moves and a progress bar reads; each is exact at rest and may be a moment old under
//! way. Knows no terminal.

use dispatcher_core::report::Status;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of this process since its start.
#[derive(Debug, Default)]
pub struct Progress {
    by_status: [AtomicU64; Status::ALL.len()],
    requeued: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    waiting_for: notice::Notice,
    receiver_waits_for: notice::Notice,
}

/// A snapshot of [`Progress`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressNow {
    /// Tasks that ended, by status in the order of [`Status::ALL`].
    pub by_status: [u64; Status::ALL.len()],
    /// Attempts that ended without a result and led to another.
    pub requeued: u64,
    /// Bytes of results stored.
    pub bytes: u64,
    /// Results whose bytes somebody removed before they were in place.
    pub lost: u64,
    /// What work waits for, where it waits for something: a full disk, a lost store.
    pub waiting_for: Option<String>,
}

impl ProgressNow {
    /// Tasks that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.by_status.iter().sum()
    }

    /// Tasks that ended without a usable result.
    #[must_use]
    pub fn failed(&self) -> u64 {
        Status::ALL.iter().zip(self.by_status).filter(|(status, _)| !status.is_usable()).map(|(_, n)| n).sum()
    }
}

impl Progress {
    /// A task ended with `status`; where something stood for it already, that was `before`.
    pub fn ended(&self, status: Status, before: Option<Status>) {
        if let Some(before) = before {
            // What it replaces may have ended in an earlier process, which these counters know nothing of.
            let less = |n: u64| Some(n.saturating_sub(1));
            let _ = self.by_status[before as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        self.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt led to another.
    pub fn requeued(&self) {
        self.requeued.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of a result were stored.
    pub fn stored(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes of a committed result are gone.
    pub fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The finaliser waits for something, or no longer does. Returns whether that is news.
    pub fn wait_for(&self, what: Option<String>) -> bool {
        self.waiting_for.set(what)
    }

    /// The same of the receiver: when it goes on, the finaliser may still wait.
    pub fn receiver_waits_for(&self, what: Option<String>) -> bool {
        self.receiver_waits_for.set(what)
    }

    /// The counters now.
    #[must_use]
    pub fn now(&self) -> ProgressNow {
        ProgressNow {
            by_status: std::array::from_fn(|i| self.by_status[i].load(Ordering::Relaxed)),
            requeued: self.requeued.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            waiting_for: self.waiting_for.get().or_else(|| self.receiver_waits_for.get()),
        }
    }
}

/// A text that one thread sets and others read.
mod notice {
    use std::sync::{Mutex, PoisonError};

    /// The text, if any.
    #[derive(Debug, Default)]
    pub(super) struct Notice(Mutex<Option<String>>);

    impl Notice {
        pub(super) fn set(&self, what: Option<String>) -> bool {
            let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let news = *now != what;
            *now = what;
            news
        }

        pub(super) fn get(&self) -> Option<String> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rules C8, D3.
    #[test]
    fn a_receiver_that_goes_on_does_not_hide_what_the_finaliser_waits_for() {
        let (progress, waits) = (Progress::default(), |what: &str| Some(what.to_owned()));
        assert!(progress.receiver_waits_for(waits("the spool")));
        assert_eq!(progress.now().waiting_for, waits("the spool"));
        assert!(progress.wait_for(waits("the store")));
        progress.receiver_waits_for(None);
        assert_eq!(progress.now().waiting_for, waits("the store"));
        progress.wait_for(None);
        assert_eq!(progress.now().waiting_for, None);
    }

    // Rule G5.
    #[test]
    fn what_an_earlier_process_ended_is_never_subtracted_below_zero() {
        let progress = Progress::default();
        progress.ended(Status::NoProblem, Some(Status::Fatal));
        assert_eq!((progress.now().ended(), progress.now().failed()), (1, 0));
        progress.ended(Status::Fatal, None);
        progress.ended(Status::Warning, Some(Status::Fatal));
        assert_eq!((progress.now().ended(), progress.now().failed()), (2, 0));
    }
}
