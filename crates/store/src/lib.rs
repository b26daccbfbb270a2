//! Durable tasks behind one small trait, and the archive of their result files.
//!
//! **Owns** the schema, every SQL statement, the transaction in which results are decided, the counters of the books,
//! and how result files become durable and visible.
//!
//! **Refuses to know** sockets, workers' messages and threads of the dispatcher.
//!
//! **Invariants**: a lost database is an error, never an empty queue; what `mark_done` answered "stored" is durable; a
//! batch costs a fixed number of statements; every transition of a task's row is fenced by run and epoch.

pub mod archive;
pub mod limits;
pub mod memory;
pub mod model;
pub mod sqlite;
pub mod upkeep;
mod words;

pub use memory::MemoryStore;
pub use model::*;
pub use sqlite::{Durability, SqliteOptions, SqliteStore};

use async_trait::async_trait;
use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId};
use dispatcher_core::time::TimeMs;

/// What the dispatcher asks of a database. One conformance suite runs against every implementation.
///
/// Every verb is one transaction and may be repeated after any error. Dropping a call half-way leaves no open
/// transaction behind. Lists of any length are taken, in pieces where the database has limits; what is atomic is said
/// at each verb.
#[async_trait]
pub trait Store: Send + Sync {
    /// The key that signs tokens, made with the database.
    async fn token_key(&self) -> Result<[u8; 32], StoreError>;

    /// Makes a service, or changes its settings; returns it as it stands.
    async fn put_service(&self, name: &str, settings: &ServiceSettings) -> Result<Service, StoreError>;
    /// Every service.
    async fn services(&self) -> Result<Vec<Service>, StoreError>;
    /// Makes a corpus or finds it by its name; returns it as it stands. A corpus of that name with another root is
    /// [`StoreError`] of class conflict, and so is a sandbox: nothing is imported into one.
    async fn put_corpus(&self, name: &str, root: &[u8]) -> Result<Corpus, StoreError>;
    /// Every corpus. A row that cannot be read is listed as one that is not known (rule G8), and hides no other.
    async fn corpora(&self) -> Result<Vec<Corpus>, StoreError>;
    /// Adds the entries that the corpus does not have for the service, ready and in their first run. Atomic for each
    /// 1,024 entries; a repeat adds only what is new. An entry whose size or time differs from its row is counted and
    /// listed as changed and left alone. A service or corpus that there is not (any more), and a corpus that is not
    /// ordinary, is [`StoreError`] of class conflict.
    async fn import(&self, service: ServiceId, corpus: CorpusId, entries: &[Entry]) -> Result<Imported, StoreError>;

    /// Makes this process known (or beats for it), and returns its id.
    async fn register(&self, dispatcher: &DispatcherInfo, now: TimeMs) -> Result<DispatcherId, StoreError>;
    /// Takes over every lease whose dispatcher is in `gone`, or none for all but `by`. Returns them in id order. The
    /// workers of those dispatchers count as not connected from then on.
    async fn adopt(
        &self,
        by: DispatcherId,
        gone: Option<&[DispatcherId]>,
        now: TimeMs,
    ) -> Result<Vec<OpenLease>, StoreError>;
    /// Leases up to `max` ready tasks of a service to a dispatcher, best priority first, then lowest id; but one in
    /// [`limits::TURNS`] claimed tasks, also over several claims, is one of the lowest priority that has ready ones, the
    /// lowest id first. Raises the epoch of each. None where the service is paused. A claim whose caller is gone before it has the answer is given back by the next one. At most
    /// [`limits::PAGE`] tasks.
    async fn claim(&self, ask: &Claim, now: TimeMs) -> Result<Vec<ClaimedTask>, StoreError>;
    /// Writes a batch: hand-outs, begins, results, endings with their requeues and dead letters, publications. One
    /// transaction for up to [`limits::BATCH`] records; decides each with [`dispatcher_core::finalise::finalise`] beside
    /// its row, in order. A record that the database refuses is written apart (rule D4). Answers one for one.
    async fn mark_done(&self, batch: &[Record], now: TimeMs) -> Result<Vec<Answer>, StoreError>;
    /// Accepted results whose files have not been marked published, in commit order.
    async fn unpublished(&self, after: Option<LeaseId>, max: usize) -> Result<Vec<Publication>, StoreError>;

    /// Begins a new run of up to `max` tasks that match, with ids above `after`. Returns how far it came; `None` when it
    /// is through. A leased task's current attempt becomes stale. A piece takes [`limits::PIECE`] tasks at most, and may
    /// take fewer, even none, and not be the last one.
    async fn rerun(&self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs) -> Result<Progress, StoreError>;
    /// Cancels up to `max` tasks that match and are not over, with ids above `after`, in pieces like a rerun's.
    async fn cancel(&self, filter: &TaskFilter, after: TaskId, max: usize, now: TimeMs)
    -> Result<Progress, StoreError>;
    /// Takes the newly seen size and time of inputs as right, and begins a new run of each.
    async fn accept_change(
        &self,
        service: ServiceId,
        corpus: CorpusId,
        entries: &[Entry],
        now: TimeMs,
    ) -> Result<u64, StoreError>;

