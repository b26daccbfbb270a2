//! Rules G5 and G6, and L10 under contention.

use super::*;
use dispatcher_core::in_flight::Counts;
use dispatcher_core::slot::NoResult;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

fn at_rest(set: &InFlightSet) {
    let Counts { in_flight, answered, held, receipts, .. } = set.counts();
    assert_eq!((in_flight, answered, held, receipts), (0, 0, 0, 0));
    assert_eq!((set.indexed(), set.in_flight_of(SERVICE)), ((0, 0), 0));
}

// Rule G5.
#[test]
fn two_hundred_threads_that_lease_and_drain_at_once_end_at_exactly_zero() {
    let set = set_of(Limits { max_in_flight: 500, hard_limit: 600, window_ms: 1000, max_held: 500, shards: 8 });
    let barrier = Barrier::new(200);
    std::thread::scope(|scope| {
        for thread in 0..200_i64 {
            let (set, barrier) = (&set, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..20 {
                    // Neighbours share tasks, so that they take over from each other.
                    let task = TaskId(1 + (thread * 7 + round) % 300);
                    let Ok(leased) = set.lease_fresh(task, &worker("w"), terms(), t(round)) else { continue };
                    match (thread + round) % 4 {
                        0 => drop(set.claim(leased.lease, Status::NoProblem, t(round))),
                        1 => {
                            let _receipt = set.receipt(leased.lease);
                            set.answered(leased.lease, NoResult::Unusable(said("empty")), t(round));
                        }
                        2 => drop(set.sweep(t(1_000_000), 5)),
                        _ => drop(set.undo(leased.lease, t(round))),
                    }
                }
            });
        }
    });
    while !set.sweep(t(2_000_000), 100).requeued.is_empty() {}
    let _ = set.sweep(t(3_000_000), 100);
    let _ = set.sweep(t(3_000_000 + 1001), 100);
    at_rest(&set);
}

// Rules L10, G5.
#[test]
fn the_limit_is_never_exceeded_however_many_ask_at_once() {
    let set = set_of(Limits { max_in_flight: 50, hard_limit: 51, ..limits() });
    let (kept, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8_i64 {
            let (set, barrier, kept, highest) = (&set, &barrier, &kept, &highest);
            scope.spawn(move || {
                barrier.wait();
                for n in 0..500 {
                    let task = TaskId(1 + thread * 1000 + n);
                    let Ok(leased) = set.lease_fresh(task, &worker("w"), terms(), t(0)) else { continue };
                    highest.fetch_max(set.counts().in_flight, Ordering::SeqCst);
                    if n % 3 == 0 {
                        accepted(claim(set, leased.lease, Status::NoProblem, 1));
                    } else {
                        kept.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(highest.load(Ordering::SeqCst) <= 50);
    assert_eq!((set.counts().in_flight, kept.load(Ordering::SeqCst)), (50, 50));
}

// Rules G6, C1.
#[test]
fn of_many_equal_results_of_one_attempt_exactly_one_is_accepted() {
    let set = set();
    for round in 0..50 {
        let lease = fresh(&set, "a", round).lease;
        let barrier = Barrier::new(8);
        let accepted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    if matches!(claim(&set, lease, Status::NoProblem, round), Claim::Accepted(_)) {
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(accepted.load(Ordering::SeqCst), 1);
    }
    at_rest(&set);
}

// Rules G6, X1, R3.
#[test]
fn each_due_lease_is_taken_once_though_many_sweep_and_results_come() {
    let set = set_of(Limits { max_in_flight: 1000, hard_limit: 1001, max_held: 1000, ..limits() });
    let leases: Vec<_> = (1..=1000)
        .map(|task| set.lease_fresh(TaskId(task), &worker("a"), terms(), t(0)).expect("leased").lease)
        .collect();
    let (taken, landed) = std::thread::scope(|scope| {
        let sweeps: Vec<_> = (0..4).map(|_| scope.spawn(|| set.sweep(t(101), 1000).requeued)).collect();
        let claims = scope.spawn(|| {
            let on_time = |lease: &&LeaseId| {
                let claim = claim(&set, **lease, Status::NoProblem, 101);
                let late = accepted(claim).facts.late;
                !matches!(late, dispatcher_core::slot::Lateness::AfterRequeue)
            };
            leases.iter().rev().filter(on_time).count()
        });
        let taken: Vec<_> = sweeps.into_iter().flat_map(|sweep| sweep.join().expect("swept")).collect();
        (taken, claims.join().expect("claimed"))
    });
    let tasks: BTreeSet<_> = taken.iter().map(|taken| taken.lease.task).collect();
    assert_eq!(tasks.len(), taken.len(), "no lease is taken twice");
    assert_eq!(taken.len() + landed, 1000, "a task is requeued or finished on time");
    assert_eq!(set.counts().held, taken.len());
}

// Rule G6. Case F67.
#[test]
fn two_shards_and_eight_threads_of_every_kind_of_call_never_lock_each_other_out() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let set = set_of(Limits { max_in_flight: 40, hard_limit: 60, window_ms: 3, max_held: 20, shards: 2 });
        std::thread::scope(|scope| {
            for thread in 0..8_i64 {
                let set = &set;
                scope.spawn(move || {
                    for n in 0..4000_i64 {
                        let (task, now) = (TaskId(1 + (n * 13 + thread * 5) % 50), t(n / 8));
                        let lease = LeaseId { task, run: Run(1), epoch: Epoch(n.unsigned_abs() + 1) };
                        match (n + thread) % 8 {
                            0 | 1 => drop(set.lease(Grant::new(lease, worker("w"), terms()), now)),
                            2 => drop(set.claim(lease, Status::Fatal, now)),
                            3 => drop(set.sweep(t(n), 10)),
                            4 => drop((set.waiting(), set.counts(), set.indexed())),
                            5 => drop(set.receipt(lease)),
                            6 => drop(set.remove(task)),
                            _ => drop((set.lease_state(lease), set.state_of(task), set.undo(lease, now))),
                        }
                    }
                });
            }
        });
        while !set.sweep(t(1_000_000), 100).requeued.is_empty() {}
        let _ = set.sweep(t(2_000_000), 100);
        at_rest(&set);
        let _ = done.send(());
    });
    // Only a lock that is never released keeps 32,000 calls from ending within a minute.
    finished.recv_timeout(Duration::from_secs(60)).expect("every call returned and the counters are zero");
}
