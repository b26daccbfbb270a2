//! Rules R.

use super::*;
use dispatcher_core::claim::too_large;
use dispatcher_core::lease::LeaseStart;
use dispatcher_core::report::{Ending, Origin};
use dispatcher_core::slot::table::SlotState;
use dispatcher_core::slot::{Answered, Dropped, Lateness, NoResult};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn cause(what: &str) -> NoResult {
    NoResult::Cause(said(what))
}

fn unusable(what: &str) -> NoResult {
    NoResult::Unusable(said(what))
}

// Rule R1. Case F04.
#[test]
fn an_unusable_reply_by_name_is_no_verdict_and_leaves_the_task_for_the_reaper() {
    let set = set();
    let lease = set.lease_fresh(TASK, &worker("a"), legacy(), t(0)).expect("leased").lease;
    assert_eq!(set.answered(by_name("a"), unusable("empty"), t(1)), Answered::Waits(lease));
    assert_eq!((set.counts().in_flight, set.counts().answered), (1, 1));
    assert_eq!(set.sweep(t(100), 10).requeued, [], "its deadline stays");
    let taken = run_out(&set, 101);
    assert_eq!((taken.ending, taken.charged), (Ending::Unusable, true));
    assert_eq!(taken.retry.run.reason.map(|why| why.what), Some("empty".into()));
}

// Rule R1.
#[test]
fn an_unusable_reply_with_a_token_is_due_at_once() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    assert_eq!(set.answered(lease, unusable("half an archive"), t(1)), Answered::DueAtOnce(lease));
    assert_eq!(run_out(&set, 1).ending, Ending::Unusable);
}

// Rule R1.
#[test]
fn a_usable_reply_that_comes_after_an_unusable_one_is_accepted() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    set.answered(lease, unusable("empty"), t(1));
    assert_eq!(accepted(claim(&set, lease, Status::Warning, 2)).facts.late, Lateness::OnTime);
    assert_eq!((set.counts().in_flight, set.counts().answered), (0, 0));
}

// Rules R1, L1.
#[test]
fn an_unusable_reply_of_a_task_whose_clock_never_started_does_not_strand_it() {
    let set = set();
    let terms = Terms { start: LeaseStart::AtBegun, ..legacy() };
    let lease = set.lease_fresh(TASK, &worker("a"), terms, t(0)).expect("leased").lease;
    assert_eq!(set.answered(by_name("a"), unusable("empty"), t(1)), Answered::DueAtOnce(lease));
}

// Rule R2.
#[test]
fn a_word_of_an_older_attempt_does_not_make_the_current_one_answered() {
    let set = set();
    let (first, _) = second_attempt(&set, terms(), 200);
    for word in [unusable("empty"), cause("oom"), NoResult::HandedBack] {
        assert_eq!(set.answered(first, word, t(201)), Answered::Dropped(Dropped::OlderAttempt));
    }
    assert_eq!((set.counts().in_flight, set.counts().answered), (1, 0));
    assert_eq!(set.sweep(t(300), 10).requeued, []);
}

// Rule R3.
#[test]
fn a_receipt_holds_the_reaper_off_until_the_last_one_is_released() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let (first, second) = (set.receipt(lease).expect("taken"), set.receipt(lease).expect("taken"));
    assert_eq!(set.counts().receipts, 2);
    assert_eq!(set.sweep(t(5000), 10).requeued, []);
    drop(first);
    assert_eq!(set.sweep(t(5000), 10).requeued, []);
    drop(second);
    assert_eq!((set.counts().receipts, run_out(&set, 5000).lease), (0, lease));
}

