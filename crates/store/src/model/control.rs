//! What people tell a dispatcher to do, and what it did: the control list, which is also the audit log.
//!
//! Owns plain values only. A command is written down first, then carried out piece by piece, each piece and the place
//! where the next one begins in one transaction, so that no piece is done twice whatever dies.

use super::{Progress, ServiceSettings, TaskFilter};
use dispatcher_core::id::{LeaseId, ServiceId, TaskId, WorkerKey};
use dispatcher_core::time::{SpanMs, TimeMs};
use serde::{Deserialize, Serialize};

/// The number of a command, in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub i64);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Command {
    /// A new run of every task that matches.
    Rerun {
        /// Which.
        filter: TaskFilter,
    },
    /// The end of every task that matches and is not over.
    Cancel {
        /// Which.
        filter: TaskFilter,
    },
    /// Removes a corpus or a service with all its tasks and what is stored of them.
    Delete {
        /// Which.
        what: Named,
    },
    /// Carves a sandbox out of a corpus: new tasks with the inputs of those that match.
    Carve(Carve),
    /// Makes a service, or changes what is given of its settings. Changes 0 services where all of it is so already.
    PutService {
        /// Its name.
        name: String,
        /// What to change.
        change: ServiceChange,
    },
    /// Hands out nothing more of a service, or of all that there are.
    Pause {
        /// Which; `None`: all.
        service: Option<String>,
    },
    /// Hands out again.
    Resume {
        /// Which; `None`: all.
        service: Option<String>,
    },
    /// Ends the running dispatcher (rule S1). The store only remembers it; the dispatcher does it.
    Drain {
        /// Wait for everything in flight, instead of letting workers bring it after the next start.
        wait: bool,
    },
    /// Inputs were imported. Whoever does it writes it down done.
    Import {
        /// For which service.
        service: String,
        /// Into which corpus.
        corpus: String,
        /// How many were new.
        added: u64,
    },
}

impl Command {
    /// The word for it, as in its JSON.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Rerun { .. } => "rerun",
            Self::Cancel { .. } => "cancel",
            Self::Delete { .. } => "delete",
            Self::Carve(_) => "carve",
            Self::PutService { .. } => "put_service",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::Drain { .. } => "drain",
            Self::Import { .. } => "import",
        }
    }
}

/// A sandbox to be carved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carve {
    /// Its name; no corpus may have it.
    pub name: String,
    /// Which tasks it is made of: those of one service and of one ordinary corpus, which are both set.
    pub filter: TaskFilter,
    /// The service that is to do them; `None`: the one that they are of.
    #[serde(default)]
    pub service: Option<ServiceId>,
    /// At most so many, lowest ids first.
    #[serde(default)]
    pub most: Option<u64>,
}

/// A corpus, a sandbox or a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    /// The corpus of this name. One that has sandboxes, or is one, is refused.
    Corpus(String),
    /// The sandbox of this name. Whoever carries it out removes the files of [`crate::Store::doomed`] before each piece.
    Sandbox(String),
    /// The service of this name.
    Service(String),
}

/// Settings to change; what is `None` stays, or takes its default in a new service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceChange {
    /// See [`ServiceSettings::timeout_ms`].
    pub timeout_ms: Option<SpanMs>,
    /// See [`ServiceSettings::budget`].
    pub budget: Option<u32>,
    /// See [`ServiceSettings::result_cap`].
    pub result_cap: Option<u64>,
    /// See [`ServiceSettings::retry_delay_ms`].
    pub retry_delay_ms: Option<SpanMs>,
    /// See [`ServiceSettings::max_in_flight`]; 0 takes the cap away.
    pub max_in_flight: Option<u32>,
    /// See [`ServiceSettings::priority`].
    pub priority: Option<i32>,
}

impl ServiceChange {
    /// The settings after the change.
    #[must_use]
    pub fn on(&self, settings: &ServiceSettings) -> ServiceSettings {
        ServiceSettings {
            timeout_ms: self.timeout_ms.unwrap_or(settings.timeout_ms),
            budget: self.budget.unwrap_or(settings.budget),
            result_cap: self.result_cap.unwrap_or(settings.result_cap),
            retry_delay_ms: self.retry_delay_ms.unwrap_or(settings.retry_delay_ms),
            paused: settings.paused,
            max_in_flight: match self.max_in_flight {
                None => settings.max_in_flight,
                Some(cap) => (cap > 0).then_some(cap),
            },
            priority: self.priority.unwrap_or(settings.priority),
        }
    }
}

