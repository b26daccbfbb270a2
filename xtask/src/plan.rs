//! A list of named steps, run in order, timed, and told in a closing table.
//!
//! **Owns** the order, the clock and the table. **Refuses to know** what a step does. **Invariant**: the table names every
//! step, the ones that were not run as well.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What a step that did not fail has to add: nothing, or a note for the table ("advisories skipped: …").
pub(crate) type Note = Option<String>;

type Work<'a> = Box<dyn FnOnce() -> Result<Note> + 'a>;

/// The steps, in the order in which they run.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    steps: Vec<(&'static str, Work<'a>)>,
    keeps_going: bool,
}

/// What became of one step.
struct Row {
    name: &'static str,
    result: &'static str,
    took: Duration,
    note: String,
}

impl<'a> Plan<'a> {
    pub(crate) fn step(mut self, name: &'static str, work: impl FnOnce() -> Result<Note> + 'a) -> Self {
        self.steps.push((name, Box::new(work)));
        self
    }

    /// A step that has nothing to add.
    pub(crate) fn plain(self, name: &'static str, work: impl FnOnce() -> Result<()> + 'a) -> Self {
        self.step(name, move || work().map(|()| None))
    }

    /// Runs the steps after one that failed as well. Otherwise the first that fails ends the plan.
    pub(crate) fn keep_going(mut self) -> Self {
        self.keeps_going = true;
        self
    }

    /// Runs the steps, prints the table, and fails if a step did.
    pub(crate) fn run(self) -> Result<()> {
        let count = self.steps.len();
        let mut rows: Vec<Row> = Vec::with_capacity(count);
        let mut failed = Vec::new();
        for (index, (name, work)) in self.steps.into_iter().enumerate() {
            if !failed.is_empty() && !self.keeps_going {
                rows.push(Row { name, result: "not run", took: Duration::ZERO, note: String::new() });
                continue;
            }
            println!("\n== {}/{count} {name}", index + 1);
            let started = Instant::now();
            let outcome = work();
            let took = started.elapsed();
            let (result, note) = match outcome {
                Ok(note) => ("ok", note.unwrap_or_default()),
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    failed.push(name);
                    ("FAILED", first_line(&format!("{error:#}")))
                }
            };
            rows.push(Row { name, result, took, note });
        }
        println!("\n{}", table(&rows));
        if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn table(rows: &[Row]) -> String {
    let total: Duration = rows.iter().map(|row| row.took).sum();
    let mut out = format!("{:<10} {:<8} {:>8}\n", "step", "result", "time");
    for row in rows {
        let time = if row.result == "not run" { "-".to_owned() } else { seconds(row.took) };
        let line = format!("{:<10} {:<8} {time:>8}  {}", row.name, row.result, row.note);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&format!("{:<10} {:<8} {:>8}", "total", "", seconds(total)));
    out
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_failing_step_ends_the_plan_and_names_itself() {
        let ran = RefCell::new(Vec::new());
        let error = broken_in_the_middle(&ran).run().unwrap_err();
        assert_eq!(*ran.borrow(), ["first"]);
        assert_eq!(error.to_string(), "failed: second");
    }

    #[test]
    fn a_plan_that_keeps_going_runs_every_step_and_still_fails() {
        let ran = RefCell::new(Vec::new());
        let error = broken_in_the_middle(&ran).keep_going().run().unwrap_err();
        assert_eq!(*ran.borrow(), ["first", "third"]);
        assert_eq!(error.to_string(), "failed: second");
    }

    fn broken_in_the_middle<'a>(ran: &'a RefCell<Vec<&'static str>>) -> Plan<'a> {
        let note = |name| {
            move || {
                ran.borrow_mut().push(name);
                Ok(())
            }
        };
        Plan::default().plain("first", note("first")).plain("second", || bail!("broken")).plain("third", note("third"))
    }

    #[test]
    fn the_table_has_a_line_for_every_step_and_one_for_the_sum() {
        let rows = [
            Row { name: "fmt", result: "ok", took: Duration::from_millis(1500), note: String::new() },
            Row { name: "deny", result: "ok", took: Duration::from_millis(500), note: "advisories skipped".into() },
            Row { name: "docs", result: "not run", took: Duration::ZERO, note: String::new() },
        ];
        let text = table(&rows);
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("fmt        ok          1.5 s\n"), "{text}");
        assert!(text.contains("deny       ok          0.5 s  advisories skipped\n"), "{text}");
        assert!(text.ends_with("2.0 s"), "{text}");
    }
}
