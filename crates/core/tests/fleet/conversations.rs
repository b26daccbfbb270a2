//! The main conversations of the v1 wire, as transcripts of the dispatcher's side.

use super::support::{Talk, fatal, hello, hold, lease, part, result, token, worker};
use dispatcher_core::fleet::{FleetLimits, Kept};
use dispatcher_core::report::Status;
use dispatcher_core::session::PeerId;
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, ToWorker};

fn beat(n: u64, received: u64, holds: Vec<dispatcher_core::wire::Hold>) -> FromWorker {
    FromWorker::Beat { n, received, holds }
}

// Rules A2, D7, L1.
#[test]
fn a_task_goes_out_begins_and_its_result_is_acknowledged_when_the_store_says_so() {
    let mut talk = Talk::new();
    talk.say(1, hello("w", "a", 1, vec![]))
        .say(1, FromWorker::Ready { granted: 1 })
        .hand_out(5)
        .hand_out(6)
        .say(1, FromWorker::Begun { token: token(5) })
        .say(1, beat(1, 1, vec![hold(5, HoldState::Running)]))
        .say_with(1, result(5, vec![part("result", 100)]), 100)
        .say(1, beat(2, 1, vec![hold(5, HoldState::Finished)]))
        .call(|fleet, effects| fleet.ack(lease(5), AckWord::Stored, None, effects))
        .say(1, beat(3, 1, vec![hold(5, HoldState::Finished)]))
        .say(1, beat(4, 1, vec![]))
        .say(1, FromWorker::Bye);
    assert_eq!(
        talk.told(),
        [
            "joined w#a on 1 slots 1",
            "> 1 welcome keep [] drop []",
            "> 1 task 5",
            "nobody takes 6",
            "begun 5 at w#a",
            "> 1 beat 1 unknown []",
            "answer 5 of w#a: NoProblem with bytes",
            "> 1 beat 2 unknown []",
            "> 1 ack 5 Stored",
            // This beat crossed the acknowledgement: nothing is asked and nothing is said of the task.
            "> 1 beat 3 unknown []",
            "> 1 beat 4 unknown []",
            "cut 1 Bye",
            "left w#a",
        ]
    );
    assert_eq!(talk.fleet.bytes_held(), (0, 0));
}

// Rule D1.
#[test]
fn a_large_result_is_pulled_in_windows_and_only_as_fast_as_it_is_taken() {
    let mut talk = Talk::with(FleetLimits { chunk_max: 100, ..FleetLimits::default() });
    let now = talk.now;
    let piece = |offset| FromWorker::Part { token: token(5), name: "result".into(), offset };
    talk.join(1, "w", 1, 1)
        .hand_out(5)
        .quietly()
        .say(1, result(5, vec![part("stderr", 0), part("result", 250), part("stdout", 10)]))
        .call(|fleet, effects| fleet.want(lease(5), now, effects))
        .say_with(1, piece(100), 100)
        .say_with(1, piece(0), 100);
    assert_eq!(
        talk.told(),
        [
            "begun 5 at w#a",
            "answer 5 of w#a: NoProblem bytes wanted",
            "> 1 want 5 result at 0 len 100",
            "> 1 want 5 result at 100 len 100",
            "piece 5 part 1 at 100 len 100",
            "piece 5 part 1 at 0 len 100",
        ]
    );
    let pieces = talk.pieces();
    talk.call(|fleet, effects| fleet.taken(&pieces[0], now, effects)).say_with(1, piece(200), 50);
    let last = talk.pieces();
    talk.call(|fleet, effects| fleet.taken(&pieces[1], now, effects))
        .call(|fleet, effects| fleet.taken(&last[0], now, effects))
        .say_with(1, FromWorker::Part { token: token(5), name: "stdout".into(), offset: 0 }, 10);
    let stdout = talk.pieces();
    talk.call(|fleet, effects| fleet.taken(&stdout[0], now, effects))
        .call(|fleet, effects| fleet.ack(lease(5), AckWord::Stored, None, effects));
    assert_eq!(
        talk.told(),
        [
            "> 1 want 5 result at 200 len 50",
            "piece 5 part 1 at 200 len 50",
            "> 1 want 5 stdout at 0 len 10",
            "piece 5 part 2 at 0 len 10",
            "all taken 5",
            "> 1 ack 5 Stored",
        ]
    );
    assert_eq!(talk.fleet.bytes_held(), (0, 0));
}