/// A command as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandRow {
    /// Its number.
    pub id: CommandId,
    /// When it was given.
    pub at: TimeMs,
    /// Who gave it: user and host.
    pub actor: String,
    /// What it says; `None` where this program cannot read it.
    pub command: Option<Command>,
    /// What became of it; `None` while it is not through.
    pub outcome: Option<CommandOutcome>,
    /// When it was through.
    pub done_at: Option<TimeMs>,
}

/// What became of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// Tasks or services that it changed; tasks that a carve made.
    pub changed: u64,
    /// Why it was not, or not wholly, carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What one piece of a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Tasks or services changed by this piece.
    pub changed: u64,
    /// Leases that were open and that this piece ended, in id order: their workers should stop. They are told only here:
    /// where the answer is lost, a worker's result finds its lease stale, cancelled or unknown.
    pub revoked: Vec<LeaseId>,
    /// What became of the whole command, where this was the last piece. It is written down already.
    pub outcome: Option<CommandOutcome>,
}

/// What one piece of a command did, before it is written down.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) changed: u64,
    pub(crate) revoked: Vec<LeaseId>,
    /// The task after which the next piece begins; `None`: it was the last one.
    pub(crate) next: Option<TaskId>,
    pub(crate) error: Option<String>,
}

impl Piece {
    /// The only piece of a command that changes so many services.
    pub(crate) fn whole(changed: u64) -> Self {
        Self { changed, ..Self::default() }
    }

    /// The last piece of a command that cannot be carried out.
    pub(crate) fn refused(why: String) -> Self {
        Self { error: Some(why), ..Self::default() }
    }

    /// The last piece of a command about something that there is not: a `service`, a `corpus` or a `sandbox`.
    pub(crate) fn no_such(kind: &str, name: &str) -> Self {
        Self::refused(format!("there is no {kind} {name:?}"))
    }

    /// What is told of it where no command was written down.
    pub(crate) fn progress(self) -> Progress {
        Progress { changed: self.changed, next: self.next }
    }

    /// What is told of it, when the pieces before it have changed so many.
    pub(crate) fn step(self, before: u64) -> Step {
        let Self { changed, revoked, next, error } = self;
        let outcome = CommandOutcome { changed: before.saturating_add(changed), error };
        Step { changed, revoked, outcome: next.is_none().then_some(outcome) }
    }
}

impl Named {
    /// `corpus`, `sandbox` or `service`, and the name.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Corpus(name) => ("corpus", name),
            Self::Sandbox(name) => ("sandbox", name),
            Self::Service(name) => ("service", name),
        }
    }
}

/// Where to go on in a listing of commands, and which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandPage {
    /// Only this one.
    pub id: Option<CommandId>,
    /// Only those that are not through.
    pub open: bool,
    /// Only those with a higher number.
    pub after: Option<CommandId>,
    /// The last ones instead of the first ones, still in ascending order.
    pub newest: bool,
    /// How many at most.
    pub max: usize,
}

/// A worker, as its dispatcher sees it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerNote {
    /// Who.
    pub worker: WorkerKey,
    /// What it can do.
    pub services: Vec<String>,
    /// How many tasks it works on at once.
    pub slots: u32,
    /// Whether it has a connection.
    pub connected: bool,
    /// When it was heard last.
    pub heard_at: TimeMs,
}

/// A worker in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerRow {
    /// Who.
    pub worker: WorkerKey,
    /// What it can do.
    pub services: Vec<String>,
    /// How many tasks it works on at once.
    pub slots: u32,
    /// Whether it had a connection when it was noted last.
    pub connected: bool,
    /// When it was heard first.
    pub first_at: TimeMs,
    /// When it was heard last.
    pub heard_at: TimeMs,
    /// Attempts of this name (all its incarnations) by ending, `dispatched` beside them, those that there are, in the order
    /// of their words.
    pub counts: Vec<(String, u64)>,
    /// Tasks that this incarnation has now: task and when work began.
    pub current: Vec<(TaskId, Option<TimeMs>)>,
}

/// A line of the books, summed over dispatchers (rule A1); never zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BookLine {
    /// The service's name; empty where it is not known.
    pub service: String,
    /// What is counted: `dispatched`, an ending, or a kind of message that changed nothing.
    pub kind: String,
    /// How many.
    pub n: u64,
}
