//! The answer: a pure function of the facts.
//!
//! Owns the words for every state that a task can be in. Looks at no store and no clock.

use super::holds::Bounds;
use super::{over, waiting, working};
use crate::views::log::in_words;
use crate::views::words;
use dispatcher_core::id::{TaskId, WorkerKey};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    AttemptRow, Command, CommandRow, Outlook, Service, Story, TaskFilter, TaskRow, TaskState, WorkerRow,
};
use serde::Serialize;
use std::collections::HashMap;

/// Everything that the answer hangs on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The time.
    pub now: TimeMs,
    /// Whether a dispatcher is at work on the state folder.
    pub at_work: bool,
    /// What a person does where none is.
    pub start: String,
    /// What names the state folder in a command, unless it is found without.
    pub(super) state_flag: String,
    /// Whether it is a task of a `run`, which is told other things than a server.
    pub(super) of_a_run: bool,
    /// What tells a worker where the dispatcher is, unless it finds it without.
    pub(super) connect_flag: String,
    /// The task and what it has been through.
    pub story: Story,
    /// Its place in the queue, and its limit.
    pub outlook: Option<Outlook>,
    /// Its service.
    pub service: Option<Service>,
    /// What is in flight, of a task that no worker has.
    pub in_flight: Option<InFlight>,
    /// What the dispatcher waits for before it hands out anything.
    pub waits_for: Option<String>,
    /// What it allows.
    pub bounds: Bounds,
    /// The sizes of the inputs that workers of the legacy wire have now, in bytes.
    pub unread: HashMap<TaskId, u64>,
    /// The workers heard last.
    pub workers: Vec<WorkerRow>,
    /// The newest commands, oldest first.
    pub commands: Vec<CommandRow>,
}

/// What is in flight beside a task that no worker has.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    /// Of its service.
    pub of_service: u64,
    /// Of all services.
    pub of_all: u64,
}

/// One clear answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Where the task is.
    pub headline: String,
    /// Why, the weightiest first.
    pub because: Vec<String>,
    /// What comes next, or what to do.
    pub next: String,
}

/// Says why a task is where it is.
pub fn why(facts: &Facts) -> Answer {
    match facts.story.task.state {
        TaskState::Ready => waiting::why(facts),
        TaskState::Leased => working::why(facts),
        TaskState::Done => over::done(facts),
        TaskState::Dead => over::dead(facts),
        TaskState::Cancelled => over::cancelled(facts),
    }
}

impl Facts {
    pub(super) const fn task(&self) -> &TaskRow {
        &self.story.task
    }

    /// The attempts of the current run, oldest first.
    pub(super) fn attempts(&self) -> impl DoubleEndedIterator<Item = &AttemptRow> {
        self.story.attempts.iter().filter(|attempt| attempt.run == self.task().run)
    }

    /// The service's name.
    pub(super) fn service_name(&self) -> &str {
        self.service.as_ref().map_or("that was deleted", |service| &service.name)
    }

    /// How many charged attempts a run may spend.
    pub(super) fn budget(&self) -> u32 {
        self.service.as_ref().map_or(0, |service| service.settings.budget)
    }

    /// Workers that have a connection and offer the task's service.
    pub(super) fn workers_for_it(&self) -> impl Iterator<Item = &WorkerRow> {
        let offers = |worker: &&WorkerRow| worker.connected && worker.services.iter().any(|s| s == self.service_name());
        self.workers.iter().filter(offers)
    }

    /// How the worker of an attempt is.
    pub(super) fn how_is(&self, worker: Option<&WorkerKey>) -> String {
        let Some(key) = worker else { return "its worker is not known".to_owned() };
        let Some(row) = self.workers.iter().find(|row| row.worker == *key) else {
            return format!("nothing more is known of worker {}", key.name);
        };
        let heard = words::ago(self.now.since(row.heard_at));
        if row.connected && self.at_work {
            format!("worker {} is connected, and was heard {heard}", key.name)
        } else {
            format!("worker {} is not connected; it was heard {heard}", key.name)
        }
    }

