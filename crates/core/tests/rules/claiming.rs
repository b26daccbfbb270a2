//! Rules C.

use super::*;
use dispatcher_core::claim::Standing;
use dispatcher_core::in_flight::{Attribution, LeaseState};
use dispatcher_core::lease::LeaseRefusal;
use dispatcher_core::report::Origin;
use dispatcher_core::slot::table::SlotState;
use dispatcher_core::slot::{Answered, Dropped, Lateness, NoResult, Settled, Settlement, TakenBack};

fn stands(lease: LeaseId, status: Status) -> Standing {
    Standing { epoch: lease.epoch, status, origin: Origin::Worker }
}

// Rule C1.
#[test]
fn the_current_attempts_result_is_on_time_even_after_a_deadline_that_nobody_reaped() {
    for status in [Status::NoProblem, Status::Warning, Status::Error] {
        let set = set();
        let lease = fresh(&set, "a", 0).lease;
        let facts = accepted(claim(&set, lease, status, 1_000_000)).facts;
        assert_eq!((facts.lease, facts.late, facts.replaced), (lease, Lateness::OnTime, None));
        assert_eq!((set.counts().in_flight, set.counts().held), (0, 0), "nothing is held after a usable result");
    }
}

// Rules C2, C10.
#[test]
fn an_older_attempts_result_is_accepted_late_and_held_for_the_newer_one() {
    for status in Status::ALL {
        let set = set();
        let (first, second) = second_attempt(&set, terms(), 200);
        let facts = accepted(claim(&set, first, status, 201)).facts;
        assert_eq!((facts.late, facts.attempts), (Lateness::OlderAttempt, 2));
        assert_eq!((set.counts().in_flight, set.counts().held), (0, 1));
        let newer = accepted(claim(&set, second, Status::NoProblem, 202)).facts;
        assert_eq!((newer.late, newer.replaced), (Lateness::NewerAttempt, Some(stands(first, status))));
    }
}

// Rule C3.
#[test]
fn a_failure_is_held_when_another_attempt_of_the_run_may_replace_it() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    accepted(claim(&set, second, Status::Invalid, 201));
    assert_eq!(set.state_of(TASK), SlotState::Failure);
    let better = accepted(claim(&set, first, Status::Error, 202)).facts;
    assert_eq!((better.late, better.replaced), (Lateness::ReplacesFailure, Some(stands(second, Status::Invalid))));
}

// Rule C3.
#[test]
fn a_failure_of_the_only_attempt_is_not_held() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    accepted(claim(&set, lease, Status::Fatal, 1));
    assert_eq!(set.state_of(TASK), SlotState::Absent);
    // Attempts of an earlier run are none of this one.
    let set = self::set();
    fresh(&set, "a", 0);
    let rerun = fresh(&set, "b", 1).lease;
    accepted(claim(&set, rerun, Status::Fatal, 2));
    assert_eq!(set.state_of(TASK), SlotState::Absent);
}

// Rule C4.
#[test]
fn the_first_result_after_a_requeue_lands_usable_or_not_and_cancels_the_retry() {
    for status in Status::ALL {
        let set = set();
        let lease = fresh(&set, "a", 0).lease;
        let retry = run_out(&set, 101).retry;
        assert_eq!(accepted(claim(&set, lease, status, 102)).facts.late, Lateness::AfterRequeue);
        assert_eq!(set.waiting(), []);
        let dropped = set.lease_retry(&retry, &worker("b"), t(103));
        assert_eq!(dropped, Err(LeaseRefusal::Finished { by: stands(lease, status) }));
    }
}

// Rules C4, X3.
#[test]
fn the_first_result_after_a_dead_letter_lands_usable_or_not() {
    for status in Status::ALL {
        let set = set();
        let terms = Terms { budget: 1, ..terms() };
        let lease = set.lease_fresh(TASK, &worker("a"), terms, t(0)).expect("leased").lease;
        assert!(run_out(&set, 101).dead.is_some());
        let facts = accepted(claim(&set, lease, status, 102)).facts;
        assert_eq!(facts.late, Lateness::AfterDeadLetter);
        assert_eq!(facts.replaced.map(|stood| stood.origin), Some(Origin::ReaperStandIn));
    }
}

