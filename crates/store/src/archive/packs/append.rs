//! The one pack that is being written, and what of a batch is in it.
//!
//! Owns the rules of appending: bytes go to the end of one open file; one sync makes a batch durable; a file on which a
//! write or a sync failed is never written again. Parts are counted from the position that they will have, and written
//! when enough of them have come together.
//!
//! Invariants: what was synced is never touched; after a fault the file ends where the last good sync ended, and the next
//! batch begins another file; whoever may still commit rows that name a file holds its lock.

use super::large::{self, Large, Taken};
use super::member::{self, END, padded};
use super::{NewMember, PackOptions, folder_of, own_error};
use crate::archive::{ArchiveError, Source, failed};
use crate::model::PartRef;
use dispatcher_core::id::EntryName;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes that wait in memory before they are written: few writes a batch, and never much more memory than this.
const FLUSH_AT: usize = 8 * 1024 * 1024;

/// A spooled part from this length on becomes a pack of its own. Shorter ones are copied: a file each would cost more than
/// the copy (8 MiB take some 5 ms), and their number is not bounded by their bytes.
pub(super) const LARGE: u64 = 8 * 1024 * 1024;

/// How many packs of one part a batch has at most: each is an open file until its rows are committed. Further large parts
/// are copied into the shared pack.
const OWN_PACKS: usize = 64;

/// Bytes of a large part that are copied at a time.
const PIECE: usize = 256 * 1024;

/// What is known of the pack that is being written.
#[derive(Debug)]
pub(super) struct Appender {
    options: PackOptions,
    folder: PathBuf,
    open: Option<OpenPack>,
    /// The number of the next pack.
    next: Option<u64>,
    /// What is to be written behind the last byte of the open pack.
    buffer: Vec<u8>,
    /// Packs of one part that the next sync makes durable.
    large: Vec<Large>,
    /// Spool files on their way to be such packs, until they are durable.
    taken: HashMap<PathBuf, Taken>,
    /// Spool files whose bytes are in the open pack, removed when they are durable.
    copied: Vec<PathBuf>,
    /// Why the batch cannot be made durable.
    fault: Option<ArchiveError>,
    /// Whether something was staged since the last sync.
    staged: bool,
    /// Packs of one part that the batch before made durable: their rows may be on their way.
    committing: Vec<Large>,
}

/// A pack that is written.
#[derive(Debug)]
struct OpenPack {
    file: File,
    path: PathBuf,
    place: EntryName,
    /// Bytes that a sync has made durable.
    synced: u64,
    /// Bytes that were given to the system.
    written: u64,
}

impl Appender {
    pub(super) fn new(options: PackOptions, folder: PathBuf) -> Self {
        Self {
            options,
            folder,
            open: None,
            next: None,
            buffer: Vec::new(),
            large: Vec::new(),
            taken: HashMap::new(),
            copied: Vec::new(),
            fault: None,
            staged: false,
            committing: Vec::new(),
        }
    }

    /// Takes a part into the batch. What the disk refuses is told by the sync; only a part whose own bytes cannot be read
    /// is an error here.
    pub(super) fn stage(&mut self, part: &NewMember<'_>) -> Result<PartRef, ArchiveError> {
        if !self.staged {
            self.staged = true;
            self.begin_batch();
        }
        if self.fault.is_some() {
            return Ok(part.at(EntryName(Vec::new()), 0));
        }
        match part.source {
            Source::Spool(spool) if part.length >= LARGE => {
                let has_room = self.large.len() < OWN_PACKS || self.taken.contains_key(spool);
                if has_room { self.stage_large(spool, part) } else { self.stage_copied(spool, part) }
            }
            _ => self.stage_small(part),
        }
    }

    /// The length of a spooled part, wherever its bytes are by now.
    pub(super) fn length_of(&self, spool: &Path) -> Result<u64, ArchiveError> {
        if let Some(taken) = self.taken.get(spool) {
            return Ok(taken.length);
        }
        fs::metadata(spool).map(|found| found.len()).map_err(|e| failed("reading", spool, e))
    }

