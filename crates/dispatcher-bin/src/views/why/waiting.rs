//! Why a task waits: what holds it up, and its place in the queue.

use super::answer::{Answer, Facts, ended, given};
use crate::views::words;
use dispatcher_core::id::Run;
use dispatcher_core::time::TimeMs;

/// What holds a task up, and what to do about it.
type Hold = (String, String);

pub(super) fn why(facts: &Facts) -> Answer {
    let (task, last) = (facts.task(), facts.attempts().next_back());
    let mut because = Vec::new();
    let headline = match last {
        Some(last) => {
            because.push(ended(last));
            because.extend(task.last_cause.as_ref().map(|cause| format!("the last cause: {}", words::message(cause))));
            format!(
                "task {} waits for another attempt: its run has spent {} of {}",
                task.id,
                task.charged,
                facts.budget()
            )
        }
        None if task.run > Run::FIRST => {
            because.push(match facts.commanded().0 {
                Some(rerun) => format!("run {} was begun by {}", task.run.0, given(rerun)),
                None => format!("run {} was begun because its input changed, or by `--again`", task.run.0),
            });
            format!("task {} waits for the first attempt of its run {}", task.id, task.run.0)
        }
        None => format!("task {} waits for its first attempt", task.id),
    };
    let holds = holds(facts);
    let next =
        holds.first().map_or_else(|| "it is handed out when its turn comes".to_owned(), |(_, next)| next.clone());
    because.extend(holds.into_iter().map(|(why, _)| why));
    because.extend(place(facts));
    Answer { headline, because, next }
}

/// What holds it up, the weightiest first.
fn holds(facts: &Facts) -> Vec<Hold> {
    let (task, name) = (facts.task(), facts.service_name());
    let mut holds = Vec::new();
    if !facts.at_work {
        holds.push(("no dispatcher is at work".to_owned(), facts.start.clone()));
    }
    if facts.service.as_ref().is_some_and(|service| service.settings.paused) {
        holds.push((format!("the service {name} is paused"), format!("let it go on with `dispatcher resume {name}`")));
    }
    if task.not_before > facts.now {
        let wait = words::about(task.not_before.since(facts.now));
        holds.push((
            format!("it is not tried again before {} (in {wait})", words::time(task.not_before)),
            "it is handed out after that time".to_owned(),
        ));
    }
    if facts.at_work && facts.workers_for_it() == 0 {
        holds.push((
            format!("no worker that is connected offers the service {name}"),
            format!("start one with `dispatcher worker --service {name} --exec CMD`"),
        ));
    }
    holds.extend(full(facts));
    holds
}

/// The caps that are reached.
fn full(facts: &Facts) -> Vec<Hold> {
    let Some(in_flight) = facts.in_flight else { return Vec::new() };
    let wait = || "it is claimed when one of them ends".to_owned();
    let cap = facts.service.as_ref().and_then(|service| service.settings.max_in_flight).map(u64::from);
    let mut holds = Vec::new();
    if let Some(cap) = cap.filter(|cap| in_flight.of_service >= *cap) {
        let n = in_flight.of_service;
        holds.push((
            format!("{n} tasks of the service {} are in flight, and {cap} may be", facts.service_name()),
            wait(),
        ));
    }
    if in_flight.of_all >= in_flight.most {
        holds.push((format!("{} tasks are in flight, and {} may be", in_flight.of_all, in_flight.most), wait()));
    }
    holds
}

/// Its place, where it is in the queue already.
fn place(facts: &Facts) -> Option<String> {
    let outlook = facts.outlook.filter(|_| facts.task().not_before == TimeMs(0))?;
    let priority = if outlook.priority == 0 { String::new() } else { format!(", with priority {}", outlook.priority) };
    let (ahead, queued, name) = (outlook.ahead, outlook.queued, facts.service_name());
    Some(format!("{ahead} of {} in the queue of {name} come before it{priority}", words::tasks(queued)))
}
