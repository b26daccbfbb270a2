//! Sandboxes: what they may be carved out of, how their tasks ended beside their parent's, and what goes with them.
//!
//! Owns plain values, and the reasons for which a carve or a deletion is refused, so that stores cannot differ in them.

use super::{Carve, Corpus, Named, PartRef};
use crate::limits::check_name;
use dispatcher_core::finalise::TaskState;
use dispatcher_core::id::{EntryName, LeaseId, ServiceId, TaskId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::report::Status;
use serde::{Serialize, Serializer};

/// Where the task of a sandbox, or the one it was carved from, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskEnd {
    /// Over, and this stands.
    With(Status),
    /// Ready or leased.
    Open,
    /// Ended by an operator.
    Cancelled,
    /// There is no such task any more.
    Gone,
}

impl TaskEnd {
    /// From what its row says.
    pub(crate) const fn of(state: TaskState, status: Option<Status>) -> Self {
        match (state, status) {
            (TaskState::Cancelled, _) => Self::Cancelled,
            (TaskState::Done | TaskState::Dead, Some(status)) => Self::With(status),
            _ => Self::Open,
        }
    }

    /// The word for it: of the status, or `open`, `cancelled`, `gone`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::With(status) => status.as_str(),
            Self::Open => "open",
            Self::Cancelled => "cancelled",
            Self::Gone => "gone",
        }
    }

    /// The status that stands, where one does.
    #[must_use]
    pub const fn status(self) -> Option<Status> {
        match self {
            Self::With(status) => Some(status),
            _ => None,
        }
    }
}

impl Serialize for TaskEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A task of a sandbox beside the one it was carved from. A cause is category and `what` of the gravest message of what
/// stands; `no_problem` has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The sandbox's task.
    pub task: TaskId,
    /// The parent's task; `None` where it is gone.
    pub parent: Option<TaskId>,
    /// The input of both.
    pub entry: EntryName,
    /// How it was in the parent.
    pub was: TaskEnd,
    /// Why it was so.
    pub was_cause: Option<(String, String)>,
    /// How it is in the sandbox.
    pub is: TaskEnd,
    /// Why it is so.
    pub is_cause: Option<(String, String)>,
}

/// What is stored of one attempt of a task that goes with its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its sandbox.
    pub corpus: Corpus,
    /// The name of its service.
    pub service: String,
    /// Its input.
    pub entry: EntryName,
    /// The attempt.
    pub lease: LeaseId,
    /// Its parts.
    pub parts: Vec<PartRef>,
}

/// What there is of what a carve names.
#[derive(Debug)]
pub(crate) struct CarvePlaces {
    /// A corpus has the sandbox's name.
    pub(crate) is_taken: bool,
    /// The corpus that the filter names.
    pub(crate) parent: Option<Corpus>,
    /// The service of the parent's tasks is there.
    pub(crate) of: bool,
    /// The service that is to do them is there.
    pub(crate) by: bool,
}

impl Carve {
    /// The service that is to do the tasks.
    pub(crate) fn by(&self) -> Option<ServiceId> {
        self.service.or(self.filter.service)
    }

    /// Whether it can be carved, or why not.
    pub(crate) fn check(&self, places: &CarvePlaces) -> Result<(), String> {
        check_name("a sandbox", &self.name)?;
        if places.is_taken {
            return Err(format!("there is a corpus {:?} already: choose another name", self.name));
        }
        if self.filter.corpus.is_none() || self.filter.service.is_none() {
            return Err("a sandbox is carved out of the tasks of one corpus and one service".to_owned());
        }
        let Some(parent) = &places.parent else { return Err("the corpus to carve it out of is gone".to_owned()) };
        match parent.kind {
            Some(CorpusKind::Ordinary) => {}
            Some(CorpusKind::Sandbox(_)) => {
                return Err(format!("{:?} is a sandbox itself: carve another one out of its parent", parent.name));
            }
            None => return Err(not_known(&parent.name)),
        }
        if !places.of || !places.by {
            return Err("the service is gone".to_owned());
        }
        Ok(())
    }

    /// Why a carve ends without a sandbox.
    pub(crate) fn nothing_matches(&self) -> String {
        format!("nothing matches: {:?} was not made", self.name)
    }

    /// Whether `found` is what the pieces before have made.
    pub(crate) fn has_made(&self, found: &Corpus) -> bool {
        found.kind == Some(CorpusKind::Sandbox(found.id)) && found.parent == self.filter.corpus
    }

    /// Why a carve that had begun goes no further.
    pub(crate) fn lost(&self) -> String {
        format!("the sandbox {:?} is gone", self.name)
    }

    /// How many more tasks it takes, after so many.
    pub(crate) fn room(&self, made: u64) -> usize {
        let room = self.most.map_or(u64::MAX, |most| most.saturating_sub(made));
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

impl Named {
    /// Whether `corpus`, which has the name, may be deleted by it; `sandboxes` are the names of those carved out of it.
    pub(crate) fn check(&self, corpus: &Corpus, sandboxes: &[String]) -> Result<(), String> {
        let name = &corpus.name;
        match (self, corpus.kind) {
            (Self::Corpus(_), Some(CorpusKind::Sandbox(_))) => {
                Err(format!("{name:?} is a sandbox: `dispatcher sandbox drop {name}` takes its result files as well"))
            }
            (Self::Sandbox(_), Some(CorpusKind::Ordinary)) => {
                Err(format!("{name:?} is no sandbox: `dispatcher delete corpus {name}` deletes a whole corpus"))
            }
            (Self::Sandbox(_), None) => Err(not_known(name)),
            (Self::Corpus(_), _) if !sandboxes.is_empty() => {
                let drops: Vec<_> = sandboxes.iter().map(|name| format!("`dispatcher sandbox drop {name}`")).collect();
                Err(format!("{name:?} has sandboxes: {} before it", drops.join(", ")))
            }
            _ => Ok(()),
        }
    }
}

impl Corpus {
    /// Whether entries may be imported into it, or why not.
    pub(crate) fn check_import(&self) -> Result<(), String> {
        match self.kind {
            Some(CorpusKind::Ordinary) => Ok(()),
            Some(CorpusKind::Sandbox(_)) => Err(format!(
                "the corpus {:?} is a sandbox, and has inputs of its parent only: nothing is imported into it",
                self.name
            )),
            None => Err(not_known(&self.name)),
        }
    }
}

fn not_known(name: &str) -> String {
    format!("what the corpus {name:?} is cannot be read from its row")
}

/// What a corpus is, in words; nothing where it is not known.
pub(super) fn kind_word<S: Serializer>(kind: &Option<CorpusKind>, serializer: S) -> Result<S::Ok, S::Error> {
    let word = kind.map(|kind| match kind {
        CorpusKind::Ordinary => "ordinary",
        CorpusKind::Sandbox(_) => "sandbox",
    });
    word.serialize(serializer)
}