    /// A spooled part without bytes: its file goes when the batch is durable, for until then it may be staged again.
    pub(super) fn let_go(&mut self, spool: &Path) {
        self.copied.push(spool.to_owned());
    }

    /// The batch before is committed, or its process would have ended: a pack that has its size is closed only now, since
    /// whoever can lock it may rewrite it.
    fn begin_batch(&mut self) {
        self.committing.clear();
        if self.open.as_ref().is_some_and(|open| open.synced >= self.options.seal_at) {
            self.seal();
        }
    }

    fn stage_small(&mut self, part: &NewMember<'_>) -> Result<PartRef, ArchiveError> {
        let front = member::front(&part.path, part.lease, part.length).map_err(|e| own_error(&self.folder, e))?;
        let before = self.buffer.len();
        let place = match self.ensure_open() {
            Ok(open) => open.place.clone(),
            Err(e) => {
                self.fault = Some(e);
                return Ok(part.at(EntryName(Vec::new()), 0));
            }
        };
        let begins = self.open.as_ref().map_or(0, |open| open.written) + (before + front.len()) as u64;
        self.buffer.extend_from_slice(&front);
        match part.source {
            Source::Bytes(bytes) => self.buffer.extend_from_slice(bytes),
            Source::Spool(spool) => {
                if let Err(e) = read_whole(spool, part.length, &mut self.buffer) {
                    self.buffer.truncate(before);
                    return Err(failed("reading", spool, e));
                }
                self.copied.push(spool.to_owned());
            }
        }
        let padding = usize::try_from(padded(part.length) - part.length).unwrap_or(0);
        self.buffer.resize(self.buffer.len() + padding, 0);
        if self.buffer.len() >= FLUSH_AT {
            self.flush();
        }
        Ok(part.at(place, begins))
    }

    /// Appends a large part piece by piece: it is never in memory as a whole.
    fn stage_copied(&mut self, spool: &Path, part: &NewMember<'_>) -> Result<PartRef, ArchiveError> {
        let front = member::front(&part.path, part.lease, part.length).map_err(|e| own_error(&self.folder, e))?;
        let nowhere = Ok(part.at(EntryName(Vec::new()), 0));
        self.flush();
        if self.fault.is_none()
            && let Err(e) = self.ensure_open()
        {
            self.fault = Some(e);
        }
        let Some(open) = self.open.as_mut().filter(|_| self.fault.is_none()) else { return nowhere };
        let begins = open.written + front.len() as u64;
        match open.copy(spool, part.length, &front) {
            Ok(Ok(())) => {
                open.written = begins + padded(part.length);
                self.copied.push(spool.to_owned());
                Ok(part.at(open.place.clone(), begins))
            }
            Ok(Err(e)) => Err(failed("reading", spool, e)),
            Err(e) => {
                self.fault = Some(failed("appending to", &open.path, e));
                nowhere
            }
        }
    }

    fn stage_large(&mut self, spool: &Path, part: &NewMember<'_>) -> Result<PartRef, ArchiveError> {
        let (path, place) = match self.next_name() {
            Ok(named) => named,
            Err(e) => {
                self.fault = Some(e);
                return Ok(part.at(EntryName(Vec::new()), 0));
            }
        };
        match large::make(spool, &path, place, part, &mut self.taken) {
            Ok(large) => {
                let (place, begins) = (large.place.clone(), large.begins);
                if large.is_copy {
                    self.copied.push(spool.to_owned());
                }
                self.large.push(large);
                Ok(part.at(place, begins))
            }
            Err(large::Failure::Disk(e)) => {
                self.fault = Some(e);
                Ok(part.at(EntryName(Vec::new()), 0))
            }
            Err(large::Failure::Part(e)) => Err(e),
        }
    }

