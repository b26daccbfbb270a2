//! The files' side of keeping packs in order: ended, removed, rewritten.
//!
//! Owns the folder's lock (one keeper at a time), and that a pack whose writer is at work is left alone: its writer holds
//! its lock until no more rows that name it can come. Members are copied as they lie there, block for block, and their
//! checksums compared. Knows no rows; what is wanted of a pack is told.

use super::append::{highest, make_locked, name_of};
use super::member::{END, padded};
use super::{FOLDER, PackArchive, SUSPECT, folder_of, has_members};
use crate::archive::{ArchiveError, failed, hex};
use crate::model::{PackedPart, PartMove};
use dispatcher_core::id::EntryName;
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tar::{EntryType, Header};

/// Bytes that are copied at a time.
const PIECE: usize = 256 * 1024;

/// Whoever keeps the packs of a folder in order, alone.
#[derive(Debug)]
pub struct Keeper<'a> {
    archive: &'a PackArchive,
    #[expect(dead_code, reason = "the lock lasts as long as the open folder")]
    lock: File,
    target: Option<Target>,
}

/// A pack in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPack {
    /// Its place.
    pub place: EntryName,
    /// Its length in bytes.
    pub length: u64,
    /// Whether a write to it or its sync has failed.
    pub suspect: bool,
}

/// A pack that nobody writes to, locked.
#[derive(Debug)]
pub struct Idle {
    place: EntryName,
    path: PathBuf,
    file: File,
    length: u64,
    /// Where the next member begins.
    at: u64,
}

/// The pack that members are copied to.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
    place: EntryName,
    written: u64,
    synced: u64,
}

/// One member as it lies in a pack.
struct Member {
    /// Where its first block begins.
    begins: u64,
    /// Where its bytes begin.
    data: u64,
    length: u64,
}

impl PackArchive {
    /// Takes the folder's lock; `None` while somebody else keeps it in order.
    ///
    /// # Errors
    /// Where the folder cannot be locked.
    pub fn keeper(&self) -> Result<Option<Keeper<'_>>, ArchiveError> {
        let lock = File::open(&self.folder).map_err(|e| failed("opening", &self.folder, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Keeper { archive: self, lock, target: None })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed("locking", &self.folder, e)),
        }
    }
}

impl Keeper<'_> {
    /// The packs that are there.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn packs(&self) -> Result<Vec<KeptPack>, ArchiveError> {
        let mut packs = Vec::new();
        for name in folder_of(&self.archive.folder)? {
            let path = self.archive.folder.join(&name);
            // One that is gone by now is none.
            let Ok(found) = fs::metadata(&path) else { continue };
            let suspect = path.with_extension(SUSPECT).exists();
            let place = EntryName(format!("{FOLDER}/{name}").into_bytes());
            packs.push(KeptPack { place, length: found.len(), suspect });
        }
        Ok(packs)
    }

    /// Locks a pack; `None` while somebody writes to it.
    ///
    /// # Errors
    /// [`ArchiveError::Gone`] where there is no such pack.
    pub fn idle(&self, place: &EntryName) -> Result<Option<Idle>, ArchiveError> {
        let path = self.archive.path_of(place)?;
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ArchiveError::Gone { place: path.display().to_string() });
            }
            Err(e) => return Err(failed("opening", &path, e)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(failed("locking", &path, e)),
        }
        let length = file.metadata().map_err(|e| failed("reading", &path, e))?.len();
        Ok(Some(Idle { place: place.clone(), path, file, length, at: 0 }))
    }

    /// Cuts off what lies behind `end`, where the last member that a row names ends, and ends the tar file there. Returns
    /// whether there was something to do.
    ///
    /// # Errors
    /// Where the pack cannot be written.
    pub fn end(&self, idle: &Idle, end: u64) -> Result<bool, ArchiveError> {
        if idle.length < end {
            // Somebody took bytes away: that is told where rows are compared, and nothing is made worse here.
            return Ok(false);
        }
        let end = padded(end);
        let mut tail = END;
        if idle.length == end + END.len() as u64 && idle.file.read_exact_at(&mut tail, end).is_ok() && tail == END {
            return Ok(false);
        }
        let written = idle.file.set_len(end).and_then(|()| idle.file.write_all_at(&END, end));
        written.and_then(|()| idle.file.sync_all()).map_err(|e| failed("ending", &idle.path, e))?;
        Ok(true)
    }

    /// Removes a pack that no row names.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn remove(&self, idle: Idle) -> Result<(), ArchiveError> {
        fs::remove_file(&idle.path).map_err(|e| failed("removing", &idle.path, e))?;
        match fs::remove_file(idle.path.with_extension(SUSPECT)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("removing", &idle.path, e)),
            _ => Ok(()),
        }
    }

    /// Copies the member of a part to the pack that is being made; parts come in the order in which they lie in the pack.
    /// `Err` in words where the pack does not hold it as its row says: then it stays where it is.
    ///
    /// # Errors
    /// Where the new pack cannot be written.
    pub fn copy(&mut self, idle: &mut Idle, part: &PackedPart) -> Result<Result<PartMove, String>, ArchiveError> {
        let member = match idle.find(part) {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(Err("no member begins where its row says".to_owned())),
            Err(e) => return Ok(Err(e.to_string())),
        };
        let target = self.target()?;
        let before = target.written;
        match target.take(idle, &member, part) {
            Ok(moved) => Ok(Ok(moved)),
            Err(Copying::Source(why)) => {
                target.written = before;
                target.file.set_len(before).map_err(|e| failed("writing", &target.path, e))?;
                Ok(Err(why))
            }
            Err(Copying::Target(e)) => {
                let error = failed("writing", &target.path, e);
                self.give_up();
                Err(error)
            }
        }
    }

    fn target(&mut self) -> Result<&mut Target, ArchiveError> {
        if self.target.is_none() {
            let folder = &self.archive.folder;
            let (path, place) = name_of(folder, highest(folder)? + 1)?;
            let file = make_locked(&path)?;
            self.target = Some(Target { file, path, place, written: 0, synced: 0 });
        }
        let none = || ArchiveError::Gone { place: self.archive.folder.display().to_string() };
        self.target.as_mut().ok_or_else(none)
    }

    /// How much is in the pack that is being made.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.target.as_ref().map_or(0, |target| target.written)
    }

    /// Makes what was copied durable, and says where it lies; `None` where nothing was copied.
    ///
    /// # Errors
    /// Where the sync fails; then nothing that was copied since the last one counts.
    pub fn sync(&mut self) -> Result<Option<EntryName>, ArchiveError> {
        let Some(target) = &mut self.target else { return Ok(None) };
        let synced = target.file.sync_data().map_err(|e| failed("making results durable in", &target.path, e));
        let folder = File::open(&self.archive.folder).and_then(|folder| folder.sync_all());
        let folder = folder.map_err(|e| failed("making new packs durable in", &self.archive.folder, e));
        if let Err(e) = synced.and(folder) {
            self.give_up();
            return Err(e);
        }
        target.synced = target.written;
        Ok(Some(target.place.clone()))
    }

    /// Ends the pack that is being made; the next copy begins another one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(&mut self) -> Result<(), ArchiveError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        let ended = target.file.write_all_at(&END, target.written).and_then(|()| target.file.sync_all());
        ended.map_err(|e| failed("ending", &target.path, e))
    }

    /// Leaves the pack that was being made as its last good sync left it.
    fn give_up(&mut self) {
        let Some(target) = self.target.take() else { return };
        // What stays is of nobody, and goes with the next keeper.
        if target.synced == 0 {
            drop(fs::remove_file(&target.path));
        } else {
            drop(target.file.set_len(target.synced));
        }
    }
}

