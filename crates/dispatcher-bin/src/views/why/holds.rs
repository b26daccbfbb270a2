//! What holds a task up that no worker has, whether it is in the queue or claimed already.
//!
//! Owns the order of the reasons, the weightiest first: nothing is handed out, not this task, not to these workers, not
//! now.

use super::answer::Facts;
use crate::views::words;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::WorkerRow;

/// What holds a task up, and what to do about it.
pub(super) type Hold = (String, String);

pub(super) fn holds(facts: &Facts) -> Vec<Hold> {
    let (task, name) = (facts.task(), facts.service_name());
    let mut holds = Vec::new();
    if !facts.at_work {
        holds.push(("no dispatcher is at work".to_owned(), facts.start.clone()));
    }
    holds.extend(facts.waits_for.as_ref().map(|what| {
        let next = "see to that: work goes on by itself, and nothing is handed out before";
        (format!("the dispatcher waits for {what}"), next.to_owned())
    }));
    if facts.service.as_ref().is_some_and(|service| service.settings.paused) {
        holds.push((
            format!("the service {name} is paused"),
            format!("let it go on with `dispatcher resume {name}{}`", facts.state_flag),
        ));
    }
    if task.not_before > facts.now {
        let wait = words::about(task.not_before.since(facts.now));
        holds.push((
            format!("it is not tried again before {} (in {wait})", words::time(task.not_before)),
            "it is handed out after that time".to_owned(),
        ));
    }
    // How the workers are is noted in the database: as long as that is waited for it is not known.
    if facts.at_work && facts.waits_for.is_none() {
        if facts.workers_for_it().next().is_none() {
            holds.push((
                format!("no worker that is connected offers the service {name}"),
                format!("start one with `dispatcher worker --service {name} --exec CMD{}`", facts.connect_flag),
            ));
        }
        holds.extend(of_the_legacy_wire(facts));
    }
    holds.extend(full(facts));
    holds
}

/// The caps that are reached.
fn full(facts: &Facts) -> Vec<Hold> {
    let Some(in_flight) = facts.in_flight else { return Vec::new() };
    let wait = || "it is handed out when one of them ends".to_owned();
    let cap = facts.service.as_ref().and_then(|service| service.settings.max_in_flight).map(u64::from);
    let mut holds = Vec::new();
    if let Some(cap) = cap.filter(|cap| in_flight.of_service >= *cap) {
        let n = in_flight.of_service;
        holds.push((
            format!("{n} tasks of the service {} are in flight, and {cap} may be", facts.service_name()),
            wait(),
        ));
    }
    if in_flight.of_all >= facts.bounds.max_in_flight {
        let most = facts.bounds.max_in_flight;
        holds.push((format!("{} tasks are in flight, and {most} may be", in_flight.of_all), wait()));
    }
    holds
}

/// What keeps it from workers of the legacy wire, where no others are there for it.
fn of_the_legacy_wire(facts: &Facts) -> Option<Hold> {
    let workers: Vec<&WorkerRow> = facts.workers_for_it().collect();
    if workers.is_empty() || workers.iter().any(|row| !row.worker.is_legacy()) {
        return None;
    }
    let (size, largest) = (facts.task().input_size, facts.bounds.legacy_max);
    if size > largest {
        return Some((
            format!(
                "its input has {size} bytes, and the workers connected for it are of the legacy wire, which takes {largest} \
                 at most (legacy_max)"
            ),
            format!(
                "start one of the other wire with `dispatcher worker --service {} --exec CMD{}`, or serve with a larger \
                 legacy_max",
                facts.service_name(),
                facts.connect_flag
            ),
        ));
    }
    let kept = kept_from(facts);
    let (may_not, may): (Vec<&WorkerRow>, Vec<&WorkerRow>) =
        workers.into_iter().partition(|row| kept.iter().any(|(name, _)| *name == row.worker.name));
    if may.is_empty() { Some(earlier_run(&may_not, &kept)) } else { no_room(facts, &may) }
}

/// Workers that it is kept from, because they may still bring a result of an earlier run (rule L8), and until when.
fn kept_from(facts: &Facts) -> Vec<(String, Option<TimeMs>)> {
    let window = facts.bounds.late_window;
    let silent = facts.story.worked_earlier().into_iter().filter(|(_, at)| facts.now.since(*at) < window);
    let until = |at: TimeMs| (at.0 < i64::MAX).then(|| at.after(window));
    silent.map(|(name, at)| (name, until(at))).collect()
}

fn earlier_run(workers: &[&WorkerRow], kept: &[(String, Option<TimeMs>)]) -> Hold {
    let names: Vec<&str> = workers.iter().map(|row| row.worker.name.as_str()).collect();
    // A worker is free of it when its last silent attempt is forgotten.
    let free_at = |row: &&&WorkerRow| {
        let of = kept.iter().filter(|(name, _)| *name == row.worker.name).map(|(_, until)| *until);
        of.collect::<Option<Vec<TimeMs>>>().and_then(|until| until.into_iter().max())
    };
    let next = match workers.iter().filter_map(|row| free_at(&row)).min() {
        Some(at) => format!("start another worker; or one of them is given it after {} (late_window)", words::time(at)),
        None => "start another worker".to_owned(),
    };
    let why = format!(
        "the workers connected for it ({}) had it in an earlier run and may still bring that result, which their wire could \
         not tell from one of this run (rule L8)",
        names.join(", ")
    );
    (why, next)
}

/// Where every worker that may have it has as much as it may have.
fn no_room(facts: &Facts, workers: &[&WorkerRow]) -> Option<Hold> {
    let bounds = &facts.bounds;
    let next = || "it goes to the next one that brings a result".to_owned();
    if workers.iter().all(|row| row.current.len() >= bounds.legacy_window) {
        let n = workers.len();
        let why = format!("the workers that may have it ({n}) have as many tasks as they may (legacy_window)");
        return Some((why, next()));
    }
    let unread =
        |row: &WorkerRow| row.current.iter().map(|(task, _)| facts.unread.get(task).unwrap_or(&0)).sum::<u64>();
    let fits = |unread: u64, most: u64| unread == 0 || unread.saturating_add(facts.task().input_size) <= most;
    let has_room = |row: &&&WorkerRow| row.current.len() < bounds.legacy_window && fits(unread(row), bounds.legacy_max);
    if fits(facts.unread.values().sum(), bounds.legacy_unread) && workers.iter().any(|row| has_room(&row)) {
        return None;
    }
    let why = format!(
        "the inputs that the workers connected for it have leave no room for its {} bytes: one may have {} at once, all \
         together {} (legacy_max)",
        facts.task().input_size,
        bounds.legacy_max,
        bounds.legacy_unread
    );
    Some((why, next()))
}

/// What the dispatcher at work allows, as far as its settings say so to others than itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Tasks in flight.
    pub max_in_flight: u64,
    /// After how much silence a worker is lost.
    pub dead_after: SpanMs,
    /// For how long a worker that was silent may still bring a result.
    pub late_window: SpanMs,
    /// The largest input of a worker of the legacy wire, and what one of them may have at once, in bytes.
    pub legacy_max: u64,
    /// What all of them together may have at once, in bytes.
    pub legacy_unread: u64,
    /// Open tasks of one of their connections.
    pub legacy_window: usize,
}
