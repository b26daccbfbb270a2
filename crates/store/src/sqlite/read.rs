//! What is shown and what is left to do: summaries, listings, stories, publications.

use super::bulk::Bulk;
use super::decode::{self, Flaw, attempt_columns, task_columns};
use super::error::fault;
use super::filter;
use super::setup::corrupt;
use crate::limits::{CAUSES, PAGE, worst};
use crate::model::{AttemptRow, PartRef, Publication, ResultRow, StoreError, Story, Summary, TaskFilter, TaskRow};
use dispatcher_core::id::{EntryName, Epoch, LeaseId, TaskId};
use dispatcher_core::report::Message;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row};
use std::collections::{BTreeMap, HashMap};

pub(super) const SUMMARY: &str = "counting tasks";
pub(super) const TASKS: &str = "listing tasks";
pub(super) const STORY: &str = "reading a task";
pub(super) const UNPUBLISHED: &str = "listing results to publish";
pub(super) const STANDING: &str = "listing results that stand";

pub(super) async fn summary(connection: &mut SqliteConnection, filter: TaskFilter) -> Result<Summary, StoreError> {
    let failed = |e: sqlx::Error| fault(SUMMARY, &e);
    let mut query = QueryBuilder::new("SELECT t.state, t.status, count(*) FROM tasks t WHERE true");
    filter::push(&mut query, &filter);
    query.push(" GROUP BY t.state, t.status");
    let rows = query.build().fetch_all(&mut *connection).await.map_err(failed)?;
    let mut summary = Summary::default();
    let (mut by_state, mut by_status) = (BTreeMap::new(), BTreeMap::new());
    for row in &rows {
        let n: u64 = decode::count(row, 2).map_err(|why| corrupt(SUMMARY, why))?;
        let (state, status) = decode::state_and_status(row);
        summary.total += n;
        *by_state.entry(state).or_default() += n;
        if let Some(status) = status {
            *by_status.entry(status).or_default() += n;
        }
    }
    summary.by_state = by_state.into_iter().collect();
    summary.by_status = by_status.into_iter().collect();
    (summary.handed_out, summary.running) = at_workers(connection, &filter).await?;
    summary.causes = causes(connection, &filter).await?;
    let mut query = QueryBuilder::new(
        "SELECT count(*) FROM results r INDEXED BY results_unpublished CROSS JOIN tasks t ON t.id = r.task
         WHERE r.published = 0",
    );
    filter::push(&mut query, &filter);
    let unpublished: i64 = query.build_query_scalar().fetch_one(connection).await.map_err(failed)?;
    summary.unpublished = unpublished.unsigned_abs();
    Ok(summary)
}

/// Leased tasks that went out, and those of them that have begun: by way of the tasks that somebody owns, few, however many
/// there are.
async fn at_workers(connection: &mut SqliteConnection, filter: &TaskFilter) -> Result<(u64, u64), StoreError> {
    let mut query = QueryBuilder::new(
        "SELECT count(*), count(a.began_ms)
         FROM tasks t INDEXED BY tasks_owned CROSS JOIN attempts a ON a.task = t.id AND a.epoch = t.epoch
         WHERE t.owner IS NOT NULL AND t.state = 'leased' AND a.ending IS NULL",
    );
    filter::push(&mut query, filter);
    let row = query.build().fetch_one(connection).await.map_err(|e| fault(SUMMARY, &e))?;
    let count = |column| decode::count(&row, column).map_err(|why| corrupt(SUMMARY, why));
    Ok((count(0)?, count(1)?))
}

