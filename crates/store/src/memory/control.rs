//! Commands and workers in the maps.

use super::rows::{Ids, Rows};
use crate::DispatcherId;
use crate::limits::{self, PAGE, TURNS, WORKERS};
use crate::model::{
    BookLine, Command, CommandId, CommandOutcome, CommandPage, CommandRow, Named, Piece, Service, ServiceChange,
    ServiceSettings, Step, TaskFilter, WorkerNote, WorkerRow,
};
use crate::words::tally_word;
use dispatcher_core::finalise::{self, Tally};
use dispatcher_core::id::{Epoch, LeaseId, ServiceId, TaskId, WorkerKey};
use dispatcher_core::time::TimeMs;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A command that was written down.
#[derive(Debug)]
pub(super) struct Given {
    at: TimeMs,
    actor: String,
    command: Command,
    /// The task after which the next piece begins.
    cursor: TaskId,
    /// What the pieces so far have changed.
    changed: u64,
    done: Option<(CommandOutcome, TimeMs)>,
}

/// A worker as its dispatcher noted it.
#[derive(Debug)]
pub(super) struct Seen {
    by: DispatcherId,
    first_at: TimeMs,
    note: WorkerNote,
}

impl Rows {
    pub(super) fn submit(&mut self, command: Command, actor: String, at: TimeMs) -> CommandId {
        let id = CommandId(self.commands.last_key_value().map_or(0, |(id, _)| id.0) + 1);
        self.commands.insert(id, Given { at, actor, command, cursor: TaskId(0), changed: 0, done: None });
        id
    }

    /// `None` where there is no such command.
    pub(super) fn step(&mut self, id: CommandId, max: usize, now: TimeMs) -> Option<Step> {
        let given = self.commands.get(&id)?;
        if let Some((outcome, _)) = &given.done {
            return Some(Step { outcome: Some(outcome.clone()), ..Step::default() });
        }
        let (command, after, before) = (given.command.clone(), given.cursor, given.changed);
        let Some(piece) = self.carry_out(&command, (after, before), max, now) else { return Some(Step::default()) };
        let next = piece.next;
        let step = piece.step(before);
        let given = self.commands.get_mut(&id)?;
        given.cursor = next.unwrap_or(given.cursor);
        given.changed += step.changed;
        given.done = step.outcome.clone().map(|outcome| (outcome, now));
        Some(step)
    }

    fn carry_out(
        &mut self,
        command: &Command,
        (after, before): (TaskId, u64),
        max: usize,
        now: TimeMs,
    ) -> Option<Piece> {
        match command {
            Command::Rerun { filter } => Some(self.rerun(filter, after, max, now)),
            Command::Cancel { filter } => Some(self.cancel(filter, after, max, now)),
            Command::Delete { what } => Some(self.delete(what, after, max)),
            Command::Carve(carve) => Some(self.carve(carve, after, before, max)),
            Command::PutService { name, change } => Some(self.change_service(name, change)),
            Command::Pause { service } => Some(self.set_paused(service.as_deref(), true)),
            Command::Resume { service } => Some(self.set_paused(service.as_deref(), false)),
            Command::Drain { .. } | Command::Import { .. } => None,
        }
    }

    pub(super) fn rerun(&mut self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs) -> Piece {
        let ids = self.matching(filter, after, limits::piece(max), |_| true);
        self.command(&ids, max, finalise::begin_run, now)
    }

    pub(super) fn cancel(&mut self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs) -> Piece {
        let ids = self.matching(filter, after, limits::piece(max), |row| !row.is_over());
        self.command(&ids, max, finalise::cancel, now)
    }

    /// A command that is not through, and the task after which its next piece begins.
    pub(super) fn open_command(&self, id: CommandId) -> Option<(&Command, TaskId)> {
        let given = self.commands.get(&id).filter(|given| given.done.is_none())?;
        Some((&given.command, given.cursor))
    }

