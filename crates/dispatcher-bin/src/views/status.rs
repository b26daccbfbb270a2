//! `status`: tasks by state and status.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::filter::PlaceArgs;
use crate::waiting;
use clap::Args;
use dispatcher_store::{Store, Summary};
use serde::Serialize;

/// `status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher status
  dispatcher status --state papers.out
  dispatcher status --service html --corpus papers --json

Leased tasks are told apart by where they are: running, waiting at workers (sent and not begun), waiting here (claimed by
the dispatcher, and no worker has them yet).")]
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
    /// What it waits for, where nothing is handed out before that is there.
    waiting_for: Option<String>,
    #[serde(flatten)]
    tasks: Summary,
}

/// Shows how far it is.
pub fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let (working, waiting_for, tasks) = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let tasks = store.summary(&args.place.filter(&store).await?).await.map_err(told)?;
        anyhow::Ok((state.is_locked(), waiting::read(&state), tasks))
    })?;
    if args.at.json {
        print_json(&Status { working, waiting_for, tasks })?;
        return Ok(exit::ALL_USABLE);
    }
    let now = match (working, waiting_for) {
        (true, Some(what)) => format!("a dispatcher is at work and waits for {what}"),
        (true, None) => "a dispatcher is at work".to_owned(),
        (false, _) => "no dispatcher is at work".to_owned(),
    };
    crate::tell(&format!("{}; {now}", words::counts(&tasks)));
    if let Some(stranded) = words::stranded(&tasks).filter(|_| !working) {
        crate::tell(&stranded);
    }
    for line in words::causes(&tasks) {
        crate::tell(&line);
    }
    Ok(exit::ALL_USABLE)
}
