//! What is said of an attempt: statuses, messages, endings, and the grammar of a log line.
//!
//! Owns the vocabulary that workers, the store and people share. Knows nothing of who says it or how it travels.

mod log_line;

pub use log_line::{LINE_MAX, Log, LogReader, is_retryable_cause};

use serde::{Deserialize, Serialize};

/// How a result went, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Done, nothing to say.
    NoProblem,
    /// Done, with warnings.
    Warning,
    /// Done, with errors; the result is of use.
    Error,
    /// Not done.
    Fatal,
    /// The input cannot be done.
    Invalid,
}

/// How grave one message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something may be wrong.
    Warning,
    /// Something is wrong.
    Error,
    /// The task could not be done.
    Fatal,
    /// The input cannot be done.
    Invalid,
}

/// One thing that was said about an attempt, by a worker or by the dispatcher itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// How grave it is.
    pub severity: Severity,
    /// The first word of the kind, such as `crash`.
    pub category: String,
    /// The second word of the kind, such as `SIGKILL`.
    #[serde(default)]
    pub what: String,
    /// The rest, for a person.
    #[serde(default)]
    pub details: String,
}

/// How an attempt ended (rule A5). Each attempt has exactly one; a late decision may move it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Its result stands, or stood until a better one came.
    Accepted,
    /// Its result lost against one that stands.
    Superseded,
    /// It belongs to an earlier run.
    Stale,
    /// Its lease ran out and nothing was heard.
    Expired,
    /// Its worker is gone.
    WorkerLost,
    /// It took longer than the service allows.
    TimeLimit,
    /// Its reply was no result.
    Unusable,
    /// It told a cause that is worth another try.
    RetryableCause,
    /// It never reached its worker.
    Undeliverable,
    /// Its worker gave it back in good order.
    HandedBack,
    /// An operator ended it.
    Cancelled,
}

/// Who filed what stands for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A worker's result.
    Worker,
    /// The dispatcher's Fatal for a run whose budget is spent (rule X3). Counts as "nothing accepted yet".
    ReaperStandIn,
    /// The dispatcher's Fatal for a cause told by the last attempt of the budget (rule R5). Counts as that attempt's
    /// failure.
    LastAttemptStandIn,
}

impl Status {
    /// All statuses, best first.
    pub const ALL: [Self; 5] = [Self::NoProblem, Self::Warning, Self::Error, Self::Fatal, Self::Invalid];

    /// Whether a result with this status is of use to anybody: NoProblem, Warning and Error are; Fatal and Invalid are
    /// failures.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::NoProblem | Self::Warning | Self::Error)
    }

    /// The word for people, files and the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoProblem => "no_problem",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Fatal => "fatal",
            Self::Invalid => "invalid",
        }
    }
}

impl Ending {
    /// All endings, in the order of their listing in the rules.
    pub const ALL: [Self; 11] = [
        Self::Accepted,
        Self::Superseded,
        Self::Stale,
        Self::Expired,
        Self::WorkerLost,
        Self::TimeLimit,
        Self::Unusable,
        Self::RetryableCause,
        Self::Undeliverable,
        Self::HandedBack,
        Self::Cancelled,
    ];

    /// The word for people, files and the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Superseded => "superseded",
            Self::Stale => "stale",
            Self::Expired => "expired",
            Self::WorkerLost => "worker_lost",
            Self::TimeLimit => "time_limit",
            Self::Unusable => "unusable",
            Self::RetryableCause => "retryable_cause",
            Self::Undeliverable => "undeliverable",
            Self::HandedBack => "handed_back",
            Self::Cancelled => "cancelled",
        }
    }
}
