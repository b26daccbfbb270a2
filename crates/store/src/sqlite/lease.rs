//! Who is there, who has what, and the claim.

use super::book;
use super::bulk::Bulk;
use super::decode::{self, Flaw};
use super::error::fault;
use crate::DispatcherId;
use crate::limits::{PAGE, limit_after_takeover};
use crate::model::{Claim, ClaimedTask, DispatcherInfo, OpenLease, StoreError};
use dispatcher_core::id::{CorpusId, EntryName, Epoch, LeaseId, ServiceId, TaskId};
use dispatcher_core::retry::MAX_DELAY;
use dispatcher_core::time::{SpanMs, TimeMs};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const REGISTER: &str = "registering a dispatcher";
pub(super) const ADOPT: &str = "taking over leases";
pub(super) const CLAIM: &str = "claiming tasks";

/// Claims that went nowhere, because their caller stopped waiting; the next claim gives them back.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Arc<Mutex<Vec<LeaseId>>>);

/// Claimed tasks on their way to the caller. Where they do not arrive, they count as lost.
#[derive(Debug)]
pub(super) struct Handover {
    tasks: Vec<ClaimedTask>,
    lost: Lost,
}

impl Lost {
    fn add(&self, leases: impl Iterator<Item = LeaseId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(leases);
    }

    fn take(&self) -> Vec<LeaseId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Handover {
    /// The caller has them.
    pub(super) fn take(mut self) -> Vec<ClaimedTask> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.lost.add(self.tasks.iter().map(|t| t.lease));
    }
}

/// One in so many claimed tasks is taken from the lowest priority.
const TURNS: i64 = crate::limits::TURNS as i64;

/// Of service ?1 up to ?2 ready tasks, best first. Those whose turn it is, one in ?3 claimed tasks, are the lowest ids of
/// the lowest priority that has any; where there is one priority only, that is the same as without turns.
const READY: &str = "
WITH lowest AS MATERIALIZED (
  SELECT t.id FROM tasks t INDEXED BY tasks_ready
  WHERE t.service = ?1 AND t.state = 'ready' AND t.not_before_ms = 0
    AND t.priority = (SELECT p.priority FROM tasks p INDEXED BY tasks_ready
      WHERE p.service = ?1 AND p.state = 'ready' AND p.not_before_ms = 0 ORDER BY p.priority LIMIT 1)
  ORDER BY t.id LIMIT (?2 + (SELECT turn FROM services WHERE id = ?1)) / ?3),
best AS MATERIALIZED (
  SELECT t.id FROM tasks t INDEXED BY tasks_ready
  WHERE t.service = ?1 AND t.state = 'ready' AND t.not_before_ms = 0 AND t.id NOT IN (SELECT id FROM lowest)
  ORDER BY t.priority DESC, t.id LIMIT ?2 - (SELECT count(*) FROM lowest))
SELECT t.id, t.run, t.epoch, t.corpus, t.entry, t.input_size, t.input_mtime_ns, t.charged,
  coalesce(t.timeout_ms, s.timeout_ms), t.last_cause
FROM services s CROSS JOIN (SELECT id FROM lowest UNION ALL SELECT id FROM best) v CROSS JOIN tasks t ON t.id = v.id
WHERE s.id = ?1 AND NOT s.paused
ORDER BY t.priority DESC, t.id";

pub(super) async fn register(
    connection: &mut SqliteConnection,
    dispatcher: DispatcherInfo,
    now: TimeMs,
) -> Result<DispatcherId, StoreError> {
    sqlx::query_scalar(
        "INSERT INTO dispatchers (id, host, endpoint, beat_ms, state) VALUES (?1, ?2, ?3, ?4, 'live')
         ON CONFLICT (id) DO UPDATE SET host = excluded.host, endpoint = excluded.endpoint, beat_ms = excluded.beat_ms,
           state = 'live'
         RETURNING id",
    )
    .bind(dispatcher.id.map(|d| d.0))
    .bind(dispatcher.host)
    .bind(dispatcher.endpoint)
    .bind(now.0)
    .fetch_one(connection)
    .await
    .map(DispatcherId)
    .map_err(|e| fault(REGISTER, &e))
}

