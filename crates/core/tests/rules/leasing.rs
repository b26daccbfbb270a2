//! Rules L and S3, and what of S4 concerns memory.

use super::*;
use dispatcher_core::in_flight::{LeaseState, LimitsError};
use dispatcher_core::lease::{LeaseRefusal, LeaseStart};
use dispatcher_core::retry::{Look, Requeues};
use dispatcher_core::slot::NoResult;
use dispatcher_core::slot::table::SlotState;

// Rules L1, L3.
#[test]
fn a_lease_is_timed_from_its_hand_out_and_a_retry_afresh_and_longer() {
    let set = set();
    let first = fresh(&set, "a", 5000);
    assert_eq!(first.deadline, Some(t(5100)));
    let retry = run_out(&set, 5101).retry;
    let second = set.lease_retry(&retry, &worker("b"), t(9000)).expect("leased");
    assert_eq!((second.deadline, second.retries, second.limit), (Some(t(9200)), 1, SpanMs(200)));
}

// Rule L1.
#[test]
fn on_a_wire_that_tells_the_start_the_lease_lives_as_long_as_its_worker_until_work_begins() {
    let set = set();
    let terms = Terms { start: LeaseStart::AtBegun, cut_off: SpanMs(35), ..terms() };
    let leased = set.lease_fresh(TASK, &worker("a"), terms, t(0)).expect("leased");
    assert_eq!(leased.deadline, None);
    assert_eq!(set.sweep(t(i64::MAX), 10).requeued, []);
    assert!(set.begun(leased.lease, t(50_000)));
    assert!(!set.begun(leased.lease, t(50_090)), "a repeat does not move the deadline");
    assert_eq!(set.sweep(t(50_135), 10).requeued, []);
    assert_eq!(set.sweep(t(50_136), 10).requeued.len(), 1);
}

// Rule L2. Case F01.
#[test]
fn an_answer_finds_its_lease_as_soon_as_the_task_may_be_sent() {
    let set = set();
    for task in 1..=500 {
        let leased = set.lease_fresh(TaskId(task), &worker("echo"), terms(), t(0)).expect("leased");
        accepted(claim(&set, leased.lease, Status::Warning, 0));
    }
    assert_eq!((set.counts().in_flight, set.counts().unknown), (0, 0));
}

// Rule L3. Case F16.
#[test]
fn fast_and_slow_services_share_a_set_and_a_new_setting_holds_for_new_runs_only() {
    let set = set();
    let slow = Terms { service: ServiceId(2), timeout: SpanMs(10_000), ..terms() };
    set.lease_fresh(TaskId(1), &worker("a"), terms(), t(0)).expect("leased");
    set.lease_fresh(TaskId(2), &worker("b"), slow, t(0)).expect("leased");
    let taken = run_out(&set, 101);
    assert_eq!((taken.lease.task, taken.retry.run.terms.service), (TaskId(1), SERVICE));
    // The retry keeps the run's time-out; a rerun reads the service's new one.
    let again = set.lease_retry(&taken.retry, &worker("a"), t(200)).expect("leased");
    assert_eq!(again.limit, SpanMs(200));
    let changed = Terms { timeout: SpanMs(7), ..terms() };
    let rerun = set.lease_fresh(TaskId(1), &worker("a"), changed, t(300)).expect("leased");
    assert_eq!(rerun.deadline, Some(t(307)));
}

// Rules L4, L14.
#[test]
fn a_claim_above_the_sets_run_begins_a_new_run_with_a_full_budget_and_no_cause() {
    let set = set();
    let mut retry = grant(1, 3);
    (retry.retries, retry.cause) = (2, Some(said("oom")));
    set.lease(retry, t(0)).expect("leased");
    let rerun = set.lease(grant(2, 4), t(1)).expect("a first attempt of a run is always leased");
    assert_eq!((rerun.attempts, rerun.retries, rerun.cause), (1, 0, None));
    assert!(matches!(claim(&set, claimed(1, 3), Status::NoProblem, 2), Claim::Stale));
    assert_eq!(set.counts().in_flight, 1);
}

