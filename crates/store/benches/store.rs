//! Import, claim and mark_done, in rows per second, in batches of 1,024.

#![expect(missing_docs, clippy::expect_used, reason = "a benchmark has no callers and stops where it cannot go on")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dispatcher_core::id::{CorpusId, EntryName, ServiceId, WorkerKey};
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Claim, ClaimedTask, DispatcherId, DispatcherInfo, Durability, Entry, PartRef, Record, ServiceSettings,
    SqliteOptions, SqliteStore, Store,
};
use std::cell::Cell;
use std::time::Duration;
use tokio::runtime::Runtime;

const BATCH: usize = 1_024;

/// How many rows lie in the database beside those that are measured.
const BACKGROUND: usize = 300_000;

struct Bench {
    runtime: Runtime,
    store: SqliteStore,
    service: ServiceId,
    corpus: CorpusId,
    dispatcher: DispatcherId,
    named: Cell<usize>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(durability: Durability) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let options = SqliteOptions { durability, readers: 1 };
        let (store, service, corpus, dispatcher) = runtime.block_on(async {
            let store = SqliteStore::open(&folder.path().join("tasks.db"), options).await.expect("opens");
            let service = store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
            let corpus = store.put_corpus("c", b"/c").await.expect("makes").id;
            let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
            let dispatcher = store.register(&info, TimeMs(0)).await.expect("registers");
            (store, service, corpus, dispatcher)
        });
        let bench = Self { runtime, store, service, corpus, dispatcher, named: Cell::new(0), _folder: folder };
        bench.import(&bench.entries(BACKGROUND));
        bench
    }

    fn entries(&self, count: usize) -> Vec<Entry> {
        let first = self.named.replace(self.named.get() + count);
        let name = |n: usize| EntryName(format!("2024/{:04}/paper-{n:08}.tex", n / 1_000).into_bytes());
        (first..first + count).map(|n| Entry { name: name(n), size: 8_192, mtime_ns: 1, priority: 0 }).collect()
    }

    fn import(&self, entries: &[Entry]) {
        self.runtime.block_on(self.store.import(self.service, self.corpus, entries)).expect("imports");
    }

    fn claim(&self) -> Vec<ClaimedTask> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max: BATCH };
        self.runtime.block_on(self.store.claim(&ask, TimeMs(1))).expect("claims")
    }

    fn mark_done(&self, batch: &[Record]) {
        self.runtime.block_on(self.store.mark_done(batch, TimeMs(2))).expect("writes");
    }
}

/// Each task's result with one message and one part; its attempt is written with it.
fn results(claimed: &[ClaimedTask]) -> Vec<Record> {
    let worker = WorkerKey { name: "host-1/slot".into(), incarnation: "0123456789abcdef".into() };
    let result = |task: &ClaimedTask| Record::Result {
        lease: task.lease,
        worker: worker.clone(),
        status: Status::Warning,
        messages: vec![Message {
            severity: Severity::Warning,
            category: "latex".into(),
            what: "missing_file".into(),
            details: "the file amsmath.sty was not found, its commands are undefined".into(),
        }],
        parts: vec![PartRef {
            name: "result".into(),
            place: task.entry.clone(),
            offset: 0,
            length: 8_192,
            sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
        }],
        at: TimeMs(2),
    };
    claimed.iter().map(result).collect()
}

fn store(c: &mut Criterion) {
    for (name, durability) in [("full", Durability::Full), ("normal", Durability::Normal)] {
        let bench = Bench::new(durability);
        let mut group = c.benchmark_group(format!("store/{name}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(4));
        group.bench_function("import", |b| {
            b.iter_batched(|| bench.entries(BATCH), |entries| bench.import(&entries), BatchSize::SmallInput);
        });
        group.bench_function("claim", |b| b.iter(|| bench.claim()));
        let claim = || {
            if bench.claim().is_empty() {
                bench.import(&bench.entries(BACKGROUND));
            }
            results(&bench.claim())
        };
        group.bench_function("mark_done", |b| {
            b.iter_batched(claim, |batch| bench.mark_done(&batch), BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, store);
criterion_main!(benches);
