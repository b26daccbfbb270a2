//! The finaliser's batch: one transaction, every record decided beside its row (rules D2, D4, D5, D6).

use super::book::{Book, set_all_aside};
use crate::limits::{BATCH, check_record};
use crate::model::StoreError;
use crate::{Answer, Record};
use dispatcher_core::finalise::{self, Tally};
use dispatcher_core::id::TaskId;
use dispatcher_core::time::TimeMs;
use sqlx::sqlite::SqliteConnection;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(super) const DOING: &str = "writing a batch of results";

/// The pieces of a batch, the first last, so that they can be taken from the end.
pub(super) fn pieces(length: usize) -> Vec<Range<usize>> {
    (0..length.div_ceil(BATCH)).map(|n| n * BATCH..((n + 1) * BATCH).min(length)).rev().collect()
}

pub(super) async fn mark_done(
    connection: &mut SqliteConnection,
    records: Arc<[Record]>,
    range: Range<usize>,
    now: TimeMs,
) -> Result<Vec<Answer>, StoreError> {
    let batch = records.get(range).unwrap_or_default();
    let (mut book, flawed) = open_book(connection, batch).await?;
    let answers = batch.iter().map(|record| answer(&mut book, &flawed, record, now)).collect();
    book.write(connection).await?;
    Ok(answers)
}

/// Ends the task of one record with the database's refusal as its reason.
pub(super) async fn refuse(
    connection: &mut SqliteConnection,
    records: Arc<[Record]>,
    index: usize,
    why: String,
    now: TimeMs,
) -> Result<Answer, StoreError> {
    let batch = records.get(index..=index).unwrap_or_default();
    let (mut book, _) = open_book(connection, batch).await?;
    for record in batch {
        refuse_record(&mut book, record, &why, now);
    }
    book.write(connection).await?;
    Ok(Answer::Refused { why })
}

async fn open_book<'r>(
    connection: &mut SqliteConnection,
    batch: &[Record],
) -> Result<(Book<'r>, HashMap<TaskId, String>), StoreError> {
    let leases = || batch.iter().map(Record::lease);
    let (mut book, mut flawed) = Book::load(connection, leases().map(|l| l.task), DOING).await?;
    book.load_attempts(connection, leases().map(|l| (l.task, l.epoch)), &mut flawed).await?;
    set_all_aside(connection, &flawed, DOING).await?;
    Ok((book, flawed.into_iter().collect()))
}

fn answer<'r>(book: &mut Book<'r>, flawed: &HashMap<TaskId, String>, record: &'r Record, now: TimeMs) -> Answer {
    let lease = record.lease();
    if let Some(flaw) = flawed.get(&lease.task) {
        return Answer::Refused { why: format!("the row of task {} cannot be read: {flaw}", lease.task) };
    }
    if let Err(why) = check_record(record) {
        return refuse_record(book, record, &why, now);
    }
    let rule = |facts, attempt, policy| finalise::finalise(facts, attempt, policy, record, now);
    book.decide(lease.task, lease.epoch, rule).unwrap_or_else(|| vanished(book, record))
}

fn refuse_record(book: &mut Book<'_>, record: &Record, why: &str, now: TimeMs) -> Answer {
    let lease = record.lease();
    let rule = |facts, attempt, policy| finalise::refuse(facts, attempt, policy, record, why, now);
    book.decide(lease.task, lease.epoch, rule).unwrap_or_else(|| vanished(book, record))
}

/// A record of a task that there is not: counted, and no other record feels it.
fn vanished(book: &mut Book<'_>, record: &Record) -> Answer {
    if record.is_an_end() {
        book.count_lost(Tally::UnknownMessage, record.worker().map(|w| w.name.as_str()));
    }
    Answer::Unknown
}
