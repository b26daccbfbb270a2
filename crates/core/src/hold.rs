//! Hold points: places where a test can stop the pipeline and look inside (rule G2).
//!
//! Owns the named points, who waits at them and how they are let go. The one place of this crate that waits. Knows nothing
//! of what happens at a point.
//!
//! Call sites are the same in every build; only test builds (`cfg(test)`, or the feature `test-hooks`, which other crates
//! enable in their dev-dependencies) can arm. Threads wait in [`HoldPoints::stop`], async code awaits
//! [`HoldPoints::stop_async`], which works under any runtime.
//!
//! **Invariants**: signals are levels, so none can be missed by being early; an un-armed point costs one map miss; no lock
//! of the map is held while anybody waits; when a point ends, first all who wait are let go, then its key goes.

use crate::id::{Run, TaskId};
use dashmap::DashMap;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where to stop, and whom: a place of one pipeline, for one run of one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldKey {
    /// The place, as its call site names it.
    pub place: Cow<'static, str>,
    /// The pipeline, so that two in one process do not stop each other.
    pub pipeline: Cow<'static, str>,
    /// The task.
    pub task: TaskId,
    /// Its run.
    pub run: Run,
}

/// The hold points of a process or of a pipeline. Clones share one map.
///
/// ```
/// use dispatcher_core::hold::{HoldKey, HoldPoints};
/// use dispatcher_core::id::{Run, TaskId};
///
/// let points = HoldPoints::default();
/// // Nobody has armed it: whoever comes passes.
/// points.stop(&HoldKey::new("before_commit", "main", TaskId(1), Run(1)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct HoldPoints {
    armed: Arc<DashMap<HoldKey, Arc<Point>>>,
}

/// What is known at one point. Both signals are levels: once set they stay.
#[derive(Debug, Default)]
struct Point {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reached: bool,
    released: bool,
    wakers: Vec<Waker>,
}

impl HoldKey {
    /// The key of a place for one (pipeline, task, run).
    #[must_use]
    pub const fn new(place: &'static str, pipeline: &'static str, task: TaskId, run: Run) -> Self {
        Self { place: Cow::Borrowed(place), pipeline: Cow::Borrowed(pipeline), task, run }
    }
}

impl HoldPoints {
    /// Stops here while a test holds `key`; passes at once where nobody does.
    pub fn stop(&self, key: &HoldKey) {
        if let Some(point) = self.armed_at(key) {
            point.wait_until_released();
        }
    }

    /// As [`Self::stop`], for async code: the future is ready once nobody holds `key`. It may be dropped at any time.
    pub fn stop_async(&self, key: &HoldKey) -> impl Future<Output = ()> + Send + use<> {
        Stopped { point: self.armed_at(key) }
    }

    fn armed_at(&self, key: &HoldKey) -> Option<Arc<Point>> {
        self.armed.get(key).map(|point| Arc::clone(&point))
    }
}

