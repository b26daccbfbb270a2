//! Rules X, and A2–A4 as far as the set keeps the budget.

use super::*;
use dispatcher_core::lease::LeaseStart;
use dispatcher_core::reap::{CATEGORY, NEVER_COMPLETED, TIME_LIMIT, unusable_reason, worker_lost_reason};
use dispatcher_core::report::Ending;
use dispatcher_core::slot::NoResult;
use dispatcher_core::slot::table::SlotState;

// Rule X1. Case F14.
#[test]
fn what_a_dead_worker_held_is_ready_again_though_nobody_speaks_and_the_set_is_full() {
    let set = set_of(Limits { max_in_flight: 20, hard_limit: 21, ..limits() });
    for task in 1..=20 {
        set.lease_fresh(TaskId(task), &worker("dead"), terms(), t(0)).expect("leased");
    }
    assert!(set.is_saturated());
    let sweep = set.sweep(t(TIMEOUT + 1), 100);
    assert_eq!((sweep.requeued.len(), set.counts().in_flight), (20, 0));
    assert!(sweep.requeued.iter().all(|taken| taken.retry.run.charged == 1 && taken.ending == Ending::Expired));
}

// Rules X1, X7.
#[test]
fn a_sweep_takes_at_most_as_many_as_it_was_asked_for_and_says_that_more_may_be_due() {
    let set = set();
    for task in 1..=5 {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(task)).expect("leased");
    }
    let first = set.sweep(t(1000), 3);
    let order: Vec<_> = first.requeued.iter().map(|taken| taken.lease.task.0).collect();
    assert_eq!((order, first.more), (vec![1, 2, 3], true), "the earliest deadlines first");
    let rest = set.sweep(t(1000), 3);
    assert_eq!((rest.requeued.len(), rest.more), (2, false));
}

// Rule X2.
#[test]
fn with_budget_left_a_task_goes_back_to_its_own_service_and_keeps_what_it_had() {
    let set = set();
    let other = Terms { service: ServiceId(2), timeout: SpanMs(70), ..terms() };
    let lease = set.lease_fresh(TASK, &worker("a"), other, t(0)).expect("leased").lease;
    set.answered(lease, NoResult::Cause(said("oom")), t(1));
    let retry = run_out(&set, 2).retry;
    assert_eq!((retry.task, retry.run.run, retry.run.charged, retry.run.attempts), (TASK, lease.run, 1, 1));
    assert_eq!((retry.run.terms, retry.run.newest), (other, lease.epoch));
    assert_eq!(retry.run.cause.map(|cause| cause.what), Some("oom".into()));
}

// Rules X2, X3. Case F19.
#[test]
fn a_task_that_kills_its_workers_ends_after_its_budget() {
    let set = set();
    let mut lease = fresh(&set, "a", 0);
    for deaths in 1..=3 {
        let why = worker_lost_reason("no sign of life for 30 s");
        set.answered(lease.lease, NoResult::WorkerLost { began: true, why }, t(1));
        let taken = run_out(&set, 1);
        assert_eq!((taken.ending, taken.retry.run.charged), (Ending::WorkerLost, deaths));
        if deaths < 3 {
            assert_eq!(taken.dead, None);
            lease = set.lease_retry(&taken.retry, &worker("a"), t(0)).expect("leased");
        } else {
            assert_eq!(taken.dead.map(|why| why.what), Some("worker_lost".into()));
        }
    }
    assert_eq!((set.counts().in_flight, set.state_of(TASK)), (0, SlotState::Dead));
}

// Rules A2, L3. Case F19.
#[test]
fn free_endings_change_neither_budget_nor_deadline_ten_times() {
    let set = set();
    let mut lease = fresh(&set, "a", 0);
    for free in 1..=11 {
        assert_eq!((lease.retries, lease.deadline), (0, Some(t(100))), "after {free} free ones");
        set.answered(lease.lease, NoResult::Undeliverable, t(1));
        let taken = run_out(&set, 1);
        assert_eq!(taken.charged, free == 11);
        lease = set.lease_retry(&taken.retry, &worker("a"), t(0)).expect("leased");
    }
    assert_eq!((lease.retries, lease.attempts), (1, 12));
}

// Rules A2, A3.
#[test]
fn a_worker_lost_before_it_began_is_free_and_one_that_hangs_is_cut_off_at_the_time_limit() {
    let terms = Terms { start: LeaseStart::AtBegun, cut_off: SpanMs(30), ..terms() };
    let set = set();
    let lease = set.lease_fresh(TASK, &worker("a"), terms, t(0)).expect("leased").lease;
    set.answered(lease, NoResult::WorkerLost { began: false, why: said("lost") }, t(5));
    let taken = run_out(&set, 5);
    assert_eq!((taken.ending, taken.charged, taken.retry.run.freed), (Ending::WorkerLost, false, 1));

    let again = set.lease_retry(&taken.retry, &worker("b"), t(10)).expect("leased").lease;
    assert!(set.begun(again, t(20)));
    assert_eq!(set.sweep(t(150), 10).requeued, []);
    let taken = run_out(&set, 151);
    assert_eq!((taken.ending, taken.charged), (Ending::TimeLimit, true));
    assert_eq!(taken.retry.run.reason.map(|why| why.what), Some(TIME_LIMIT.into()));
}