// Rule C13.
#[test]
fn after_a_restart_the_store_decides_on_what_a_worker_still_holds() {
    let mut talk = Talk::new();
    let holds = vec![
        hold(1, HoldState::Running),
        hold(2, HoldState::Finished),
        hold(3, HoldState::Queued),
        dispatcher_core::wire::Hold {
            token: dispatcher_core::wire::TokenText("x".repeat(50)),
            state: HoldState::Queued,
        },
    ];
    let kept = [Kept { lease: lease(1), size: 10 }, Kept { lease: lease(2), size: 10 }];
    talk.say(1, hello("w", "a", 2, holds))
        .say(1, FromWorker::Ready { granted: 2 })
        .hand_out(9)
        .call(|fleet, effects| fleet.settle(&worker("w", "a"), &kept, &[], effects))
        .call(|fleet, effects| fleet.settle(&worker("w", "a"), &[], &[lease(3)], effects))
        .hand_out(9)
        .say(1, result(2, vec![]))
        .call(|fleet, effects| fleet.ack(lease(2), AckWord::Stored, None, effects));
    assert_eq!(
        talk.told(),
        [
            "joined w#a on 1 slots 2",
            "noise 1 BadToken",
            "w#a claims [1 Running, 2 Finished, 3 Queued]",
            "nobody takes 9",
            "> 1 welcome keep [1, 2] drop [forged, 3]",
            "> 1 task 9",
            "answer 2 of w#a: NoProblem",
            "> 1 ack 2 Stored",
        ]
    );
}

// Rules A2, A3.
#[test]
fn of_a_lost_workers_leases_the_first_as_many_as_it_has_slots_count_as_begun() {
    let mut talk = Talk::new();
    talk.join(1, "w", 2, 6);
    for task in 1..=6 {
        talk.hand_out(task);
    }
    talk.say(1, FromWorker::Begun { token: token(5) }).say(1, result(1, vec![])).quietly();
    let (departed, now) = (PeerId(1), talk.now);
    talk.call(|fleet, effects| fleet.departed(departed, now, effects));
    talk.pass(29);
    assert_eq!(talk.told(), [""; 0]);
    talk.pass(2);
    // The result of 1 is in the dispatcher's hands: it is not lost. 2 and 3 fill the slots, 5 did begin.
    assert_eq!(talk.told(), ["lost w#a [2 begun, 3 begun, 4, 5 begun, 6]"]);
    talk.call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects)).pass(60);
    assert_eq!(talk.told(), [""; 0]);
}

// Rule A3.
#[test]
fn a_worker_that_beats_while_its_task_hangs_is_not_lost_and_any_traffic_is_life() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).join(2, "v", 1, 1).hand_out(1).hand_out(2).quietly();
    for n in 0..30 {
        talk.pass(10)
            .say(1, beat(n, 1, vec![hold(1, HoldState::Running)]))
            .say(2, FromWorker::Begun { token: token(2) });
    }
    assert_eq!(talk.fleet.workers().count(), 2);
    assert!(!talk.told().iter().any(|line| line.starts_with("lost")));
    talk.say(1, beat(31, 1, vec![hold(1, HoldState::Running)])).quietly().pass(31);
    assert_eq!(talk.told(), ["cut 1 Silent", "lost w#a [1 begun]", "cut 2 Silent", "lost v#a [2 begun]"]);
}

// Rule A3. Case F56.
#[test]
fn nobody_is_lost_because_we_slept_or_because_the_clock_was_set() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).quietly();
    for step in [3_600_000, -7_200_000, i64::MAX / 2, -i64::MAX, 3_600_000] {
        talk.now.0 = talk.now.0.saturating_add(step);
        let now = talk.now;
        talk.call(|fleet, effects| fleet.tick(now, effects));
    }
    assert_eq!(talk.told(), [""; 0]);
    talk.now.0 = 0;
    talk.pass(31);
    assert_eq!(talk.told(), ["cut 1 Silent", "lost w#a [1 begun]"]);
}