// Rule R3.
#[test]
fn one_receipt_at_the_front_of_the_index_does_not_keep_the_reaper_from_the_others() {
    let set = set();
    let mut receipts = Vec::new();
    for task in 1..=60 {
        let leased = set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased");
        if task <= 50 {
            receipts.extend(set.receipt(leased.lease));
        }
    }
    let sweep = set.sweep(t(101), 10);
    assert_eq!((sweep.requeued.len(), sweep.more), (10, true));
    assert!(sweep.requeued.iter().all(|taken| taken.lease.task > TaskId(50)));
    assert_eq!(receipts.len(), 50);
}

// Rules R3, L13.
#[test]
fn only_the_lease_under_which_a_receipt_was_taken_feels_its_release() {
    let set = set();
    let old = set.receipt(fresh(&set, "a", 0).lease).expect("taken");
    let rerun = fresh(&set, "b", 1).lease;
    let new = set.receipt(rerun).expect("taken");
    drop(old);
    assert_eq!(set.sweep(t(5000), 10).requeued, [], "the new lease's own receipt still holds");
    drop(new);
    assert_eq!(run_out(&set, 5000).lease, rerun);
}

// Rule R3. Case F15.
#[test]
fn a_receipt_is_released_when_its_writer_panics() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let died = catch_unwind(AssertUnwindSafe(|| {
        let _receipt = set.receipt(lease).expect("taken");
        std::panic::resume_unwind(Box::new("the writer dies"));
    }));
    assert!(died.is_err());
    assert_eq!((set.counts().receipts, run_out(&set, 5000).lease), (0, lease));
}

// Rules R3, C2.
#[test]
fn a_result_of_an_older_attempt_holds_the_reaper_off_the_lease_in_flight() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    let receipt = set.receipt(first).expect("taken");
    assert_eq!(receipt.lease(), first);
    assert_eq!(set.sweep(t(5000), 10).requeued, []);
    drop(receipt);
    assert_eq!(run_out(&set, 5000).lease, second);
}

// Rule R4.
#[test]
fn a_retryable_cause_with_budget_left_is_requeued_by_the_next_sweep() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    assert_eq!(set.answered(lease, cause("oom:shed"), t(1)), Answered::DueAtOnce(lease));
    assert_eq!((set.state_of(TASK), set.counts().answered), (SlotState::Answered, 1));
    let taken = run_out(&set, 1);
    assert_eq!((taken.ending, taken.charged, taken.retry.run.charged), (Ending::RetryableCause, true, 1));
    assert_eq!(taken.retry.run.cause.map(|cause| cause.what), Some("oom:shed".into()));
}

/// A task whose last attempt has just told its cause; the attempts and what came of it.
fn last_cause(limits: Limits) -> (InFlightSet, LeaseId, LeaseId, Answered) {
    let set = set_of(limits);
    let two = Terms { budget: 2, ..terms() };
    let first = set.lease_fresh(TASK, &worker("a"), two, t(0)).expect("leased").lease;
    let retry = run_out(&set, 101).retry;
    let second = set.lease_forgotten(&retry, &worker("b"), t(102)).expect("leased").lease;
    let answered = set.answered(second, cause("timeout:wallclock"), t(103));
    (set, first, second, answered)
}

// Rule R5.
#[test]
fn the_cause_of_the_last_attempt_becomes_a_stand_in_that_a_usable_result_replaces() {
    let (set, first, second, answered) = last_cause(limits());
    let Answered::StandIn(facts) = answered else { panic!("{answered:?}") };
    assert_eq!((facts.lease, facts.status, facts.origin), (second, Status::Fatal, Origin::LastAttemptStandIn));
    assert_eq!((set.counts().in_flight, set.state_of(TASK)), (0, SlotState::StandIn));
    // Other failures and repeats are superseded.
    for (lease, status) in [(first, Status::Fatal), (second, Status::Fatal), (second, Status::Invalid)] {
        assert!(matches!(claim(&set, lease, status, 104), Claim::Superseded { .. }));
    }
    assert_eq!(set.answered(second, cause("again"), t(105)), Answered::Dropped(Dropped::Finished));
    let facts = accepted(claim(&set, first, Status::Error, 106)).facts;
    assert_eq!((facts.late, set.state_of(TASK)), (Lateness::ReplacesFailure, SlotState::Usable));
}

