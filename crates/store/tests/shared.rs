//! One file, opened more than once: as by two processes that do not know of each other.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{EntryName, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Answer, Claim, Command, CommandOutcome, DispatcherId, DispatcherInfo, Durability, Entry, Record, ServiceSettings,
    SqliteOptions, SqliteStore, Store, StoreError, TaskFilter, TaskState, limits,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const NOW: TimeMs = TimeMs(1);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
    block_on(SqliteStore::open(path, options)).expect("opens")
}

fn import(store: &SqliteStore, count: usize) -> ServiceId {
    block_on(async {
        let service = store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
        let corpus = store.put_corpus("c", b"/c").await.expect("makes").id;
        let name = |n: usize| EntryName(n.to_string().into_bytes());
        let entries: Vec<_> = (0..count).map(|n| Entry { name: name(n), size: 1, mtime_ns: 1, priority: 0 }).collect();
        store.import(service, corpus, &entries).await.expect("imports");
        service
    })
}

/// Claims and finishes until nothing is left; what it had.
async fn claim_and_finish(
    store: &SqliteStore,
    by: DispatcherId,
    service: ServiceId,
) -> Result<Vec<TaskId>, StoreError> {
    let mut mine = Vec::new();
    loop {
        let claimed = store.claim(&Claim { dispatcher: by, service, max: 2 }, NOW).await?;
        if claimed.is_empty() {
            return Ok(mine);
        }
        mine.extend(claimed.iter().map(|task| task.lease.task));
        let worker = || WorkerKey { name: format!("of {}", by.0), incarnation: "1".into() };
        let done = |lease| Record::Result {
            lease,
            worker: worker(),
            status: Status::NoProblem,
            messages: vec![],
            parts: vec![],
            at: NOW,
        };
        let batch: Vec<_> = claimed.iter().map(|task| done(task.lease)).collect();
        let answers = store.mark_done(&batch, NOW).await?;
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Stored { .. })), "{answers:?}");
    }
}

/// About 5,000 operations in the whole test, a fifth of them in the short one.
fn tasks() -> usize {
    if std::env::var_os("DISPATCHER_FULL").is_some() { 5_000 } else { 1_000 }
}

// Cases F11, F37, F38.
#[test]
fn two_that_share_a_file_claim_and_finish_without_overlap_and_without_a_locked_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let stores = [open(&path), open(&path)];
    let service = import(&stores[0], tasks());
    let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let by = stores.each_ref().map(|store| block_on(store.register(&info, NOW)).expect("registers"));
    let over = AtomicBool::new(false);
    let all: Vec<TaskId> = std::thread::scope(|scope| {
        let status = scope.spawn(|| {
            let store = open(&path);
            while !over.load(Ordering::SeqCst) {
                let summary = block_on(store.summary(&TaskFilter::default())).expect("reads");
                assert_eq!(summary.total, tasks() as u64);
            }
        });
        let claimers: Vec<_> = (0..8)
            .map(|n| {
                let (store, by) = (&stores[n % 2], by[n % 2]);
                scope.spawn(move || block_on(claim_and_finish(store, by, service)).expect("no error reaches a caller"))
            })
            .collect();
        let had = claimers.into_iter().flat_map(|claimer| claimer.join().expect("joins")).collect();
        over.store(true, Ordering::SeqCst);
        status.join().expect("joins");
        had
    });
    assert_eq!(all.len(), tasks());
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), tasks(), "no task went to two");
    let audit = block_on(stores[0].audit()).expect("audits");
    assert_eq!((audit.differences, audit.dispatched), (vec![], tasks() as u64));
}

// Cases F10, F37.
#[test]
fn a_rerun_that_two_carry_out_at_once_begins_one_new_run_of_each_task() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let stores = [open(&path), open(&path)];
    import(&stores[0], 500);
    let rerun = Command::Rerun { filter: TaskFilter::default() };
    let id = block_on(stores[0].submit(&rerun, "a", NOW)).expect("writes down");
    let outcomes: Vec<CommandOutcome> = std::thread::scope(|scope| {
        let step = |store: &SqliteStore| {
            block_on(async {
                loop {
                    if let Some(outcome) = store.step(id, 7, NOW).await.expect("steps").outcome {
                        return outcome;
                    }
                }
            })
        };
        let both: Vec<_> = stores.iter().map(|store| scope.spawn(move || step(store))).collect();
        both.into_iter().map(|one| one.join().expect("joins")).collect()
    });
    assert!(outcomes.iter().all(|outcome| *outcome == CommandOutcome { changed: 500, error: None }), "{outcomes:?}");
    let rows = block_on(stores[1].tasks(&TaskFilter::default(), TaskId(0), limits::PAGE)).expect("lists");
    assert!(rows.iter().all(|row| row.run.0 == 2 && row.state == TaskState::Ready));
}
