//! Services, corpora and the import of entries.

use super::bulk::Bulk;
use super::commands;
use super::decode;
use super::error::fault;
use crate::limits::{self, bad_row, check_entry, check_name, check_service, check_settings};
use crate::model::{Corpus, Entry, ErrorClass, Imported, Service, ServiceSettings, StoreError};
use dispatcher_core::id::{CorpusId, EntryName, ServiceId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::time::{SpanMs, TimeMs};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) const PUT_SERVICE: &str = "storing a service";
pub(super) const SERVICES: &str = "listing services";
pub(super) const PUT_CORPUS: &str = "storing a corpus";
pub(super) const CORPORA: &str = "listing corpora";
pub(super) const IMPORT: &str = "importing entries";
pub(super) const ACCEPT: &str = "accepting changed inputs";

/// The columns that [`service`] reads, in its order.
macro_rules! service_columns {
    () => {
        "id, name, timeout_ms, budget, result_cap, retry_delay_ms, paused, max_in_flight, priority"
    };
}

/// Every corpus, with the columns that [`corpus`] reads in their order.
macro_rules! corpora_rows {
    () => {
        "SELECT c.id, c.name, c.root, c.kind, c.parent, CAST(CAST(s.value AS TEXT) AS INTEGER)
         FROM corpora c LEFT JOIN settings s ON s.name = 'sandbox.' || c.id || '.of'"
    };
}

const CHANGE_SERVICE: &str = concat!(
    "UPDATE services SET timeout_ms = ?2, budget = ?3, result_cap = ?4, retry_delay_ms = ?5, paused = ?6,
       max_in_flight = ?7, priority = ?8 WHERE name = ?1 RETURNING ",
    service_columns!()
);

const MAKE_SERVICE: &str = concat!(
    "INSERT INTO services (name, timeout_ms, budget, result_cap, retry_delay_ms, paused, max_in_flight, priority)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING ",
    service_columns!()
);

/// A service about to be stored.
#[derive(Debug)]
pub(super) struct NewService {
    name: String,
    settings: ServiceSettings,
}

impl NewService {
    pub(super) fn new(name: &str, settings: &ServiceSettings) -> Result<Self, StoreError> {
        check_service(name).map_err(|why| bad_row(PUT_SERVICE, why))?;
        check_settings(settings).map_err(|why| bad_row(PUT_SERVICE, why))?;
        Ok(Self { name: name.to_owned(), settings: settings.clone() })
    }

    pub(super) async fn put(self, connection: &mut SqliteConnection) -> Result<Service, StoreError> {
        let Self { name, settings } = self;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // Looked for first: an insert that meets its own name uses up a number.
        for sql in [CHANGE_SERVICE, MAKE_SERVICE] {
            let row = sqlx::query(sql)
                .bind(&name)
                .bind(signed(settings.timeout_ms.0))
                .bind(i64::from(settings.budget))
                .bind(signed(settings.result_cap))
                .bind(signed(settings.retry_delay_ms.0))
                .bind(settings.paused)
                .bind(settings.max_in_flight.map(i64::from))
                .bind(i64::from(settings.priority))
                .fetch_optional(&mut *connection)
                .await
                .map_err(|e| fault(PUT_SERVICE, &e))?;
            if let Some(row) = row {
                return service(&row).map_err(|why| corrupt(PUT_SERVICE, why));
            }
        }
        Err(corrupt(PUT_SERVICE, format!("the service {name:?} was neither there nor made")))
    }
}

pub(super) async fn services(connection: &mut SqliteConnection) -> Result<Vec<Service>, StoreError> {
    let rows = sqlx::query(concat!("SELECT ", service_columns!(), " FROM services ORDER BY id"))
        .fetch_all(connection)
        .await
        .map_err(|e| fault(SERVICES, &e))?;
    rows.iter().map(service).collect::<Result<_, _>>().map_err(|why| corrupt(SERVICES, why))
}

/// Whether there is a service of this number.
pub(super) async fn is_service(
    connection: &mut SqliteConnection,
    id: ServiceId,
    doing: &'static str,
) -> Result<bool, StoreError> {
    let asked = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM services WHERE id = ?1)").bind(id.0);
    asked.fetch_one(connection).await.map_err(|e| fault(doing, &e))
}

/// The service of this name, if there is one.
pub(super) async fn service_named(
    connection: &mut SqliteConnection,
    name: &str,
    doing: &'static str,
) -> Result<Option<Service>, StoreError> {
    let row = sqlx::query(concat!("SELECT ", service_columns!(), " FROM services WHERE name = ?1"))
        .bind(name)
        .fetch_optional(connection)
        .await
        .map_err(|e| fault(doing, &e))?;
    row.map(|row| service(&row).map_err(|why| corrupt(doing, why))).transpose()
}