pub(super) async fn claim(
    connection: &mut SqliteConnection,
    ask: Claim,
    now: TimeMs,
    lost: Lost,
) -> Result<Handover, StoreError> {
    let given_up = lost.take();
    let claimed = async {
        give_back(connection, &given_up).await?;
        claim_ready(connection, &ask, now).await
    };
    match claimed.await {
        Ok(tasks) => Ok(Handover { tasks, lost }),
        Err(e) => {
            lost.add(given_up.into_iter());
            Err(e)
        }
    }
}

async fn claim_ready(
    connection: &mut SqliteConnection,
    ask: &Claim,
    now: TimeMs,
) -> Result<Vec<ClaimedTask>, StoreError> {
    let failed = |e: sqlx::Error| fault(CLAIM, &e);
    let most = i64::try_from(ask.max.min(PAGE)).unwrap_or(0);
    wake_delayed(connection, ask.service, now).await?;
    let rows = sqlx::query(READY)
        .bind(ask.service.0)
        .bind(most)
        .bind(TURNS)
        .fetch_all(&mut *connection)
        .await
        .map_err(failed)?;
    let (tasks, flawed) = sort_out(&rows, |row| claimed_task(row, ask.service, 1));
    book::set_all_aside(connection, &flawed, CLAIM).await?;
    if tasks.is_empty() {
        return Ok(tasks);
    }
    let ids = Bulk::numbers(tasks.iter().map(|t| t.lease.task.0));
    sqlx::query(
        "UPDATE tasks SET state = 'leased', epoch = epoch + 1, owner = ?2, limit_until_ms = NULL,
           timeout_ms = coalesce(timeout_ms, (SELECT s.timeout_ms FROM services s WHERE s.id = ?3))
         WHERE id IN (SELECT value FROM json_each(?1))",
    )
    .bind(ids.into_json())
    .bind(ask.dispatcher.0)
    .bind(ask.service.0)
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    sqlx::query("UPDATE services SET turn = (turn + ?2) % ?3 WHERE id = ?1")
        .bind(ask.service.0)
        .bind(i64::try_from(tasks.len()).unwrap_or(0))
        .bind(TURNS)
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(tasks)
}

/// Makes delayed tasks claimable whose time has come. One that waits longer than any delay was written under a clock
/// that has been set back since; it is due as well.
async fn wake_delayed(connection: &mut SqliteConnection, service: ServiceId, now: TimeMs) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE tasks SET not_before_ms = 0 WHERE id IN (
           SELECT id FROM tasks INDEXED BY tasks_delayed WHERE service = ?1 AND state = 'ready' AND not_before_ms <> 0
             AND (not_before_ms <= ?2 OR not_before_ms > ?3) ORDER BY not_before_ms, id LIMIT ?4)",
    )
    .bind(service.0)
    .bind(now.0)
    .bind(now.after(MAX_DELAY).0)
    .bind(i64::try_from(PAGE).unwrap_or(0))
    .execute(connection)
    .await
    .map(drop)
    .map_err(|e| fault(CLAIM, &e))
}

/// Gives claims back that never reached their caller: nothing was handed out under them.
async fn give_back(connection: &mut SqliteConnection, leases: &[LeaseId]) -> Result<(), StoreError> {
    if leases.is_empty() {
        return Ok(());
    }
    let mut bulk = Bulk::new();
    for lease in leases {
        let epoch = i64::try_from(lease.epoch.0).unwrap_or(i64::MAX);
        bulk.row().int(lease.task.0).int(i64::from(lease.run.0)).int(epoch).end();
    }
    sqlx::query(
        "UPDATE tasks SET owner = NULL, state = CASE state WHEN 'leased' THEN 'ready' ELSE state END
         FROM (SELECT value ->> 0 AS id, value ->> 1 AS run, value ->> 2 AS epoch FROM jsonb_each(?1)) v
         WHERE tasks.id = v.id AND tasks.run = v.run AND tasks.epoch = v.epoch AND owner IS NOT NULL",
    )
    .bind(bulk.into_json())
    .execute(connection)
    .await
    .map(drop)
    .map_err(|e| fault(CLAIM, &e))
}