// Rules L9, A2.
#[test]
fn a_task_that_the_workers_list_does_not_have_is_undeliverable_unless_it_is_on_its_way() {
    let mut talk = Talk::new();
    talk.join(1, "w", 4, 4).hand_out(1).hand_out(2).hand_out(3).hand_out(4).quietly();
    // The worker had received two tasks when it wrote this: 3 and 4 cross it.
    talk.say(1, beat(1, 2, vec![hold(1, HoldState::Queued)]));
    assert_eq!(talk.told(), ["not held by w#a [2] NotListed", "> 1 beat 1 unknown []"]);
    talk.say(1, beat(2, 4, vec![hold(1, HoldState::Queued), hold(4, HoldState::Running)]));
    assert_eq!(talk.told(), ["begun 4 at w#a", "not held by w#a [3] NotListed", "> 1 beat 2 unknown []"]);
    talk.say(1, beat(3, 99, vec![hold(1, HoldState::Queued)]));
    assert_eq!(talk.told(), ["not held by w#a [4 begun] NotListed", "> 1 beat 3 unknown []"]);
}

// Rules L9, A2.
#[test]
fn leases_survive_a_reconnection_and_what_was_lost_on_the_way_is_undeliverable() {
    let mut talk = Talk::new();
    talk.join(1, "w", 2, 3).hand_out(1).hand_out(2).hand_out(3).quietly();
    let now = talk.now;
    talk.call(|fleet, effects| fleet.departed(PeerId(1), now, effects))
        .pass(20)
        .say(2, hello("w", "a", 2, vec![hold(1, HoldState::Running), hold(2, HoldState::Queued)]));
    assert_eq!(
        talk.told(),
        [
            "joined w#a on 2 slots 2 again",
            "begun 1 at w#a",
            "not held by w#a [3] NotListed",
            "> 2 welcome keep [1, 2] drop []",
        ]
    );
    // Credit is asked for anew on each connection.
    talk.hand_out(4).say(2, FromWorker::Ready { granted: 1 }).hand_out(4);
    assert_eq!(talk.told(), ["nobody takes 4", "> 2 task 4"]);
}

// Rule A3.
#[test]
fn a_worker_whose_connection_breaks_has_the_whole_time_to_come_back_however_long_it_was_silent_before() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).say(1, FromWorker::Begun { token: token(1) }).pass(25);
    let now = talk.now;
    talk.call(|fleet, effects| fleet.departed(PeerId(1), now, effects)).pass(25).quietly();
    talk.say(2, hello("w", "a", 1, vec![hold(1, HoldState::Running)]));
    assert_eq!(talk.told(), ["joined w#a on 2 slots 1 again", "> 2 welcome keep [1] drop []"]);
}

// Rule L9.
#[test]
fn a_full_queue_gets_no_task_and_its_messages_wait_for_room() {
    let mut talk = Talk::new();
    let ack = |task| ToWorker::Ack { token: token(task), answer: AckWord::Stored, why: None };
    talk.join(1, "w", 2, 4).hand_out(1).say(1, result(1, vec![])).quietly();
    let now = talk.now;
    talk.call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects))
        .call(|fleet, effects| fleet.full(PeerId(1), ack(1), now, effects))
        .hand_out(2);
    assert_eq!(talk.told(), ["> 1 ack 1 Stored", "noise 1 QueueFull", "nobody takes 2"]);
    talk.call(|fleet, effects| fleet.flush(now, effects));
    assert_eq!(talk.told(), [""; 0], "the next try has to wait a little");
    talk.now.0 += 1;
    let now = talk.now;
    talk.call(|fleet, effects| fleet.flush(now, effects)).hand_out(2);
    assert_eq!(talk.told(), ["> 1 ack 1 Stored", "nobody takes 2"]);
    talk.call(|fleet, effects| fleet.flush(now, effects)).hand_out(2);
    assert_eq!(talk.told(), ["> 1 task 2"]);
}