    fn delete(&mut self, what: &Named, after: TaskId, max: usize) -> Piece {
        let (kind, name) = what.parts();
        let all = TaskFilter::default();
        let filter = match what {
            Named::Corpus(name) | Named::Sandbox(name) => {
                let Some(corpus) = self.corpus_named(name) else { return Piece::no_such(kind, name) };
                let carved = self.corpora.iter().filter(|c| c.parent == Some(corpus.id) && c.id != corpus.id);
                let sandboxes: Vec<_> = carved.map(|c| c.name.clone()).collect();
                if let Err(why) = what.check(corpus, &sandboxes) {
                    return Piece::refused(why);
                }
                Some(TaskFilter { corpus: Some(corpus.id), ..all })
            }
            Named::Service(name) => {
                let service = self.services.iter().find(|s| s.name == *name);
                service.map(|s| TaskFilter { service: Some(s.id), ..all })
            }
        };
        let Some(filter) = filter else { return Piece::no_such(kind, name) };
        let ids = self.matching(&filter, after, limits::piece(max), |_| true);
        let piece = self.piece(&ids, max);
        ids.iter().for_each(|id| self.delete_task(*id));
        if piece.next.is_none() {
            self.corpora.retain(|c| Some(c.id) != filter.corpus);
            self.services.retain(|s| Some(s.id) != filter.service);
            let gone = |s, c| Some(s) == filter.service || Some(c) == filter.corpus;
            self.counters.retain(|(service, corpus, ..), _| !gone(*service, *corpus));
        }
        piece
    }

    fn delete_task(&mut self, id: TaskId) {
        let Some(row) = self.tasks.remove(&id) else { return };
        self.names.remove(&(row.service, row.corpus, row.entry));
        let of_task = |key: &(TaskId, Epoch)| key.0 == id;
        self.results.retain(|key, _| !of_task(key));
        self.papers.retain(|key, _| !of_task(key));
        for attempt in self.attempts.extract_if((id, Epoch(0))..=(id, Epoch(u64::MAX)), |_, _| true).map(|(_, a)| a) {
            let worker = attempt.worker.map(|w| w.name).unwrap_or_default();
            for tally in [Some(Tally::Dispatched), attempt.ending.map(Tally::Ending)].into_iter().flatten() {
                *self.counters.entry((row.service, row.corpus, worker.clone(), tally)).or_default() -= 1;
            }
        }
    }

    /// A piece about these tasks, before anything was done to them.
    pub(super) fn piece(&self, ids: &[TaskId], max: usize) -> Piece {
        let open = |id: &TaskId| {
            let facts = &self.tasks.get(id)?.facts;
            facts.owner.map(|_| LeaseId { task: *id, run: facts.run, epoch: facts.epoch })
        };
        let next = ids.last().copied().filter(|_| ids.len() == limits::piece(max));
        Piece { changed: ids.len() as u64, revoked: ids.iter().filter_map(open).collect(), next, error: None }
    }

    fn change_service(&mut self, name: &str, change: &ServiceChange) -> Piece {
        let stands = self.services.iter().find(|s| s.name == name).map(|s| s.settings.clone());
        let settings = change.on(stands.as_ref().unwrap_or(&ServiceSettings::default()));
        if stands.as_ref() == Some(&settings) {
            return Piece::whole(0);
        }
        match self.put_service(name, &settings) {
            Ok(_) => Piece::whole(1),
            Err(why) => Piece::refused(why),
        }
    }

    /// Makes a service or changes its settings, or says what is wrong with them.
    pub(super) fn put_service(&mut self, name: &str, settings: &ServiceSettings) -> Result<Service, String> {
        limits::check_service(name)?;
        limits::check_settings(settings)?;
        if let Some(service) = self.services.iter_mut().find(|s| s.name == name) {
            service.settings = settings.clone();
            return Ok(service.clone());
        }
        let id = ServiceId(self.given.next(Ids::Service));
        let service = Service { id, name: name.to_owned(), settings: settings.clone() };
        self.services.push(service.clone());
        Ok(service)
    }

    fn set_paused(&mut self, name: Option<&str>, paused: bool) -> Piece {
        let meant = |s: &&mut Service| name.is_none_or(|name| s.name == name);
        let mut changed = 0;
        let mut found = false;
        for service in self.services.iter_mut().filter(meant) {
            found = true;
            changed += u64::from(service.settings.paused != paused);
            service.settings.paused = paused;
        }
        match name {
            Some(name) if !found => Piece::no_such("service", name),
            _ => Piece::whole(changed),
        }
    }

    /// Whether there is such a command.
    pub(super) fn conclude(&mut self, id: CommandId, outcome: &CommandOutcome, now: TimeMs) -> bool {
        let Some(given) = self.commands.get_mut(&id) else { return false };
        given.done.get_or_insert_with(|| (outcome.clone(), now));
        true
    }