// Rule C5.
#[test]
fn good_result_wins_whatever_the_order_and_the_attempt() {
    let outcome = |results: &[(bool, Status)]| {
        let set = set();
        let (first, second) = second_attempt(&set, terms(), 200);
        let mut landed = Vec::new();
        for (of_first, status) in results {
            let lease = if *of_first { first } else { second };
            landed.push(matches!(claim(&set, lease, *status, 201), Claim::Accepted(_)));
        }
        landed
    };
    let (good, bad) = (Status::Warning, Status::Fatal);
    assert_eq!(outcome(&[(true, bad), (true, good)]), [true, true], "the same attempt included");
    assert_eq!(outcome(&[(true, good), (true, bad)]), [true, false]);
    assert_eq!(outcome(&[(true, good), (false, bad)]), [true, false], "a failure never beats a usable result");
    assert_eq!(outcome(&[(true, good), (false, good)]), [true, true], "a higher number wins");
    assert_eq!(outcome(&[(true, bad), (false, bad), (true, bad)]), [true, true, false], "a lower one does not");
    assert_eq!(outcome(&[(false, bad), (true, good), (false, bad)]), [true, true, false]);
}

// Rules C5, C10. Case F07.
#[test]
fn superseded_names_both_attempts_and_a_repeat_changes_nothing() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    accepted(claim(&set, first, Status::NoProblem, 201));
    accepted(claim(&set, second, Status::NoProblem, 202));
    for status in Status::ALL {
        for late in [first, second] {
            match claim(&set, late, status, 900) {
                Claim::Superseded { lease, by } => assert_eq!((lease, by), (late, stands(second, Status::NoProblem))),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(set.counts().superseded, 10);
    assert_eq!(set.sweep(t(202 + WINDOW), 10).forgotten, [second], "what is dropped moves no window");
}

// Rule C6.
#[test]
fn a_result_of_an_earlier_run_is_dropped_and_the_new_run_feels_nothing_of_it() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    let rerun = fresh(&set, "c", 201).lease;
    let before = set.counts();
    for old in [first, second] {
        assert!(set.receipt(old).is_none());
        assert!(matches!(claim(&set, old, Status::NoProblem, 202), Claim::Stale));
        let word = set.answered(old, NoResult::Cause(said("oom")), t(202));
        assert_eq!(word, Answered::Dropped(Dropped::Stale));
    }
    assert_eq!(set.counts().stale, before.stale + 4);
    assert_eq!(run_out(&set, 302).lease, rerun, "no receipt of the old run holds the reaper off");
}

// Rule C7.
#[test]
fn what_memory_has_no_place_for_is_unknown_and_counted() {
    let set = set();
    let leased = fresh(&set, "a", 0).lease;
    let never = LeaseId { epoch: Epoch(leased.epoch.0 + 1), ..leased };
    let later = LeaseId { run: Run(2), ..never };
    let elsewhere = LeaseId { task: TaskId(99), ..leased };
    for lease in [never, later, elsewhere] {
        assert!(matches!(claim(&set, lease, Status::NoProblem, 1), Claim::Unknown));
        assert!(set.receipt(lease).is_none());
        assert_eq!(set.lease_state(lease), LeaseState::Unknown);
    }
    assert_eq!((set.counts().unknown, set.counts().in_flight), (3, 1));
}

// Rule C8.
#[test]
fn a_result_that_cannot_be_published_opens_its_task_again_and_the_next_sweep_takes_it() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let result = accepted(claim(&set, lease, Status::NoProblem, 1));
    assert_eq!(set.state_of(TASK), SlotState::Absent);
    let taken_back = set.take_back(result, said("disk full"), t(2)).expect("below the hard limit");
    assert_eq!(taken_back, TakenBack::DueAtOnce(lease));
    assert_eq!((set.counts().in_flight, set.counts().answered), (1, 1), "its worker will not deliver again");
    let taken = run_out(&set, 2);
    assert_eq!(taken.retry.run.reason.map(|reason| reason.what), Some("disk full".into()));
}

// Rule C8.
#[test]
fn a_held_task_gets_its_cancelled_retry_back() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let retry = run_out(&set, 101).retry;
    let result = accepted(claim(&set, lease, Status::NoProblem, 102));
    let taken_back = set.take_back(result, said("disk full"), t(103)).expect("taken back");
    assert_eq!(taken_back, TakenBack::Requeued(retry.clone()));
    assert_eq!(set.waiting(), std::slice::from_ref(&retry));
    set.lease_retry(&retry, &worker("b"), t(104)).expect("it runs after all");
}

// Rule C8.
#[test]
fn the_newest_published_result_stands_again() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    accepted(claim(&set, first, Status::Warning, 201));
    let newer = accepted(claim(&set, second, Status::NoProblem, 202));
    let taken_back = set.take_back(newer, said("disk full"), t(203)).expect("taken back");
    assert_eq!(taken_back, TakenBack::Stands(stands(first, Status::Warning)));
    let again = claim(&set, second, Status::NoProblem, 204);
    assert_eq!(accepted(again).facts.replaced, Some(stands(first, Status::Warning)));
}

