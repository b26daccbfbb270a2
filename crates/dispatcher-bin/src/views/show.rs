//! `show`: a task's whole story.

use super::{event_loop, open, print_json, told, words};
use crate::cli::ShowArgs;
use crate::exit;
use crate::named::{Named, no_such};
use crate::places::{Placed, Places};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{AttemptRow, ResultRow, Store, Story, TaskFilter, TaskRow};
use serde::Serialize;

/// Shows a task.
pub fn show(args: &ShowArgs) -> anyhow::Result<u8> {
    let (story, places, others) = event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        let names = std::slice::from_ref(&args.task);
        let (id, _, others) = Named::look_up(&store, names, &TaskFilter::default()).await?.first();
        let id = id.ok_or_else(|| no_such(&args.task))?;
        let story = store.story(id).await.map_err(told)?.ok_or_else(|| no_such(&args.task))?;
        anyhow::Ok((story, Places::read(&store).await?, others))
    })?;
    if args.at.json {
        let Story { task, attempts, results } = &story;
        print_json(&Told { task: places.placed(task), attempts, results })?;
    } else {
        for line in lines(&story, &places) {
            crate::tell(&line);
        }
    }
    if !others.is_empty() {
        crate::say(&format!("other tasks with this input: {others}"));
    }
    Ok(exit::ALL_USABLE)
}

/// What `show --json` prints.
#[derive(Serialize)]
struct Told<'a> {
    task: Placed<'a>,
    attempts: &'a [AttemptRow],
    results: &'a [ResultRow],
}

/// The story for a person.
fn lines(story: &Story, places: &Places) -> Vec<String> {
    let task = &story.task;
    let status = task.standing.map_or(String::new(), |stands| format!(", {}", stands.status.as_str()));
    let charged = words::attempts(u64::from(task.charged));
    let mut lines = vec![
        format!("task {}: {} ({} bytes), {}", task.id, task.entry, task.input_size, whose(task, places)),
        format!("{}{status}; run {}, {charged} charged", task.state.as_str(), task.run.0),
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

/// For which service a task is, and of which corpus.
fn whose(task: &TaskRow, places: &Places) -> String {
    let (service, corpus) = (places.service(task.service), places.corpus(task.corpus));
    format!("service {}, corpus {}", service.unwrap_or("that is gone"), corpus.unwrap_or("that is gone"))
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
