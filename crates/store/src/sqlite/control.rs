//! The control list: commands as they were given, how far each has come, and what became of it.
//!
//! Owns that a piece and the note of where the next one begins are one transaction, so that none is done twice whatever
//! dies between two pieces, and that a command which cannot be carried out is through, with the reason.

use super::carve::carve;
use super::commands;
use super::decode::{self, Flaw};
use super::delete::{self, delete};
use super::error::fault;
use super::setup::corrupt;
use super::setup::{self, NewService};
use crate::limits::PAGE;
use crate::model::{
    Command, CommandId, CommandOutcome, CommandPage, CommandRow, Doomed, ErrorClass, Piece, ServiceChange,
    ServiceSettings, Step, StoreError,
};
use dispatcher_core::id::TaskId;
use dispatcher_core::time::TimeMs;
use sqlx::QueryBuilder;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) const SUBMIT: &str = "writing a command down";
pub(super) const STEP: &str = "carrying out a command";
pub(super) const DOOMED: &str = "listing the files of a sandbox";
pub(super) const CONCLUDE: &str = "writing down what became of a command";
pub(super) const LIST: &str = "listing commands";

pub(super) async fn submit(
    connection: &mut SqliteConnection,
    command: Command,
    actor: String,
    now: TimeMs,
) -> Result<CommandId, StoreError> {
    let args = json(&command, SUBMIT)?;
    sqlx::query_scalar("INSERT INTO control (at_ms, actor, kind, args) VALUES (?1, ?2, ?3, ?4) RETURNING seq")
        .bind(now.0)
        .bind(actor)
        .bind(command.kind())
        .bind(args)
        .fetch_one(connection)
        .await
        .map(CommandId)
        .map_err(|e| fault(SUBMIT, &e))
}

pub(super) async fn step(
    connection: &mut SqliteConnection,
    id: CommandId,
    max: usize,
    now: TimeMs,
) -> Result<Step, StoreError> {
    let row = sqlx::query("SELECT args, done_ms, answer, cursor, changed FROM control WHERE seq = ?1")
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await
        .map_err(|e| fault(STEP, &e))?
        .ok_or_else(|| unknown(id, STEP))?;
    if let Some(outcome) = outcome(&row, 1) {
        return Ok(Step { outcome: Some(outcome), ..Step::default() });
    }
    let progress = || Ok((TaskId(decode::maybe(&row, 3)?.unwrap_or(0)), decode::count(&row, 4)?));
    let (after, before) = progress().map_err(|why| corrupt(STEP, why))?;
    let piece = match command(&row, 0) {
        Ok(command) => carry_out(connection, command, (after, before), max, now).await?,
        Err(why) => Some(Piece::refused(format!("this program cannot read the command: {why}"))),
    };
    let Some(piece) = piece else { return Ok(Step::default()) };
    let next = piece.next;
    let step = piece.step(before);
    write_down(connection, id, next, &step, now).await?;
    Ok(step)
}

/// The next piece, after this task and so many changed; `None` where it is not the store that carries the command out.
async fn carry_out(
    connection: &mut SqliteConnection,
    command: Command,
    (after, before): (TaskId, u64),
    max: usize,
    now: TimeMs,
) -> Result<Option<Piece>, StoreError> {
    match command {
        Command::Rerun { filter } => commands::rerun(connection, &filter, after, max, now).await,
        Command::Cancel { filter } => commands::cancel(connection, &filter, after, max, now).await,
        Command::Delete { what } => delete(connection, &what, after, max).await,
        Command::Carve(what) => carve(connection, &what, after, before, max).await,
        Command::PutService { name, change } => put_service(connection, &name, &change).await,
        Command::Pause { service } => set_paused(connection, service, true).await,
        Command::Resume { service } => set_paused(connection, service, false).await,
        Command::Drain { .. } | Command::Import { .. } => return Ok(None),
    }
    .map(Some)
}

/// What the next piece of a command takes with a sandbox.
pub(super) async fn doomed(
    connection: &mut SqliteConnection,
    id: CommandId,
    max: usize,
) -> Result<Vec<Doomed>, StoreError> {
    let row = sqlx::query("SELECT args, cursor FROM control WHERE seq = ?1 AND done_ms IS NULL AND kind = 'delete'")
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await
        .map_err(|e| fault(DOOMED, &e))?;
    let Some(row) = row else { return Ok(Vec::new()) };
    let after = TaskId(decode::maybe(&row, 1).map_err(|why| corrupt(DOOMED, why))?.unwrap_or(0));
    match command(&row, 0) {
        Ok(Command::Delete { what }) => delete::doomed(connection, &what, after, max).await,
        _ => Ok(Vec::new()),
    }
}

async fn put_service(
    connection: &mut SqliteConnection,
    name: &str,
    change: &ServiceChange,
) -> Result<Piece, StoreError> {
    let stands = setup::service_named(connection, name, STEP).await?.map(|service| service.settings);
    let settings = change.on(stands.as_ref().unwrap_or(&ServiceSettings::default()));
    if stands.as_ref() == Some(&settings) {
        return Ok(Piece::whole(0));
    }
    match NewService::new(name, &settings) {
        Ok(service) => service.put(connection).await.map(|_| Piece::whole(1)),
        Err(refused) => Ok(Piece::refused(refused.why)),
    }
}

