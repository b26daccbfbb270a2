//! Rows of the database as values.
//!
//! Owns two readings of a task's row: the strict one, for whatever is to be worked on, says what is wrong with a row
//! that cannot be right; the lenient one, for listings, shows such a row as well as it can.

use crate::model::{PartRef, TaskRow};
use crate::words::{ending_of, origin_of, severity_of, state_of, status_of};
use dispatcher_core::claim::Standing;
use dispatcher_core::finalise::{AttemptFacts, DispatcherId, TaskFacts, TaskState};
use dispatcher_core::id::{CorpusId, EntryName, Epoch, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// The columns that [`task`] reads, in its order.
macro_rules! task_columns {
    () => {
        "t.id, t.service, t.corpus, t.state, t.run, t.epoch, t.owner, t.charged, t.freed, t.timeout_ms, \
         t.limit_until_ms, t.not_before_ms, t.accepted_epoch, t.status, t.origin, t.last_cause, t.last_reason"
    };
}

/// The columns that [`attempt`] reads, in its order.
macro_rules! attempt_columns {
    () => {
        "a.task, a.epoch, a.run, a.dispatcher, a.worker, a.incarnation, a.handed_ms, a.began_ms, a.ended_ms, \
         a.ending, a.charged, a.why"
    };
}

pub(super) use {attempt_columns, task_columns};

/// How many columns [`task_columns`] names.
pub(super) const TASK_WIDTH: usize = 17;

/// What is wrong with a row.
pub(super) type Flaw = String;

/// A task's row, read strictly.
#[derive(Debug)]
pub(super) struct TaskParts {
    pub(super) id: TaskId,
    pub(super) service: ServiceId,
    pub(super) corpus: CorpusId,
    pub(super) facts: TaskFacts,
}

pub(super) fn number(row: &SqliteRow, at: usize) -> Result<i64, Flaw> {
    row.try_get(at).map_err(|e| e.to_string())
}

pub(super) fn maybe(row: &SqliteRow, at: usize) -> Result<Option<i64>, Flaw> {
    row.try_get(at).map_err(|e| e.to_string())
}

pub(super) fn text(row: &SqliteRow, at: usize) -> Result<String, Flaw> {
    row.try_get(at).map_err(|e| e.to_string())
}

/// A text that may be missing.
pub(super) fn words(row: &SqliteRow, at: usize) -> Result<Option<String>, Flaw> {
    row.try_get(at).map_err(|e| e.to_string())
}

pub(super) fn bytes(row: &SqliteRow, at: usize) -> Result<Vec<u8>, Flaw> {
    row.try_get(at).map_err(|e| e.to_string())
}

/// A count or a size: a number that cannot be negative.
pub(super) fn count<N: TryFrom<i64>>(row: &SqliteRow, at: usize) -> Result<N, Flaw> {
    let n = number(row, at)?;
    N::try_from(n).map_err(|_| format!("column {at} holds {n}"))
}

fn word<T>(row: &SqliteRow, at: usize, of: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Flaw> {
    let word: Option<&str> = row.try_get(at).map_err(|e| e.to_string())?;
    word.map(|w| of(w).ok_or_else(|| format!("column {at} holds the unknown word {w:?}"))).transpose()
}

pub(super) fn message_json(row: &SqliteRow, at: usize) -> Result<Option<Message>, Flaw> {
    let json: Option<&str> = row.try_get(at).map_err(|e| e.to_string())?;
    json.map(|j| serde_json::from_str(j).map_err(|e| format!("column {at} is no message: {e}"))).transpose()
}

pub(super) fn id(row: &SqliteRow, at: usize) -> Result<TaskId, Flaw> {
    number(row, at).map(TaskId)
}

pub(super) fn epoch(row: &SqliteRow, at: usize) -> Result<Epoch, Flaw> {
    count(row, at).map(Epoch)
}

pub(super) fn run(row: &SqliteRow, at: usize) -> Result<Run, Flaw> {
    let run = count(row, at).map(Run)?;
    if run < Run::FIRST { Err("its run is 0".to_owned()) } else { Ok(run) }
}

pub(super) fn task(row: &SqliteRow) -> Result<TaskParts, Flaw> {
    let facts = TaskFacts {
        state: word(row, 3, state_of)?.ok_or("it has no state")?,
        run: run(row, 4)?,
        epoch: epoch(row, 5)?,
        owner: maybe(row, 6)?.map(DispatcherId),
        charged: count(row, 7)?,
        freed: count(row, 8)?,
        timeout_ms: span(row, 9)?,
        limit_until: maybe(row, 10)?.map(TimeMs),
        not_before: TimeMs(number(row, 11)?),
        standing: standing(row, 12)?,
        last_cause: message_json(row, 15)?,
        last_reason: message_json(row, 16)?,
    };
    Ok(TaskParts { id: id(row, 0)?, service: ServiceId(number(row, 1)?), corpus: CorpusId(number(row, 2)?), facts })
}

pub(super) fn span(row: &SqliteRow, at: usize) -> Result<Option<SpanMs>, Flaw> {
    maybe(row, at)?.map(|n| u64::try_from(n).map(SpanMs).map_err(|_| format!("column {at} holds {n}"))).transpose()
}

/// What stands: claim, status and origin, in three columns that are all there or all empty.
fn standing(row: &SqliteRow, at: usize) -> Result<Option<Standing>, Flaw> {
    let epoch = maybe(row, at)?;
    match (epoch, word(row, at + 1, status_of)?, word(row, at + 2, origin_of)?) {
        (None, None, None) => Ok(None),
        (Some(epoch), Some(status), Some(origin)) => {
            let epoch = u64::try_from(epoch).map(Epoch).map_err(|_| format!("column {at} holds {epoch}"))?;
            Ok(Some(Standing { epoch, status, origin }))
        }
        _ => Err("what stands is told in part only".to_owned()),
    }
}

pub(super) fn attempt(row: &SqliteRow) -> Result<(TaskId, AttemptFacts), Flaw> {
    let dispatcher = number(row, 3)?;
    let facts = AttemptFacts {
        run: run(row, 2)?,
        epoch: epoch(row, 1)?,
        dispatcher: (dispatcher != 0).then_some(DispatcherId(dispatcher)),
        worker: worker(row, 4)?,
        handed_at: maybe(row, 6)?.map(TimeMs),
        began_at: maybe(row, 7)?.map(TimeMs),
        ended_at: maybe(row, 8)?.map(TimeMs),
        ending: ending(row, 9)?,
        charged: number(row, 10)? != 0,
        why: message_json(row, 11)?,
    };
    Ok((id(row, 0)?, facts))
}

pub(super) fn worker(row: &SqliteRow, at: usize) -> Result<Option<WorkerKey>, Flaw> {
    let name: Option<String> = row.try_get(at).map_err(|e| e.to_string())?;
    let incarnation: Option<String> = row.try_get(at + 1).map_err(|e| e.to_string())?;
    Ok(name.map(|name| WorkerKey { name, incarnation: incarnation.unwrap_or_default() }))
}

/// How an attempt ended; `None` while it is out.
pub(super) fn ending(row: &SqliteRow, at: usize) -> Result<Option<Ending>, Flaw> {
    word(row, at, ending_of)
}

pub(super) fn status(row: &SqliteRow, at: usize) -> Result<Status, Flaw> {
    word(row, at, status_of)?.ok_or_else(|| format!("column {at} has no status"))
}

pub(super) fn origin(row: &SqliteRow, at: usize) -> Result<Origin, Flaw> {
    word(row, at, origin_of)?.ok_or_else(|| format!("column {at} has no origin"))
}

/// severity, category, what, details from column `at` on.
pub(super) fn message(row: &SqliteRow, at: usize) -> Result<Message, Flaw> {
    Ok(Message {
        severity: word(row, at, severity_of)?.unwrap_or(Severity::Error),
        category: text(row, at + 1)?,
        what: text(row, at + 2)?,
        details: text(row, at + 3)?,
    })
}

/// name, place, offset, length, sha256 from column `at` on.
pub(super) fn part(row: &SqliteRow, at: usize) -> Result<PartRef, Flaw> {
    Ok(PartRef {
        name: text(row, at)?,
        place: EntryName(bytes(row, at + 1)?),
        offset: count(row, at + 2)?,
        length: count(row, at + 3)?,
        sha256: text(row, at + 4)?,
    })
}

/// A row of [`task_columns`] with entry and size after them, for a listing: what cannot be right is shown as the nearest
/// thing that can.
pub(super) fn listed(row: &SqliteRow) -> TaskRow {
    let size = |at| number(row, at).unwrap_or(0).max(0).unsigned_abs();
    let small = |at| u32::try_from(size(at)).unwrap_or(u32::MAX);
    TaskRow {
        id: TaskId(number(row, 0).unwrap_or(0)),
        service: ServiceId(number(row, 1).unwrap_or(0)),
        corpus: CorpusId(number(row, 2).unwrap_or(0)),
        entry: EntryName(bytes(row, TASK_WIDTH).unwrap_or_default()),
        input_size: size(TASK_WIDTH + 1),
        state: word(row, 3, state_of).ok().flatten().unwrap_or(TaskState::Dead),
        run: Run(small(4)),
        epoch: Epoch(size(5)),
        charged: small(7),
        standing: standing(row, 12).unwrap_or(None),
        not_before: TimeMs(number(row, 11).unwrap_or(0)),
        last_cause: message_json(row, 15).unwrap_or(None),
        last_reason: message_json(row, 16).unwrap_or(None),
        worst: None,
    }
}

/// State and status in the first two columns of a count; a state that there is not counts as dead.
pub(super) fn state_and_status(row: &SqliteRow) -> (TaskState, Option<Status>) {
    state_and_status_at(row, 0)
}

/// The same from column `at` on.
pub(super) fn state_and_status_at(row: &SqliteRow, at: usize) -> (TaskState, Option<Status>) {
    let state = word(row, at, state_of).ok().flatten().unwrap_or(TaskState::Dead);
    (state, word(row, at + 1, status_of).ok().flatten())
}
