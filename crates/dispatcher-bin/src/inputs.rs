//! From files to tasks: what is an input, and the import in batches.
//!
//! **Owns** which files are inputs (regular files; links, special files, and the folders of dispatchers and workers are
//! counted and skipped), each looked at once, and what an import counts. **Refuses to know** what becomes of a task.
//!
//! Memory is bounded by a few batches, and by the largest single folder where a walk goes by name.

mod list;

pub use list::List;

use crate::state::{STATE, WORKER, store_error};
use dispatcher_core::id::{CorpusId, EntryName, ServiceId};
use dispatcher_core::time::TimeMs;
use dispatcher_server::inputs::mtime_of;
use dispatcher_store::{Entry, Store};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Entries in one transaction: what the store takes in one.
pub const BATCH: usize = dispatcher_store::limits::CHUNK;
/// Folders and files that could not be read and are named.
const UNREADABLE_MAX: usize = 100;
/// Names of changed inputs that are kept for the summary.
const NAMES_MAX: usize = 10;

/// What was found at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A file to work on.
    Input(Entry),
    /// A folder.
    Folder,
    /// A link, which is skipped.
    Link,
    /// A pipe, a socket or a device, which is skipped.
    Special,
    /// A folder in which a dispatcher or a worker has what must survive, or a file that lies in one; it is skipped.
    Working,
    /// Something that cannot be looked at, with the reason.
    Unreadable(String),
}

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
    /// State folders and folders of workers that were skipped.
    pub working_folders: u64,
    /// Folders and files that could not be read.
    pub unreadable_count: u64,
    /// The first of them, with the reason.
    pub unreadable: Vec<String>,
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
    /// When the import began.
    pub now: TimeMs,
}

/// A folder with inputs.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder.
    pub dir: PathBuf,
    /// Folders in it that are passed by.
    pub skip: Vec<PathBuf>,
    /// Services whose results lie beside their inputs, as `SERVICE.zip` or `SERVICE.sandbox-ID.zip`: they are no inputs.
    pub beside: Vec<String>,
    /// Whether each folder is gone through by name, and so held in memory, or as the disk has it.
    pub by_name: bool,
    /// The priority of what is found.
    pub priority: i32,
}

impl Folder {
    /// What lies in it, folder by folder. Of the folders of dispatchers and workers only their names come.
    pub fn walk(&self) -> impl Iterator<Item = walkdir::Result<DirEntry>> + Send + use<> {
        let walk = WalkDir::new(&self.dir).min_depth(1);
        let walk = if self.by_name { walk.sort_by_file_name() } else { walk };
        let (skip, beside) = (self.skip.clone(), self.beside.clone());
        // The results of this work are no inputs of it.
        let mut walk = walk.into_iter().filter_entry(move |entry| {
            let is_result = || entry.file_type().is_file() && is_result_beside(entry.file_name().as_bytes(), &beside);
            !skip.iter().any(|skip| entry.path() == skip) && !is_result()
        });
        std::iter::from_fn(move || {
            let entry = walk.next()?;
            if entry.as_ref().is_ok_and(|entry| entry.file_type().is_dir() && is_working_folder(entry.file_name())) {
                walk.skip_current_dir();
            }
            Some(entry)
        })
    }

    /// What was found, one for one.
    pub fn seen(&self) -> impl Iterator<Item = io::Result<Seen>> + Send + use<> {
        let (dir, priority) = (self.dir.clone(), self.priority);
        self.walk().map(move |entry| Ok(seen(&dir, priority, entry)))
    }
}