// Rules L9, A2.
#[test]
fn a_worker_that_does_not_read_gets_no_more_and_its_unbegun_leases_go_back_uncharged() {
    let mut talk = Talk::with(FleetLimits { task_window: 3, ..FleetLimits::default() });
    talk.join(1, "w", 2, 9);
    for task in 1..=4 {
        talk.hand_out(task);
    }
    assert_eq!(talk.told().last().map(String::as_str), Some("nobody takes 4"));
    talk.say(1, FromWorker::Begun { token: token(1) }).hand_out(4).hand_out(5).quietly();
    for n in 0..40 {
        talk.pass(1).say(1, beat(n, 1, vec![hold(1, HoldState::Running)]));
    }
    let told: Vec<_> =
        talk.told().into_iter().filter(|line| !line.contains("beat") && !line.contains("NoHello")).collect();
    assert_eq!(
        told[..3],
        ["warn w#a does not read", "not held by w#a [2, 3, 4] Stuck", "cut 1 Stuck"],
        "and it keeps the one that began"
    );
    assert_eq!(talk.fleet.worker_of(lease(1)).map(ToString::to_string), Some("w#a".into()));
}

// Rule L9.
#[test]
fn a_worker_whose_queue_stays_full_is_cut_off() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 9).hand_out(1).quietly();
    for second in 0..32 {
        talk.pass(1).say(1, beat(second, 1, vec![hold(1, HoldState::Queued)]));
        let now = talk.now;
        talk.call(|fleet, effects| {
            fleet.flush(now, effects);
            if fleet.next_taker("ocr").is_some() {
                fleet.unsent(PeerId(1), now, effects);
            }
        });
    }
    let told = talk.told();
    assert!(told.contains(&"cut 1 Stuck".to_owned()), "{told:?}");
    assert!(told.contains(&"not held by w#a [1] Stuck".to_owned()));
}

// Case F27.
#[test]
fn two_live_connections_of_one_name_are_two_workers_and_a_warning() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).quietly().say(2, hello("w", "b", 1, vec![]));
    assert_eq!(
        talk.told(),
        ["joined w#b on 2 slots 1", "warn w#b shares its name with w#a", "> 2 welcome keep [] drop []"]
    );
    talk.say(2, FromWorker::Ready { granted: 1 }).hand_out(2).say(2, result(2, vec![])).say(1, result(1, vec![]));
    assert_eq!(
        talk.told(),
        ["> 2 task 2", "begun 2 at w#b", "answer 2 of w#b: NoProblem", "begun 1 at w#a", "answer 1 of w#a: NoProblem",]
    );
}

#[test]
fn the_same_life_on_a_new_connection_replaces_the_old_one() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).quietly();
    talk.say(2, hello("w", "a", 1, vec![hold(1, HoldState::Queued)])).say(1, beat(1, 1, vec![]));
    assert_eq!(
        talk.told(),
        [
            "noise 2 Replaced",
            "cut 1 Replaced",
            "joined w#a on 2 slots 1 again",
            "> 2 welcome keep [1] drop []",
            "noise 1 NoHello",
            "> 1 error NoHello: say hello first",
        ]
    );
}

// Rules C11, C13.
#[test]
fn a_restarted_worker_answers_for_what_its_life_before_left_in_the_outbox() {
    let mut talk = Talk::new();
    talk.join(1, "w", 2, 2).hand_out(1).hand_out(2).say(1, FromWorker::Begun { token: token(1) }).quietly();
    // The host is back before the old connection is found dead.
    talk.say(2, hello("w", "b", 2, vec![hold(1, HoldState::Finished)])).say(2, result(1, vec![]));
    assert_eq!(
        talk.told(),
        [
            "joined w#b on 2 slots 2",
            "warn w#b shares its name with w#a",
            "> 2 welcome keep [1] drop []",
            "answer 1 of w#b: NoProblem",
        ]
    );
    talk.call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects)).pass(31);
    assert_eq!(talk.told(), ["> 2 ack 1 Stored", "cut 1 Silent", "lost w#a [2 begun]", "cut 2 Silent", "lost w#b []"]);
}

