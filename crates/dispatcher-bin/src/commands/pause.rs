//! `pause` and `resume`: whether tasks of a service, or of all that there are, are handed out.

use super::Given;
use crate::cli::StateArgs;
use crate::filter::service_of;
use crate::views::{event_loop, open};
use clap::Args;
use dispatcher_store::Command;

/// What `resume --help` says at its end.
pub const RESUME_HELP: &str =
    "Examples:\n  dispatcher resume\n  dispatcher resume html\n\nWhat waits is handed out as before.";

/// `pause` and `resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher pause html
  dispatcher pause

What is being worked on goes on, and its results are taken.")]
pub struct PauseArgs {
    /// Which service; every one that there is, unless said.
    pub service: Option<String>,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// Hands out nothing more.
pub fn pause(args: &PauseArgs) -> anyhow::Result<u8> {
    let given = give(args, Command::Pause { service: args.service.clone() })?;
    given.report(args.at.json, &done("paused", given.changed, args))
}

/// Hands out again.
pub fn resume(args: &PauseArgs) -> anyhow::Result<u8> {
    let given = give(args, Command::Resume { service: args.service.clone() })?;
    given.report(args.at.json, &done("resumed", given.changed, args))
}

fn give(args: &PauseArgs, command: Command) -> anyhow::Result<Given> {
    event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        if let Some(name) = &args.service {
            service_of(&store, name).await?;
        }
        Given::give(&state, &store, &command).await
    })
}

fn done(what: &str, changed: u64, args: &PauseArgs) -> String {
    match (&args.service, changed) {
        (Some(name), 0) => format!("{name} was {what} already"),
        (Some(name), _) => format!("{name} is {what}"),
        (None, 1) => format!("1 service {what}"),
        (None, n) => format!("{n} services {what}"),
    }
}