    /// Until when a worker that has no connection may come back before what it has is given up. Workers of the legacy wire
    /// have a clock of their own.
    pub(super) fn lost_at(&self, worker: Option<&WorkerKey>) -> Option<TimeMs> {
        let row = self.workers.iter().find(|row| Some(&row.worker) == worker)?;
        (self.at_work && !row.connected && !row.worker.is_legacy()).then(|| row.heard_at.after(self.bounds.dead_after))
    }

    /// A point in time and how long ago it was.
    pub(super) fn since(&self, at: TimeMs) -> String {
        format!("{} ({})", words::time(at), words::ago(self.now.since(at)))
    }

    /// The command that began the current run and the one that ended it, as far as the log can say: a filter by what
    /// stood then is taken to have meant the task.
    pub(super) fn commanded(&self) -> (Option<&CommandRow>, Option<&CommandRow>) {
        let handed = self.attempts().filter_map(|attempt| attempt.handed_at).max();
        let (mut rerun, mut cancel) = (None, None);
        let did_something = |row: &&CommandRow| row.outcome.as_ref().is_none_or(|outcome| outcome.changed > 0);
        for row in self.commands.iter().filter(did_something) {
            match &row.command {
                Some(Command::Rerun { filter }) if self.is_meant(filter) && can_begin(filter, cancel.is_some()) => {
                    (rerun, cancel) = (Some(row), None);
                }
                Some(Command::Cancel { filter })
                    if self.is_meant(filter) && cancel.is_none() && handed.is_none_or(|at| at <= row.at) =>
                {
                    cancel = Some(row);
                }
                _ => {}
            }
        }
        (rerun, cancel)
    }

    /// Whether a filter means the task, as far as nothing in it can have changed since.
    fn is_meant(&self, filter: &TaskFilter) -> bool {
        let task = self.task();
        (filter.ids.is_empty() || filter.ids.contains(&task.id))
            && filter.service.is_none_or(|service| service == task.service)
            && filter.corpus.is_none_or(|corpus| corpus == task.corpus)
            && filter.entry_prefix.as_ref().is_none_or(|prefix| task.entry.0.starts_with(&prefix.0))
    }
}

/// Whether a rerun by this filter can mean a task that is cancelled, or one that is not.
fn can_begin(filter: &TaskFilter, is_cancelled: bool) -> bool {
    let of_state = filter.states.is_empty() || filter.states.contains(&TaskState::Cancelled) == is_cancelled;
    let of_status = filter.statuses.is_empty() && filter.category.is_none() && filter.what.is_none();
    of_state && (of_status || !is_cancelled)
}

/// A command with who gave it and when.
pub(super) fn given(row: &CommandRow) -> String {
    let said = row.command.as_ref().map_or(String::new(), in_words);
    format!("`{said}` (command {} of {} at {})", row.id.0, row.actor, words::time(row.at))
}

/// An attempt by its number and worker.
pub(super) fn attempt(attempt: &AttemptRow) -> String {
    match &attempt.worker {
        Some(worker) => format!("attempt {} by {}", attempt.epoch.attempt(), worker.name),
        None => format!("attempt {}", attempt.epoch.attempt()),
    }
}

/// How an attempt ended, in one line.
pub(super) fn ended(row: &AttemptRow) -> String {
    let ending = row.ending.map_or("is still out".to_owned(), |ending| format!("ended as {}", ending.as_str()));
    let at = row.ended_at.map_or(String::new(), |at| format!(" at {}", words::time(at)));
    let free = if row.charged || row.ending.is_none() { "" } else { ", not charged" };
    let why = row.why.as_ref().map_or(String::new(), |why| format!(": {}", words::message(why)));
    format!("{} {ending}{at}{free}{why}", attempt(row))
}
