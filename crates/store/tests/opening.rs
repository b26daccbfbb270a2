//! Opening a database: fresh, shared, foreign, newer, damaged.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    DispatcherInfo, Durability, ErrorClass, ServiceSettings, SqliteOptions, SqliteStore, Store, StoreError,
};
use sqlx::ConnectOptions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions::default()).await
}

async fn meddle(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.expect("connects");
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("meddles");
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
    assert!(refused.why.contains("version 9") && refused.why.contains("up to 2"), "{refused}");
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