fn service(row: &SqliteRow) -> Result<Service, decode::Flaw> {
    let cap =
        decode::maybe(row, 7)?.map(|n| u32::try_from(n).map_err(|_| format!("column 7 holds {n}"))).transpose()?;
    let priority = decode::number(row, 8)?;
    Ok(Service {
        id: ServiceId(decode::number(row, 0)?),
        name: decode::text(row, 1)?,
        settings: ServiceSettings {
            timeout_ms: SpanMs(decode::count(row, 2)?),
            budget: decode::count(row, 3)?,
            result_cap: decode::count(row, 4)?,
            retry_delay_ms: SpanMs(decode::count(row, 5)?),
            paused: decode::number(row, 6)? != 0,
            max_in_flight: cap,
            priority: i32::try_from(priority).map_err(|_| format!("column 8 holds {priority}"))?,
        },
    })
}

pub(super) async fn put_corpus(
    connection: &mut SqliteConnection,
    name: String,
    root: Vec<u8>,
) -> Result<Corpus, StoreError> {
    check_name("a corpus", &name).map_err(|why| bad_row(PUT_CORPUS, why))?;
    let failed = |e: sqlx::Error| fault(PUT_CORPUS, &e);
    // Looked for first: an insert that meets its own name uses up a number.
    sqlx::query(
        "INSERT INTO corpora (name, root, kind)
         SELECT ?1, ?2, 'ordinary' WHERE NOT EXISTS (SELECT 1 FROM corpora WHERE name = ?1)",
    )
    .bind(&name)
    .bind(&root)
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    let Some(stands) = corpus_named(connection, &name, PUT_CORPUS).await? else {
        return Err(corrupt(PUT_CORPUS, format!("the corpus {name:?} was neither there nor made")));
    };
    let conflict = |why| StoreError { class: ErrorClass::Conflict, doing: PUT_CORPUS, why };
    stands.check_import().map_err(conflict)?;
    if stands.root.0 == root {
        return Ok(stands);
    }
    let why = format!("there is a corpus {name:?} with the folder {}, not {}", stands.root, EntryName(root));
    Err(conflict(why))
}

pub(super) async fn corpora(connection: &mut SqliteConnection) -> Result<Vec<Corpus>, StoreError> {
    let rows = sqlx::query(concat!(corpora_rows!(), " ORDER BY c.id"))
        .fetch_all(connection)
        .await
        .map_err(|e| fault(CORPORA, &e))?;
    Ok(rows.iter().map(corpus).collect())
}

/// The corpus of this name, if there is one.
pub(super) async fn corpus_named(
    connection: &mut SqliteConnection,
    name: &str,
    doing: &'static str,
) -> Result<Option<Corpus>, StoreError> {
    let found = sqlx::query(concat!(corpora_rows!(), " WHERE c.name = ?1")).bind(name).fetch_optional(connection);
    Ok(found.await.map_err(|e| fault(doing, &e))?.as_ref().map(corpus))
}

/// The corpus of this number, if there is one.
pub(super) async fn corpus_of(
    connection: &mut SqliteConnection,
    id: CorpusId,
    doing: &'static str,
) -> Result<Option<Corpus>, StoreError> {
    let found = sqlx::query(concat!(corpora_rows!(), " WHERE c.id = ?1")).bind(id.0).fetch_optional(connection);
    Ok(found.await.map_err(|e| fault(doing, &e))?.as_ref().map(corpus))
}

/// What cannot be read is not known: a guess would put a sandbox's result over its parent's (rule G8).
fn corpus(row: &SqliteRow) -> Corpus {
    let id = CorpusId(decode::number(row, 0).unwrap_or(0));
    let (name, root) = (decode::text(row, 1), decode::bytes(row, 2));
    let (word, parent) = (decode::text(row, 3), decode::maybe(row, 4));
    let kind = match (word.as_deref(), &parent) {
        _ if name.is_err() || root.is_err() || id.0 < 1 => None,
        (Ok("ordinary"), Ok(None)) => Some(CorpusKind::Ordinary),
        (Ok("sandbox"), Ok(Some(parent))) if *parent != id.0 => Some(CorpusKind::Sandbox(id)),
        _ => None,
    };
    Corpus {
        id,
        name: name.unwrap_or_else(|_| format!("corpus {}", id.0)),
        root: EntryName(root.unwrap_or_default()),
        kind,
        parent: parent.unwrap_or(None).map(CorpusId),
        parent_service: decode::maybe(row, 5).unwrap_or(None).map(ServiceId),
    }
}

/// Entries about to be stored in one transaction: each name once.
#[derive(Debug)]
pub(super) struct Chunk {
    service: ServiceId,
    corpus: CorpusId,
    entries: Bulk,
}

/// An entry whose row says another size or time.
struct Differing {
    task: i64,
    name: EntryName,
    size: i64,
    mtime_ns: i64,
}

impl Chunk {
    pub(super) fn new(service: ServiceId, corpus: CorpusId, entries: &[Entry]) -> Result<Self, StoreError> {
        let mut bulk = Bulk::new();
        for entry in entries {
            check_entry(entry).map_err(|why| bad_row(IMPORT, why))?;
            let size = i64::try_from(entry.size).unwrap_or(i64::MAX);
            let row = bulk.row().bytes(&entry.name.0).int(size).int(entry.mtime_ns);
            row.int(i64::from(entry.priority)).end();
        }
        Ok(Self { service, corpus, entries: bulk })
    }

