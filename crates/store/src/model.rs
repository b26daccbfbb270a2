//! What goes into the store and comes out of it.
//!
//! Owns plain values only. Knows no SQL. What the finaliser's rules are written in lives beside them, in
//! [`dispatcher_core::finalise`], and is known here by the same names.

mod control;
mod sandbox;

pub(crate) use control::Piece;
pub use control::{
    BookLine, Carve, Command, CommandId, CommandOutcome, CommandPage, CommandRow, Named, ServiceChange, Step,
    WorkerNote, WorkerRow,
};
pub use dispatcher_core::finalise::{Answer, AttemptFacts, DispatcherId, PartRef, Record, TaskState};
pub(crate) use sandbox::CarvePlaces;
pub use sandbox::{Doomed, Pair, TaskEnd};

use dispatcher_core::claim::Standing;
use dispatcher_core::id::{CorpusId, EntryName, Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::legacy::NAMELESS;
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::report::{Ending, Message, Origin, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use serde::{Deserialize, Serialize};

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub struct StoreError {
    /// What kind of fault it is, and so what to do about it.
    pub class: ErrorClass,
    /// What was being done.
    pub doing: &'static str,
    /// What the database said.
    pub why: String,
}

/// What to do about a store's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// May pass by itself: try again (rule D3).
    Transient,
    /// Somebody else has it, or it is another thing than was said.
    Conflict,
    /// One row of what was asked is refused; the others are not to blame (rule D4).
    BadRow,
    /// No space is left.
    Full,
    /// The database is damaged.
    Corrupt,
    /// It was opened wrongly: another schema, no permission, no such place.
    Misconfigured,
}

/// How a service treats its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSettings {
    /// The time limit of a first attempt; attempt n of a run gets n times as much (rule L3).
    pub timeout_ms: SpanMs,
    /// Charged attempts that one run may spend.
    pub budget: u32,
    /// The largest result, in bytes (rule R7).
    pub result_cap: u64,
    /// The first delay before a retry; each further one doubles it. Zero: at once (rule R4).
    pub retry_delay_ms: SpanMs,
    /// Nothing of it is handed out while set.
    pub paused: bool,
    /// How many of its tasks may be leased at once; `None`: as many as the process may.
    pub max_in_flight: Option<u32>,
    /// Services with a higher one are claimed for first; equal ones take turns.
    pub priority: i32,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its number.
    pub id: ServiceId,
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: ServiceSettings,
}

/// A corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Corpus {
    /// Its number.
    pub id: CorpusId,
    /// Its name.
    pub name: String,
    /// The folder its entries lie under: bytes, as paths are.
    pub root: EntryName,
    /// What it is; `None` where its row does not say, and then nothing may be written for it (rule G8).
    #[serde(serialize_with = "sandbox::kind_word")]
    pub kind: Option<CorpusKind>,
    /// The corpus it was carved out of, where it is a sandbox.
    pub parent: Option<CorpusId>,
    /// The service of the parent's tasks that it was carved out of, where it is a sandbox.
    pub parent_service: Option<ServiceId>,
}

/// An input to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name below the corpus's root.
    pub name: EntryName,
    /// Its size in bytes when it was seen.
    pub size: u64,
    /// When it was last changed, in nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Higher goes first.
    pub priority: i32,
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// New tasks.
    pub added: u64,
    /// Entries that were there already, as they are now.
    pub known: u64,
    /// Entries that were there, and whose size or time is another than their row says. Their tasks are left alone.
    /// At most as many as were given; the three together are as many as were given.
    pub changed: Vec<EntryName>,
}

/// A dispatcher process that makes itself known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatcherInfo {
    /// `None` the first time.
    pub id: Option<DispatcherId>,
    /// The host it runs on.
    pub host: String,
    /// Where workers reach it.
    pub endpoint: String,
}

/// What to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// For whom.
    pub dispatcher: DispatcherId,
    /// Of which service.
    pub service: ServiceId,
    /// How many at most.
    pub max: usize,
}

/// A task with a fresh claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedTask {
    /// The lease it goes out under.
    pub lease: LeaseId,
    /// Its service.
    pub service: ServiceId,
    /// Its corpus.
    pub corpus: CorpusId,
    /// Its input.
    pub entry: EntryName,
    /// The input's size in bytes at import.
    pub input_size: u64,
    /// The input's time at import, in nanoseconds since the Unix epoch.
    pub input_mtime_ns: i64,
    /// Charged attempts of this run so far.
    pub charged: u32,
    /// The run's time-out, taken from the service at its first claim (rule L3).
    pub timeout_ms: SpanMs,
    /// The last retryable cause of this run.
    pub last_cause: Option<Message>,
}

