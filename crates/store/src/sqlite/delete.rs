//! Deletions of corpora and services, in pieces.
//!
//! Owns that nothing stays behind: a piece takes tasks with all that is stored of them, and takes their attempts out of
//! the counters, so that the books balance after each piece. The last one takes the corpus or service and what is left
//! of its counters. Result files are the archive's; those of a sandbox are told before its rows go.

use super::bulk::Bulk;
use super::commands::find;
use super::decode::{self, Flaw};
use super::error::fault;
use super::setup::{corpus_named, corrupt};
use crate::model::{Corpus, Doomed, Named, Piece, StoreError, TaskFilter};
use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId};
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
    let (id, filter, last): (_, _, &[&str]) = match what {
        Named::Corpus(_) | Named::Sandbox(_) => {
            let Some(corpus) = corpus_named(connection, name, DOING).await? else {
                return Ok(Piece::no_such(kind, name));
            };
            if let Err(why) = what.check(&corpus, &sandboxes_of(connection, corpus.id).await?) {
                return Ok(Piece::refused(why));
            }
            (corpus.id.0, of_corpus(&corpus), &LAST_OF_CORPUS)
        }
        Named::Service(_) => {
            let asked = sqlx::query_scalar("SELECT id FROM services WHERE name = ?1").bind(name);
            let id: Option<i64> = asked.fetch_optional(&mut *connection).await.map_err(failed)?;
            let Some(id) = id else { return Ok(Piece::no_such(kind, name)) };
            (id, TaskFilter { service: Some(ServiceId(id)), ..TaskFilter::default() }, &LAST_OF_SERVICE)
        }
    };
    let found = find(connection, &filter, "", after, max, DOING).await?;
    let (changed, revoked) = delete_tasks(connection, found.ids).await?;
    if found.next.is_none() {
        for sql in last {
            sqlx::query(*sql).bind(id).execute(&mut *connection).await.map_err(failed)?;
        }
    }
    Ok(Piece { changed, revoked, next: found.next, error: None })
}

fn of_corpus(corpus: &Corpus) -> TaskFilter {
    TaskFilter { corpus: Some(corpus.id), ..TaskFilter::default() }
}

/// The names of those that were carved out of a corpus.
async fn sandboxes_of(connection: &mut SqliteConnection, id: CorpusId) -> Result<Vec<String>, StoreError> {
    let asked = sqlx::query_scalar("SELECT name FROM corpora WHERE parent = ?1 AND id <> ?1 ORDER BY id").bind(id.0);
    asked.fetch_all(connection).await.map_err(|e| fault(DOING, &e))
}

/// What is stored of the tasks that the next piece takes, where it is a sandbox that goes.
pub(super) async fn doomed(
    connection: &mut SqliteConnection,
    what: &Named,
    after: TaskId,
    max: usize,
) -> Result<Vec<Doomed>, StoreError> {
    let Named::Sandbox(name) = what else { return Ok(Vec::new()) };
    let Some(corpus) = corpus_named(connection, name, DOING).await? else { return Ok(Vec::new()) };
    if what.check(&corpus, &[]).is_err() {
        return Ok(Vec::new());
    }
    let found = find(connection, &of_corpus(&corpus), "", after, max, DOING).await?;
    let rows = sqlx::query(PARTS)
        .bind(Bulk::numbers(found.ids).into_json())
        .fetch_all(connection)
        .await
        .map_err(|e| fault(DOING, &e))?;
    let mut all: Vec<Doomed> = Vec::new();
    for row in &rows {
        let (lease, part) =
            lease(row).and_then(|lease| Ok((lease, decode::part(row, 3)?))).map_err(|why| corrupt(DOING, why))?;
        match all.last_mut() {
            Some(last) if last.lease == lease => last.parts.push(part),
            _ => {
                let named = || Ok((decode::text(row, 8)?, EntryName(decode::bytes(row, 9)?)));
                let (service, entry) = named().map_err(|why| corrupt(DOING, why))?;
                all.push(Doomed { corpus: corpus.clone(), service, entry, lease, parts: vec![part] });
            }
        }
    }
    Ok(all)
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

/// ?1 the ids. An attempt without a row of its own was a result, which has one; either says the run.
const PARTS: &str = "
SELECT p.task, coalesce(r.run, a.run, t.run), p.epoch, p.name,
  coalesce((SELECT place FROM packs WHERE id = p.pack), p.place), p.\"offset\", p.length, p.sha256, s.name, t.entry
FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value CROSS JOIN parts p ON p.task = t.id
CROSS JOIN services s ON s.id = t.service
LEFT JOIN results r ON r.task = p.task AND r.epoch = p.epoch LEFT JOIN attempts a ON a.task = p.task AND a.epoch = p.epoch
ORDER BY p.task, p.epoch, p.n";

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

pub(super) const LAST_OF_CORPUS: [&str; 3] = [
    "DELETE FROM counters WHERE corpus = ?1",
    "DELETE FROM corpora WHERE id = ?1",
    "DELETE FROM settings WHERE name = 'sandbox.' || ?1 || '.of'",
];

const LAST_OF_SERVICE: [&str; 2] = ["DELETE FROM counters WHERE service = ?1", "DELETE FROM services WHERE id = ?1"];
