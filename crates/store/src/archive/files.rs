//! One file for each result, in a folder that mirrors the inputs.
//!
//! Owns two folders on one file system: OUT, where people find results under the names of their inputs, and STATE, which
//! nobody else touches, with `spool/` (bytes that arrive in pieces), `staging/` (results before their commit) and
//! `attempts/` (what was kept of the output of programs; no rename is needed, since the names are not for people).
//!
//! Refuses to know rows. What is staged carries the lease and the checksum in its name, so the same bytes are staged
//! under the same name, and other bytes never replace what a row may refer to already.
//!
//! A crash between staging and commit leaves strays: those in `spool/` and `staging/` are swept at the next start; what lies
//! in `attempts/` is small and stays until its attempt is sent again or pruned.
//!
//! Invariants: a staged file is never cut short in place; no name of an entry leads out of OUT or into STATE; a publication
//! becomes durable with the next [`Archive::sync`], before the batch that marks it as done.

mod names;
mod stage;

pub use names::{Layout, check_relative};

use super::{Archive, ArchiveError, NewPart, Source, failed, hex, without_bytes};
use crate::model::{PartRef, Publication};
use dispatcher_core::id::{EntryName, LeaseId};
use dispatcher_core::wire::PART_RESULT;
use names::Names;
use sha2::{Digest, Sha256};
use stage::Pending;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a [`FileArchive`] lies and how it names results.
#[derive(Clone, Debug)]
pub struct FileArchiveOptions {
    /// OUT: results below it, under the names of their entries.
    pub out: PathBuf,
    /// STATE: the archive's own folder, on the same file system; it may lie in OUT.
    pub state: PathBuf,
    /// How results are named.
    pub layout: Layout,
}

/// An [`Archive`] of one file for each result.
#[derive(Debug)]
pub struct FileArchive {
    names: Names,
    spool: PathBuf,
    staging: PathBuf,
    /// An open folder of the file system, for one sync of all of it.
    anchor: File,
    pending: Pending,
}

impl FileArchive {
    /// Opens the archive, and makes its folders.
    ///
    /// # Errors
    /// [`ArchiveError::Io`] where a folder cannot be made, or STATE and OUT are on different file systems, since a result
    /// is published by a rename.
    pub fn open(options: FileArchiveOptions) -> Result<Self, ArchiveError> {
        let FileArchiveOptions { out, state, layout } = options;
        let (spool, staging) = (state.join("spool"), state.join("staging"));
        for folder in [&out, &spool, &staging] {
            fs::create_dir_all(folder).map_err(|e| failed("making the folder", folder, e))?;
        }
        let device = |folder: &Path| fs::metadata(folder).map(|m| m.dev()).map_err(|e| failed("reading", folder, e));
        if device(&out)? != device(&staging)? {
            let why = "it must be on the same file system as the results, since they are renamed into place";
            return Err(failed("using", &state, io::Error::new(io::ErrorKind::CrossesDevices, why)));
        }
        let anchor = File::open(&staging).map_err(|e| failed("opening", &staging, e))?;
        let names = Names::new(out, state, layout).map_err(|(place, e)| failed("reading", &place, e))?;
        Ok(Self { names, spool, staging, anchor, pending: Pending::default() })
    }

    /// Where the result of `entry` will be found, below OUT.
    #[must_use]
    pub fn result_name(&self, entry: &EntryName) -> EntryName {
        self.names.layout().result_name(entry)
    }

    fn staged_path(&self, lease: LeaseId, part: &str, sha256: &str) -> PathBuf {
        self.staging.join(names::file_name(lease, part, sha256))
    }

    /// The file of a part once its result is published, or from the start for what is kept of a program's output.
    fn final_path(&self, part: &PartRef) -> PathBuf {
        let root = if part.name == PART_RESULT { self.names.out() } else { self.names.state() };
        root.join(names::path_of(&part.place))
    }