    pub(super) fn commands(&self, page: &CommandPage) -> Vec<CommandRow> {
        let meant = |(id, given): &(&CommandId, &Given)| {
            page.id.is_none_or(|only| only == **id)
                && (!page.open || given.done.is_none())
                && page.after.is_none_or(|after| **id > after)
        };
        let row = |(id, given): (&CommandId, &Given)| CommandRow {
            id: *id,
            at: given.at,
            actor: given.actor.clone(),
            command: Some(given.command.clone()),
            outcome: given.done.as_ref().map(|(outcome, _)| outcome.clone()),
            done_at: given.done.as_ref().map(|(_, at)| *at),
        };
        let mut rows: Vec<_> = self.commands.iter().filter(meant).map(row).collect();
        let max = page.max.min(PAGE);
        if page.newest {
            rows.drain(..rows.len().saturating_sub(max));
        }
        rows.truncate(max);
        rows
    }

    /// Whether a deletion was ever commanded.
    pub(super) fn has_deleted(&self) -> bool {
        self.commands.values().any(|given| matches!(given.command, Command::Delete { .. }))
    }

    pub(super) fn note_workers(&mut self, by: DispatcherId, notes: &[WorkerNote]) {
        self.let_go_of_workers(|dispatcher| dispatcher == by);
        for note in notes {
            let first_at = self.workers.get(&note.worker).map_or(note.heard_at, |seen| seen.first_at);
            self.workers.insert(note.worker.clone(), Seen { by, first_at, note: note.clone() });
        }
        if !notes.is_empty() {
            let kept: Vec<WorkerKey> = self.newest_workers().into_iter().skip(WORKERS).cloned().collect();
            self.workers.retain(|key, _| !kept.contains(key));
        }
    }

    /// The workers of these dispatchers count as not connected.
    pub(super) fn let_go_of_workers(&mut self, of: impl Fn(DispatcherId) -> bool) {
        for seen in self.workers.values_mut().filter(|seen| of(seen.by)) {
            seen.note.connected = false;
        }
    }

    fn newest_workers(&self) -> Vec<&WorkerKey> {
        let mut workers: Vec<_> = self.workers.iter().collect();
        workers.sort_by_key(|(key, seen)| (Reverse(seen.note.heard_at), &key.name, &key.incarnation));
        workers.into_iter().map(|(key, _)| key).collect()
    }

    pub(super) fn list_workers(&self, max: usize) -> Vec<WorkerRow> {
        let row = |key: &WorkerKey| {
            let seen = self.workers.get(key)?;
            let working = |(id, row): (&TaskId, &super::rows::Row)| {
                row.facts.owner?;
                let attempt = self.attempts.get(&(*id, row.facts.epoch))?;
                let here = attempt.ending.is_none() && attempt.worker.as_ref() == Some(key);
                here.then_some((*id, attempt.began_at))
            };
            Some(WorkerRow {
                worker: key.clone(),
                services: seen.note.services.clone(),
                slots: seen.note.slots,
                connected: seen.note.connected,
                first_at: seen.first_at,
                heard_at: seen.note.heard_at,
                counts: self.counts_of(&key.name),
                current: self.tasks.iter().filter_map(working).collect(),
            })
        };
        self.newest_workers().into_iter().take(max.min(PAGE)).filter_map(row).collect()
    }

    fn counts_of(&self, name: &str) -> Vec<(String, u64)> {
        let of_attempts = |tally: Tally| matches!(tally, Tally::Dispatched | Tally::Ending(_));
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for ((.., worker, tally), n) in &self.counters {
            if worker == name && of_attempts(*tally) {
                *counts.entry(tally_word(*tally)).or_default() += n;
            }
        }
        counts.into_iter().filter_map(|(kind, n)| Some((kind.to_owned(), positive(n)?))).collect()
    }

    pub(super) fn books(&self) -> Vec<BookLine> {
        let mut lines: BTreeMap<(&str, &'static str), i64> = BTreeMap::new();
        for ((id, .., tally), n) in &self.counters {
            let service = self.services.iter().find(|s| s.id == *id).map_or("", |s| s.name.as_str());
            *lines.entry((service, tally_word(*tally))).or_default() += n;
        }
        let line = |((service, kind), n): ((&str, &'static str), i64)| {
            Some(BookLine { service: service.to_owned(), kind: kind.to_owned(), n: positive(n)? })
        };
        lines.into_iter().filter_map(line).collect()
    }

    /// How many of `max` tasks are to be of the lowest priority, because it is their turn.
    pub(super) fn lowest_turns(&self, service: ServiceId, max: usize) -> usize {
        (self.turns.get(&service).copied().unwrap_or(0) + max) / TURNS
    }

    pub(super) fn count_turns(&mut self, service: ServiceId, claimed: usize) {
        let turn = self.turns.entry(service).or_default();
        *turn = (*turn + claimed) % TURNS;
    }
}

fn positive(n: i64) -> Option<u64> {
    u64::try_from(n).ok().filter(|n| *n > 0)
}
