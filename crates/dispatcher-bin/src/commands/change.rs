//! `rerun` and `cancel`: what an operator does to tasks that a filter means.
//!
//! Owns that nobody means every task by saying nothing.

use super::Given;
use crate::cli::StateArgs;
use crate::control::CarriedOutBy;
use crate::exit::Exit;
use crate::filter::FilterArgs;
use crate::views::{event_loop, open, words};
use clap::Args;
use dispatcher_store::{Command, TaskFilter};

/// What `cancel --help` says at its end.
pub const CANCEL_HELP: &str = "\
Examples:
  dispatcher cancel --in ready --corpus papers
  dispatcher cancel 17 23
  dispatcher cancel --all
  dispatcher cancel --in leased --service html

Whoever works on the state folder carries it out, piece by piece; where nobody does, this command
does it. A worker that has one of the tasks is told to stop. A result of a task that was cancelled
meanwhile changes nothing; `dispatcher rerun` begins a new run of it.";

/// `rerun` and `cancel`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher rerun --status fatal,invalid --service html
  dispatcher rerun 17 23
  dispatcher rerun 2024/paper.tex --service html
  dispatcher rerun --all

Whoever works on the state folder carries it out, piece by piece; where nobody does, this command
does it. The file of the old result stays until the new run has one. A result of an earlier run, or of
a task that was cancelled meanwhile, changes nothing.")]
pub struct ChangeArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// Which.
    #[command(flatten)]
    pub which: FilterArgs,
    /// Every task that the rest means, be it all of them.
    #[arg(long)]
    pub all: bool,
}

/// Begins a new run of tasks.
pub fn rerun(args: &ChangeArgs) -> anyhow::Result<u8> {
    let given = change(args, |filter| Command::Rerun { filter })?;
    let begin = if given.changed == 1 { "begins" } else { "begin" };
    let code = given.report(args.at.json, &format!("{} {begin} a new run", words::tasks(given.changed)))?;
    if given.carried_out_by == CarriedOutBy::Ourselves && given.changed > 0 && !args.at.json {
        crate::say("they are worked on after the next start");
    }
    Ok(code)
}

/// Ends tasks that are not over.
pub fn cancel(args: &ChangeArgs) -> anyhow::Result<u8> {
    let given = change(args, |filter| Command::Cancel { filter })?;
    given.report(args.at.json, &format!("{} cancelled", words::tasks(given.changed)))
}

fn change(args: &ChangeArgs, command: impl FnOnce(TaskFilter) -> Command) -> anyhow::Result<Given> {
    event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let filter = args.which.filter(&store).await?;
        if filter == TaskFilter::default() && !args.all {
            return Err(Exit::usage(
                "say which tasks (ids, --status, --in, --corpus, …), or --all for every one of them",
            ));
        }
        Given::give(&state, &store, &command(filter)).await
    })
}
