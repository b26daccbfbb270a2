//! `why`: one clear answer to why a task is where it is, from stored facts.
//!
//! Owns which facts are gathered; what they mean is told by [`answer::why`], which looks at nothing else.

mod answer;
mod holds;
mod over;
mod waiting;
mod working;

#[cfg(test)]
mod tests;

use super::{event_loop, open, print_json, told};
use crate::cli::StateArgs;
use crate::exit;
use crate::named::Named;
use crate::run::now;
use crate::settings::{self, Settings, millis};
use crate::state::StateDir;
use crate::waiting as waiting_note;
use answer::{Answer, Facts, InFlight};
use clap::Args;
use dispatcher_core::id::TaskId;
use dispatcher_store::{CommandPage, Store, Story, TaskFilter, TaskState, WorkerRow};
use holds::Bounds;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Workers that are looked at.
const WORKERS_MAX: usize = 1000;
/// Commands that are looked at, the newest.
const COMMANDS_MAX: usize = 1000;

/// `why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher why 17
  dispatcher why 2024/paper.tex
  dispatcher why html/papers/2024/paper.tex

It says where the task is, why, and what comes next or what to do. A name that several tasks have means the oldest of them;
the others are listed.")]
pub struct WhyArgs {
    /// The task: its id, or INPUT, CORPUS/INPUT or SERVICE/CORPUS/INPUT as `tasks` prints them.
    pub task: OsString,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// What `why --json` prints.
#[derive(Debug, Serialize)]
struct Told {
    /// Which task; `None` where there is none.
    task: Option<TaskId>,
    /// Where it is.
    state: Option<TaskState>,
    #[serde(flatten)]
    answer: Answer,
    /// Other tasks with the same input.
    others: Vec<TaskId>,
}

/// Says why.
pub fn why(args: &WhyArgs) -> anyhow::Result<u8> {
    let (told, others) = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let names = std::slice::from_ref(&args.task);
        let (id, others, listed) = Named::look_up(&store, names, &TaskFilter::default()).await?.first();
        let story = match id {
            Some(id) => store.story(id).await.map_err(told)?,
            None => None,
        };
        let Some(story) = story else {
            let answer = nothing(&store, &args.task).await?;
            return Ok((Told { task: None, state: None, answer, others: vec![] }, String::new()));
        };
        let (task, at) = (Some(story.task.id), Some(story.task.state));
        let answer = answer::why(&gather(&args.at.state, &state, &store, story).await?);
        anyhow::Ok((Told { task, state: at, answer, others }, listed))
    })?;
    if args.at.json {
        print_json(&told)?;
    } else {
        crate::tell(&told.answer.headline);
        for because in &told.answer.because {
            crate::tell(&format!("  - {because}"));
        }
        crate::tell(&told.answer.next);
        if !others.is_empty() {
            crate::say(&format!("other tasks with this input: {others}"));
        }
    }
    Ok(if told.task.is_some() { exit::ALL_USABLE } else { exit::SOME_NOT })
}

/// What has to be said to name the state folder in another command; nothing where it is found without.
fn state_flag(named: &Path) -> String {
    if named == Path::new(crate::state::STATE) { String::new() } else { format!(" --state {}", named.display()) }
}

/// Everything that the answer can hang on.
async fn gather(named: &Path, state: &StateDir, store: &dyn Store, story: Story) -> anyhow::Result<Facts> {
    let task = &story.task;
    let is_open = matches!(task.state, TaskState::Ready | TaskState::Leased);
    let in_flight = if is_open { Some(in_flight(store, &story).await?) } else { None };
    let workers = store.workers(WORKERS_MAX).await.map_err(told)?;
    let unread = if is_open { unread(store, &workers).await? } else { HashMap::new() };
    let (of_a_run, settings) = (state.identity().exists(), settings_of(state));
    let newest = CommandPage { newest: true, max: COMMANDS_MAX, ..CommandPage::default() };
    Ok(Facts {
        now: now(),
        at_work: state.is_locked(),
        start: if of_a_run {
            "give the same `dispatcher run` again".to_owned()
        } else {
            format!("start one with `dispatcher serve --state {}`", state.path().display())
        },
        of_a_run,
        state_flag: state_flag(named),
        connect_flag: connect_flag(&settings),
        outlook: store.outlook(task.id).await.map_err(told)?,
        service: store.services().await.map_err(told)?.into_iter().find(|service| service.id == task.service),
        in_flight,
        waits_for: waiting_note::read(state),
        bounds: bounds(&settings),
        unread,
        workers,
        commands: store.commands(&newest).await.map_err(told)?,
        story,
    })
}

