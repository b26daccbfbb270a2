//! Commands to a dispatcher: written down in the store, carried out by whoever has the state folder, waited for.
//!
//! Owns the way from a command to its outcome: the running dispatcher carries it out; where none runs, this process does.
//! Knows nothing of what a command means.

use crate::run::{host, now};
use crate::state::{StateDir, store_error};
use dispatcher_server::wake::wake;
use dispatcher_store::{Command, CommandId, CommandOutcome, CommandPage, Store};
use std::time::Duration;

/// How often the outcome is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Tasks in one piece; the store makes it less where that would hold its writer for too long.
const PIECE: usize = 5_000;

/// Who carries a command out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedOutBy {
    /// The dispatcher that works on the state folder.
    Dispatcher,
    /// This process, because no dispatcher runs.
    Ourselves,
}

/// Gives a command and waits until it is through.
pub async fn give(
    state: &StateDir,
    store: &dyn Store,
    command: &Command,
) -> anyhow::Result<(CommandId, CommandOutcome, CarriedOutBy)> {
    let id = store.submit(command, &actor(), now()).await.map_err(|e| store_error(&e))?;
    wake(state.path());
    loop {
        if let Some(outcome) = outcome_of(store, id).await? {
            return Ok((id, outcome, CarriedOutBy::Dispatcher));
        }
        // A lock that can be had means that nobody else will do it.
        if let Ok(_lock) = state.lock() {
            return Ok((id, finish(store, id, command).await?, CarriedOutBy::Ourselves));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Carries a command out, for whoever has the lock of the state folder.
pub async fn carry_out(store: &dyn Store, command: &Command) -> anyhow::Result<CommandOutcome> {
    let id = store.submit(command, &actor(), now()).await.map_err(|e| store_error(&e))?;
    finish(store, id, command).await
}

async fn finish(store: &dyn Store, id: CommandId, command: &Command) -> anyhow::Result<CommandOutcome> {
    if let Command::Drain { .. } = command {
        let outcome = CommandOutcome { changed: 0, error: Some("no dispatcher is at work".to_owned()) };
        store.conclude(id, &outcome, now()).await.map_err(|e| store_error(&e))?;
        return Ok(outcome);
    }
    loop {
        if let Some(outcome) = store.step(id, PIECE, now()).await.map_err(|e| store_error(&e))?.outcome {
            return Ok(outcome);
        }
    }
}

async fn outcome_of(store: &dyn Store, id: CommandId) -> anyhow::Result<Option<CommandOutcome>> {
    let page = CommandPage { id: Some(id), max: 1, ..CommandPage::default() };
    let rows = store.commands(&page).await.map_err(|e| store_error(&e))?;
    Ok(rows.into_iter().next().and_then(|row| row.outcome))
}

/// Who gives commands, for the audit log.
pub fn actor() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", host())
}
