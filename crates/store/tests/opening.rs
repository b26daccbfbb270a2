//! Opening a database: fresh, shared, foreign, newer, damaged.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]
#![expect(unreachable_pub, reason = "a test has no callers; `pub` says what its other modules use")]

mod processes;

use dispatcher_core::id::TaskId;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{
    Command, CommandPage, DispatcherInfo, Durability, ErrorClass, ServiceSettings, SqliteOptions, SqliteStore, Store,
    StoreError,
};
use sqlx::ConnectOptions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;

async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions::default()).await
}

async fn meddle(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.expect("connects");
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("meddles");
}

/// A file as the first version of this program left it: its schema, its marks, and a row of each kind.
const FIRST_VERSION: &str = concat!(
    "PRAGMA journal_mode = wal; BEGIN;",
    include_str!("../src/sqlite/migrations/1.sql"),
    "PRAGMA application_id = 0x44697370; PRAGMA user_version = 1;
     INSERT INTO settings VALUES ('token_key', zeroblob(32));
     INSERT INTO services VALUES (3, 'old', 1000, 2, 30, 4, 1);
     INSERT INTO corpora VALUES (5, 'papers', CAST('/p' AS BLOB), 'ordinary', NULL);
     INSERT INTO dispatchers VALUES (1, 'h', 'e', NULL, 7, 'live');
     INSERT INTO workers VALUES ('w', '1', 1, 10, 20);
     INSERT INTO tasks VALUES (8, 3, 5, CAST('a' AS BLOB), 1, 2, 'done', 1, 1, 1, 0, 1000, 0, 0, NULL, NULL, 1, 'fatal',
       'worker', NULL, NULL);
     INSERT INTO tasks VALUES (9, 3, 5, CAST('b' AS BLOB), 1, 2, 'leased', 1, 1, 0, 0, 1000, 0, 0, 1, 5000, NULL, NULL,
       NULL, NULL, NULL);
     INSERT INTO attempts VALUES (8, 1, 1, 1, 'w', '1', 11, 12, 13, 'accepted', 1, NULL);
     INSERT INTO attempts VALUES (9, 1, 1, 1, 'w', '1', 14, 15, NULL, NULL, 0, NULL);
     INSERT INTO results VALUES (1, 8, 1, 1, 'fatal', 'worker', 1, 'c', 'x');
     INSERT INTO messages VALUES (8, 1, 0, 'fatal', 'c', 'x', 'd');
     INSERT INTO counters VALUES (1, 3, 5, 'w', 'dispatched', 2), (1, 3, 5, 'w', 'accepted', 1);
     INSERT INTO control (at_ms, actor, kind, args) VALUES (4, 'a', 'drain', '{\"kind\":\"drain\",\"wait\":true}');
     COMMIT"
);

// Case F76.
#[test]
fn a_database_of_the_first_version_is_brought_up_to_date_once_by_many_at_a_time_and_keeps_its_rows() {
    for round in 0..10 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.db");
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runs");
        runtime().block_on(meddle(&path, FIRST_VERSION));
        std::thread::scope(|scope| {
            let openers: Vec<_> = (0..8)
                .map(|n: i32| {
                    let (path, runtime) = (&path, runtime());
                    scope.spawn(move || {
                        runtime.block_on(async {
                            let store = open(path).await.expect("opens");
                            assert_eq!(store.token_key().await.expect("a key"), [0; 32], "round {round}: the same key");
                            store.put_service(&n.to_string(), &ServiceSettings::default()).await.expect("writes");
                        });
                    })
                })
                .collect();
            openers.into_iter().for_each(|o| o.join().expect("joins"));
        });
        runtime().block_on(assert_first_version_kept(&path));
    }
}

async fn assert_first_version_kept(path: &Path) {
    let store = open(path).await.expect("opens");
    let services = store.services().await.expect("lists");
    assert_eq!(services.len(), 9);
    let old = ServiceSettings {
        timeout_ms: SpanMs(1_000),
        budget: 2,
        result_cap: 30,
        retry_delay_ms: SpanMs(4),
        paused: true,
        ..Default::default()
    };
    assert_eq!((services[0].id.0, services[0].name.as_str(), &services[0].settings), (3, "old", &old));
    assert_eq!(store.put_corpus("papers", b"/p").await.expect("finds").id.0, 5);
    assert_eq!(store.put_corpus("next", b"/n").await.expect("makes").id.0, 6);
    let tasks = store.tasks(&Default::default(), TaskId(0), 9).await.expect("lists");
    assert_eq!(tasks.iter().map(|t| (t.id.0, t.worst.is_some())).collect::<Vec<_>>(), [(8, true), (9, false)]);
    let workers = store.workers(9).await.expect("lists");
    let [worker] = workers.as_slice() else { unreachable!("one worker: {workers:?}") };
    assert_eq!((worker.first_at, worker.heard_at, worker.connected), (TimeMs(10), TimeMs(20), false));
    assert_eq!(worker.current, [(TaskId(9), Some(TimeMs(15)))]);
    let open_ones = CommandPage { open: true, max: 9, ..Default::default() };
    let commands = store.commands(&open_ones).await.expect("lists");
    assert_eq!(commands.into_iter().filter_map(|c| c.command).collect::<Vec<_>>(), [Command::Drain { wait: true }]);
    assert_eq!(store.audit().await.expect("audits").differences, []);
}

