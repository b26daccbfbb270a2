//! Where result files live: staged, made durable, then published.
//!
//! Owns the order of these three for every backend. Knows no rows: the finaliser stages a batch, syncs it, commits the
//! rows, and only then publishes what won.

pub mod files;
pub mod none;
pub mod outside;
pub mod packs;

pub use files::{FileArchive, FileArchiveOptions, Layout};
pub use none::NoArchive;
pub use packs::{PackArchive, PackOptions};

use crate::model::{PartRef, Publication};
use dispatcher_core::id::{EntryName, LeaseId};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::Path;

/// Bytes on their way into the archive.
#[derive(Debug)]
pub enum Source<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// In a file of the archive's spool folder, which the archive takes over.
    Spool(&'a Path),
}

/// A part to be staged.
#[derive(Debug)]
pub struct NewPart<'a> {
    /// `result`, `stdout` or `stderr`.
    pub name: &'a str,
    /// Its SHA-256 in lower-case hexadecimal, checked by whoever received it.
    pub sha256: &'a str,
    /// Its bytes.
    pub source: Source<'a>,
}

/// Why the archive could not do it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// No space is left: what is staged waits, unacknowledged.
    #[error("no space is left for results in {place}; free some, work goes on by itself")]
    Full {
        /// The folder.
        place: String,
    },
    /// The bytes of a committed result are nowhere: somebody removed them. Only another run brings them back.
    #[error("the bytes of {place} are gone: somebody removed them")]
    Gone {
        /// Where they belong.
        place: String,
    },
    /// Something else.
    #[error("{doing} {place}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        place: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ArchiveError {
    /// What is to be seen to, in words that stay the same while it lasts: each repeat writes a file of another name.
    #[must_use]
    pub fn trouble(&self) -> String {
        match self {
            Self::Io { place, source, .. } => {
                format!("results cannot be written in {}: {source}", folder(Path::new(place)))
            }
            Self::Full { .. } | Self::Gone { .. } => self.to_string(),
        }
    }
}

/// A place for result files.
pub trait Archive: Send + Sync {
    /// The folder for bytes that arrive in pieces; on the archive's own file system.
    fn spool(&self) -> &Path;
    /// Puts a part aside under its lease. Not durable before [`Archive::sync`]. The same part again replaces it.
    fn stage(&self, lease: LeaseId, entry: &EntryName, part: NewPart<'_>) -> Result<PartRef, ArchiveError>;
    /// Makes all that was staged and published so far durable. After an error nothing that was staged since the last
    /// success counts as staged. Called before a batch is committed, it also covers the publications which that batch
    /// marks as done.
    fn sync(&self) -> Result<(), ArchiveError>;
    /// Puts the parts of a committed result where people look for them, in place of what stood there. Doing it twice is
    /// the same as once. A result without such parts leaves what stood there. Durable with the next [`Archive::sync`].
    fn publish(&self, publication: &Publication) -> Result<(), ArchiveError>;
    /// Forgets what was staged for a lease and did not win. Not for a repeat of a stored result: its bytes may be the
    /// ones that are still to be published.
    fn discard(&self, lease: LeaseId, parts: &[PartRef]) -> Result<(), ArchiveError>;
    /// Forgets a result of `entry` that is about to lose its row, published or not, and what was kept of its attempt. What
    /// is not where this archive would put a result of `entry` stays. Doing it twice is the same as once.
    fn remove(&self, lease: LeaseId, _entry: &EntryName, parts: &[PartRef]) -> Result<(), ArchiveError> {
        self.discard(lease, parts)
    }
    /// Removes staged and spooled files that no row names, after a crash: all but those for which `keep` says so.
    fn sweep(&self, keep: &dyn Fn(LeaseId) -> bool) -> Result<u64, ArchiveError>;
    /// Compares a published or staged part with its row: present, length, and with `deep` its checksum.
    fn check(&self, publication: &Publication, deep: bool) -> Result<Vec<String>, ArchiveError>;
    /// Opens a part of a committed result to read its bytes, as many as its row says. Whoever reads compares the checksum
    /// ([`Checked`] does): bytes may have been damaged or replaced since they were written. [`ArchiveError::Gone`] where
    /// they are not there, be it because they were moved since the row was read.
    fn read(&self, publication: &Publication, part: &PartRef) -> Result<Box<dyn Read + Send>, ArchiveError>;
}

/// Bytes of a part on their way out, with the sum of what has passed.
#[derive(Debug)]
pub struct Checked<R> {
    from: R,
    length: u64,
    sum: Sha256,
}

impl<R: Read> Checked<R> {
    /// Over the bytes of `from`.
    pub fn new(from: R) -> Self {
        Self { from, length: 0, sum: Sha256::new() }
    }

    /// After the last byte: what is wrong with what has passed, if it is not what `part` says.
    #[must_use]
    pub fn fault(self, part: &PartRef) -> Option<String> {
        if self.length != part.length {
            return Some(format!("it has {} bytes, not {}", self.length, part.length));
        }
        let found = hex(&self.sum.finalize());
        (found != part.sha256).then(|| format!("it has the checksum {found}, not {}", part.sha256))
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        self.length += n as u64;
        self.sum.update(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What the system said, as an error of the archive.
fn failed(doing: &'static str, place: &Path, source: io::Error) -> ArchiveError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ArchiveError::Full { place: folder(place) },
        _ => ArchiveError::Io { doing, place: place.display().to_string(), source },
    }
}

/// The folder that has no space. Each repeat writes a file of another name, and whoever tells of it tells news only.
fn folder(place: &Path) -> String {
    let folder = if place.is_dir() { Some(place) } else { place.parent() };
    folder.unwrap_or(place).display().to_string()
}

/// A part of which no bytes are kept: readable only where there were none.
fn without_bytes(part: &PartRef) -> Result<Box<dyn Read + Send>, ArchiveError> {
    if part.length == 0 {
        return Ok(Box::new(io::empty()));
    }
    Err(ArchiveError::Gone { place: format!("the part {} (they are not kept)", part.name) })
}
