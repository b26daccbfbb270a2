//! One dispatch at a time per key (rule G1).
//!
//! Owns the map of keys under dispatch and the guard that frees a key however its holder ends. Knows nothing of what is
//! dispatched; a refusal is data, and whoever asked logs it.
//!
//! **Invariants**: at most one guard per key lives; a refusal changes nothing; no lock of the map is held when a call
//! returns, so that guards may live across awaits and be dropped anywhere, also in a panic.

use crate::id::TaskId;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// The keys under dispatch, each with the task that holds it. Clones share one map.
#[derive(Debug)]
pub struct DispatchMap<K: Eq + Hash> {
    holders: Arc<DashMap<K, TaskId>>,
}

/// Holds a key until it is dropped: at a normal end, an early return, a cancellation or a panic.
#[derive(Debug)]
#[must_use = "the key is free again as soon as the guard is dropped"]
pub struct DispatchGuard<K: Eq + Hash> {
    holders: Arc<DashMap<K, TaskId>>,
    key: K,
}

/// Why a key was not given. The holder's entry is untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefused<K: fmt::Debug> {
    /// The same task is under dispatch already: expected, worth a line for debugging.
    #[error("task {task} is under dispatch already")]
    Duplicate {
        /// The task.
        task: TaskId,
    },
    /// Another task holds the key: worth a warning.
    #[error("the key {key:?} of task {task} is held by task {holder}")]
    Collision {
        /// The key that both have.
        key: K,
        /// Who asked.
        task: TaskId,
        /// Who has it.
        holder: TaskId,
    },
}

impl<K: Eq + Hash + Clone + fmt::Debug> DispatchMap<K> {
    /// A map in which nothing is held.
    #[must_use]
    pub fn new() -> Self {
        Self { holders: Arc::new(DashMap::new()) }
    }

    /// Takes `key` for `task`, in one atomic step.
    ///
    /// ```
    /// use dispatcher_core::guard::{DispatchMap, GuardRefused};
    /// use dispatcher_core::id::TaskId;
    ///
    /// let map = DispatchMap::new();
    /// let guard = map.claim("entry", TaskId(1)).unwrap();
    /// assert_eq!(map.claim("entry", TaskId(1)).unwrap_err(), GuardRefused::Duplicate { task: TaskId(1) });
    /// drop(guard);
    /// assert!(map.claim("entry", TaskId(2)).is_ok());
    /// ```
    ///
    /// # Errors
    /// [`GuardRefused`] where the key is held: skip the task, and leave the holder alone.
    pub fn claim(&self, key: K, task: TaskId) -> Result<DispatchGuard<K>, GuardRefused<K>> {
        let holder = match self.holders.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(task);
                None
            }
            Entry::Occupied(held) => Some(*held.get()),
        };
        match holder {
            None => Ok(DispatchGuard { holders: Arc::clone(&self.holders), key }),
            Some(holder) if holder == task => Err(GuardRefused::Duplicate { task }),
            Some(holder) => Err(GuardRefused::Collision { key, task, holder }),
        }
    }

    /// The task that holds `key` now.
    #[must_use]
    pub fn holder(&self, key: &K) -> Option<TaskId> {
        self.holders.get(key).map(|task| *task)
    }

    /// How many keys are held now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether no key is held now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

impl<K: Eq + Hash + Clone + fmt::Debug> Default for DispatchMap<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash> Clone for DispatchMap<K> {
    fn clone(&self) -> Self {
        Self { holders: Arc::clone(&self.holders) }
    }
}

impl<K: Eq + Hash> DispatchGuard<K> {
    /// The key.
    #[must_use]
    pub const fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Eq + Hash> Drop for DispatchGuard<K> {
    fn drop(&mut self) {
        self.holders.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Future, pending};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::thread;

    fn hold_and_return_early(map: &DispatchMap<&'static str>) -> Option<()> {
        let _guard = map.claim("key", TaskId(1)).ok()?;
        None
    }

    // Rule G1.
    #[test]
    fn a_key_is_free_again_after_a_normal_end_an_early_return_and_a_panic() {
        let map = DispatchMap::new();
        drop(map.claim("key", TaskId(1)).unwrap());
        assert!(map.is_empty());
        assert_eq!(hold_and_return_early(&map), None);
        assert!(map.is_empty());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = map.claim("key", TaskId(1)).unwrap();
            panic!("while holding the key");
        }));
        assert!(panicked.is_err());
        assert!(map.is_empty());
    }

    // Rule G1.
    #[test]
    fn a_key_is_free_again_when_async_work_is_cancelled_between_two_polls() {
        let map = DispatchMap::new();
        let mut context = Context::from_waker(Waker::noop());
        {
            let work = async {
                let _guard = map.claim("key", TaskId(1)).unwrap();
                pending::<()>().await;
            };
            let mut work = pin!(work);
            assert_eq!(work.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(map.holder(&"key"), Some(TaskId(1)));
        }
        assert!(map.is_empty());
    }

    // Rule G1.
    #[test]
    fn who_is_refused_learns_why_and_leaves_the_holder_alone() {
        let map = DispatchMap::new();
        let guard = map.claim("key", TaskId(1)).unwrap();
        let duplicate = map.claim("key", TaskId(1)).unwrap_err();
        assert_eq!(duplicate, GuardRefused::Duplicate { task: TaskId(1) });
        let collision = map.claim("key", TaskId(2)).unwrap_err();
        assert_eq!(collision, GuardRefused::Collision { key: "key", task: TaskId(2), holder: TaskId(1) });
        assert_eq!(collision.to_string(), "the key \"key\" of task 2 is held by task 1");
        assert_eq!(map.holder(guard.key()), Some(TaskId(1)));
        assert_eq!(map.len(), 1);
    }

    // Rule G1.
    #[test]
    fn of_many_threads_that_claim_one_key_exactly_one_holds_it() {
        let map = DispatchMap::new();
        let (start, holders, wins) = (Barrier::new(16), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for task in 0..16 {
                let (map, start, holders, wins) = (map.clone(), &start, &holders, &wins);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..1000 {
                        if let Ok(guard) = map.claim("key", TaskId(task)) {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(map.holder(guard.key()), Some(TaskId(task)));
                            wins.fetch_add(1, Ordering::SeqCst);
                            holders.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(wins.load(Ordering::SeqCst) >= 1);
        assert!(map.is_empty());
    }

    // Rule G1. Case F67.
    #[test]
    fn a_guard_may_be_dropped_by_another_guards_drop() {
        struct Outer {
            _inner: DispatchGuard<u32>,
            map: DispatchMap<u32>,
        }
        impl Drop for Outer {
            fn drop(&mut self) {
                // The map is usable here, and the inner guard goes right after.
                drop(self.map.claim(2, TaskId(2)));
            }
        }
        let map = DispatchMap::new();
        drop(Outer { _inner: map.claim(1, TaskId(1)).unwrap(), map: map.clone() });
        assert!(map.is_empty());
    }
}
