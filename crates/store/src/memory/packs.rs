//! Parts in packs, in the maps.

use super::rows::Rows;
use crate::model::{PackRow, PackedPart, PartMove, PartRef};
use dispatcher_core::id::{EntryName, Epoch, TaskId};
use dispatcher_core::wire::PART_RESULT;
use std::collections::BTreeMap;

impl Rows {
    pub(super) fn has_worked(&self) -> bool {
        let handed_out = || self.tasks.values().any(|row| row.facts.epoch > Epoch::NONE);
        !self.dispatchers.is_empty() && (!self.attempts.is_empty() || handed_out() || self.has_deleted())
    }

    pub(super) fn packs(&self) -> Vec<PackRow> {
        let mut ends: BTreeMap<&EntryName, u64> = BTreeMap::new();
        for part in self.papers.values().flat_map(|kept| &kept.parts).filter(|part| part.is_packed()) {
            let end = ends.entry(&part.place).or_default();
            *end = part.offset.saturating_add(part.length).max(*end);
        }
        ends.into_iter().map(|(place, end)| PackRow { place: place.clone(), end }).collect()
    }

    pub(super) fn packed(&self, pack: &EntryName, after: u64, max: usize) -> Vec<PackedPart> {
        let mut found: Vec<PackedPart> = Vec::new();
        for (key, kept) in &self.papers {
            for part in kept.parts.iter().filter(|part| lies_in(part, pack) && part.offset > after) {
                let (offset, length, sha256) = (part.offset, part.length, part.sha256.clone());
                let standing = self.tasks.get(&key.0).and_then(|row| row.facts.standing);
                let stands = standing.is_some_and(|standing| standing.epoch == key.1);
                found.push(PackedPart { offset, length, sha256, live: self.is_live(*key, part), stands });
            }
        }
        found.sort_by_key(|part| part.offset);
        found.truncate(max);
        found
    }

    /// Kept output is, and of the results of a task the one that was filed last.
    fn is_live(&self, (task, epoch): (TaskId, Epoch), part: &PartRef) -> bool {
        if part.name != PART_RESULT {
            return true;
        }
        let has_result =
            |key| self.papers.get(key).is_some_and(|kept| kept.parts.iter().any(|p| p.name == PART_RESULT));
        let of_task = self.results.range((task, Epoch(0))..=(task, Epoch(u64::MAX)));
        let newest = of_task.filter(|(key, _)| has_result(key)).max_by_key(|(_, filed)| filed.order);
        newest.is_some_and(|((_, newest), _)| *newest == epoch)
    }

    pub(super) fn move_parts(&mut self, from: &EntryName, to: &EntryName, moves: &[PartMove]) -> bool {
        let moves: BTreeMap<u64, Option<u64>> = moves.iter().map(|m| (m.from, m.to)).collect();
        let mut still_named = false;
        for part in self.papers.values_mut().flat_map(|kept| &mut kept.parts).filter(|part| lies_in(part, from)) {
            match moves.get(&part.offset) {
                None => still_named = true,
                Some(Some(offset)) => (part.place, part.offset) = (to.clone(), *offset),
                Some(None) => (part.place, part.offset) = (EntryName(Vec::new()), 0),
            }
        }
        still_named
    }
}

fn lies_in(part: &PartRef, pack: &EntryName) -> bool {
    part.is_packed() && part.place == *pack
}
