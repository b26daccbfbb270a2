//! Where result files live: staged, made durable, then published.
//!
//! Owns the order of these three for every backend. Knows no rows: the finaliser stages a batch, syncs it, commits the
//! rows, and only then publishes what won.

pub mod files;
pub mod none;

pub use files::{FileArchive, FileArchiveOptions, Layout};
pub use none::NoArchive;

use crate::model::{PartRef, Publication};
use dispatcher_core::id::{EntryName, LeaseId};
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
        source: std::io::Error,
    },
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
    /// Removes staged and spooled files that no row names, after a crash: all but those for which `keep` says so.
    fn sweep(&self, keep: &dyn Fn(LeaseId) -> bool) -> Result<u64, ArchiveError>;
    /// Compares a published or staged part with its row: present, length, and with `deep` its checksum.
    fn check(&self, publication: &Publication, deep: bool) -> Result<Vec<String>, ArchiveError>;
}
