//! Results together in packs: plain tar files below STATE, each appended to by one process.
//!
//! Owns `packs/` and `spool/` in the state folder. Durability costs the bytes and one sync a batch, however many results it
//! has. A row says pack, offset and length; its commit is its publication, and nothing is renamed. `tar` lists and extracts
//! a pack without us.
//!
//! Refuses to know rows. Which packs are named by none, and which parts are garbage, is told by the store
//! ([`crate::upkeep`] brings the two together).
//!
//! Invariants: a pack that was closed, by its size, by the end of its process or by a fault, is never appended to again; so
//! a crash leaves bytes that no row names, and never half a result. A pack whose rows may still be on their way is locked
//! by who wrote it. No path in a row leads out of `packs/`.

mod append;
mod keep;
mod large;
pub mod member;

pub use keep::{Idle, Keeper, KeptPack};

use super::{Archive, ArchiveError, Checked, NewPart, Source, failed, without_bytes};
use crate::model::{PartRef, Publication};
use append::Appender;
use dispatcher_core::id::{EntryName, LeaseId};
use dispatcher_core::wire::PART_RESULT;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The folder of packs below the state folder.
const FOLDER: &str = "packs";

/// The extension of the note beside a pack on which a write or a sync failed.
const SUSPECT: &str = "suspect";

/// How long a pack gets before another is begun, unless something else is said.
pub const SEAL_AT: u64 = 1024 * 1024 * 1024;

/// How a [`PackArchive`] writes.
#[derive(Clone, Copy, Debug)]
pub struct PackOptions {
    /// From so many bytes on a pack is closed and another begun.
    pub seal_at: u64,
    /// Is told each place that a test may hold: `appended`, `sealing`, `sealed`.
    pub pass: fn(&'static str),
    /// Says whether a test has armed a `write` or a `sync` to fail.
    pub fails: fn(&'static str) -> bool,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self { seal_at: SEAL_AT, pass: |_| {}, fails: |_| false }
    }
}

/// How many packs of a state folder have something in them; nothing is made where there is no such folder.
///
/// # Errors
/// Where the folder or a pack cannot be read.
pub fn filled(state: &Path) -> Result<usize, ArchiveError> {
    let folder = state.join(FOLDER);
    if !folder.try_exists().map_err(|e| failed("reading", &folder, e))? {
        return Ok(0);
    }
    let mut filled = 0;
    for name in folder_of(&folder)? {
        let path = folder.join(name);
        filled += usize::from(
            File::open(&path).and_then(|pack| has_members(&pack)).map_err(|e| failed("reading", &path, e))?,
        );
    }
    Ok(filled)
}

/// Whether anything but the end of a tar file is in a pack.
fn has_members(pack: &File) -> io::Result<bool> {
    let mut block = [0; 512];
    match pack.read_exact_at(&mut block, 0) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| block != [0; 512]),
    }
}

/// An [`Archive`] of packs.
#[derive(Debug)]
pub struct PackArchive {
    folder: PathBuf,
    spool: PathBuf,
    appender: Mutex<Appender>,
}

/// A part on its way into a pack.
#[derive(Debug)]
struct NewMember<'a> {
    lease: LeaseId,
    path: Vec<u8>,
    name: &'a str,
    sha256: &'a str,
    length: u64,
    source: Source<'a>,
}

impl NewMember<'_> {
    fn at(&self, place: EntryName, offset: u64) -> PartRef {
        let (name, sha256) = (self.name.to_owned(), self.sha256.to_owned());
        PartRef { name, place, offset, length: self.length, sha256 }
    }
}

impl PackArchive {
    /// Opens the archive of a state folder, and makes its folders. The first pack is made when something is staged.
    ///
    /// # Errors
    /// Where a folder cannot be made.
    pub fn open(state: &Path, options: PackOptions) -> Result<Self, ArchiveError> {
        let (folder, spool) = (state.join(FOLDER), state.join("spool"));
        for made in [&folder, &spool] {
            fs::create_dir_all(made).map_err(|e| failed("making the folder", made, e))?;
        }
        Ok(Self { spool, appender: Mutex::new(Appender::new(options, folder.clone())), folder })
    }