// Rule D1.
#[test]
fn what_cannot_be_taken_stays_with_its_worker_which_gets_no_task_meanwhile() {
    let mut talk = Talk::new();
    talk.join(1, "w", 2, 3).join(2, "v", 1, 0).hand_out(1).hand_out(2).quietly();
    talk.say_with(1, result(1, vec![part("result", 7)]), 7).say(1, FromWorker::Release { token: token(2) });
    assert_eq!(talk.fleet.bytes_held().0, 7);
    let answers: Vec<_> = talk.effects.iter().filter_map(answer_of).collect();
    for answer in answers {
        talk.fleet.defer(answer);
    }
    talk.hand_out(3);
    assert_eq!(talk.fleet.deferred(), 2);
    talk.quietly().call(|fleet, effects| fleet.resume(1, effects)).hand_out(3);
    assert_eq!(talk.told(), ["answer 1 of w#a: NoProblem bytes wanted", "nobody takes 3"]);
    talk.call(|fleet, effects| fleet.resume(10, effects)).hand_out(3);
    assert_eq!(talk.told(), ["answer 2 of w#a: release unbegun", "> 1 task 3"]);
    let now = talk.now;
    talk.call(|fleet, effects| fleet.want(lease(1), now, effects));
    assert_eq!(talk.told(), ["> 1 want 1 result at 0 len 7"]);
}

fn answer_of(effect: &dispatcher_core::fleet::Effect) -> Option<Box<dispatcher_core::fleet::Answer>> {
    if let dispatcher_core::fleet::Effect::Answered(answer) = effect { Some(answer.clone()) } else { None }
}

// Rule D1.
#[test]
fn a_worker_whose_words_there_was_no_room_for_is_asked_to_say_them_again() {
    let mut talk = Talk::with(FleetLimits { inline_budget: 0, ..FleetLimits::default() });
    talk.join(1, "w", 1, 1).hand_out(1).say_with(1, result(1, vec![part("result", 7)]), 7).quietly();
    let answer = talk.effects.iter().find_map(answer_of).unwrap();
    talk.fleet.defer(answer);
    talk.call(|fleet, effects| fleet.resume(10, effects));
    assert_eq!(talk.told(), ["cut 1 AskedAgain"]);
    talk.say(2, hello("w", "a", 1, vec![hold(1, HoldState::Finished)])).say_with(
        2,
        result(1, vec![part("result", 7)]),
        7,
    );
    assert_eq!(
        talk.told(),
        ["joined w#a on 2 slots 1 again", "> 2 welcome keep [1] drop []", "answer 1 of w#a: NoProblem bytes wanted",]
    );
}

// Rule S1.
#[test]
fn a_drain_is_told_to_all_and_nothing_more_is_handed_out_but_results_still_land() {
    let mut talk = Talk::new();
    talk.join(1, "w", 2, 3).hand_out(1).hand_out(2).quietly().call(|fleet, effects| fleet.drain(effects)).hand_out(3);
    assert_eq!(talk.told(), ["> 1 drain", "nobody takes 3"]);
    talk.say(1, FromWorker::Release { token: token(2) })
        .call(|fleet, effects| fleet.ack(lease(2), AckWord::Stored, None, effects))
        .say(1, result(1, vec![]))
        .call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects))
        .say(2, hello("v", "a", 1, vec![]));
    assert_eq!(
        talk.told(),
        [
            "answer 2 of w#a: release unbegun",
            "> 1 ack 2 Stored",
            "begun 1 at w#a",
            "answer 1 of w#a: NoProblem",
            "> 1 ack 1 Stored",
            "joined v#a on 2 slots 1",
            "> 2 welcome keep [] drop []",
            "> 2 drain",
        ]
    );
}

// Rule R4.
#[test]
fn a_retryable_cause_and_its_kept_output_are_answered_like_a_result() {
    let mut talk = Talk::new();
    let retryable = FromWorker::Retryable {
        token: token(1),
        cause: fatal("crash", "SIGKILL"),
        messages: vec![],
        parts: vec![part("stderr", 9)],
    };
    talk.join(1, "w", 1, 1)
        .hand_out(1)
        .quietly()
        .say_with(1, retryable.clone(), 9)
        .say_with(1, retryable, 9)
        .call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects));
    // The repeat waits for the same acknowledgement.
    assert_eq!(
        talk.told(),
        ["begun 1 at w#a", "answer 1 of w#a: retryable crash:SIGKILL with bytes", "> 1 ack 1 Stored"]
    );
}

