//! Replies that are no results, and that nothing of them is taken for one.

use crate::kit::{Echo, Place, Puppet, Setup, start_worker, wait_until};
use bytes::Bytes;
use dispatcher_core::report::{Ending, Origin, Status};
use dispatcher_core::wire::{AckWord, FromWorker, PartSpec, ToWorker, TokenText};
use dispatcher_store::TaskState;
use std::sync::Arc;

/// A result of one part with these bytes, and whatever is declared of them.
fn result(token: &TokenText, status: Status, size: u64, sha256: &str) -> FromWorker {
    let part = PartSpec { name: "result".to_owned(), size, sha256: sha256.to_owned() };
    FromWorker::Result { token: token.clone(), status, messages: Vec::new(), parts: vec![part] }
}

/// The SHA-256 of nothing.
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn word_for(puppet: &Puppet, token: &TokenText) -> AckWord {
    let meant = |said: &ToWorker| matches!(said, ToWorker::Ack { token: t, .. } if t == token);
    let (said, _) = puppet.hear_until("an answer", meant);
    let ToWorker::Ack { answer, .. } = said else { unreachable!() };
    answer
}

// Rules R1, R8, X3. Case F04.
#[test]
fn a_reply_with_the_wrong_bytes_is_tried_again_up_to_the_budget_and_then_dead_with_its_reason() {
    let place = Place::start(Setup::default());
    let puppet = Puppet::join(&place, "liar", 1);
    for granted in 1..=3 {
        puppet.say(&FromWorker::Ready { granted });
        let token = puppet.hear_task();
        puppet.say(&FromWorker::Begun { token: token.clone() });
        puppet.say_with(&result(&token, Status::NoProblem, 3, OF_NOTHING), &[Bytes::from_static(b"lie")]);
        assert_eq!(word_for(&puppet, &token), AckWord::Stored, "the worker may forget it");
    }
    let story = place.story(1);
    assert_eq!((story.task.state, story.task.charged), (TaskState::Dead, 3));
    assert_eq!(story.attempts.len(), 3);
    for attempt in &story.attempts {
        assert_eq!(attempt.ending, Some(Ending::Unusable));
        assert_eq!(attempt.why.as_ref().unwrap().what, "part_sha256");
    }
    assert_eq!(story.results[0].origin, Origin::ReaperStandIn);
    assert_eq!(story.results[0].messages[0].what, "part_sha256", "the dead letter has the last reason");
    puppet.leave();
    let _ = place.finish(&[]);
}

// Rules C1, R1. Case F04.
#[test]
fn a_real_failure_is_final_at_the_first_go() {
    let place = Place::start(Setup::default());
    let puppet = Puppet::join(&place, "honest", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    puppet.say(&FromWorker::Result {
        token: token.clone(),
        status: Status::Fatal,
        messages: Vec::new(),
        parts: Vec::new(),
    });
    assert_eq!(word_for(&puppet, &token), AckWord::Stored);
    let story = place.story(1);
    assert_eq!((story.task.state, story.attempts.len()), (TaskState::Done, 1));
    puppet.leave();
    let _ = place.finish(&[]);
}

// Rules D6, C13, L13.
#[test]
fn a_result_sent_twice_is_stored_once_and_answered_twice() {
    let place = Place::start(Setup::default());
    let puppet = Puppet::join(&place, "twice", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    let reply = result(&token, Status::NoProblem, 0, OF_NOTHING);
    for _ in 0..2 {
        puppet.say_with(&reply, &[Bytes::new()]);
        assert_eq!(word_for(&puppet, &token), AckWord::Stored);
    }
    let story = place.story(1);
    assert_eq!((story.results.len(), story.attempts.len()), (1, 1));
    puppet.leave();
    let _ = place.finish(&[]);
}

// Rules C7, C13, G3. Cases F22, F27.
#[test]
fn noise_and_forged_tokens_harm_nobody_else() {
    let place = Place::start(Setup { inputs: 200, ..Setup::default() });
    let hostile = Puppet::join(&place, "hostile", 1);
    let worker = start_worker(&place, "good", 2, Arc::new(Echo));
    let forged = TokenText("AQAAAAAAAAABAAAAAQAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAA".to_owned());
    for n in 0..300_usize {
        hostile.say_with(&result(&forged, Status::NoProblem, 0, OF_NOTHING), &[Bytes::new()]);
        hostile.say_frames(
            (0..n % 6).map(|i| Bytes::from(vec![b'x'; (i + n) % 7])).chain([Bytes::from_static(b"x")]).collect(),
        );
        hostile.say_frames(vec![Bytes::from_static(b"DSP1"), Bytes::from_static(b"{\"type\":\"result\"")]);
    }
    wait_until("all is done", || place.count(TaskState::Done) == 200);
    hostile.vanish();
    let _ = place.finish(std::slice::from_ref(&worker.stop));
    assert_eq!(worker.thread.join().unwrap().answers.stored, 200);
}
