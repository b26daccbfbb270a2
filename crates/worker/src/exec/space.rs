//! Whether a program had room to write: a failure on a full disk says nothing about its input.
//!
//! Owns the threshold, and the wait for somebody to make room.

use crate::cancel::Cancel;
use std::path::Path;
use std::time::Duration;

/// With less room than this a failure is not believed, in bytes; on a small file system with less than a part of it.
const SCARCE: u64 = 16 * 1024 * 1024;
/// Which part of a small file system.
const PART: u64 = 16;
/// How programs say that they had none, in the words of the C library.
pub(super) const NO_SPACE: &str = "No space left on device";
/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Whether the file system of `folder` is as good as full. Where the system does not say, it is not.
pub(super) fn is_scarce(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|disk| {
        let (free, all) = (disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize));
        free < SCARCE.min(all / PART)
    })
}

/// Waits until there is room, which people make; `false` where the task was cancelled meanwhile.
pub(super) fn wait_for_room(folder: &Path, cancel: &Cancel) -> bool {
    if !is_scarce(folder) {
        return true;
    }
    tracing::warn!(folder = %folder.display(), "waiting for space for the command's files: free some, work goes on by itself");
    while is_scarce(folder) {
        if cancel.is_cancelled() {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}
