//! Reruns and cancellations, in pieces.

use super::book::{Book, set_all_aside};
use super::error::fault;
use super::filter;
use crate::limits::PAGE;
use crate::model::{Progress, StoreError, TaskFilter};
use dispatcher_core::finalise::{self, AttemptFacts, Decision, TaskFacts};
use dispatcher_core::id::TaskId;
use dispatcher_core::time::TimeMs;
use sqlx::QueryBuilder;
use sqlx::sqlite::SqliteConnection;

pub(super) const RERUN: &str = "beginning new runs";
pub(super) const CANCEL: &str = "cancelling tasks";

/// What a command does to one task.
type Rule = fn(TaskFacts, Option<AttemptFacts>, TaskId, TimeMs) -> Decision<'static>;

pub(super) async fn rerun(
    connection: &mut SqliteConnection,
    filter: TaskFilter,
    after: TaskId,
    max: usize,
    now: TimeMs,
) -> Result<Progress, StoreError> {
    let ids = matching(connection, &filter, "", after, max, RERUN).await?;
    let changed = begin_runs(connection, &ids, RERUN, now).await?;
    Ok(Progress { changed, next: next(&ids, max) })
}

pub(super) async fn cancel(
    connection: &mut SqliteConnection,
    filter: TaskFilter,
    after: TaskId,
    max: usize,
    now: TimeMs,
) -> Result<Progress, StoreError> {
    let ids = matching(connection, &filter, " AND t.state IN ('ready', 'leased')", after, max, CANCEL).await?;
    let changed = apply(connection, &ids, finalise::cancel, CANCEL, now).await?;
    Ok(Progress { changed, next: next(&ids, max) })
}

/// Begins a new run of each of these tasks.
pub(super) async fn begin_runs(
    connection: &mut SqliteConnection,
    ids: &[i64],
    doing: &'static str,
    now: TimeMs,
) -> Result<u64, StoreError> {
    apply(connection, ids, finalise::begin_run, doing, now).await
}

async fn apply(
    connection: &mut SqliteConnection,
    ids: &[i64],
    rule: Rule,
    doing: &'static str,
    now: TimeMs,
) -> Result<u64, StoreError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let (mut book, mut flawed) = Book::load(connection, ids.iter().copied().map(TaskId), doing).await?;
    let newest = book.newest();
    book.load_attempts(connection, newest.iter().copied(), &mut flawed).await?;
    set_all_aside(connection, &flawed, doing).await?;
    let mut changed = 0;
    for (id, epoch) in newest {
        let done = book.decide(id, epoch, |facts, attempt, _| rule(facts, attempt, id, now));
        changed += u64::from(done.is_some());
    }
    book.write(connection).await?;
    Ok(changed)
}

/// Ids above `after` that match, in order.
async fn matching(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
    also: &'static str,
    after: TaskId,
    max: usize,
    doing: &'static str,
) -> Result<Vec<i64>, StoreError> {
    let mut query = QueryBuilder::new("SELECT t.id FROM tasks t WHERE t.id > ");
    query.push_bind(after.0).push(also);
    filter::push(&mut query, filter);
    query.push(" ORDER BY t.id LIMIT ").push_bind(i64::try_from(max.min(PAGE)).unwrap_or(0));
    query.build_query_scalar().fetch_all(connection).await.map_err(|e| fault(doing, &e))
}

/// Where to go on: after the last id of a full page; a page that is not full was the last one.
fn next(ids: &[i64], max: usize) -> Option<TaskId> {
    let full = ids.len() == max.min(PAGE);
    ids.last().filter(|_| full).copied().map(TaskId)
}
