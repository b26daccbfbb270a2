//! What the server at work obeys, told to those that look: what its flags said is known to nobody else.
//!
//! Owns a note in the state folder. It is believed only as long as the process that wrote it is at work.

use super::Settings;
use crate::state::StateDir;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Note {
    process: String,
    settings: Settings,
}

/// Notes it. Where that cannot be done, nobody looks at what was noted before.
pub fn note(state: &StateDir, settings: &Settings) {
    let note = Note { process: std::process::id().to_string(), settings: settings.clone() };
    let written = serde_json::to_vec_pretty(&note).map_err(Into::into);
    if let Err(e) = written.and_then(|bytes| std::fs::write(state.settings_note(), bytes)) {
        tracing::warn!("`dispatcher why` will not know the flags of this process: {e}");
    }
}

/// What the server at work obeys; `None` where none is, or it could not note it.
pub fn in_force(state: &StateDir) -> Option<Settings> {
    let bytes = std::fs::read(state.settings_note()).ok().filter(|_| state.is_locked())?;
    let note: Note = serde_json::from_slice(&bytes).ok()?;
    (state.process() == Some(note.process)).then_some(note.settings)
}
