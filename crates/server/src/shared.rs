//! What the stages share: a few flags, what is in stock, and which services are offered.
//!
//! Owns values that one stage sets and others read, each exact at rest. Knows nothing of what they lead to.

use crate::progress::Progress;
use dispatcher_core::id::{ServiceId, TaskId};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What is waited for before a dispatcher ends (rule S1). Nothing more is leased in any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// What was received is written and answered. Workers go on, and what they bring lands after the next start.
    Received,
    /// Everything in flight has ended.
    InFlight,
    /// The workers have left: they belong to this process.
    WorkersLeft,
}

/// What the stages share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Claimed tasks that no worker has yet.
    pub stock: Stocked,
    /// Services that a connected worker can do.
    pub offered: Offered,
    /// Every service by its name, so that nobody on the way of a result asks the store (rule G7).
    pub services: KnownServices,
    /// Set when the router has ended: nothing that awaits a result is left.
    pub router_over: AtomicBool,
    /// Set while nothing may be leased: the store is away, the disk is full.
    pub holding: AtomicBool,
    /// Set when everything was imported: the end is when every task has ended.
    pub finish_when_empty: AtomicBool,
    /// Set by the finaliser when every task has ended and is published.
    pub finished: AtomicBool,
    /// Workers with a connection.
    pub workers: AtomicUsize,
    /// Messages that could not be taken as they were.
    pub noise: AtomicU64,
    /// Lines of the log that were dropped.
    pub dropped_lines: AtomicU64,
    /// Messages that wait for the receiver, as the router saw them last.
    pub to_receiver: AtomicUsize,
    /// Messages that wait for the finaliser, as it saw them last.
    pub to_finaliser: AtomicUsize,
    /// When the router turned last, in milliseconds since the Unix epoch.
    pub routed_at: AtomicI64,
    /// Set by the router when it ended because the drain took too long.
    pub drain_spent: AtomicBool,
    /// Tasks in flight of which it is not known where their results go.
    pub unplaced: Unplaced,
    /// How it drains, and since when.
    drain: OnceLock<(DrainMode, Instant)>,
}

impl Shared {
    /// Begins to drain, unless it has begun already.
    pub fn begin_drain(&self, mode: DrainMode) {
        self.drain.get_or_init(|| (mode, Instant::now()));
    }

    /// For how long it has drained.
    pub fn drained_for(&self) -> Option<Duration> {
        self.drain.get().map(|(_, since)| since.elapsed())
    }

    /// How it drains, if it does.
    pub fn drain_mode(&self) -> Option<DrainMode> {
        self.drain.get().map(|(mode, _)| *mode)
    }

    /// What is waited for, where nothing may be leased before it is there: space, a lost store.
    pub fn waits_for(&self, progress: &Progress) -> Option<String> {
        let what = || progress.now().waiting_for.unwrap_or_else(|| "the store".to_owned());
        self.holding.load(Ordering::Acquire).then(what)
    }

    /// Whether nothing more may be leased.
    pub fn is_draining(&self) -> bool {
        self.drain_mode().is_some()
    }
}

/// How many claimed tasks of each service wait for a worker.
#[derive(Debug, Default)]
pub struct Stocked(Mutex<HashMap<ServiceId, usize>>);

impl Stocked {
    /// More were claimed.
    pub fn add(&self, service: ServiceId, n: usize) {
        *self.lock().entry(service).or_default() += n;
    }

    /// One has gone to a worker, or back.
    pub fn take(&self, service: ServiceId) {
        if let Some(n) = self.lock().get_mut(&service) {
            *n = n.saturating_sub(1);
        }
    }

    /// How many of a service.
    pub fn of(&self, service: ServiceId) -> usize {
        self.lock().get(&service).copied().unwrap_or(0)
    }

    /// How many in all.
    pub fn total(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every service by its name.
#[derive(Debug, Default)]
pub struct KnownServices(Mutex<HashMap<String, ServiceId>>);

impl KnownServices {
    /// Replaces the list.
    pub fn set(&self, services: impl Iterator<Item = (String, ServiceId)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = services.collect();
    }

    /// The service of that name.
    pub fn id_of(&self, name: &str) -> Option<ServiceId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

/// The services that a connected worker can do: for nobody else is it worth while to claim.
#[derive(Debug, Default)]
pub struct Offered(Mutex<BTreeSet<String>>);

impl Offered {
    /// Replaces the list; whether it grew.
    pub fn set(&self, services: BTreeSet<String>) -> bool {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let grew = services.iter().any(|service| !now.contains(service));
        *now = services;
        grew
    }

    /// Whether somebody can do it.
    pub fn has(&self, service: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(service)
    }
}

/// Tasks in flight of which it is not known where their results go (rules G8, C12). Only those that were taken over from
/// an earlier process: what is not known is not handed out.
#[derive(Debug, Default)]
pub struct Unplaced(Mutex<BTreeSet<TaskId>>);

impl Unplaced {
    /// One more.
    pub fn add(&self, task: TaskId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task);
    }

    /// It is known now.
    pub fn remove(&self, task: TaskId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&task);
    }

    /// Whether it is one of them.
    pub fn has(&self, task: TaskId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule S1.
    #[test]
    fn the_first_drain_decides_what_is_waited_for() {
        let shared = Shared::default();
        assert_eq!(shared.drain_mode(), None);
        shared.begin_drain(DrainMode::InFlight);
        shared.begin_drain(DrainMode::Received);
        assert_eq!(shared.drain_mode(), Some(DrainMode::InFlight));
    }
}