    fn move_into_place(&self, lease: LeaseId, part: &PartRef) -> Result<(), ArchiveError> {
        self.names.check_place(&part.place).map_err(|e| failed("publishing", self.names.out(), e))?;
        let (from, to) = (self.staged_path(lease, &part.name, &part.sha256), self.final_path(part));
        match self.rename_making_folders(&from, &to) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && has_length(&to, part.length) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !from.exists() => {
                Err(ArchiveError::Gone { place: to.display().to_string() })
            }
            Err(e) => Err(failed("publishing", &to, in_the_way(e))),
            Ok(()) => {
                self.pending.renamed(&self.staging, &to);
                Ok(())
            }
        }
    }

    fn rename_making_folders(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::rename(from, to) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && from.exists() => {
                if let Some(parent) = to.parent() {
                    self.pending.make_folders(parent)?;
                }
                fs::rename(from, to)
            }
            done => done,
        }
    }

    /// The file of a part at this moment: a result that is committed and not published yet is still staged.
    fn path_now(&self, publication: &Publication, part: &PartRef) -> PathBuf {
        let in_place = self.final_path(part);
        if part.name == PART_RESULT && !publication.published && !in_place.exists() {
            return self.staged_path(publication.lease, &part.name, &part.sha256);
        }
        in_place
    }

    fn check_part(
        &self,
        publication: &Publication,
        part: &PartRef,
        deep: bool,
    ) -> Result<Option<String>, ArchiveError> {
        if part.place.0.is_empty() {
            return Ok(None);
        }
        let path = self.path_now(publication, part);
        let complaint = |what: String| Ok(Some(format!("{} of {}: {what}", part.name, publication.entry)));
        // A link in a result's place is not the result, whatever it leads to.
        let length = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return complaint(format!("{} is missing", path.display()));
            }
            Err(e) => return Err(failed("reading", &path, e)),
            Ok(found) if !found.is_file() => return complaint(format!("{} is no file", path.display())),
            Ok(found) => found.len(),
        };
        if length != part.length {
            return complaint(format!("{} has {length} bytes, not {}", path.display(), part.length));
        }
        if deep {
            let found = checksum(&path).map_err(|e| failed("reading", &path, e))?;
            if found != part.sha256 {
                return complaint(format!("{} has the checksum {found}, not {}", path.display(), part.sha256));
            }
        }
        Ok(None)
    }
}

impl Archive for FileArchive {
    fn spool(&self) -> &Path {
        &self.spool
    }

    fn stage(&self, lease: LeaseId, entry: &EntryName, part: NewPart<'_>) -> Result<PartRef, ArchiveError> {
        let is_result = part.name == PART_RESULT;
        let length = match part.source {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Spool(path) => {
                // An earlier try of the same batch may have moved it already.
                let staged = || fs::metadata(self.staged_path(lease, part.name, part.sha256));
                fs::metadata(path).or_else(|e| staged().map_err(|_| e)).map_err(|e| failed("reading", path, e))?.len()
            }
        };
        let refer = |place: EntryName| PartRef {
            name: part.name.to_owned(),
            place,
            offset: 0,
            length,
            sha256: part.sha256.to_owned(),
        };
        let (place, path) = if is_result {
            let place =
                self.names.result_place(entry).map_err(|e| failed("naming the result of", self.names.out(), e))?;
            (place, self.staged_path(lease, part.name, part.sha256))
        } else if length == 0 {
            // A program that says nothing leaves nothing.
            if let Source::Spool(path) = part.source {
                fs::remove_file(path).map_err(|e| failed("removing", path, e))?;
            }
            return Ok(refer(EntryName(Vec::new())));
        } else {
            let place = names::log_place(lease, part.name, part.sha256);
            let path = self.names.state().join(names::path_of(&place));
            (place, path)
        };
        self.pending.put(&path, &part.source, length, part.sha256).map_err(|e| failed("staging", &path, e))?;
        Ok(refer(place))
    }

    fn sync(&self) -> Result<(), ArchiveError> {
        self.pending.sync(&self.anchor).map_err(|(place, e)| failed("making results durable in", &place, e))
    }

    fn publish(&self, publication: &Publication) -> Result<(), ArchiveError> {
        let results = publication.parts.iter().filter(|part| part.name == PART_RESULT);
        results.into_iter().try_for_each(|part| self.move_into_place(publication.lease, part))
    }

    fn discard(&self, lease: LeaseId, parts: &[PartRef]) -> Result<(), ArchiveError> {
        for part in parts.iter().filter(|part| !part.place.0.is_empty()) {
            let path = if part.name == PART_RESULT {
                self.staged_path(lease, &part.name, &part.sha256)
            } else {
                self.final_path(part)
            };
            self.pending.forget(&path);
            remove(&path)?;
        }
        Ok(())
    }

