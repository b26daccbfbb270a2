//! Parts that are too large to be copied: the file in which one arrived becomes a pack of its own.
//!
//! Owns the way from a spool file to such a pack. Where the file system can insert space in front of a file (ext4, XFS), the
//! header goes there and no byte of the part is moved; elsewhere the part is copied.
//!
//! Invariant: while a batch is tried again, the bytes are always in one place from which they can be staged once more, and
//! bytes whose sync failed are believed only after their checksum was compared.

use super::append::{lock, make_locked};
use super::member::{self, END, padded};
use super::{NewMember, own_error};
use crate::archive::{ArchiveError, failed, hex};
use dispatcher_core::id::EntryName;
use rustix::fs::FallocateFlags;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A pack of one part.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) place: EntryName,
    /// Where the part begins.
    pub(super) begins: u64,
    /// Whether the spool file is still there.
    pub(super) is_copy: bool,
}

/// A spool file on its way: where its bytes are now.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) at: PathBuf,
    /// Space that was inserted in front of them.
    shift: u64,
    /// Their number.
    pub(super) length: u64,
    /// Whether a sync of it failed: the system may have dropped some of it.
    pub(super) unsure: bool,
}

/// What went wrong.
pub(super) enum Failure {
    /// The disk: the whole batch is to be staged again.
    Disk(ArchiveError),
    /// The part alone: its bytes are gone or others.
    Part(ArchiveError),
}

/// Makes the pack `path` of what lies in `spool`, or goes on with it where an earlier try has begun.
pub(super) fn make(
    spool: &Path,
    path: &Path,
    place: EntryName,
    part: &NewMember<'_>,
    taken: &mut HashMap<PathBuf, Taken>,
) -> Result<Large, Failure> {
    match taken.get(spool) {
        Some(taken) if taken.unsure => copy(&taken.at.clone(), taken.shift, path, place, part),
        Some(_) => move_there(spool, path, place, part, taken),
        None => match insert(spool, path, part, taken)? {
            true => move_there(spool, path, place, part, taken),
            false => copy(spool, 0, path, place, part),
        },
    }
}

/// Inserts space for the header; `false` where the file system cannot.
fn insert(
    spool: &Path,
    path: &Path,
    part: &NewMember<'_>,
    taken: &mut HashMap<PathBuf, Taken>,
) -> Result<bool, Failure> {
    let unreadable = |e| Failure::Part(failed("reading", spool, e));
    let file = File::options().read(true).write(true).open(spool).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() != part.length {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, "its length has changed")));
    }
    let front = front(path, part)?;
    match rustix::fs::fallocate(&file, FallocateFlags::INSERT_RANGE, 0, front.len() as u64) {
        Ok(()) => {
            let shift = front.len() as u64;
            let here = Taken { at: spool.to_owned(), shift, length: part.length, unsure: false };
            taken.insert(spool.to_owned(), here);
            Ok(true)
        }
        Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
            Err(Failure::Disk(ArchiveError::Full { place: path.display().to_string() }))
        }
        Err(_) => Ok(false),
    }
}

/// Writes what comes before and after the part, and gives the file its name.
fn move_there(
    spool: &Path,
    path: &Path,
    place: EntryName,
    part: &NewMember<'_>,
    taken: &mut HashMap<PathBuf, Taken>,
) -> Result<Large, Failure> {
    let Some(taken) = taken.get_mut(spool) else {
        return Err(Failure::Part(own_error(spool, io::Error::from(io::ErrorKind::NotFound))));
    };
    let disk = |e| Failure::Disk(failed("writing", path, e));
    let file = File::options().read(true).write(true).open(&taken.at).map_err(disk)?;
    let front = front(path, part)?;
    if front.len() as u64 != taken.shift {
        return Err(Failure::Part(own_error(path, io::Error::other("its header has another length than before"))));
    }
    file.write_all_at(&front, 0).map_err(disk)?;
    file.write_all_at(&ending(part.length), taken.shift + part.length).map_err(disk)?;
    fs::rename(&taken.at, path).map_err(disk)?;
    path.clone_into(&mut taken.at);
    lock(&file, path).map_err(Failure::Disk)?;
    Ok(Large { file, path: path.to_owned(), place, begins: taken.shift, is_copy: false })
}

/// Copies the part, with its checksum compared: what is read back after a failed sync may be something else.
fn copy(from: &Path, shift: u64, path: &Path, place: EntryName, part: &NewMember<'_>) -> Result<Large, Failure> {
    let unreadable = |e| Failure::Part(failed("reading", from, e));
    let mut source = File::open(from).map_err(unreadable)?;
    source.seek(SeekFrom::Start(shift)).map_err(unreadable)?;
    let mut file = make_locked(path).map_err(Failure::Disk)?;
    let copied = write_copy(&mut source, &mut file, path, part);
    match copied {
        Ok(begins) => Ok(Large { file, path: path.to_owned(), place, begins, is_copy: true }),
        Err(failure) => {
            drop(fs::remove_file(path));
            Err(failure)
        }
    }
}

fn write_copy(source: &mut File, file: &mut File, path: &Path, part: &NewMember<'_>) -> Result<u64, Failure> {
    let disk = |e| Failure::Disk(failed("writing", path, e));
    let front = member::front(&part.path, part.lease, part.length).map_err(|e| Failure::Part(own_error(path, e)))?;
    file.write_all(&front).map_err(disk)?;
    let (mut left, mut sum, mut buffer) = (part.length, Sha256::new(), vec![0; 256 * 1024]);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let room = buffer.get_mut(..most).unwrap_or_default();
        let read = source.read(room).map_err(|e| Failure::Part(failed("reading", path, e)))?;
        let bytes = room.get(..read).filter(|bytes| !bytes.is_empty());
        let Some(bytes) = bytes else {
            let short = io::Error::new(io::ErrorKind::UnexpectedEof, "its bytes end too soon");
            return Err(Failure::Part(failed("reading", path, short)));
        };
        sum.update(bytes);
        file.write_all(bytes).map_err(disk)?;
        left -= read as u64;
    }
    if hex(&sum.finalize()) != part.sha256 {
        let other = io::Error::new(io::ErrorKind::InvalidData, "its bytes are no longer those that were received");
        return Err(Failure::Part(failed("reading", path, other)));
    }
    file.write_all(&ending(part.length)).map_err(disk)?;
    Ok(front.len() as u64)
}

fn front(path: &Path, part: &NewMember<'_>) -> Result<Vec<u8>, Failure> {
    member::front_in_pages(&part.path, part.lease, part.length).map_err(|e| Failure::Part(own_error(path, e)))
}

/// The rest of the last block, and the end of the tar file.
fn ending(length: u64) -> Vec<u8> {
    let padding = usize::try_from(padded(length) - length).unwrap_or(0);
    vec![0; padding + END.len()]
}
