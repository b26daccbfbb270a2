//! The command line: what can be said, and the help that teaches it.

mod help;
mod variables;
mod worker;

pub use worker::WorkerArgs;

use crate::{commands, views};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// A durable dispatcher for heavy file-in, file-out work.
///
/// Hands out work, survives what goes wrong with workers, files, disk and itself, and at the end every input has the
/// best result that was produced, or a stored reason why not.
#[derive(Debug, Parser)]
#[command(name = "dispatcher", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  dispatcher run papers --exec 'pandoc {input} -o {output}' --ext html
  dispatcher status --state papers.out

  dispatcher serve
  dispatcher import papers --service html
  dispatcher worker --service html --exec './convert {input}'
  dispatcher why 2024/paper.tex
  dispatcher export --out results

`dispatcher COMMAND --help` has more of them, and says what the command does.

Exit codes: 0 all usable, 1 some not, 2 usage, 3 interrupted (the same command resumes), 10 store lost, 11 hard limit,
12 drain timed out, 13 a part died, 14 locked by another process, 15 the database belongs to another version.")]
pub struct CommandLine {
    /// What to do; without it a server starts, with every setting at its default.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl CommandLine {
    /// What the process was started with; ends it where that cannot be read, or where help was asked for.
    pub fn read() -> Self {
        let matches = help::set(Self::command()).try_get_matches().unwrap_or_else(|e| variables::named(e).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
    }
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command on every file of a folder, durably.
    Run(RunArgs),
    /// Serve workers in processes of their own, until told to end.
    Serve(Box<crate::serve::ServeArgs>),
    /// Work for a dispatcher: run a command on every task that it hands out.
    Worker(WorkerArgs),
    /// Add the files of a folder as tasks of a service.
    Import(commands::import::ImportArgs),
    /// How far it is: tasks by state and status, and the most frequent causes of failure.
    Status(views::status::StatusArgs),
    /// List tasks, filtered.
    Tasks(views::tasks::TasksArgs),
    /// Why a task is where it is, and what comes next.
    Why(views::why::WhyArgs),
    /// A task's whole story: every attempt with worker, times and cause.
    Show(ShowArgs),
    /// List services, or set one up.
    Services(commands::services::ServicesArgs),
    /// List corpora.
    Corpora(views::corpora::CorporaArgs),
    /// List workers, and how each one does.
    Workers(views::workers::WorkersArgs),
    /// Begin a new run of tasks.
    Rerun(commands::change::ChangeArgs),
    /// End tasks that are not over.
    #[command(after_help = commands::change::CANCEL_HELP)]
    Cancel(commands::change::ChangeArgs),
    /// Hand out nothing more, of a service or of all.
    Pause(commands::pause::PauseArgs),
    /// Hand out again.
    #[command(after_help = commands::pause::RESUME_HELP)]
    Resume(commands::pause::PauseArgs),
    /// End the dispatcher that is at work.
    Drain(commands::drain::DrainArgs),
    /// Try part of a corpus again, beside what it has published.
    Sandbox(commands::sandbox::SandboxArgs),
    /// Delete a corpus or a service with all its tasks.
    Delete(commands::delete::DeleteArgs),
    /// Who commanded what, and what became of it.
    Log(views::log::LogArgs),
    /// Every setting, its value, and who said so.
    Config(Box<views::config::ConfigArgs>),
    /// Take results out of the archive: as a folder, as a tar file, or one of them.
    Export(Box<crate::export::ExportArgs>),
    /// Rewrite packs of which little is wanted any more, to get their space back.
    Compact(commands::compact::CompactArgs),
    /// Check the books against the rows, and the results against the archive.
    Doctor(DoctorArgs),
}

/// `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher run papers --exec 'pandoc {input} -o {output}' --ext html
  dispatcher run scans -o text --exec 'tesseract {input} stdout' --ext txt
  dispatcher run papers --exec './convert {input}' --slots 8 --limit 5m
  dispatcher run papers --exec './convert {input}' --again failed
  dispatcher run logs --exec 'gzip -9nc {input}'

Placeholders in CMD: {input} {output} {stem} {ext} {task} {attempt}. Without {output}, what the
command prints is the result. Exit status 0 is a good result, 75 (EX_TEMPFAIL) is worth another
try, 65 (EX_DATAERR) says that the input is invalid, any other is a failure; death by a signal and
a passed time limit are tried again. Lines like `Warning:category:what details` on standard error
become messages of the task.

Killed or interrupted, the same command goes on where it was: nothing that has a result runs again.")]
pub struct RunArgs {
    /// The folder with the inputs. Every regular file below it is one task; links are skipped.
    pub dir: PathBuf,
    /// The command for each input.
    #[arg(long, short = 'e', value_name = "CMD")]
    pub exec: String,
    /// Where the results go, in the same folders as the inputs [default: DIR.out].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Give results this extension in place of the input's.
    #[arg(long, value_name = "EXT")]
    pub ext: Option<String>,
    /// How many commands run at once [default: the number of cores].
    #[arg(long, short, value_name = "N", env = "DISPATCHER_SLOTS", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub slots: Option<u32>,
    /// How long one input may take; attempt n gets n times as much.
    #[arg(long, value_name = "TIME", default_value = "1h", env = "DISPATCHER_LIMIT", value_parser = time_limit)]
    pub limit: Duration,
    /// How many attempts one input may cost.
    #[arg(long, value_name = "N", default_value_t = 3, env = "DISPATCHER_BUDGET", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub budget: u32,
    /// How long to wait before an input's second attempt; each further wait is twice as long, up to 1h.
    #[arg(long, value_name = "TIME", default_value = "0s", env = "DISPATCHER_RETRY_DELAY", value_parser = span)]
    pub retry_delay: Duration,
    /// The largest result; a larger one makes its input invalid.
    #[arg(long, value_name = "SIZE", default_value = "4GB", env = "DISPATCHER_RESULT_CAP", value_parser = size)]
    pub result_cap: bytesize::ByteSize,
    /// Run CMD with `sh -c`; placeholders are quoted for it.
    #[arg(long)]
    pub shell: bool,
    /// Do again what failed, what has changed since it was imported, or what lost its result.
    #[arg(long, value_name = "WHICH", value_delimiter = ',', value_enum)]
    pub again: Vec<Again>,
    /// How long running commands may go on after Ctrl-C.
    #[arg(long, value_name = "TIME", default_value = "30s", env = "DISPATCHER_DRAIN", value_parser = span)]
    pub drain: Duration,
    /// How long a command may take to end after SIGTERM, before it is killed.
    #[arg(long, value_name = "TIME", default_value = "5s", env = "DISPATCHER_KILL_GRACE", value_parser = span)]
    pub kill_grace: Duration,
    /// Survive kills of the process, but not for sure a power cut: faster on slow disks.
    #[arg(long, env = "DISPATCHER_FAST_COMMITS")]
    pub fast_commits: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to do again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Again {
    /// Everything without a usable result.
    Failed,
    /// Everything whose input has changed since it was imported.
    Changed,
    /// Everything whose result is not where it should be, as `doctor` finds.
    Missing,
}

/// Where the state is.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// The results folder of a `run`, or the state folder itself.
    #[arg(long, value_name = "DIR", default_value = ".dispatcher", env = "DISPATCHER_STATE", global = true)]
    pub state: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// `show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher show 17
  dispatcher show 2024/paper.tex
  dispatcher show html/papers/2024/paper.tex --json

A name that several tasks have means the oldest of them; the others are listed. `dispatcher why` says in a few lines what
this says in full.")]
pub struct ShowArgs {
    /// The task: its id, or INPUT, CORPUS/INPUT or SERVICE/CORPUS/INPUT as `tasks` prints them.
    pub task: std::ffi::OsString,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher doctor
  dispatcher doctor --deep --state papers.out

Exit code 0: every attempt that went out has one ending, and every result that stands is where it should be. Exit code 1:
what is wrong is listed, and what to do about it. It changes nothing, and may be used while a dispatcher is at work.")]
pub struct DoctorArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// Also read every result and compare its checksum.
    #[arg(long)]
    pub deep: bool,
}

/// A time limit: positive.
pub fn time_limit(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("a time limit must be longer than nothing".to_owned()),
        limit => Ok(limit),
    }
}

/// A span of time.
pub fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| format!("{e} (write it like 90s, 10m, 2h)"))
}

/// A size in bytes.
pub fn size(text: &str) -> Result<bytesize::ByteSize, String> {
    match text.parse::<bytesize::ByteSize>() {
        Ok(size) if size.as_u64() == 0 => Err("a size must be more than nothing".to_owned()),
        Ok(size) => Ok(size),
        Err(_) => Err("that is no size (write it like 500KB, 20MB, 4GB)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        super::CommandLine::command().debug_assert();
    }
}
