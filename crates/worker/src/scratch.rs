//! The folders in which tasks are worked on.
//!
//! Owns the scratch folder's layout: one folder per slot, used again by the slot's next task, and one for inputs that
//! are being fetched. Each slot also has a mark: a file with the token of the task it works on, by which whoever starts
//! after a kill learns what was being worked on; the process group of its newest command is noted beside it
//! ([`crate::leftover`]). A folder that could not be emptied, or that something still running may write into, is left behind
//! for a new one. Knows nothing of tasks beyond the last piece of their input's name.

use crate::leftover::{GroupNotes, boot_id, end_groups};
use dispatcher_core::id::EntryName;
use dispatcher_core::wire::TokenText;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How the names of marks begin.
const MARK: &[u8] = b"working-on-";
/// The longest token that a mark is read for, in bytes.
const MARK_MAX: u64 = 4096;

/// The name that an input gets where its own cannot be used.
const NAMELESS: &str = "input";

/// A slot's folder while one task has it. It is made when it is first asked for, so that work without files costs none.
#[derive(Debug)]
pub struct SlotFolder {
    path: PathBuf,
    made: OnceLock<()>,
    tainted: AtomicBool,
    notes: GroupNotes,
}

/// A worker's whole scratch folder. It belongs to one worker at a time, which a lock makes sure of.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Tells this life of the worker from all others.
    life: String,
    boot: Arc<str>,
    fetched: AtomicU64,
    _lock: File,
}

/// The folders of one slot, one after the other.
#[derive(Debug)]
pub(crate) struct SlotFolders {
    scratch: PathBuf,
    life: String,
    slot: usize,
    generation: u64,
    /// The mark, and how long what stands in it is.
    mark: Option<(File, usize)>,
    notes: GroupNotes,
}

impl SlotFolder {
    /// The folder itself. It exists.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn path(&self) -> io::Result<&Path> {
        if self.made.get().is_none() {
            for sub in ["in", "out"] {
                fs::create_dir_all(self.path.join(sub))?;
            }
            let _ = self.made.set(());
        }
        Ok(&self.path)
    }

    /// A folder on the same disk that is there whether or not this one is made.
    pub(crate) fn disk(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Where an input of this name goes: a folder of its own, so that a result may have the same name.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn input_path(&self, base_name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path()?.join("in").join(base_name))
    }

    /// Where a result of this name goes.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn output_path(&self, base_name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path()?.join("out").join(base_name))
    }

    /// Where the process groups that are started for the task are noted.
    pub(crate) const fn group_notes(&self) -> &GroupNotes {
        &self.notes
    }

    /// Something that was started for this task may still write here: no other task gets this folder.
    pub fn taint(&self) {
        self.tainted.store(true, Ordering::Relaxed);
    }
}

/// The last piece of an entry's name, as a file name that is safe to use; its bytes are kept as they are. What cannot be
/// a file name becomes `input`.
#[must_use]
pub fn base_name(entry: &EntryName) -> OsString {
    let last = entry.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let usable = !last.is_empty() && last != b"." && last != b".." && !last.contains(&0);
    if usable { OsStr::from_bytes(last).to_owned() } else { OsString::from(NAMELESS) }
}

impl Scratch {
    /// Takes the folder over, makes it where it is not there, ends commands that outlived an earlier worker, and removes what
    /// that left in it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let path = path.canonicalize()?;
        let lock = lock(&path)?;
        end_groups(&path)?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_bytes().starts_with(b"slot-") || name == "fetch" || name == "kept" {
                fs::remove_dir_all(entry.path())?;
            }
        }
        for sub in ["fetch", "kept"] {
            fs::create_dir(path.join(sub))?;
        }
        Ok(Self { path, life: life(), boot: boot_id(), fetched: AtomicU64::new(0), _lock: lock })
    }

    /// A path for an input that is about to be fetched.
    pub(crate) fn fetch_path(&self) -> PathBuf {
        let n = self.fetched.fetch_add(1, Ordering::Relaxed);
        self.path.join("fetch").join(n.to_string())
    }

    /// Where the large parts of results wait that live and die with this worker.
    pub(crate) fn kept(&self) -> PathBuf {
        self.path.join("kept")
    }

    /// The folders of a slot.
    pub(crate) fn slot(&self, slot: usize) -> SlotFolders {
        let notes = GroupNotes::new(&self.path, slot, Arc::clone(&self.boot));
        SlotFolders { scratch: self.path.clone(), life: self.life.clone(), slot, generation: 0, mark: None, notes }
    }
}

/// A name for this life of a worker: no other process has its id at its time.
fn life() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

/// Locks a folder for this process, by a file in it that stays.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] where another process has it.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = format!("{} is in use by another worker", folder.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// The tokens of the tasks that the worker before this one was working on when it ended, whatever ended it; also of tasks
/// that it had just finished. To be asked before a worker starts in this scratch folder. Tokens are opaque here: whoever
/// signed them can tell.
///
/// # Errors
/// Where the folder cannot be read. One that is not there yet has no tokens.
pub fn tokens_worked_on(scratch: &Path) -> io::Result<Vec<TokenText>> {
    let entries = match fs::read_dir(scratch) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut tokens = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_bytes().starts_with(MARK) {
            let mut text = String::new();
            // A mark that cannot be read as text names nothing.
            if File::open(entry.path())?.take(MARK_MAX).read_to_string(&mut text).is_ok() && !text.is_empty() {
                tokens.push(TokenText(text));
            }
        }
    }
    Ok(tokens)
}

