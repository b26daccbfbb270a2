//! `workers`: who works, on what, and how well.
//!
//! A worker's counts are those of its name through all its incarnations; connection and current tasks are the
//! incarnation's own.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::run::now;
use clap::Args;
use dispatcher_core::id::TaskId;
use dispatcher_core::report::Ending;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{Store, WorkerRow};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// `workers`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher workers
  dispatcher workers --limit 0 --json

What a worker has now stands below it. Counts are those of its name, through all its starts; they stand at the newest.")]
pub struct WorkersArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// How many at most, those heard last; 0 for all that are remembered.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
}

/// A worker in `workers --json`.
#[derive(Debug, PartialEq, Serialize)]
struct Line {
    /// Its name.
    name: String,
    /// Which life of it.
    incarnation: String,
    /// Whether it has a connection to the dispatcher at work.
    connected: bool,
    /// When this life of it was heard first.
    first_at: TimeMs,
    /// When it was heard last.
    heard_at: TimeMs,
    /// How long ago that is.
    heard_ago_ms: SpanMs,
    /// What it can do.
    services: Vec<String>,
    /// How many tasks it works on at once.
    slots: u32,
    /// What it has now.
    current: Vec<Current>,
    /// Attempts that went out to its name.
    dispatched: u64,
    /// Those whose results stand or stood.
    accepted: u64,
    /// Those that came to nothing, by ending.
    failed: Vec<(String, u64)>,
    /// Accepted ones a minute, since the name was first heard.
    per_minute: f64,
}

/// A task that a worker has.
#[derive(Debug, PartialEq, Serialize)]
struct Current {
    /// Which.
    task: TaskId,
    /// When work on it began.
    began_at: Option<TimeMs>,
    /// For how long it has gone on.
    for_ms: Option<SpanMs>,
}

/// Lists workers.
pub fn workers(args: &WorkersArgs) -> anyhow::Result<u8> {
    let (rows, working) = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let most = if args.limit == 0 { usize::MAX } else { args.limit };
        anyhow::Ok((store.workers(most).await.map_err(told)?, state.is_locked()))
    })?;
    let lines = lines(rows, working, now());
    if args.at.json {
        print_json(&lines)?;
        return Ok(exit::ALL_USABLE);
    }
    if lines.is_empty() {
        crate::say("no worker was heard yet: `dispatcher worker --service NAME --exec CMD` starts one");
        return Ok(exit::ALL_USABLE);
    }
    for row in table(&lines) {
        crate::tell(&row);
    }
    if !working {
        crate::say("no dispatcher is at work: this is how it was when one was last");
    }
    Ok(exit::ALL_USABLE)
}

fn lines(rows: Vec<WorkerRow>, working: bool, now: TimeMs) -> Vec<Line> {
    let mut first: HashMap<String, TimeMs> = HashMap::new();
    for row in &rows {
        let since = first.entry(row.worker.name.clone()).or_insert(row.first_at);
        *since = row.first_at.min(*since);
    }
    let line = |row: WorkerRow| {
        let of = |kind: &str| row.counts.iter().find(|(k, _)| k == kind).map_or(0, |(_, n)| *n);
        let (dispatched, accepted) = (of("dispatched"), of(Ending::Accepted.as_str()));
        let minutes = now.since(first.get(&row.worker.name).copied().unwrap_or(now)).0 as f64 / 60_000.0;
        let good = ["dispatched", Ending::Accepted.as_str()];
        Line {
            connected: row.connected && working,
            first_at: row.first_at,
            heard_at: row.heard_at,
            heard_ago_ms: now.since(row.heard_at),
            services: row.services,
            slots: row.slots,
            current: row.current.into_iter().map(|(task, began_at)| current(task, began_at, now)).collect(),
            dispatched,
            accepted,
            failed: row.counts.iter().filter(|(kind, _)| !good.contains(&kind.as_str())).cloned().collect(),
            per_minute: if minutes > 0.0 { accepted as f64 / minutes } else { 0.0 },
            name: row.worker.name,
            incarnation: row.worker.incarnation,
        }
    };
    rows.into_iter().map(line).collect()
}

fn current(task: TaskId, began_at: Option<TimeMs>, now: TimeMs) -> Current {
    Current { task, began_at, for_ms: began_at.map(|began| now.since(began)) }
}

/// The lines as a table, a worker's tasks below it.
fn table(lines: &[Line]) -> Vec<String> {
    let width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0).max("worker".len());
    let mut table = vec![format!(
        "{:width$}  {:<12} {:>5} {:>10} {:>9} {:>7} {:>8}  services",
        "worker", "heard", "slots", "dispatched", "accepted", "failed", "per min"
    )];
    let mut told = HashSet::new();
    for line in lines {
        let is_newest = told.insert(&line.name);
        let count = |n: String| if is_newest { n } else { "-".to_owned() };
        let heard = if line.connected { "connected".to_owned() } else { words::ago(line.heard_ago_ms) };
        let failed: u64 = line.failed.iter().map(|(_, n)| n).sum();
        table.push(format!(
            "{:width$}  {heard:<12} {:>5} {:>10} {:>9} {:>7} {:>8}  {}",
            line.name,
            line.slots,
            count(line.dispatched.to_string()),
            count(line.accepted.to_string()),
            count(failed.to_string()),
            count(format!("{:.1}", line.per_minute)),
            line.services.join(",")
        ));
        table.extend(line.current.iter().map(|has| match has.for_ms {
            Some(span) => format!("{:width$}    task {} for {}", "", has.task, words::about(span)),
            None => format!("{:width$}    task {}, not begun", "", has.task),
        }));
        if failed > 0 && is_newest {
            let kinds: Vec<String> = line.failed.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            table.push(format!("{:width$}    failed: {}", "", kinds.join(", ")));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::WorkerKey;

    fn row(incarnation: &str, first: i64, connected: bool) -> WorkerRow {
        WorkerRow {
            worker: WorkerKey { name: "host-0".into(), incarnation: incarnation.into() },
            services: vec!["html".into()],
            slots: 2,
            connected,
            first_at: TimeMs(first),
            heard_at: TimeMs(110_000),
            counts: vec![("accepted".into(), 4), ("dispatched".into(), 7), ("expired".into(), 3)],
            current: vec![(TaskId(5), Some(TimeMs(100_000))), (TaskId(6), None)],
        }
    }

    // Rules A1, A5.
    #[test]
    fn a_workers_counts_are_those_of_its_name_and_its_tasks_those_of_its_incarnation() {
        let rows = || vec![row("b", 60_000, true), row("a", 0, false)];
        let told = lines(rows(), true, TimeMs(120_000));
        assert_eq!(told[0].per_minute, 2.0, "since the name was heard first");
        assert_eq!((told[0].dispatched, told[0].accepted, &told[0].failed), (7, 4, &vec![("expired".to_owned(), 3)]));
        assert_eq!((told[0].connected, told[1].connected, told[0].heard_ago_ms), (true, false, SpanMs(10_000)));
        assert_eq!(told[0].current[0].for_ms, Some(SpanMs(20_000)));
        let text = table(&told).join("\n");
        for part in ["connected", "task 5 for 20s", "task 6, not begun", "3 expired", "10s ago"] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert_eq!(text.matches("3 expired").count(), 1, "what all lives of a name did is told once");
        let earlier = table(&told).into_iter().find(|line| line.contains("10s ago")).unwrap();
        assert!(earlier.contains(" - "), "{earlier}");
        assert!(!lines(rows(), false, TimeMs(0))[0].connected, "without a dispatcher nobody is connected to it");
    }
}