// Rule R3.
#[test]
fn a_transfer_ends_with_its_connection_and_begins_again_with_the_next() {
    let mut talk = Talk::with(FleetLimits { chunk_max: 100, ..FleetLimits::default() });
    let now = talk.now;
    let large = || result(1, vec![part("result", 300)]);
    talk.join(1, "w", 1, 1).hand_out(1).say(1, large()).call(|fleet, effects| fleet.want(lease(1), now, effects));
    talk.say_with(1, FromWorker::Part { token: token(1), name: "result".into(), offset: 0 }, 100).quietly();
    let old = talk.pieces();
    talk.call(|fleet, effects| fleet.departed(PeerId(1), now, effects));
    assert_eq!(talk.told(), ["transfer ended 1 Departed"]);
    assert_eq!(talk.fleet.bytes_held(), (0, 100), "the piece that arrived is not taken yet");
    talk.say(2, hello("w", "a", 1, vec![hold(1, HoldState::Finished)])).say(2, large()).quietly();
    talk.call(|fleet, effects| fleet.want(lease(1), now, effects))
        .call(|fleet, effects| fleet.taken(&old[0], now, effects));
    assert_eq!(talk.told(), ["> 2 want 1 result at 0 len 100", "> 2 want 1 result at 100 len 100"]);
    assert_eq!(talk.fleet.bytes_held(), (0, 200));
}

// Rule R3.
#[test]
fn a_piece_of_a_transfer_that_ended_counts_for_no_later_one() {
    let mut talk = Talk::new();
    let now = talk.now;
    let piece = || FromWorker::Part { token: token(1), name: "result".into(), offset: 0 };
    let large = || result(1, vec![part("result", 100)]);
    talk.join(1, "w", 1, 1)
        .hand_out(1)
        .say(1, large())
        .call(|fleet, effects| fleet.want(lease(1), now, effects))
        .say_with(1, piece(), 100);
    let old = talk.pieces();
    talk.call(|fleet, effects| fleet.departed(PeerId(1), now, effects))
        .say(2, hello("w", "a", 1, vec![hold(1, HoldState::Finished)]))
        .say(2, large())
        .call(|fleet, effects| fleet.want(lease(1), now, effects))
        .say_with(2, piece(), 100)
        .quietly();
    let new = talk.pieces();
    talk.call(|fleet, effects| fleet.taken(&old[0], now, effects));
    assert_eq!(talk.told(), [""; 0]);
    talk.call(|fleet, effects| fleet.taken(&new[0], now, effects));
    assert_eq!(talk.told(), ["all taken 1"]);
}

// Rule R3.
#[test]
fn a_worker_that_beats_but_does_not_send_what_it_promised_is_cut_off() {
    let mut talk = Talk::new();
    let now = talk.now;
    talk.join(1, "w", 1, 1)
        .hand_out(1)
        .say(1, result(1, vec![part("result", 300)]))
        .call(|fleet, effects| fleet.want(lease(1), now, effects))
        .quietly();
    for n in 0..29 {
        talk.pass(1).say(1, beat(n, 1, vec![hold(1, HoldState::Finished)]));
    }
    assert!(talk.told().iter().all(|line| line.starts_with("> 1 beat")));
    talk.pass(2);
    assert_eq!(talk.told(), ["cut 1 Stalled", "transfer ended 1 Stalled"]);
}

