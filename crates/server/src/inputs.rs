//! Reading inputs away from the router: a slow disk, a named pipe or a vanished file costs its own task and nobody else.
//!
//! **Owns** the reader threads, the check that an input is the one that was imported, and the time limit of a read.
//! **Refuses to know** leases, workers and stores; a job carries a tag that comes back with the answer.
//!
//! Invariants: only regular files are read; a read that hangs is given up after its limit and its thread replaced, up
//! to a cap; what is read is never more than was asked for.

use crate::mailbox::Outlet;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use dispatcher_core::report::{Message, Severity};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reader threads at first.
const READERS: usize = 2;
/// Reader threads at most: each beyond the first ones stands in for one that hangs in the system.
const READERS_MAX: usize = 32;

/// What to read.
#[derive(Debug)]
pub struct Job<T> {
    /// Comes back with the answer.
    pub tag: T,
    /// The file.
    pub path: PathBuf,
    /// Its size at import, in bytes.
    pub size: u64,
    /// Its time at import, in nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes; none to only check the file.
    pub length: usize,
}

/// What came of a job.
#[derive(Debug)]
pub struct Answered<T> {
    /// The job's tag.
    pub tag: T,
    /// The bytes, or what is wrong with the input.
    pub outcome: Result<Bytes, InputFault>,
}

/// What is wrong with an input.
#[derive(Debug, thiserror::Error)]
pub enum InputFault {
    /// It is not there.
    #[error("the input is gone: {0}")]
    Missing(PathBuf),
    /// It is another file than the one that was imported.
    #[error("the input has changed since it was imported: {path} had {then} bytes, has {now}; or its time differs")]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its size at import.
        then: u64,
        /// Its size now.
        now: u64,
    },
    /// It is a folder, a pipe, a device.
    #[error("the input is no regular file: {0}")]
    NotRegular(PathBuf),
    /// The system refuses it.
    #[error("the input cannot be read: {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It took too long.
    #[error("the input could not be read within {seconds} s: {path}")]
    TooSlow {
        /// The file.
        path: PathBuf,
        /// The limit, in seconds.
        seconds: u64,
    },
}

impl InputFault {
    /// Whether another try may help.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::TooSlow { .. } | Self::Unreadable { .. })
    }

    /// The fault as a stored reason.
    #[must_use]
    pub fn reason(&self) -> Message {
        let what = match self {
            Self::Missing(_) => "input_missing",
            Self::Changed { .. } => "input_changed",
            Self::NotRegular(_) => "input_not_regular",
            Self::Unreadable { .. } => "input_unreadable",
            Self::TooSlow { .. } => "input_timeout",
        };
        Message {
            severity: Severity::Fatal,
            category: "dispatcher".to_owned(),
            what: what.to_owned(),
            details: self.to_string(),
        }
    }
}

/// The readers.
#[derive(Debug)]
pub struct Inputs<T> {
    jobs: Sender<Job<T>>,
    queue: Receiver<Job<T>>,
    answers: Outlet<Answered<T>>,
    threads: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Inputs<T> {
    /// Starts the readers; at most `queue` jobs wait for one.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(queue: usize, answers: Outlet<Answered<T>>) -> io::Result<Self> {
        let (jobs, waiting) = bounded(queue);
        let inputs = Self { jobs, queue: waiting, answers, threads: Arc::new(AtomicUsize::new(0)) };
        for _ in 0..READERS {
            inputs.add_reader()?;
        }
        Ok(inputs)
    }

    /// Hands a job in, or gives it back where too many wait.
    ///
    /// # Errors
    /// The job itself.
    pub fn submit(&self, job: Job<T>) -> Result<(), Job<T>> {
        self.jobs.try_send(job).map_err(TrySendError::into_inner)
    }

    /// Another reader, because one hangs. Does nothing at the cap.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn add_reader(&self) -> io::Result<()> {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= READERS_MAX {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let (queue, answers) = (self.queue.clone(), self.answers.clone());
        std::thread::Builder::new().name("inputs".to_owned()).spawn(move || read_jobs(&queue, &answers))?;
        Ok(())
    }
}

/// A reader's life: ends when the router is gone.
fn read_jobs<T>(queue: &Receiver<Job<T>>, answers: &Outlet<Answered<T>>) {
    for job in queue {
        let outcome = read(&job.path, job.size, job.mtime_ns, job.offset, job.length);
        if !answers.send(Answered { tag: job.tag, outcome }) {
            return;
        }
    }
}

/// Reads a piece of an input that must be the file that was imported.
fn read(path: &Path, size: u64, mtime_ns: i64, offset: u64, length: usize) -> Result<Bytes, InputFault> {
    let fault = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => InputFault::Missing(path.to_owned()),
        _ => InputFault::Unreadable { path: path.to_owned(), source },
    };
    let mut file = open_without_waiting(path).map_err(fault)?;
    let meta = file.metadata().map_err(fault)?;
    if !meta.is_file() {
        return Err(InputFault::NotRegular(path.to_owned()));
    }
    let changed = |now| InputFault::Changed { path: path.to_owned(), then: size, now };
    if meta.len() != size || mtime_of(&meta) != mtime_ns {
        return Err(changed(meta.len()));
    }
    if length == 0 {
        return Ok(Bytes::new());
    }
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(fault)?;
    }
    let mut bytes = vec![0; length];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes.into()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(changed(offset)),
        Err(e) => Err(fault(e)),
    }
}

/// Opens a file; a pipe without a writer does not hold the open up.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(nonblock).open(path)
}

/// A file's time in nanoseconds since the Unix epoch; import and check must agree on it.
#[must_use]
pub fn mtime_of(meta: &std::fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::mailbox;

    fn seen(path: &Path) -> (u64, i64) {
        let meta = std::fs::metadata(path).unwrap();
        (meta.len(), mtime_of(&meta))
    }

    #[test]
    fn a_piece_of_the_imported_file_is_read_to_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"0123456789").unwrap();
        let (size, mtime) = seen(&path);
        assert_eq!(read(&path, size, mtime, 3, 4).unwrap(), &b"3456"[..]);
        assert_eq!(read(&path, size, mtime, 0, 10).unwrap(), &b"0123456789"[..]);
    }

    #[test]
    fn a_changed_missing_or_special_input_is_a_named_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"one").unwrap();
        let (size, mtime) = seen(&path);
        std::fs::write(&path, b"three").unwrap();
        let named = |outcome: Result<Bytes, InputFault>| outcome.unwrap_err().reason().what;
        assert_eq!(named(read(&path, size, mtime, 0, 3)), "input_changed");
        assert_eq!(named(read(&dir.path().join("b"), 1, 0, 0, 1)), "input_missing");
        assert_eq!(named(read(dir.path(), 1, 0, 0, 1)), "input_not_regular");
    }

    // Case F69.
    #[test]
    fn a_named_pipe_without_a_writer_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (outlet, answers) = mailbox(4);
        let inputs = Inputs::start(4, outlet).unwrap();
        inputs.submit(Job { tag: 1, path: pipe, size: 0, mtime_ns: 0, offset: 0, length: 1 }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(answers.noticed());
        let answer = answers.try_next().unwrap();
        assert_eq!(answer.outcome.unwrap_err().reason().what, "input_not_regular");
    }
}
