//! What people command of a running dispatcher, and what it means for workers amid their tasks.

use crate::kit::{Place, Puppet, SERVICE, Setup, wait_until};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::Ending;
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, ToWorker, TokenText};
use dispatcher_server::DrainMode;
use dispatcher_store::{Command, Named, ServiceChange, TaskFilter, TaskState};

/// A place with these tasks, a worker that has begun as many of them, and their tokens.
fn begun(inputs: usize, granted: u64) -> (Place, Puppet, Vec<TokenText>) {
    let place = Place::start(Setup::serving(inputs));
    let puppet = Puppet::join(&place, "steady", 10);
    puppet.say(&FromWorker::Ready { granted });
    let mut tokens = Vec::new();
    for _ in 0..granted {
        let token = puppet.hear_task();
        puppet.say(&FromWorker::Begun { token: token.clone() });
        tokens.push(token);
    }
    let holds = tokens.iter().map(|token| Hold { token: token.clone(), state: HoldState::Running }).collect();
    puppet.beat(1, granted, holds);
    (place, puppet, tokens)
}

fn everything() -> TaskFilter {
    TaskFilter::default()
}

fn hear_cancels(puppet: &Puppet, tokens: &[TokenText]) {
    let mut left: Vec<&TokenText> = tokens.iter().collect();
    while !left.is_empty() {
        let (said, _) = puppet.hear_until("a cancel", |said| matches!(said, ToWorker::Cancel { .. }));
        let ToWorker::Cancel { token, .. } = said else { unreachable!() };
        left.retain(|of| **of != token);
    }
}

