//! The thread that reads and writes large files for the link, so that a slow disk never keeps back a beat (case F69).
//!
//! Owns nothing: each request says all that it needs, and its answer goes to the link as an event.

use crate::outbox::Waiting;
use bytes::Bytes;
use crossbeam_channel::Receiver;
use dispatcher_core::wire::TokenText;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Something to be done with a file.
#[derive(Debug)]
pub(crate) enum FileJob {
    /// Writes a piece of an input that is being fetched.
    Write { token: TokenText, path: PathBuf, offset: u64, bytes: Bytes },
    /// Reads all parts of a small result.
    Load { token: TokenText, waiting: Arc<Waiting>, connection: u64 },
    /// Reads a piece of a part.
    Piece { token: TokenText, waiting: Arc<Waiting>, name: String, offset: u64, length: u64, connection: u64 },
    /// Removes an input that was fetched and is not needed.
    Remove { path: PathBuf },
    /// Removes a result that was answered for.
    Forget { token: TokenText },
}

/// What came of it. Removing has no answer.
#[derive(Debug)]
pub(crate) enum FileDone {
    /// A piece of an input is written, up to this byte.
    Written { token: TokenText, upto: io::Result<u64> },
    /// All parts of a small result.
    Loaded { token: TokenText, waiting: Arc<Waiting>, bodies: io::Result<Vec<Bytes>>, connection: u64 },
    /// A piece of a part; `None` where there is none.
    Piece { token: TokenText, name: String, offset: u64, bytes: io::Result<Option<Bytes>>, connection: u64 },
}

/// Does every job that comes, until there will be no more.
pub(crate) fn work_on(jobs: &Receiver<FileJob>, forget: impl Fn(&TokenText), done: impl Fn(FileDone)) {
    for job in jobs {
        match job {
            FileJob::Write { token, path, offset, bytes } => {
                let upto = write(&path, offset, &bytes).map(|()| offset.saturating_add(bytes.len() as u64));
                done(FileDone::Written { token, upto });
            }
            FileJob::Load { token, waiting, connection } => {
                let bodies = waiting.read_bodies();
                done(FileDone::Loaded { token, waiting, bodies, connection });
            }
            FileJob::Piece { token, waiting, name, offset, length, connection } => {
                let bytes = waiting.piece(&name, offset, length);
                done(FileDone::Piece { token, name, offset, bytes, connection });
            }
            FileJob::Remove { path } => {
                if let Err(e) = std::fs::remove_file(&path)
                    && e.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(file = %path.display(), error = %e, "a fetched input could not be removed");
                }
            }
            FileJob::Forget { token } => forget(&token),
        }
    }
}

fn write(path: &PathBuf, offset: u64, bytes: &[u8]) -> io::Result<()> {
    File::options().create(true).truncate(false).write(true).open(path)?.write_all_at(bytes, offset)
}