// Rule L4.
#[test]
fn a_claim_equal_to_the_sets_run_is_a_retry_and_one_below_it_is_dropped() {
    let set = set();
    set.lease(grant(2, 4), t(0)).expect("leased");
    let retry = set.lease(Grant { retries: 1, ..grant(2, 5) }, t(1)).expect("a retry");
    assert_eq!(retry.attempts, 2);
    let older = set.lease(grant(1, 9), t(2));
    assert_eq!(older, Err(LeaseRefusal::OlderRun { current: Run(2) }));
    assert_eq!(set.lease(grant(2, 4), t(3)), Err(LeaseRefusal::OlderClaim { newest: Epoch(5) }));
    assert_eq!(set.lease_state(claimed(2, 5)), LeaseState::InFlight { begun: true, answered: false });
}

// Rules L4, L14, C6.
#[test]
fn without_a_store_a_fresh_fetch_of_a_known_task_is_a_rerun_and_numbers_never_come_back() {
    let set = set();
    let first = fresh(&set, "a", 0).lease;
    let rerun = fresh(&set, "b", 1).lease;
    assert_eq!((first.run, rerun.run), (Run(1), Run(2)));
    assert!(matches!(claim(&set, first, Status::NoProblem, 2), Claim::Stale));
    accepted(claim(&set, rerun, Status::NoProblem, 3));
    // The set has forgotten the task, and still tells its old attempts from the new one.
    let later = fresh(&set, "c", 4).lease;
    assert!(later.epoch > rerun.epoch);
    for old in [first, rerun] {
        assert!(matches!(claim(&set, old, Status::NoProblem, 5), Claim::Stale));
    }
}

// Rule L5.
#[test]
fn a_queued_retry_is_dropped_when_a_late_result_finished_its_task() {
    let set = set();
    let mut queue = Requeues::new(10);
    let first = fresh(&set, "a", 0).lease;
    queue.push(run_out(&set, 101).retry, t(101));
    accepted(claim(&set, first, Status::NoProblem, 102));
    assert_eq!(queue.lease_next(&set, SERVICE, &worker("b"), t(103), |_| Look::Open), None);
    assert!(queue.is_empty());
    assert_eq!(set.state_of(TASK), SlotState::Usable);
}

// Rules L6, L12.
#[test]
fn a_queued_retry_of_an_earlier_run_is_dropped_and_the_new_run_is_not_touched() {
    let set = set();
    let mut queue = Requeues::new(10);
    fresh(&set, "a", 0);
    queue.push(run_out(&set, 101).retry, t(101));
    let rerun = fresh(&set, "b", 102);
    assert_eq!(queue.lease_next(&set, SERVICE, &worker("c"), t(103), |_| Look::Open), None);
    assert!(queue.is_empty());
    assert_eq!(set.lease_state(rerun.lease), LeaseState::InFlight { begun: true, answered: false });
}

// Rules L7, R6.
#[test]
fn a_cause_told_while_a_retry_waits_overrides_the_one_it_carries() {
    for told in [None, Some("told")] {
        let set = set();
        let lease = fresh(&set, "a", 0).lease;
        set.answered(lease, NoResult::Cause(said("carried")), t(1));
        let retry = run_out(&set, 2).retry;
        if let Some(told) = told {
            set.answered(lease, NoResult::Cause(said(told)), t(3));
        }
        let again = set.lease_retry(&retry, &worker("b"), t(4)).expect("leased");
        assert_eq!(again.cause.map(|cause| cause.what), Some(told.unwrap_or("carried").to_owned()));
    }
}

