//! `show`: a task's whole story.

use super::{event_loop, open, print_json, told, words};
use crate::cli::ShowArgs;
use crate::exit::{self, Exit};
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{AttemptRow, ResultRow, Store, Story, TaskFilter};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Rows in one read.
const PAGE: usize = 1000;

/// Shows a task.
pub fn show(args: &ShowArgs) -> anyhow::Result<u8> {
    let story = event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        let ids = matching(&store, &args.task).await?;
        let id = ids.first().ok_or_else(|| no_such(&args.task))?;
        store.story(*id).await.map_err(told)?.ok_or_else(|| no_such(&args.task))
    })?;
    if args.at.json {
        print_json(&story)?;
    } else {
        for line in lines(&story) {
            crate::tell(&line);
        }
    }
    Ok(exit::ALL_USABLE)
}

/// The tasks that a person named: one by its id, or those with this input.
pub(super) async fn matching(store: &dyn Store, named: &OsStr) -> anyhow::Result<Vec<TaskId>> {
    // A number is an id, unless there is no such task: then it may be the name of an input.
    if let Some(id) = named.to_str().and_then(|text| text.parse().ok()).map(TaskId)
        && store.story(id).await.map_err(told)?.is_some()
    {
        return Ok(vec![id]);
    }
    let name = EntryName(named.as_bytes().to_vec());
    let filter = TaskFilter { entry_prefix: Some(name.clone()), ..TaskFilter::default() };
    let (mut after, mut found) = (TaskId(0), Vec::new());
    loop {
        let rows = store.tasks(&filter, after, PAGE).await.map_err(told)?;
        let Some(last) = rows.last() else { return Ok(found) };
        after = last.id;
        found.extend(rows.iter().filter(|row| row.entry == name).map(|row| row.id));
    }
}

fn no_such(named: &OsStr) -> anyhow::Error {
    Exit::usage(format!("there is no task {}: `dispatcher tasks` lists ids and inputs", named.display()))
}

/// The story for a person.
fn lines(story: &Story) -> Vec<String> {
    let task = &story.task;
    let status = task.standing.map_or(String::new(), |stands| format!(", {}", stands.status.as_str()));
    let mut lines = vec![
        format!("task {}: {} ({} bytes)", task.id, task.entry, task.input_size),
        format!("{}{status}; run {}, {} attempts charged", task.state.as_str(), task.run.0, task.charged),
    ];
    for (label, why) in [("last cause", &task.last_cause), ("last reason", &task.last_reason)] {
        lines.extend(why.as_ref().map(|why| format!("{label}: {}", words::message(why))));
    }
    lines.extend(story.attempts.iter().map(attempt));
    for result in &story.results {
        lines.extend(result_lines(result, task.standing.is_some_and(|stands| stands.epoch == result.epoch)));
    }
    lines
}

/// An attempt in one line.
fn attempt(attempt: &AttemptRow) -> String {
    let worker = attempt.worker.as_ref().map_or("nobody".to_owned(), |worker| worker.name.clone());
    let at = |label: &str, at: Option<TimeMs>| at.map_or(String::new(), |at| format!(", {label} {}", words::time(at)));
    let ending = attempt.ending.map_or("still out", |ending| ending.as_str());
    let charged = if attempt.charged { ", charged" } else { "" };
    let why = attempt.why.as_ref().map_or(String::new(), |why| format!(": {}", words::message(why)));
    format!(
        "attempt {} (run {}) by {worker}{}{}{}: {ending}{charged}{why}",
        attempt.epoch.attempt(),
        attempt.run.0,
        at("handed out", attempt.handed_at),
        at("begun", attempt.began_at),
        at("ended", attempt.ended_at),
    )
}

/// A result with its messages and parts.
fn result_lines(result: &ResultRow, stands: bool) -> Vec<String> {
    let word = if stands { "stands" } else { "does not stand" };
    let mut lines = vec![format!("result of attempt {}: {}, {word}", result.epoch.attempt(), result.status.as_str())];
    lines.extend(result.messages.iter().map(|message| format!("  {}", words::message(message))));
    lines.extend(
        result
            .parts
            .iter()
            .map(|part| format!("  {}: {} bytes, {} sha256 {}", part.name, part.length, part.place, part.sha256)),
    );
    lines
}
