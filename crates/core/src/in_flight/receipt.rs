//! The guard that says "a result for this lease is being written down" (rule R3).

use crate::id::LeaseId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps the reaper away from a lease from the arrival of a reply to its decision.
///
/// It belongs to the lease under which it was taken; no other feels its release. It is released when it is dropped: on
/// each way out, a panic of the writer included. It holds no lock and may be kept and dropped anywhere.
#[derive(Debug)]
#[must_use = "a receipt that is dropped at once holds nothing off"]
pub struct Receipt {
    lease: LeaseId,
    /// Receipts of that lease; none where the task is held, so that there is no reaper to hold off.
    of_lease: Option<Arc<AtomicUsize>>,
    /// Receipts in all.
    open: Arc<AtomicUsize>,
}

impl Receipt {
    pub(crate) fn take(lease: LeaseId, of_lease: Option<Arc<AtomicUsize>>, open: Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        if let Some(count) = &of_lease {
            count.fetch_add(1, Ordering::AcqRel);
        }
        Self { lease, of_lease, open }
    }

    /// The attempt that the reply belongs to.
    #[must_use]
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(count) = &self.of_lease {
            count.fetch_sub(1, Ordering::AcqRel);
        }
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}
