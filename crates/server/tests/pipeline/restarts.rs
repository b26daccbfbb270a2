//! A dispatcher ends, another one takes over, and the workers go on.

use crate::kit::{Place, Puppet, SERVICE, Setup, wait_until};
use dispatcher_core::id::LeaseId;
use dispatcher_core::report::Ending;
use dispatcher_core::time::TimeMs;
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, ToWorker, TokenText};
use dispatcher_server::{DrainMode, Ended};
use dispatcher_store::{Claim, DispatcherInfo, TaskState};
use std::time::{Duration, Instant};

fn running(token: &TokenText) -> Vec<Hold> {
    vec![Hold { token: token.clone(), state: HoldState::Running }]
}

/// A dispatcher whose worker has begun its only task; the worker, its token and the place, after the end.
fn ended_amid_work(setup: Setup) -> (Place, TokenText) {
    let place = Place::start(setup);
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    puppet.beat(1, 1, running(&token));
    let ended = place.drain(DrainMode::Received);
    assert!(matches!(ended, Ended::Well { finished: false, in_time: true }), "{ended:?}");
    puppet.vanish();
    (place, token)
}

// Rules S1, S4, C13.
#[test]
fn a_worker_that_comes_back_goes_on_and_its_result_is_accepted() {
    let (place, token) = ended_amid_work(Setup::serving(1));
    let place = place.start_again();
    wait_until("what is out is in flight", || place.dispatcher().in_flight() == 1);
    let (puppet, keep, drop) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    assert_eq!((keep, drop), (vec![token.clone()], vec![]));
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    let story = place.story(1);
    assert_eq!(story.attempts.len(), 1, "nothing ran twice: {story:?}");
    assert_eq!((story.task.state, story.attempts[0].ending), (TaskState::Done, Some(Ending::Accepted)));
    assert_eq!(place.dispatcher().in_flight(), 0);
    place.assert_balance();
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules S4, A2, A3, A4.
#[test]
fn a_worker_that_does_not_come_back_is_lost_after_a_grace_and_charged_for_what_it_began() {
    let (place, token) = ended_amid_work(Setup::impatient(1));
    let place = place.start_again();
    wait_until("the lease is given up", || place.count(TaskState::Ready) == 1);
    let story = place.story(1);
    assert_eq!((story.attempts[0].ending, story.task.charged), (Some(Ending::WorkerLost), 1));
    assert_eq!(story.attempts[0].why.as_ref().unwrap().what, "worker_lost");
    // Its result is good all the same, if it comes.
    let (puppet, ..) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    assert_eq!(place.count(TaskState::Done), 1);
    place.assert_balance();
    puppet.leave();
    place.drain(DrainMode::Received);
}

/// A place where a process died between its claim and the note of a hand-out; and the token of that claim.
fn claimed_and_killed() -> (Place, TokenText) {
    let place = Place::start(Setup::impatient(1));
    place.drain(DrainMode::Received);
    let claimed = place.ask(async {
        let info = DispatcherInfo { id: None, host: "gone".to_owned(), endpoint: "gone".to_owned() };
        let dispatcher = place.store.register(&info, TimeMs(0)).await?;
        let service = place.store.services().await?.remove(0).id;
        place.store.claim(&Claim { dispatcher, service, max: 1 }, TimeMs(0)).await
    });
    let key = TokenKey::new(place.ask(place.store.token_key()));
    let lease: LeaseId = claimed[0].lease;
    (place, key.sign(lease))
}

// Rules S4, A5.
#[test]
fn a_task_sent_before_the_kill_and_not_yet_noted_is_its_workers_again() {
    let (place, token) = claimed_and_killed();
    let place = place.start_again();
    let (puppet, keep, _) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    assert_eq!(keep, vec![token.clone()]);
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    let story = place.story(1);
    assert_eq!((story.attempts.len(), story.attempts[0].ending), (1, Some(Ending::Accepted)));
    assert_eq!(story.attempts[0].worker.as_ref().unwrap().name, "steady");
    place.assert_balance();
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules S4, A2.
#[test]
fn a_claim_that_nobody_comes_with_goes_back_uncharged_and_without_an_attempt() {
    let (place, _) = claimed_and_killed();
    let place = place.start_again();
    wait_until("the claim is given back", || place.count(TaskState::Ready) == 1);
    let story = place.story(1);
    assert_eq!((story.attempts.len(), story.task.charged), (0, 0));
    place.drain(DrainMode::Received);
}

// Rule S4. Case F10.
#[test]
fn a_second_recovery_changes_nothing_for_workers_that_are_back() {
    let (place, token) = ended_amid_work(Setup::serving(1));
    let place = place.start_again();
    let (puppet, ..) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    place.drain(DrainMode::Received);
    puppet.vanish();
    let place = place.start_again();
    let (puppet, keep, _) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    assert_eq!(keep, vec![token.clone()]);
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    assert_eq!(place.story(1).attempts.len(), 1);
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules S1, L9. Case F58.
#[test]
fn idle_workers_do_not_hold_up_the_end_and_what_has_not_begun_is_given_back() {
    let place = Place::start(Setup::serving(4));
    let idle: Vec<Puppet> = (0..4).map(|n| Puppet::join(&place, &format!("idle-{n}"), 1)).collect();
    let busy = Puppet::join(&place, "busy", 1);
    busy.say(&FromWorker::Ready { granted: 2 });
    let tokens = [busy.hear_task(), busy.hear_task()];
    place.dispatcher().drain(DrainMode::Received);
    for token in &tokens {
        busy.hear_until("the drain", |said| matches!(said, ToWorker::Drain | ToWorker::Ack { .. }));
        busy.say(&FromWorker::Release { token: token.clone() });
    }
    let began = Instant::now();
    assert!(matches!(place.ended(), Ended::Well { in_time: true, .. }));
    assert!(began.elapsed() < Duration::from_secs(10), "far below the time that a drain may take");
    assert_eq!(place.count(TaskState::Ready), 4);
    assert!((1..=4).all(|task| place.story(task).task.charged == 0));
    place.assert_balance();
    idle.into_iter().for_each(Puppet::vanish);
}

// Rule S1.
#[test]
fn on_request_everything_in_flight_is_waited_for() {
    let place = Place::start(Setup::serving(2));
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    place.dispatcher().drain(DrainMode::InFlight);
    puppet.hear_until("the drain", |said| matches!(said, ToWorker::Drain));
    assert!(place.dispatcher().ends().is_empty(), "it waits");
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    assert!(matches!(place.ended(), Ended::Well { in_time: true, .. }));
    assert_eq!((place.count(TaskState::Done), place.count(TaskState::Ready)), (1, 1));
}

// Rules S4, A2.
#[test]
fn claims_that_went_to_nobody_are_ready_as_soon_as_every_worker_is_back() {
    let place = Place::start(Setup::serving(20));
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    puppet.beat(1, 1, running(&token));
    place.drain(DrainMode::Received);
    puppet.vanish();
    // Another process claims some and is killed before it hands any of them out.
    place.ask(async {
        let info = DispatcherInfo { id: None, host: "gone".to_owned(), endpoint: "gone".to_owned() };
        let dispatcher = place.store.register(&info, TimeMs(0)).await?;
        let service = place.store.services().await?.remove(0).id;
        place.store.claim(&Claim { dispatcher, service, max: 10 }, TimeMs(0)).await
    });
    let place = place.start_again();
    let (puppet, keep, _) = Puppet::join_with(&place, "steady", 1, &[SERVICE], running(&token));
    assert_eq!(keep, vec![token.clone()]);
    let began = Instant::now();
    assert_eq!(puppet.finish(&token), AckWord::Stored);
    puppet.say(&FromWorker::Ready { granted: 19 });
    for _ in 0..19 {
        assert_eq!(puppet.finish(&puppet.hear_task()), AckWord::Stored);
    }
    assert!(began.elapsed() < Duration::from_secs(25), "before the grace of 30 s");
    puppet.vanish();
    place.drain(DrainMode::Received);
    assert_eq!((place.count(TaskState::Ready), place.count(TaskState::Done)), (0, 20));
    place.assert_balance();
}
