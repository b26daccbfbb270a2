//! The rules of leasing, claiming, replies and expiry, each as an outside service sees it.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod claiming;
mod concurrency;
mod expiry;
mod leasing;
mod replies;

use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::in_flight::{Claim, InFlightSet, Limits, Reply};
use dispatcher_core::lease::{Grant, Leased, Terms, ToldApart};
use dispatcher_core::reap::Taken;
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::slot::Accepted;
use dispatcher_core::time::{SpanMs, TimeMs};

const SERVICE: ServiceId = ServiceId(1);
const TASK: TaskId = TaskId(7);
const TIMEOUT: i64 = 100;
const WINDOW: i64 = 1000;

fn t(ms: i64) -> TimeMs {
    TimeMs(ms)
}

fn limits() -> Limits {
    Limits { max_in_flight: 100, hard_limit: 110, window_ms: WINDOW, max_held: 100, shards: 4 }
}

fn set_of(limits: Limits) -> InFlightSet {
    InFlightSet::new(limits).expect("limits that agree")
}

fn set() -> InFlightSet {
    set_of(limits())
}

/// A time-out of 100 ms, three attempts, results by token.
fn terms() -> Terms {
    Terms::new(SERVICE, SpanMs(TIMEOUT.unsigned_abs()))
}

/// The same on a wire without tokens.
fn legacy() -> Terms {
    Terms { told_apart: ToldApart::ByWorker, ..terms() }
}

fn worker(name: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: String::new() }
}

fn said(what: &str) -> Message {
    Message { severity: Severity::Error, category: "test".into(), what: what.into(), details: String::new() }
}

fn by_name(name: &str) -> Reply<'_> {
    Reply::by_worker(TASK, name, SERVICE)
}

fn claimed(run: u32, epoch: u64) -> LeaseId {
    LeaseId { task: TASK, run: Run(run), epoch: Epoch(epoch) }
}

fn grant(run: u32, epoch: u64) -> Grant {
    Grant::new(claimed(run, epoch), worker("w"), terms())
}

fn fresh(set: &InFlightSet, name: &str, now: i64) -> Leased {
    set.lease_fresh(TASK, &worker(name), terms(), t(now)).expect("leased")
}

/// Lets the lease in flight run out; the one task that is taken.
fn run_out(set: &InFlightSet, now: i64) -> Taken {
    let mut sweep = set.sweep(t(now), 10);
    let taken = sweep.requeued.pop().or_else(|| sweep.dead.pop()).expect("one lease was due");
    assert!(sweep.requeued.is_empty() && sweep.dead.is_empty());
    taken
}

/// Two attempts of one run, the second in flight under worker "b" since `now`; the first ran out under "a".
fn second_attempt(set: &InFlightSet, terms: Terms, now: i64) -> (LeaseId, LeaseId) {
    let first = set.lease_fresh(TASK, &worker("a"), terms, t(now - TIMEOUT - 1)).expect("leased");
    let retry = run_out(set, now).retry;
    let second = set.lease_retry(&retry, &worker("b"), t(now)).expect("leased again");
    (first.lease, second.lease)
}

fn accepted(claim: Claim) -> Accepted {
    match claim {
        Claim::Accepted(accepted) => accepted,
        other => panic!("accepted is expected, not {other:?}"),
    }
}

fn claim<'a>(set: &InFlightSet, reply: impl Into<Reply<'a>>, status: Status, now: i64) -> Claim {
    set.claim(reply, status, t(now))
}