async fn in_flight(store: &dyn Store, story: &Story) -> anyhow::Result<InFlight> {
    let leased = |service| TaskFilter { service, states: vec![TaskState::Leased], ..TaskFilter::default() };
    Ok(InFlight {
        of_service: store.summary(&leased(Some(story.task.service))).await.map_err(told)?.handed_out,
        of_all: store.summary(&leased(None)).await.map_err(told)?.handed_out,
    })
}

/// What the dispatcher at work obeys; where it did not note that, what the file and the variables say.
fn settings_of(state: &StateDir) -> Settings {
    let none = std::collections::BTreeMap::<String, String>::new();
    let read = || settings::layers(state.path(), None, none).and_then(|layers| Settings::of(&layers));
    settings::in_force(state).unwrap_or_else(|| read().unwrap_or_default())
}

fn bounds(settings: &Settings) -> Bounds {
    let legacy = settings.legacy_limits();
    Bounds {
        max_in_flight: settings.max_in_flight as u64,
        dead_after: millis(settings.dead_after),
        late_window: millis(settings.late_window),
        legacy_max: legacy.unread_each,
        legacy_unread: legacy.unread_all,
        legacy_window: legacy.window,
    }
}

/// What has to be said to a worker so that it finds the dispatcher; nothing where it does without.
fn connect_flag(settings: &Settings) -> String {
    if settings.listen == settings::LISTEN { String::new() } else { format!(" --connect {}", settings.listen) }
}

/// The sizes of the inputs that connected workers of the legacy wire have.
async fn unread(store: &dyn Store, workers: &[WorkerRow]) -> anyhow::Result<HashMap<TaskId, u64>> {
    let legacy = workers.iter().filter(|row| row.connected && row.worker.is_legacy());
    let ids: Vec<TaskId> = legacy.flat_map(|row| row.current.iter().map(|(task, _)| *task)).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let max = ids.len();
    let rows = store.tasks(&TaskFilter { ids, ..TaskFilter::default() }, TaskId(0), max).await.map_err(told)?;
    Ok(rows.into_iter().map(|row| (row.id, row.input_size)).collect())
}

/// What there is to say of a task that is not there.
async fn nothing(store: &dyn Store, named: &OsStr) -> anyhow::Result<Answer> {
    let id = named.to_str().and_then(|text| text.parse().ok()).map(TaskId);
    let Some(id) = id else {
        return Ok(Answer {
            headline: format!("there is no task with the input {}", named.display()),
            because: vec!["no corpus has it, or its tasks were deleted".to_owned()],
            next: "`dispatcher tasks --entry PREFIX` lists inputs by their beginning".to_owned(),
        });
    };
    // Ids are given in order and never twice.
    let later = store.tasks(&TaskFilter::default(), id, 1).await.map_err(told)?;
    let (headline, because) = if id.is_tracked() && !later.is_empty() {
        (format!("task {id} was deleted"), "later ids were given, and none is given twice")
    } else {
        (
            format!("there is no task {id}"),
            "no such id is stored, and none above it: it was never given, or deleted with all after it",
        )
    };
    let next = "`dispatcher log` says what was deleted, `dispatcher tasks` lists what there is".to_owned();
    Ok(Answer { headline, because: vec![because.to_owned()], next })
}
