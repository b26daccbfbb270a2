//! From a folder to tasks: the walk, and the import in batches.
//!
//! **Owns** which files are inputs (regular files; links and special files are counted and skipped), and the check that
//! no two inputs have one result name. **Refuses to know** what becomes of a task.
//!
//! Memory is bounded by the largest single folder, not by the tree.

use crate::exit::Exit;
use crate::state::STATE;
use dispatcher_core::id::{CorpusId, EntryName, ServiceId};
use dispatcher_core::time::TimeMs;
use dispatcher_server::inputs::mtime_of;
use dispatcher_store::{Entry, Store, StoreError};
use dispatcher_worker::exec::ResultNaming;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Entries in one transaction.
const BATCH: usize = 1024;
/// Folders and files that could not be read and are named.
const UNREADABLE_MAX: usize = 100;
/// Names of changed inputs that are kept for the summary.
const NAMES_MAX: usize = 10;

/// What an import found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// New tasks.
    pub added: u64,
    /// Inputs that were known.
    pub known: u64,
    /// Inputs that differ from what was imported.
    pub changed: u64,
    /// The first of their names.
    pub changed_names: Vec<String>,
    /// Changed inputs that were taken as they are now and run again.
    pub taken_anew: u64,
    /// Links that were skipped.
    pub links: u64,
    /// Pipes, sockets and devices that were skipped.
    pub special: u64,
    /// Folders and files that could not be read.
    pub unreadable_count: u64,
    /// The first of them, with the reason.
    pub unreadable: Vec<String>,
}

/// The folder to import.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The folder with the inputs.
    pub dir: PathBuf,
    /// The results folder, skipped where it lies inside.
    pub out: PathBuf,
    /// What results are called.
    pub naming: ResultNaming,
    /// Whether results are called otherwise than their inputs.
    pub renames: bool,
}

/// Where the tasks go.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The service.
    pub service: ServiceId,
    /// The corpus.
    pub corpus: CorpusId,
    /// Whether changed inputs are run again.
    pub take_changed: bool,
    /// When the run began.
    pub now: TimeMs,
}

impl Tree {
    /// What lies in the tree, folder by folder, by name.
    fn walk(&self) -> impl Iterator<Item = walkdir::Result<DirEntry>> + '_ {
        WalkDir::new(&self.dir)
            .min_depth(1)
            .sort_by_file_name()
            .into_iter()
            // Neither the results of this run nor the state of another one, whose results may be the inputs here.
            .filter_entry(|entry| entry.path() != self.out && !(entry.depth() == 1 && entry.file_name() == STATE))
    }

    /// An entry's name below the folder.
    fn name_of(&self, entry: &DirEntry) -> EntryName {
        let below = entry.path().strip_prefix(&self.dir).unwrap_or(entry.path());
        EntryName(below.as_os_str().as_bytes().to_vec())
    }

    /// Tells two inputs that would have one result, before anything runs. Without an extension each result has its
    /// input's own name, so there is nothing to check.
    ///
    /// # Errors
    /// Names both, and what to do.
    pub fn check_result_names(&self) -> anyhow::Result<()> {
        if !self.renames {
            return Ok(());
        }
        // The walk goes into a folder before it comes to what is named after it, so the names of each folder on the way
        // down are kept.
        let mut names: Vec<HashMap<OsString, OsString>> = Vec::new();
        for entry in self.walk().filter_map(Result::ok) {
            let kind = entry.file_type();
            let name = entry.file_name().to_owned();
            let result = if kind.is_file() {
                OsString::from_vec(self.naming.result_name(&EntryName(name.as_bytes().to_vec())).0)
            } else if kind.is_dir() {
                name.clone()
            } else {
                continue;
            };
            names.resize_with(entry.depth(), HashMap::new);
            let here = names.last_mut().and_then(|names| names.insert(result.clone(), name.clone()));
            if let Some(other) = here {
                let folder = entry.path().parent().unwrap_or(Path::new(""));
                return Err(two_inputs(folder, &other, &name, &result));
            }
        }
        Ok(())
    }

    /// Imports every input, calling `after` with each batch's outcome.
    ///
    /// # Errors
    /// Where the store refuses. What cannot be read of the tree is listed and does not end the import.
    pub async fn import(
        &self,
        store: &dyn Store,
        to: &Target,
        mut after: impl FnMut(&Imported),
        stop: impl Fn() -> bool,
    ) -> Result<Imported, StoreError> {
        let mut found = Imported::default();
        let mut batch = Vec::with_capacity(BATCH);
        for entry in self.walk() {
            if stop() {
                return Ok(found);
            }
            if let Some(entry) = self.sort_out(entry, &mut found) {
                batch.push(entry);
            }
            if batch.len() == BATCH {
                flush(store, to, &mut batch, &mut found).await?;
                after(&found);
            }
        }
        flush(store, to, &mut batch, &mut found).await?;
        after(&found);
        Ok(found)
    }

    /// An input to import, or a count of what it is instead.
    fn sort_out(&self, entry: walkdir::Result<DirEntry>, found: &mut Imported) -> Option<Entry> {
        let unreadable = |found: &mut Imported, what: String| {
            found.unreadable_count += 1;
            if found.unreadable.len() < UNREADABLE_MAX {
                found.unreadable.push(what);
            }
        };
        let entry = entry.map_err(|e| unreadable(found, e.to_string())).ok()?;
        let kind = entry.file_type();
        if kind.is_dir() {
            return None;
        }
        if kind.is_symlink() {
            found.links += 1;
            return None;
        }
        if !kind.is_file() {
            found.special += 1;
            return None;
        }
        let meta = entry.metadata().map_err(|e| unreadable(found, e.to_string())).ok()?;
        Some(Entry { name: self.name_of(&entry), size: meta.len(), mtime_ns: mtime_of(&meta), priority: 0 })
    }
}

/// Imports a batch and empties it.
async fn flush(store: &dyn Store, to: &Target, batch: &mut Vec<Entry>, found: &mut Imported) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    let done = store.import(to.service, to.corpus, batch).await?;
    dispatcher_server::hooks::pass("imported");
    found.added += done.added;
    found.known += done.known;
    found.changed += done.changed.len() as u64;
    let room = NAMES_MAX.saturating_sub(found.changed_names.len());
    found.changed_names.extend(done.changed.iter().take(room).map(ToString::to_string));
    if to.take_changed && !done.changed.is_empty() {
        let changed: Vec<Entry> = batch.drain(..).filter(|entry| done.changed.contains(&entry.name)).collect();
        found.taken_anew += store.accept_change(to.service, to.corpus, &changed, to.now).await?;
    }
    batch.clear();
    Ok(())
}

/// Two inputs with one result name.
fn two_inputs(folder: &Path, one: &OsStr, other: &OsStr, result: &OsStr) -> anyhow::Error {
    Exit::usage(format!(
        "in {} the inputs {} and {} would both have the result {}: run without --ext, or move one of them",
        folder.display(),
        one.display(),
        other.display(),
        result.display()
    ))
}