// Rule C8.
#[test]
fn a_later_result_stays_and_only_its_fallback_is_corrected() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    let older = accepted(claim(&set, first, Status::Warning, 201));
    let newer = accepted(claim(&set, second, Status::NoProblem, 202));
    let kept = set.take_back(older, said("disk full"), t(203)).expect("taken back");
    assert_eq!(kept, TakenBack::Kept(stands(second, Status::NoProblem)));
    // Nothing is left to fall back on: the task is open again.
    let open = set.take_back(newer, said("disk full"), t(204)).expect("taken back");
    assert_eq!(open, TakenBack::DueAtOnce(second));
}

// Rule C8.
#[test]
fn a_later_run_feels_nothing_of_what_is_taken_back() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let result = accepted(claim(&set, lease, Status::NoProblem, 1));
    let rerun = fresh(&set, "b", 2).lease;
    let taken_back = set.take_back(result, said("disk full"), t(3)).expect("taken back");
    assert_eq!(taken_back, TakenBack::LaterRun);
    assert_eq!(set.lease_state(rerun), LeaseState::InFlight { begun: true, answered: false });
    assert_eq!(set.sweep(t(4), 10).requeued, []);
}

// Rules C8, L10.
#[test]
fn a_reopened_task_is_not_refused_below_the_hard_limit_and_one_above_it_is_the_end() {
    let set = set_of(Limits { max_in_flight: 1, hard_limit: 2, ..limits() });
    let mut results = Vec::new();
    for task in 1..=3 {
        let leased = set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased");
        results.push(accepted(claim(&set, leased.lease, Status::NoProblem, 1)));
    }
    let mut open = || set.take_back(results.pop().expect("one is left"), said("disk full"), t(2));
    assert!(matches!(open(), Ok(TakenBack::DueAtOnce(_))));
    assert!(matches!(open(), Ok(TakenBack::DueAtOnce(_))));
    assert_eq!(open(), Err(LeaseRefusal::HardLimit { limit: 2 }));
    assert_eq!(set.counts().in_flight, 2);
}

// Rule C9.
#[test]
fn an_accepted_late_result_starts_the_window_anew() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    accepted(claim(&set, first, Status::Fatal, 300));
    assert_eq!(set.sweep(t(299 + WINDOW), 10).forgotten, []);
    accepted(claim(&set, first, Status::Warning, 299 + WINDOW));
    assert_eq!(set.sweep(t(298 + 2 * WINDOW), 10).forgotten, []);
    accepted(claim(&set, second, Status::Warning, 298 + 2 * WINDOW));
    assert_eq!(set.sweep(t(298 + 3 * WINDOW), 10).forgotten, [second]);
}

// Rule C10.
#[test]
fn an_acceptance_says_task_attempt_attempts_so_far_what_it_replaced_and_how_late() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    let facts = accepted(claim(&set, second, Status::Fatal, 201)).facts;
    assert_eq!((facts.lease, facts.service, facts.status), (second, SERVICE, Status::Fatal));
    assert_eq!((facts.attempts, facts.replaced, facts.late), (2, None, Lateness::OnTime));
    let facts = accepted(claim(&set, first, Status::NoProblem, 202)).facts;
    assert_eq!((facts.lease, facts.attempts), (first, 2));
    assert_eq!((facts.replaced, facts.late), (Some(stands(second, Status::Fatal)), Lateness::ReplacesFailure));
}

// Rule C11.
#[test]
fn without_a_token_a_reply_finds_the_newest_attempt_of_its_worker_else_the_newest_of_all() {
    let set = set();
    let (first, second) = second_attempt(&set, legacy(), 200);
    let retry = run_out(&set, 1000).retry;
    let third = set.lease_retry(&retry, &worker("a"), t(1000)).expect("leased").lease;
    let lease_of = |name| set.receipt(by_name(name)).expect("found").lease();
    assert_eq!([lease_of("b"), lease_of("a"), lease_of("nobody")], [second, third, third]);
    assert!(first < second);
    let of_b = accepted(claim(&set, by_name("b"), Status::NoProblem, 1001)).facts;
    assert_eq!((of_b.lease, of_b.late), (second, Lateness::OlderAttempt));
}

// Rule C11.
#[test]
fn causes_and_unusable_replies_find_their_attempt_in_the_same_way() {
    let set = set();
    let (_, second) = second_attempt(&set, legacy(), 200);
    for word in [NoResult::Cause(said("oom")), NoResult::Unusable(said("empty"))] {
        let of_older = set.answered(by_name("a"), word.clone(), t(201));
        assert_eq!(of_older, Answered::Dropped(Dropped::OlderAttempt));
    }
    assert_eq!(set.answered(by_name("nobody"), NoResult::Unusable(said("empty")), t(202)), Answered::Waits(second));
}