impl Point {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is two flags and a list: no panic can leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    fn wait_until_released(&self) {
        self.change(|state| state.reached = true);
        let waiting = self.changed.wait_while(self.lock(), |state| !state.released);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    fn poll(&self, is_set: impl Fn(&State) -> bool, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if is_set(&state) {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Somebody async at a point.
struct Stopped {
    point: Option<Arc<Point>>,
}

impl Future for Stopped {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(point) = &self.point else {
            return Poll::Ready(());
        };
        if !point.lock().reached {
            point.change(|state| state.reached = true);
        }
        point.poll(|state| state.released, context)
    }
}

#[cfg(any(test, feature = "test-hooks"))]
pub use arming::{AlreadyArmed, ArmedHold};

/// Arming, for test builds only.
#[cfg(any(test, feature = "test-hooks"))]
mod arming {
    use super::{Arc, Context, Future, HoldKey, HoldPoints, Pin, Point, PoisonError, Poll, State};
    use dashmap::mapref::entry::Entry;
    use std::time::Duration;

    /// An armed hold point. Whoever comes stops until this is dropped; there is no other way to let them go.
    #[derive(Debug)]
    #[must_use = "the point lets everybody pass as soon as this is dropped"]
    pub struct ArmedHold {
        points: HoldPoints,
        key: HoldKey,
        point: Arc<Point>,
    }

    /// The point is armed already.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("the hold point is armed already")]
    pub struct AlreadyArmed;

    impl HoldPoints {
        /// Arms `key`.
        ///
        /// # Errors
        /// [`AlreadyArmed`] where another test holds it.
        pub fn arm(&self, key: HoldKey) -> Result<ArmedHold, AlreadyArmed> {
            let point = Arc::new(Point::default());
            match self.armed.entry(key.clone()) {
                Entry::Occupied(_) => return Err(AlreadyArmed),
                Entry::Vacant(free) => drop(free.insert(Arc::clone(&point))),
            }
            Ok(ArmedHold { points: self.clone(), key, point })
        }
    }

    impl ArmedHold {
        /// Whether somebody has come, now or earlier.
        #[must_use]
        pub fn is_reached(&self) -> bool {
            self.point.lock().reached
        }

        /// Waits until somebody has come, at most `patience`. Returns whether somebody has.
        #[must_use]
        pub fn wait_reached(&self, patience: Duration) -> bool {
            let not_reached = |state: &mut State| !state.reached;
            let waited = self.point.changed.wait_timeout_while(self.point.lock(), patience, not_reached);
            waited.unwrap_or_else(PoisonError::into_inner).0.reached
        }

        /// Ready once somebody has come, for async tests.
        pub fn reached(&self) -> impl Future<Output = ()> + Send + use<> {
            Reached(Arc::clone(&self.point))
        }
    }

    struct Reached(Arc<Point>);

    impl Future for Reached {
        type Output = ();

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            self.0.poll(|state| state.reached, context)
        }
    }

    impl Drop for ArmedHold {
        fn drop(&mut self) {
            self.point.change(|state| state.released = true);
            self.points.armed.remove_if(&self.key, |_, point| Arc::ptr_eq(point, &self.point));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;
    use std::thread;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn key(task: i64) -> HoldKey {
        HoldKey::new("before_commit", "main", TaskId(task), Run(1))
    }

    // Rule G2.
    #[test]
    fn whoever_comes_stops_until_the_hold_is_dropped_and_later_comers_pass() {
        let points = HoldPoints::default();
        let hold = points.arm(key(1)).unwrap();
        assert!(!hold.is_reached());
        let passed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    points.stop(&key(1));
                    passed.fetch_add(1, Ordering::SeqCst);
                });
            }
            assert!(hold.wait_reached(PATIENCE));
            assert!(hold.is_reached());
            assert_eq!(passed.load(Ordering::SeqCst), 0);
            drop(hold);
        });
        assert_eq!(passed.load(Ordering::SeqCst), 3);
        points.stop(&key(1));
        assert!(points.armed.is_empty());
    }

    // Rule G2.
    #[test]
    fn a_hold_stops_nobody_else() {
        let points = HoldPoints::default();
        let hold = points.arm(key(1)).unwrap();
        points.stop(&key(2));
        points.stop(&HoldKey { run: Run(2), ..key(1) });
        points.stop(&HoldKey { pipeline: "other".into(), ..key(1) });
        points.stop(&HoldKey { place: "after_commit".into(), ..key(1) });
        assert!(!hold.is_reached());
        assert!(!hold.wait_reached(Duration::ZERO));
    }

    // Rule G2.
    #[test]
    fn a_signal_that_comes_early_is_not_missed() {
        let points = HoldPoints::default();
        let hold = points.arm(key(1)).unwrap();
        let (arrived, has_arrived) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                arrived.send(()).unwrap();
                points.stop(&key(1));
            });
            has_arrived.recv().unwrap();
            // Whether it has come or is about to come, and however often it is asked.
            assert!(hold.wait_reached(PATIENCE));
            assert!(hold.wait_reached(Duration::ZERO));
            drop(hold);
        });
    }

    // Rule G2.
    #[test]
    fn one_who_looked_the_point_up_before_it_ended_passes_after_it() {
        let points = HoldPoints::default();
        let hold = points.arm(key(1)).unwrap();
        let point = points.armed_at(&key(1)).unwrap();
        drop(hold);
        point.wait_until_released();
    }

    // Rule G2.
    #[test]
    fn a_point_is_armed_once_and_a_new_hold_begins_afresh() {
        let points = HoldPoints::default();
        let first = points.arm(key(1)).unwrap();
        assert_eq!(points.arm(key(1)).unwrap_err(), AlreadyArmed);
        drop(first);
        let second = points.arm(key(1)).unwrap();
        assert!(!second.is_reached());
    }

    // Rule G2.
    #[test]
    fn a_test_that_panics_lets_everybody_go() {
        let points = HoldPoints::default();
        let passed = AtomicBool::new(false);
        thread::scope(|scope| {
            let hold = points.arm(key(1)).unwrap();
            scope.spawn(|| {
                points.stop(&key(1));
                passed.store(true, Ordering::SeqCst);
            });
            let failed = catch_unwind(AssertUnwindSafe(|| {
                let hold = hold;
                assert!(hold.wait_reached(PATIENCE));
                panic!("an assertion of the test");
            }));
            assert!(failed.is_err());
        });
        assert!(passed.load(Ordering::SeqCst));
    }

    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    // Rule G2.
    #[test]
    fn async_code_is_woken_by_both_signals_without_a_runtime() {
        let points = HoldPoints::default();
        let hold = points.arm(key(1)).unwrap();
        let woken = Arc::new(Counting(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut reached = pin!(hold.reached());
        let mut stopped = pin!(points.stop_async(&key(1)));
        assert_eq!(reached.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(stopped.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(reached.as_mut().poll(&mut context), Poll::Ready(()));
        drop(hold);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!(stopped.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