async fn set_paused(
    connection: &mut SqliteConnection,
    service: Option<String>,
    paused: bool,
) -> Result<Piece, StoreError> {
    if let Some(name) = &service
        && setup::service_named(connection, name, STEP).await?.is_none()
    {
        return Ok(Piece::no_such("service", name));
    }
    sqlx::query("UPDATE services SET paused = ?1 WHERE paused <> ?1 AND (?2 IS NULL OR name = ?2)")
        .bind(paused)
        .bind(service)
        .execute(connection)
        .await
        .map(|done| Piece::whole(done.rows_affected()))
        .map_err(|e| fault(STEP, &e))
}

/// Writes down where the next piece begins, or the outcome after the last one.
async fn write_down(
    connection: &mut SqliteConnection,
    id: CommandId,
    next: Option<TaskId>,
    step: &Step,
    now: TimeMs,
) -> Result<(), StoreError> {
    let answer = step.outcome.as_ref().map(|outcome| json(outcome, STEP)).transpose()?;
    sqlx::query(
        "UPDATE control SET cursor = coalesce(?2, cursor), changed = changed + ?3, answer = ?4, done_ms = ?5
         WHERE seq = ?1",
    )
    .bind(id.0)
    .bind(next.map(|task| task.0))
    .bind(i64::try_from(step.changed).unwrap_or(i64::MAX))
    .bind(&answer)
    .bind(answer.as_ref().map(|_| now.0))
    .execute(connection)
    .await
    .map(drop)
    .map_err(|e| fault(STEP, &e))
}

pub(super) async fn conclude(
    connection: &mut SqliteConnection,
    id: CommandId,
    outcome: CommandOutcome,
    now: TimeMs,
) -> Result<(), StoreError> {
    let answer = json(&outcome, CONCLUDE)?;
    // What was written down first stands.
    let found = sqlx::query(
        "UPDATE control SET answer = CASE WHEN done_ms IS NULL THEN ?2 ELSE answer END, done_ms = coalesce(done_ms, ?3)
         WHERE seq = ?1",
    )
    .bind(id.0)
    .bind(answer)
    .bind(now.0)
    .execute(connection)
    .await
    .map_err(|e| fault(CONCLUDE, &e))?;
    if found.rows_affected() == 0 { Err(unknown(id, CONCLUDE)) } else { Ok(()) }
}

pub(super) async fn commands(
    connection: &mut SqliteConnection,
    page: CommandPage,
) -> Result<Vec<CommandRow>, StoreError> {
    let mut query = QueryBuilder::new("SELECT args, done_ms, answer, seq, at_ms, actor FROM control WHERE seq > ");
    query.push_bind(page.after.map_or(0, |id| id.0));
    if let Some(id) = page.id {
        query.push(" AND seq = ").push_bind(id.0);
    }
    if page.open {
        query.push(" AND done_ms IS NULL");
    }
    query.push(if page.newest { " ORDER BY seq DESC LIMIT " } else { " ORDER BY seq LIMIT " });
    query.push_bind(i64::try_from(page.max.min(PAGE)).unwrap_or(0));
    let rows = query.build().fetch_all(connection).await.map_err(|e| fault(LIST, &e))?;
    let listed = rows.iter().map(listed).collect::<Result<Vec<_>, _>>().map_err(|why| corrupt(LIST, why));
    listed.map(|mut commands| {
        if page.newest {
            commands.reverse();
        }
        commands
    })
}

fn listed(row: &SqliteRow) -> Result<CommandRow, Flaw> {
    Ok(CommandRow {
        id: CommandId(decode::number(row, 3)?),
        at: TimeMs(decode::number(row, 4)?),
        actor: decode::text(row, 5)?,
        command: command(row, 0).ok(),
        outcome: outcome(row, 1),
        done_at: decode::maybe(row, 1)?.map(TimeMs),
    })
}

fn command(row: &SqliteRow, at: usize) -> Result<Command, Flaw> {
    serde_json::from_str(&decode::text(row, at)?).map_err(|e| e.to_string())
}

/// What became of a command, from the time at which it was through and the words after it; `None` while it is not.
fn outcome(row: &SqliteRow, at: usize) -> Option<CommandOutcome> {
    decode::maybe(row, at).ok().flatten()?;
    let told = decode::text(row, at + 1).and_then(|json| serde_json::from_str(&json).map_err(|e| e.to_string()));
    let unread = |why| CommandOutcome { changed: 0, error: Some(format!("its outcome cannot be read: {why}")) };
    Some(told.unwrap_or_else(unread))
}

fn json(value: &impl serde::Serialize, doing: &'static str) -> Result<String, StoreError> {
    let bad = |e: serde_json::Error| StoreError { class: ErrorClass::BadRow, doing, why: e.to_string() };
    serde_json::to_string(value).map_err(bad)
}

fn unknown(id: CommandId, doing: &'static str) -> StoreError {
    StoreError { class: ErrorClass::Conflict, doing, why: format!("there is no command {}", id.0) }
}
