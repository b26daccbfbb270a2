//! Who worked on tasks, for replies that name their worker and nothing else.
//!
//! Owns that looking costs the attempts of the tasks that were asked for and nothing else.

use super::bulk::Bulk;
use super::decode::{self, Flaw, attempt_columns};
use super::error::fault;
use super::setup::corrupt;
use crate::model::{StoreError, Trail};
use dispatcher_core::finalise::AttemptFacts;
use dispatcher_core::id::{LeaseId, ServiceId, TaskId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use std::collections::HashMap;

pub(super) const DOING: &str = "reading who worked on tasks";

pub(super) async fn trails(connection: &mut SqliteConnection, tasks: Vec<TaskId>) -> Result<Vec<Trail>, StoreError> {
    let failed = |e: sqlx::Error| fault(DOING, &e);
    let ids = Bulk::numbers(tasks.iter().map(|task| task.0)).into_json();
    let rows = sqlx::query(
        "SELECT t.id, t.run, t.epoch, t.service FROM jsonb_each(?1) v CROSS JOIN tasks t ON t.id = v.value ORDER BY t.id",
    )
    .bind(ids.clone())
    .fetch_all(&mut *connection)
    .await
    .map_err(failed)?;
    let attempts = sqlx::query(concat!(
        "SELECT ",
        attempt_columns!(),
        " FROM jsonb_each(?1) v CROSS JOIN attempts a ON a.task = v.value ORDER BY a.task, a.epoch"
    ))
    .bind(ids)
    .fetch_all(connection)
    .await
    .map_err(failed)?;
    let mut by_task: HashMap<TaskId, Vec<AttemptFacts>> = HashMap::new();
    // A row that cannot be read names nobody.
    for (task, attempt) in attempts.iter().filter_map(|row| decode::attempt(row).ok()) {
        by_task.entry(task).or_default().push(attempt);
    }
    let read = |row: &SqliteRow| -> Result<Trail, Flaw> {
        let newest = LeaseId { task: decode::id(row, 0)?, run: decode::run(row, 1)?, epoch: decode::epoch(row, 2)? };
        let attempts = by_task.remove(&newest.task).unwrap_or_default();
        Ok(Trail { newest, service: ServiceId(decode::number(row, 3)?), attempts })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(DOING, why))
}