/// A lease found in the store at start (rule S4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLease {
    /// The task and its claim.
    pub task: ClaimedTask,
    /// Who had it, where the hand-out was written.
    pub worker: Option<WorkerKey>,
    /// When it was handed out.
    pub handed_at: Option<TimeMs>,
    /// When work on it began.
    pub began_at: Option<TimeMs>,
    /// Until when it may work, where work began: what was stored, or a whole time limit of its attempt from the takeover
    /// on, whichever is sooner (rule L3). So a clock that was set back in between gives nobody more.
    pub limit_until: Option<TimeMs>,
}

/// A standing result and its parts, for the publisher and for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The lease of the result.
    pub lease: LeaseId,
    /// Its input.
    pub entry: EntryName,
    /// How it went.
    pub status: Status,
    /// Its parts.
    pub parts: Vec<PartRef>,
    /// Whether its files are in place.
    pub published: bool,
}

/// A pack that rows name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRow {
    /// Its place.
    pub place: EntryName,
    /// Behind the last byte that a row names: what comes after it is of nobody.
    pub end: u64,
}

/// A part in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedPart {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
    /// Whether it is still wanted: kept output of an attempt, and the newest filed result of its task. A result that was
    /// replaced is not.
    pub live: bool,
    /// Whether it belongs to the result that stands for its task.
    pub stands: bool,
}

/// Where a part of a pack goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartMove {
    /// Where it begins in the pack that it leaves.
    pub from: u64,
    /// Where it begins in the other one; `None`: it is no longer kept.
    pub to: Option<u64>,
}

/// Which tasks are meant. Every field that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFilter {
    /// These ids.
    pub ids: Vec<TaskId>,
    /// This service.
    pub service: Option<ServiceId>,
    /// This corpus.
    pub corpus: Option<CorpusId>,
    /// One of these states.
    pub states: Vec<TaskState>,
    /// One of these statuses, of what stands.
    pub statuses: Vec<Status>,
    /// A message of what stands has this category.
    pub category: Option<String>,
    /// A message of what stands has this second word.
    pub what: Option<String>,
    /// The entry's name begins with these bytes.
    pub entry_prefix: Option<EntryName>,
    /// The entry has one of these names.
    pub entries: Vec<EntryName>,
}

/// How far a piecewise command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Tasks it changed.
    pub changed: u64,
    /// Go on after this id; `None`: through.
    pub next: Option<TaskId>,
}

/// Tasks by state and status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Tasks in all.
    pub total: u64,
    /// By state.
    pub by_state: Vec<(TaskState, u64)>,
    /// Of those that are leased, the ones that went out to a worker. The others wait at the dispatcher.
    pub handed_out: u64,
    /// Of those that went out, the ones that their workers have begun. The others wait at a worker.
    pub running: u64,
    /// Of those that are over, by status.
    pub by_status: Vec<(Status, u64)>,
    /// The most frequent kinds of the worst message of failures: category, what, tasks.
    pub causes: Vec<(String, String, u64)>,
    /// Results that stand and whose files are not in place yet.
    pub unpublished: u64,
}

/// A task in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// Its service.
    pub service: ServiceId,
    /// Its corpus.
    pub corpus: CorpusId,
    /// Its input.
    pub entry: EntryName,
    /// The input's size in bytes at import.
    pub input_size: u64,
    /// Where it is.
    pub state: TaskState,
    /// The current run.
    pub run: Run,
    /// The newest claim.
    pub epoch: Epoch,
    /// Charged attempts of the run.
    pub charged: u32,
    /// What stands.
    pub standing: Option<Standing>,
    /// When it may be claimed again.
    pub not_before: TimeMs,
    /// The last retryable cause of the run.
    pub last_cause: Option<Message>,
    /// The last reason that we saw ourselves.
    pub last_reason: Option<Message>,
    /// The gravest message of what stands, the first of those equally grave.
    pub worst: Option<Message>,
}

/// What lies ahead of a task that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// Its priority among the tasks of its service.
    pub priority: i32,
    /// Tasks of its service that may be claimed and come before it: of a higher priority, or as high with a lower id.
    pub ahead: u64,
    /// Tasks of its service that may be claimed, itself included where it may.
    pub queued: u64,
    /// The time limit of a first attempt of its run; `None` before the run's first claim.
    pub timeout_ms: Option<SpanMs>,
    /// Until when its open attempt may work, where work on it began.
    pub limit_until: Option<TimeMs>,
}

/// Who worked on a task, for replies that name their worker and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// The task, its current run and its newest claim.
    pub newest: LeaseId,
    /// Its service.
    pub service: ServiceId,
    /// Its attempts, through all its runs, oldest first.
    pub attempts: Vec<AttemptFacts>,
}