    /// Writes a command down, to be carried out by whoever has the state folder; returns its number. A repeat is another
    /// command.
    async fn submit(&self, command: &Command, actor: &str, now: TimeMs) -> Result<CommandId, StoreError>;
    /// Carries out the next piece of a command, of at most `max` tasks and [`limits::PIECE`], and remembers in the same
    /// transaction where the following one begins; the last piece writes the outcome down. A piece may change nothing
    /// and not be the last one. What cannot be carried out is an outcome with the reason. A command that is through
    /// already, or that the store does not carry out itself, changes nothing and says its outcome, if there is one. A
    /// command that there is not is [`StoreError`] of class conflict.
    async fn step(&self, command: CommandId, max: usize, now: TimeMs) -> Result<Step, StoreError>;
    /// What is stored of the tasks that the next piece of a command of at most `max` tasks will take with a sandbox, in id
    /// order: their files go before their rows, so that a crash in between leaves nothing that no row names. Empty of every
    /// other command.
    async fn doomed(&self, command: CommandId, max: usize) -> Result<Vec<Doomed>, StoreError>;
    /// Writes down what became of a command that the store does not carry out itself. What was written down first stands.
    /// A command that there is not is [`StoreError`] of class conflict.
    async fn conclude(&self, command: CommandId, outcome: &CommandOutcome, now: TimeMs) -> Result<(), StoreError>;
    /// Commands, in the order in which they were given.
    async fn commands(&self, page: &CommandPage) -> Result<Vec<CommandRow>, StoreError>;

    /// Notes how the workers of a dispatcher are; who is not in `notes` counts as not connected. The
    /// [`limits::WORKERS`] lives heard most recently are kept. No lease hangs on them.
    async fn note_workers(&self, by: DispatcherId, notes: &[WorkerNote]) -> Result<(), StoreError>;
    /// The workers heard most recently, at most `max`.
    async fn workers(&self, max: usize) -> Result<Vec<WorkerRow>, StoreError>;
    /// The counters of the books by service and kind.
    async fn books(&self) -> Result<Vec<BookLine>, StoreError>;

    /// Counts of tasks by state and status, and of causes.
    async fn summary(&self, filter: &TaskFilter) -> Result<Summary, StoreError>;
    /// A page of tasks that match, in id order.
    async fn tasks(&self, filter: &TaskFilter, after: TaskId, max: usize) -> Result<Vec<TaskRow>, StoreError>;
    /// A page of the tasks of a sandbox beside those they were carved from, in id order; empty of what is no sandbox.
    async fn pairs(&self, sandbox: CorpusId, after: TaskId, max: usize) -> Result<Vec<Pair>, StoreError>;
    /// What lies ahead of a task that is not over; `None` of one that is, or that there is not.
    async fn outlook(&self, task: TaskId) -> Result<Option<Outlook>, StoreError>;
    /// Who worked on these tasks, in id order; none of a task that there is not.
    async fn trails(&self, tasks: &[TaskId]) -> Result<Vec<Trail>, StoreError>;
    /// A task with all its attempts, results and messages.
    async fn story(&self, task: TaskId) -> Result<Option<Story>, StoreError>;
    /// The books: counters beside what the rows say (rule A1), the archive's parts in id order for a check against files.
    async fn audit(&self) -> Result<Audit, StoreError>;
    /// A page of the parts of results that stand, for a check against the archive.
    async fn standing_parts(&self, after: TaskId, max: usize) -> Result<Vec<Publication>, StoreError>;

    /// Whether results can ever have been stored by this database: without a dispatcher of it that handed something out, what
    /// lies in a folder is not what it has let go of, but what it never knew.
    async fn has_worked(&self) -> Result<bool, StoreError>;
    /// Every pack that a row names, by its place.
    async fn packs(&self) -> Result<Vec<PackRow>, StoreError>;
    /// A page of the parts in a pack, those that begin above `after`, in the order in which they lie there.
    async fn packed(&self, pack: &EntryName, after: u64, max: usize) -> Result<Vec<PackedPart>, StoreError>;
    /// Parts of the pack `from` lie in the pack `to` from now on, or nowhere: one transaction. A part that was replaced
    /// meanwhile is not found there any more and left alone. Returns whether a row still names `from`.
    async fn move_parts(&self, from: &EntryName, to: &EntryName, moves: &[PartMove]) -> Result<bool, StoreError>;
}
