//! Deletions of corpora and services, in pieces.
//!
//! Owns that nothing stays behind: a piece takes tasks with all that is stored of them, and takes their attempts out of
//! the counters, so that the books balance after each piece. The last one takes the corpus or service and what is left
//! of its counters. Result files are the archive's.

use super::bulk::Bulk;
use super::commands::find;
use super::decode::{self, Flaw};
use super::error::fault;
use super::setup::corrupt;
use crate::model::{Named, Piece, StoreError, TaskFilter};
use dispatcher_core::id::{CorpusId, LeaseId, ServiceId, TaskId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

const DOING: &str = "deleting tasks";

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    what: &Named,
    after: TaskId,
    max: usize,
) -> Result<Piece, StoreError> {
    let failed = |e: sqlx::Error| fault(DOING, &e);
    let (kind, name) = what.parts();
    let (look_up, last) = match what {
        Named::Corpus(_) => ("SELECT id FROM corpora WHERE name = ?1", LAST_OF_CORPUS),
        Named::Service(_) => ("SELECT id FROM services WHERE name = ?1", LAST_OF_SERVICE),
    };
    let id: Option<i64> =
        sqlx::query_scalar(look_up).bind(name).fetch_optional(&mut *connection).await.map_err(failed)?;
    let Some(id) = id else { return Ok(Piece::no_such(kind, name)) };
    let filter = match what {
        Named::Corpus(_) => TaskFilter { corpus: Some(CorpusId(id)), ..TaskFilter::default() },
        Named::Service(_) => TaskFilter { service: Some(ServiceId(id)), ..TaskFilter::default() },
    };
    let found = find(connection, &filter, "", after, max, DOING).await?;
    let (changed, revoked) = delete_tasks(connection, found.ids).await?;
    if found.next.is_none() {
        for sql in last {
            sqlx::query(sql).bind(id).execute(&mut *connection).await.map_err(failed)?;
        }
    }
    Ok(Piece { changed, revoked, next: found.next, error: None })
}

/// How many there were, and the leases of theirs that were open.
async fn delete_tasks(connection: &mut SqliteConnection, ids: Vec<i64>) -> Result<(u64, Vec<LeaseId>), StoreError> {
    if ids.is_empty() {
        return Ok((0, Vec::new()));
    }
    let failed = |e: sqlx::Error| fault(DOING, &e);
    let deleted = ids.len() as u64;
    let ids = Bulk::numbers(ids).into_json();
    let rows = sqlx::query(OPEN_LEASES).bind(&ids).fetch_all(&mut *connection).await.map_err(failed)?;
    let revoked = rows.iter().map(lease).collect::<Result<_, _>>().map_err(|why| corrupt(DOING, why))?;
    for sql in DELETE {
        sqlx::query(sql).bind(&ids).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok((deleted, revoked))
}

fn lease(row: &SqliteRow) -> Result<LeaseId, Flaw> {
    Ok(LeaseId { task: decode::id(row, 0)?, run: decode::run(row, 1)?, epoch: decode::epoch(row, 2)? })
}

/// A row that cannot be right has no lease that anybody could know; it is deleted like the others.
const OPEN_LEASES: &str = "
SELECT t.id, t.run, t.epoch FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value
WHERE t.owner IS NOT NULL AND t.run >= 1 AND t.epoch >= 0 ORDER BY t.id";

/// ?1 the ids. An attempt is taken out of the counters where it was counted: only sums over dispatchers balance.
const DELETE: [&str; 7] = [
    "INSERT INTO counters (dispatcher, service, corpus, worker, kind, n)
     SELECT a.dispatcher, t.service, t.corpus, coalesce(a.worker, ''), 'dispatched', -count(*)
     FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value CROSS JOIN attempts a ON a.task = t.id
     WHERE true GROUP BY 1, 2, 3, 4
     ON CONFLICT (dispatcher, service, corpus, worker, kind) DO UPDATE SET n = n + excluded.n",
    "INSERT INTO counters (dispatcher, service, corpus, worker, kind, n)
     SELECT a.dispatcher, t.service, t.corpus, coalesce(a.worker, ''), a.ending, -count(*)
     FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value CROSS JOIN attempts a ON a.task = t.id
     WHERE a.ending IS NOT NULL GROUP BY 1, 2, 3, 4, 5
     ON CONFLICT (dispatcher, service, corpus, worker, kind) DO UPDATE SET n = n + excluded.n",
    "DELETE FROM messages WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM parts WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM results WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM attempts WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(?1))",
];

const LAST_OF_CORPUS: [&str; 2] = ["DELETE FROM counters WHERE corpus = ?1", "DELETE FROM corpora WHERE id = ?1"];

const LAST_OF_SERVICE: [&str; 2] = ["DELETE FROM counters WHERE service = ?1", "DELETE FROM services WHERE id = ?1"];