impl Trail {
    /// The attempt that a reply of `worker` belongs to (rule C11): the newest one given to that worker, else the newest of
    /// all.
    ///
    /// None where that would be a guess across runs: of a worker that no attempt names, a task of a later run may get the
    /// result of an earlier one, whose hand-out a kill has forgotten (rule C6). Workers without a name of their own are
    /// the exception, for their results never name them.
    #[must_use]
    pub fn attempt_of(&self, worker: &str) -> Option<LeaseId> {
        let named = |attempt: &&AttemptFacts| attempt.worker.as_ref().is_some_and(|key| key.name == worker);
        let attempt = |given: &AttemptFacts| LeaseId { task: self.newest.task, run: given.run, epoch: given.epoch };
        if let Some(given) = self.attempts.iter().rev().find(named) {
            return Some(attempt(given));
        }
        let nameless = |key: &WorkerKey| key.is_legacy() && key.name.starts_with(NAMELESS);
        let may_be_meant = self.newest.run == Run::FIRST
            || self
                .attempts
                .last()
                .is_some_and(|last| last.run == self.newest.run && last.worker.as_ref().is_some_and(nameless));
        may_be_meant.then_some(self.newest)
    }

    /// Workers that may still bring a result of an earlier run and could not be told apart from one of this run (rule L8),
    /// and since when they have been silent.
    #[must_use]
    pub fn worked_earlier(&self) -> Vec<(String, TimeMs)> {
        let earlier = self.attempts.iter().filter(|a| a.run < self.newest.run);
        earlier.filter_map(|a| may_bring(a.worker.as_ref(), a.ending, a.ended_at)).collect()
    }
}

/// Whether the worker of an attempt may still bring its result without saying of which attempt it is: one of the legacy
/// wire, whose attempt ended without a reply of its own. With its name, and when that was.
fn may_bring(worker: Option<&WorkerKey>, ending: Option<Ending>, ended_at: Option<TimeMs>) -> Option<(String, TimeMs)> {
    let has_replied =
        matches!(ending, Some(Ending::Accepted | Ending::Superseded | Ending::Unusable | Ending::RetryableCause));
    let key = worker.filter(|key| key.is_legacy() && !has_replied)?;
    Some((key.name.clone(), ended_at.unwrap_or(TimeMs(i64::MAX))))
}

impl Story {
    /// As [`Trail::worked_earlier`].
    #[must_use]
    pub fn worked_earlier(&self) -> Vec<(String, TimeMs)> {
        let earlier = self.attempts.iter().filter(|a| a.run < self.task.run);
        earlier.filter_map(|a| may_bring(a.worker.as_ref(), a.ending, a.ended_at)).collect()
    }
}

/// One attempt in a story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptRow {
    /// The run it belonged to.
    pub run: Run,
    /// Its claim.
    pub epoch: Epoch,
    /// Who had it.
    pub worker: Option<WorkerKey>,
    /// When it was handed out.
    pub handed_at: Option<TimeMs>,
    /// When work began.
    pub began_at: Option<TimeMs>,
    /// When it ended.
    pub ended_at: Option<TimeMs>,
    /// How it ended; `None` while it is out.
    pub ending: Option<Ending>,
    /// Whether it was charged to the budget.
    pub charged: bool,
    /// Why it ended so.
    pub why: Option<Message>,
    /// What else was said by an attempt without a result.
    pub messages: Vec<Message>,
    /// What was kept of the output of an attempt without a result.
    pub parts: Vec<PartRef>,
}

/// One result in a story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResultRow {
    /// The run it belongs to.
    pub run: Run,
    /// Its claim.
    pub epoch: Epoch,
    /// How it went.
    pub status: Status,
    /// Who filed it.
    pub origin: Origin,
    /// Whether its files are in place.
    pub published: bool,
    /// What was said about it.
    pub messages: Vec<Message>,
    /// Its parts.
    pub parts: Vec<PartRef>,
}

/// All that is stored of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The task.
    pub task: TaskRow,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptRow>,
    /// Its results, oldest first.
    pub results: Vec<ResultRow>,
}

/// What the books say beside what the rows say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Lines that do not agree: what, counted, found.
    pub differences: Vec<Difference>,
    /// Attempts dispatched in all.
    pub dispatched: u64,
    /// Attempts still out.
    pub out: u64,
    /// Attempts by ending.
    pub endings: Vec<(Ending, u64)>,
}

/// A line of the books that does not agree with the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What is counted.
    pub what: String,
    /// What the counter says.
    pub counted: i64,
    /// What the rows say.
    pub found: i64,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            timeout_ms: SpanMs::seconds(3600),
            budget: 3,
            result_cap: 4_000_000_000,
            retry_delay_ms: SpanMs::ZERO,
            paused: false,
            max_in_flight: None,
            priority: 0,
        }
    }
}
