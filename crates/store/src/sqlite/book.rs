//! Rows of tasks on the desk of one transaction: loaded, decided upon, written back.
//!
//! Owns the way from decisions of [`dispatcher_core::finalise`] to statements: one for each table, whatever the batch.
//! Every update is fenced by the run and the epoch that were read.

use super::bulk::Bulk;
use super::decode::{self, Flaw, attempt_columns, task_columns};
use super::error::fault;
use super::setup::corrupt;
use crate::limits::worst;
use crate::model::{ErrorClass, StoreError};
use crate::words::{origin_word, tally_word};
use dispatcher_core::claim::Standing;
use dispatcher_core::finalise::{
    Answer, AttemptFacts, Decision, Move, Papers, PartRef, Policy, Tally, TaskFacts, own_reason,
};
use dispatcher_core::id::{CorpusId, Epoch, LeaseId, Run, ServiceId, TaskId};
use dispatcher_core::report::Message;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The tasks of one transaction, in id order.
#[derive(Debug)]
pub(super) struct Book<'r> {
    doing: &'static str,
    tasks: BTreeMap<TaskId, Page<'r>>,
    counters: BTreeMap<Counter, i64>,
    /// Filings so far: the order of commits.
    filings: usize,
}

/// One task.
#[derive(Debug)]
pub(super) struct Page<'r> {
    service: ServiceId,
    corpus: CorpusId,
    policy: Policy,
    /// Run and epoch as they were read: the fence of the update.
    fence: (Run, Epoch),
    facts: TaskFacts,
    changed: bool,
    attempts: HashMap<Epoch, (AttemptFacts, bool)>,
    sheets: BTreeMap<Epoch, Sheet<'r>>,
    /// Whether results that wait to be published are overtaken by one filed here.
    overtakes: bool,
    published: Vec<Epoch>,
}

/// What is to be stored under one epoch.
#[derive(Debug, Default)]
struct Sheet<'r> {
    filing: Option<Filing>,
    papers: Option<Papers<'r>>,
    /// Whether something may be stored under the epoch already.
    replaces: bool,
}

#[derive(Clone, Copy, Debug)]
struct Filing {
    order: usize,
    run: Run,
    standing: Standing,
    overtaken: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counter {
    dispatcher: i64,
    service: i64,
    corpus: i64,
    worker: String,
    kind: &'static str,
}

impl<'r> Book<'r> {
    /// Reads the rows of `ids`. Those that cannot be right come back apart.
    pub(super) async fn load(
        connection: &mut SqliteConnection,
        ids: impl Iterator<Item = TaskId>,
        doing: &'static str,
    ) -> Result<(Self, Vec<(TaskId, Flaw)>), StoreError> {
        let failed = |e: sqlx::Error| fault(doing, &e);
        let policies = policies(connection).await.map_err(failed)?;
        let ids: BTreeSet<i64> = ids.map(|id| id.0).collect();
        let rows = sqlx::query(concat!(
            "SELECT ",
            task_columns!(),
            " FROM json_each(?1) v CROSS JOIN tasks t ON t.id = v.value"
        ))
        .bind(Bulk::numbers(ids).into_json())
        .fetch_all(connection)
        .await
        .map_err(failed)?;
        let mut book = Self { doing, tasks: BTreeMap::new(), counters: BTreeMap::new(), filings: 0 };
        let mut flawed = Vec::new();
        for row in &rows {
            match page(row, &policies) {
                Ok((id, page)) => drop(book.tasks.insert(id, page)),
                Err(flaw) => flawed.push((decode::id(row, 0).map_err(|why| corrupt(doing, why))?, flaw)),
            }
        }
        Ok((book, flawed))
    }

