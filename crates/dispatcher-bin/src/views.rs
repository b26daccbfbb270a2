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
use dispatcher_core::text::is_plain;
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
    crate::tell_as_it_is(&json(value)?);
    Ok(())
}

/// A value as JSON that a terminal may be given. Outside its strings there is nothing to escape but the ends of its lines.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    if text.chars().all(|c| c == '\n' || is_plain(c)) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if c == '\n' || is_plain(c) {
            escaped.push(c);
        } else {
            // Those that are not plain are all of the basic plane.
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
    Ok(escaped)
}

/// For `map_err`.
pub fn told(error: StoreError) -> anyhow::Error {
    store_error(&error)
}
