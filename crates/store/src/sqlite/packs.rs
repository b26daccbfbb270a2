//! Packs and the parts in them.
//!
//! Owns which parts of a pack are wanted, and the transaction in which parts move to another pack: a part is told by the
//! pack and the offset that it leaves, so that one which was replaced meanwhile is not found and stays as it is.

use super::bulk::Bulk;
use super::decode::{self, Flaw};
use super::error::fault;
use super::setup::corrupt;
use crate::limits::PAGE;
use crate::model::{PackRow, PackedPart, PartMove, StoreError};
use dispatcher_core::id::EntryName;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

pub(super) const WORKED: &str = "asking whether results were ever stored";
pub(super) const LIST: &str = "listing packs";
pub(super) const PACKED: &str = "listing the parts of a pack";
pub(super) const MOVE: &str = "moving parts to another pack";

pub(super) async fn has_worked(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    sqlx::query_scalar(HAS_WORKED).fetch_one(connection).await.map_err(|e| fault(WORKED, &e))
}

/// What was deleted leaves its command. Tasks are looked through only where nothing else tells.
const HAS_WORKED: &str = "
SELECT EXISTS (SELECT 1 FROM dispatchers) AND (EXISTS (SELECT 1 FROM packs) OR EXISTS (SELECT 1 FROM attempts)
  OR EXISTS (SELECT 1 FROM control WHERE kind = 'delete') OR EXISTS (SELECT 1 FROM tasks WHERE epoch > 0))";

pub(super) async fn packs(connection: &mut SqliteConnection) -> Result<Vec<PackRow>, StoreError> {
    let rows = sqlx::query(ENDS).fetch_all(connection).await.map_err(|e| fault(LIST, &e))?;
    let read = |row: &SqliteRow| -> Result<PackRow, Flaw> {
        Ok(PackRow { place: EntryName(decode::bytes(row, 0)?), end: decode::count(row, 1)? })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(LIST, why))
}

/// Members do not overlap: the last one to begin is the last one to end.
const ENDS: &str = "
SELECT place, end FROM (
  SELECT k.place, (SELECT p.\"offset\" + p.length FROM parts p WHERE p.pack = k.id ORDER BY p.\"offset\" DESC LIMIT 1)
    AS end FROM packs k)
WHERE end IS NOT NULL ORDER BY place";

pub(super) async fn packed(
    connection: &mut SqliteConnection,
    pack: EntryName,
    after: u64,
    max: usize,
) -> Result<Vec<PackedPart>, StoreError> {
    let rows = sqlx::query(PARTS)
        .bind(pack.0)
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::try_from(max.min(PAGE)).unwrap_or(0))
        .fetch_all(connection)
        .await
        .map_err(|e| fault(PACKED, &e))?;
    let read = |row: &SqliteRow| -> Result<PackedPart, Flaw> {
        Ok(PackedPart {
            offset: decode::count(row, 0)?,
            length: decode::count(row, 1)?,
            sha256: decode::text(row, 2)?,
            live: decode::number(row, 3)? != 0,
            stands: decode::number(row, 4)? != 0,
        })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|why| corrupt(PACKED, why))
}

/// Kept output is wanted, and of the results of a task the one that was filed last. What stands is what the task's row
/// names.
const PARTS: &str = "
SELECT p.\"offset\", p.length, p.sha256, p.name <> 'result' OR coalesce((
  SELECT r.epoch = p.epoch FROM results r WHERE r.task = p.task AND EXISTS (
    SELECT 1 FROM parts q WHERE q.task = r.task AND q.epoch = r.epoch AND q.name = 'result')
  ORDER BY r.seq DESC LIMIT 1), 0),
  EXISTS (SELECT 1 FROM tasks t WHERE t.id = p.task AND t.accepted_epoch = p.epoch)
FROM packs k CROSS JOIN parts p ON p.pack = k.id AND p.\"offset\" > ?2
WHERE k.place = ?1 ORDER BY p.\"offset\" LIMIT ?3";

pub(super) async fn move_parts(
    connection: &mut SqliteConnection,
    from: EntryName,
    to: EntryName,
    moves: Vec<PartMove>,
) -> Result<bool, StoreError> {
    let failed = |e: sqlx::Error| fault(MOVE, &e);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let left: Option<i64> = sqlx::query_scalar("SELECT id FROM packs WHERE place = ?1")
        .bind(&from.0)
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed)?;
    let Some(left) = left else { return Ok(false) };
    let entered = match moves.iter().any(|m| m.to.is_some()) {
        true => Some(number_of(connection, to).await?),
        false => None,
    };
    let mut rows = Bulk::new();
    for m in &moves {
        rows.row().int(signed(m.from)).opt(m.to.map(signed)).end();
    }
    if !rows.is_empty() {
        let query = sqlx::query(MOVE_PARTS).bind(rows.into_json()).bind(left).bind(entered);
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    sqlx::query("DELETE FROM packs WHERE NOT EXISTS (SELECT 1 FROM parts p WHERE p.pack = packs.id)")
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM packs WHERE id = ?1)")
        .bind(left)
        .fetch_one(connection)
        .await
        .map_err(failed)
}

async fn number_of(connection: &mut SqliteConnection, place: EntryName) -> Result<i64, StoreError> {
    let failed = |e: sqlx::Error| fault(MOVE, &e);
    sqlx::query("INSERT INTO packs (place) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM packs WHERE place = ?1)")
        .bind(&place.0)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    sqlx::query_scalar("SELECT id FROM packs WHERE place = ?1")
        .bind(&place.0)
        .fetch_one(connection)
        .await
        .map_err(failed)
}

/// ?2 the pack that they leave, ?3 the one that they enter.
const MOVE_PARTS: &str = "
UPDATE parts SET pack = CASE WHEN v.entered IS NULL THEN NULL ELSE ?3 END, \"offset\" = coalesce(v.entered, 0)
FROM (SELECT value ->> 0 AS gone, value ->> 1 AS entered FROM jsonb_each(?1)) v
WHERE parts.pack = ?2 AND parts.\"offset\" = v.gone";
