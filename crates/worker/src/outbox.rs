//! Results that are finished and not yet answered for (rule D7).
//!
//! **Owns** what is sent, and sent again, until an answer lets the worker forget it: in memory and scratch files for
//! workers that live and die with their dispatcher, or on disk so that a result also survives its worker. **Refuses to
//! know** connections and what an answer says.
//!
//! **Invariants**: on disk a result is synced before [`Outbox::put`] returns, so before anybody can send it; a crash at
//! any moment leaves it whole or not at all; large parts are files and pass in pieces, never whole through memory.

mod disk;

use crate::delivery::{Delivery, parts_of};
use crate::work::PartBody;
use bytes::Bytes;
use disk::Disk;
use dispatcher_core::wire::{FromWorker, TokenText};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where finished results wait for their answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxKind {
    /// In memory, large parts in the scratch folder: for workers that live and die with their dispatcher.
    Memory,
    /// In this folder, which belongs to this worker alone and survives it.
    Disk(PathBuf),
}

/// All finished results of this worker. Slots put, the link looks up and forgets.
#[derive(Debug)]
pub(crate) struct Outbox {
    by_token: Mutex<HashMap<TokenText, Arc<Waiting>>>,
    place: Place,
    next: AtomicU64,
}

#[derive(Debug)]
enum Place {
    Memory(PathBuf),
    Disk(Disk),
}

/// One result or cause.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// `result` or `retryable`.
    pub(crate) message: FromWorker,
    /// The bytes of its parts, in the order of the message.
    bodies: Vec<Body>,
    /// All files that are its alone.
    files: Vec<PathBuf>,
}

/// Where the bytes of a part are.
#[derive(Clone, Debug)]
enum Body {
    Here(Bytes),
    In { file: PathBuf, offset: u64, length: u64 },
}

impl Outbox {
    /// Opens an outbox; `kept` is where [`OutboxKind::Memory`] puts large parts. Returns what an earlier life of this
    /// worker left, each with its size in bytes.
    ///
    /// # Errors
    /// Where the folder cannot be used, or another worker uses it.
    pub(crate) fn open(kind: &OutboxKind, kept: PathBuf) -> io::Result<(Self, Vec<(TokenText, u64)>)> {
        let (place, found, next) = match kind {
            OutboxKind::Memory => (Place::Memory(kept), Vec::new(), 0),
            OutboxKind::Disk(folder) => {
                let (disk, found, next) = Disk::open(folder)?;
                (Place::Disk(disk), found, next)
            }
        };
        let sizes = found.iter().map(|(token, waiting)| (token.clone(), waiting.bytes())).collect();
        let by_token = found.into_iter().map(|(token, waiting)| (token, Arc::new(waiting))).collect();
        Ok((Self { by_token: Mutex::new(by_token), place, next: AtomicU64::new(next) }, sizes))
    }

    /// Takes a finished task in and returns its size in bytes. Files of large parts are moved away from where they are.
    ///
    /// # Errors
    /// Where it cannot be written or synced; then nothing of it stays.
    pub(crate) fn put(&self, token: &TokenText, delivery: Delivery) -> io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let waiting = match &self.place {
            Place::Memory(kept) => keep_in_memory(kept, number, delivery)?,
            Place::Disk(disk) => disk.write(number, delivery)?,
        };
        let bytes = waiting.bytes();
        self.lock().insert(token.clone(), Arc::new(waiting));
        Ok(bytes)
    }

    /// Takes in a cause that needs no disk, for when [`Self::put`] failed. It does not survive this worker.
    pub(crate) fn put_cause(&self, token: &TokenText, cause: Delivery) {
        let waiting = Waiting { message: cause.message, bodies: Vec::new(), files: Vec::new() };
        self.lock().insert(token.clone(), Arc::new(waiting));
    }

    /// How many results and causes would be lost with this worker.
    pub(crate) fn unsaved(&self) -> u64 {
        let is_disk = matches!(self.place, Place::Disk(_));
        self.lock().values().filter(|waiting| !is_disk || waiting.files.is_empty()).count() as u64
    }

    /// What waits for an answer under this token.
    pub(crate) fn get(&self, token: &TokenText) -> Option<Arc<Waiting>> {
        self.lock().get(token).cloned()
    }

    /// Forgets a result that has no files. Whether it had none: the disk is not waited for here.
    pub(crate) fn forget_without_files(&self, token: &TokenText) -> bool {
        let mut by_token = self.lock();
        let is_here = by_token.get(token).is_none_or(|waiting| waiting.files.is_empty());
        if is_here {
            by_token.remove(token);
        }
        is_here
    }

    /// Forgets a result, files and all.
    pub(crate) fn forget(&self, token: &TokenText) {
        let Some(waiting) = self.lock().remove(token) else { return };
        waiting.files.iter().for_each(|file| remove(file));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenText, Arc<Waiting>>> {
        // Every change of the map is one call: whoever panicked left it whole.
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The size of all parts together, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        parts_of(&self.message).iter().fold(0, |sum, part| sum.saturating_add(part.size))
    }

    /// The bytes of all parts where they are in memory already.
    pub(crate) fn bodies_here(&self) -> Option<Vec<Bytes>> {
        let here = |body: &Body| if let Body::Here(bytes) = body { Some(bytes.clone()) } else { None };
        self.bodies.iter().map(here).collect()
    }

    /// The bytes of all parts. Only for results that are small together.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(crate) fn read_bodies(&self) -> io::Result<Vec<Bytes>> {
        self.bodies.iter().map(|body| body.read(0, u64::MAX)).collect()
    }

    /// A piece of a part, shorter than `length` where the part ends before; `None` where there is no such piece.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(crate) fn piece(&self, name: &str, offset: u64, length: u64) -> io::Result<Option<Bytes>> {
        let place = parts_of(&self.message).iter().position(|part| part.name == name && offset < part.size);
        let body = place.and_then(|place| self.bodies.get(place));
        body.map(|body| body.read(offset, length)).transpose()
    }
}

impl Body {
    fn read(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        match self {
            Self::Here(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
                Ok(bytes.slice(from..to))
            }
            Self::In { file, offset: begin, length: whole } => {
                let length = length.min(whole.saturating_sub(offset));
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                File::open(file)?.read_exact_at(&mut bytes, begin.saturating_add(offset))?;
                Ok(Bytes::from(bytes))
            }
        }
    }
}

fn keep_in_memory(kept: &Path, number: u64, delivery: Delivery) -> io::Result<Waiting> {
    let mut waiting = Waiting { message: delivery.message, bodies: Vec::new(), files: Vec::new() };
    for (n, body) in delivery.bodies.into_iter().enumerate() {
        let body = match body {
            PartBody::Bytes(bytes) => Body::Here(bytes),
            PartBody::File(from) => {
                let to = kept.join(format!("{number}.{n}"));
                waiting.files.push(to.clone());
                if let Err(e) = move_file(&from, &to) {
                    waiting.files.iter().for_each(|file| remove(file));
                    return Err(e);
                }
                let length = parts_of(&waiting.message).get(n).map_or(0, |part| part.size);
                Body::In { file: to, offset: 0, length }
            }
        };
        waiting.bodies.push(body);
    }
    Ok(waiting)
}

/// Moves a file, by copying it where it has to go to another file system.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            fs::copy(from, to)?;
            fs::remove_file(from)
        }
        moved => moved,
    }
}

/// Removes a file that may be gone already.
fn remove(file: &Path) {
    if let Err(e) = fs::remove_file(file)
        && e.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), error = %e, "a file of the outbox could not be removed");
    }
}

#[cfg(test)]
mod tests;