// Rule L8.
#[test]
fn a_rerun_waits_for_a_worker_whose_results_can_be_told_apart() {
    let set = set();
    set.lease_fresh(TASK, &worker("a"), legacy(), t(0)).expect("leased");
    let refused = set.lease_fresh(TASK, &worker("a"), legacy(), t(1));
    assert_eq!(refused, Err(LeaseRefusal::WorkedEarlier { worker: "a".into() }));
    assert!(!refused.expect_err("refused").is_final());
    set.lease_fresh(TASK, &worker("b"), legacy(), t(2)).expect("another worker may");
    assert!(matches!(claim(&set, by_name("a"), Status::NoProblem, 3), Claim::Stale));
}

// Rule L8.
#[test]
fn with_tokens_a_rerun_may_go_to_any_worker() {
    let set = set();
    let first = fresh(&set, "a", 0).lease;
    let rerun = fresh(&set, "a", 1).lease;
    assert!(matches!(claim(&set, first, Status::NoProblem, 2), Claim::Stale));
    accepted(claim(&set, rerun, Status::NoProblem, 3));
}

// Rules L8, L12.
#[test]
fn the_worker_that_may_not_have_a_retry_is_offered_the_next_one() {
    let set = set();
    let mut queue = Requeues::new(10);
    set.lease_fresh(TASK, &worker("a"), legacy(), t(0)).expect("leased");
    set.lease_fresh(TASK, &worker("b"), legacy(), t(1)).expect("a rerun");
    set.lease_fresh(TaskId(8), &worker("c"), legacy(), t(2)).expect("leased");
    for taken in set.sweep(t(200), 10).requeued {
        queue.push(taken.retry, t(200));
    }
    let next = queue.lease_next(&set, SERVICE, &worker("a"), t(201), |_| Look::Open).expect("the next one");
    assert_eq!(next.lease.task, TaskId(8));
    let other = queue.lease_next(&set, SERVICE, &worker("d"), t(201), |_| Look::Open).expect("for another worker");
    assert_eq!(other.lease.task, TASK);
}

// Rule L9. Case F02.
#[test]
fn an_undone_lease_leaves_everything_as_it_was_and_costs_nothing() {
    let set = set();
    let mut queue = Requeues::new(10);
    let first = fresh(&set, "a", 0).lease;
    assert!(set.undo(first, t(0)).is_some_and(|undone| undone.retry.is_none()), "a first attempt is fetched again");
    assert_eq!(set.state_of(TASK), SlotState::Absent);

    fresh(&set, "a", 10);
    queue.push(run_out(&set, 111).retry, t(111));
    for _ in 0..255 {
        let leased = queue.lease_next(&set, SERVICE, &worker("gone"), t(120), |_| Look::Open).expect("leased");
        assert_eq!((leased.attempts, leased.retries), (2, 1));
        let undone = set.undo(leased.lease, t(120)).expect("its worker was never heard of");
        assert_eq!(set.state_of(TASK), SlotState::Requeued);
        queue.push_front(undone.retry.expect("a retry"));
    }
    let last = queue.lease_next(&set, SERVICE, &worker("b"), t(120), |_| Look::Open).expect("leased");
    assert_eq!((last.attempts, last.retries), (2, 1));
    assert_eq!((set.counts().undone, set.counts().in_flight), (256, 1));
    // A legacy result of the worker that never had it is not taken for its own attempt.
    let by_gone = accepted(claim(&set, by_name("gone"), Status::NoProblem, 121));
    assert_eq!(by_gone.facts.lease, last.lease);
}

// Rules L9, R3.
#[test]
fn an_undone_take_over_returns_the_lease_it_took_with_its_receipts() {
    let set = set();
    set.lease(grant(1, 1), t(0)).expect("leased");
    let receipt = set.receipt(claimed(1, 1)).expect("in flight");
    set.lease(Grant { retries: 1, ..grant(1, 2) }, t(50)).expect("takes over");
    assert!(set.undo(claimed(1, 2), t(51)).is_some());
    assert_eq!(set.sweep(t(1000), 10).requeued, [], "the receipt still holds the reaper off");
    drop(receipt);
    assert_eq!(run_out(&set, 1000).lease, claimed(1, 1));
}