/// More rows for what a later version makes anew, so that it takes a while.
const MANY_SERVICES: &str = "
    WITH RECURSIVE n(n) AS (VALUES (100) UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
    INSERT INTO services SELECT n, 'service ' || n, 1000, 2, 30, 4, 1 FROM n";

/// Kills a process once the write-ahead log of `path` is so long, if it has not ended before.
fn kill_at(child: &mut Child, path: &Path, length: u64) -> bool {
    let log = path.with_extension("db-wal");
    while child.try_wait().expect("its end").is_none() {
        if std::fs::metadata(&log).is_ok_and(|meta| meta.len() >= length) {
            child.kill().expect("kills");
            return !child.wait().expect("its end").success();
        }
        std::thread::yield_now();
    }
    false
}

/// A number from 0 to `most`, from a seed.
fn dice(seed: &mut u64, most: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % (most + 1)
}

// Case F76.
#[test]
fn processes_killed_while_they_bring_a_database_up_to_date_leave_one_that_all_others_open() {
    const TEST: &str = "processes_killed_while_they_bring_a_database_up_to_date_leave_one_that_all_others_open";
    let block_on = |work: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runs").block_on(work);
    };
    if let Some(path) = processes::part() {
        return block_on(Box::pin(async move {
            let key = open(&path).await.expect("opens").token_key().await.expect("a key");
            println!("\nkey {key:?}");
        }));
    }
    let mut seed = std::env::var("DISPATCHER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().expect("after the epoch").subsec_nanos().into());
    println!("DISPATCHER_SEED={seed}");
    let mut killed = 0;
    for round in 0..if std::env::var_os("DISPATCHER_FULL").is_some() { 50 } else { 6 } {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.db");
        let is_fresh = round % 3 == 2;
        if !is_fresh {
            let database = path.clone();
            block_on(Box::pin(async move {
                meddle(&database, FIRST_VERSION).await;
                meddle(&database, MANY_SERVICES).await;
            }));
        }
        // Alone, and then among eight.
        let mut at = || dice(&mut seed, if is_fresh { 200_000 } else { 1_500_000 });
        killed += u32::from(kill_at(&mut processes::start(TEST, &path), &path, at()));
        let mut many: Vec<Child> = (0..8).map(|_| processes::start(TEST, &path)).collect();
        killed += u32::from(kill_at(&mut many.remove(0), &path, at()));
        let keys: Vec<String> = many.into_iter().map(|child| key_of(child, round)).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "round {round}: one key");
        block_on(Box::pin(async move {
            let store = open(&path).await.expect("opens");
            assert_eq!(store.services().await.expect("lists").len(), if is_fresh { 0 } else { 19_902 });
            assert_eq!(store.audit().await.expect("audits").differences, []);
        }));
    }
    println!("{killed} were killed before they ended");
    assert!(killed > 0, "no kill came in time");
}

/// What the process says of the database that it opened, at its end.
fn key_of(mut child: Child, round: u32) -> String {
    let mut said = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut said).expect("reads");
    assert!(child.wait().expect("its end").success(), "round {round}: {said}");
    processes::said(&said, "key ").expect("it says its key").to_owned()
}

// Case F76.
#[test]
fn many_that_open_one_fresh_file_at_once_all_succeed_and_share_one_key() {
    for round in 0..10 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.db");
        let opened: Vec<_> = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runs");
                        runtime.block_on(async {
                            let store = open(&path).await.expect("opens");
                            store.put_service("s", &ServiceSettings::default()).await.expect("writes");
                            store.token_key().await.expect("a key")
                        })
                    })
                })
                .collect();
            openers.into_iter().map(|o| o.join().expect("joins")).collect()
        });
        assert!(opened.iter().all(|key| *key == opened[0]), "round {round}: one key");
    }
}

// Case F76.
#[tokio::test]
async fn a_schema_newer_than_the_program_is_refused_naming_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    drop(open(&path).await.expect("opens"));
    meddle(&path, "PRAGMA user_version = 9").await;
    let refused = open(&path).await.expect_err("refuses");
    assert_eq!(refused.class, ErrorClass::Misconfigured);
    assert!(refused.why.contains("version 9") && refused.why.contains("up to 3"), "{refused}");
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("other.db");
    meddle(&path, "CREATE TABLE precious (x); INSERT INTO precious VALUES (1)").await;
    let before = std::fs::read(&path).expect("reads");
    let refused = open(&path).await.expect_err("refuses");
    assert_eq!(refused.class, ErrorClass::Misconfigured);
    assert!(refused.why.contains("another program"), "{refused}");
    assert_eq!(std::fs::read(&path).expect("reads"), before);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "dear diary, ".repeat(1_000)).expect("writes");
    let refused = open(&path).await.expect_err("refuses");
    assert_eq!(refused.class, ErrorClass::Corrupt, "{refused}");
    assert!(std::fs::read_to_string(&path).expect("reads").starts_with("dear diary"));
    let nowhere = open(&folder.path().join("no/such/folder/tasks.db")).await.expect_err("refuses");
    assert_eq!(nowhere.class, ErrorClass::Misconfigured);
    assert!(nowhere.why.contains("no/such/folder"), "{nowhere}");
}

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let store = open(&path).await.expect("opens");
    store.put_service("s", &ServiceSettings::default()).await.expect("writes");
    for name in ["tasks.db", "tasks.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} holds the token key");
    }
}

// Rule D7.
#[tokio::test]
async fn what_was_written_is_found_by_the_next_process_with_either_durability() {
    for durability in [Durability::Full, Durability::Normal] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks.db");
        let options = SqliteOptions { durability, readers: 3 };
        let store = SqliteStore::open(&path, options).await.expect("opens");
        let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
        let id = store.register(&info, TimeMs(0)).await.expect("registers");
        // The first one is still open: as with a kill, nothing was closed.
        let again = SqliteStore::open(&path, options).await.expect("opens");
        assert_ne!(again.register(&info, TimeMs(0)).await.expect("registers"), id);
    }
}
