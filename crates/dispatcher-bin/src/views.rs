//! The commands that look: `status`, `tasks`, `why`, `show`, `corpora`, `workers`, `log`, `config`, `doctor`.
//!
//! Own how stored facts read, as text and as JSON (`docs/operations.md` has its shape). They change nothing, and may be
//! used while a run goes on.

pub mod config;
pub mod corpora;
pub mod doctor;
pub mod log;
pub mod sandboxes;
pub mod show;
pub mod status;
pub mod tasks;
pub mod why;
pub mod words;
pub mod workers;

use crate::state::{StateDir, store_error};
use dispatcher_store::StoreError;
use dispatcher_store::sqlite::{SqliteOptions, SqliteStore};
use serde::Serialize;
use std::path::Path;

/// An event loop for one command.
pub fn event_loop() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Opens the state that a person named.
pub async fn open(named: &Path) -> anyhow::Result<(StateDir, SqliteStore)> {
    let state = StateDir::find(named)?;
    let store = state.store(SqliteOptions::default()).await?;
    Ok((state, store))
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    crate::tell(&serde_json::to_string_pretty(value)?);
    Ok(())
}

/// For `map_err`.
pub fn told(error: StoreError) -> anyhow::Error {
    store_error(&error)
}