    /// Makes the batch durable. After an error nothing of it counts as staged.
    pub(super) fn sync(&mut self) -> Result<(), ArchiveError> {
        self.flush();
        (self.options.pass)("appended");
        let done = match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.sync_files(),
        };
        self.staged = false;
        if let Err(error) = done {
            self.take_back();
            return Err(error);
        }
        self.committing = std::mem::take(&mut self.large);
        for (_, taken) in self.taken.drain().filter(|(_, taken)| taken.unsure) {
            // It was copied to another pack.
            drop(fs::remove_file(taken.at));
        }
        for spool in self.copied.drain(..) {
            // One that stays is swept at the next start.
            drop(fs::remove_file(spool));
        }
        Ok(())
    }

    fn sync_files(&mut self) -> Result<(), ArchiveError> {
        let mut is_new = false;
        for large in &mut self.large {
            is_new = true;
            let synced = if (self.options.fails)("sync") { Err(armed()) } else { large.file.sync_all() };
            if let Err(e) = synced {
                for taken in self.taken.values_mut().filter(|taken| taken.at == large.path) {
                    taken.unsure = true;
                }
                return Err(failed("making results durable in", &large.path, e));
            }
        }
        if let Some(open) = &mut self.open
            && open.written > open.synced
        {
            is_new |= open.synced == 0;
            let synced = if (self.options.fails)("sync") { Err(armed()) } else { open.file.sync_data() };
            synced.map_err(|e| failed("making results durable in", &open.path, e))?;
        }
        if is_new {
            let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
            folder.map_err(|e| failed("making new packs durable in", &self.folder, e))?;
        }
        if let Some(open) = &mut self.open {
            open.synced = open.written;
        }
        Ok(())
    }

    /// Gives what waits to the system, in one piece.
    fn flush(&mut self) {
        if self.fault.is_some() || self.buffer.is_empty() {
            self.buffer.clear();
            return;
        }
        let Some(open) = &mut self.open else { return };
        let written = if (self.options.fails)("write") { Err(armed()) } else { open.file.write_all(&self.buffer) };
        match written {
            Ok(()) => open.written += self.buffer.len() as u64,
            Err(e) => self.fault = Some(failed("appending to", &open.path, e)),
        }
        self.buffer.clear();
        self.buffer.shrink_to(FLUSH_AT);
    }

    /// Leaves the open pack as the last good sync left it, and never writes to it again.
    fn take_back(&mut self) {
        self.buffer.clear();
        // Their bytes are where they were, in the spool.
        self.copied.clear();
        for large in self.large.drain(..).filter(|large| large.is_copy) {
            drop(fs::remove_file(&large.path));
        }
        let Some(open) = self.open.take() else { return };
        if open.synced == 0 {
            drop(fs::remove_file(&open.path));
            return;
        }
        if let Err(e) = open.file.set_len(open.synced) {
            tracing::warn!("{} keeps a half-written end: {e}", open.path.display());
        }
        let note = open.path.with_extension(super::SUSPECT);
        let why = "a write to this pack or its sync failed; `dispatcher compact` moves what it has to another one\n";
        if let Err(e) = fs::write(&note, why) {
            tracing::warn!("{} could not be noted as suspect: {e}", open.path.display());
        }
        tracing::warn!("{} is suspect: a write or a sync failed, and another pack is begun", open.path.display());
    }

    /// Ends the open pack in good order: with the end of a tar file.
    pub(super) fn seal(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if open.written > open.synced {
            return;
        }
        (self.options.pass)("sealing");
        let sealed = open.file.write_all(&END).and_then(|()| open.file.sync_all());
        if let Err(e) = sealed {
            // Its rows are whole; a reader misses the two empty blocks at the end, and the next start puts them there.
            tracing::warn!("{} was closed without the end of a tar file: {e}", open.path.display());
        }
        (self.options.pass)("sealed");
    }

    fn ensure_open(&mut self) -> Result<&OpenPack, ArchiveError> {
        if self.open.is_none() {
            let (path, place) = self.next_name()?;
            let file = make_locked(&path)?;
            self.open = Some(OpenPack { file, path, place, synced: 0, written: 0 });
        }
        self.open.as_ref().ok_or_else(|| own_error(&self.folder, io::Error::other("no pack is open")))
    }

    /// A name that no pack ever had.
    fn next_name(&mut self) -> Result<(PathBuf, EntryName), ArchiveError> {
        let number = match self.next {
            Some(number) => number,
            None => highest(&self.folder)? + 1,
        };
        self.next = Some(number + 1);
        name_of(&self.folder, number)
    }

    /// Removes packs of one part that did not win.
    pub(super) fn discard(&mut self, places: &[&EntryName]) {
        self.committing.retain(|large| {
            let lost = places.contains(&&large.place);
            if lost {
                // One that stays is swept at the next start.
                drop(fs::remove_file(&large.path));
            }
            !lost
        });
    }
}

