//! Tasks in one SQLite file.
//!
//! Owns the file, its schema and every statement. One thread writes, others read (`lane`); many rows are bound as two
//! values (`bulk`), so the number of statements does not depend on the batch; what a record means is decided by
//! [`dispatcher_core::finalise`] beside its row, inside the transaction (`book`).
//!
//! Refuses to know result files and workers' messages.
//!
//! Invariants: WAL, one writer; every write takes the lock at its start, so none is refused half-way; a call that its
//! caller drops runs to its end.

mod audit;
mod book;
mod bulk;
mod carve;
mod commands;
mod control;
mod decode;
mod delete;
mod done;
mod error;
mod filter;
mod lane;
mod lease;
mod open;
mod outlook;
mod packs;
mod read;
mod setup;
mod trail;
mod workers;

use crate::limits::next_chunk;
use crate::model::{
    Audit, BookLine, Claim, ClaimedTask, Command, CommandId, CommandOutcome, CommandPage, CommandRow, Corpus,
    DispatcherInfo, Doomed, Entry, ErrorClass, Imported, OpenLease, Outlook, PackRow, PackedPart, Pair, PartMove,
    Piece, Progress, Publication, Service, ServiceSettings, Step, StoreError, Story, Summary, TaskFilter, TaskRow,
    Trail, WorkerNote, WorkerRow,
};
use crate::{Answer, DispatcherId, Record, Store};
use async_trait::async_trait;
use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId};
use dispatcher_core::time::TimeMs;
use lane::{Lane, Mode};
use lease::{Handover, Lost};
use std::path::Path;
use std::sync::Arc;

/// The version of the schema that this program reads and writes.
pub const SCHEMA: i64 = 3;

/// How much a commit costs and what it survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Each commit is on disk before it is answered: it survives a power cut (rule D7).
    #[default]
    Full,
    /// Commits survive a kill of the process; a power cut may take the last ones.
    Normal,
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// What a commit survives.
    pub durability: Durability,
    /// How many threads read, each with its own connection; at least one.
    pub readers: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { durability: Durability::Full, readers: 2 }
    }
}

/// A [`Store`] in one SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    writer: Lane,
    reader: Lane,
    file: Arc<open::FileMark>,
    /// Claims whose caller was gone before it had them.
    lost: Lost,
}