// Rule X3.
#[test]
fn a_dead_letter_says_the_last_cause_else_the_last_reason_seen_else_that_nothing_came() {
    let dead = |words: &[NoResult]| {
        let set = set();
        let lease = set.lease_fresh(TASK, &worker("a"), Terms { budget: 2, ..terms() }, t(0)).expect("leased").lease;
        for word in words {
            set.answered(lease, word.clone(), t(1));
        }
        let retry = run_out(&set, 200).retry;
        set.lease_retry(&retry, &worker("b"), t(200)).expect("leased");
        let message = run_out(&set, 1000).dead.expect("the budget is spent");
        assert_eq!(message.severity, Severity::Fatal);
        (message.category, message.what)
    };
    let lost = NoResult::WorkerLost { began: true, why: worker_lost_reason("gone") };
    let unusable = NoResult::Unusable(unusable_reason("not an archive"));
    assert_eq!(dead(&[]), (CATEGORY.into(), NEVER_COMPLETED.into()));
    assert_eq!(dead(std::slice::from_ref(&lost)), (CATEGORY.into(), "worker_lost".into()));
    assert_eq!(dead(&[unusable]), (CATEGORY.into(), "unusable_reply".into()));
    assert_eq!(dead(&[lost, NoResult::Cause(said("oom"))]), ("test".into(), "oom".into()));
}

// Rule X4.
#[test]
fn what_the_reaper_takes_is_held_for_the_window_from_that_moment() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    run_out(&set, 700);
    assert_eq!(set.sweep(t(699 + WINDOW), 10).forgotten, []);
    assert_eq!(set.sweep(t(700 + WINDOW), 10).forgotten, [lease]);
}

// Rules X4, L12.
#[test]
fn a_window_of_zero_or_less_turns_windows_off_and_every_result_still_counts() {
    for window_ms in [0, -1, i64::MIN] {
        let set = set_of(Limits { window_ms, ..limits() });
        let first = fresh(&set, "a", 0).lease;
        let retry = run_out(&set, 101).retry;
        assert_eq!((set.counts().held, set.state_of(TASK)), (0, SlotState::Absent));
        let second = set.lease_forgotten(&retry, &worker("b"), t(102)).expect("leased").lease;
        assert_eq!(accepted(claim(&set, first, Status::Fatal, 103)).facts.lease, first, "an older attempt counts");
        assert_eq!((set.counts().in_flight, set.counts().held), (0, 0));
        assert!(matches!(claim(&set, second, Status::Fatal, 104), Claim::Unknown));
    }
}

// Rule X4.
#[test]
fn at_the_cap_nobody_is_added_to_the_held_and_the_rest_goes_on() {
    let set = set_of(Limits { max_held: 2, ..limits() });
    for task in 1..=5 {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(task)).expect("leased");
    }
    let sweep = set.sweep(t(500), 10);
    assert_eq!((sweep.requeued.len(), set.counts().held), (5, 2), "all are requeued, two are held");
    assert_eq!(set.waiting().len(), 2);
    set.lease_forgotten(&sweep.requeued[4].retry, &worker("b"), t(501)).expect("the others are leased all the same");
}

// Rules X5, X8.
#[test]
fn until_the_sweep_at_its_end_results_land_and_that_sweep_forgets_before_it_takes() {
    let set = set_of(Limits { max_held: 1, ..limits() });
    let first = set.lease_fresh(TaskId(1), &worker("a"), terms(), t(0)).expect("leased").lease;
    assert_eq!(run_out(&set, 101).lease, first);
    let second = set.lease_fresh(TaskId(2), &worker("a"), terms(), t(200)).expect("leased").lease;
    let at_the_end = set.sweep(t(101 + WINDOW), 10);
    assert_eq!((at_the_end.forgotten, at_the_end.requeued.len()), (vec![first], 1));
    assert_eq!(set.state_of(second.task), SlotState::Requeued, "there was room for it");
    accepted(claim(&set, second, Status::NoProblem, 500 + 2 * WINDOW));
}

// Rule X6.
#[test]
fn held_tasks_are_not_in_flight_and_removing_from_flight_leaves_them() {
    let set = set();
    let lease = fresh(&set, "a", 0).lease;
    run_out(&set, 101);
    assert_eq!((set.counts().in_flight, set.counts().held, set.in_flight_of(SERVICE)), (0, 1, 0));
    assert!(!set.remove(TASK));
    assert_eq!(set.counts().held, 1);
    accepted(claim(&set, lease, Status::NoProblem, 102));
}

// Rules X7, X8.
#[test]
fn each_sweep_reports_how_many_were_requeued_dead_lettered_and_forgotten() {
    let set = set();
    set.lease_fresh(TaskId(1), &worker("a"), terms(), t(0)).expect("leased");
    set.sweep(t(101), 10).requeued.clear();
    let once = Terms { budget: 1, ..terms() };
    for task in 2..=4 {
        let terms = if task == 2 { terms() } else { once };
        set.lease_fresh(TaskId(task), &worker("a"), terms, t(WINDOW)).expect("leased");
    }
    let sweep = set.sweep(t(WINDOW + 101), 10);
    assert_eq!((sweep.requeued.len(), sweep.dead.len(), sweep.forgotten.len()), (1, 2, 1));
    assert!(sweep.dead.iter().all(|taken| taken.dead.is_some()));
    let idle = set.sweep(t(WINDOW + 101), 10);
    assert!(idle.requeued.is_empty() && idle.dead.is_empty() && idle.forgotten.is_empty() && !idle.more);
}

// Rules X1, L3. Case F56.
#[test]
fn no_step_of_a_clock_makes_a_sweep_panic_or_wrap() {
    let set = set();
    for (task, now) in [(1, i64::MIN), (2, -1), (3, i64::MAX)] {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(now)).expect("leased");
    }
    assert!(set.sweep(t(i64::MIN), 10).requeued.is_empty());
    assert_eq!(set.sweep(t(i64::MAX), 10).requeued.len(), 2, "a deadline at the end of time is never past");
    assert_eq!(set.sweep(t(0), 10).forgotten, [], "a window that ends at the end of time is not over before");
    assert_eq!(set.sweep(t(i64::MAX), 10).forgotten.len(), 2);
}
