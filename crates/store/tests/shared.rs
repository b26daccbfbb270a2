//! One file, opened more than once: by two processes that do not know of each other, or as by two.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]
#![expect(clippy::print_stdout, reason = "a process that plays a part says so")]
#![expect(unreachable_pub, reason = "a test has no callers; `pub` says what its other modules use")]

mod processes;

use dispatcher_core::id::{EntryName, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Answer, Claim, Command, CommandOutcome, DispatcherId, DispatcherInfo, Durability, Entry, Record, ServiceSettings,
    SqliteOptions, SqliteStore, Store, StoreError, TaskFilter, TaskState, limits,
};
use sqlx::{ConnectOptions, Connection};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// What a process of its own does: it opens the file, says so, and with the others begins to claim and finish with four
/// callers at once; it says what they had.
fn claim_and_finish_as_a_process(path: &Path) {
    let store = open(path);
    let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let by = block_on(store.register(&info, NOW)).expect("registers");
    let service = block_on(store.services()).expect("lists")[0].id;
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).expect("a word to begin");
    let had: Vec<TaskId> = std::thread::scope(|scope| {
        let claim = || block_on(claim_and_finish(&store, by, service)).expect("no error reaches a caller");
        let claimers: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
        claimers.into_iter().flat_map(|claimer| claimer.join().expect("joins")).collect()
    });
    println!("\nhad {}", had.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
}

/// Puts a file that nobody has open into a journal mode, as a copy that was restored may have it. A store that was dropped
/// closes it a moment later: until then it is locked.
fn journal_mode(path: &Path, mode: &str) -> String {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
    let began = Instant::now();
    block_on(async {
        let mut connection = options.connect().await.expect("connects");
        loop {
            let asked = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("PRAGMA journal_mode = {mode}")));
            match asked.fetch_one(&mut connection).await {
                Err(_) if began.elapsed() < Duration::from_secs(60) => std::thread::yield_now(),
                told => {
                    connection.close().await.expect("closes");
                    return told.expect("changes its mode");
                }
            }
        }
    })
}

/// A process that works when it is told to.
struct Ready {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Ready {
    fn start(test: &str, path: &Path) -> Self {
        let mut child = processes::start(test, path);
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, said }
    }

    fn until_it_has_opened(mut self) -> Self {
        let mut line = String::new();
        while line.trim_end() != "ready" {
            line.clear();
            assert!(self.said.read_line(&mut line).expect("reads") > 0, "it ended before it was ready");
        }
        self
    }

    fn begin(&mut self) {
        self.child.stdin.take().expect("piped").write_all(b"go\n").expect("it listens");
    }

    /// What it said, at its end.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("reads");
        self.child.wait().expect("its end");
        rest
    }
}

/// What a process had, which says so where nothing went wrong.
fn had(said: &str) -> Vec<TaskId> {
    let had = processes::said(said, "had ").expect("it came to its end");
    had.split_whitespace().map(|id| TaskId(id.parse().expect("an id"))).collect()
}

/// Two processes with four callers each, and a reader, on one file in this journal mode.
fn two_processes_share_a_file_in(mode: &str, test: &str) {
    if let Some(path) = processes::part() {
        return claim_and_finish_as_a_process(&path);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    import(&open(&path), tasks());
    assert_eq!(journal_mode(&path, mode), mode);
    // Both open it at once, and change its mode where they have to.
    let mut both = [Ready::start(test, &path), Ready::start(test, &path)].map(Ready::until_it_has_opened);
    let store = open(&path);
    both.iter_mut().for_each(Ready::begin);
    let over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let status = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let summary = block_on(store.summary(&TaskFilter::default())).expect("reads");
                assert_eq!(summary.total, tasks() as u64);
            }
        });
        let said = both.map(Ready::end);
        over.store(true, Ordering::SeqCst);
        status.join().expect("joins");
        said
    });
    let had = said.map(|said| had(&said));
    assert!(had.iter().all(|had| !had.is_empty()), "one of them had nothing: they did not work at once");
    let all = had.concat();
    assert_eq!(all.len(), tasks());
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), tasks(), "no task went to two");
    let audit = block_on(store.audit()).expect("audits");
    assert_eq!((audit.differences, audit.dispatched), (vec![], tasks() as u64));
}

// Cases F11, F37, F38.
#[test]
fn two_processes_claim_and_finish_without_overlap_and_without_a_locked_error() {
    let test = "two_processes_claim_and_finish_without_overlap_and_without_a_locked_error";
    two_processes_share_a_file_in("wal", test);
}

// Case F37.
#[test]
fn two_processes_that_find_a_file_in_rollback_journal_mode_work_on_it_without_a_locked_error() {
    let test = "two_processes_that_find_a_file_in_rollback_journal_mode_work_on_it_without_a_locked_error";
    two_processes_share_a_file_in("delete", test);
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