impl SqliteStore {
    /// Opens the database at `path`, or makes it, readable by its owner alone because it holds the token key. Several
    /// processes may do this at once; one makes the schema, and all go on.
    ///
    /// # Errors
    /// [`ErrorClass::Misconfigured`] where the path cannot be opened, is another program's database, or has a schema
    /// newer than [`SCHEMA`]; [`ErrorClass::Corrupt`] where it is no database.
    pub async fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let (writer, reader, file) = open::open(path, options).await?;
        Ok(Self { writer, reader, file: Arc::new(file), lost: Lost::default() })
    }

    /// One transaction of the writer.
    async fn write<T, W>(&self, doing: &'static str, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut sqlx::SqliteConnection) -> futures_util::future::BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        self.file.check(doing)?;
        self.writer.call(Mode::Write, doing, work).await
    }

    /// One snapshot of a reader.
    async fn read<T, W>(&self, doing: &'static str, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut sqlx::SqliteConnection) -> futures_util::future::BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        self.file.check(doing)?;
        self.reader.call(Mode::Read, doing, work).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn token_key(&self) -> Result<[u8; 32], StoreError> {
        self.read("reading the token key", |c| Box::pin(open::token_key(c))).await
    }

    async fn put_service(&self, name: &str, settings: &ServiceSettings) -> Result<Service, StoreError> {
        let service = setup::NewService::new(name, settings)?;
        self.write(setup::PUT_SERVICE, |c| Box::pin(service.put(c))).await
    }

    async fn services(&self) -> Result<Vec<Service>, StoreError> {
        self.read(setup::SERVICES, |c| Box::pin(setup::services(c))).await
    }

    async fn put_corpus(&self, name: &str, root: &[u8]) -> Result<Corpus, StoreError> {
        let (name, root) = (name.to_owned(), root.to_vec());
        self.write(setup::PUT_CORPUS, |c| Box::pin(setup::put_corpus(c, name, root))).await
    }

    async fn corpora(&self) -> Result<Vec<Corpus>, StoreError> {
        self.read(setup::CORPORA, |c| Box::pin(setup::corpora(c))).await
    }

    async fn import(&self, service: ServiceId, corpus: CorpusId, entries: &[Entry]) -> Result<Imported, StoreError> {
        let mut imported = Imported::default();
        let mut rest = entries;
        while let Some(chunk) = next_chunk(&mut rest) {
            let chunk = setup::Chunk::new(service, corpus, chunk)?;
            let done = self.write(setup::IMPORT, |c| Box::pin(chunk.import(c))).await?;
            imported.added += done.added;
            imported.known += done.known;
            imported.changed.extend(done.changed);
        }
        Ok(imported)
    }

    async fn register(&self, dispatcher: &DispatcherInfo, now: TimeMs) -> Result<DispatcherId, StoreError> {
        let dispatcher = dispatcher.clone();
        self.write(lease::REGISTER, move |c| Box::pin(lease::register(c, dispatcher, now))).await
    }

    async fn adopt(
        &self,
        by: DispatcherId,
        gone: Option<&[DispatcherId]>,
        now: TimeMs,
    ) -> Result<Vec<OpenLease>, StoreError> {
        let gone = gone.map(<[DispatcherId]>::to_vec);
        self.write(lease::ADOPT, move |c| Box::pin(lease::adopt(c, by, gone, now))).await
    }

    async fn claim(&self, ask: &Claim, now: TimeMs) -> Result<Vec<ClaimedTask>, StoreError> {
        let (ask, lost) = (ask.clone(), self.lost.clone());
        let handover: Handover = self.write(lease::CLAIM, move |c| Box::pin(lease::claim(c, ask, now, lost))).await?;
        Ok(handover.take())
    }

    async fn mark_done(&self, batch: &[Record], now: TimeMs) -> Result<Vec<Answer>, StoreError> {
        let records: Arc<[Record]> = batch.into();
        let mut answers = Vec::with_capacity(records.len());
        let mut pieces = done::pieces(records.len());
        // Each piece is one transaction. One that the database refuses is split until the row is alone (rule D4).
        while let Some(piece) = pieces.pop() {
            let (shared, range) = (Arc::clone(&records), piece.clone());
            let done = self.write(done::DOING, move |c| Box::pin(done::mark_done(c, shared, range, now))).await;
            match done {
                Ok(done) => answers.extend(done),
                Err(e) if e.class == ErrorClass::BadRow && piece.len() > 1 => {
                    let middle = piece.start + piece.len() / 2;
                    pieces.extend([middle..piece.end, piece.start..middle]);
                }
                Err(e) if e.class == ErrorClass::BadRow => {
                    answers.push(self.refuse(Arc::clone(&records), piece.start, e.why, now).await?);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(answers)
    }

    async fn unpublished(&self, after: Option<LeaseId>, max: usize) -> Result<Vec<Publication>, StoreError> {
        self.read(read::UNPUBLISHED, move |c| Box::pin(read::unpublished(c, after, max))).await
    }

    async fn rerun(&self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs) -> Result<Progress, StoreError> {
        let filter = filter.clone();
        let piece = self.write(commands::RERUN, move |c| {
            Box::pin(async move { commands::rerun(c, &filter, after, max, now).await })
        });
        piece.await.map(Piece::progress)
    }

    async fn cancel(
        &self,
        filter: &TaskFilter,
        after: TaskId,
        max: usize,
        now: TimeMs,
    ) -> Result<Progress, StoreError> {
        let filter = filter.clone();
        let piece = self.write(commands::CANCEL, move |c| {
            Box::pin(async move { commands::cancel(c, &filter, after, max, now).await })
        });
        piece.await.map(Piece::progress)
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
        while let Some(chunk) = next_chunk(&mut rest) {
            let chunk = setup::Chunk::new(service, corpus, chunk)?;
            changed += self.write(setup::ACCEPT, move |c| Box::pin(chunk.accept(c, now))).await?;
        }
        Ok(changed)
    }

    async fn submit(&self, command: &Command, actor: &str, now: TimeMs) -> Result<CommandId, StoreError> {
        let (command, actor) = (command.clone(), actor.to_owned());
        self.write(control::SUBMIT, move |c| Box::pin(control::submit(c, command, actor, now))).await
    }

    async fn step(&self, command: CommandId, max: usize, now: TimeMs) -> Result<Step, StoreError> {
        self.write(control::STEP, move |c| Box::pin(control::step(c, command, max, now))).await
    }

    async fn doomed(&self, command: CommandId, max: usize) -> Result<Vec<Doomed>, StoreError> {
        self.read(control::DOOMED, move |c| Box::pin(control::doomed(c, command, max))).await
    }

    async fn conclude(&self, command: CommandId, outcome: &CommandOutcome, now: TimeMs) -> Result<(), StoreError> {
        let outcome = outcome.clone();
        self.write(control::CONCLUDE, move |c| Box::pin(control::conclude(c, command, outcome, now))).await
    }

    async fn commands(&self, page: &CommandPage) -> Result<Vec<CommandRow>, StoreError> {
        let page = *page;
        self.read(control::LIST, move |c| Box::pin(control::commands(c, page))).await
    }

    async fn note_workers(&self, by: DispatcherId, notes: &[WorkerNote]) -> Result<(), StoreError> {
        let notes = notes.to_vec();
        self.write(workers::NOTE, move |c| Box::pin(workers::note(c, by, notes))).await
    }

    async fn workers(&self, max: usize) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(workers::LIST, move |c| Box::pin(workers::list(c, max))).await
    }

    async fn books(&self) -> Result<Vec<BookLine>, StoreError> {
        self.read(workers::BOOKS, |c| Box::pin(workers::books(c))).await
    }

    async fn summary(&self, filter: &TaskFilter) -> Result<Summary, StoreError> {
        let filter = filter.clone();
        self.read(read::SUMMARY, |c| Box::pin(read::summary(c, filter))).await
    }

    async fn tasks(&self, filter: &TaskFilter, after: TaskId, max: usize) -> Result<Vec<TaskRow>, StoreError> {
        let filter = filter.clone();
        self.read(read::TASKS, move |c| Box::pin(read::tasks(c, filter, after, max))).await
    }

    async fn pairs(&self, sandbox: CorpusId, after: TaskId, max: usize) -> Result<Vec<Pair>, StoreError> {
        self.read(carve::PAIRS, move |c| Box::pin(carve::pairs(c, sandbox, after, max))).await
    }

    async fn outlook(&self, task: TaskId) -> Result<Option<Outlook>, StoreError> {
        self.read(outlook::DOING, move |c| Box::pin(outlook::outlook(c, task))).await
    }

    async fn trails(&self, tasks: &[TaskId]) -> Result<Vec<Trail>, StoreError> {
        let tasks = tasks.to_vec();
        self.read(trail::DOING, move |c| Box::pin(trail::trails(c, tasks))).await
    }

    async fn story(&self, task: TaskId) -> Result<Option<Story>, StoreError> {
        self.read(read::STORY, move |c| Box::pin(read::story(c, task))).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.read(audit::DOING, |c| Box::pin(audit::audit(c))).await
    }

    async fn standing_parts(&self, after: TaskId, max: usize) -> Result<Vec<Publication>, StoreError> {
        self.read(read::STANDING, move |c| Box::pin(read::standing_parts(c, after, max))).await
    }

    async fn has_worked(&self) -> Result<bool, StoreError> {
        self.read(packs::WORKED, |c| Box::pin(packs::has_worked(c))).await
    }

    async fn packs(&self) -> Result<Vec<PackRow>, StoreError> {
        self.read(packs::LIST, |c| Box::pin(packs::packs(c))).await
    }

    async fn packed(&self, pack: &EntryName, after: u64, max: usize) -> Result<Vec<PackedPart>, StoreError> {
        let pack = pack.clone();
        self.read(packs::PACKED, move |c| Box::pin(packs::packed(c, pack, after, max))).await
    }

    async fn move_parts(&self, from: &EntryName, to: &EntryName, moves: &[PartMove]) -> Result<bool, StoreError> {
        let (from, to, moves) = (from.clone(), to.clone(), moves.to_vec());
        self.write(packs::MOVE, move |c| Box::pin(packs::move_parts(c, from, to, moves))).await
    }
}

impl SqliteStore {
    /// Ends the task of a record that the database refuses, with the refusal as its reason (rule D4). Where it refuses
    /// even that, the record alone is given up.
    async fn refuse(
        &self,
        records: Arc<[Record]>,
        index: usize,
        why: String,
        now: TimeMs,
    ) -> Result<Answer, StoreError> {
        let reason = why.clone();
        let done = self.write(done::DOING, move |c| Box::pin(done::refuse(c, records, index, reason, now))).await;
        match done {
            Err(e) if e.class == ErrorClass::BadRow => Ok(Answer::Refused { why }),
            done => done,
        }
    }
}
