//! The commands that change something: `import`, `services`, `rerun`, `cancel`, `pause`, `resume`, `drain`, `sandbox`,
//! `delete`.
//!
//! Own what is checked before a command is written down, and what is said of its outcome. What it does to tasks is the
//! store's; who carries it out is told by [`crate::control`].

pub mod change;
pub mod compact;
pub mod delete;
pub mod drain;
pub mod import;
pub mod pause;
pub mod sandbox;
pub mod services;

use crate::control::{self, CarriedOutBy};
use crate::exit::{self, Exit};
use crate::state::{StateDir, lost};
use crate::views::print_json;
use dispatcher_store::sqlite::{SqliteOptions, SqliteStore};
use dispatcher_store::{Command, CommandId, Store};
use serde::Serialize;
use std::path::Path;

/// What a command's `--json` prints.
#[derive(Debug, Serialize)]
pub struct Given {
    /// Its number in the log.
    pub command: CommandId,
    /// Tasks or services that it changed.
    pub changed: u64,
    /// Why it was not, or not wholly, carried out.
    pub error: Option<String>,
    /// By whom.
    pub carried_out_by: CarriedOutBy,
}

impl Given {
    /// Gives a command and waits until it is through.
    pub async fn give(state: &StateDir, store: &dyn Store, command: &Command) -> anyhow::Result<Self> {
        let (id, outcome, carried_out_by) = control::give(state, store, command).await?;
        Ok(Self { command: id, changed: outcome.changed, error: outcome.error, carried_out_by })
    }

    /// Says what became of it; `done` in words where it was carried out.
    pub fn report(&self, json: bool, done: &str) -> anyhow::Result<u8> {
        if json {
            print_json(self)?;
        }
        if let Some(error) = &self.error {
            return Err(Exit::with(exit::SOME_NOT, error.clone()));
        }
        if !json {
            let by = match self.carried_out_by {
                CarriedOutBy::Dispatcher => "by the dispatcher at work",
                CarriedOutBy::Ourselves => "here: no dispatcher is at work",
            };
            crate::tell(&format!("{done}; carried out {by}"));
        }
        Ok(exit::ALL_USABLE)
    }
}

/// Opens a server's state, made where it is not there, and says where that is. Of a `run` it says what to do `instead`.
pub async fn open_or_make(
    named: &Path,
    options: SqliteOptions,
    instead: &str,
) -> anyhow::Result<(StateDir, SqliteStore)> {
    let (state, made) = match StateDir::find(named) {
        Ok(state) => (state, false),
        Err(_) => (StateDir::make_at(named)?, true),
    };
    state.check_is_a_servers(instead)?;
    let store = state.store(options).await?;
    lost::check_rows(&state, &store).await?;
    if made {
        crate::say(&format!("made the state folder {}", state.path().display()));
    }
    Ok((state, store))
}
