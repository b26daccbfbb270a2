//! A result on its way in pieces: one file a part, hashed as it grows.
//!
//! Owns the files; they vanish with the value unless it is finished. Pieces of a part come in order, as they are asked
//! for; a piece out of order is an error of the worker.

use super::{PartBytes, Reported, hex};
use dispatcher_core::wire::PartSpec;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// One part under way.
struct PartFile {
    spec: PartSpec,
    path: PathBuf,
    file: File,
    written: u64,
    hash: Sha256,
}

/// The parts under way; their files are removed on drop.
struct PartFiles(Vec<PartFile>);

/// A result under way.
pub(super) struct Spooling {
    reported: Reported,
    files: PartFiles,
}

/// What a whole result turned out to be.
pub(super) enum Spooled {
    /// All bytes are those that were declared.
    Right { reported: Reported, bytes: Vec<PartBytes> },
    /// The bytes of `part` are others.
    Wrong { reported: Reported, part: String },
}

impl Spooling {
    /// Makes an empty file for each part.
    pub(super) fn begin(reported: Reported, folder: &Path) -> Result<Self, (Box<Reported>, io::Error)> {
        let mut files = PartFiles(Vec::new());
        for (n, spec) in reported.parts.iter().enumerate() {
            let path = folder.join(format!("{}.{n}", reported.lease));
            match File::create(&path) {
                Ok(file) => {
                    files.0.push(PartFile { spec: spec.clone(), path, file, written: 0, hash: Sha256::new() });
                }
                Err(e) => return Err((Box::new(reported), e)),
            }
        }
        Ok(Self { reported, files })
    }

    /// Appends a piece to its part. After an error that passes, the same piece may be written again.
    pub(super) fn write(&mut self, part: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let part = self.files.0.get_mut(part).ok_or_else(|| wrong("a piece of a part that was not declared"))?;
        let end = offset.saturating_add(bytes.len() as u64);
        if offset != part.written || end > part.spec.size {
            return Err(wrong("a piece that is not the next one of its part"));
        }
        if let Err(e) = part.file.write_all(bytes) {
            // Some of it may have been written; the next try begins where this one did.
            part.file.set_len(part.written)?;
            part.file.seek(SeekFrom::Start(part.written))?;
            return Err(e);
        }
        part.hash.update(bytes);
        part.written = end;
        Ok(())
    }

    /// Whether the last byte is there.
    pub(super) fn is_whole(&self) -> bool {
        self.files.0.iter().all(|p| p.written == p.spec.size)
    }

    /// The result, if its bytes are right.
    pub(super) fn finish(mut self) -> Spooled {
        let wrong = self.files.0.iter_mut().find_map(|p| {
            let found = hex(&std::mem::take(&mut p.hash).finalize());
            (found != p.spec.sha256).then(|| p.spec.name.clone())
        });
        if let Some(part) = wrong {
            return Spooled::Wrong { reported: self.reported, part };
        }
        let bytes = std::mem::take(&mut self.files.0).into_iter().map(|p| PartBytes::Spool(p.path)).collect();
        Spooled::Right { reported: self.reported, bytes }
    }

    /// What was reported, without its bytes.
    pub(super) fn into_reported(self) -> Reported {
        self.reported
    }
}

impl Drop for PartFiles {
    fn drop(&mut self) {
        for part in &self.0 {
            // A file that stays is swept at the next start.
            let _ = std::fs::remove_file(&part.path);
        }
    }
}
