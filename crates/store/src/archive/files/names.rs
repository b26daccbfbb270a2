//! Names of files: where the result of an entry goes, and what staged files are called.
//!
//! Owns the promise that no entry leads out of OUT or into STATE, whatever its bytes are.

use dispatcher_core::id::{EntryName, Epoch, LeaseId, Run, TaskId};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest name of one file or folder, in bytes.
const MAX_NAME: usize = 255;

/// The longest path below OUT, in bytes: what Linux allows, with room for OUT itself.
const MAX_PATH: usize = 3_500;

/// How many characters of a checksum a file's name carries: enough to tell results of one lease apart.
const SHORT_SUM: usize = 16;

/// How the results of entries are named, below OUT.
#[derive(Clone)]
pub struct Layout(Arc<dyn Fn(&EntryName) -> EntryName + Send + Sync>);

impl Layout {
    /// Names by `name`, which gets the entry's name and gives the result's; both relative, with `/` between folders.
    #[must_use]
    pub fn new(name: impl Fn(&EntryName) -> EntryName + Send + Sync + 'static) -> Self {
        Self(Arc::new(name))
    }

    /// A result has its entry's name.
    #[must_use]
    pub fn same_names() -> Self {
        Self::new(Clone::clone)
    }

    /// A result has its entry's name with `extension` (with or without its dot) in place of the entry's own.
    #[must_use]
    pub fn with_extension(extension: &str) -> Self {
        let extension = extension.trim_start_matches('.').to_owned();
        Self::new(move |entry| EntryName(path_of(entry).with_extension(&extension).as_os_str().as_bytes().to_vec()))
    }

    /// The result's name for an entry.
    #[must_use]
    pub fn result_name(&self, entry: &EntryName) -> EntryName {
        (self.0)(entry)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::same_names()
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").finish_non_exhaustive()
    }
}

/// The two roots and the layout between them.
#[derive(Debug)]
pub(super) struct Names {
    out: PathBuf,
    state: PathBuf,
    /// STATE's path below OUT, where it lies there: no result may be in it.
    forbidden: Option<PathBuf>,
    layout: Layout,
}

impl Names {
    pub(super) fn new(out: PathBuf, state: PathBuf, layout: Layout) -> Result<Self, (PathBuf, io::Error)> {
        let real = |path: &Path| path.canonicalize().map_err(|e| (path.to_owned(), e));
        let (real_out, real_state) = (real(&out)?, real(&state)?);
        let forbidden = real_state.strip_prefix(&real_out).map(Path::to_owned).ok();
        Ok(Self { out, state, forbidden, layout })
    }

    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The place of an entry's result below OUT, or why it cannot have one.
    pub(super) fn result_place(&self, entry: &EntryName) -> io::Result<EntryName> {
        let place = self.layout.result_name(entry);
        self.check(&place).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidFilename, format!("the entry {entry} would be {place}: {why}"))
        })?;
        Ok(place)
    }

    /// Whether a result may be at `place` below OUT: a row is believed no more than an entry.
    pub(super) fn check_place(&self, place: &EntryName) -> io::Result<()> {
        self.check(place).map_err(|why| io::Error::new(io::ErrorKind::InvalidFilename, format!("{place}: {why}")))
    }

    fn check(&self, place: &EntryName) -> Result<(), &'static str> {
        check_relative(place)?;
        match &self.forbidden {
            Some(state) if path_of(place).starts_with(state) => Err("that lies in the dispatcher's own folder"),
            _ => Ok(()),
        }
    }
}

/// Whether a file may have this name below a folder, whoever made the name up: it leads nowhere else, and file systems
/// take it.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_relative(place: &EntryName) -> Result<(), &'static str> {
    if place.0.len() > MAX_PATH {
        return Err("the path is too long");
    }
    for name in place.0.split(|byte| *byte == b'/') {
        match name {
            b"" => return Err("a name is empty, or the path is absolute"),
            b"." | b".." => return Err("a path may not contain . or .."),
            _ if name.contains(&0) => return Err("a name contains a NUL"),
            _ if name.len() > MAX_NAME => return Err("a name is longer than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn path_of(name: &EntryName) -> &Path {
    Path::new(OsStr::from_bytes(&name.0))
}

/// `task.run.epoch.part.sum`.
pub(super) fn file_name(lease: LeaseId, part: &str, sha256: &str) -> String {
    format!("{lease}.{}.{}", word(part), word(sha256.get(..SHORT_SUM).unwrap_or(sha256)))
}

/// Where what was kept of a program's output goes, below STATE: a thousand tasks to a folder.
pub(super) fn log_place(lease: LeaseId, part: &str, sha256: &str) -> EntryName {
    let shelf = lease.task.0.div_euclid(1000);
    EntryName(format!("attempts/{shelf}/{}", file_name(lease, part, sha256)).into_bytes())
}

/// The lease in a staged file's name.
pub(super) fn lease_of(name: &OsStr) -> Option<LeaseId> {
    let mut words = name.to_str()?.splitn(4, '.');
    let task = words.next()?.parse().ok().map(TaskId)?;
    let run = words.next()?.parse().ok().map(Run)?;
    let epoch = words.next()?.parse().ok().map(Epoch)?;
    words.next().map(|_| LeaseId { task, run, epoch })
}

/// A word that is safe in a file's name, whatever came from outside.
fn word(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
