//! Dispatchers that end by themselves.

use crate::kit::{Echo, Place, Puppet, Setup, start_worker};
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::report::Status;
use dispatcher_core::time::SpanMs;
use dispatcher_core::wire::{AckWord, FromWorker};
use dispatcher_server::Ended;
use dispatcher_store::TaskState;
use dispatcher_worker::{Assignment, Cancel, Outcome, Worker};
use std::sync::Arc;

/// Fails the first attempt of every third task in a way that is worth another one, and some tasks for good.
struct Moody;

impl Worker for Moody {
    fn work(&self, task: &Assignment, _cancel: &Cancel) -> Outcome {
        match (task.task.0 % 3, task.attempt) {
            (0, 0) => Outcome::retryable("mood", "bad", "try again"),
            (1, _) => Outcome::Done { status: Status::Fatal, messages: Vec::new(), parts: Vec::new() },
            _ => Outcome::done(Vec::new()),
        }
    }
}

/// How many tasks a dispatcher with this limit ends, of so many, with this worker.
fn ended_with(limit: u64, inputs: usize, work: Arc<dyn Worker>) -> u64 {
    let place = Place::start(Setup { task_limit: Some(limit), ..Setup::serving(inputs) });
    place.dispatcher().finish_when_empty();
    let worker = start_worker(&place, "good", 2, work);
    assert!(matches!(place.ended(), Ended::Well { in_time: true, .. }));
    worker.stop.now();
    worker.thread.join().unwrap();
    place.assert_balance();
    assert_eq!(place.count(TaskState::Leased), 0);
    place.count(TaskState::Done) + place.count(TaskState::Dead)
}

// Rule S5. Case F61.
#[test]
fn a_limit_above_what_there_is_ends_when_everything_has_ended() {
    assert_eq!(ended_with(50, 8, Arc::new(Echo)), 8);
}

// Rule S5. Case F61.
#[test]
fn a_limit_below_what_there_is_ends_exactly_so_many_tasks() {
    assert_eq!(ended_with(8, 50, Arc::new(Echo)), 8);
}

// Rule S5. Case F61.
#[test]
fn failing_and_repeated_tasks_count_once() {
    assert_eq!(ended_with(9, 50, Arc::new(Moody)), 9);
}

// Rule S5. Case F61.
#[test]
fn a_limit_of_nothing_ends_at_once_without_a_worker() {
    let place = Place::start(Setup { task_limit: Some(0), ..Setup::serving(5) });
    assert!(matches!(place.ended(), Ended::Well { finished: false, in_time: true }));
    assert_eq!(place.count(TaskState::Ready), 5);
}

// Rule S5. Case F61.
#[test]
fn a_limit_is_reached_all_the_same_when_a_worker_leaves() {
    let fleet = FleetLimits { beat: SpanMs(500), dead_after: SpanMs(3_000), ..FleetLimits::default() };
    let place = Place::start(Setup { task_limit: Some(6), fleet, ..Setup::serving(20) });
    let leaving = Puppet::join(&place, "leaving", 1);
    leaving.say(&FromWorker::Ready { granted: 3 });
    let (first, second) = (leaving.hear_task(), leaving.hear_task());
    assert_eq!(leaving.finish(&first), AckWord::Stored);
    leaving.say(&FromWorker::Release { token: second });
    leaving.vanish();
    let good = start_worker(&place, "good", 2, Arc::new(Echo));
    assert!(matches!(place.ended(), Ended::Well { in_time: true, .. }));
    good.stop.now();
    good.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 6);
    place.assert_balance();
}