    /// Reads the attempts of `epochs`. A task with one that cannot be right leaves the book.
    pub(super) async fn load_attempts(
        &mut self,
        connection: &mut SqliteConnection,
        epochs: impl Iterator<Item = (TaskId, Epoch)>,
        flawed: &mut Vec<(TaskId, Flaw)>,
    ) -> Result<(), StoreError> {
        let doing = self.doing;
        let mut pairs = Bulk::new();
        for (task, epoch) in epochs {
            pairs.row().int(task.0).opt(i64::try_from(epoch.0).ok()).end();
        }
        let rows = sqlx::query(concat!(
            "SELECT ",
            attempt_columns!(),
            " FROM jsonb_each(?1) v CROSS JOIN attempts a ON a.task = v.value ->> 0 AND a.epoch = v.value ->> 1"
        ))
        .bind(pairs.into_json())
        .fetch_all(connection)
        .await
        .map_err(|e| fault(doing, &e))?;
        for row in &rows {
            match decode::attempt(row) {
                Ok((id, attempt)) => {
                    if let Some(page) = self.tasks.get_mut(&id) {
                        page.attempts.insert(attempt.epoch, (attempt, false));
                    }
                }
                Err(flaw) => {
                    let id = decode::id(row, 0).map_err(|why| corrupt(doing, why))?;
                    self.tasks.remove(&id);
                    flawed.push((id, flaw));
                }
            }
        }
        Ok(())
    }

    /// Each task and its newest claim, in id order.
    pub(super) fn newest(&self) -> Vec<(TaskId, Epoch)> {
        self.tasks.iter().map(|(id, page)| (*id, page.facts.epoch)).collect()
    }

    /// The newest claim of each task whose lease is open, in id order.
    pub(super) fn open_leases(&self) -> Vec<LeaseId> {
        let open = self.tasks.iter().filter(|(_, page)| page.facts.owner.is_some());
        open.map(|(id, page)| LeaseId { task: *id, run: page.facts.run, epoch: page.facts.epoch }).collect()
    }

    /// Decides something about a task with `rule`, which gets the facts, the attempt of `epoch` and what the service
    /// says. `None` where there is no such task.
    pub(super) fn decide(
        &mut self,
        id: TaskId,
        epoch: Epoch,
        rule: impl FnOnce(TaskFacts, Option<AttemptFacts>, Policy) -> Decision<'r>,
    ) -> Option<Answer> {
        let page = self.tasks.get_mut(&id)?;
        let known = page.attempts.remove(&epoch);
        let was_changed = known.as_ref().is_some_and(|(_, changed)| *changed);
        // Nothing is stored yet under a claim whose lease is open: whatever ends an attempt closes its lease.
        let replaces = page.facts.owner.is_none() || page.facts.epoch != epoch;
        let stood = page.facts.standing;
        let mut decision = rule(page.facts.clone(), known.map(|(a, _)| a), page.policy);
        page.changed |= decision.task_changed;
        if let Some(attempt) = decision.attempt.take() {
            page.attempts.insert(epoch, (attempt, was_changed || decision.attempt_changed));
        }
        if decision.published {
            page.published.push(epoch);
        }
        page.facts = decision.task;
        if let Some(papers) = decision.papers {
            let filing = decision.filed.map(|standing| Filing {
                order: self.filings,
                run: page.facts.run,
                standing,
                overtaken: false,
            });
            page.put(epoch, papers, filing, replaces, stood.is_some());
            self.filings += 1;
        }
        let place = (page.service, page.corpus);
        for m in decision.moves {
            self.count(place, m);
        }
        Some(decision.answer)
    }

    /// Counts something that belongs to no task we have.
    pub(super) fn count_lost(&mut self, tally: Tally, worker: Option<&str>) {
        let m = Move { tally, by: 1, dispatcher: None, worker: worker.map(ToOwned::to_owned) };
        self.count((ServiceId(0), CorpusId(0)), m);
    }

    fn count(&mut self, (service, corpus): (ServiceId, CorpusId), m: Move) {
        let counter = Counter {
            dispatcher: m.dispatcher.map_or(0, |d| d.0),
            service: service.0,
            corpus: corpus.0,
            worker: m.worker.unwrap_or_default(),
            kind: tally_word(m.tally),
        };
        *self.counters.entry(counter).or_default() += m.by;
    }

    /// Writes all that changed. The counters come last: they are the rows that others want too.
    pub(super) async fn write(self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        self.write_tasks(connection).await?;
        self.write_attempts(connection).await?;
        self.clear(connection).await?;
        self.write_results(connection).await?;
        self.write_papers(connection).await?;
        self.mark_published(connection).await?;
        self.write_counters(connection).await
    }

