//! An archive that keeps nothing: for workers that put their results away themselves.
//!
//! Owns the promise that size and checksum of what was declared are recorded, and its bytes are let go. What arrives in
//! pieces passes through a spool folder all the same, because only then is its checksum known.

use super::{Archive, ArchiveError, NewPart, Source, failed, without_bytes};
use crate::model::{PartRef, Publication};
use dispatcher_core::id::{EntryName, LeaseId};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// An [`Archive`] that keeps no bytes.
#[derive(Debug)]
pub struct NoArchive {
    spool: PathBuf,
}

impl NoArchive {
    /// Opens it, with a folder for what arrives in pieces.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(state: &Path) -> Result<Self, ArchiveError> {
        let spool = state.join("spool");
        fs::create_dir_all(&spool).map_err(|e| failed("making the folder", &spool, e))?;
        Ok(Self { spool })
    }
}

impl Archive for NoArchive {
    fn spool(&self) -> &Path {
        &self.spool
    }

    fn stage(&self, _lease: LeaseId, _name: &EntryName, part: NewPart<'_>) -> Result<PartRef, ArchiveError> {
        let length = match part.source {
            Source::Bytes(bytes) => bytes.len() as u64,
            // Nothing here can fail in a way that has the batch staged again, so it may go at once.
            Source::Spool(path) => {
                let length = fs::metadata(path).map_err(|e| failed("reading", path, e))?.len();
                fs::remove_file(path).map_err(|e| failed("removing", path, e))?;
                length
            }
        };
        let (name, sha256) = (part.name.to_owned(), part.sha256.to_owned());
        Ok(PartRef { name, place: EntryName(Vec::new()), offset: 0, length, sha256 })
    }

    fn sync(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn publish(&self, _publication: &Publication) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn discard(&self, _lease: LeaseId, _parts: &[PartRef]) -> Result<(), ArchiveError> {
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

    fn check(&self, _publication: &Publication, _deep: bool) -> Result<Vec<String>, ArchiveError> {
        Ok(Vec::new())
    }

    fn read(&self, _publication: &Publication, part: &PartRef) -> Result<Box<dyn Read + Send>, ArchiveError> {
        without_bytes(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::{Epoch, Run, TaskId};

    #[test]
    fn sizes_and_checksums_are_recorded_and_bytes_let_go() {
        let place = tempfile::tempdir().unwrap();
        let archive = NoArchive::open(place.path()).unwrap();
        let lease = LeaseId { task: TaskId(1), run: Run(1), epoch: Epoch(1) };
        let spooled = archive.spool().join("1.1.1.0");
        fs::write(&spooled, b"four").unwrap();
        let part = |source| NewPart { name: "result", sha256: "00", source };
        let stage = |source| archive.stage(lease, &EntryName(b"a".to_vec()), part(source)).unwrap();
        assert_eq!((stage(Source::Bytes(b"abc")).length, stage(Source::Spool(&spooled)).length), (3, 4));
        assert_eq!(stage(Source::Bytes(b"")).place, EntryName(Vec::new()));
        assert!(!spooled.exists());
        fs::write(&spooled, b"half").unwrap();
        assert_eq!(archive.sweep(&|_| true).unwrap(), 1, "what a crash left in the spool goes with the next start");
    }
}