impl SlotFolders {
    /// Marks `token` as being worked on. The mark survives the end of the process, not that of the machine; it costs one
    /// write. A mark that cannot be written is no reason not to work.
    pub(crate) fn mark(&mut self, token: &TokenText) {
        let written = self.write_mark(token.0.as_bytes());
        if let Err(e) = written {
            tracing::warn!(slot = self.slot, error = %e, "what the slot works on could not be marked");
        }
    }

    fn write_mark(&mut self, token: &[u8]) -> io::Result<()> {
        let (mark, length) = match &mut self.mark {
            Some(mark) => mark,
            None => {
                let name = [MARK, self.slot.to_string().as_bytes()].concat();
                let path = self.scratch.join(OsStr::from_bytes(&name));
                let file = File::options().create(true).truncate(true).write(true).open(path)?;
                self.mark.insert((file, 0))
            }
        };
        mark.write_all_at(token, 0)?;
        // Tokens are of one length as a rule, and cutting the file costs as much as writing it.
        if *length > token.len() {
            mark.set_len(token.len() as u64)?;
        }
        *length = token.len();
        Ok(())
    }

    /// The folder for the next task.
    pub(crate) fn next(&self) -> SlotFolder {
        // A command that outlived an earlier worker still has the path of its own folder, and must not find another
        // attempt's files there.
        let path = self.scratch.join(format!("slot-{}.{}.{}", self.slot, self.life, self.generation));
        SlotFolder { path, made: OnceLock::new(), tainted: AtomicBool::new(false), notes: self.notes.clone() }
    }

    /// Empties a folder after its task. Where that fails, or the folder is tainted, the next task gets another one.
    pub(crate) fn take_back(&mut self, folder: &SlotFolder) {
        if folder.made.get().is_none() {
            return;
        }
        let tainted = folder.tainted.load(Ordering::Relaxed);
        if !tainted && empty(&folder.path).is_ok() {
            return;
        }
        self.generation += 1;
        if let Err(e) = fs::remove_dir_all(&folder.path) {
            tracing::warn!(folder = %folder.path.display(), error = %e, "a task's folder could not be removed; it is left");
        }
    }
}

/// Removes everything in a slot's folder but the two folders that each task uses.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let keep = entry.file_name() == "in" || entry.file_name() == "out";
        if keep && entry.file_type()?.is_dir() {
            for inner in fs::read_dir(entry.path())? {
                remove(&inner?)?;
            }
        } else {
            remove(&entry)?;
        }
    }
    Ok(())
}

fn remove(entry: &fs::DirEntry) -> io::Result<()> {
    if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> EntryName {
        EntryName(name.to_vec())
    }

    #[test]
    fn names_from_outside_never_leave_the_folder() {
        assert_eq!(base_name(&entry(b"a/b/paper.tex")), "paper.tex");
        assert_eq!(base_name(&entry(b"caf\xe9.txt")).as_bytes(), b"caf\xe9.txt");
        for bad in [&b""[..], b"..", b"a/..", b"a/.", b"a/", b"nul\0name"] {
            assert_eq!(base_name(&entry(bad)), NAMELESS, "{bad:?}");
        }
    }

    #[test]
    fn a_slot_s_folder_is_emptied_and_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(dir.path()).unwrap();
        let mut folders = scratch.slot(0);
        let folder = folders.next();
        fs::write(folder.input_path(OsStr::new("a")).unwrap(), "a").unwrap();
        fs::create_dir_all(folder.path().unwrap().join("out/deep/er")).unwrap();
        fs::write(folder.path().unwrap().join("stray"), "b").unwrap();
        folders.take_back(&folder);
        let again = folders.next();
        assert_eq!(again.path().unwrap(), folder.path().unwrap());
        let left: Vec<_> = walk(again.path().unwrap());
        assert_eq!(left, ["in", "out"]);
    }

    // Rule C6.
    #[test]
    fn a_command_that_outlives_its_worker_writes_into_no_other_attempt_s_folder() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(dir.path()).unwrap();
        let orphaned = scratch.slot(0).next().output_path(OsStr::new("result")).unwrap();
        drop(scratch);
        let scratch = Scratch::open(dir.path()).unwrap();
        let folder = scratch.slot(0).next();
        assert_ne!(folder.output_path(OsStr::new("result")).unwrap(), orphaned);
        assert!(fs::write(orphaned, "late").is_err(), "its folder is gone");
    }

    #[test]
    fn a_tainted_folder_is_left_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(dir.path()).unwrap();
        let mut folders = scratch.slot(0);
        let folder = folders.next();
        folder.path().unwrap();
        folder.taint();
        folders.take_back(&folder);
        assert_ne!(folders.next().path, folder.path);
        assert!(!folder.path.exists());
    }

    // Rules A2, A4.
    #[test]
    fn what_a_worker_was_working_on_is_known_after_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(tokens_worked_on(&dir.path().join("not-yet")).unwrap(), []);
        let scratch = Scratch::open(dir.path()).unwrap();
        let mut slot = scratch.slot(0);
        slot.mark(&TokenText("a-longer-token".to_owned()));
        slot.mark(&TokenText("second".to_owned()));
        drop(slot);
        assert_eq!(tokens_worked_on(dir.path()).unwrap(), [TokenText("second".to_owned())]);
    }

    #[test]
    fn two_workers_never_share_a_scratch_folder() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Scratch::open(dir.path()).unwrap();
        assert_eq!(Scratch::open(dir.path()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }

    fn walk(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