    async fn write_tasks(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut rows = Bulk::new();
        for (id, page) in self.tasks.iter().filter(|(_, page)| page.changed) {
            let facts = &page.facts;
            rows.row()
                .int(id.0)
                .int(i64::from(page.fence.0.0))
                .int(signed(page.fence.1.0))
                .word(facts.state.as_str())
                .int(i64::from(facts.run.0))
                .opt(facts.owner.map(|o| o.0))
                .int(i64::from(facts.charged))
                .int(i64::from(facts.freed))
                .opt(facts.timeout_ms.map(|t| signed(t.0)))
                .opt(facts.limit_until.map(|t| t.0))
                .int(facts.not_before.0)
                .opt(facts.standing.map(|s| signed(s.epoch.0)))
                .opt_word(facts.standing.map(|s| s.status.as_str()))
                .opt_word(facts.standing.map(|s| origin_word(s.origin)))
                .opt_bytes(json(facts.last_cause.as_ref()))
                .opt_bytes(json(facts.last_reason.as_ref()))
                .end();
        }
        let expected = rows.len() as u64;
        let written = self.run(connection, &rows, WRITE_TASKS).await?;
        if written == expected {
            return Ok(());
        }
        let why = format!("{expected} rows were read and {written} found again within one transaction");
        Err(StoreError { class: ErrorClass::Corrupt, doing: self.doing, why })
    }

    async fn write_attempts(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut rows = Bulk::new();
        for (id, page) in &self.tasks {
            for (attempt, _) in page.attempts.values().filter(|(_, changed)| *changed) {
                rows.row()
                    .int(id.0)
                    .int(signed(attempt.epoch.0))
                    .int(i64::from(attempt.run.0))
                    .int(attempt.dispatcher.map_or(0, |d| d.0))
                    .opt(attempt.handed_at.map(|t| t.0))
                    .opt(attempt.began_at.map(|t| t.0))
                    .opt(attempt.ended_at.map(|t| t.0))
                    .opt_word(attempt.ending.map(dispatcher_core::report::Ending::as_str))
                    .int(i64::from(attempt.charged))
                    .opt_bytes(attempt.worker.as_ref().map(|w| &w.name))
                    .opt_bytes(attempt.worker.as_ref().map(|w| &w.incarnation))
                    .opt_bytes(json(attempt.why.as_ref()))
                    .end();
            }
        }
        self.run(connection, &rows, WRITE_ATTEMPTS).await.map(drop)
    }

    /// Takes away what is replaced, and marks what is overtaken.
    async fn clear(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let (mut results, mut papers, mut overtaken) = (Bulk::new(), Bulk::new(), Vec::new());
        for (id, page) in &self.tasks {
            for (epoch, sheet) in page.sheets.iter().filter(|(_, sheet)| sheet.replaces) {
                papers.row().int(id.0).int(signed(epoch.0)).end();
                if sheet.filing.is_some() {
                    results.row().int(id.0).int(signed(epoch.0)).end();
                }
            }
            if page.overtakes {
                overtaken.push(id.0);
            }
        }
        self.run(connection, &results, CLEAR_RESULTS).await?;
        self.run(connection, &papers, CLEAR_PARTS).await?;
        self.run(connection, &papers, CLEAR_MESSAGES).await?;
        self.run(connection, &Bulk::numbers(overtaken), OVERTAKE).await.map(drop)
    }

