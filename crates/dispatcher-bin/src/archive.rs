//! Which archive a state folder uses: chosen once, then the same for every command that looks at it.
//!
//! Owns the note in the state folder that says so. A folder without one belongs to a `run`, whose results lie around it.

use crate::exit::Exit;
use crate::run::archive_of;
use crate::settings::ArchiveKind;
use crate::state::StateDir;
use anyhow::Context;
use dispatcher_store::archive::{Archive, FileArchive, FileArchiveOptions, Layout, NoArchive};
use dispatcher_worker::exec::ResultNaming;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the note says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What becomes of results.
    pub kind: ArchiveKind,
    /// Where they go.
    pub results: PathBuf,
}

/// The note of a state folder; `None` where there is none.
fn read(state: &StateDir) -> anyhow::Result<Option<Choice>> {
    let path = state.archive_note();
    match std::fs::read(&path) {
        Ok(bytes) => {
            Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))?))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Takes `wanted` as the archive of a server's state folder, or says why it cannot be.
pub fn choose(state: &StateDir, wanted: Choice) -> anyhow::Result<Arc<dyn Archive>> {
    if state.identity().exists() {
        return Err(Exit::usage(format!(
            "{} belongs to a `dispatcher run`: give the server a state folder of its own with --state",
            state.path().display()
        )));
    }
    match read(state)? {
        Some(had) if had != wanted => {
            return Err(Exit::usage(format!(
                "this state has its results as {:?} in {}: serve it with --archive and --results as they were",
                had.kind,
                had.results.display()
            )));
        }
        Some(_) => {}
        None => write(&state.archive_note(), &wanted)?,
    }
    open_choice(state, &wanted)
}

/// The archive of a state folder, for commands that look at it.
pub fn open(state: &StateDir) -> anyhow::Result<Arc<dyn Archive>> {
    match read(state)? {
        Some(choice) => open_choice(state, &choice),
        None => Ok(Arc::new(archive_of(state, ResultNaming::same())?)),
    }
}

/// Where the result files of a server's state folder are; `None` where there are none.
pub fn results(state: &StateDir) -> anyhow::Result<Option<PathBuf>> {
    let choice = read(state)?.filter(|choice| choice.kind == ArchiveKind::Files);
    Ok(choice.map(|choice| choice.results))
}

fn open_choice(state: &StateDir, choice: &Choice) -> anyhow::Result<Arc<dyn Archive>> {
    match choice.kind {
        ArchiveKind::Files => {
            let options = FileArchiveOptions {
                out: choice.results.clone(),
                state: state.path().to_owned(),
                layout: Layout::same_names(),
            };
            let archive = FileArchive::open(options)
                .with_context(|| format!("cannot use {} for results", choice.results.display()))?;
            Ok(Arc::new(archive))
        }
        ArchiveKind::None => Ok(Arc::new(NoArchive::open(state.path())?)),
    }
}

/// Writes it in one piece: a crash leaves all of it or nothing.
fn write(path: &Path, choice: &Choice) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec_pretty(choice)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
