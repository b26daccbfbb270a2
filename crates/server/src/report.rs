//! What the stages tell each other.
//!
//! Owns the messages on the channels router → receiver → finaliser and back to the router. One path forward for
//! everything, so that what happened first is written first. Knows nothing of how a message is acted on.

use crate::legacy::LegacyReply;
use bytes::Bytes;
use dispatcher_core::fleet::{Kept, Piece};
use dispatcher_core::id::{LeaseId, ServiceId, WorkerKey};
use dispatcher_core::in_flight::Receipt;
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_core::wire::{AckWord, HoldState, PartSpec};
use dispatcher_store::{ClaimedTask, Record, WorkerNote};
use dispatcher_transport::socket::Held;
use std::path::PathBuf;
use std::time::Instant;

/// From the router to the receiver.
#[derive(Debug)]
pub enum Arrival {
    /// Nothing to be received: goes on to the finaliser as it is.
    Note(Record),
    /// A result or a retryable cause with all its bytes.
    Whole {
        /// What was reported.
        reported: Reported,
        /// A body for each part, in the order of the parts.
        bodies: Vec<Bytes>,
    },
    /// A result whose bytes will come in pieces.
    Begin(Reported),
    /// One such piece.
    Piece {
        /// Which.
        piece: Piece,
        /// The bytes.
        bytes: Bytes,
    },
    /// The pieces stop: the worker is gone or the transfer begins anew.
    Drop(LeaseId),
    /// A question to the store.
    Ask(Question),
    /// How the workers are now.
    Workers(Vec<WorkerNote>),
}

/// What a worker reported of a lease.
#[derive(Debug)]
pub struct Reported {
    /// The lease.
    pub lease: LeaseId,
    /// The worker.
    pub worker: WorkerKey,
    /// How it went; a retryable cause is no result.
    pub verdict: Reporting,
    /// What was said about it.
    pub messages: Vec<Message>,
    /// What belongs to it.
    pub parts: Vec<PartSpec>,
    /// When it came.
    pub at: TimeMs,
    /// The same moment, to measure from.
    pub arrived: Instant,
    /// Keeps the reaper away until the decision (rule R3).
    pub receipt: Option<Receipt>,
    /// Its place among the bytes of the legacy wire that may be held at once.
    pub held: Option<Held>,
}

/// A result or the reason why there will be none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// A result.
    Result(Status),
    /// A retryable cause.
    Retryable(Message),
}

/// From the receiver to the finaliser.
#[derive(Debug)]
pub enum Delivery {
    /// A record that needs no bytes.
    Note(Record),
    /// A report whose bytes are here and as they should be.
    Complete {
        /// What was reported.
        reported: Reported,
        /// Bytes for each part, in the order of the parts.
        bytes: Vec<PartBytes>,
    },
    /// A reply that is no result (rule R1).
    Unusable {
        /// What was reported.
        reported: Reported,
        /// Why.
        why: Message,
    },
    /// A question to the store.
    Ask(Question),
    /// How the workers are now.
    Workers(Vec<WorkerNote>),
    /// A reply of the legacy wire.
    Legacy(Box<LegacyReply>),
}

/// Where a part's bytes are.
#[derive(Debug)]
pub enum PartBytes {
    /// In memory.
    Memory(Bytes),
    /// In the archive's spool.
    Spool(PathBuf),
}

/// What only the store can answer.
#[derive(Debug)]
pub enum Question {
    /// A worker came (back) with tasks that memory does not know.
    Holds {
        /// Who.
        worker: WorkerKey,
        /// What it holds.
        holds: Vec<(LeaseId, HoldState)>,
    },
}

/// To the router.
#[derive(Debug)]
pub enum Order {
    /// Freshly claimed tasks.
    Claimed(Vec<Work>),
    /// Tell the worker what became of its report.
    Answer {
        /// The lease.
        lease: LeaseId,
        /// The word.
        word: AckWord,
        /// More.
        why: Option<String>,
    },
    /// The lease is over and its worker should stop: its time is up, or the task was cancelled.
    Cut {
        /// The lease.
        lease: LeaseId,
        /// Why.
        why: String,
    },
    /// The answer to [`Question::Holds`].
    Holds {
        /// Who.
        worker: WorkerKey,
        /// Go on with these.
        keep: Vec<Kept>,
        /// Forget these.
        drop: Vec<LeaseId>,
    },
    /// A piece was written down; the next may come.
    PieceTaken(Piece),
    /// These are out since before this process began, and are known again (rule S4).
    Adopted(Vec<Work>),
    /// These of the legacy wire are out since before this process began, with their workers.
    AdoptedLegacy(Vec<(LeaseId, WorkerKey)>),
    /// The result of this lease of the legacy wire is here.
    Brought(LeaseId),
    /// A command ended these leases: nobody works on them any longer.
    Revoked {
        /// The leases.
        leases: Vec<LeaseId>,
        /// Why.
        why: String,
    },
    /// Tasks of this service that no worker has go back: it is paused.
    GiveBack(ServiceId),
    /// Look at once whether to drain.
    Drain,
}

/// A claimed task with what is needed to hand it out.
#[derive(Clone, Debug)]
pub struct Work {
    /// The task.
    pub task: ClaimedTask,
    /// The name of its service.
    pub service: String,
    /// The name of its corpus.
    pub corpus: String,
    /// Charged attempts that one run may spend.
    pub budget: u32,
    /// The largest result, in bytes.
    pub result_cap: u64,
    /// How many tasks of the service may be in flight.
    pub max_in_flight: Option<u32>,
    /// The input's path.
    pub path: PathBuf,
    /// Workers of the legacy wire that may still bring a result of an earlier run and could not be told apart (rule L8), and
    /// when they had it last.
    pub worked_earlier: Vec<(String, TimeMs)>,
}

/// Why a reply is unusable where nothing may be written for its task's corpus (rules C12, G8).
pub(crate) fn place_not_known() -> Message {
    Message {
        severity: Severity::Error,
        category: "dispatcher".to_owned(),
        what: "place_not_known".to_owned(),
        details: "what the task's corpus is, is not known, and so is the place of its result".to_owned(),
    }
}
