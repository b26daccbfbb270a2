//! What a finaliser's record means beside the row of its task (rules A1, A2, A5, C5, D5, D6, R4, R5, X2, X3).
//!
//! Owns the decision: from the facts of a task's row, what is known of one attempt, and one [`Record`] it says how the
//! row and the attempt change, which counters move, and the [`Answer`]. Every store asks here inside its transaction, so
//! that they cannot differ; several records of one task are folded by giving each the facts that the one before left.
//! Who wins among results is [`crate::claim::decide`]'s.
//!
//! Refuses to know rows, statements and files.
//!
//! Invariants:
//! - A task that is ready or leased has nothing that stands for its run; done means that a worker's result stands,
//!   whatever its status, dead that only a stand-in does.
//! - An owner means that the lease of the newest epoch is open. A done task has one while its newest attempt is still
//!   out, because that may bring something better (rule C2).
//! - Only the newest attempt of a task can be open; each has exactly one ending once it is not (rule A5).

mod desk;
mod record;
#[cfg(test)]
mod tests;

pub use record::{Answer, DispatcherId, PartRef, Record, TaskState};

use crate::claim::Standing;
use crate::id::{Epoch, Run, TaskId, WorkerKey};
use crate::report::{Ending, Message, Severity};
use crate::time::{SpanMs, TimeMs};
use desk::Desk;

/// The `not_before` of a task that may be claimed at once, whatever the clock says.
pub const AT_ONCE: TimeMs = TimeMs(0);

/// The facts of a task's row that a decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFacts {
    /// Where it is.
    pub state: TaskState,
    /// The current run.
    pub run: Run,
    /// The newest claim.
    pub epoch: Epoch,
    /// Whose the newest lease is, while it is open.
    pub owner: Option<DispatcherId>,
    /// Charged attempts of the run.
    pub charged: u32,
    /// Endings of the run that cost nothing.
    pub freed: u32,
    /// The run's time-out; `None` before its first claim (rule L3).
    pub timeout_ms: Option<SpanMs>,
    /// Until when the newest attempt may work, once it has begun (rule L3).
    pub limit_until: Option<TimeMs>,
    /// When it may be claimed again; [`AT_ONCE`] where there is nothing to wait for.
    pub not_before: TimeMs,
    /// What stands for the run.
    pub standing: Option<Standing>,
    /// The last retryable cause of the run.
    pub last_cause: Option<Message>,
    /// The last reason of the run that we saw ourselves.
    pub last_reason: Option<Message>,
}

/// What is known of one attempt (rule A5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The run it belongs to.
    pub run: Run,
    /// Its claim.
    pub epoch: Epoch,
    /// Which dispatcher handed it out, where that is known.
    pub dispatcher: Option<DispatcherId>,
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
}

/// What the service says about its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Charged attempts that one run may spend.
    pub budget: u32,
    /// The first delay before a retry; zero: at once.
    pub retry_delay_ms: SpanMs,
}

/// What one counter of the books counts (rule A1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tally {
    /// Attempts that were dispatched.
    Dispatched,
    /// Attempts that ended so.
    Ending(Ending),
    /// Results that were stored already (rule D6).
    Repeated,
    /// Messages of an earlier run (rule C6).
    StaleMessage,
    /// Messages about a task or a claim that there is not (rule C7).
    UnknownMessage,
    /// Rows that could not be read and were set aside.
    SetAside,
}

/// A counter that moves, for the attempt's dispatcher and worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which counter.
    pub tally: Tally,
    /// By how much.
    pub by: i64,
    /// Whose attempt it is about; `None` where that is not known.
    pub dispatcher: Option<DispatcherId>,
    /// Which worker's; `None` where that is not known.
    pub worker: Option<String>,
}

/// What is stored under a lease from now on, in place of what was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Papers<'r> {
    /// The reason of a stand-in: the first message.
    pub reason: Option<Message>,
    /// The messages after it.
    pub messages: &'r [Message],
    /// The parts.
    pub parts: &'r [PartRef],
}

impl Papers<'_> {
    /// Every message, in its order.
    pub fn all_messages(&self) -> impl Iterator<Item = &Message> {
        self.reason.iter().chain(self.messages)
    }
}

