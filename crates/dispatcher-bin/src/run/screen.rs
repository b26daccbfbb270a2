//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere.
//!
//! Owns how it looks and how often it is said. Standard error only; standard output is for the summary.

use dispatcher_core::text::printed;
use dispatcher_server::progress::ProgressNow;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The screen.
pub enum Screen {
    /// Says nothing.
    Quiet,
    /// A bar.
    Bar(ProgressBar),
    /// Lines, and when the last one was printed.
    Lines(Instant),
}

/// What there is to show.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Tasks in all, as far as they are imported.
    pub total: u64,
    /// Tasks that had ended when the process started.
    pub before: u64,
    /// Whether the import still goes on.
    pub importing: bool,
    /// What this process did.
    pub now: ProgressNow,
}

impl Screen {
    /// A screen that suits where standard error goes.
    pub fn open(quiet: bool) -> Self {
        if quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
            Self::Bar(bar.with_style(style()))
        } else {
            Self::Lines(Instant::now())
        }
    }

    /// Shows how far it is.
    pub fn show(&mut self, shown: &Shown) {
        let done = shown.before + shown.now.ended();
        match self {
            Self::Quiet => {}
            Self::Bar(bar) => {
                bar.set_length(shown.total.max(done));
                bar.set_position(done);
                bar.set_message(printed(&remark(shown)).into_owned());
            }
            Self::Lines(last) => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    crate::say(&format!("{done}/{} tasks{}", shown.total, remark(shown)));
                }
            }
        }
    }

    /// Says something that must not be lost between two pictures.
    pub fn say(&self, line: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| crate::say(line)),
            Self::Quiet | Self::Lines(_) => crate::say(line),
        }
    }

    /// Clears the bar.
    pub fn close(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// What is worth saying beside the count.
fn remark(shown: &Shown) -> String {
    let mut text = String::new();
    if shown.importing {
        text.push_str(", importing");
    }
    if shown.now.failed() > 0 {
        let _ = write!(text, ", {} failed", shown.now.failed());
    }
    if shown.now.requeued > 0 {
        let _ = write!(text, ", {} retried", shown.now.requeued);
    }
    if let Some(what) = &shown.now.waiting_for {
        let _ = write!(text, ", waiting for {what}");
    }
    text
}

/// The bar: count, rate, time left.
fn style() -> ProgressStyle {
    let rate = |state: &ProgressState, w: &mut dyn Write| {
        let _ = write!(w, "{:.0}/s", state.per_sec());
    };
    ProgressStyle::with_template("{wide_bar} {pos}/{len} {rate} {eta}{msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
}
