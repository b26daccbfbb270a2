//! Tasks in memory: the reference for every other store, and a store for tests.
//!
//! Owns the plainest form of each verb: maps under one lock, linear scans. Nothing survives the process.

mod answers;
mod control;
mod packs;
mod rows;
mod sandbox;

use crate::limits::{self, PAGE};
use crate::model::{
    Audit, BookLine, Claim, ClaimedTask, Command, CommandId, CommandOutcome, CommandPage, CommandRow, Corpus,
    DispatcherInfo, Doomed, Entry, ErrorClass, Imported, OpenLease, Outlook, PackRow, PackedPart, Pair, PartMove,
    Progress, Publication, Service, ServiceSettings, Step, StoreError, Story, Summary, TaskFilter, TaskRow, Trail,
    WorkerNote, WorkerRow,
};
use crate::{Answer, DispatcherId, Record, Store};
use async_trait::async_trait;
use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::time::TimeMs;
use rows::{Ids, Rows};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A [`Store`] that forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<Rows>,
}

impl MemoryStore {
    /// An empty store with a token key of its own.
    #[must_use]
    pub fn new() -> Self {
        let mut key = [0; 32];
        let token_key = getrandom::fill(&mut key).ok().map(|()| key);
        Self { rows: Mutex::new(Rows::new(token_key)) }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn token_key(&self) -> Result<[u8; 32], StoreError> {
        self.rows().token_key.ok_or_else(|| StoreError {
            class: ErrorClass::Misconfigured,
            doing: "making the token key",
            why: "the system gave no random bytes".to_owned(),
        })
    }

    async fn put_service(&self, name: &str, settings: &ServiceSettings) -> Result<Service, StoreError> {
        self.rows().put_service(name, settings).map_err(|why| limits::bad_row("storing a service", why))
    }

    async fn services(&self) -> Result<Vec<Service>, StoreError> {
        Ok(self.rows().services.clone())
    }

    async fn put_corpus(&self, name: &str, root: &[u8]) -> Result<Corpus, StoreError> {
        limits::check_name("a corpus", name).map_err(|why| limits::bad_row("storing a corpus", why))?;
        let mut rows = self.rows();
        let root = EntryName(root.to_vec());
        let conflict = |why| StoreError { class: ErrorClass::Conflict, doing: "storing a corpus", why };
        match rows.corpora.iter().find(|c| c.name == name) {
            Some(corpus) if corpus.root == root || corpus.check_import().is_err() => {
                corpus.check_import().map(|()| corpus.clone()).map_err(conflict)
            }
            Some(corpus) => {
                let why = format!("there is a corpus {name:?} with the folder {}, not {root}", corpus.root);
                Err(conflict(why))
            }
            None => {
                let id = CorpusId(rows.given.next(Ids::Corpus));
                let kind = Some(CorpusKind::Ordinary);
                let corpus = Corpus { id, name: name.to_owned(), root, kind, parent: None, parent_service: None };
                rows.corpora.push(corpus.clone());
                Ok(corpus)
            }
        }
    }

    async fn corpora(&self) -> Result<Vec<Corpus>, StoreError> {
        Ok(self.rows().corpora.clone())
    }

    async fn import(&self, service: ServiceId, corpus: CorpusId, entries: &[Entry]) -> Result<Imported, StoreError> {
        let mut imported = Imported::default();
        let mut rest = entries;
        while let Some(chunk) = limits::next_chunk(&mut rest) {
            check_all(chunk)?;
            let mut rows = self.rows();
            let is_service = rows.services.iter().any(|s| s.id == service);
            let found = rows.corpora.iter().find(|c| c.id == corpus);
            limits::check_places(is_service, found, service, corpus).map_err(|why| StoreError {
                class: ErrorClass::Conflict,
                doing: "importing entries",
                why,
            })?;
            chunk.iter().for_each(|entry| rows.import(service, corpus, entry, &mut imported));
        }
        Ok(imported)
    }

    async fn register(&self, dispatcher: &DispatcherInfo, _now: TimeMs) -> Result<DispatcherId, StoreError> {
        let mut rows = self.rows();
        let next = rows.dispatchers.last().map_or(1, |d| d.0 + 1);
        let id = dispatcher.id.unwrap_or(DispatcherId(next));
        rows.dispatchers.insert(id);
        Ok(id)
    }

    async fn adopt(
        &self,
        by: DispatcherId,
        gone: Option<&[DispatcherId]>,
        now: TimeMs,
    ) -> Result<Vec<OpenLease>, StoreError> {
        Ok(self.rows().adopt(by, gone, now))
    }

    async fn claim(&self, ask: &Claim, now: TimeMs) -> Result<Vec<ClaimedTask>, StoreError> {
        Ok(self.rows().claim(ask, now))
    }

    async fn mark_done(&self, batch: &[Record], now: TimeMs) -> Result<Vec<Answer>, StoreError> {
        let mut rows = self.rows();
        Ok(batch.iter().map(|record| rows.mark_done(record, now)).collect())
    }

    async fn unpublished(&self, after: Option<LeaseId>, max: usize) -> Result<Vec<Publication>, StoreError> {
        Ok(self.rows().unpublished(after, max.min(PAGE)))
    }

    async fn rerun(&self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs) -> Result<Progress, StoreError> {
        Ok(self.rows().rerun(filter, after, max, now).progress())
    }

    async fn cancel(
        &self,
        filter: &TaskFilter,
        after: TaskId,
        max: usize,
        now: TimeMs,
    ) -> Result<Progress, StoreError> {
        Ok(self.rows().cancel(filter, after, max, now).progress())
    }

    async fn accept_change(
        &self,
        service: ServiceId,
        corpus: CorpusId,
        entries: &[Entry],
        now: TimeMs,
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        let mut rest = entries;
        while let Some(chunk) = limits::next_chunk(&mut rest) {
            check_all(chunk)?;
            let mut rows = self.rows();
            changed += chunk.iter().filter(|entry| rows.accept_change(service, corpus, entry, now)).count() as u64;
        }
        Ok(changed)
    }

    async fn submit(&self, command: &Command, actor: &str, now: TimeMs) -> Result<CommandId, StoreError> {
        Ok(self.rows().submit(command.clone(), actor.to_owned(), now))
    }

    async fn step(&self, command: CommandId, max: usize, now: TimeMs) -> Result<Step, StoreError> {
        self.rows().step(command, max, now).ok_or_else(|| no_command(command, "carrying out a command"))
    }

    async fn doomed(&self, command: CommandId, max: usize) -> Result<Vec<Doomed>, StoreError> {
        Ok(self.rows().doomed(command, max))
    }

    async fn conclude(&self, command: CommandId, outcome: &CommandOutcome, now: TimeMs) -> Result<(), StoreError> {
        let found = self.rows().conclude(command, outcome, now);
        found.then_some(()).ok_or_else(|| no_command(command, "writing down what became of a command"))
    }

    async fn commands(&self, page: &CommandPage) -> Result<Vec<CommandRow>, StoreError> {
        Ok(self.rows().commands(page))
    }

    async fn note_workers(&self, by: DispatcherId, notes: &[WorkerNote]) -> Result<(), StoreError> {
        self.rows().note_workers(by, notes);
        Ok(())
    }

    async fn workers(&self, max: usize) -> Result<Vec<WorkerRow>, StoreError> {
        Ok(self.rows().list_workers(max))
    }

    async fn books(&self) -> Result<Vec<BookLine>, StoreError> {
        Ok(self.rows().books())
    }

    async fn summary(&self, filter: &TaskFilter) -> Result<Summary, StoreError> {
        Ok(self.rows().summary(filter))
    }

    async fn tasks(&self, filter: &TaskFilter, after: TaskId, max: usize) -> Result<Vec<TaskRow>, StoreError> {
        let rows = self.rows();
        let ids = rows.matching(filter, after, max.min(PAGE), |_| true);
        Ok(ids.into_iter().filter_map(|id| rows.task_row(id)).collect())
    }

    async fn pairs(&self, sandbox: CorpusId, after: TaskId, max: usize) -> Result<Vec<Pair>, StoreError> {
        Ok(self.rows().pairs(sandbox, after, max.min(PAGE)))
    }

    async fn outlook(&self, task: TaskId) -> Result<Option<Outlook>, StoreError> {
        Ok(self.rows().outlook(task))
    }

    async fn trails(&self, tasks: &[TaskId]) -> Result<Vec<Trail>, StoreError> {
        let rows = self.rows();
        let tasks: BTreeSet<TaskId> = tasks.iter().copied().collect();
        Ok(tasks.into_iter().filter_map(|task| rows.trail(task)).collect())
    }

    async fn story(&self, task: TaskId) -> Result<Option<Story>, StoreError> {
        Ok(self.rows().story(task))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(self.rows().audit())
    }

    async fn standing_parts(&self, after: TaskId, max: usize) -> Result<Vec<Publication>, StoreError> {
        Ok(self.rows().standing_parts(after, max.min(PAGE)))
    }

    async fn has_worked(&self) -> Result<bool, StoreError> {
        Ok(self.rows().has_worked())
    }

    async fn packs(&self) -> Result<Vec<PackRow>, StoreError> {
        Ok(self.rows().packs())
    }

    async fn packed(&self, pack: &EntryName, after: u64, max: usize) -> Result<Vec<PackedPart>, StoreError> {
        Ok(self.rows().packed(pack, after, max.min(PAGE)))
    }

    async fn move_parts(&self, from: &EntryName, to: &EntryName, moves: &[PartMove]) -> Result<bool, StoreError> {
        Ok(self.rows().move_parts(from, to, moves))
    }
}

fn check_all(entries: &[Entry]) -> Result<(), StoreError> {
    let check = |entry| limits::check_entry(entry).map_err(|why| limits::bad_row("importing entries", why));
    entries.iter().try_for_each(check)
}

fn no_command(id: CommandId, doing: &'static str) -> StoreError {
    StoreError { class: ErrorClass::Conflict, doing, why: format!("there is no command {}", id.0) }
}