async fn causes(
    connection: &mut SqliteConnection,
    filter: &TaskFilter,
) -> Result<Vec<(String, String, u64)>, StoreError> {
    let mut query = QueryBuilder::new(
        "SELECT r.category, r.what, count(*) FROM tasks t CROSS JOIN results r ON r.task = t.id AND r.epoch = t.accepted_epoch
         WHERE t.status IN ('fatal', 'invalid') AND r.category IS NOT NULL",
    );
    filter::push(&mut query, filter);
    query.push(" GROUP BY r.category, r.what ORDER BY 3 DESC, 1, 2 LIMIT ").push_bind(limit(CAUSES));
    let rows = query.build().fetch_all(connection).await.map_err(|e| fault(SUMMARY, &e))?;
    let read = |row: &SqliteRow| Ok((decode::text(row, 0)?, decode::text(row, 1)?, decode::count(row, 2)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(SUMMARY, why))
}

pub(super) async fn tasks(
    connection: &mut SqliteConnection,
    filter: TaskFilter,
    after: TaskId,
    max: usize,
) -> Result<Vec<TaskRow>, StoreError> {
    let select = concat!("SELECT ", task_columns!(), ", t.entry, t.input_size FROM tasks t WHERE t.id > ");
    let mut query = QueryBuilder::new(select);
    query.push_bind(after.0);
    filter::push(&mut query, &filter);
    query.push(" ORDER BY t.id LIMIT ").push_bind(limit(max));
    let rows = query.build().fetch_all(&mut *connection).await.map_err(|e| fault(TASKS, &e))?;
    let mut tasks: Vec<TaskRow> = rows.iter().map(decode::listed).collect();
    let mut standing = Bulk::new();
    for task in &tasks {
        let epoch = task.standing.and_then(|s| i64::try_from(s.epoch.0).ok());
        standing.row().int(task.id.0).opt(epoch).end();
    }
    let rows =
        sqlx::query(WORST).bind(standing.into_json()).fetch_all(connection).await.map_err(|e| fault(TASKS, &e))?;
    for row in &rows {
        let at: usize = decode::count(row, 0).map_err(|why| corrupt(TASKS, why))?;
        if let Some(task) = tasks.get_mut(at) {
            task.worst = decode::message(row, 1).ok();
        }
    }
    Ok(tasks)
}

/// The gravest message under each task and claim of ?1, the first of those equally grave.
const WORST: &str = "
SELECT v.key, m.severity, m.category, m.what, m.details
FROM jsonb_each(?1) v CROSS JOIN messages m ON m.task = v.value ->> 0 AND m.epoch = v.value ->> 1
  AND m.n = (SELECT w.n FROM messages w WHERE w.task = v.value ->> 0 AND w.epoch = v.value ->> 1
    ORDER BY CASE w.severity WHEN 'invalid' THEN 0 WHEN 'fatal' THEN 1 WHEN 'error' THEN 2 WHEN 'warning' THEN 3
      ELSE 4 END, w.n LIMIT 1)";

pub(super) async fn story(connection: &mut SqliteConnection, task: TaskId) -> Result<Option<Story>, StoreError> {
    let failed = |e: sqlx::Error| fault(STORY, &e);
    let select = concat!("SELECT ", task_columns!(), ", t.entry, t.input_size FROM tasks t WHERE t.id = ?1");
    let row = sqlx::query(select).bind(task.0).fetch_optional(&mut *connection).await.map_err(failed)?;
    let Some(row) = row else { return Ok(None) };
    let attempts =
        sqlx::query(concat!("SELECT ", attempt_columns!(), " FROM attempts a WHERE a.task = ?1 ORDER BY a.epoch"))
            .bind(task.0)
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
    let results = sqlx::query("SELECT epoch, run, status, origin, published FROM results WHERE task = ?1 ORDER BY seq")
        .bind(task.0)
        .fetch_all(&mut *connection)
        .await
        .map_err(failed)?;
    let messages =
        sqlx::query("SELECT epoch, severity, category, what, details FROM messages WHERE task = ?1 ORDER BY epoch, n")
            .bind(task.0)
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
    let parts = sqlx::query(
        "SELECT p.epoch, p.name, coalesce((SELECT place FROM packs WHERE id = p.pack), p.place), p.\"offset\", p.length,
           p.sha256
         FROM parts p WHERE p.task = ?1 ORDER BY p.epoch, p.n",
    )
    .bind(task.0)
    .fetch_all(connection)
    .await
    .map_err(failed)?;
    tell(&row, &attempts, &results, &messages, &parts).map(Some).map_err(|why| corrupt(STORY, why))
}

/// What is stored under each epoch of one task.
type ByEpoch<T> = HashMap<Epoch, Vec<T>>;

fn tell(
    task: &SqliteRow,
    attempts: &[SqliteRow],
    results: &[SqliteRow],
    messages: &[SqliteRow],
    parts: &[SqliteRow],
) -> Result<Story, Flaw> {
    let mut messages: ByEpoch<Message> = by_epoch(messages, |row| decode::message(row, 1))?;
    let mut parts: ByEpoch<PartRef> = by_epoch(parts, |row| decode::part(row, 1))?;
    let mut told = Vec::with_capacity(results.len());
    for row in results {
        let epoch = decode::epoch(row, 0)?;
        told.push(ResultRow {
            run: decode::run(row, 1)?,
            epoch,
            status: decode::status(row, 2)?,
            origin: decode::origin(row, 3)?,
            published: decode::number(row, 4)? == 1,
            messages: messages.remove(&epoch).unwrap_or_default(),
            parts: parts.remove(&epoch).unwrap_or_default(),
        });
    }
    let mut tried = Vec::with_capacity(attempts.len());
    for row in attempts {
        let (_, a) = decode::attempt(row)?;
        tried.push(AttemptRow {
            run: a.run,
            epoch: a.epoch,
            worker: a.worker,
            handed_at: a.handed_at,
            began_at: a.began_at,
            ended_at: a.ended_at,
            ending: a.ending,
            charged: a.charged,
            why: a.why,
            messages: messages.remove(&a.epoch).unwrap_or_default(),
            parts: parts.remove(&a.epoch).unwrap_or_default(),
        });
    }
    let mut task = decode::listed(task);
    let stands = task.standing.and_then(|s| told.iter().find(|result| result.epoch == s.epoch));
    task.worst = stands.and_then(|result| worst(result.messages.iter()).cloned());
    Ok(Story { task, attempts: tried, results: told })
}

fn by_epoch<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T, Flaw>) -> Result<ByEpoch<T>, Flaw> {
    let mut found: ByEpoch<T> = HashMap::new();
    for row in rows {
        found.entry(decode::epoch(row, 0)?).or_default().push(read(row)?);
    }
    Ok(found)
}