// Rules R5, X4.
#[test]
fn without_a_window_or_room_the_stand_in_is_still_reported_and_the_task_leaves_flight() {
    for limits in [Limits { window_ms: 0, ..limits() }, Limits { max_held: 0, ..limits() }] {
        let (set, _, second, answered) = last_cause(limits);
        assert!(matches!(answered, Answered::StandIn(facts) if facts.lease == second));
        assert_eq!((set.counts().in_flight, set.counts().held), (0, 0));
    }
}

// Rule R6.
#[test]
fn a_cause_of_the_newest_attempt_rides_along_and_others_are_dropped_with_the_reason() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    run_out(&set, 401);
    assert_eq!(set.answered(second, cause("late"), t(402)), Answered::RidesAlong(second));
    assert_eq!(set.answered(first, cause("older"), t(403)), Answered::Dropped(Dropped::OlderAttempt));
    assert_eq!(set.waiting()[0].run.cause.as_ref().map(|cause| cause.what.as_str()), Some("late"));
    accepted(claim(&set, first, Status::NoProblem, 404));
    assert_eq!(set.answered(second, cause("finished"), t(405)), Answered::Dropped(Dropped::Finished));
    let nowhere = LeaseId { task: TaskId(99), ..second };
    assert_eq!(set.answered(nowhere, cause("nowhere"), t(406)), Answered::Dropped(Dropped::Unknown));
}

// Rule R6.
#[test]
fn a_cause_after_a_dead_letter_is_dropped() {
    let set = set();
    let lease = set.lease_fresh(TASK, &worker("a"), Terms { budget: 1, ..terms() }, t(0)).expect("leased").lease;
    assert!(run_out(&set, 101).dead.is_some());
    assert_eq!(set.answered(lease, cause("oom"), t(102)), Answered::Dropped(Dropped::DeadLettered));
}

// Rule R7.
#[test]
fn a_result_above_the_cap_is_claimed_like_any_other_failure() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let (status, message) = too_large(5_000_000_000, 4_000_000_000).expect("above the cap");
    assert_eq!(accepted(claim(&set, lease, status, 1)).facts.status, Status::Invalid);
    assert!(message.details.contains("4000000000"));
}

// Rule R8.
#[test]
fn a_second_unusable_reply_adds_nothing_and_releases_only_its_own_receipt() {
    let set = set();
    let lease = set.lease_fresh(TASK, &worker("a"), legacy(), t(0)).expect("leased").lease;
    let first = set.receipt(by_name("a")).expect("taken");
    set.answered(by_name("a"), unusable("empty"), t(1));
    let second = set.receipt(by_name("a")).expect("taken");
    let before = set.counts();
    assert_eq!(set.answered(by_name("a"), unusable("again"), t(50)), Answered::Repeated(lease));
    assert_eq!(set.counts(), before);
    drop(second);
    assert_eq!(set.sweep(t(101), 10).requeued, [], "the first reply is still being looked at");
    drop(first);
    let taken = run_out(&set, 101);
    assert_eq!(taken.retry.run.reason.map(|why| why.what), Some("empty".into()));
}

// Rule R8.
#[test]
fn held_and_unknown_tasks_are_untouched_by_unusable_replies() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    run_out(&set, 101);
    let before = set.counts();
    assert_eq!(set.answered(lease, unusable("empty"), t(500)), Answered::Dropped(Dropped::NotInFlight));
    assert_eq!((set.counts(), set.state_of(TASK)), (before, SlotState::Requeued));
    assert_eq!(set.sweep(t(101 + WINDOW), 10).forgotten, [lease], "its window has not moved");
    assert_eq!(set.answered(lease, unusable("empty"), t(2000)), Answered::Dropped(Dropped::Unknown));
}
