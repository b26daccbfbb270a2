//! What goes into the finaliser's batch and what comes out of it, as values.

use crate::claim::Standing;
use crate::id::{EntryName, LeaseId, WorkerKey};
use crate::report::{Ending, Message, Origin, Status};
use crate::time::TimeMs;
use crate::wire::PART_RESULT;
use serde::{Deserialize, Serialize};

/// A dispatcher process, as the store numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DispatcherId(pub i64);

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting to be claimed.
    Ready,
    /// Claimed by a dispatcher.
    Leased,
    /// A worker's result stands.
    Done,
    /// Only a stand-in stands.
    Dead,
    /// An operator ended it.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Leased, Self::Done, Self::Dead, Self::Cancelled];

    /// Its word, in rows, in JSON and for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A part of a result as the archive knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartRef {
    /// `result`, `stdout` or `stderr`.
    pub name: String,
    /// Where it lies, in the archive's own words.
    pub place: EntryName,
    /// Where it begins there, in bytes: 0 in a file of its own, more in a pack, where a header comes before it.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

impl PartRef {
    /// Whether it has a place where people look for it, into which it is put after its commit. Kept output has none, nor has
    /// anything in a pack or in an archive that keeps nothing.
    #[must_use]
    pub fn is_to_be_placed(&self) -> bool {
        self.name == PART_RESULT && !self.place.0.is_empty() && !self.is_packed()
    }

    /// Whether it lies in a pack, behind a header: its commit is its publication.
    #[must_use]
    pub const fn is_packed(&self) -> bool {
        self.offset > 0
    }
}

/// One thing for the finaliser's next batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A lease went to a worker.
    HandedOut {
        /// The lease.
        lease: LeaseId,
        /// To whom.
        worker: WorkerKey,
        /// When.
        at: TimeMs,
        /// Whether delivery is the start of work: the wire does not tell it (rule A2).
        began: bool,
    },
    /// Work on it began.
    Began {
        /// The lease.
        lease: LeaseId,
        /// When.
        at: TimeMs,
    },
    /// A worker's result, its bytes durable in the archive already.
    Result {
        /// The lease it was computed under.
        lease: LeaseId,
        /// By whom.
        worker: WorkerKey,
        /// How it went.
        status: Status,
        /// What was said about it; cleaned.
        messages: Vec<Message>,
        /// Its parts.
        parts: Vec<PartRef>,
        /// When it was received.
        at: TimeMs,
    },
    /// An attempt ended without a result. The row decides whether the task is requeued or dead.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// Whose it was; `None` where no worker ever had it.
        worker: Option<WorkerKey>,
        /// How it ended.
        ending: Ending,
        /// Whether work had begun, and so whether it is charged (rule A2).
        began: bool,
        /// Why: a retryable cause where `ending` says so, else what we saw ourselves.
        why: Message,
        /// What else was said.
        messages: Vec<Message>,
        /// What was kept of its output.
        parts: Vec<PartRef>,
        /// When.
        at: TimeMs,
    },
    /// The dispatcher cannot read the input: no attempt was made.
    InputFailed {
        /// The claim that it was found under.
        lease: LeaseId,
        /// What is wrong: `input_changed`, `input_missing`, `input_unreadable`, `input_timeout`.
        why: Message,
        /// Whether another try may help; it is charged.
        retry: bool,
        /// When.
        at: TimeMs,
    },
    /// A claimed task goes back unsent and uncharged.
    Returned {
        /// The claim.
        lease: LeaseId,
    },
    /// The files of a result that stands are where people look for them. It marks what is filed under the lease when its
    /// turn comes, so a batch has its marks before its results.
    Published {
        /// The lease of the result.
        lease: LeaseId,
    },
}

impl Record {
    /// The lease it is about.
    #[must_use]
    pub const fn lease(&self) -> LeaseId {
        match self {
            Self::HandedOut { lease, .. }
            | Self::Began { lease, .. }
            | Self::Result { lease, .. }
            | Self::Ended { lease, .. }
            | Self::InputFailed { lease, .. }
            | Self::Returned { lease }
            | Self::Published { lease } => *lease,
        }
    }

    /// Who had the lease, where the record says so.
    #[must_use]
    pub const fn worker(&self) -> Option<&WorkerKey> {
        match self {
            Self::HandedOut { worker, .. } | Self::Result { worker, .. } => Some(worker),
            Self::Ended { worker, .. } => worker.as_ref(),
            Self::Began { .. } | Self::InputFailed { .. } | Self::Returned { .. } | Self::Published { .. } => None,
        }
    }

    /// Whether it brings an attempt to its end, so that somebody waits for its answer.
    #[must_use]
    pub const fn is_an_end(&self) -> bool {
        matches!(self, Self::Result { .. } | Self::Ended { .. } | Self::InputFailed { .. })
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A note was taken (hand-out, begin, return, publication) or did no longer matter.
    Noted,
    /// The result stands; also the answer to a repeat of it.
    Stored {
        /// What stood until now; `None` also for a repeat.
        replaced: Option<Standing>,
        /// Whether it was stored before, so that nothing is to be published anew.
        repeat: bool,
    },
    /// Something at least as good stands.
    Superseded {
        /// What stands.
        by: Standing,
    },
    /// It belongs to an earlier run.
    Stale,
    /// The task was cancelled.
    Cancelled,
    /// No such task or claim.
    Unknown,
    /// The database refused this row alone; the task ended with that as its reason (rule D4).
    Refused {
        /// What the database said.
        why: String,
    },
    /// The task is ready again.
    Requeued {
        /// Charged attempts of the run so far.
        charged: u32,
        /// Not before.
        not_before: TimeMs,
    },
    /// The run is over without a worker's result: this stand-in stands.
    DeadLettered {
        /// Who filed it.
        origin: Origin,
        /// The reason that was stored.
        reason: Message,
    },
}
