//! What an import says: how far it is while it goes on, and what it found and did at its end.

use super::ImportArgs;
use crate::exit;
use crate::inputs::Imported;
use crate::views::{print_json, words};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How far it is, on standard error.
pub(super) enum Progress {
    Quiet,
    Bar(ProgressBar),
    /// Lines, and when the last one was printed.
    Lines(Instant),
}

impl Progress {
    /// What suits where standard error goes.
    pub(super) fn open(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Instant::now());
        }
        let style = ProgressStyle::with_template("{spinner} {pos} inputs {per_sec}{msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        Self::Bar(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())))
    }

    pub(super) fn show(&mut self, found: &Imported) {
        let inputs = found.added + found.known + found.changed;
        match self {
            Self::Quiet => {}
            Self::Bar(bar) => {
                bar.set_message(if found.known > 0 { format!(", {} known", found.known) } else { String::new() });
                bar.set_position(inputs);
            }
            Self::Lines(last) => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    crate::say(&format!("{inputs} inputs, {} of them new", found.added));
                }
            }
        }
    }

    pub(super) fn close(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// What `import --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether everything was seen.
    pub(super) finished: bool,
    /// How long it took.
    pub(super) took_ms: u64,
    /// For which service.
    pub(super) service: String,
    /// Into which corpus.
    pub(super) corpus: String,
    /// Whether the service is new.
    pub(super) made_service: bool,
    /// Whether a dispatcher is at work.
    pub(super) working: bool,
    /// What was found and done.
    pub(super) imported: Imported,
}

impl Report {
    /// Prints it, and returns the exit code that it means.
    pub(super) fn tell(&self, args: &ImportArgs) -> anyhow::Result<u8> {
        if args.at.json {
            print_json(self)?;
        } else {
            for line in self.lines() {
                crate::tell(&line);
            }
            if self.finished && !self.working {
                crate::say(&format!(
                    "no dispatcher is at work: start one with `dispatcher serve --state {}`",
                    args.at.state.display()
                ));
            }
        }
        if !self.finished {
            crate::say("interrupted: the same command goes on");
            return Ok(exit::INTERRUPTED);
        }
        Ok(if self.imported.unreadable_count > 0 { exit::SOME_NOT } else { exit::ALL_USABLE })
    }

    fn lines(&self) -> Vec<String> {
        let found = &self.imported;
        let mut lines = Vec::new();
        if self.made_service {
            lines.push(format!("made the service {0}: `dispatcher services set {0}` changes it", self.service));
        }
        let seconds = self.took_ms as f64 / 1000.0;
        let known = if found.known > 0 { format!(", {} known already", found.known) } else { String::new() };
        lines.push(format!(
            "added {} of corpus {} for service {}{known} ({seconds:.1} s)",
            words::tasks(found.added),
            self.corpus,
            self.service
        ));
        lines.extend(self.remarks());
        lines
    }

    /// What was skipped or needs a decision.
    fn remarks(&self) -> Vec<String> {
        let found = &self.imported;
        let mut lines = Vec::new();
        if found.taken_anew > 0 {
            lines.push(format!("{} changed inputs are run again", found.taken_anew));
        }
        if found.changed > found.taken_anew {
            lines.push(format!(
                "{} inputs have changed since they were imported, such as {}: --take-changed runs them again",
                found.changed - found.taken_anew,
                found.changed_names.join(", ")
            ));
        }
        lines.extend(found.skipped());
        lines.extend(found.unreadable.iter().map(|what| format!("could not be read: {what}")));
        let more = found.unreadable_count.saturating_sub(found.unreadable.len() as u64);
        if more > 0 {
            lines.push(format!("and {more} more that could not be read"));
        }
        lines
    }
}
