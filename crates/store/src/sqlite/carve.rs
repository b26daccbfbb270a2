//! Sandboxes carved out of a corpus, in pieces, and compared with it.
//!
//! Owns that a sandbox is made in the transaction of its first piece, and that every piece adds tasks of its own without
//! a word to those they are carved from.

use super::bulk::Bulk;
use super::commands::find;
use super::decode;
use super::error::fault;
use super::setup::{corpus_named, corpus_of, corrupt, is_service};
use crate::limits::PAGE;
use crate::model::{Carve, CarvePlaces, Corpus, Pair, Piece, StoreError, TaskEnd};
use dispatcher_core::id::{CorpusId, EntryName, TaskId};
use dispatcher_core::report::Status;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

const DOING: &str = "carving a sandbox";
pub(super) const PAIRS: &str = "comparing a sandbox";

/// The next piece, after `made` tasks.
pub(super) async fn carve(
    connection: &mut SqliteConnection,
    carve: &Carve,
    after: TaskId,
    made: u64,
    max: usize,
) -> Result<Piece, StoreError> {
    // Ids are positive, so only the first piece begins after 0.
    let sandbox = if after == TaskId(0) {
        match begin(connection, carve).await? {
            Ok(sandbox) => sandbox,
            Err(why) => return Ok(Piece::refused(why)),
        }
    } else {
        match corpus_named(connection, &carve.name, DOING).await? {
            Some(found) if carve.has_made(&found) => found.id,
            _ => return Ok(Piece::refused(carve.lost())),
        }
    };
    let room = carve.room(made);
    let mut found = find(connection, &carve.filter, "", after, max.min(room), DOING).await?;
    found.ids.truncate(room);
    if found.ids.len() == room {
        found.next = None;
    }
    let changed = add(connection, carve, sandbox, found.ids).await?;
    if found.next.is_none() && made + changed == 0 {
        for sql in super::delete::LAST_OF_CORPUS {
            sqlx::query(sql).bind(sandbox.0).execute(&mut *connection).await.map_err(|e| fault(DOING, &e))?;
        }
        return Ok(Piece::refused(carve.nothing_matches()));
    }
    Ok(Piece { changed, next: found.next, ..Piece::default() })
}

/// Makes the sandbox, without tasks, or says why there can be none.
async fn begin(connection: &mut SqliteConnection, carve: &Carve) -> Result<Result<CorpusId, String>, StoreError> {
    let failed = |e: sqlx::Error| fault(DOING, &e);
    let is_taken = corpus_named(connection, &carve.name, DOING).await?.is_some();
    let (mut parent, mut of, mut by) = (None, false, false);
    if let Some(id) = carve.filter.corpus {
        parent = corpus_of(connection, id, DOING).await?;
    }
    if let Some(id) = carve.filter.service {
        of = is_service(connection, id, DOING).await?;
    }
    if let Some(id) = carve.by() {
        by = is_service(connection, id, DOING).await?;
    }
    if let Err(why) = carve.check(&CarvePlaces { is_taken, parent, of, by }) {
        return Ok(Err(why));
    }
    let sandbox: i64 = sqlx::query_scalar(
        "INSERT INTO corpora (name, root, kind, parent) SELECT ?1, root, 'sandbox', id FROM corpora WHERE id = ?2
         RETURNING id",
    )
    .bind(&carve.name)
    .bind(carve.filter.corpus.map(|id| id.0))
    .fetch_one(&mut *connection)
    .await
    .map_err(failed)?;
    sqlx::query("INSERT OR REPLACE INTO settings (name, value) VALUES ('sandbox.' || ?1 || '.of', CAST(CAST(?2 AS TEXT) AS BLOB))")
        .bind(sandbox)
        .bind(carve.filter.service.map(|id| id.0))
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(Ok(CorpusId(sandbox)))
}

/// Adds tasks with the inputs of these; how many.
async fn add(
    connection: &mut SqliteConnection,
    carve: &Carve,
    sandbox: CorpusId,
    ids: Vec<i64>,
) -> Result<u64, StoreError> {
    let Some(service) = carve.by().filter(|_| !ids.is_empty()) else { return Ok(0) };
    sqlx::query(ADD)
        .bind(Bulk::numbers(ids).into_json())
        .bind(service.0)
        .bind(sandbox.0)
        .execute(connection)
        .await
        .map(|done| done.rows_affected())
        .map_err(|e| fault(DOING, &e))
}

/// ?1 the ids, ?2 the service, ?3 the sandbox.
const ADD: &str = "
INSERT INTO tasks (service, corpus, entry, input_size, input_mtime_ns, state, run, epoch, charged, freed, priority,
  not_before_ms)
SELECT ?2, ?3, t.entry, t.input_size, t.input_mtime_ns, 'ready', 1, 0, 0, 0, t.priority, 0
FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value ORDER BY t.id";

pub(super) async fn pairs(
    connection: &mut SqliteConnection,
    sandbox: CorpusId,
    after: TaskId,
    max: usize,
) -> Result<Vec<Pair>, StoreError> {
    let found = corpus_of(connection, sandbox, PAIRS).await?;
    let Some(Corpus { parent: Some(parent), parent_service, .. }) = found else { return Ok(Vec::new()) };
    let rows = sqlx::query(COMPARE)
        .bind(sandbox.0)
        .bind(after.0)
        .bind(parent.0)
        .bind(parent_service.map(|id| id.0))
        .bind(i64::try_from(max.min(PAGE)).unwrap_or(0))
        .fetch_all(connection)
        .await
        .map_err(|e| fault(PAIRS, &e))?;
    rows.iter().map(pair).collect::<Result<_, _>>().map_err(|why| corrupt(PAIRS, why))
}

/// ?1 the sandbox, ?2 the task after which the page begins, ?3 the parent, ?4 the service of its tasks, ?5 how many.
const COMPARE: &str = "
SELECT s.state, s.status, sr.category, sr.what, p.state, p.status, pr.category, pr.what, p.id, s.id, s.entry
FROM tasks s NOT INDEXED
LEFT JOIN tasks p ON p.service = coalesce(?4, s.service) AND p.corpus = ?3 AND p.entry = s.entry
LEFT JOIN results sr ON sr.task = s.id AND sr.epoch = s.accepted_epoch
LEFT JOIN results pr ON pr.task = p.id AND pr.epoch = p.accepted_epoch
WHERE s.id > ?2 AND s.corpus = ?1 ORDER BY s.id LIMIT ?5";

fn pair(row: &SqliteRow) -> Result<Pair, decode::Flaw> {
    let parent = decode::maybe(row, 8)?.map(TaskId);
    let (is, is_cause) = end(row, 0)?;
    let (was, was_cause) = if parent.is_some() { end(row, 4)? } else { (TaskEnd::Gone, None) };
    let entry = EntryName(decode::bytes(row, 10)?);
    Ok(Pair { task: decode::id(row, 9)?, parent, entry, was, was_cause, is, is_cause })
}

/// How a task ended, and why, from state, status, category and `what` at column `at` and after it.
fn end(row: &SqliteRow, at: usize) -> Result<(TaskEnd, Option<(String, String)>), decode::Flaw> {
    let (state, status) = decode::state_and_status_at(row, at);
    let end = TaskEnd::of(state, status);
    let has_cause = end.status().is_some_and(|status| status != Status::NoProblem);
    let words = if has_cause { (decode::words(row, at + 2)?, decode::words(row, at + 3)?) } else { (None, None) };
    Ok((end, words.0.zip(words.1)))
}