// Rule L9.
#[test]
fn a_lease_is_not_undone_once_its_worker_has_been_heard_of() {
    let set = set();
    let terms = Terms { start: LeaseStart::AtBegun, ..terms() };
    let leased = set.lease_fresh(TASK, &worker("a"), terms, t(0)).expect("leased");
    assert!(set.begun(leased.lease, t(1)));
    assert_eq!(set.undo(leased.lease, t(2)), None);
    assert_eq!(set.counts().in_flight, 1);
}

// Rules L9, C2.
#[test]
fn a_late_result_that_lands_while_a_task_is_being_sent_survives_the_undoing() {
    let set = set();
    let (first, second) = second_attempt(&set, terms(), 200);
    accepted(claim(&set, first, Status::NoProblem, 201));
    let undone = set.undo(second, t(202)).expect("undone");
    assert!(undone.finished && undone.retry.is_none());
    assert_eq!(set.state_of(TASK), SlotState::Usable);
}

// Rule L10. Case F33.
#[test]
fn leasing_stops_at_the_limit_and_goes_on_below_it_and_held_tasks_do_not_count() {
    let set = set_of(Limits { max_in_flight: 3, hard_limit: 4, ..limits() });
    let lease = |task, now| set.lease_fresh(TaskId(task), &worker("a"), terms(), t(now));
    for task in 1..=3 {
        lease(task, 0).expect("below the limit");
    }
    assert!(set.is_saturated());
    let refused = lease(4, 0);
    assert_eq!(refused, Err(LeaseRefusal::Saturated { limit: 3 }));
    assert_eq!(set.counts().in_flight, 3);
    assert_eq!(set.sweep(t(101), 10).requeued.len(), 3);
    assert_eq!((set.counts().held, set.is_saturated()), (3, false));
    lease(4, 102).expect("the held ones are not in flight");
}

// Rule L10.
#[test]
fn the_hard_limit_lies_strictly_above_and_that_is_checked_when_a_set_is_made() {
    let made =
        |max_in_flight, hard_limit| InFlightSet::new(Limits { max_in_flight, hard_limit, ..limits() }).map(|_| ());
    assert_eq!(made(10, 11), Ok(()));
    assert_eq!(made(10, 10), Err(LimitsError::HardLimitNotAbove { max_in_flight: 10, hard_limit: 10 }));
    assert_eq!(made(0, 10), Err(LimitsError::NothingInFlight));
    for shards in [0, 1, 3] {
        let made = InFlightSet::new(Limits { shards, ..limits() }).map(|_| ());
        assert_eq!(made, Err(LimitsError::Shards(shards)));
    }
    let defaults = Limits::default();
    assert_eq!((defaults.max_in_flight, defaults.hard_limit, defaults.max_held), (8000, 10_000, 50_000));
}

// Rules L10, S4.
#[test]
fn adopted_leases_fill_the_set_up_to_the_hard_limit_and_one_more_is_the_end() {
    let set = set_of(Limits { max_in_flight: 2, hard_limit: 4, ..limits() });
    let adopt = |task| {
        let lease = LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(1) };
        set.adopt(Grant::new(lease, worker("a"), terms()), Some(t(0)), None, t(10))
    };
    for task in 1..=4 {
        adopt(task).expect("not refused");
    }
    assert_eq!(adopt(5), Err(LeaseRefusal::HardLimit { limit: 4 }));
    assert_eq!(adopt(4).map(|leased| leased.lease.task), Ok(TaskId(4)), "what is there already needs no place");
    let lease = |task| set.lease_fresh(TaskId(task), &worker("b"), terms(), t(11));
    assert_eq!(lease(9), Err(LeaseRefusal::Saturated { limit: 2 }));
    for task in 1..=3 {
        assert!(set.remove(TaskId(task)));
    }
    lease(9).expect("below the limit again");
}

