//! Packs and rows together: what no row names goes, and what is wanted of a pack with much garbage moves to another one.
//!
//! Owns the order that makes this safe beside a dispatcher at work: bytes are copied and synced, then their rows move in
//! one transaction that passes over whatever was replaced meanwhile, and only a pack that no row names any more is
//! removed. A kill between any two steps leaves bytes that no row names, never a row without bytes.
//!
//! A pack is looked at only when its lock can be had: its writer holds it until no more rows that name it can come.

use crate::Store;
use crate::archive::packs::member::padded;
use crate::archive::packs::{Idle, Keeper};
use crate::archive::{ArchiveError, PackArchive};
use crate::model::{PackedPart, PartMove, StoreError};
use dispatcher_core::id::EntryName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Parts that are read together.
const PAGE: usize = 2_000;
/// Parts that move in one transaction: it holds the writer for some ten milliseconds.
const MOVES: usize = 1_000;
/// Packs that no row names and that are removed together.
const STRAYS: usize = 500;

/// What stands before a part in a pack, where its name is short, and where it is as long as names are.
const SHORT_FRONT: u64 = 512;
const LONG_FRONT: u64 = 1536;

/// Why the packs could not be kept in order. What was done so far stays done, and nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// Another process does it at this moment.
    #[error("another process keeps these packs in order: wait for it")]
    Busy,
    /// The packs.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The rows.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Packs that no row named, removed.
    pub removed: u64,
    /// Packs that a crash had left without an end.
    pub ended: u64,
}

/// A pack that rows name and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its place.
    pub place: EntryName,
    /// Parts of results that stand which lay in it.
    pub standing: u64,
    /// Other parts: of results that stand no more, and kept output of attempts without one.
    pub others: u64,
}

impl Missing {
    /// Whether something is lost with it that anybody can still ask for.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        self.standing > 0
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, standing, others } = self;
        if self.is_loss() {
            write!(f, "the pack {place} is missing, and with it {standing} parts of results that stand")
        } else {
            write!(f, "the pack {place} is missing; nothing that stands was in it, only {others} older parts")
        }
    }
}

/// When and how packs are rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Compacting {
    /// A pack of which less than this share is wanted is rewritten, from 0 to 1.
    pub live_under: f64,
    /// From so many bytes on another pack is begun.
    pub seal_at: u64,
    /// Is told each place that a test may hold: `compact_copied`, `compact_moved`, `compact_removing`.
    pub pass: fn(&'static str),
}

/// What became of the packs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// Packs that were looked at.
    pub packs: u64,
    /// Packs that a dispatcher writes to: left alone.
    pub in_use: u64,
    /// Packs that were rewritten or had nothing that is wanted, and are removed.
    pub removed: u64,
    /// Parts that moved to another pack.
    pub moved: u64,
    /// Parts that were replaced by others and are no longer kept.
    pub forgotten: u64,
    /// Bytes of all packs before.
    pub bytes_before: u64,
    /// Bytes of all packs now.
    pub bytes_after: u64,
    /// What is wrong with parts that therefore stay where they are.
    pub faults: Vec<String>,
}