    fn remove(&self, lease: LeaseId, entry: &EntryName, parts: &[PartRef]) -> Result<(), ArchiveError> {
        self.discard(lease, parts)?;
        // A row is not believed: it could name another result's file.
        let Ok(own) = self.names.result_place(entry) else { return Ok(()) };
        if !parts.iter().any(|part| part.name == PART_RESULT && part.place == own) {
            return Ok(());
        }
        let path = self.names.out().join(names::path_of(&own));
        match fs::remove_file(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(failed("removing", &path, e)),
            Ok(()) => {}
        }
        // Folders that are empty now; the first one that is not ends it.
        let below = |folder: &&Path| folder.starts_with(self.names.out()) && *folder != self.names.out();
        for folder in path.ancestors().skip(1).take_while(below) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn sweep(&self, keep: &dyn Fn(LeaseId) -> bool) -> Result<u64, ArchiveError> {
        let mut removed = 0;
        for folder in [&self.spool, &self.staging] {
            for found in fs::read_dir(folder).map_err(|e| failed("reading", folder, e))? {
                let path = found.map_err(|e| failed("reading", folder, e))?.path();
                let lease = path.file_name().and_then(names::lease_of);
                let kept = folder == &self.staging && lease.is_some_and(keep);
                if !kept {
                    remove(&path)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn check(&self, publication: &Publication, deep: bool) -> Result<Vec<String>, ArchiveError> {
        let mut complaints = Vec::new();
        for part in &publication.parts {
            complaints.extend(self.check_part(publication, part, deep)?);
        }
        Ok(complaints)
    }

    fn read(&self, publication: &Publication, part: &PartRef) -> Result<Box<dyn Read + Send>, ArchiveError> {
        if part.place.0.is_empty() {
            return without_bytes(part);
        }
        self.names.check_place(&part.place).map_err(|e| failed("reading", self.names.out(), e))?;
        let staged = self.staged_path(publication.lease, &part.name, &part.sha256);
        // A result waits under its staged name until it is published; whose turn that is may come in between.
        let mut tries = vec![self.path_now(publication, part), staged, self.final_path(part)];
        tries.dedup();
        for path in &tries {
            match File::open(path) {
                Ok(file) => return Ok(Box::new(file)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(failed("reading", path, e)),
            }
        }
        Err(ArchiveError::Gone { place: self.final_path(part).display().to_string() })
    }
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("removing", path, e)),
        _ => Ok(()),
    }
}

fn has_length(path: &Path, length: u64) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == length)
}

fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 128 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}

/// What to do about a place that is taken.
fn in_the_way(error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty => {
            "a folder is in the way; move it away, and the result is published by itself"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in the way of its folder; move it away, and the result is published by itself"
        }
        io::ErrorKind::CrossesDevices => {
            "another file system is mounted there, and results are renamed into place; unmount it"
        }
        io::ErrorKind::PermissionDenied => {
            "the folder may not be written; give permission, and it is published by itself"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule D3.
    #[test]
    fn a_trouble_that_lasts_is_told_in_the_same_words_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let trouble = |doing, path: &Path| failed(doing, path, io::Error::from_raw_os_error(30)).trouble();
        let first = trouble("making the pack", &folder.path().join("00000007-0a0b0c0d.tar"));
        assert!(first.contains(folder.path().to_str().unwrap()) && first.contains("Read-only"), "{first}");
        assert_eq!(first, trouble("making the pack", &folder.path().join("00000008-01020304.tar")));
        assert_eq!(first, trouble("making new packs durable in", folder.path()));
    }

    // Rule D3.
    #[test]
    fn no_space_and_no_quota_are_told_apart_from_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path, code| failed("staging", path, io::Error::from_raw_os_error(code));
        for full in [28, 122] {
            for path in [folder.path(), &folder.path().join("00000007.tar")] {
                let ArchiveError::Full { place } = told(path, full) else { panic!("error {full} of the system") };
                assert_eq!(Path::new(&place), folder.path(), "each repeat says the same");
            }
        }
        assert!(
            matches!(told(folder.path(), 5), ArchiveError::Io { .. }),
            "an error of the device is no lack of space"
        );
    }
}