impl OpenPack {
    /// Appends a header and a file of just this length. Where that cannot be read, the inner error, the pack ends as before.
    fn copy(&mut self, from: &Path, length: u64, front: &[u8]) -> io::Result<io::Result<()>> {
        self.file.write_all(front)?;
        let mut source = match File::open(from) {
            Ok(source) => source,
            Err(e) => return self.back_out(e).map(Err),
        };
        let (mut left, mut buffer) = (length, vec![0; PIECE]);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let piece = buffer.get_mut(..most).unwrap_or_default();
            if let Err(e) = source.read_exact(piece) {
                return self.back_out(e).map(Err);
            }
            self.file.write_all(piece)?;
            left -= most as u64;
        }
        let padding = usize::try_from(padded(length) - length).unwrap_or(0);
        self.file.write_all(END.get(..padding).unwrap_or_default()).map(Ok)
    }

    fn back_out(&mut self, why: io::Error) -> io::Result<io::Error> {
        self.file.set_len(self.written)?;
        self.file.seek(SeekFrom::Start(self.written))?;
        Ok(why)
    }
}

/// A fault that a test has armed.
fn armed() -> io::Error {
    io::Error::other("armed to fail here")
}

/// The path and the place of a pack of this number: a few random digits see to it that no name comes twice.
pub(super) fn name_of(folder: &Path, number: u64) -> Result<(PathBuf, EntryName), ArchiveError> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|e| own_error(folder, io::Error::other(e.to_string())))?;
    let name = format!("{number:08}-{:08x}.tar", u32::from_ne_bytes(random));
    let place = EntryName(format!("{}/{name}", super::FOLDER).into_bytes());
    Ok((folder.join(name), place))
}

/// Makes a pack and takes its lock.
pub(super) fn make_locked(path: &Path) -> Result<File, ArchiveError> {
    let made = File::options().read(true).write(true).create_new(true).open(path);
    let file = made.map_err(|e| failed("making the pack", path, e))?;
    lock(&file, path)?;
    Ok(file)
}

/// Takes the lock of a pack that nobody else can know yet.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), ArchiveError> {
    file.try_lock().map_err(|e| failed("locking", path, io::Error::other(e.to_string())))
}

/// The highest number of a pack so far.
pub(super) fn highest(folder: &Path) -> Result<u64, ArchiveError> {
    let mut highest = 0;
    for name in folder_of(folder)? {
        let number = name.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        highest = highest.max(number);
    }
    Ok(highest)
}

/// Reads a file that must have just this length.
fn read_whole(path: &Path, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let mut file = File::open(path)?;
    let before = into.len();
    (&file).take(length).read_to_end(into)?;
    let rest = file.seek(SeekFrom::End(0))?;
    if (into.len() - before) as u64 == length && rest == length {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "its length has changed"))
}
