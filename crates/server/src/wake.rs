//! A datagram that says "look at the store": another process has imported or commanded something.
//!
//! Owns the socket in the state folder. Says nothing but that; a datagram that is lost costs the 250 ms after which the
//! store is looked at anyway.

use crossbeam_channel::Sender;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::stage::StageFailure;

/// The socket's name in the state folder.
const NAME: &str = "wake";

/// The path of the socket in an open folder: however long the folder's own path is, this one fits into an address.
fn path_in(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))
}

/// The dispatcher's end.
#[derive(Debug)]
pub struct Wake {
    socket: UnixDatagram,
    /// The address leads through it.
    _folder: File,
}

impl Wake {
    /// Listens in the state folder, which the caller has locked: what lies there is of a process that is gone.
    ///
    /// # Errors
    /// Where the folder cannot be used.
    pub fn listen(folder: &Path) -> io::Result<Self> {
        let folder = File::open(folder)?;
        let path = path_in(&folder);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let socket = UnixDatagram::bind(&path)?;
        Ok(Self { socket, _folder: folder })
    }

    /// Passes every datagram on as a nudge, as long as the process lives.
    ///
    /// # Errors
    /// Where the socket fails.
    pub fn run(self, nudges: &Sender<()>) -> Result<(), StageFailure> {
        // What is said does not matter.
        let mut said = [0; 16];
        loop {
            match self.socket.recv(&mut said) {
                // One waiting nudge says as much as many.
                Ok(_) => drop(nudges.try_send(())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(StageFailure::System(format!("the wake socket failed: {e}"))),
            }
        }
    }
}

/// Wakes the dispatcher of a state folder, if there is one. Where it cannot be woken it looks by itself before long.
pub fn wake(folder: &Path) {
    let woken = File::open(folder).and_then(|folder| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(b"look", path_in(&folder))
    });
    if let Err(e) = woken {
        tracing::debug!("nobody was woken: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_dispatcher_is_woken_however_long_the_path_of_its_folder_is() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        wake(&deep);
        // A second start finds what the first one left.
        drop(Wake::listen(&deep).unwrap());
        let listening = Wake::listen(&deep).unwrap();
        let (nudges, nudged) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || listening.run(&nudges));
        wake(&deep);
        wake(&deep);
        nudged.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