// Rules S4, L3. Case F56.
#[test]
fn an_adopted_lease_keeps_its_limit_and_a_clock_that_was_set_back_adds_nothing() {
    let set = set();
    let kept = set.adopt(grant(1, 1), Some(t(1000)), None, t(1030)).expect("adopted");
    assert_eq!(kept.deadline, Some(t(1100)));
    let set_back = set.adopt(grant(1, 2), Some(t(90_000)), None, t(1030)).expect("adopted");
    assert_eq!(set_back.deadline, Some(t(1130)));
    let terms = Terms { start: LeaseStart::AtBegun, ..terms() };
    let waiting = set.adopt(Grant { terms, ..grant(1, 3) }, Some(t(0)), None, t(1030)).expect("adopted");
    assert_eq!(waiting.deadline, None, "it had not begun: it lives as long as its worker");
    let running = set.adopt(Grant { terms, worker: None, ..grant(1, 4) }, Some(t(0)), Some(t(1000)), t(1030));
    assert_eq!(running.expect("adopted").deadline, Some(t(1100)));
}

// Rule L11.
#[test]
fn recording_a_task_again_is_not_counted_twice_and_removing_what_is_gone_changes_nothing() {
    let set = set();
    for _ in 0..3 {
        set.lease(grant(1, 1), t(0)).expect("recorded again");
        assert_eq!((set.counts().in_flight, set.in_flight_of(SERVICE), set.indexed()), (1, 1, (1, 0)));
    }
    assert_eq!(accepted(claim(&set, claimed(1, 1), Status::Fatal, 1)).facts.attempts, 1);
    let before = set.counts();
    assert!(!set.remove(TASK));
    assert_eq!(set.undo(claimed(1, 1), t(2)), None);
    assert!(!set.begun(claimed(1, 1), t(2)));
    assert_eq!(set.counts(), before);
}

// Rules L11, C7.
#[test]
fn ids_below_one_are_never_tracked() {
    let set = set();
    for id in [0, -1, i64::MIN] {
        let task = TaskId(id);
        assert_eq!(set.lease_fresh(task, &worker("a"), terms(), t(0)), Err(LeaseRefusal::Untracked(task)));
        let lease = LeaseId { task, run: Run(1), epoch: Epoch(1) };
        assert_eq!(set.lease(Grant::new(lease, worker("a"), terms()), t(0)), Err(LeaseRefusal::Untracked(task)));
        assert!(matches!(claim(&set, lease, Status::NoProblem, 1), Claim::Unknown));
        assert!(set.receipt(lease).is_none());
    }
    assert_eq!(set.counts().in_flight, 0);
}

// Rule L12.
#[test]
fn a_retry_that_the_set_has_forgotten_is_leased_after_a_look() {
    let forgotten = |look| {
        let set = set();
        let mut queue = Requeues::new(10);
        fresh(&set, "a", 0);
        queue.push(run_out(&set, 101).retry, t(101));
        assert_eq!(set.sweep(t(101 + WINDOW), 10).forgotten.len(), 1);
        let mut looks = 0;
        let leased = queue.lease_next(&set, SERVICE, &worker("b"), t(2000), |_| {
            looks += 1;
            look
        });
        assert_eq!((looks, queue.is_empty()), (1, true));
        leased.map(|leased| (leased.lease.run, leased.attempts, leased.retries))
    };
    assert_eq!(forgotten(Look::Open), Some((Run(1), 2, 1)));
    assert_eq!(forgotten(Look::Over), None);
}

// Rule L12.
#[test]
fn a_retry_takes_over_its_own_runs_lease() {
    let set = set();
    let first = set.lease(grant(1, 1), t(0)).expect("leased");
    let second = set.lease(Grant { retries: 1, ..grant(1, 2) }, t(10)).expect("takes over");
    assert_eq!((set.counts().in_flight, second.attempts), (1, 2));
    let late = accepted(claim(&set, first.lease, Status::NoProblem, 11));
    assert_eq!(late.facts.lease, first.lease);
}