/// What went wrong with a copy.
enum Copying {
    Source(String),
    Target(io::Error),
}

impl Target {
    fn take(&mut self, idle: &Idle, member: &Member, part: &PackedPart) -> Result<PartMove, Copying> {
        let begins = self.written + (member.data - member.begins);
        let (mut at, end) = (member.begins, member.data + padded(member.length));
        let mut sum = Sha256::new();
        let mut buffer = vec![0; PIECE];
        while at < end {
            // Front and bytes apart: only the bytes are summed up.
            let stop = if at < member.data { member.data } else { end };
            let most = usize::try_from(stop - at).unwrap_or(usize::MAX).min(PIECE);
            let piece = buffer.get_mut(..most).unwrap_or_default();
            idle.file.read_exact_at(piece, at).map_err(|e| Copying::Source(e.to_string()))?;
            if at >= member.data {
                let left = usize::try_from((member.data + member.length).saturating_sub(at)).unwrap_or(usize::MAX);
                sum.update(piece.get(..left.min(most)).unwrap_or_default());
            }
            self.file.write_all_at(piece, self.written).map_err(Copying::Target)?;
            self.written += most as u64;
            at += most as u64;
        }
        let found = hex(&sum.finalize());
        if found != part.sha256 {
            return Err(Copying::Source(format!("its bytes have the checksum {found}, not {}", part.sha256)));
        }
        Ok(PartMove { from: part.offset, to: Some(begins) })
    }
}

impl Idle {
    /// Its place.
    #[must_use]
    pub const fn place(&self) -> &EntryName {
        &self.place
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether anything is in it.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn has_members(&self) -> Result<bool, ArchiveError> {
        has_members(&self.file).map_err(|e| failed("reading", &self.path, e))
    }

    /// The member of a part, looked for from the one before it on.
    fn find(&mut self, part: &PackedPart) -> io::Result<Option<Member>> {
        while let Some(member) = self.next()? {
            if member.data >= part.offset {
                let found = member.data == part.offset && member.length == part.length;
                if !found {
                    // The next part may be this one.
                    self.at = member.begins;
                }
                return Ok(found.then_some(member));
            }
        }
        Ok(None)
    }

    /// The member at the present position; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Member>> {
        let begins = self.at;
        let mut at = begins;
        loop {
            let mut block = [0; 512];
            match self.file.read_exact_at(&mut block, at) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read?,
            }
            if block == [0; 512] {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            let (length, data) = (header.entry_size()?, at + 512);
            let end = data.checked_add(padded(length)).filter(|end| *end > data || length == 0);
            let end = end.ok_or_else(|| io::Error::other("a member of an impossible length"))?;
            match header.entry_type() {
                EntryType::GNULongName | EntryType::XHeader => at = end,
                _ => {
                    self.at = end;
                    return Ok(Some(Member { begins, data, length }));
                }
            }
        }
    }
}
