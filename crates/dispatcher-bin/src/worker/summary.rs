//! The end of a worker in words and as JSON.

use crate::exit;
use dispatcher_worker::WorkerSummary;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// How a worker ended.
#[derive(Debug, Serialize)]
pub struct Ended {
    /// Its name.
    name: String,
    /// Its folder.
    dir: PathBuf,
    /// How long it was there, in milliseconds.
    took_ms: u64,
    /// Tasks that came.
    received: u64,
    /// Results and causes that its commands brought.
    finished: u64,
    /// Tasks given back.
    given_back: u64,
    /// Tasks that the dispatcher ended.
    cancelled: u64,
    /// What became of what it told: pairs of a word and a count.
    answers: Vec<(&'static str, u64)>,
    /// Results and causes without an answer, which wait in the folder.
    kept: u64,
    /// Results and causes without an answer that are not on disk.
    lost: u64,
    /// Tasks given back without an answer.
    unconfirmed: u64,
    /// Connections that came up.
    connections: u64,
}

impl Ended {
    /// Puts it together.
    pub fn new(name: String, dir: PathBuf, took: Duration, summary: WorkerSummary) -> Self {
        let answers = summary.answers;
        Self {
            name,
            dir,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            received: summary.received,
            finished: summary.finished,
            given_back: summary.released,
            cancelled: summary.cancelled,
            answers: vec![
                ("stored", answers.stored),
                ("superseded", answers.superseded),
                ("stale", answers.stale),
                ("cancelled", answers.cancelled),
                ("unknown", answers.unknown),
                ("refused", answers.refused),
            ],
            kept: summary.unanswered.saturating_sub(summary.unsaved),
            lost: summary.unsaved,
            unconfirmed: summary.unconfirmed,
            connections: summary.connections,
        }
    }

    /// The exit code that it means.
    pub const fn code(&self) -> u8 {
        if self.lost == 0 && self.unconfirmed == 0 { exit::ALL_USABLE } else { exit::DRAIN_TIMED_OUT }
    }

    /// For a person.
    pub fn print(&self) {
        let mut lines = vec![format!(
            "worker {} ended: {} tasks came, {} results, {} given back",
            self.name, self.received, self.finished, self.given_back
        )];
        if self.kept > 0 {
            lines.push(format!(
                "{} results wait in {}: the next worker with this --dir hands them over",
                self.kept,
                self.dir.display()
            ));
        }
        if self.lost > 0 {
            lines.push(format!(
                "{} results could not be written to disk and are lost: their tasks are done again",
                self.lost
            ));
        }
        if self.unconfirmed > 0 {
            lines.push(format!(
                "{} tasks were given back without an answer: the dispatcher finds out by itself",
                self.unconfirmed
            ));
        }
        for line in lines {
            crate::tell(&line);
        }
    }
}
