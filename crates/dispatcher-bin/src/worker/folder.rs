//! A worker's folder: where its results wait, and where its commands have their files.
//!
//! Owns the choice of a folder that no other worker has, and the lock on it. Knows nothing of what is in it.

use crate::exit::{self, Exit};
use crate::state::WORKER;
use anyhow::Context;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How many workers find a folder in one place by themselves.
const MOST: u32 = 256;
/// The file that says which process has the folder.
const NOTE: &str = "process";

/// A folder that is this process's own for as long as this value lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    label: String,
    _lock: File,
}

impl Folder {
    /// Takes the folder that is named, or the first one in this place that no other worker has.
    pub fn take(named: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(dir) = named {
            let label = dir.file_name().map_or_else(|| "1".to_owned(), |name| name.to_string_lossy().into_owned());
            return Self::try_take(dir, label)?.ok_or_else(|| locked(dir));
        }
        for number in 1..=MOST {
            let dir = if number == 1 { WORKER.to_owned() } else { format!("{WORKER}-{number}") };
            if let Some(folder) = Self::try_take(Path::new(&dir), number.to_string())? {
                return Ok(folder);
            }
        }
        Err(Exit::with(exit::LOCKED, format!("{MOST} workers run here already: name another folder with --dir")))
    }

    /// Takes a folder, made where it is not there; `None` where another process has it.
    fn try_take(dir: &Path, label: String) -> anyhow::Result<Option<Self>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make the worker's folder {}: name another with --dir", dir.display()))?;
        let path = dir.canonicalize()?;
        // The folder itself is locked: a file in it could be removed, and then two processes would each have a lock.
        let lock = File::open(&path)?;
        match lock.try_lock() {
            Ok(()) => {
                std::fs::write(path.join(NOTE), format!("{}\n", std::process::id()))
                    .with_context(|| format!("cannot write into {}: name another with --dir", path.display()))?;
                Ok(Some(Self { path, label, _lock: lock }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from the others of this place: its number, or its name where it was named.
    pub fn label(&self) -> &str {
        &self.label
    }
}

fn locked(dir: &Path) -> anyhow::Error {
    let pid = std::fs::read_to_string(dir.join(NOTE)).unwrap_or_else(|_| "unknown".to_owned());
    Exit::with(
        exit::LOCKED,
        format!(
            "another worker (process {}) has the folder {}: name another with --dir, or none to have one chosen",
            pid.trim(),
            dir.display()
        ),
    )
}