#[test]
fn an_input_is_fetched_in_pieces_two_at_a_time_within_its_bounds() {
    let mut talk = Talk::new();
    let fetch = |offset, length| FromWorker::Fetch { token: token(1), offset, length };
    talk.join(1, "w", 1, 1).hand_out(1).quietly();
    talk.say(1, fetch(0, 131_072)).say(1, fetch(131_072, 131_072)).say(1, fetch(999_999, 1));
    assert_eq!(talk.told(), ["read 1 at 0 len 131072 for 1", "read 1 at 131072 len 131072 for 1"]);
    let now = talk.now;
    talk.call(|fleet, effects| fleet.chunk_full(PeerId(1), lease(1), 0, 131_072, now, effects))
        .call(|fleet, effects| fleet.chunk_done(PeerId(1), now, effects));
    assert_eq!(talk.told(), ["noise 1 QueueFull"], "nothing is read for a full queue");
    talk.now.0 += 100;
    let now = talk.now;
    talk.call(|fleet, effects| fleet.flush(now, effects)).call(|fleet, effects| fleet.flush(now, effects));
    assert_eq!(talk.told(), ["read 1 at 0 len 131072 for 1", "read 1 at 999999 len 1 for 1"]);
    for (offset, length) in [(999_999, 2), (0, 131_073), (0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        talk.say(1, fetch(offset, length));
        assert_eq!(
            talk.told(),
            ["noise 1 BadFetch", "> 1 error Limit: a fetch lies within the input and has 1 to 131072 bytes"]
        );
    }
}

#[test]
fn workers_are_served_in_turn() {
    let mut talk = Talk::new();
    for peer in 1..=3 {
        talk.join(peer, &format!("w{peer}"), 4, 4);
    }
    talk.quietly();
    for task in 1..=7 {
        talk.hand_out(task);
    }
    let peers: Vec<_> = talk.told().iter().map(|line| line[2..3].to_owned()).collect();
    assert_eq!(peers.concat(), "1231231");
    assert_eq!(talk.fleet.open_credit("ocr"), 5);
    assert_eq!(talk.fleet.wanted_services().collect::<Vec<_>>(), ["ocr"]);
}

#[test]
fn a_cancelled_task_is_forgotten_at_both_ends() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).quietly();
    talk.call(|fleet, effects| fleet.cancel(lease(1), "by an operator".into(), effects))
        .say(1, beat(1, 1, vec![hold(1, HoldState::Running)]))
        .call(|fleet, effects| fleet.ack(lease(1), AckWord::Cancelled, None, effects));
    assert_eq!(talk.told(), ["> 1 cancel 1 (by an operator)", "> 1 beat 1 unknown []"]);
    assert_eq!(talk.fleet.lease_count(), 0);
}

// Rule C13.
#[test]
fn a_result_that_memory_does_not_know_is_handed_on_for_the_store_to_decide() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).quietly();
    talk.say(1, FromWorker::Result { token: token(77), status: Status::Fatal, messages: vec![], parts: vec![] })
        .call(|fleet, effects| fleet.ack(lease(77), AckWord::Stale, Some("a newer run".into()), effects));
    assert_eq!(talk.told(), ["answer 77 of w#a: Fatal", "> 1 ack 77 Stale (a newer run)"]);
}

// Rule C13.
#[test]
fn a_beat_that_lists_what_memory_does_not_know_asks_the_store_once() {
    let mut talk = Talk::new();
    let lists = || vec![hold(7, HoldState::Running), hold(8, HoldState::Queued)];
    talk.join(1, "w", 1, 1).quietly();
    talk.say(1, beat(1, 0, lists())).say(1, beat(2, 0, lists()));
    assert_eq!(talk.told(), ["w#a claims [7 Running, 8 Queued]", "> 1 beat 1 unknown []", "> 1 beat 2 unknown []"]);
    talk.call(|fleet, effects| {
        fleet.settle(&worker("w", "a"), &[Kept { lease: lease(7), size: 1 }], &[lease(8)], effects);
    })
    .say(1, beat(3, 0, lists()))
    .say(1, FromWorker::Begun { token: token(8) });
    // What the store refused is told again without another look.
    assert_eq!(talk.told(), ["> 1 beat 2 unknown [8]", "> 1 beat 3 unknown [8]", "> 1 beat 3 unknown [8]"]);
}

// Rules D1, A3.
#[test]
fn an_answer_that_could_not_be_taken_before_its_worker_was_lost_is_lost_with_it_and_said_so() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).hand_out(1).say(1, result(1, vec![])).pass(31).quietly();
    let answer = talk.effects.iter().find_map(answer_of).unwrap();
    talk.fleet.defer(answer.clone());
    talk.fleet.defer(answer);
    talk.pass(1);
    assert_eq!(talk.told(), ["not held by w#a [1 begun] Gone"]);
}
