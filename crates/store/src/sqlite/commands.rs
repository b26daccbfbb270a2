//! Reruns and cancellations, in pieces.
//!
//! Owns how the tasks of a piece are found: in id order after the task where the piece before it ended, looking at a
//! window of ids only. So a piece costs the same early and late in a million tasks, and however few of them match.

use super::book::{Book, set_all_aside};
use super::error::fault;
use super::filter;
use crate::limits::{WINDOW, piece};
use crate::model::{Piece, StoreError, TaskFilter};
use dispatcher_core::finalise::{self, AttemptFacts, Decision, TaskFacts};
use dispatcher_core::id::{LeaseId, TaskId};
use dispatcher_core::time::TimeMs;
use sqlx::QueryBuilder;
use sqlx::sqlite::SqliteConnection;

pub(super) const RERUN: &str = "beginning new runs";
pub(super) const CANCEL: &str = "cancelling tasks";

/// What a command does to one task.
type Rule = fn(TaskFacts, Option<AttemptFacts>, TaskId, TimeMs) -> Decision<'static>;

/// The tasks of one piece.
pub(super) struct Found {
    pub(super) ids: Vec<i64>,
    /// Where the next piece begins; `None`: there is nothing beyond.
    pub(super) next: Option<TaskId>,
}

pub(super) async fn rerun(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
    after: TaskId,
    max: usize,
    now: TimeMs,
) -> Result<Piece, StoreError> {
    let found = find(connection, filter, "", after, max, RERUN).await?;
    let (changed, revoked) = apply(connection, &found.ids, finalise::begin_run, RERUN, now).await?;
    Ok(Piece { changed, revoked, next: found.next, error: None })
}

pub(super) async fn cancel(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
    after: TaskId,
    max: usize,
    now: TimeMs,
) -> Result<Piece, StoreError> {
    let found = find(connection, filter, " AND t.state IN ('ready', 'leased')", after, max, CANCEL).await?;
    let (changed, revoked) = apply(connection, &found.ids, finalise::cancel, CANCEL, now).await?;
    Ok(Piece { changed, revoked, next: found.next, error: None })
}

/// Begins a new run of each of these tasks.
pub(super) async fn begin_runs(
    connection: &mut SqliteConnection,
    ids: &[i64],
    doing: &'static str,
    now: TimeMs,
) -> Result<u64, StoreError> {
    apply(connection, ids, finalise::begin_run, doing, now).await.map(|(changed, _)| changed)
}

/// How many of the tasks there were, and the leases of theirs that were open.
async fn apply(
    connection: &mut SqliteConnection,
    ids: &[i64],
    rule: Rule,
    doing: &'static str,
    now: TimeMs,
) -> Result<(u64, Vec<LeaseId>), StoreError> {
    if ids.is_empty() {
        return Ok((0, Vec::new()));
    }
    let (mut book, mut flawed) = Book::load(connection, ids.iter().copied().map(TaskId), doing).await?;
    let newest = book.newest();
    book.load_attempts(connection, newest.iter().copied(), &mut flawed).await?;
    set_all_aside(connection, &flawed, doing).await?;
    let revoked = book.open_leases();
    let mut changed = 0;
    for (id, epoch) in newest {
        let done = book.decide(id, epoch, |facts, attempt, _| rule(facts, attempt, id, now));
        changed += u64::from(done.is_some());
    }
    book.write(connection).await?;
    Ok((changed, revoked))
}

/// The next tasks above `after` that match, in id order.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
    also: &'static str,
    after: TaskId,
    max: usize,
    doing: &'static str,
) -> Result<Found, StoreError> {
    let Some(window) = window(connection, filter, after, doing).await? else {
        return Ok(Found { ids: Vec::new(), next: None });
    };
    let max = piece(max);
    // By row id: an index of a column in the filter would be read whole and sorted again for every piece.
    let mut query = QueryBuilder::new("SELECT t.id FROM tasks t NOT INDEXED WHERE t.id > ");
    query.push_bind(after.0).push(" AND t.id <= ").push_bind(window.end).push(also);
    filter::push(&mut query, filter);
    query.push(" ORDER BY t.id LIMIT ").push_bind(i64::try_from(max).unwrap_or(1));
    let ids: Vec<i64> = query.build_query_scalar().fetch_all(connection).await.map_err(|e| fault(doing, &e))?;
    let next = match ids.last() {
        Some(last) if ids.len() == max => Some(TaskId(*last)),
        _ => (!window.is_last).then_some(TaskId(window.end)),
    };
    Ok(Found { ids, next })
}

/// The ids that one piece looks at.
struct Window {
    end: i64,
    is_last: bool,
}

/// The window that begins with the first id above `after` that can match; `None` where there is none.
async fn window(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
    after: TaskId,
    doing: &'static str,
) -> Result<Option<Window>, StoreError> {
    let ends: (Option<i64>, Option<i64>) =
        sqlx::query_as("SELECT (SELECT min(id) FROM tasks WHERE id > ?1), (SELECT max(id) FROM tasks)")
            .bind(after.0)
            .fetch_one(connection)
            .await
            .map_err(|e| fault(doing, &e))?;
    let (Some(mut first), Some(mut last)) = ends else { return Ok(None) };
    if !filter.ids.is_empty() {
        let named = || filter.ids.iter().filter(|id| **id > after).map(|id| id.0);
        let (Some(lowest), Some(highest)) = (named().min(), named().max()) else { return Ok(None) };
        (first, last) = (first.max(lowest), last.min(highest));
    }
    let end = first.saturating_add(i64::try_from(WINDOW).unwrap_or(i64::MAX) - 1);
    Ok(Some(Window { end, is_last: end >= last }))
}
