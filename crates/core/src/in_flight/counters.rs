//! Counters of the set: constant time to read, moved by the difference that each transition makes (rules G5, L13).

use crate::id::ServiceId;
use crate::slot::{Place, Slot};
use crate::time::TimeMs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What the set has now, and what it has dropped since it was made (rules C6, C7, G5, L9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Tasks in flight.
    pub in_flight: usize,
    /// Of those, tasks whose worker has told that no result will come.
    pub answered: usize,
    /// Tasks held.
    pub held: usize,
    /// Open receipts.
    pub receipts: usize,
    /// Results that lost against one that stands.
    pub superseded: u64,
    /// Replies that belong to an earlier run.
    pub stale: u64,
    /// Replies that nothing in memory has a place for.
    pub unknown: u64,
    /// Leases undone because their task could not be sent.
    pub undone: u64,
}

/// What one slot adds to the counters and to the index of deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// The service, while in flight.
    pub(super) in_flight: Option<ServiceId>,
    pub(super) answered: bool,
    pub(super) held: bool,
    /// The deadline, while in flight with a clock that runs.
    pub(super) due: Option<TimeMs>,
    /// The end of the window, while held.
    pub(super) until: Option<TimeMs>,
}

impl Footprint {
    pub(super) fn of(slot: Option<&Slot>) -> Self {
        let Some(slot) = slot else { return Self::default() };
        match &slot.place {
            Place::InFlight(lease) => Self {
                in_flight: Some(slot.run.terms.service),
                answered: lease.answered,
                due: lease.deadline,
                ..Self::default()
            },
            Place::Held(hold) => Self { held: true, until: Some(hold.until), ..Self::default() },
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    in_flight: AtomicUsize,
    answered: AtomicUsize,
    held: AtomicUsize,
    pub(super) receipts: Arc<AtomicUsize>,
    pub(super) superseded: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) undone: AtomicU64,
    /// One counter for each service that ever had a task in flight; there are as many as services.
    services: RwLock<BTreeMap<ServiceId, Arc<AtomicUsize>>>,
}

impl Counters {
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn read(&self) -> Counts {
        Counts {
            in_flight: self.in_flight(),
            answered: self.answered.load(Ordering::Acquire),
            held: self.held.load(Ordering::Acquire),
            receipts: self.receipts.load(Ordering::Acquire),
            superseded: self.superseded.load(Ordering::Relaxed),
            stale: self.stale.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            undone: self.undone.load(Ordering::Relaxed),
        }
    }

    pub(super) fn in_flight_of(&self, service: ServiceId) -> usize {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        services.get(&service).map_or(0, |count| count.load(Ordering::Acquire))
    }

    /// Takes a place in flight, unless `limit` are taken. Admission and lease are one step (rule L10).
    pub(super) fn reserve_in_flight(&self, limit: usize) -> bool {
        reserve(&self.in_flight, limit)
    }

    /// Takes a place among the held, unless `limit` are taken (rule X4).
    pub(super) fn reserve_held(&self, limit: usize) -> bool {
        reserve(&self.held, limit)
    }

    /// Moves each counter by the difference of two footprints. A place that the transition has reserved is counted
    /// already.
    pub(super) fn shift(&self, before: &Footprint, after: &Footprint, reserved: &Reserved) {
        let was = before.in_flight.is_some() || reserved.in_flight;
        shift(&self.in_flight, was, after.in_flight.is_some());
        shift(&self.answered, before.answered, after.answered);
        shift(&self.held, before.held || reserved.held, after.held);
        if before.in_flight != after.in_flight {
            if let Some(service) = after.in_flight {
                self.of_service(service).fetch_add(1, Ordering::AcqRel);
            }
            if let Some(service) = before.in_flight {
                self.of_service(service).fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn of_service(&self, service: ServiceId) -> Arc<AtomicUsize> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = services.get(&service) {
            return Arc::clone(count);
        }
        drop(services);
        let mut services = self.services.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(services.entry(service).or_default())
    }
}

/// Places that a transition took in advance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserved {
    pub(super) in_flight: bool,
    pub(super) held: bool,
}

fn reserve(count: &AtomicUsize, limit: usize) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1)).is_ok()
}

fn shift(count: &AtomicUsize, before: bool, after: bool) {
    match (before, after) {
        (false, true) => count.fetch_add(1, Ordering::AcqRel),
        (true, false) => count.fetch_sub(1, Ordering::AcqRel),
        _ => 0,
    };
}
