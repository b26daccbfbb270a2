//! What a worker is asked to do and what it answers.
//!
//! Owns the [`Worker`] trait and the values that pass through it. Knows nothing of the wire: whoever implements the trait
//! sees a task, a signal to stop, and says how it went.

use crate::cancel::Cancel;
use crate::scratch::SlotFolder;
use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::{Message, Severity, Status};
use std::path::PathBuf;
use std::time::Duration;

/// Does the work of a service, one task at a time in each of its slots.
///
/// ```
/// use dispatcher_worker::{Assignment, Cancel, OutPart, Outcome, Worker};
///
/// struct Shout;
///
/// impl Worker for Shout {
///     fn work(&self, task: &Assignment, _cancel: &Cancel) -> Outcome {
///         match task.input.read() {
///             Ok(input) => Outcome::done(vec![OutPart::result(input.to_ascii_uppercase())]),
///             Err(e) => Outcome::retryable("input", "unreadable", &e.to_string()),
///         }
///     }
/// }
/// ```
pub trait Worker: Send + Sync {
    /// Works on `task` and says how it went. Called on the slot's own thread, by several slots at once.
    ///
    /// Work that takes long asks `cancel` now and then, and returns soon after it is given; what it returns then is
    /// judged as always, except that [`Outcome::Release`] after the time limit becomes the cause `timeout:wallclock`.
    /// A panic is caught and becomes the retryable cause `crash:panic` (rule R4).
    fn work(&self, task: &Assignment, cancel: &Cancel) -> Outcome;
}

/// One task, as a worker's slot gets it.
#[derive(Debug)]
pub struct Assignment {
    /// The task's id, for people and for names of things.
    pub task: TaskId,
    /// The attempt's number, for people.
    pub attempt: u64,
    /// The service.
    pub service: String,
    /// The corpus.
    pub corpus: String,
    /// The input's name within its corpus. It comes from outside: never use it as a path.
    pub entry: EntryName,
    /// The input's size in bytes.
    pub size: u64,
    /// The time limit, from now.
    pub limit: Duration,
    /// The input.
    pub input: Input,
    /// Up to how many bytes all parts of a retryable cause may have together; more is left out.
    pub inline_max: u64,
    /// A folder for this task alone, empty at its start, emptied after it.
    pub folder: SlotFolder,
}

/// The bytes of a task's input.
#[derive(Clone, Debug)]
pub enum Input {
    /// They are here.
    Bytes(Bytes),
    /// They are in this file, which lies in the slot's folder and may be changed or moved.
    File(PathBuf),
}

/// How a task went.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A result, good or bad: it is a verdict about the input.
    Done {
        /// How it went.
        status: Status,
        /// What is to be said about it.
        messages: Vec<Message>,
        /// What it consists of.
        parts: Vec<OutPart>,
    },
    /// No result; another attempt is worth while (rule R4).
    Retryable {
        /// Why.
        cause: Message,
        /// What else is to be said about it.
        messages: Vec<Message>,
        /// What was kept of its output, small.
        parts: Vec<OutPart>,
    },
    /// The task goes back as if it had not begun, uncharged (rule A2).
    Release,
}

/// One named part of a result.
#[derive(Clone, Debug)]
pub struct OutPart {
    /// Its name: `result`, `stdout` or `stderr`. Of two parts of one name the first counts.
    pub name: String,
    /// Its bytes.
    pub body: PartBody,
}

/// Where the bytes of a part are.
#[derive(Clone, Debug)]
pub enum PartBody {
    /// Here.
    Bytes(Bytes),
    /// In this regular file, which is taken away. The way for everything large: it passes in bounded memory.
    File(PathBuf),
}

impl Input {
    /// The whole input. For large inputs take the file instead.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read(&self) -> std::io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File(path) => std::fs::read(path).map(Bytes::from),
        }
    }
}

impl Outcome {
    /// A result without anything to say about it.
    #[must_use]
    pub const fn done(parts: Vec<OutPart>) -> Self {
        Self::Done { status: Status::NoProblem, messages: Vec::new(), parts }
    }

    /// A failure that is a verdict about the input: Fatal, with its reason.
    #[must_use]
    pub fn fatal(category: &str, what: &str, details: &str) -> Self {
        let messages = vec![message(Severity::Fatal, category, what, details)];
        Self::Done { status: Status::Fatal, messages, parts: Vec::new() }
    }

    /// A cause that is worth another attempt.
    #[must_use]
    pub fn retryable(category: &str, what: &str, details: &str) -> Self {
        let cause = message(Severity::Fatal, category, what, details);
        Self::Retryable { cause, messages: Vec::new(), parts: Vec::new() }
    }
}

impl OutPart {
    /// The result itself, from memory.
    #[must_use]
    pub fn result(bytes: impl Into<Bytes>) -> Self {
        Self { name: dispatcher_core::wire::PART_RESULT.to_owned(), body: PartBody::Bytes(bytes.into()) }
    }

    /// The result itself, from a file that is taken away.
    #[must_use]
    pub fn result_file(path: impl Into<PathBuf>) -> Self {
        Self { name: dispatcher_core::wire::PART_RESULT.to_owned(), body: PartBody::File(path.into()) }
    }
}

/// A message from its pieces.
pub(crate) fn message(severity: Severity, category: &str, what: &str, details: &str) -> Message {
    Message { severity, category: category.to_owned(), what: what.to_owned(), details: details.to_owned() }
}
