//! The end of a run in words and as JSON.

use crate::exit;
use crate::inputs::Imported;
use crate::views::words;
use dispatcher_core::report::Status;
use dispatcher_server::progress::ProgressNow;
use dispatcher_store::{Summary, TaskState};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// How a run ended.
#[derive(Debug, Serialize)]
pub struct RunSummary {
    /// Whether every task has ended.
    pub finished: bool,
    /// How long this process took, in milliseconds.
    pub took_ms: u64,
    /// The results folder.
    pub out: PathBuf,
    /// What the import found.
    pub imported: Imported,
    /// The tasks, over all starts.
    pub tasks: Summary,
    /// Tasks that ended in this process.
    pub ended_now: u64,
    /// Attempts of this process that led to another.
    pub requeued_now: u64,
    /// Results whose bytes somebody removed before they were in place.
    pub lost_now: u64,
}

impl RunSummary {
    /// Puts it together.
    pub fn new(
        finished: bool,
        took: Duration,
        out: PathBuf,
        imported: Imported,
        tasks: Summary,
        now: &ProgressNow,
    ) -> Self {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Self {
            finished,
            took_ms,
            out,
            imported,
            tasks,
            ended_now: now.ended(),
            requeued_now: now.requeued,
            lost_now: now.lost,
        }
    }

    /// The exit code that it means.
    pub fn code(&self) -> u8 {
        if !self.finished {
            return exit::INTERRUPTED;
        }
        let failed = self.tasks.by_status.iter().any(|(status, n)| !status.is_usable() && *n > 0);
        let cancelled = self.tasks.by_state.iter().any(|(state, n)| *state == TaskState::Cancelled && *n > 0);
        if failed
            || cancelled
            || self.lost_now > 0
            || self.imported.unreadable_count > 0
            || self.imported.changed > self.imported.taken_anew
        {
            exit::SOME_NOT
        } else {
            exit::ALL_USABLE
        }
    }

    /// For a person.
    pub fn print(&self) {
        let mut lines = vec![self.headline()];
        lines.extend(words::causes(&self.tasks));
        lines.extend(self.remarks());
        lines.push(format!("results in {}", self.out.display()));
        for line in lines {
            crate::tell(&line);
        }
    }

    fn headline(&self) -> String {
        let seconds = self.took_ms as f64 / 1000.0;
        let rate = if self.took_ms == 0 { 0.0 } else { self.ended_now as f64 / seconds };
        let word = if self.finished { "done" } else { "interrupted" };
        format!("{word} after {seconds:.1} s ({rate:.0} tasks/s): {}", words::counts(&self.tasks))
    }

    /// What was skipped or needs a decision.
    fn remarks(&self) -> Vec<String> {
        let found = &self.imported;
        let mut lines = Vec::new();
        lines.extend(found.skipped());
        for what in &found.unreadable {
            lines.push(format!("could not be read: {what}"));
        }
        let more = found.unreadable_count.saturating_sub(found.unreadable.len() as u64);
        if more > 0 {
            lines.push(format!("and {more} more that could not be read"));
        }
        if found.changed > found.taken_anew {
            lines.push(format!(
                "{} inputs have changed since they were imported, such as {}: the same command with --again changed takes them anew",
                found.changed - found.taken_anew,
                found.changed_names.join(", ")
            ));
        }
        if self.lost_now > 0 {
            lines.push(format!(
                "{} results were removed before they were in place: the same command with --again missing computes them anew",
                self.lost_now
            ));
        }
        let failed: u64 = self.tasks.by_status.iter().filter(|(s, _)| !s.is_usable()).map(|(_, n)| n).sum();
        if failed > 0 {
            lines.push(format!(
                "see which: dispatcher tasks --state {} --status {},{}; do them again: the same command with --again failed",
                self.out.display(),
                Status::Fatal.as_str(),
                Status::Invalid.as_str()
            ));
        }
        lines
    }
}
