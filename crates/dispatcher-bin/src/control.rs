//! Commands to a dispatcher: written down in the store, carried out by whoever has the state folder, waited for.
//!
//! Owns the way from a command to its outcome: the running dispatcher carries it out; where none runs, this process does.
//! Knows nothing of what a command means.

use crate::archive;
use crate::run::{host, now};
use crate::state::{StateDir, store_error};
use dispatcher_server::wake::wake;
use dispatcher_store::{Command, CommandId, CommandOutcome, CommandPage, Named, Store};
use std::time::Duration;

/// How often the outcome is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Commands that are looked at together.
const OPEN_MAX: usize = 64;
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
    let mut by = CarriedOutBy::Dispatcher;
    loop {
        if let Some(outcome) = outcome_of(store, id).await? {
            return Ok((id, outcome, by));
        }
        // A lock that can be had means that nobody else will do it. Commands are carried out in the order in which they were
        // given: what an earlier one left undone is older than this.
        if let Ok(_lock) = state.lock_for_command() {
            by = CarriedOutBy::Ourselves;
            finish_open(state, store).await?;
            continue;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Carries a command out that takes no files, for whoever has the lock of the state folder.
pub async fn carry_out(store: &dyn Store, command: &Command) -> anyhow::Result<CommandOutcome> {
    let id = store.submit(command, &actor(), now()).await.map_err(|e| store_error(&e))?;
    finish(None, store, id, command).await
}

/// Carries out what was commanded and left undone, where no dispatcher is at work: whatever is added or commanded from now
/// on comes after it.
pub async fn settle(state: &StateDir, store: &dyn Store) -> anyhow::Result<()> {
    match state.lock_for_command() {
        Ok(_lock) => finish_open(state, store).await,
        // The dispatcher that has it does so.
        Err(_) => Ok(()),
    }
}

/// Carries out every command that is not through, oldest first, for whoever has the lock of the state folder.
async fn finish_open(state: &StateDir, store: &dyn Store) -> anyhow::Result<()> {
    let page = CommandPage { open: true, max: OPEN_MAX, ..CommandPage::default() };
    loop {
        let open = store.commands(&page).await.map_err(|e| store_error(&e))?;
        if open.is_empty() {
            return Ok(());
        }
        for row in open {
            match row.command {
                Some(command) => drop(finish(Some(state), store, row.id, &command).await?),
                None => {
                    let error = "this version of the program does not know such a command".to_owned();
                    let outcome = CommandOutcome { changed: 0, error: Some(error) };
                    store.conclude(row.id, &outcome, now()).await.map_err(|e| store_error(&e))?;
                }
            }
        }
    }
}

async fn finish(
    state: Option<&StateDir>,
    store: &dyn Store,
    id: CommandId,
    command: &Command,
) -> anyhow::Result<CommandOutcome> {
    if let Command::Drain { .. } = command {
        let outcome = CommandOutcome { changed: 0, error: Some("no dispatcher is at work".to_owned()) };
        store.conclude(id, &outcome, now()).await.map_err(|e| store_error(&e))?;
        return Ok(outcome);
    }
    if let Command::Import { .. } = command {
        let outcome = CommandOutcome::default();
        store.conclude(id, &outcome, now()).await.map_err(|e| store_error(&e))?;
        return Ok(outcome);
    }
    loop {
        if let (Some(state), Command::Delete { what: Named::Sandbox(_) }) = (state, command) {
            // A crash between this and the step leaves no file that no row names.
            let doomed = store.doomed(id, PIECE).await.map_err(|e| store_error(&e))?;
            if let Err(e) = archive::remove_files(state, &doomed) {
                let error = format!("{e:#}; see to it and drop the sandbox again");
                let outcome = CommandOutcome { changed: 0, error: Some(error) };
                store.conclude(id, &outcome, now()).await.map_err(|e| store_error(&e))?;
                return Ok(outcome);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::EntryName;
    use dispatcher_core::time::TimeMs;
    use dispatcher_store::sqlite::SqliteOptions;
    use dispatcher_store::{Entry, ServiceSettings, TaskFilter, TaskState};

    /// A state folder with one ready task, and a command that its giver left before it was carried out.
    async fn left_behind(folder: &std::path::Path, command: &Command) -> (StateDir, dispatcher_store::SqliteStore) {
        let state = StateDir::make_at(folder).unwrap();
        let store = state.store(SqliteOptions::default()).await.unwrap();
        let service = store.put_service("s", &ServiceSettings::default()).await.unwrap();
        let corpus = store.put_corpus("c", b"/in").await.unwrap();
        let entry = Entry { name: EntryName(b"a".to_vec()), size: 1, mtime_ns: 0, priority: 0 };
        store.import(service.id, corpus.id, &[entry]).await.unwrap();
        store.submit(command, "somebody", TimeMs(0)).await.unwrap();
        (state, store)
    }

    #[tokio::test]
    async fn a_command_left_undone_is_carried_out_before_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let everything = TaskFilter::default;
        let (state, store) = left_behind(folder.path(), &Command::Rerun { filter: everything() }).await;
        let (_, outcome, by) = give(&state, &store, &Command::Cancel { filter: everything() }).await.unwrap();
        assert_eq!((outcome.changed, by), (1, CarriedOutBy::Ourselves));
        let cancelled = TaskFilter { states: vec![TaskState::Cancelled], ..everything() };
        assert_eq!(store.summary(&cancelled).await.unwrap().total, 1, "the later command has the last word");
        let open = CommandPage { open: true, max: 9, ..CommandPage::default() };
        assert_eq!(store.commands(&open).await.unwrap(), []);
    }

    #[tokio::test]
    async fn what_is_added_after_an_interrupted_delete_stays() {
        let folder = tempfile::tempdir().unwrap();
        let what = Named::Service("s".to_owned());
        let (state, store) = left_behind(folder.path(), &Command::Delete { what }).await;
        settle(&state, &store).await.unwrap();
        assert!(store.services().await.unwrap().is_empty());
        let drain = Command::Drain { wait: false };
        let (_, outcome, _) = give(&state, &store, &drain).await.unwrap();
        assert!(outcome.error.is_some(), "there is nobody to drain");
    }
}
