//! What became of each check, as a table for people and as JSON for programs.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::{Check, Level, Wire};

/// What became of one check.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    number: usize,
    name: &'static str,
    level: Level,
    passed: bool,
    ms: u64,
    expects: &'static str,
    sentence: &'static str,
    /// What went wrong, and what was said before.
    why: Option<String>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    wire: Wire,
    level: Level,
    passed: usize,
    failed: usize,
    checks: &'a [Row],
}

impl Row {
    pub(super) fn new(number: usize, check: &Check, outcome: Result<()>, took: Duration) -> Self {
        let &Check { name, level, expects, sentence, .. } = check;
        let why = outcome.err().map(|error| format!("{error:#}"));
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Self { number, name, level, passed: why.is_none(), ms, expects, sentence, why }
    }
}

fn failed(rows: &[Row]) -> usize {
    rows.iter().filter(|row| !row.passed).count()
}

/// A line for each check; below it, for each that failed, what it is about and why.
pub(super) fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for row in rows {
        let result = if row.passed { "ok" } else { "FAILED" };
        lines.push(format!("{:>3} {:<width$} {result:<6} {:>6} ms  {}", row.number, row.name, row.ms, row.expects));
        if let Some(why) = &row.why {
            lines.push(format!("      docs/protocol.md: \"{}\"", row.sentence));
            lines.extend(why.lines().map(|line| format!("      {line}")));
        }
    }
    lines.push(format!("{} of {} checks passed", rows.len() - failed(rows), rows.len()));
    lines.join("\n")
}

/// The same for programs.
pub(super) fn json(wire: Wire, level: Level, rows: &[Row]) -> Result<String> {
    let failed = failed(rows);
    let outcome = Outcome { wire, level, passed: rows.len() - failed, failed, checks: rows };
    Ok(serde_json::to_string_pretty(&outcome)?)
}

/// Fails where a check did, and names it.
pub(super) fn verdict(rows: &[Row]) -> Result<()> {
    let names: Vec<_> = rows.iter().filter(|row| !row.passed).map(|row| row.name).collect();
    if names.is_empty() { Ok(()) } else { bail!("the program does not conform: {}", names.join(", ")) }
}