/// After a crash, before anything is written: removes the packs that no row names, cuts off what lies behind the last byte
/// that a row names, and ends each tar file. `None` where somebody else keeps the packs in order.
///
/// # Errors
/// Where the packs or the rows cannot be read.
pub async fn sweep(archive: &PackArchive, store: &dyn Store) -> Result<Option<Swept>, UpkeepError> {
    let Some(keeper) = archive.keeper()? else { return Ok(None) };
    let mut swept = Swept { removed: remove_strays(&keeper, store).await?, ended: 0 };
    for row in store.packs().await? {
        match keeper.idle(&row.place) {
            Ok(Some(idle)) => swept.ended += u64::from(keeper.end(&idle, row.end)?),
            Ok(None) => {}
            // What is lost with it is told by `missing`.
            Err(ArchiveError::Gone { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Some(swept))
}

/// Packs that rows name and that are not there: whoever judges what their loss means, at a start or when asked, judges by
/// this.
///
/// # Errors
/// Where the rows cannot be read.
pub async fn missing(archive: &PackArchive, store: &dyn Store) -> Result<Vec<Missing>, StoreError> {
    let mut found = Vec::new();
    for place in store.packs().await?.into_iter().map(|row| row.place).filter(|place| !archive.has(place)) {
        let mut gone = Missing { place, standing: 0, others: 0 };
        let mut after = 0;
        loop {
            let page = store.packed(&gone.place, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.offset;
            let standing = page.iter().filter(|part| part.stands).count() as u64;
            gone.standing += standing;
            gone.others += page.len() as u64 - standing;
        }
        // One that was compacted since its row was read has no parts any more.
        if gone.standing + gone.others > 0 {
            found.push(gone);
        }
    }
    Ok(found)
}

/// Removes packs that no row names and nobody writes to. They are locked first and the rows read then: whoever could
/// still name one holds its lock. What is in them was acknowledged to nobody, or was deleted; a database that never stored
/// a result knows neither, and nothing with members goes by its word.
async fn remove_strays(keeper: &Keeper<'_>, store: &dyn Store) -> Result<u64, UpkeepError> {
    let named = places(store).await?;
    let strays: Vec<EntryName> =
        keeper.packs()?.into_iter().map(|pack| pack.place).filter(|place| !named.contains_key(place)).collect();
    if strays.is_empty() {
        return Ok(0);
    }
    let is_known = store.has_worked().await?;
    let mut removed = 0;
    for some in strays.chunks(STRAYS) {
        let mut idle = Vec::new();
        for place in some {
            match keeper.idle(place) {
                Ok(found) => idle.extend(found),
                Err(ArchiveError::Gone { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let named = places(store).await?;
        for idle in idle.into_iter().filter(|idle| !named.contains_key(idle.place())) {
            if is_known || !idle.has_members()? {
                keeper.remove(idle)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

async fn places(store: &dyn Store) -> Result<BTreeMap<EntryName, u64>, StoreError> {
    Ok(store.packs().await?.into_iter().map(|row| (row.place, row.end)).collect())
}

/// Rewrites the packs of which too little is wanted, also beside a dispatcher at work.
///
/// # Errors
/// [`UpkeepError::Busy`] where another process does so; otherwise where packs or rows cannot be read or written. What is
/// wrong with single parts is in the report.
pub async fn compact(archive: &PackArchive, store: &dyn Store, options: Compacting) -> Result<Compacted, UpkeepError> {
    let keeper = archive.keeper()?.ok_or(UpkeepError::Busy)?;
    let mut report = Compacted { bytes_before: bytes(&keeper)?, ..Compacted::default() };
    report.removed += remove_strays(&keeper, store).await?;
    let named = places(store).await?;
    let packs = keeper.packs()?;
    let mut work = Work { keeper, store, options, report };
    for pack in packs.into_iter().filter(|pack| named.contains_key(&pack.place)) {
        work.report.packs += 1;
        match work.keeper.idle(&pack.place) {
            Ok(Some(idle)) => work.look_at(idle, pack.suspect).await?,
            Ok(None) => work.report.in_use += 1,
            Err(ArchiveError::Gone { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    work.keeper.finish()?;
    work.report.bytes_after = bytes(&work.keeper)?;
    Ok(work.report)
}

fn bytes(keeper: &Keeper<'_>) -> Result<u64, ArchiveError> {
    Ok(keeper.packs()?.iter().map(|pack| pack.length).sum())
}

/// A compaction under way.
struct Work<'a> {
    keeper: Keeper<'a>,
    store: &'a dyn Store,
    options: Compacting,
    report: Compacted,
}

impl Work<'_> {
    /// Rewrites a pack if it is worth it. One on which a write failed always is: what was synced before is read back,
    /// compared and brought to safety.
    async fn look_at(&mut self, idle: Idle, suspect: bool) -> Result<(), UpkeepError> {
        let (mut after, mut end, mut live) = (0, 0, 0_u64);
        loop {
            let page = self.store.packed(idle.place(), after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.offset;
            for part in &page {
                // What stands before a part counts with it, or a pack of small results would be rewritten for ever.
                let front = part.offset.saturating_sub(end).clamp(SHORT_FRONT, LONG_FRONT);
                end = padded(part.offset.saturating_add(part.length));
                live += if part.live { padded(part.length).saturating_add(front) } else { 0 };
            }
        }
        let share = live as f64 / idle.length().max(1) as f64;
        if suspect || live == 0 || share < self.options.live_under {
            self.rewrite(idle).await?;
        }
        Ok(())
    }

    async fn rewrite(&mut self, mut idle: Idle) -> Result<(), UpkeepError> {
        let mut after = 0;
        let mut moves = Vec::new();
        loop {
            let page = self.store.packed(idle.place(), after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.offset;
            for part in &page {
                moves.extend(self.take(&mut idle, part)?);
                if moves.len() >= MOVES || self.keeper.written() >= self.options.seal_at {
                    self.commit(&idle, &mut moves).await?;
                }
            }
        }
        if self.commit(&idle, &mut moves).await? {
            return Ok(());
        }
        (self.options.pass)("compact_removing");
        self.keeper.remove(idle)?;
        self.report.removed += 1;
        Ok(())
    }

    /// Copies a part that is wanted; what is not leaves the pack all the same.
    fn take(&mut self, idle: &mut Idle, part: &PackedPart) -> Result<Option<PartMove>, UpkeepError> {
        if !part.live {
            self.report.forgotten += 1;
            return Ok(Some(PartMove { from: part.offset, to: None }));
        }
        match self.keeper.copy(idle, part)? {
            Ok(moved) => {
                self.report.moved += 1;
                Ok(Some(moved))
            }
            Err(why) => {
                self.report.faults.push(format!("at {} of {}: {why}", part.offset, idle.place()));
                Ok(None)
            }
        }
    }

    /// Bytes first, rows then. Returns whether a row still names the pack.
    async fn commit(&mut self, idle: &Idle, moves: &mut Vec<PartMove>) -> Result<bool, UpkeepError> {
        let to = self.keeper.sync()?;
        (self.options.pass)("compact_copied");
        let to = to.unwrap_or(EntryName(Vec::new()));
        let still_named = self.store.move_parts(idle.place(), &to, moves).await?;
        moves.clear();
        (self.options.pass)("compact_moved");
        if self.keeper.written() >= self.options.seal_at {
            self.keeper.finish()?;
        }
        Ok(still_named)
    }
}
