//! The guards of an `ipc://` address before it is bound.
//!
//! The implementation removes whatever lies at the path, even a live server's socket. Owns what comes before: the folder
//! that keeps other users out, the lock that keeps other dispatchers out, and a look for servers that do not know the lock.

use super::{Endpoint, SocketError};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// The right to bind one path. The system takes it back when the process ends, however it ends.
///
/// The lock file stays: removing it would let two processes hold a lock on two files of one name.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: File,
}

/// Claims `path` for this process.
///
/// # Errors
/// [`SocketError::InUse`] where somebody holds the lock or listens there, [`SocketError::Folder`] where others could
/// enter the folder, [`SocketError::Refused`] where something lies there that is no socket, [`SocketError::File`].
pub(super) async fn claim(path: &Path, endpoint: &Endpoint) -> Result<Claim, SocketError> {
    guard_folder(folder_of(path))?;
    let lock = lock(path, endpoint)?;
    look(path, endpoint).await?;
    Ok(Claim { _lock: lock })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Makes the folder where it is missing, and refuses one that is not this user's alone.
fn guard_folder(folder: &Path) -> Result<(), SocketError> {
    let refuse = |why: String| SocketError::Folder { path: folder.to_path_buf(), why };
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(refuse("is not a folder".to_owned())),
        done => done.map_err(|source| file_error("cannot make the folder", folder, source))?,
    }
    let facts = fs::metadata(folder).map_err(|source| file_error("cannot look at the folder", folder, source))?;
    let me = rustix::process::geteuid().as_raw();
    if facts.uid() != me {
        let why =
            format!("belongs to user {}, and a socket of user {me} is safe only in a folder of its own", facts.uid());
        return Err(refuse(why));
    }
    if facts.mode() & 0o077 != 0 {
        let why = format!(
            "other users may enter it (mode {:o}): make it private with `chmod 700`, or choose another folder",
            facts.mode() & 0o777
        );
        return Err(refuse(why));
    }
    Ok(())
}

fn lock(path: &Path, endpoint: &Endpoint) -> Result<File, SocketError> {
    let name = lock_path(path);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&name)
        .map_err(|source| file_error("cannot open the lock file", &name, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = format!("another process holds its lock, {}", name.display());
            Err(SocketError::InUse { endpoint: endpoint.clone(), why })
        }
        Err(TryLockError::Error(source)) => Err(file_error("cannot lock", &name, source)),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lock");
    PathBuf::from(name)
}

/// Makes sure that nobody listens at `path`, and that nothing but a socket lies there: it is going to be removed.
async fn look(path: &Path, endpoint: &Endpoint) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(file_error("cannot look at", path, source)),
        Ok(facts) if !facts.file_type().is_socket() => {
            let why = format!("{} is there already and is no socket; it is left alone", path.display());
            return Err(SocketError::Refused { what: "cannot listen", why });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Ok(()),
        Ok(_) => Err(SocketError::InUse { endpoint: endpoint.clone(), why: "a server answers there".to_owned() }),
        // A full queue, for example: somebody is behind it.
        Err(e) => {
            Err(SocketError::InUse { endpoint: endpoint.clone(), why: format!("its server cannot be reached: {e}") })
        }
    }
}

fn file_error(what: &'static str, path: &Path, source: io::Error) -> SocketError {
    SocketError::File { what, path: path.to_path_buf(), source }
}
