//! Workers as their dispatchers see them, and the books by service.
//!
//! Owns the rows of workers: what is shown, and nothing else. No lease hangs on one, so a row that is replaced, pruned or
//! deleted takes nothing along.

use super::bulk::Bulk;
use super::decode::{self, Flaw};
use super::error::fault;
use super::setup::corrupt;
use crate::DispatcherId;
use crate::limits::{PAGE, WORKERS};
use crate::model::{BookLine, StoreError, WorkerNote, WorkerRow};
use dispatcher_core::id::{TaskId, WorkerKey};
use dispatcher_core::time::TimeMs;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use std::collections::HashMap;

pub(super) const NOTE: &str = "noting workers";
pub(super) const LIST: &str = "listing workers";
pub(super) const BOOKS: &str = "reading the books";

pub(super) async fn note(
    connection: &mut SqliteConnection,
    by: DispatcherId,
    notes: Vec<WorkerNote>,
) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| fault(NOTE, &e);
    let mut rows = Bulk::new();
    for note in &notes {
        // A list of names always has a form in JSON.
        let services = serde_json::to_string(&note.services).unwrap_or_default();
        let row = rows.row().bytes(&note.worker.name).bytes(&note.worker.incarnation).bytes(services);
        row.int(i64::from(note.slots)).int(i64::from(note.connected)).int(note.heard_at.0).end();
    }
    sqlx::query(LET_GO).bind(by.0).execute(&mut *connection).await.map_err(failed)?;
    if rows.is_empty() {
        return Ok(());
    }
    rows.query(WRITE).bind(by.0).execute(&mut *connection).await.map_err(failed)?;
    let kept = i64::try_from(WORKERS).unwrap_or(i64::MAX);
    sqlx::query(PRUNE).bind(kept).execute(connection).await.map(drop).map_err(failed)
}

pub(super) async fn list(connection: &mut SqliteConnection, max: usize) -> Result<Vec<WorkerRow>, StoreError> {
    let failed = |e: sqlx::Error| fault(LIST, &e);
    let max = i64::try_from(max.min(PAGE)).unwrap_or(0);
    let rows = sqlx::query(NEWEST).bind(max).fetch_all(&mut *connection).await.map_err(failed)?;
    let mut workers: Vec<WorkerRow> =
        rows.iter().map(worker).collect::<Result<_, _>>().map_err(|why| corrupt(LIST, why))?;
    let mut names = Bulk::new();
    for worker in &workers {
        names.row().bytes(&worker.worker.name).end();
    }
    let counts = names.query(COUNTS).fetch_all(&mut *connection).await.map_err(failed)?;
    let current = sqlx::query(CURRENT).fetch_all(connection).await.map_err(failed)?;
    complete(&mut workers, &counts, &current).map_err(|why| corrupt(LIST, why))?;
    Ok(workers)
}

fn worker(row: &SqliteRow) -> Result<WorkerRow, Flaw> {
    Ok(WorkerRow {
        worker: WorkerKey { name: decode::text(row, 0)?, incarnation: decode::text(row, 1)? },
        services: serde_json::from_str(&decode::text(row, 2)?).unwrap_or_default(),
        slots: decode::count(row, 3)?,
        connected: decode::number(row, 4)? != 0,
        first_at: TimeMs(decode::number(row, 5)?),
        heard_at: TimeMs(decode::number(row, 6)?),
        counts: Vec::new(),
        current: Vec::new(),
    })
}

/// Adds the counts of each name, and what each incarnation has now.
fn complete(workers: &mut [WorkerRow], counts: &[SqliteRow], current: &[SqliteRow]) -> Result<(), Flaw> {
    let mut counted: HashMap<String, Vec<(String, u64)>> = HashMap::new();
    for row in counts {
        counted.entry(decode::text(row, 0)?).or_default().push((decode::text(row, 1)?, decode::count(row, 2)?));
    }
    let mut working: HashMap<WorkerKey, Vec<(TaskId, Option<TimeMs>)>> = HashMap::new();
    for row in current {
        let Some(key) = decode::worker(row, 0)? else { continue };
        working.entry(key).or_default().push((decode::id(row, 2)?, decode::maybe(row, 3)?.map(TimeMs)));
    }
    for worker in workers {
        worker.counts = counted.get(&worker.worker.name).cloned().unwrap_or_default();
        worker.current = working.remove(&worker.worker).unwrap_or_default();
    }
    Ok(())
}

pub(super) async fn books(connection: &mut SqliteConnection) -> Result<Vec<BookLine>, StoreError> {
    let rows = sqlx::query(LINES).fetch_all(connection).await.map_err(|e| fault(BOOKS, &e))?;
    let read = |row: &SqliteRow| {
        Ok(BookLine { service: decode::text(row, 0)?, kind: decode::text(row, 1)?, n: decode::count(row, 2)? })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(BOOKS, why))
}

/// Nobody counts as connected but those who are noted next.
const LET_GO: &str = "UPDATE workers SET connected = 0 WHERE dispatcher = ?1 AND connected = 1";

const WRITE: &str = "
INSERT INTO workers (name, incarnation, dispatcher, services, slots, connected, first_ms, last_ms)
SELECT CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT), CAST(substr(?2, value ->> 2, value ->> 3) AS TEXT), ?3,
  CAST(substr(?2, value ->> 4, value ->> 5) AS TEXT), value ->> 6, value ->> 7, value ->> 8, value ->> 8
FROM jsonb_each(?1) WHERE true ORDER BY key
ON CONFLICT (name, incarnation) DO UPDATE SET dispatcher = excluded.dispatcher, services = excluded.services,
  slots = excluded.slots, connected = excluded.connected, last_ms = excluded.last_ms";

const PRUNE: &str = "
DELETE FROM workers WHERE (name, incarnation) IN (
  SELECT name, incarnation FROM workers INDEXED BY workers_heard ORDER BY last_ms DESC, name, incarnation
  LIMIT -1 OFFSET ?1)";

const NEWEST: &str = "
SELECT name, incarnation, services, slots, connected, first_ms, last_ms FROM workers INDEXED BY workers_heard
ORDER BY last_ms DESC, name, incarnation LIMIT ?1";

/// What was counted of the workers of these names, messages apart.
const COUNTS: &str = "
SELECT c.worker, c.kind, sum(c.n)
FROM (SELECT DISTINCT CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT) AS name FROM jsonb_each(?1)) v
CROSS JOIN counters c INDEXED BY counters_worker ON c.worker = v.name
WHERE c.kind NOT LIKE 'message_%' AND c.kind <> 'set_aside'
GROUP BY c.worker, c.kind HAVING sum(c.n) > 0 ORDER BY c.worker, c.kind";

/// The attempts that are out, by way of the tasks that somebody owns: few, however many attempts there have been.
const CURRENT: &str = "
SELECT a.worker, a.incarnation, a.task, a.began_ms
FROM tasks t INDEXED BY tasks_owned CROSS JOIN attempts a ON a.task = t.id AND a.epoch = t.epoch
WHERE t.owner IS NOT NULL AND a.ending IS NULL ORDER BY a.task";

const LINES: &str = "
SELECT coalesce(s.name, '') AS service, c.kind, sum(c.n) FROM counters c LEFT JOIN services s ON s.id = c.service
GROUP BY 1, 2 HAVING sum(c.n) > 0 ORDER BY 1, 2";
