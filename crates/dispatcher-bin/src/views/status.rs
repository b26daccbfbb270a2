//! `status`: tasks by state and status.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::filter::PlaceArgs;
use clap::Args;
use dispatcher_store::{Store, Summary};
use serde::Serialize;

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// Of what.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What `status --json` prints.
#[derive(Serialize)]
struct Status {
    /// Whether a process works on it now.
    working: bool,
    #[serde(flatten)]
    tasks: Summary,
}

/// Shows how far it is.
pub fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let (working, tasks) = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let tasks = store.summary(&args.place.filter(&store).await?).await.map_err(told)?;
        anyhow::Ok((state.is_locked(), tasks))
    })?;
    if args.at.json {
        print_json(&Status { working, tasks })?;
        return Ok(exit::ALL_USABLE);
    }
    let now = if working { "a dispatcher is at work" } else { "no dispatcher is at work" };
    crate::tell(&format!("{}; {now}", words::counts(&tasks)));
    for line in words::causes(&tasks) {
        crate::tell(&line);
    }
    Ok(exit::ALL_USABLE)
}
