//! Which tasks a person means: the same words for every command that lists, counts or changes tasks.
//!
//! Owns the way from names to numbers, and that a name which nobody knows is an error that lists those there are. Knows
//! nothing of what is done with the tasks.

use crate::exit::Exit;
use crate::named::Named;
use crate::views::told;
use clap::{Args, ValueEnum};
use dispatcher_core::id::{CorpusId, EntryName, ServiceId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::report::Status;
use dispatcher_store::{Corpus, Store, TaskFilter, TaskState};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Of which service and corpus.
#[derive(Clone, Debug, Default, Args)]
pub struct PlaceArgs {
    /// Only of this service.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Only of this corpus.
    #[arg(long, value_name = "NAME")]
    pub corpus: Option<String>,
}

/// Which tasks.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterArgs {
    /// Only these tasks: by id, or by INPUT, CORPUS/INPUT or SERVICE/CORPUS/INPUT as `tasks` prints them.
    #[arg(value_name = "TASK")]
    pub tasks: Vec<OsString>,
    /// What is so of them.
    #[command(flatten)]
    pub marks: MarkArgs,
    /// Of which service and corpus.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What is so of the tasks that are meant.
#[derive(Clone, Debug, Default, Args)]
pub struct MarkArgs {
    /// Only these states: ready, leased, done, dead, cancelled.
    #[arg(long = "in", value_name = "STATE", value_delimiter = ',', value_enum)]
    pub states: Vec<StateWord>,
    /// Only these statuses: no_problem, warning, error, fatal, invalid.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_enum)]
    pub status: Vec<StatusWord>,
    /// Only with a message of this category.
    #[arg(long, value_name = "WORD")]
    pub category: Option<String>,
    /// Only with a message of this second word.
    #[arg(long, value_name = "WORD")]
    pub what: Option<String>,
    /// Only inputs whose name begins so.
    #[arg(long, value_name = "PREFIX")]
    pub entry: Option<OsString>,
}

/// A task's state on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StateWord {
    /// Waiting.
    Ready,
    /// Being worked on.
    Leased,
    /// With a worker's result.
    Done,
    /// Without one, its budget spent.
    Dead,
    /// Ended by an operator.
    Cancelled,
}

/// A status on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StatusWord {
    /// Done.
    NoProblem,
    /// Done, with warnings.
    Warning,
    /// Done, with errors.
    Error,
    /// Not done.
    Fatal,
    /// The input cannot be done.
    Invalid,
}

impl PlaceArgs {
    /// The filter that the names mean.
    pub async fn filter(&self, store: &dyn Store) -> anyhow::Result<TaskFilter> {
        let service = match &self.service {
            Some(name) => Some(service_of(store, name).await?),
            None => None,
        };
        let corpus = match &self.corpus {
            Some(name) => Some(corpus_of(store, name).await?),
            None => None,
        };
        Ok(TaskFilter { service, corpus, ..TaskFilter::default() })
    }
}

impl FilterArgs {
    /// The filter that the arguments mean.
    pub async fn filter(&self, store: &dyn Store) -> anyhow::Result<TaskFilter> {
        self.marks.filter(store, &self.tasks, self.place.filter(store).await?).await
    }
}

impl MarkArgs {
    /// The filter that the arguments mean, with the tasks of these names and of this place.
    pub async fn filter(&self, store: &dyn Store, tasks: &[OsString], place: TaskFilter) -> anyhow::Result<TaskFilter> {
        // A name that a person wrote and that there is not is a slip of the pen, not an empty choice.
        let ids = if tasks.is_empty() { vec![] } else { Named::look_up(store, tasks, &place).await?.each(tasks)? };
        Ok(TaskFilter {
            ids,
            states: self.states.iter().map(|word| state_of(*word)).collect(),
            statuses: self.status.iter().map(|word| status_of(*word)).collect(),
            category: self.category.clone(),
            what: self.what.clone(),
            entry_prefix: self.entry.as_ref().map(|prefix| EntryName(prefix.as_bytes().to_vec())),
            ..place
        })
    }
}

/// The service of this name.
pub async fn service_of(store: &dyn Store, name: &str) -> anyhow::Result<ServiceId> {
    let services = store.services().await.map_err(told)?;
    let found = services.iter().find(|service| service.name == name).map(|service| service.id);
    found.ok_or_else(|| unknown("service", name, services.into_iter().map(|service| service.name).collect()))
}

/// The corpus of this name.
pub async fn corpus_of(store: &dyn Store, name: &str) -> anyhow::Result<CorpusId> {
    let corpora = store.corpora().await.map_err(told)?;
    let found = corpora.iter().find(|corpus| corpus.name == name).map(|corpus| corpus.id);
    found.ok_or_else(|| unknown("corpus", name, corpora.into_iter().map(|corpus| corpus.name).collect()))
}

/// The sandbox of this name, and its parent's name.
pub async fn sandbox_of(store: &dyn Store, name: &str) -> anyhow::Result<(Corpus, String)> {
    let corpora = store.corpora().await.map_err(told)?;
    let is_sandbox = |corpus: &&Corpus| matches!(corpus.kind, Some(CorpusKind::Sandbox(_)));
    if let Some(found) = corpora.iter().find(|corpus| corpus.name == name) {
        if !is_sandbox(&found) {
            return Err(Exit::usage(format!(
                "{name:?} is no sandbox: `dispatcher sandbox list` lists those there are"
            )));
        }
        let parent = corpora.iter().find(|corpus| Some(corpus.id) == found.parent);
        let parent = parent.map_or_else(|| "a corpus that is gone".to_owned(), |parent| parent.name.clone());
        return Ok((found.clone(), parent));
    }
    let known = corpora.iter().filter(is_sandbox).map(|corpus| corpus.name.clone()).collect();
    Err(unknown("sandbox", name, known))
}

fn unknown(kind: &str, name: &str, known: Vec<String>) -> anyhow::Error {
    let known = if known.is_empty() { "there is none yet".to_owned() } else { format!("known: {}", known.join(", ")) };
    Exit::usage(format!("there is no {kind} {name:?}; {known}"))
}

const fn state_of(word: StateWord) -> TaskState {
    match word {
        StateWord::Ready => TaskState::Ready,
        StateWord::Leased => TaskState::Leased,
        StateWord::Done => TaskState::Done,
        StateWord::Dead => TaskState::Dead,
        StateWord::Cancelled => TaskState::Cancelled,
    }
}

const fn status_of(word: StatusWord) -> Status {
    match word {
        StatusWord::NoProblem => Status::NoProblem,
        StatusWord::Warning => Status::Warning,
        StatusWord::Error => Status::Error,
        StatusWord::Fatal => Status::Fatal,
        StatusWord::Invalid => Status::Invalid,
    }
}