// Rule L12.
#[test]
fn a_retry_refused_for_good_leaves_queue_and_set_and_the_next_entry_is_tried() {
    let set = set();
    let mut queue = Requeues::new(10);
    for task in [7, 8] {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased");
    }
    let retries = set.sweep(t(101), 10).requeued;
    let refused = retries[0].retry.clone();
    for taken in retries {
        queue.push(taken.retry, t(101));
    }
    // The service finds that the input of the first one is gone.
    queue.cancel(refused.task);
    assert!(set.abandon(&refused));
    assert_eq!(set.waiting().iter().map(|retry| retry.task).collect::<Vec<_>>(), [TaskId(8)]);
    let next = queue.lease_next(&set, SERVICE, &worker("b"), t(102), |_| Look::Open).expect("the next entry");
    assert_eq!((next.lease.task, queue.len()), (TaskId(8), 0));
}

// Rule L13.
#[test]
fn each_lease_starts_unanswered_and_without_receipts_whatever_it_replaces() {
    let set = set();
    let first = fresh(&set, "a", 0).lease;
    let old = set.receipt(first).expect("in flight");
    set.answered(first, NoResult::Unusable(said("empty")), t(1));
    assert_eq!(set.counts().answered, 1);
    let rerun = fresh(&set, "b", 2).lease;
    assert_eq!((set.counts().in_flight, set.counts().answered), (1, 0));
    assert_eq!(run_out(&set, 103).lease, rerun, "the receipt of the old lease holds nothing off");
    drop(old);
    assert_eq!(set.counts().receipts, 0);
}

// Rules L13, C11.
#[test]
fn each_lease_names_its_worker_as_the_newest_attempt() {
    let set = set();
    let (_, second) = second_attempt(&set, legacy(), 200);
    let taken = run_out(&set, 1000);
    assert_eq!((taken.lease, taken.worker), (second, Some(worker("b"))));
}

// Rule S3. Case F10.
#[test]
fn a_restarted_leasing_part_queues_what_neither_a_lease_nor_a_late_result_has_taken() {
    let set = set();
    for task in 1..=4 {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased");
    }
    let taken = set.sweep(t(101), 10).requeued;
    set.lease_retry(&taken[0].retry, &worker("b"), t(102)).expect("taken by a lease");
    accepted(claim(&set, taken[1].lease, Status::Warning, 103));
    let before = set.counts();

    let mut queue = Requeues::new(10);
    for retry in set.waiting() {
        queue.push(retry, t(104));
    }
    assert_eq!(set.counts(), before, "nothing in flight or held is reset");
    let mut again = Vec::new();
    while let Some(leased) = queue.lease_next(&set, SERVICE, &worker("c"), t(104), |_| Look::Open) {
        again.push((leased.lease.task, leased.retries));
    }
    assert_eq!(again, [(TaskId(3), 1), (TaskId(4), 1)]);
}

// Rule X2.
#[test]
fn a_queue_serves_the_front_then_what_is_due_in_order_and_says_when_it_is_full() {
    let set = set();
    let mut queue = Requeues::new(3);
    for task in 1..=3 {
        set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased");
    }
    let mut retries = set.sweep(t(101), 10).requeued.into_iter().map(|taken| taken.retry);
    let (first, second, third) = (retries.next().expect("1"), retries.next().expect("2"), retries.next().expect("3"));
    queue.push(first, t(500));
    queue.push(second.clone(), t(110));
    queue.push(second, t(110));
    assert_eq!((queue.len(), queue.is_full()), (2, false), "a task has one entry");
    queue.push_front(third);
    assert!(queue.is_full());
    let mut next = |now| {
        let leased = queue.lease_next(&set, SERVICE, &worker("b"), t(now), |_| Look::Open);
        leased.map(|leased| leased.lease.task.0)
    };
    assert_eq!([next(120), next(120), next(499), next(500)], [Some(3), Some(2), None, Some(1)]);
}