/// What one record leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'r> {
    /// The row as it is from now on.
    pub task: TaskFacts,
    /// Whether the row changed.
    pub task_changed: bool,
    /// The attempt of the record's epoch as it is from now on.
    pub attempt: Option<AttemptFacts>,
    /// Whether the attempt changed or is new.
    pub attempt_changed: bool,
    /// A result or stand-in to be written under the record's epoch: it stands from now on, and what waited to be
    /// published of this task before is overtaken.
    pub filed: Option<Standing>,
    /// What is stored under the record's epoch from now on, in place of what was.
    pub papers: Option<Papers<'r>>,
    /// Whether the files of the record's result are in place.
    pub published: bool,
    /// Counters that move.
    pub moves: Vec<Move>,
    /// What became of the record.
    pub answer: Answer,
}

/// Decides one record beside the row of its task (rules D5, D6, A1, A5).
///
/// `attempt` is what is known of the attempt of the record's epoch; `now` is the time a retry's delay counts from.
///
/// ```
/// use dispatcher_core::finalise::{finalise, Answer, DispatcherId, Policy, Record, TaskFacts, TaskState, AT_ONCE};
/// use dispatcher_core::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
/// use dispatcher_core::report::Status;
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let leased = TaskFacts {
///     state: TaskState::Leased, run: Run(1), epoch: Epoch(1), owner: Some(DispatcherId(1)), charged: 0, freed: 0,
///     timeout_ms: Some(SpanMs::seconds(60)), limit_until: None, not_before: AT_ONCE, standing: None,
///     last_cause: None, last_reason: None,
/// };
/// let result = Record::Result {
///     lease: LeaseId { task: TaskId(7), run: Run(1), epoch: Epoch(1) },
///     worker: WorkerKey { name: "w".into(), incarnation: "1".into() },
///     status: Status::NoProblem, messages: vec![], parts: vec![], at: TimeMs(5),
/// };
/// let policy = Policy { budget: 3, retry_delay_ms: SpanMs::ZERO };
/// let first = finalise(leased, None, policy, &result, TimeMs(5));
/// assert_eq!(first.answer, Answer::Stored { replaced: None, repeat: false });
/// assert_eq!(first.task.state, TaskState::Done);
/// let again = finalise(first.task, first.attempt, policy, &result, TimeMs(6));
/// assert_eq!(again.answer, Answer::Stored { replaced: None, repeat: true });
/// ```
#[must_use]
pub fn finalise(
    task: TaskFacts,
    attempt: Option<AttemptFacts>,
    policy: Policy,
    record: &Record,
    now: TimeMs,
) -> Decision<'_> {
    let mut desk = Desk::new(task, attempt, record.lease(), policy, now);
    let answer = desk.decide(record);
    desk.finish(answer)
}

/// Ends a record's attempt, and its task where nothing else is left to wait for, because the database refuses to store
/// it (rule D4).
#[must_use]
pub fn refuse<'r>(
    task: TaskFacts,
    attempt: Option<AttemptFacts>,
    policy: Policy,
    record: &Record,
    why: &str,
    now: TimeMs,
) -> Decision<'r> {
    let mut desk = Desk::new(task, attempt, record.lease(), policy, now);
    desk.refuse(record.worker(), &own_reason("refused", why));
    desk.finish(Answer::Refused { why: why.to_owned() })
}

/// Begins a new run of a task; its open attempt becomes stale (rules C6, L14). `attempt` is the one of the row's epoch.
#[must_use]
pub fn begin_run<'r>(task: TaskFacts, attempt: Option<AttemptFacts>, id: TaskId, now: TimeMs) -> Decision<'r> {
    let mut desk = Desk::at_newest(task, attempt, id, now);
    desk.begin_run();
    desk.finish(Answer::Noted)
}

/// Cancels a task that is not over; its open attempt ends as cancelled. `attempt` is the one of the row's epoch.
#[must_use]
pub fn cancel<'r>(task: TaskFacts, attempt: Option<AttemptFacts>, id: TaskId, now: TimeMs) -> Decision<'r> {
    let mut desk = Desk::at_newest(task, attempt, id, now);
    desk.cancel();
    desk.finish(Answer::Noted)
}

/// A reason that the dispatcher gives itself.
#[must_use]
pub fn own_reason(what: &str, details: &str) -> Message {
    Message {
        severity: Severity::Fatal,
        category: "dispatcher".to_owned(),
        what: what.to_owned(),
        details: details.to_owned(),
    }
}