pub(super) async fn unpublished(
    connection: &mut SqliteConnection,
    after: Option<LeaseId>,
    max: usize,
) -> Result<Vec<Publication>, StoreError> {
    let after = after.map(|l| (l.task.0, i64::try_from(l.epoch.0).unwrap_or(i64::MAX)));
    let rows = sqlx::query(
        "SELECT r.task, r.run, r.epoch, t.entry, r.status, r.published
         FROM results r INDEXED BY results_unpublished CROSS JOIN tasks t ON t.id = r.task
         WHERE r.published = 0 AND r.seq > coalesce((SELECT seq FROM results WHERE task = ?1 AND epoch = ?2), 0)
         ORDER BY r.seq LIMIT ?3",
    )
    .bind(after.map(|(task, _)| task))
    .bind(after.map(|(_, epoch)| epoch))
    .bind(limit(max))
    .fetch_all(&mut *connection)
    .await
    .map_err(|e| fault(UNPUBLISHED, &e))?;
    with_parts(connection, &rows, UNPUBLISHED).await
}

pub(super) async fn standing_parts(
    connection: &mut SqliteConnection,
    after: TaskId,
    max: usize,
) -> Result<Vec<Publication>, StoreError> {
    let rows = sqlx::query(
        "SELECT r.task, r.run, r.epoch, t.entry, r.status, r.published
         FROM tasks t CROSS JOIN results r ON r.task = t.id AND r.epoch = t.accepted_epoch
         WHERE t.id > ?1 AND EXISTS (SELECT 1 FROM parts p WHERE p.task = r.task AND p.epoch = r.epoch)
         ORDER BY t.id LIMIT ?2",
    )
    .bind(after.0)
    .bind(limit(max))
    .fetch_all(&mut *connection)
    .await
    .map_err(|e| fault(STANDING, &e))?;
    with_parts(connection, &rows, STANDING).await
}

/// Adds the parts to rows of task, run, epoch, entry, status and published.
async fn with_parts(
    connection: &mut SqliteConnection,
    rows: &[SqliteRow],
    doing: &'static str,
) -> Result<Vec<Publication>, StoreError> {
    let read = |row: &SqliteRow| -> Result<Publication, Flaw> {
        let lease = LeaseId { task: decode::id(row, 0)?, run: decode::run(row, 1)?, epoch: decode::epoch(row, 2)? };
        Ok(Publication {
            lease,
            entry: EntryName(decode::bytes(row, 3)?),
            status: decode::status(row, 4)?,
            parts: Vec::new(),
            published: decode::number(row, 5)? == 1,
        })
    };
    let mut found: Vec<Publication> =
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(doing, why))?;
    let mut pairs = Bulk::new();
    for row in rows {
        let (task, epoch): (i64, i64) = (row.get(0), row.get(2));
        pairs.row().int(task).int(epoch).end();
    }
    let parts = sqlx::query(
        "SELECT v.key, p.name, coalesce((SELECT place FROM packs WHERE id = p.pack), p.place), p.\"offset\", p.length, p.sha256
         FROM (SELECT key, value ->> 0 AS task, value ->> 1 AS epoch FROM jsonb_each(?1)) v
         CROSS JOIN parts p ON p.task = v.task AND p.epoch = v.epoch ORDER BY v.key, p.n",
    )
    .bind(pairs.into_json())
    .fetch_all(connection)
    .await
    .map_err(|e| fault(doing, &e))?;
    for row in &parts {
        let at: usize = decode::count(row, 0).map_err(|why| corrupt(doing, why))?;
        let part = decode::part(row, 1).map_err(|why| corrupt(doing, why))?;
        if let Some(publication) = found.get_mut(at) {
            publication.parts.push(part);
        }
    }
    Ok(found)
}

fn limit(max: usize) -> i64 {
    i64::try_from(max.min(PAGE)).unwrap_or(0)
}