    fn appender(&self) -> MutexGuard<'_, Appender> {
        // Whoever panicked left at worst bytes that no row names.
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a place, if the place is one of ours: a row is believed no more than an entry.
    fn path_of(&self, place: &EntryName) -> Result<PathBuf, ArchiveError> {
        let name = place.0.strip_prefix(FOLDER.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
        let safe = name.filter(|name| name.ends_with(b".tar") && !name.contains(&b'/') && !name.starts_with(b"."));
        match safe {
            Some(name) => Ok(self.folder.join(OsStr::from_bytes(name))),
            None => {
                let wrong = io::Error::new(io::ErrorKind::InvalidFilename, format!("{place} is no place of a pack"));
                Err(failed("reading", &self.folder, wrong))
            }
        }
    }

    /// Whether the pack of this place is there, as far as can be seen: one that cannot be looked at is not missing.
    pub(crate) fn has(&self, place: &EntryName) -> bool {
        let looked = self.path_of(place).map(|path| path.symlink_metadata().map_err(|e| e.kind()));
        !matches!(looked, Ok(Err(io::ErrorKind::NotFound)))
    }

    /// Opens the pack of a part.
    fn open_pack(&self, part: &PartRef) -> Result<(File, PathBuf), ArchiveError> {
        let path = self.path_of(&part.place)?;
        match File::open(&path) {
            Ok(file) => Ok((file, path)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(ArchiveError::Gone { place: path.display().to_string() })
            }
            Err(e) => Err(failed("reading", &path, e)),
        }
    }

    fn fault_of(&self, lease: LeaseId, part: &PartRef, deep: bool) -> Result<Option<String>, ArchiveError> {
        if part.place.0.is_empty() {
            return Ok(None);
        }
        let (mut file, path) = match self.open_pack(part) {
            Err(ArchiveError::Gone { place }) => return Ok(Some(format!("the pack {place} is missing"))),
            opened => opened?,
        };
        let unreadable = |e| failed("reading", &path, e);
        let length = file.metadata().map_err(unreadable)?.len();
        let within = |what: String| Some(format!("{what}, at {} of {}", part.offset, path.display()));
        if part.offset.saturating_add(part.length) > length {
            return Ok(within(format!("the pack ends at {length}, before the part does")));
        }
        let mut block = [0; 512];
        let Some(at) = part.offset.checked_sub(block.len() as u64) else {
            return Ok(within("no member begins there".to_owned()));
        };
        file.read_exact_at(&mut block, at).map_err(unreadable)?;
        if let Some(fault) = member::fault_of(&block, lease, part.length) {
            return Ok(within(fault));
        }
        if !deep {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(part.offset)).map_err(unreadable)?;
        let mut checked = Checked::new(file.take(part.length));
        io::copy(&mut checked, &mut io::sink()).map_err(unreadable)?;
        Ok(checked.fault(part).and_then(within))
    }
}

impl Archive for PackArchive {
    fn spool(&self) -> &Path {
        &self.spool
    }

    fn stage(&self, lease: LeaseId, entry: &EntryName, part: NewPart<'_>) -> Result<PartRef, ArchiveError> {
        let NewPart { name, sha256, source } = part;
        let length = match source {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Spool(path) => self.appender().length_of(path)?,
        };
        let path = member::path(entry, lease, name);
        let member = NewMember { lease, path, name, sha256, length, source };
        if length > 0 || name == PART_RESULT {
            return self.appender().stage(&member);
        }
        // A program that says nothing leaves nothing.
        if let Source::Spool(path) = member.source {
            self.appender().let_go(path);
        }
        Ok(member.at(EntryName(Vec::new()), 0))
    }

    fn sync(&self) -> Result<(), ArchiveError> {
        self.appender().sync()
    }

    /// The commit of a packed result is its publication.
    fn publish(&self, _publication: &Publication) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Bytes in a shared pack are garbage until it is rewritten; a pack of one part goes at once.
    fn discard(&self, _lease: LeaseId, parts: &[PartRef]) -> Result<(), ArchiveError> {
        let places: Vec<&EntryName> = parts.iter().map(|part| &part.place).collect();
        self.appender().discard(&places);
        Ok(())
    }

    fn sweep(&self, _keep: &dyn Fn(LeaseId) -> bool) -> Result<u64, ArchiveError> {
        let mut removed = 0;
        for found in fs::read_dir(&self.spool).map_err(|e| failed("reading", &self.spool, e))? {
            let path = found.map_err(|e| failed("reading", &self.spool, e))?.path();
            fs::remove_file(&path).map_err(|e| failed("removing", &path, e))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn check(&self, publication: &Publication, deep: bool) -> Result<Vec<String>, ArchiveError> {
        let mut complaints = Vec::new();
        for part in &publication.parts {
            let fault = self.fault_of(publication.lease, part, deep)?;
            complaints.extend(fault.map(|fault| format!("{} of {}: {fault}", part.name, publication.entry)));
        }
        Ok(complaints)
    }

    fn read(&self, _publication: &Publication, part: &PartRef) -> Result<Box<dyn Read + Send>, ArchiveError> {
        if part.place.0.is_empty() {
            return without_bytes(part);
        }
        let (mut file, path) = self.open_pack(part)?;
        file.seek(SeekFrom::Start(part.offset)).map_err(|e| failed("reading", &path, e))?;
        Ok(Box::new(file.take(part.length)))
    }
}

impl Drop for PackArchive {
    /// A process that ends in good order ends its pack as a whole tar file.
    fn drop(&mut self) {
        self.appender().seal();
    }
}

/// Our own mistake, or what only the system knows.
fn own_error(place: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Io { doing: "packing into", place: place.display().to_string(), source }
}

/// The names of the packs in a folder.
fn folder_of(folder: &Path) -> Result<Vec<String>, ArchiveError> {
    let mut names = Vec::new();
    for found in fs::read_dir(folder).map_err(|e| failed("reading", folder, e))? {
        let name = found.map_err(|e| failed("reading", folder, e))?.file_name();
        // Whatever is named otherwise was not made here, and is left alone.
        names.extend(name.into_string().ok().filter(|name| Path::new(name).extension() == Some(OsStr::new("tar"))));
    }
    names.sort_unstable();
    Ok(names)
}