    async fn write_results(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut filed: Vec<(usize, TaskId, &Filing, Option<&Papers<'r>>)> = Vec::new();
        for (id, page) in &self.tasks {
            for sheet in page.sheets.values() {
                filed.extend(sheet.filing.as_ref().map(|f| (f.order, *id, f, sheet.papers.as_ref())));
            }
        }
        filed.sort_by_key(|(order, ..)| *order);
        let mut rows = Bulk::new();
        for (_, id, filing, papers) in filed {
            let gravest = papers.and_then(|p| worst(p.all_messages()));
            let nothing_to_place = papers.is_none_or(|p| !p.parts.iter().any(PartRef::is_to_be_placed));
            let published = if nothing_to_place { 1 } else { i64::from(filing.overtaken) * 2 };
            rows.row()
                .int(id.0)
                .int(signed(filing.standing.epoch.0))
                .int(i64::from(filing.run.0))
                .word(filing.standing.status.as_str())
                .word(origin_word(filing.standing.origin))
                .int(published)
                .opt_bytes(gravest.map(|m| &m.category))
                .opt_bytes(gravest.map(|m| &m.what))
                .end();
        }
        self.run(connection, &rows, WRITE_RESULTS).await.map(drop)
    }

    async fn write_papers(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let (mut parts, mut messages) = (Bulk::new(), Bulk::new());
        for (id, page) in &self.tasks {
            for (epoch, papers) in page.sheets.iter().filter_map(|(e, s)| s.papers.as_ref().map(|p| (e, p))) {
                for (n, part) in (0..).zip(papers.parts) {
                    let row = parts.row().int(id.0).int(signed(epoch.0)).int(n).int(signed(part.offset));
                    let row = row.int(signed(part.length)).bytes(&part.name).bytes(&part.place.0);
                    row.bytes(&part.sha256).end();
                }
                for (n, m) in (0..).zip(papers.all_messages()) {
                    let row = messages.row().int(id.0).int(signed(epoch.0)).int(n);
                    let row = row.word(crate::words::severity_word(m.severity)).bytes(&m.category);
                    row.bytes(&m.what).bytes(&m.details).end();
                }
            }
        }
        self.name_packs(connection).await?;
        self.run(connection, &parts, WRITE_PARTS).await?;
        self.run(connection, &messages, WRITE_MESSAGES).await.map(drop)
    }

    /// Gives the packs that are new here their numbers.
    async fn name_packs(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let sheets = self.tasks.values().flat_map(|page| page.sheets.values());
        let parts = sheets.filter_map(|sheet| sheet.papers.as_ref()).flat_map(|papers| papers.parts);
        let places: BTreeSet<&[u8]> =
            parts.filter(|part| part.is_packed()).map(|part| part.place.0.as_slice()).collect();
        let mut rows = Bulk::new();
        places.iter().for_each(|place| rows.row().bytes(place).end());
        self.run(connection, &rows, NAME_PACKS).await.map(drop)
    }

    async fn mark_published(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut rows = Bulk::new();
        for (id, page) in &self.tasks {
            for epoch in &page.published {
                rows.row().int(id.0).int(signed(epoch.0)).end();
            }
        }
        self.run(connection, &rows, MARK_PUBLISHED).await.map(drop)
    }

    async fn write_counters(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut rows = Bulk::new();
        for (counter, by) in self.counters.iter().filter(|(_, by)| **by != 0) {
            let row = rows.row().int(counter.dispatcher).int(counter.service).int(counter.corpus);
            row.word(counter.kind).int(*by).bytes(&counter.worker).end();
        }
        self.run(connection, &rows, WRITE_COUNTERS).await.map(drop)
    }

    /// Runs a statement over rows; none is run for none.
    async fn run(&self, connection: &mut SqliteConnection, rows: &Bulk, sql: &'static str) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let done = rows.query(sql).execute(connection).await;
        done.map(|d| d.rows_affected()).map_err(|e| fault(self.doing, &e))
    }
}

impl<'r> Page<'r> {
    fn put(&mut self, epoch: Epoch, papers: Papers<'r>, filing: Option<Filing>, replaces: bool, stood: bool) {
        if filing.is_some() {
            // What this task filed earlier in the same batch is overtaken like what is in the database.
            for earlier in self.sheets.values_mut().filter_map(|sheet| sheet.filing.as_mut()) {
                earlier.overtaken = true;
            }
            self.overtakes |= stood || self.facts.run > Run::FIRST;
            // A mark that came before this result was about what it replaces.
            self.published.retain(|marked| *marked != epoch);
        }
        let sheet = self.sheets.entry(epoch).or_default();
        sheet.filing = filing.or(sheet.filing);
        sheet.replaces |= replaces;
        sheet.papers = Some(papers);
    }
}

/// What each service says about its tasks.
async fn policies(connection: &mut SqliteConnection) -> Result<HashMap<ServiceId, Policy>, sqlx::Error> {
    let rows = sqlx::query("SELECT id, budget, retry_delay_ms FROM services").fetch_all(connection).await?;
    let read = |row: &SqliteRow| {
        let budget = decode::count(row, 1).ok()?;
        let retry_delay_ms = decode::span(row, 2).ok()??;
        Some((ServiceId(decode::number(row, 0).ok()?), Policy { budget, retry_delay_ms }))
    };
    Ok(rows.iter().filter_map(read).collect())
}

fn page<'r>(row: &SqliteRow, policies: &HashMap<ServiceId, Policy>) -> Result<(TaskId, Page<'r>), Flaw> {
    let task = decode::task(row)?;
    let policy = policies.get(&task.service).copied().ok_or("its service is missing")?;
    let page = Page {
        service: task.service,
        corpus: task.corpus,
        policy,
        fence: (task.facts.run, task.facts.epoch),
        facts: task.facts,
        changed: false,
        attempts: HashMap::new(),
        sheets: BTreeMap::new(),
        overtakes: false,
        published: Vec::new(),
    };
    Ok((task.id, page))
}

/// Ends a task whose row cannot be right, with the reason, so that nothing stumbles over it again.
async fn set_aside(
    connection: &mut SqliteConnection,
    id: i64,
    reason: &Message,
    doing: &'static str,
) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| fault(doing, &e);
    sqlx::query(
        "UPDATE tasks SET state = 'dead', run = max(run, 1), epoch = max(epoch, 0), charged = max(charged, 0),
           freed = max(freed, 0), input_size = max(input_size, 0), timeout_ms = NULL, not_before_ms = 0, owner = NULL,
           limit_until_ms = NULL, accepted_epoch = max(epoch, 0), status = 'fatal', origin = 'reaper_stand_in',
           last_cause = NULL, last_reason = ?2 WHERE id = ?1",
    )
    .bind(id)
    .bind(json(Some(reason)))
    .execute(&mut *connection)
    .await
    .map_err(failed)?;
    for sql in SET_ASIDE {
        let query = sqlx::query(sql).bind(id).bind(&reason.category).bind(&reason.what).bind(&reason.details);
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    tracing::warn!(task = id, reason = %reason.details, "a row that cannot be read was set aside");
    Ok(())
}

fn json(message: Option<&Message>) -> Option<String> {
    // A message always has a form in JSON; where it did not, the reason would be lost, not the row.
    message.and_then(|m| serde_json::to_string(m).ok())
}

/// What was checked to fit ([`crate::limits`]).
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Ends tasks whose rows cannot be right, so that they fail nothing else.
pub(super) async fn set_all_aside(
    connection: &mut SqliteConnection,
    flawed: &[(TaskId, Flaw)],
    doing: &'static str,
) -> Result<(), StoreError> {
    for (id, flaw) in flawed {
        set_aside(connection, id.0, &own_reason("unreadable_row", flaw), doing).await?;
    }
    Ok(())
}

const WRITE_TASKS: &str = "
UPDATE tasks SET state = v.state, run = v.run, owner = v.owner, charged = v.charged, freed = v.freed,
  timeout_ms = v.timeout, limit_until_ms = v.limit_until, not_before_ms = v.not_before, accepted_epoch = v.accepted,
  status = v.status, origin = v.origin, last_cause = CAST(substr(?2, v.cause, v.cause_length) AS TEXT),
  last_reason = CAST(substr(?2, v.reason, v.reason_length) AS TEXT)
FROM (SELECT value ->> 0 AS id, value ->> 1 AS run0, value ->> 2 AS epoch0, value ->> 3 AS state, value ->> 4 AS run,
    value ->> 5 AS owner, value ->> 6 AS charged, value ->> 7 AS freed, value ->> 8 AS timeout,
    value ->> 9 AS limit_until, value ->> 10 AS not_before, value ->> 11 AS accepted, value ->> 12 AS status,
    value ->> 13 AS origin, value ->> 14 AS cause, value ->> 15 AS cause_length, value ->> 16 AS reason,
    value ->> 17 AS reason_length FROM jsonb_each(?1)) v
WHERE tasks.id = v.id AND tasks.run = v.run0 AND tasks.epoch = v.epoch0";

const WRITE_ATTEMPTS: &str = "
INSERT INTO attempts (task, epoch, run, dispatcher, handed_ms, began_ms, ended_ms, ending, charged, worker,
  incarnation, why)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8, CAST(substr(?2, value ->> 9, value ->> 10) AS TEXT),
  CAST(substr(?2, value ->> 11, value ->> 12) AS TEXT), CAST(substr(?2, value ->> 13, value ->> 14) AS TEXT)
FROM jsonb_each(?1) WHERE true
ON CONFLICT (task, epoch) DO UPDATE SET dispatcher = excluded.dispatcher, handed_ms = excluded.handed_ms,
  began_ms = excluded.began_ms, ended_ms = excluded.ended_ms, ending = excluded.ending, charged = excluded.charged,
  worker = excluded.worker, incarnation = excluded.incarnation, why = excluded.why";

const CLEAR_RESULTS: &str =
    "DELETE FROM results WHERE (task, epoch) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(?1))";

const CLEAR_PARTS: &str =
    "DELETE FROM parts WHERE (task, epoch) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(?1))";

const CLEAR_MESSAGES: &str =
    "DELETE FROM messages WHERE (task, epoch) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(?1))";

const OVERTAKE: &str = "
UPDATE results SET published = 2
WHERE published = 0 AND task IN (SELECT value FROM json_each(?1))";

const WRITE_RESULTS: &str = "
INSERT INTO results (task, epoch, run, status, origin, published, category, what)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
  CAST(substr(?2, value ->> 6, value ->> 7) AS TEXT), CAST(substr(?2, value ->> 8, value ->> 9) AS TEXT)
FROM jsonb_each(?1) ORDER BY key";

const WRITE_PARTS: &str = "
INSERT INTO parts (task, epoch, n, \"offset\", length, name, pack, place, sha256)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
  CAST(substr(?2, value ->> 5, value ->> 6) AS TEXT),
  CASE WHEN value ->> 3 > 0 THEN (SELECT id FROM packs WHERE place = substr(?2, value ->> 7, value ->> 8)) END,
  CASE WHEN value ->> 3 > 0 THEN x'' ELSE substr(?2, value ->> 7, value ->> 8) END,
  CAST(substr(?2, value ->> 9, value ->> 10) AS TEXT)
FROM jsonb_each(?1)";

/// Looked for first: an insert that meets its own place uses up a number.
const NAME_PACKS: &str = "
INSERT INTO packs (place) SELECT substr(?2, value ->> 0, value ->> 1) FROM jsonb_each(?1)
WHERE NOT EXISTS (SELECT 1 FROM packs WHERE place = substr(?2, value ->> 0, value ->> 1))";

const WRITE_MESSAGES: &str = "
INSERT INTO messages (task, epoch, n, severity, category, what, details)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, CAST(substr(?2, value ->> 4, value ->> 5) AS TEXT),
  CAST(substr(?2, value ->> 6, value ->> 7) AS TEXT), CAST(substr(?2, value ->> 8, value ->> 9) AS TEXT)
FROM jsonb_each(?1)";

const MARK_PUBLISHED: &str = "
UPDATE results SET published = 1
WHERE published <> 1
  AND (task, epoch) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(?1))";

const WRITE_COUNTERS: &str = "
INSERT INTO counters (dispatcher, service, corpus, worker, kind, n)
SELECT value ->> 0, value ->> 1, value ->> 2, CAST(substr(?2, value ->> 5, value ->> 6) AS TEXT), value ->> 3,
  value ->> 4
FROM jsonb_each(?1) WHERE true
ON CONFLICT (dispatcher, service, corpus, worker, kind) DO UPDATE SET n = n + excluded.n";

/// ?1 task, ?2 category, ?3 what, ?4 details; the task's epoch is read from its row.
const SET_ASIDE: [&str; 5] = [
    "INSERT INTO results (task, epoch, run, status, origin, published, category, what)
     SELECT id, epoch, run, 'fatal', 'reaper_stand_in', 1, ?2, ?3 FROM tasks WHERE id = ?1
     ON CONFLICT (task, epoch) DO NOTHING",
    "INSERT INTO messages (task, epoch, n, severity, category, what, details)
     SELECT id, epoch, 0, 'fatal', ?2, ?3, ?4 FROM tasks WHERE id = ?1
     ON CONFLICT (task, epoch, n) DO NOTHING",
    "INSERT INTO counters (dispatcher, service, corpus, worker, kind, n)
     SELECT a.dispatcher, t.service, t.corpus, coalesce(a.worker, ''), 'unusable', 1
     FROM attempts a JOIN tasks t ON t.id = a.task WHERE a.task = ?1 AND a.ending IS NULL
     ON CONFLICT (dispatcher, service, corpus, worker, kind) DO UPDATE SET n = n + 1",
    "UPDATE attempts SET ending = 'unusable', ended_ms = handed_ms WHERE task = ?1 AND ending IS NULL",
    "INSERT INTO counters (dispatcher, service, corpus, worker, kind, n)
     SELECT 0, service, corpus, '', 'set_aside', 1 FROM tasks WHERE id = ?1
     ON CONFLICT (dispatcher, service, corpus, worker, kind) DO UPDATE SET n = n + 1",
];