/// Whether a folder of this name is where a dispatcher or a worker has what must survive: what lies in it changes all the
/// time and is nobody's input, wherever the folder lies. A file of this name is a file.
fn is_working_folder(name: &OsStr) -> bool {
    if name == STATE || name == WORKER {
        return true;
    }
    let number = name.as_bytes().strip_prefix(WORKER.as_bytes()).and_then(|rest| rest.strip_prefix(b"-"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Whether a file has the name of a result of one of these services.
fn is_result_beside(name: &[u8], services: &[String]) -> bool {
    services.iter().any(|service| {
        let rest = name.strip_prefix(service.as_bytes()).and_then(|rest| rest.strip_suffix(b".zip"));
        rest.is_some_and(|rest| {
            let id = rest.strip_prefix(b".sandbox-").filter(|id| !id.is_empty());
            rest.is_empty() || id.is_some_and(|id| id.iter().all(u8::is_ascii_digit))
        })
    })
}

fn seen(dir: &Path, priority: i32, entry: walkdir::Result<DirEntry>) -> Seen {
    let entry = match entry {
        Ok(entry) => entry,
        Err(e) => return Seen::Unreadable(e.to_string()),
    };
    let kind = entry.file_type();
    if kind.is_dir() {
        return if is_working_folder(entry.file_name()) { Seen::Working } else { Seen::Folder };
    }
    if kind.is_symlink() {
        return Seen::Link;
    }
    if !kind.is_file() {
        return Seen::Special;
    }
    match entry.metadata() {
        Ok(meta) => {
            let below = entry.path().strip_prefix(dir).unwrap_or(entry.path());
            let name = EntryName(below.as_os_str().as_bytes().to_vec());
            Seen::Input(Entry { name, size: meta.len(), mtime_ns: mtime_of(&meta), priority })
        }
        Err(e) => Seen::Unreadable(e.to_string()),
    }
}

impl Imported {
    /// What was skipped, in words; `None` where nothing was.
    pub fn skipped(&self) -> Option<String> {
        let counted = [
            (self.links, "link", "links"),
            (self.special, "special file", "special files"),
            (self.working_folders, "folder of a dispatcher or worker", "folders of dispatchers and workers"),
        ];
        let said = counted.into_iter().filter(|(n, ..)| *n > 0);
        let said: Vec<String> =
            said.map(|(n, one, several)| format!("{n} {}", if n == 1 { one } else { several })).collect();
        (!said.is_empty()).then(|| format!("skipped: {}", said.join(", ")))
    }

    /// Counts what was seen; an input comes back.
    fn sort_out(&mut self, seen: Seen) -> Option<Entry> {
        match seen {
            Seen::Input(entry) => return Some(entry),
            Seen::Folder => {}
            Seen::Link => self.links += 1,
            Seen::Special => self.special += 1,
            Seen::Working => self.working_folders += 1,
            Seen::Unreadable(what) => {
                self.unreadable_count += 1;
                if self.unreadable.len() < UNREADABLE_MAX {
                    self.unreadable.push(what);
                }
            }
        }
        None
    }
}

/// Imports every input, calling `after` with each batch's outcome. Told to stop, it imports no more than the batches
/// that are through: what came before is in, and the same import goes on with the rest.
///
/// # Errors
/// Where the store refuses, or what is to be imported cannot be read on. A single file that cannot be read is listed
/// and does not end the import.
pub async fn import(
    seen: impl Iterator<Item = io::Result<Seen>>,
    store: &dyn Store,
    to: &Target,
    mut after: impl FnMut(&Imported),
    stop: impl Fn() -> bool,
) -> anyhow::Result<Imported> {
    let mut found = Imported::default();
    let mut batch = Vec::with_capacity(BATCH);
    for seen in seen {
        if stop() {
            return Ok(found);
        }
        batch.extend(found.sort_out(seen?));
        if batch.len() == BATCH {
            flush(store, to, &mut batch, &mut found).await?;
            after(&found);
        }
    }
    if !stop() {
        flush(store, to, &mut batch, &mut found).await?;
    }
    after(&found);
    Ok(found)
}

/// Imports a batch and empties it.
async fn flush(store: &dyn Store, to: &Target, batch: &mut Vec<Entry>, found: &mut Imported) -> anyhow::Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let done = store.import(to.service, to.corpus, batch).await.map_err(|e| store_error(&e))?;
    dispatcher_server::hooks::pass("imported");
    found.added += done.added;
    found.known += done.known;
    found.changed += done.changed.len() as u64;
    let room = NAMES_MAX.saturating_sub(found.changed_names.len());
    found.changed_names.extend(done.changed.iter().take(room).map(ToString::to_string));
    if to.take_changed && !done.changed.is_empty() {
        let changed: Vec<Entry> = batch.drain(..).filter(|entry| done.changed.contains(&entry.name)).collect();
        let taken = store.accept_change(to.service, to.corpus, &changed, to.now).await;
        found.taken_anew += taken.map_err(|e| store_error(&e))?;
    }
    batch.clear();
    Ok(())
}