    /// Adds what is new, and compares the rest with its rows.
    pub(super) async fn import(self, connection: &mut SqliteConnection) -> Result<Imported, StoreError> {
        let given = self.entries.len() as u64;
        self.check_places(connection).await?;
        // Most chunks are all new; looking for each of their entries first would take twice as long.
        let added = match self.insert(connection, INSERT_ALL).await {
            Err(sqlx::Error::Database(e)) if e.is_unique_violation() => self.insert(connection, INSERT_NEW).await,
            done => done,
        };
        let added = added.map_err(|e| fault(IMPORT, &e))?;
        let changed = if added < given { self.differing(connection, IMPORT).await? } else { Vec::new() };
        let known = given - added - changed.len() as u64;
        Ok(Imported { added, known, changed: changed.into_iter().map(|d| d.name).collect() })
    }

    /// A service or a corpus may be deleted at any moment; no task may come to be without them.
    async fn check_places(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let service = is_service(connection, self.service, IMPORT).await?;
        let corpus = corpus_of(connection, self.corpus, IMPORT).await?;
        limits::check_places(service, corpus.as_ref(), self.service, self.corpus).map_err(|why| StoreError {
            class: ErrorClass::Conflict,
            doing: IMPORT,
            why,
        })
    }

    async fn insert(&self, connection: &mut SqliteConnection, sql: &'static str) -> Result<u64, sqlx::Error> {
        let query = self.entries.query(sql).bind(self.service.0).bind(self.corpus.0);
        query.execute(connection).await.map(|done| done.rows_affected())
    }

    /// Writes what differs from its row into it, and begins a new run of each such task.
    pub(super) async fn accept(self, connection: &mut SqliteConnection, now: TimeMs) -> Result<u64, StoreError> {
        let differing = self.differing(connection, ACCEPT).await?;
        if differing.is_empty() {
            return Ok(0);
        }
        let mut inputs = Bulk::new();
        for d in &differing {
            inputs.row().int(d.task).int(d.size).int(d.mtime_ns).end();
        }
        sqlx::query(
            "UPDATE tasks SET input_size = v.size, input_mtime_ns = v.mtime
             FROM (SELECT value ->> 0 AS id, value ->> 1 AS size, value ->> 2 AS mtime FROM jsonb_each(?1)) v
             WHERE tasks.id = v.id",
        )
        .bind(inputs.into_json())
        .execute(&mut *connection)
        .await
        .map_err(|e| fault(ACCEPT, &e))?;
        let ids: Vec<i64> = differing.iter().map(|d| d.task).collect();
        commands::begin_runs(connection, &ids, ACCEPT, now).await
    }

    async fn differing(
        &self,
        connection: &mut SqliteConnection,
        doing: &'static str,
    ) -> Result<Vec<Differing>, StoreError> {
        let rows = self
            .entries
            .query(
                "SELECT t.id, t.entry, v.size, v.mtime
                 FROM (SELECT key, substr(?2, value ->> 0, value ->> 1) AS entry, value ->> 2 AS size,
                         value ->> 3 AS mtime FROM jsonb_each(?1)) v
                 CROSS JOIN tasks t ON t.service = ?3 AND t.corpus = ?4 AND t.entry = v.entry
                 WHERE t.input_size <> v.size OR t.input_mtime_ns <> v.mtime ORDER BY v.key",
            )
            .bind(self.service.0)
            .bind(self.corpus.0)
            .fetch_all(connection)
            .await
            .map_err(|e| fault(doing, &e))?;
        let read = |row: &SqliteRow| {
            Ok(Differing {
                task: decode::number(row, 0)?,
                name: EntryName(decode::bytes(row, 1)?),
                size: decode::number(row, 2)?,
                mtime_ns: decode::number(row, 3)?,
            })
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(doing, why))
    }
}

/// A row that the schema does not allow.
pub(super) fn corrupt(doing: &'static str, why: decode::Flaw) -> StoreError {
    StoreError { class: ErrorClass::Corrupt, doing, why }
}

/// Adds entries, all of them or none.
const INSERT_ALL: &str = "
INSERT INTO tasks (service, corpus, entry, input_size, input_mtime_ns, state, run, epoch, charged, freed, priority,
  not_before_ms)
SELECT ?3, ?4, substr(?2, value ->> 0, value ->> 1), value ->> 2, value ->> 3, 'ready', 1, 0, 0, 0, value ->> 4, 0
FROM jsonb_each(?1) ORDER BY key";

/// Adds entries that are not there. The others are left out before ids are given, so that they use up none.
const INSERT_NEW: &str = "
INSERT INTO tasks (service, corpus, entry, input_size, input_mtime_ns, state, run, epoch, charged, freed, priority,
  not_before_ms)
SELECT ?3, ?4, substr(?2, value ->> 0, value ->> 1), value ->> 2, value ->> 3, 'ready', 1, 0, 0, 0, value ->> 4, 0
FROM jsonb_each(?1) WHERE NOT EXISTS (
  SELECT 1 FROM tasks t WHERE t.service = ?3 AND t.corpus = ?4 AND t.entry = substr(?2, value ->> 0, value ->> 1))
ORDER BY key";