pub(super) async fn adopt(
    connection: &mut SqliteConnection,
    by: DispatcherId,
    gone: Option<Vec<DispatcherId>>,
    now: TimeMs,
) -> Result<Vec<OpenLease>, StoreError> {
    let failed = |e: sqlx::Error| fault(ADOPT, &e);
    let all = gone.is_none();
    let gone = Bulk::numbers(gone.unwrap_or_default().into_iter().map(|d| d.0)).into_json();
    let rows = sqlx::query(
        "SELECT t.id, t.run, t.epoch, t.corpus, t.entry, t.input_size, t.input_mtime_ns, t.charged,
           coalesce(t.timeout_ms, s.timeout_ms, 0), t.last_cause, t.service, a.worker, a.incarnation, a.handed_ms,
           a.began_ms, t.limit_until_ms
         FROM tasks t INDEXED BY tasks_owned LEFT JOIN services s ON s.id = t.service
           LEFT JOIN attempts a ON a.task = t.id AND a.epoch = t.epoch
         WHERE t.owner IS NOT NULL AND t.owner <> ?2
           AND (?3 OR t.owner IN (SELECT value FROM json_each(?1)))
         ORDER BY t.id",
    )
    .bind(&gone)
    .bind(by.0)
    .bind(all)
    .fetch_all(&mut *connection)
    .await
    .map_err(failed)?;
    let (leases, flawed) = sort_out(&rows, |row| open_lease(row, now));
    book::set_all_aside(connection, &flawed, ADOPT).await?;
    let ids = Bulk::numbers(leases.iter().map(|l| l.task.lease.task.0));
    sqlx::query("UPDATE tasks SET owner = ?2 WHERE id IN (SELECT value FROM json_each(?1))")
        .bind(ids.into_json())
        .bind(by.0)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    // Nobody notes the workers of a dispatcher that is gone.
    sqlx::query(
        "UPDATE workers SET connected = 0 WHERE connected = 1 AND dispatcher <> ?2
           AND (?3 OR dispatcher IN (SELECT value FROM json_each(?1)))",
    )
    .bind(gone)
    .bind(by.0)
    .bind(all)
    .execute(connection)
    .await
    .map_err(failed)?;
    Ok(leases)
}

/// Reads each row; those that cannot be right are returned apart, so that they fail nothing else.
fn sort_out<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T, Flaw>) -> (Vec<T>, Vec<(TaskId, Flaw)>) {
    let mut good = Vec::with_capacity(rows.len());
    let mut flawed = Vec::new();
    for row in rows {
        match (read(row), decode::id(row, 0)) {
            (Ok(value), _) => good.push(value),
            (Err(flaw), Ok(id)) => flawed.push((id, flaw)),
            (Err(_), Err(_)) => {}
        }
    }
    (good, flawed)
}

/// A row of a claim: `step` is what the claim will add to its epoch.
fn claimed_task(row: &SqliteRow, service: ServiceId, step: u64) -> Result<ClaimedTask, Flaw> {
    let epoch = decode::epoch(row, 2)?;
    Ok(ClaimedTask {
        lease: LeaseId { task: decode::id(row, 0)?, run: decode::run(row, 1)?, epoch: Epoch(epoch.0 + step) },
        service,
        corpus: CorpusId(decode::number(row, 3)?),
        entry: EntryName(decode::bytes(row, 4)?),
        input_size: decode::count(row, 5)?,
        input_mtime_ns: decode::number(row, 6)?,
        charged: decode::count(row, 7)?,
        timeout_ms: decode::span(row, 8)?.unwrap_or(SpanMs::ZERO),
        last_cause: decode::message_json(row, 9)?,
    })
}

fn open_lease(row: &SqliteRow, now: TimeMs) -> Result<OpenLease, Flaw> {
    let task = claimed_task(row, ServiceId(decode::number(row, 10)?), 0)?;
    let stored = decode::maybe(row, 15)?.map(TimeMs);
    Ok(OpenLease {
        limit_until: limit_after_takeover(stored, &task, now),
        task,
        worker: decode::worker(row, 11)?,
        handed_at: decode::maybe(row, 13)?.map(TimeMs),
        began_at: decode::maybe(row, 14)?.map(TimeMs),
    })
}
