//! What lies ahead of one task: its place in the queue of its service, and its limit.
//!
//! Owns that looking costs the tasks before it in the index of the queue and nothing else.

use super::decode;
use super::error::fault;
use super::setup::corrupt;
use crate::model::{Outlook, StoreError};
use dispatcher_core::id::TaskId;
use dispatcher_core::time::TimeMs;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) const DOING: &str = "looking ahead";

pub(super) async fn outlook(connection: &mut SqliteConnection, task: TaskId) -> Result<Option<Outlook>, StoreError> {
    let row = sqlx::query(AHEAD).bind(task.0).fetch_optional(connection).await.map_err(|e| fault(DOING, &e))?;
    row.as_ref().map(read).transpose().map_err(|why| corrupt(DOING, why))
}

fn read(row: &SqliteRow) -> Result<Outlook, decode::Flaw> {
    let priority = decode::number(row, 0)?;
    Ok(Outlook {
        priority: i32::try_from(priority).map_err(|_| format!("its priority is {priority}"))?,
        ahead: decode::count(row, 1)?,
        queued: decode::count(row, 2)?,
        timeout_ms: decode::span(row, 3)?,
        limit_until: decode::maybe(row, 4)?.map(TimeMs),
    })
}

const AHEAD: &str = "
SELECT t.priority,
  (SELECT count(*) FROM tasks q INDEXED BY tasks_ready WHERE q.service = t.service AND q.state = 'ready'
     AND q.not_before_ms = 0 AND q.priority > t.priority)
  + (SELECT count(*) FROM tasks q INDEXED BY tasks_ready WHERE q.service = t.service AND q.state = 'ready'
     AND q.not_before_ms = 0 AND q.priority = t.priority AND q.id < t.id),
  (SELECT count(*) FROM tasks q INDEXED BY tasks_ready WHERE q.service = t.service AND q.state = 'ready'
     AND q.not_before_ms = 0),
  t.timeout_ms, t.limit_until_ms
FROM tasks t WHERE t.id = ?1 AND t.state IN ('ready', 'leased')";
