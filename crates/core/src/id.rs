//! Names of things: tasks, runs, epochs, services, workers.
//!
//! Owns the newtypes that keep a run from being passed for an epoch. Knows nothing of where they are stored.

use crate::text;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One input of one corpus for one service: the durable unit of work. Positive; ids below 1 are never tracked (rule L11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

/// One pass over a task, begun by its import or by an operator's rerun. The first run is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Run(pub u32);

/// Raised by each claim from the store, never given back. A task never claimed has epoch 0.
///
/// A claim is at most one attempt, so the epoch also orders attempts: "newer" means the higher epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// A kind of work, as the store numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServiceId(pub i64);

/// A named set of inputs imported together, as the store numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CorpusId(pub i64);

/// The identity of one lease: which task, in which of its runs, under which claim.
///
/// A [`crate::token`] is this triple with a signature; wherever a lease is named, it is named by all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The task.
    pub task: TaskId,
    /// The run of the task.
    pub run: Run,
    /// The claim of the task.
    pub epoch: Epoch,
}

/// A worker as it is remembered: the name it gave, and which of its lives this is.
///
/// The name is a label, not a proof: two live connections may claim one name. The incarnation is random for each start
/// of a worker, so the two together tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey {
    /// The name, cleaned and capped.
    pub name: String,
    /// Which life of that name.
    pub incarnation: String,
}

impl TaskId {
    /// Whether the set and the store have anything to do with this id (rule L11).
    #[must_use]
    pub const fn is_tracked(self) -> bool {
        self.0 >= 1
    }
}

impl Run {
    /// The run that an import begins.
    pub const FIRST: Self = Self(1);
}

impl Epoch {
    /// The epoch of a task that was never claimed.
    pub const NONE: Self = Self(0);

    /// The attempt's number as people see it: epoch − 1, with gaps where a claim led to no dispatch.
    #[must_use]
    pub const fn attempt(self) -> u64 {
        self.0.saturating_sub(1)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.task.0, self.run.0, self.epoch.0)
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_legacy() {
            return write!(f, "{}", self.name);
        }
        write!(f, "{}#{}", self.name, self.incarnation)
    }
}

/// The name of an input within its corpus: bytes, as file names are, with `/` between folders.
///
/// In JSON it is a string where the bytes are UTF-8, and `{"base64": "…"}` (URL-safe, unpadded) where they are not, so
/// that every name survives the way there and back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "EntryForm", into = "EntryForm")]
pub struct EntryName(pub Vec<u8>);

/// The two forms of an [`EntryName`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum EntryForm {
    Text(String),
    Bytes { base64: String },
}

impl TryFrom<EntryForm> for EntryName {
    type Error = base64::DecodeError;

    fn try_from(form: EntryForm) -> Result<Self, Self::Error> {
        Ok(Self(match form {
            EntryForm::Text(text) => text.into_bytes(),
            EntryForm::Bytes { base64 } => URL_SAFE_NO_PAD.decode(base64)?,
        }))
    }
}

impl From<EntryName> for EntryForm {
    fn from(name: EntryName) -> Self {
        String::from_utf8(name.0)
            .map_or_else(|e| Self::Bytes { base64: URL_SAFE_NO_PAD.encode(e.into_bytes()) }, Self::Text)
    }
}

impl fmt::Display for EntryName {
    /// For people, on any terminal; [`text::read_printed`] gives the name back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::printed_name(&self.0))
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
