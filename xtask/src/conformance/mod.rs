//! `conformance`: drives any worker program through the conversation of `docs/protocol.md`, and says where it departs.
//!
//! **Owns** the list of checks and the verdict. `desk` is the dispatcher's side of the v1 wire and `ledger` what it
//! checks in every message, `counter` is that of the legacy wire, `process` the program under test, `table` what is told at the end, `clients` the programs of this tree.
//!
//! **Invariants**: each check starts from nothing, with a folder, a socket and a process of its own; its promise is quoted
//! from the document word by word, which a test holds; nothing that the program says or does ends the others.

mod clients;
mod counter;
mod cuts;
mod desk;
mod errands;
mod ledger;
mod legacy;
mod partings;
mod process;
mod shapes;
mod table;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use counter::Counter;
use desk::Desk;
use process::Rig;
use table::Row;

/// What is driven, and how far.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// How far: `basic` is what every worker has to do; `full` adds cancels, cuts, kills and misbehaving dispatchers.
    #[arg(long, value_enum, default_value_t = Level::Basic)]
    level: Level,
    /// Which wire the program speaks.
    #[arg(long, value_enum, default_value_t = Wire::V1)]
    wire: Wire,
    /// Only checks whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// How many seconds anything may take before it counts as missing.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
    /// Prints the outcome as JSON, to standard output.
    #[arg(long)]
    json: bool,
    /// The program and its arguments; `{connect}`, `{results}`, `{service}` and `{folder}` in them are filled in.
    ///
    /// The same is in its environment: `DISPATCHER_CONNECT` (addresses, with commas between them), `DISPATCHER_LEGACY_RESULTS`
    /// (legacy only), `DISPATCHER_SERVICE`, `DISPATCHER_SLOTS` (1) and `DISPATCHER_WORKER_DIR`, a folder that outlives
    /// its process. Without a program those of this tree are driven, each on its wire and as far as it has to go.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// How far a program is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Basic,
    Full,
}

/// A wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wire {
    V1,
    Legacy,
}

type Playing<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// What a check does, on the dispatcher's side of its wire.
enum Play {
    V1(for<'a> fn(&'a mut Desk) -> Playing<'a>),
    Legacy(for<'a> fn(&'a mut Counter) -> Playing<'a>),
}

/// One promise of the document and how it is tried.
struct Check {
    name: &'static str,
    level: Level,
    /// What the program has to do, in a few words.
    expects: &'static str,
    /// The sentence of `docs/protocol.md` that says so.
    sentence: &'static str,
    play: Play,
}

impl Check {
    const fn v1(
        level: Level,
        name: &'static str,
        expects: &'static str,
        sentence: &'static str,
        play: for<'a> fn(&'a mut Desk) -> Playing<'a>,
    ) -> Self {
        Self { name, level, expects, sentence, play: Play::V1(play) }
    }

    const fn legacy(
        name: &'static str,
        expects: &'static str,
        sentence: &'static str,
        play: for<'a> fn(&'a mut Counter) -> Playing<'a>,
    ) -> Self {
        Self { name, level: Level::Basic, expects, sentence, play: Play::Legacy(play) }
    }

    const fn wire(&self) -> Wire {
        match self.play {
            Play::V1(_) => Wire::V1,
            Play::Legacy(_) => Wire::Legacy,
        }
    }

    /// Plays it; an error is what the program did wrong, with what was said before.
    async fn play(&self, rig: &Rig) -> Result<()> {
        match self.play {
            Play::V1(play) => {
                let mut desk = Desk::open(rig).await?;
                let outcome = play(&mut desk).await;
                outcome.map_err(|error| desk.with_story(error))
            }
            Play::Legacy(play) => {
                let mut counter = Counter::open(rig).await?;
                let outcome = play(&mut counter).await;
                outcome.map_err(|error| counter.with_story(error))
            }
        }
    }
}

/// Every check of both wires, in the order in which they are numbered and run.
fn checks() -> impl Iterator<Item = &'static Check> {
    [errands::CHECKS, shapes::CHECKS, partings::CHECKS, cuts::CHECKS, legacy::CHECKS].into_iter().flatten()
}

pub(crate) use clients::{own, python};

/// Drives the program, or those of this tree.
///
/// # Errors
/// Fails when a check did, or none was chosen, or a program of this tree cannot be started here.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.command.is_empty() {
        return own(workspace);
    }
    let rows = drive(options)?;
    if options.json {
        println!("{}", table::json(options.wire, options.level, &rows)?);
    } else {
        println!("{}", table::text(&rows));
    }
    table::verdict(&rows)
}

/// Plays the chosen checks one after the other.
fn drive(options: &Options) -> Result<Vec<Row>> {
    let rig = Rig::new(&options.command, Duration::from_secs(options.patience));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_chosen = |check: &&Check| {
        let is_named = options.only.as_ref().is_none_or(|name| check.name.contains(name.as_str()));
        check.wire() == options.wire && check.level <= options.level && is_named
    };
    let mut rows = Vec::new();
    for (number, check) in (1..).zip(checks().filter(|check| check.wire() == options.wire)) {
        if is_chosen(&check) {
            let began = Instant::now();
            let outcome = runtime.block_on(check.play(&rig));
            rows.push(Row::new(number, check, outcome, began.elapsed()));
        }
    }
    if rows.is_empty() {
        bail!("no check of this wire and level has such a name: {}", names(options));
    }
    Ok(rows)
}

fn names(options: &Options) -> String {
    let fits = |check: &&Check| check.wire() == options.wire && check.level <= options.level;
    checks().filter(fits).map(|check| check.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_check_quotes_a_sentence_that_the_document_has() {
        let document = plain(include_str!("../../../docs/protocol.md"));
        for check in checks() {
            assert!(document.contains(&plain(check.sentence)), "{}: {:?}", check.name, check.sentence);
        }
    }

    #[test]
    fn names_are_unique_and_both_levels_and_wires_have_checks() {
        let mut names: Vec<_> = checks().map(|check| check.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (wire, level) in [(Wire::V1, Level::Basic), (Wire::V1, Level::Full), (Wire::Legacy, Level::Basic)] {
            assert!(checks().any(|check| check.wire() == wire && check.level == level));
        }
    }
}
