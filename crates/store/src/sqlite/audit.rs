//! The books: counters beside what the rows say (rule A1). SQLite adds up; only lines that do not agree come here.

use super::decode::{self, Flaw};
use super::error::fault;
use super::setup::corrupt;
use crate::model::{Audit, Difference, StoreError};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) const DOING: &str = "checking the books";

/// How many lines that do not agree are listed.
const MOST: i64 = 1_000;

pub(super) async fn audit(connection: &mut SqliteConnection) -> Result<Audit, StoreError> {
    let failed = |e: sqlx::Error| fault(DOING, &e);
    let lines = sqlx::query(COUNTERS).bind(MOST).fetch_all(&mut *connection).await.map_err(failed)?;
    let faults = sqlx::query(FAULTS).fetch_all(&mut *connection).await.map_err(failed)?;
    let endings = sqlx::query("SELECT ending, count(*) FROM attempts GROUP BY ending")
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    books(&lines, &faults, &endings).map_err(|why| corrupt(DOING, why))
}

fn books(lines: &[SqliteRow], faults: &[SqliteRow], endings: &[SqliteRow]) -> Result<Audit, Flaw> {
    let mut audit = Audit::default();
    for row in lines.iter().chain(faults) {
        let (what, counted, found) = (decode::text(row, 0)?, decode::number(row, 1)?, decode::number(row, 2)?);
        audit.differences.push(Difference { what, counted, found });
    }
    for row in endings {
        let n: u64 = decode::count(row, 1)?;
        audit.dispatched += n;
        match decode::ending(row, 0)? {
            Some(ending) => audit.endings.push((ending, n)),
            None => audit.out += n,
        }
    }
    audit.endings.sort_unstable();
    Ok(audit)
}

/// Each counter of attempts beside the attempts; messages have none. Dispatchers are added up.
const COUNTERS: &str = "
WITH found AS (
  SELECT t.service, t.corpus, coalesce(a.worker, '') AS worker, a.ending, count(*) AS n
  FROM attempts a LEFT JOIN tasks t ON t.id = a.task GROUP BY 1, 2, 3, 4),
kinds AS (
  SELECT coalesce(service, 0) AS service, coalesce(corpus, 0) AS corpus, worker, 'dispatched' AS kind, sum(n) AS n
  FROM found GROUP BY 1, 2, 3
  UNION ALL
  SELECT coalesce(service, 0), coalesce(corpus, 0), worker, ending, sum(n) FROM found WHERE ending IS NOT NULL
  GROUP BY 1, 2, 3, 4),
counted AS (
  SELECT service, corpus, worker, kind, sum(n) AS n FROM counters
  WHERE kind NOT LIKE 'message_%' AND kind <> 'set_aside' GROUP BY 1, 2, 3, 4)
SELECT 'attempts ' || coalesce(c.kind, k.kind) || ' of service ' || coalesce(c.service, k.service) || ', corpus '
    || coalesce(c.corpus, k.corpus) || ', worker ' || coalesce(c.worker, k.worker),
  coalesce(c.n, 0), coalesce(k.n, 0)
FROM counted c FULL OUTER JOIN kinds k USING (service, corpus, worker, kind)
WHERE coalesce(c.n, 0) <> coalesce(k.n, 0) ORDER BY 1 LIMIT ?1";

/// What must not be, and how often it is.
const FAULTS: &str = "
WITH t AS (
  SELECT count(*) FILTER (WHERE state IN ('ready', 'leased') AND accepted_epoch IS NOT NULL) AS early,
    count(*) FILTER (WHERE state IN ('done', 'dead') AND accepted_epoch IS NULL) AS empty,
    count(*) FILTER (WHERE state = 'leased' AND owner IS NULL) AS ownerless,
    count(*) FILTER (WHERE state IN ('ready', 'cancelled', 'dead') AND owner IS NOT NULL) AS owned,
    count(*) FILTER (WHERE state NOT IN ('ready', 'leased', 'done', 'dead', 'cancelled')) AS nowhere,
    count(*) FILTER (WHERE run < 1 OR epoch < 0 OR charged < 0 OR freed < 0) AS negative,
    count(*) FILTER (WHERE service NOT IN (SELECT id FROM services)) AS serviceless,
    count(*) FILTER (WHERE accepted_epoch IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM results r WHERE r.task = tasks.id AND r.epoch = tasks.accepted_epoch
        AND r.status = tasks.status AND r.origin = tasks.origin)) AS unfiled
  FROM tasks),
a AS (
  SELECT count(*) AS stray FROM attempts a JOIN tasks t ON t.id = a.task
  WHERE a.ending IS NULL AND (t.owner IS NULL OR t.epoch <> a.epoch))
SELECT 'tasks that are not over and have a result' AS what, 0, early FROM t WHERE early > 0
UNION ALL SELECT 'tasks that are over and have no result', 0, empty FROM t WHERE empty > 0
UNION ALL SELECT 'leased tasks of no dispatcher', 0, ownerless FROM t WHERE ownerless > 0
UNION ALL SELECT 'tasks of a dispatcher that are not leased', 0, owned FROM t WHERE owned > 0
UNION ALL SELECT 'tasks in a state that there is not', 0, nowhere FROM t WHERE nowhere > 0
UNION ALL SELECT 'tasks with a negative count', 0, negative FROM t WHERE negative > 0
UNION ALL SELECT 'tasks whose service is missing', 0, serviceless FROM t WHERE serviceless > 0
UNION ALL SELECT 'tasks whose result is missing or another', 0, unfiled FROM t WHERE unfiled > 0
UNION ALL SELECT 'attempts that are out and belong to no open lease', 0, stray FROM a WHERE stray > 0";
