//! The word to stop that reaches a task under way.
//!
//! Owns one level signal per task: once it is given it stays, so that nobody can miss it by being late or early. Knows
//! nothing of who gives it or how work ends. It can be asked (`reason`) and waited for together with other
//! descriptors (`as_fd`).

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Why a task is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CancelReason {
    /// An operator ended it.
    Cancelled = 1,
    /// The dispatcher no longer counts it as this worker's.
    Unknown = 2,
    /// Its time limit is over (rule A3).
    TimeLimit = 3,
    /// The worker ends now and gives the task back (rule S1).
    Stopping = 4,
}

/// Tells one task to stop. Clones are the same signal.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<Signal>);

#[derive(Debug)]
struct Signal {
    /// 0, or the first reason that was given.
    reason: AtomicU8,
    /// Readable from the moment a reason is given.
    wake: OwnedFd,
}

impl Cancel {
    /// A signal that has not been given.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Signal { reason: AtomicU8::new(0), wake })))
    }

    /// Gives the signal. The first reason stays; later ones change nothing.
    pub fn cancel(&self, reason: CancelReason) {
        if self.0.reason.compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // The counter of a fresh descriptor takes one write without waiting, and this is its only one.
            let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
        }
    }

    /// Why the task is to stop, or `None` while it may go on.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        match self.0.reason.load(Ordering::Acquire) {
            1 => Some(CancelReason::Cancelled),
            2 => Some(CancelReason::Unknown),
            3 => Some(CancelReason::TimeLimit),
            4 => Some(CancelReason::Stopping),
            _ => None,
        }
    }

    /// Whether the task is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }
}

impl AsFd for Cancel {
    /// A descriptor that is readable from the moment the signal is given, for `poll`. Nobody reads from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(cancel: &Cancel) -> bool {
        let mut fds = [PollFd::new(cancel, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_first_reason_stays_and_wakes_who_polls() {
        let cancel = Cancel::new().unwrap();
        assert_eq!(cancel.reason(), None);
        assert!(!is_readable(&cancel));
        cancel.clone().cancel(CancelReason::TimeLimit);
        cancel.cancel(CancelReason::Stopping);
        assert_eq!(cancel.reason(), Some(CancelReason::TimeLimit));
        assert!(is_readable(&cancel));
    }
}
