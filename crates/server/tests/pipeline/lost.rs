//! Workers that vanish, hang or give back.

use crate::kit::{Echo, Place, Puppet, Setup, start_worker, wait_until};
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::report::Ending;
use dispatcher_core::time::SpanMs;
use dispatcher_core::wire::{AckWord, FromWorker, ToWorker};
use dispatcher_store::{ServiceSettings, TaskState};
use std::sync::Arc;

/// A fleet in which silence is short.
fn impatient() -> FleetLimits {
    FleetLimits { beat: SpanMs(100), dead_after: SpanMs(600), ..FleetLimits::default() }
}

// Rules X1, X2, A2, A3. Case F14.
#[test]
fn tasks_of_a_vanished_worker_are_ready_again_without_any_traffic() {
    let place = Place::start(Setup { inputs: 20, fleet: impatient(), ..Setup::default() });
    let puppet = Puppet::join(&place, "mortal", 2);
    puppet.say(&FromWorker::Ready { granted: 20 });
    let mut tokens = Vec::new();
    for received in 1..=20 {
        tokens.push(puppet.hear_task());
        // Tasks come a few at a time until their arrival is proved.
        puppet.say(&FromWorker::Beat { n: 0, received, holds: holds(&tokens) });
    }
    for token in &tokens[..2] {
        puppet.say(&FromWorker::Begun { token: token.clone() });
    }
    // The answer to a beat shows that what was said before it was heard.
    puppet.say(&FromWorker::Beat { n: 1, received: 20, holds: holds(&tokens) });
    puppet.hear_until("the answer to the beat", |said| matches!(said, ToWorker::Beat { n: 1, .. }));
    puppet.vanish();
    let lost = |place: &Place, n: i64| place.story(n).attempts[0].ending == Some(Ending::WorkerLost);
    wait_until("every lease has ended", || (1..=20).all(|n| !place.story(n).attempts.is_empty() && lost(&place, n)));
    let charged: u32 = (1..=20).map(|n| place.story(n).task.charged).sum();
    assert_eq!(charged, 2, "only what had begun is charged");
    let worker = start_worker(&place, "good", 2, Arc::new(Echo));
    let place = place.finish(std::slice::from_ref(&worker.stop)).place;
    worker.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 20);
}

fn holds(tokens: &[dispatcher_core::wire::TokenText]) -> Vec<dispatcher_core::wire::Hold> {
    use dispatcher_core::wire::{Hold, HoldState};
    tokens.iter().map(|token| Hold { token: token.clone(), state: HoldState::Queued }).collect()
}

// Rules A3, X1, L3.
#[test]
fn a_worker_that_beats_while_its_task_hangs_is_cut_off_at_the_limit() {
    let service = ServiceSettings { timeout_ms: SpanMs(200), budget: 1, ..ServiceSettings::default() };
    let place = Place::start(Setup { fleet: impatient(), service, ..Setup::default() });
    let puppet = Puppet::join(&place, "hanging", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    // It is told to stop after limit + kill grace + silent time; until then it beats.
    let mut n = 0;
    loop {
        n += 1;
        puppet.say(&FromWorker::Beat { n, received: 1, holds: holds(std::slice::from_ref(&token)) });
        let answered = |said: &ToWorker| matches!(said, ToWorker::Beat { .. } | ToWorker::Cancel { .. });
        if let (ToWorker::Cancel { .. }, _) = puppet.hear_until("a beat or the end", answered) {
            break;
        }
    }
    wait_until("the task is dead", || place.count(TaskState::Dead) == 1);
    let story = place.story(1);
    assert_eq!(story.attempts[0].ending, Some(Ending::TimeLimit), "{story:?}");
    puppet.leave();
    let _ = place.finish(&[]);
}

// Rules A2, A5.
#[test]
fn a_task_given_back_is_free_and_goes_to_another_worker() {
    let place = Place::start(Setup::default());
    let puppet = Puppet::join(&place, "leaving", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Release { token: token.clone() });
    puppet.hear_until("an answer", |said| matches!(said, ToWorker::Ack { .. }));
    puppet.leave();
    let worker = start_worker(&place, "good", 1, Arc::new(Echo));
    let place = place.finish(std::slice::from_ref(&worker.stop)).place;
    worker.thread.join().unwrap();
    let story = place.story(1);
    assert_eq!(story.attempts[0].ending, Some(Ending::HandedBack));
    assert_eq!((story.task.state, story.task.charged), (TaskState::Done, 1));
}

// Rules L10, X6. Case F33.
#[test]
fn the_limit_of_tasks_in_flight_is_never_exceeded_and_leasing_goes_on_below_it() {
    use dispatcher_core::in_flight::Limits;
    let limits = Limits { max_in_flight: 50, hard_limit: 60, ..Limits::default() };
    let place = Place::start(Setup { inputs: 200, limits, fleet: impatient(), ..Setup::default() });
    let greedy: Vec<_> = (0..8).map(|n| Puppet::join(&place, &format!("greedy{n}"), 25)).collect();
    for puppet in &greedy {
        puppet.say(&FromWorker::Ready { granted: 25 });
    }
    wait_until("it is saturated", || place.dispatcher().in_flight() == 50);
    greedy.into_iter().for_each(Puppet::vanish);
    let worker = start_worker(&place, "good", 4, Arc::new(Echo));
    let place = place.finish(std::slice::from_ref(&worker.stop)).place;
    worker.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 200);
}

// Rules A2, A4, C4, X3. Case F09.
#[test]
fn a_task_of_workers_that_never_beat_has_no_more_attempts_than_its_budget_and_one_result() {
    let service = ServiceSettings { budget: 2, ..ServiceSettings::default() };
    let place = Place::start(Setup { service, ..Setup::impatient(1) });
    let mut tokens = Vec::new();
    for name in ["silent-1", "silent-2"] {
        let puppet = Puppet::join(&place, name, 1);
        puppet.say(&FromWorker::Ready { granted: 1 });
        tokens.push(puppet.hear_task());
        puppet.say(&FromWorker::Begun { token: tokens[tokens.len() - 1].clone() });
        wait_until("it is lost", || {
            place.story(1).attempts.iter().filter(|a| a.ending.is_some()).count() == tokens.len()
        });
        puppet.vanish();
    }
    wait_until("the task is dead", || place.count(TaskState::Dead) == 1);
    assert_eq!(place.story(1).attempts.len(), 2);
    // The first one was only slow: its result counts after all, and the second one's no more.
    let late = Puppet::join(&place, "silent-1", 1);
    assert_eq!(late.finish(&tokens[0]), AckWord::Stored);
    assert_eq!(late.finish(&tokens[1]), AckWord::Stored, "the newer attempt wins among usable ones");
    assert_eq!((place.count(TaskState::Done), place.story(1).attempts.len()), (1, 2));
    late.leave();
    place.assert_balance();
}

// Rules R1, A4. Case F69.
#[test]
fn an_input_that_has_become_a_pipe_costs_its_own_task_and_nobody_else() {
    let place = Place::start(Setup::serving(41));
    let pipe = place.inputs().join("000007");
    std::fs::remove_file(&pipe).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let worker = start_worker(&place, "good", 4, Arc::new(Echo));
    wait_until("the others are done", || place.count(TaskState::Done) == 40);
    let story = place.story(8);
    assert_eq!(story.task.state, TaskState::Dead);
    assert_eq!(story.results[0].messages[0].what, "input_not_regular", "{story:?}");
    worker.stop.drain();
    worker.thread.join().unwrap();
}