// Rules A1, A5. Case F63.
#[test]
fn cancelled_tasks_free_their_places_at_once_and_late_results_of_them_change_nothing() {
    let (place, puppet, tokens) = begun(20, 10);
    let ids: Vec<TaskId> = tokens.iter().map(|token| place.task_of(token)).collect();
    let running = TaskFilter { states: vec![TaskState::Leased], ids: ids.clone(), ..everything() };
    let outcome = place.command(&Command::Cancel { filter: running });
    assert_eq!((outcome.changed, outcome.error), (10, None));
    hear_cancels(&puppet, &tokens);
    assert_eq!(place.dispatcher().in_flight(), 0, "places are free at once");
    puppet.say(&FromWorker::Ready { granted: 20 });
    let next = puppet.hear_task();
    assert_eq!(puppet.finish(&tokens[0]), AckWord::Cancelled, "a late result");
    assert_eq!(puppet.finish(&next), AckWord::Stored, "what waited goes on");
    assert_eq!(place.story(ids[0].0).attempts[0].ending, Some(Ending::Cancelled));
    assert_eq!(place.count(TaskState::Cancelled), 10);
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules C6, L4, L14.
#[test]
fn a_rerun_amid_work_begins_a_new_run_and_the_old_result_never_lands_in_it() {
    let (place, puppet, tokens) = begun(1, 1);
    let outcome = place.command(&Command::Rerun { filter: everything() });
    assert_eq!((outcome.changed, outcome.error), (1, None));
    hear_cancels(&puppet, &tokens);
    assert_eq!(puppet.finish(&tokens[0]), AckWord::Stale);
    puppet.say(&FromWorker::Ready { granted: 2 });
    let again = puppet.hear_task();
    assert_eq!(puppet.finish(&again), AckWord::Stored);
    let story = place.story(1);
    assert_eq!((story.task.run.0, story.attempts.len()), (2, 2));
    assert_eq!(story.attempts.iter().filter(|a| a.ending == Some(Ending::Stale)).count(), 1);
    place.assert_balance();
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules D4, D5. Case F49.
#[test]
fn results_of_tasks_deleted_meanwhile_are_counted_and_the_others_land() {
    let (place, puppet, tokens) = begun(10, 10);
    place.import("other", 100..103, 0);
    let deleted = place.command(&Command::Delete { what: Named::Service("other".to_owned()) });
    assert_eq!(deleted.error, None);
    assert_eq!(puppet.finish(&tokens[0]), AckWord::Stored);
    let outcome = place.command(&Command::Delete { what: Named::Corpus("inputs".to_owned()) });
    assert_eq!((outcome.changed, outcome.error), (10, None));
    hear_cancels(&puppet, &tokens[1..]);
    assert!(tokens[1..].iter().all(|token| puppet.finish(token) == AckWord::Unknown));
    assert_eq!((place.summary().total, place.dispatcher().in_flight()), (0, 0));
    place.assert_balance();
    puppet.leave();
    place.drain(DrainMode::Received);
}

#[test]
fn a_paused_service_hands_out_nothing_and_goes_on_when_resumed() {
    let place = Place::start(Setup::serving(5));
    let pause = |service: Option<&str>| Command::Pause { service: service.map(str::to_owned) };
    assert_eq!(place.command(&pause(Some(SERVICE))).error, None);
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 2 });
    place.import("open", 10..11, 0);
    puppet.beat(1, 0, Vec::new());
    assert_eq!(place.dispatcher().in_flight(), 0);
    wait_until("nothing is claimed", || place.count(TaskState::Leased) == 0);
    assert_eq!(place.command(&Command::Resume { service: None }).error, None);
    let token = puppet.hear_task();
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    // Pausing takes back what no worker has; what one has goes on.
    let token = puppet.hear_task();
    assert_eq!(place.command(&pause(None)).error, None);
    wait_until("the stock is back", || place.count(TaskState::Leased) == 1);
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rule L3. Case F16.
#[test]
fn a_new_time_limit_holds_for_new_runs_and_a_cap_for_hand_outs_at_once() {
    let (place, puppet, tokens) = begun(10, 2);
    let change = ServiceChange { max_in_flight: Some(2), ..ServiceChange::default() };
    assert_eq!(place.command(&Command::PutService { name: SERVICE.to_owned(), change }).error, None);
    // What was claimed before has the old settings; what is claimed from now on has the new ones.
    assert_eq!(place.command(&Command::Pause { service: None }).error, None);
    assert_eq!(place.command(&Command::Resume { service: None }).error, None);
    puppet.say(&FromWorker::Ready { granted: 10 });
    let holds = tokens.iter().map(|token| Hold { token: token.clone(), state: HoldState::Running }).collect();
    puppet.beat(2, 2, holds);
    assert_eq!(place.dispatcher().in_flight(), 2, "the cap of the service");
    assert_eq!(puppet.finish(&tokens[0]), AckWord::Stored);
    let next = puppet.hear_task();
    assert_eq!(place.dispatcher().in_flight(), 2);
    assert_eq!(puppet.finish(&next), AckWord::Stored);
    puppet.vanish();
    place.drain(DrainMode::Received);
}

// Case F65.
#[test]
fn a_service_with_a_long_queue_and_no_workers_does_not_starve_another() {
    let place = Place::start(Setup::serving(2_000));
    place.import("rare", 5_000..5_010, 0);
    let (puppet, ..) = Puppet::join_with(&place, "only-rare", 1, &["rare"], Vec::new());
    puppet.say(&FromWorker::Ready { granted: 10 });
    for _ in 0..10 {
        assert_eq!(puppet.finish(&puppet.hear_task()), AckWord::Stored);
    }
    let (both, ..) = Puppet::join_with(&place, "both", 1, &["rare", SERVICE], Vec::new());
    place.import("rare", 6_000..6_005, 0);
    both.say(&FromWorker::Ready { granted: 1_000 });
    let rare_are_done = || (2_011..=2_015).all(|task| place.story(task).task.state == TaskState::Done);
    let mut ended = 0;
    while !rare_are_done() {
        assert_eq!(both.finish(&both.hear_task()), AckWord::Stored);
        ended += 1;
        assert!(ended < 1_000, "services take turns, whatever waits: {:?} {:?}", place.story(2_011), place.summary());
    }
    puppet.vanish();
    both.vanish();
    place.drain(DrainMode::Received);
}

// Rule S1.
#[test]
fn a_drain_can_be_commanded() {
    let place = Place::start(Setup::serving(3));
    let outcome = place.command(&Command::Drain { wait: false });
    assert_eq!(outcome.error, None);
    place.ended();
    assert_eq!(place.count(TaskState::Ready), 3);
}

// Rules S1, S4.
#[test]
fn a_drain_that_was_never_carried_out_ends_no_later_dispatcher() {
    let place = Place::start(Setup::serving(1));
    place.drain(DrainMode::Received);
    let left: Vec<_> = [true, false].map(|wait| place.submit(&Command::Drain { wait })).into();
    let place = place.start_again();
    for id in left {
        let error = place.outcome(id).and_then(|outcome| outcome.error).unwrap_or_default();
        assert!(error.contains("was meant for"), "it is over before work begins: {error:?}");
    }
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    assert_eq!(puppet.finish(&puppet.hear_task()), AckWord::Stored);
    assert!(!place.dispatcher().is_draining());
    puppet.leave();
    assert_eq!(place.command(&Command::Drain { wait: false }).error, None, "one of its own it carries out");
    place.ended();
}
