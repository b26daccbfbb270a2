//! `export`: results out of the archive, as a folder, as a tar file, or one of them.
//!
//! Owns which results are meant, what each is called, and that no byte goes out unchecked. Knows no archive: any gives its
//! parts in the same way. Works beside a dispatcher: a part that moved or was replaced since its row was read is looked
//! up again.

mod results;
mod stream;
mod tree;

use crate::archive;
use crate::cli::StateArgs;
use crate::exit::{self, Exit};
use crate::filter::FilterArgs;
use crate::settings::LayoutKind;
use crate::views::{self, event_loop, open, words};
use clap::{Args, ValueEnum};
use dispatcher_core::id::TaskId;
use results::Results;
use serde::Serialize;
use std::path::PathBuf;

/// Faults that are listed.
const FAULTS_MAX: usize = 1000;

/// `export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher export --out results
  dispatcher export --out results --service html --status no_problem,warning
  dispatcher export --tar - --corpus papers | ssh elsewhere tar x
  dispatcher export 17 > paper.html
  dispatcher export html/papers/2024/paper.tex --part stderr

A result is called SERVICE/CORPUS/INPUT, or what --layout says, in a folder and in a tar file alike. What no file can be
called, a part of more than 255 bytes say, is written as parts that begin with `%=`, so that every name stays below the folder
and no two become one.

In a folder a file that is there and right is left alone, so that the same command goes on where it was interrupted. Every
checksum is compared. A result appears whole or not at all. It may be done while a dispatcher is at work: then it has what
stood at some moment on the way. Of a task in a new run there is nothing until that has a result.

Exit codes: 0 everything that was meant is out, 1 something could not be, 2 usage.")]
pub struct ExportArgs {
    /// Which.
    #[command(flatten)]
    pub which: FilterArgs,
    /// A file for each, in this folder.
    #[arg(long, short, value_name = "DIR", conflicts_with = "tar")]
    pub out: Option<PathBuf>,
    /// All in this tar file; `-`: to standard output.
    #[arg(long, value_name = "FILE")]
    pub tar: Option<PathBuf>,
    /// One task's result in this file, instead of on standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "tar"])]
    pub to: Option<PathBuf>,
    /// Which part: the result, or what was kept of the output of the program that made it.
    #[arg(long, value_name = "PART", value_enum, default_value_t)]
    pub part: PartWord,
    /// How files are named [default: as the state folder's own].
    #[arg(long, value_name = "LAYOUT", value_enum)]
    pub layout: Option<LayoutKind>,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// A part on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PartWord {
    /// The result.
    #[default]
    Result,
    /// What the program printed.
    Stdout,
    /// What the program complained.
    Stderr,
}

impl PartWord {
    /// As rows have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What `export --json` prints.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Results that were written.
    pub exported: u64,
    /// Results that were there already, and right.
    pub already: u64,
    /// Tasks that are meant and have none.
    pub without: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// What could not be exported, in words; at most 1,000.
    pub faults: Vec<String>,
    /// How many could not be exported in all.
    pub count: u64,
    /// Those of them whose name is no file's, or another's: nothing is wrong with their bytes.
    #[serde(skip)]
    pub unnamed: u64,
}

impl Report {
    /// A result cannot have its name.
    pub fn refuse(&mut self, task: TaskId, why: &str) {
        self.unnamed += 1;
        self.fault(task, why);
    }

    /// Something could not be exported.
    pub fn fault(&mut self, task: TaskId, what: &str) {
        self.count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(format!("task {task}: {what}"));
        }
    }
}

/// Takes results out of the archive.
pub fn export(args: &ExportArgs) -> anyhow::Result<u8> {
    let looped = event_loop()?;
    let (state, store) = looped.block_on(open(&args.at.state))?;
    let opened = archive::open(&state)?;
    let filter = looped.block_on(args.which.filter(&store))?;
    let layout = match args.layout {
        Some(layout) => Some(layout),
        None => archive::read(&state)?.map(|choice| choice.layout),
    };
    let results = Results::new(&looped, &store, opened.archive(), filter, args.part.as_str(), layout)?;
    let report = match (&args.out, &args.tar) {
        (Some(out), _) => tree::export(results, out),
        (None, Some(tar)) => stream::tar(results, tar),
        (None, None) => stream::one(results, &args.which, args.to.as_deref()),
    };
    let report = report.map_err(cut_short)?;
    let to_stdout = args.tar.as_deref().is_some_and(|tar| tar.as_os_str() == "-")
        || (args.out.is_none() && args.tar.is_none() && args.to.is_none());
    tell(&report, args, to_stdout)
}

/// What the disk or the reader refuses is no mistake on the command line.
fn cut_short(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Exit>() {
        return error;
    }
    Exit::with(exit::SOME_NOT, format!("{error:#}; what is out so far stays: the same command goes on from there"))
}

/// Where the results are on standard output, the report is not.
fn tell(report: &Report, args: &ExportArgs, to_stdout: bool) -> anyhow::Result<u8> {
    let line = |text: &str| {
        if to_stdout {
            crate::say(text);
        } else {
            crate::tell(text);
        }
    };
    if args.at.json {
        let json = views::json(report)?;
        if to_stdout {
            crate::say(&json);
        } else {
            crate::tell_as_it_is(&json);
        }
    } else {
        report.faults.iter().for_each(|fault| line(fault));
        let more = report.count.saturating_sub(report.faults.len() as u64);
        if more > 0 {
            line(&format!("and {more} more"));
        }
        if args.out.is_some() || args.tar.is_some() {
            let size = bytesize::ByteSize::b(report.bytes);
            let already = if report.already > 0 { format!(", {} were there", report.already) } else { String::new() };
            line(&format!(
                "exported {} results, {size}{already}; {} without one",
                report.exported,
                words::tasks(report.without)
            ));
        }
    }
    if report.count > 0 && report.unnamed == report.count {
        let hint = "some results cannot have their names in this layout: --layout mirror gives each a name of its own";
        return Err(Exit::with(exit::SOME_NOT, hint));
    }
    if report.count > 0 {
        let hint = "some results could not be exported: `dispatcher doctor --deep` checks them all, and `dispatcher rerun \
                    ID` computes one anew";
        return Err(Exit::with(exit::SOME_NOT, hint));
    }
    Ok(exit::ALL_USABLE)
}
