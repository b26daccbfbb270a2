//! The outbox on disk: one record per result, and one file beside it for each large part.
//!
//! A record is `<number>.result`: the mark, the header's length, the header as JSON, and the bytes of the small parts one
//! after the other. Large parts are `<number>.part<n>` and synced before the record. The record is written under another
//! name, synced and renamed, and the folder synced: so a record that is there is whole, and what has no record is a
//! crash's and removed at the next start.

use super::{Body, Waiting, move_file, remove};
use crate::delivery::{Delivery, parts_of};
use crate::scratch::lock;
use crate::work::PartBody;
use dispatcher_core::wire::{FromWorker, TokenText};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The beginning of every record.
const MARK: &[u8; 8] = b"DSPOUT1\n";
/// The longest header that is read back, in bytes.
const HEADER_MAX: u32 = 1024 * 1024;

/// The folder of an outbox, locked.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    _lock: File,
}

/// The header of a record.
#[derive(Serialize, Deserialize)]
struct Header {
    message: FromWorker,
    /// For each part whether it is a file of its own.
    apart: Vec<bool>,
}

/// What was found in a folder.
type Found = Vec<(TokenText, Waiting)>;

impl Disk {
    /// Opens the folder, makes it where it is not there, and reads what is in it. The last value is the first free number.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Found, u64)> {
        fs::create_dir_all(folder)?;
        let folder = folder.canonicalize()?;
        let disk = Self { _lock: lock(&folder)?, folder };
        let (mut found, mut next, mut others) = (Vec::new(), 0, Vec::new());
        for entry in fs::read_dir(&disk.folder)? {
            let path = entry?.path();
            let Some(number) = number_of(&path) else { continue };
            next = next.max(number.saturating_add(1));
            if path.extension().is_some_and(|extension| extension == "result") {
                match disk.read(number, &path) {
                    Ok(one) => found.push(one),
                    Err(e) => {
                        tracing::error!(record = %path.display(), error = %e, "a record of the outbox is damaged and dropped");
                        others.push(path);
                    }
                }
            } else {
                others.push(path);
            }
        }
        let kept =
            |path: &PathBuf| found.iter().any(|(_, waiting): &(TokenText, Waiting)| waiting.files.contains(path));
        others.iter().filter(|path| !kept(path)).for_each(|path| remove(path));
        Ok((disk, found, next))
    }

    /// Writes a result so that it survives a power cut from now on.
    pub(super) fn write(&self, number: u64, delivery: Delivery) -> io::Result<Waiting> {
        let mut files = Vec::new();
        let written = self.write_files(number, delivery, &mut files);
        if written.is_err() {
            files.iter().for_each(|file| remove(file));
        }
        written
    }

    fn write_files(&self, number: u64, delivery: Delivery, files: &mut Vec<PathBuf>) -> io::Result<Waiting> {
        let apart: Vec<bool> = delivery.bodies.iter().map(|body| matches!(body, PartBody::File(_))).collect();
        let header = serde_json::to_vec(&Header { message: delivery.message.clone(), apart })?;
        let header_len = u32::try_from(header.len()).map_err(io::Error::other)?;
        let mut record = [&MARK[..], &header_len.to_le_bytes(), &header].concat();
        let mut bodies = Vec::new();
        for (n, body) in delivery.bodies.into_iter().enumerate() {
            bodies.push(match body {
                PartBody::Bytes(bytes) => {
                    record.extend_from_slice(&bytes);
                    Body::Here(bytes)
                }
                PartBody::File(from) => {
                    let to = self.part_path(number, n);
                    files.push(to.clone());
                    move_file(&from, &to)?;
                    File::open(&to)?.sync_all()?;
                    Body::In { file: to, offset: 0, length: part_size(&delivery.message, n) }
                }
            });
        }
        let (draft, path) = (self.path(number, "draft"), self.path(number, "result"));
        files.push(draft.clone());
        let mut file = File::create_new(&draft)?;
        file.write_all(&record)?;
        file.sync_all()?;
        files.push(path.clone());
        fs::rename(&draft, &path)?;
        File::open(&self.folder)?.sync_all()?;
        files.retain(|file| *file != draft);
        // The record goes first when the result is forgotten: parts without a record are removed at the next start.
        files.reverse();
        Ok(Waiting { message: delivery.message, bodies, files: files.clone() })
    }

    /// Reads a record back. It is whole, or it is an error.
    fn read(&self, number: u64, path: &Path) -> io::Result<(TokenText, Waiting)> {
        let mut file = File::open(path)?;
        let mut start = [0; 12];
        file.read_exact(&mut start)?;
        let (mark, length) = start.split_at(MARK.len());
        let length = length.try_into().map(u32::from_le_bytes).map_err(io::Error::other)?;
        if mark != MARK || length > HEADER_MAX {
            return Err(io::Error::other("not a record"));
        }
        let mut header = Vec::new();
        Read::by_ref(&mut file).take(u64::from(length)).read_to_end(&mut header)?;
        let Header { message, apart } = serde_json::from_slice(&header)?;
        let token = match &message {
            FromWorker::Result { token, .. } | FromWorker::Retryable { token, .. } => token.clone(),
            _ => return Err(io::Error::other("a record of no result")),
        };
        if apart.len() != parts_of(&message).len() {
            return Err(io::Error::other("parts are missing"));
        }
        let mut files = vec![path.to_owned()];
        let mut end = start.len() as u64 + u64::from(length);
        let mut bodies = Vec::new();
        for (n, apart) in apart.into_iter().enumerate() {
            let length = part_size(&message, n);
            let (file, offset) = if apart {
                let file = self.part_path(number, n);
                has_length(&file, length)?;
                files.push(file.clone());
                (file, 0)
            } else {
                end += length;
                (path.to_owned(), end - length)
            };
            bodies.push(Body::In { file, offset, length });
        }
        has_length(path, end)?;
        Ok((token, Waiting { message, bodies, files }))
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{number:016x}.{extension}"))
    }

    fn part_path(&self, number: u64, n: usize) -> PathBuf {
        self.path(number, &format!("part{n}"))
    }
}

fn part_size(message: &FromWorker, n: usize) -> u64 {
    parts_of(message).get(n).map_or(0, |part| part.size)
}

/// The number in the name of one of our files; others are left alone.
fn number_of(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let extension = path.extension()?.to_str()?;
    let ours = extension == "result" || extension == "draft" || extension.starts_with("part");
    if ours && stem.len() == 16 { u64::from_str_radix(stem, 16).ok() } else { None }
}

fn has_length(path: &Path, length: u64) -> io::Result<()> {
    let found = fs::metadata(path)?.len();
    if found == length { Ok(()) } else { Err(io::Error::other(format!("{found} bytes where {length} are expected"))) }
}
