//! What a worker and the dispatcher say to each other on the v1 wire, as values.
//!
//! Owns the messages and their JSON form (`docs/protocol.md` gives each with every reply). Knows nothing of frames,
//! sockets or bytes of files: those travel beside the message and the transport crate's codec puts them together.
//!
//! Unknown fields are ignored, so that either side may be newer.

pub mod limits;

use crate::id::{EntryName, TaskId};
use crate::report::{Message, Status};
use serde::{Deserialize, Serialize};

/// The version of the protocol that this crate speaks, as it stands in `hello`.
pub const PROTO: u32 = 1;

/// A token as it travels: opaque text that the worker gives back unchanged.
///
/// [`crate::token`] makes and reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenText(pub String);

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message of a connection: who the worker is and what it still holds.
    Hello {
        /// The protocol version, [`PROTO`].
        proto: u32,
        /// The worker's name: a label for people.
        name: String,
        /// Which life of that name this is: random for each start.
        incarnation: String,
        /// The services it can do.
        services: Vec<String>,
        /// How many tasks it works on at once.
        slots: u32,
        /// Every task it has, from connections before this one.
        #[serde(default)]
        holds: Vec<Hold>,
    },
    /// How many tasks the worker has asked for on this connection in all. Open credit is this minus what was sent.
    Ready {
        /// The cumulative count since this connection's `hello`.
        granted: u64,
    },
    /// Work on the task has begun: its clock starts.
    Begun {
        /// The lease.
        token: TokenText,
    },
    /// Sign of life, with the authoritative list of what the worker has.
    Beat {
        /// Counts the beats of this connection.
        n: u64,
        /// How many tasks have been received on this connection: tells a task under way from a lost one.
        received: u64,
        /// Every task it has.
        holds: Vec<Hold>,
    },
    /// Asks for a piece of an input that was too large to come with its task.
    Fetch {
        /// The lease.
        token: TokenText,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// How long it is, in bytes; at most `chunk_max`.
        length: u64,
    },
    /// The result. Its bytes come with it where all parts together are at most `inline_max`; else they are wanted later.
    Result {
        /// The lease.
        token: TokenText,
        /// How it went.
        status: Status,
        /// What is to be said about it.
        #[serde(default)]
        messages: Vec<Message>,
        /// What it consists of.
        #[serde(default)]
        parts: Vec<PartSpec>,
    },
    /// A piece of a part, in answer to `want`, with its bytes.
    Part {
        /// The lease.
        token: TokenText,
        /// The part.
        name: String,
        /// Where the piece begins, in bytes.
        offset: u64,
    },
    /// No result will come from this attempt, and another attempt is worth while.
    Retryable {
        /// The lease.
        token: TokenText,
        /// Why.
        cause: Message,
        /// What else is to be said about it.
        #[serde(default)]
        messages: Vec<Message>,
        /// What was kept of its output. Always with its bytes, so at most `inline_max` together.
        #[serde(default)]
        parts: Vec<PartSpec>,
    },
    /// The worker gives the task back and has lost nothing by it.
    Release {
        /// The lease.
        token: TokenText,
    },
    /// The worker leaves. What it still holds it keeps for its next connection.
    Bye,
}

/// What the dispatcher says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// The answer to `hello`.
    Welcome {
        /// How often each side gives a sign of life, in milliseconds.
        beat_ms: u64,
        /// After how much silence the worker counts as lost, in milliseconds.
        dead_after_ms: u64,
        /// Up to how many bytes inputs and results travel inside their message.
        inline_max: u64,
        /// The longest piece of a file, in bytes.
        chunk_max: u64,
        /// Of what the worker holds: go on with these.
        keep: Vec<TokenText>,
        /// Of what the worker holds: forget these.
        drop: Vec<TokenText>,
    },
    /// Work. The input's bytes come with it where it is at most `inline_max`; else it is fetched.
    Task {
        /// The lease.
        token: TokenText,
        /// The task's id, for people and for the names of things: the token stays opaque.
        task: TaskId,
        /// The service.
        service: String,
        /// The corpus.
        corpus: String,
        /// The input's name.
        entry: EntryName,
        /// The input's size in bytes.
        size: u64,
        /// The task's time limit from `begun`, in milliseconds.
        limit_ms: u64,
        /// The attempt's number, for people.
        attempt: u64,
    },
    /// A piece of an input, in answer to `fetch`, with its bytes.
    Chunk {
        /// The lease.
        token: TokenText,
        /// Where the piece begins, in bytes.
        offset: u64,
    },
    /// Asks for a piece of a result's part.
    Want {
        /// The lease.
        token: TokenText,
        /// The part.
        name: String,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        length: u64,
    },
    /// What became of a `result`, `retryable` or `release`. Any answer lets the worker forget the task.
    Ack {
        /// The lease.
        token: TokenText,
        /// What became of it.
        answer: AckWord,
        /// Why, where the word alone does not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Sign of life.
    Beat {
        /// The worker's beat that this answers.
        n: u64,
        /// Of what the worker said to hold: these belong to it no longer, it stops and forgets them.
        #[serde(default)]
        unknown: Vec<TokenText>,
    },
    /// Stop working on the task and forget it.
    Cancel {
        /// The lease.
        token: TokenText,
        /// Why.
        why: String,
    },
    /// Nothing more will be handed out: finish what has begun, give back what has not.
    Drain,
    /// The dispatcher does not understand or does not allow it.
    Error {
        /// What is wrong, as a word.
        code: ErrorCode,
        /// What is wrong and what to do, for a person.
        message: String,
    },
}

/// A task that a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// The lease.
    pub token: TokenText,
    /// How far it is.
    pub state: HoldState,
}

/// How far a task is at its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Waiting for a slot.
    Queued,
    /// Being worked on.
    Running,
    /// Done, and its result waits for an answer.
    Finished,
}

/// One named piece of a result: the result itself, or what was kept of a program's output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartSpec {
    /// Its name: `result`, `stdout` or `stderr`.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

/// The words of an answer. The store's answers use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckWord {
    /// It is on disk and stands, or has done its work.
    Stored,
    /// Something at least as good stands.
    Superseded,
    /// It belongs to an earlier run.
    Stale,
    /// The task was cancelled.
    Cancelled,
    /// The store has no such task or lease.
    Unknown,
    /// It cannot be taken as it is.
    Refused,
}

/// What is wrong, as a word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A message that cannot be read.
    Malformed,
    /// A message before `hello`.
    NoHello,
    /// A version of the protocol that is not spoken here.
    Version,
    /// A token with a bad signature.
    BadToken,
    /// More than one connection may have.
    Limit,
    /// The dispatcher has no such service.
    NoService,
}

/// The part that is the result itself.
pub const PART_RESULT: &str = "result";
/// The part with what was kept of the program's standard output.
pub const PART_STDOUT: &str = "stdout";
/// The part with what was kept of the program's standard error.
pub const PART_STDERR: &str = "stderr";
