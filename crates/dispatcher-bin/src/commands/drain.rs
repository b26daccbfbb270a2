//! `drain`: ends the dispatcher that is at work, as a signal to it would.
//!
//! Owns that it returns when that process has gone, whoever may have started another one since.

use super::Given;
use crate::cli::StateArgs;
use crate::views::{event_loop, open};
use clap::Args;
use dispatcher_store::Command;
use std::time::Duration;

/// How often the dispatcher's process is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher drain
  dispatcher drain --wait

Nothing more is handed out, what was received is written, and the dispatcher ends. Workers go on;
what they finish is taken after the next start. Returns when the process has gone.")]
pub struct DrainArgs {
    /// Wait for everything in flight, for as long as the dispatcher's drain may take.
    #[arg(long)]
    pub wait: bool,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// Ends the dispatcher that is at work.
pub fn drain(args: &DrainArgs) -> anyhow::Result<u8> {
    let given = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let at_work = state.process();
        let given = Given::give(&state, &store, &Command::Drain { wait: args.wait }).await?;
        while given.error.is_none() && state.is_locked() && state.process() == at_work {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        anyhow::Ok(given)
    })?;
    given.report(args.at.json, "drained and ended")
}
