//! Which archive a state folder uses: chosen once, then the same for every command that looks at it.
//!
//! Owns the note in the state folder that says so. A folder without one belongs to a `run`, whose results lie around it. A
//! first start notes its choice on trial, before anything can be stored, and for good once it has succeeded: what never
//! served binds nobody.

use crate::exit::{self, Exit};
use crate::run::archive_of;
use crate::settings::{ArchiveKind, LayoutKind};
use crate::state::{StateDir, store_error};
use anyhow::Context;
use dispatcher_server::ResultNames;
use dispatcher_store::archive::{
    Archive, ArchiveError, FileArchive, FileArchiveOptions, Layout, NoArchive, PackArchive, PackOptions,
};
use dispatcher_store::{Doomed, Store};
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
    /// Where files go.
    pub results: PathBuf,
    /// How files are named.
    #[serde(default)]
    pub layout: LayoutKind,
}

/// The note as it is written.
#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    choice: Choice,
    /// Of a start that has not succeeded yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    trial: bool,
}

/// A choice under trial. Where the start does not succeed its note stays as it is: the next start goes by what was handed
/// out meanwhile.
#[derive(Debug)]
pub struct Trial {
    /// The note and the choice, where they were not there before.
    new: Option<(PathBuf, Choice)>,
}

impl Trial {
    /// The start has succeeded: from now on the state folder keeps its archive.
    pub fn passed(self) {
        let Some((path, choice)) = self.new else { return };
        // Where it stays a note on trial, the first task that is handed out makes it good.
        if let Err(e) = write(&path, &Note { choice, trial: false }) {
            tracing::warn!("cannot note which archive is used in {}: {e:#}", path.display());
        }
    }
}

impl Choice {
    /// Whether both mean the same: where nothing becomes a file, it does not matter where files would go.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.kind == other.kind && (self.kind != ArchiveKind::Files || self == other)
    }
}

/// An archive that is open.
#[derive(Clone, Debug)]
pub enum Opened {
    /// Of packs.
    Packs(Arc<PackArchive>),
    /// Of files.
    Files(Arc<FileArchive>),
    /// Of nothing.
    None(Arc<NoArchive>),
}

impl Opened {
    /// As whoever stages and reads knows it.
    pub fn archive(&self) -> Arc<dyn Archive> {
        match self {
            Self::Packs(packs) => Arc::<PackArchive>::clone(packs),
            Self::Files(files) => Arc::<FileArchive>::clone(files),
            Self::None(none) => Arc::<NoArchive>::clone(none),
        }
    }
}

/// How results are named in this layout.
pub const fn naming(layout: LayoutKind) -> ResultNames {
    match layout {
        LayoutKind::Mirror => ResultNames::ByServiceAndCorpus,
        LayoutKind::Cortex => ResultNames::Cortex,
    }
}

/// The note of a state folder; `None` where there is none.
pub fn read(state: &StateDir) -> anyhow::Result<Option<Choice>> {
    Ok(read_note(state)?.map(|note| note.choice))
}

/// The choice of a start that has succeeded.
pub fn passed(state: &StateDir) -> anyhow::Result<Option<Choice>> {
    Ok(read_note(state)?.filter(|note| !note.trial).map(|note| note.choice))
}

/// What a state folder keeps, for the next start: nothing where no start has succeeded and no task was handed out.
pub async fn kept(state: &StateDir, store: &dyn Store) -> anyhow::Result<Option<Choice>> {
    let Some(note) = read_note(state)? else { return Ok(None) };
    let is_kept = !note.trial || !store.books().await.map_err(|e| store_error(&e))?.is_empty();
    Ok(is_kept.then_some(note.choice))
}

fn read_note(state: &StateDir) -> anyhow::Result<Option<Note>> {
    let path = state.archive_note();
    match std::fs::read(&path) {
        Ok(bytes) => {
            Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))?))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Takes `wanted` as the archive of a server's state folder that has kept `had` so far, or says why it cannot be.
pub fn choose(
    state: &StateDir,
    had: Option<&Choice>,
    wanted: &Choice,
    packs: PackOptions,
) -> anyhow::Result<(Opened, Trial)> {
    let trial = match had {
        Some(had) if !had.agrees_with(wanted) => return Err(Exit::usage(disagreement(had))),
        Some(_) => Trial { new: None },
        None => {
            let (path, choice) = (state.archive_note(), wanted.clone());
            write(&path, &Note { choice: choice.clone(), trial: true })?;
            Trial { new: Some((path, choice)) }
        }
    };
    let opened = open_choice(state, wanted, packs).map_err(|error| match error.downcast_ref() {
        Some(ArchiveError::Full { place }) => {
            let why = format!("no space is left for results in {place}: free some and start it again; nothing is lost");
            Exit::with(exit::STORE_LOST, why)
        }
        _ => error,
    })?;
    Ok((opened, trial))
}

/// Why nothing else than `had` can be served.
pub fn disagreement(had: &Choice) -> String {
    let flags = match had.kind {
        ArchiveKind::Packs => "--archive packs".to_owned(),
        ArchiveKind::None => "--archive none".to_owned(),
        ArchiveKind::Files => {
            let layout = if had.layout == LayoutKind::Cortex { " --layout cortex" } else { "" };
            format!("--archive files --results {}{layout}", had.results.display())
        }
    };
    format!("this state has its results elsewhere: serve it with {flags}, or say nothing about it")
}

/// The archive of a state folder, for commands that look at it.
pub fn open(state: &StateDir) -> anyhow::Result<Opened> {
    match read(state)? {
        Some(choice) => open_choice(state, &choice, PackOptions::default()),
        None if state.identity().exists() => Ok(Opened::Files(Arc::new(archive_of(state, ResultNaming::same())?))),
        // Nobody has served it yet.
        None => Ok(Opened::None(Arc::new(NoArchive::open(state.path())?))),
    }
}

/// Removes the files of what goes with a sandbox.
pub fn remove_files(state: &StateDir, doomed: &[Doomed]) -> anyhow::Result<()> {
    // Who has a note has a server, and no `run` has a sandbox.
    let (false, Some(choice)) = (doomed.is_empty(), read(state)?) else { return Ok(()) };
    let archive = open_choice(state, &choice, PackOptions::default())?.archive();
    for gone in doomed {
        dispatcher_server::sandboxes::remove_files(&*archive, naming(choice.layout), gone)?;
    }
    Ok(())
}

fn open_choice(state: &StateDir, choice: &Choice, packs: PackOptions) -> anyhow::Result<Opened> {
    Ok(match choice.kind {
        ArchiveKind::Packs => Opened::Packs(Arc::new(PackArchive::open(state.path(), packs)?)),
        ArchiveKind::Files => {
            let options = FileArchiveOptions {
                out: choice.results.clone(),
                state: state.path().to_owned(),
                layout: Layout::same_names(),
            };
            let archive = FileArchive::open(options)
                .with_context(|| format!("cannot use {} for results", choice.results.display()))?;
            Opened::Files(Arc::new(archive))
        }
        ArchiveKind::None => Opened::None(Arc::new(NoArchive::open(state.path())?)),
    })
}

/// Writes it in one piece: a crash leaves all of it or nothing.
fn write(path: &Path, note: &Note) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec_pretty(note)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
