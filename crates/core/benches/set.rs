//! How fast the set leases and claims, and what a sweep costs beside the number of tasks in flight.

#![expect(clippy::expect_used, reason = "a bench that cannot run ends")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::in_flight::{InFlightSet, Limits};
use dispatcher_core::lease::{Grant, Terms};
use dispatcher_core::report::Status;
use dispatcher_core::time::{SpanMs, TimeMs};
use std::hint::black_box;

fn set(max_in_flight: usize) -> InFlightSet {
    let limits = Limits { max_in_flight, hard_limit: max_in_flight + 1, ..Limits::default() };
    InFlightSet::new(limits).expect("limits that agree")
}

fn grant(task: i64, epoch: u64, timeout: SpanMs) -> Grant {
    let worker = WorkerKey { name: "host/1".into(), incarnation: "0123456789abcdef".into() };
    let lease = LeaseId { task: TaskId(task), run: Run::FIRST, epoch: Epoch(epoch) };
    Grant::new(lease, worker, Terms::new(ServiceId(1), timeout))
}

/// `count` tasks in flight that do not fall due.
fn filled(count: i64) -> InFlightSet {
    let set = set(usize::try_from(count).expect("a count") + 10);
    for task in 1..=count {
        set.lease(grant(task, 1, SpanMs::seconds(3600)), TimeMs(task)).expect("room");
    }
    set
}

fn lease_and_claim(c: &mut Criterion) {
    let mut group = c.benchmark_group("lease_claim");
    group.throughput(Throughput::Elements(1));
    for in_flight in [0, 8000] {
        let set = filled(in_flight);
        let mut epoch = 1;
        group.bench_function(BenchmarkId::from_parameter(in_flight), |b| {
            b.iter(|| {
                epoch += 1;
                let leased = set.lease(grant(1_000_000, epoch, SpanMs::seconds(3600)), TimeMs(0)).expect("room");
                let receipt = set.receipt(leased.lease);
                let _ = black_box(set.claim(leased.lease, Status::NoProblem, TimeMs(1)));
                drop(receipt);
            });
        });
    }
    group.finish();
}

fn sweep(c: &mut Criterion) {
    let mut group = c.benchmark_group("sweep_one_due");
    group.sample_size(20);
    for in_flight in [1_000, 100_000, 1_000_000] {
        let set = filled(in_flight);
        let mut epoch = 1;
        group.bench_function(BenchmarkId::from_parameter(in_flight), |b| {
            b.iter_batched(
                || {
                    epoch += 1;
                    set.lease(grant(2_000_000, epoch, SpanMs(10)), TimeMs(0)).expect("room");
                },
                |()| assert_eq!(set.sweep(TimeMs(11), 100).requeued.len(), 1),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, lease_and_claim, sweep);
criterion_main!(benches);
