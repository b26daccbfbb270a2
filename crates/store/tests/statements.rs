//! The number of statements does not depend on the batch (rule D2).

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{CorpusId, EntryName, ServiceId, WorkerKey};
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Claim, ClaimedTask, DispatcherId, DispatcherInfo, Durability, Entry, PartRef, Record, ServiceSettings,
    SqliteOptions, SqliteStore, Store,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::span::{Attributes, Id, Record as Fields};
use tracing::{Event, Metadata, Subscriber};

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

/// Counts the statements that sqlx logs.
struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &Event<'_>) {
        STATEMENTS.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Fields<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fixture {
    store: SqliteStore,
    service: ServiceId,
    corpus: CorpusId,
    dispatcher: DispatcherId,
    _folder: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
    let store = SqliteStore::open(&folder.path().join("tasks.db"), options).await.expect("opens");
    let service = store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
    let corpus = store.put_corpus("c", b"/c").await.expect("makes").id;
    let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let dispatcher = store.register(&info, TimeMs(0)).await.expect("registers");
    Fixture { store, service, corpus, dispatcher, _folder: folder }
}

impl Fixture {
    async fn claim(&self, max: usize) -> Vec<ClaimedTask> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max };
        self.store.claim(&ask, TimeMs(1)).await.expect("claims")
    }

    async fn import(&self, range: std::ops::Range<usize>) {
        let name = |n: usize| EntryName(format!("{n}").into_bytes());
        let entries: Vec<_> = range.map(|n| Entry { name: name(n), size: 1, mtime_ns: 1, priority: 0 }).collect();
        self.store.import(self.service, self.corpus, &entries).await.expect("imports");
    }
}

/// Hand-outs, begins, results with messages and parts, publications: everything that a batch can have.
fn everything(claimed: &[ClaimedTask]) -> Vec<Record> {
    let worker = || WorkerKey { name: "w".into(), incarnation: "1".into() };
    let said = Message { severity: Severity::Error, category: "c".into(), what: "w".into(), details: "d".into() };
    let part = |task: &ClaimedTask| PartRef {
        name: "result".into(),
        place: task.entry.clone(),
        offset: 0,
        length: 1,
        sha256: "ab".into(),
    };
    let mut batch = Vec::new();
    for task in claimed {
        let (lease, at) = (task.lease, TimeMs(2));
        batch.push(Record::HandedOut { lease, worker: worker(), at, began: false });
        batch.push(Record::Began { lease, at });
        for status in [Status::Fatal, Status::Warning] {
            let pack = EntryName(format!("packs/{}.tar", task.lease.task.0 % 7).into_bytes());
            let packed = PartRef { name: "stderr".into(), place: pack, offset: 512, ..part(task) };
            let (messages, parts) = (vec![said.clone(), said.clone()], vec![part(task), packed]);
            batch.push(Record::Result { lease, worker: worker(), status, messages, parts, at });
        }
        batch.push(Record::Published { lease });
    }
    batch
}

fn counted() -> usize {
    STATEMENTS.swap(0, Ordering::SeqCst)
}

// Rule D2.
#[tokio::test]
async fn a_batch_of_two_thousand_tasks_costs_as_many_statements_as_one_of_one() {
    tracing::subscriber::set_global_default(Counter).expect("nobody else listens");
    let fixture = fixture().await;
    fixture.import(0..3_000).await;
    let mut costs = Vec::new();
    for size in [1, 10, 2_000] {
        counted();
        let claimed = fixture.claim(size).await;
        let claim = counted();
        fixture.store.mark_done(&everything(&claimed), TimeMs(2)).await.expect("writes");
        costs.push((claimed.len(), claim, counted()));
    }
    let [(1, claim, done), ten, many] = costs[..] else { unreachable!("three batches: {costs:?}") };
    assert!(claim > 0 && done > 0, "statements are seen");
    assert_eq!([ten, many], [(10, claim, done), (2_000, claim, done)]);
}