// Rule C11.
#[test]
fn a_task_without_recorded_attempts_has_one_with_number_0() {
    let set = set();
    set.adopt(Grant { worker: None, terms: legacy(), ..grant(1, 1) }, None, None, t(0)).expect("adopted");
    let facts = accepted(claim(&set, by_name("anybody"), Status::NoProblem, 1)).facts;
    assert_eq!((facts.lease.epoch.attempt(), facts.attempts), (0, 1));
}

// Rule C12.
#[test]
fn a_reply_that_names_another_service_takes_no_receipt_and_is_no_result() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    let by = Attribution::Token { run: lease.run, epoch: lease.epoch };
    let other = Reply { task: TASK, by, service: Some(ServiceId(2)) };
    assert!(set.receipt(other).is_none());
    assert!(matches!(claim(&set, other, Status::NoProblem, 1), Claim::WrongService { service: SERVICE }));
    assert_eq!(set.state_of(TASK), SlotState::InFlight);
    // Held tasks are looked up in the same way.
    run_out(&set, 101);
    assert!(set.receipt(other).is_none());
    assert!(matches!(claim(&set, other, Status::NoProblem, 102), Claim::WrongService { .. }));
    assert!(set.receipt(lease).is_some());
}

// Rule C13.
#[test]
fn what_memory_has_forgotten_is_unknown_here_and_left_to_the_store() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    run_out(&set, 101);
    assert_eq!(set.sweep(t(101 + WINDOW), 10).forgotten, [lease]);
    assert!(matches!(claim(&set, lease, Status::NoProblem, 2000), Claim::Unknown));
    let settled = set.settle(lease, &Settlement::Stands(stands(lease, Status::NoProblem)), t(2001));
    assert_eq!((settled, set.state_of(TASK)), (Settled::Unchanged, SlotState::Absent));
}

// Rules C13, D5.
#[test]
fn where_memory_and_store_differ_the_store_is_right() {
    let in_flight = || {
        let set = set();
        set.lease(grant(1, 1), t(0)).expect("leased");
        run_out(&set, 101);
        set.lease(Grant { retries: 1, ..grant(1, 2) }, t(102)).expect("leased");
        set
    };
    let after = |settlement| {
        let set = in_flight();
        set.settle(claimed(1, 2), &settlement, t(103));
        let counts = set.counts();
        (set.state_of(TASK), counts.in_flight, counts.held)
    };
    let stand_in = Standing { epoch: Epoch(2), status: Status::Fatal, origin: Origin::ReaperStandIn };
    let older = stands(claimed(1, 1), Status::Warning);
    assert_eq!(after(Settlement::Stands(stands(claimed(1, 2), Status::Error))), (SlotState::Absent, 0, 0));
    assert_eq!(after(Settlement::Stands(stands(claimed(1, 2), Status::Fatal))), (SlotState::Failure, 0, 1));
    assert_eq!(after(Settlement::Superseded { by: older }), (SlotState::Absent, 0, 0));
    assert_eq!(after(Settlement::Stale), (SlotState::Absent, 0, 0));
    assert_eq!(after(Settlement::Cancelled), (SlotState::Absent, 0, 0));
    assert_eq!(after(Settlement::Unknown), (SlotState::Absent, 0, 0));
    assert_eq!(after(Settlement::Requeued { charged: 2 }), (SlotState::Requeued, 0, 1));
    assert_eq!(after(Settlement::DeadLettered(stand_in)), (SlotState::Dead, 0, 1));
    assert_eq!(after(Settlement::Returned), (SlotState::Requeued, 0, 1));
}

// Rules C9, C13.
#[test]
fn the_stores_word_about_an_older_attempt_counts_as_work_saved_and_tells_how_late() {
    let set = set();
    set.lease(grant(1, 1), t(0)).expect("leased");
    run_out(&set, 101);
    let late = set.settle(claimed(1, 1), &Settlement::Stands(stands(claimed(1, 1), Status::Warning)), t(500));
    assert_eq!((late, set.state_of(TASK)), (Settled::Landed(Lateness::AfterRequeue), SlotState::Usable));
    let refused = set.lease(Grant { retries: 1, ..grant(1, 2) }, t(501));
    assert!(matches!(refused, Err(LeaseRefusal::Finished { .. })), "a claim that crossed the late result is dropped");
    assert_eq!(set.sweep(t(499 + WINDOW), 10).forgotten, []);
    assert_eq!(set.sweep(t(500 + WINDOW), 10).forgotten, [claimed(1, 1)]);
}
