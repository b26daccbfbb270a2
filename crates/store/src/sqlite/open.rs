//! Opening the file: permissions, pragmas, schema, token key.
//!
//! Owns the rule that a lost database is an error: one made by another program, one with a newer schema, and one that is
//! taken away under a running process are all told apart from an empty one.

use super::error::fault;
use super::lane::Lane;
use super::{Durability, SCHEMA, SqliteOptions};
use crate::model::{ErrorClass, StoreError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DOING: &str = "opening the database";

/// Marks the file as ours (PRAGMA application_id).
const APPLICATION: i64 = 0x4469_7370;

/// How long a statement waits for another process's write.
const BUSY: Duration = Duration::from_secs(10);

/// How long opening waits for other processes that open the same fresh file.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);

/// The most rows that wait between SQLite's thread and ours.
const ROWS_BUFFERED: usize = 2048;

const MIGRATIONS: [&str; 3] =
    [include_str!("migrations/1.sql"), include_str!("migrations/2.sql"), include_str!("migrations/3.sql")];

/// Which file was opened: tells when it is taken away.
#[derive(Debug)]
pub(super) struct FileMark {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileMark {
    fn new(path: &Path) -> Result<Self, StoreError> {
        let seen = std::fs::metadata(path).map_err(|e| unusable(path, &e))?;
        Ok(Self { path: path.to_owned(), device: seen.dev(), inode: seen.ino() })
    }

    /// Fails where the file was removed or replaced since it was opened: what is written into it would be lost.
    pub(super) fn check(&self, doing: &'static str) -> Result<(), StoreError> {
        let same = std::fs::metadata(&self.path).is_ok_and(|m| m.dev() == self.device && m.ino() == self.inode);
        if same {
            return Ok(());
        }
        let why = format!("the database {} was removed or replaced while it was in use", self.path.display());
        Err(StoreError { class: ErrorClass::Misconfigured, doing, why })
    }
}

pub(super) async fn open(path: &Path, options: SqliteOptions) -> Result<(Lane, Lane, FileMark), StoreError> {
    make_private(path)?;
    let base = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(BUSY)
        .statement_cache_capacity(128)
        .command_buffer_size(64)
        .row_buffer_size(ROWS_BUFFERED);
    let writer = base
        .clone()
        .pragma("temp_store", "memory")
        .pragma("cache_size", "-16384")
        .pragma("journal_size_limit", "67108864");
    let writer = Lane::start("store-writer", 1, writer, move |c| Box::pin(prepare_writer(c, options.durability)))
        .await
        .map_err(|e| name_path(path, e))?;
    let reader = base.read_only(true).pragma("cache_size", "-4096");
    let reader = Lane::start("store-reader", options.readers, reader, |_| Box::pin(async { Ok(()) })).await?;
    Ok((writer, reader, FileMark::new(path)?))
}

/// Makes the file where there is none. Its owner alone may read it: it will hold the token key.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let made = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|e| unusable(path, &e))
}

fn unusable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError { class: ErrorClass::Misconfigured, doing: DOING, why: format!("{}: {error}", path.display()) }
}

fn name_path(path: &Path, error: StoreError) -> StoreError {
    StoreError { why: format!("{}: {}", path.display(), error.why), ..error }
}

/// Brings a connection to where it can write. Several processes may be here at once with one fresh file: SQLite does not
/// always wait for a lock while the journal's mode changes, so what is busy is tried again.
async fn prepare_writer(connection: &mut SqliteConnection, durability: Durability) -> Result<(), StoreError> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match set_up(connection, durability).await {
            Err(e) if e.class == ErrorClass::Transient && begun.elapsed() < OPEN_PATIENCE => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            done => return done,
        }
    }
}

async fn set_up(connection: &mut SqliteConnection, durability: Durability) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| fault(DOING, &e);
    check_owner(connection).await?;
    let pragmas = match durability {
        Durability::Full => "PRAGMA journal_mode = wal; PRAGMA synchronous = full",
        Durability::Normal => "PRAGMA journal_mode = wal; PRAGMA synchronous = normal",
    };
    sqlx::raw_sql(pragmas).execute(&mut *connection).await.map_err(failed)?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    migrate(&mut transaction).await?;
    transaction.commit().await.map_err(failed)
}

/// Refuses a database of another program, and one with a schema that this program does not know. One statement: another
/// process may be making the schema.
async fn check_owner(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM sqlite_schema), (SELECT application_id FROM pragma_application_id),
           (SELECT user_version FROM pragma_user_version)",
    )
    .fetch_one(connection)
    .await
    .map_err(|e| fault(DOING, &e))?;
    let column = |at: usize| row.try_get::<i64, _>(at).map_err(|e| fault(DOING, &e));
    let (tables, application, version) = (column(0)?, column(1)?, column(2)?);
    let refused = |why: String| Err(StoreError { class: ErrorClass::Misconfigured, doing: DOING, why });
    if application != APPLICATION && (application != 0 || version != 0 || tables != 0) {
        return refused("this is another program's database".to_owned());
    }
    if version > SCHEMA {
        return refused(format!(
            "its schema is version {version}, and this program knows versions up to {SCHEMA}; use a newer program"
        ));
    }
    Ok(version)
}

/// Applies what is missing, in the transaction that the caller holds: so it is applied once, and wholly or not at all.
async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| fault("bringing the schema up to date", &e);
    let version = check_owner(connection).await?;
    let known = usize::try_from(version).unwrap_or(0);
    for sql in MIGRATIONS.iter().skip(known) {
        sqlx::raw_sql(*sql).execute(&mut *connection).await.map_err(failed)?;
    }
    if version < SCHEMA {
        let marks = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}");
        sqlx::raw_sql(AssertSqlSafe(marks)).execute(&mut *connection).await.map_err(failed)?;
        put_token_key(connection).await?;
    }
    Ok(())
}

async fn put_token_key(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key).map_err(|e| StoreError {
        class: ErrorClass::Misconfigured,
        doing: "making the token key",
        why: e.to_string(),
    })?;
    sqlx::query("INSERT INTO settings (name, value) VALUES ('token_key', ?1) ON CONFLICT (name) DO NOTHING")
        .bind(key.as_slice())
        .execute(connection)
        .await
        .map(drop)
        .map_err(|e| fault("making the token key", &e))
}

pub(super) async fn token_key(connection: &mut SqliteConnection) -> Result<[u8; 32], StoreError> {
    const READING: &str = "reading the token key";
    let corrupt = |why: &str| StoreError { class: ErrorClass::Corrupt, doing: READING, why: why.to_owned() };
    let row = sqlx::query("SELECT value FROM settings WHERE name = 'token_key'")
        .fetch_optional(connection)
        .await
        .map_err(|e| fault(READING, &e))?;
    let row = row.ok_or_else(|| corrupt("the database has no token key"))?;
    let value: Vec<u8> = row.try_get(0).map_err(|e| fault(READING, &e))?;
    value.try_into().map_err(|_| corrupt("the token key is not 32 bytes long"))
}
