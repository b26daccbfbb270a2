//! How the system's allocator treats large pieces of memory.
//!
//! Owns one of its knobs. The C library gives a large piece back to the system when it is freed, until it has seen a larger
//! one: then pieces of that size are kept for later, in each of its arenas. Inputs and results of many megabytes pass through
//! a server, and after twenty of 20 MB it keeps 97 MB instead of 15. The knob is read at the start of a process and has no safe
//! call, so a server that finds it unset starts itself once more with it, under the same process id.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The knob of glibc; other libraries do not know it.
const KNOB: &str = "MALLOC_MMAP_THRESHOLD_";
/// From this size on a piece goes back when it is freed, in bytes.
const LARGE: &str = "1048576";

/// Starts the program once more with the knob set, unless it is set or the system will not have it.
pub fn give_large_pieces_back() {
    if !cfg!(target_env = "gnu") || std::env::var_os(KNOB).is_some() {
        return;
    }
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    // By its own path, so that it keeps the name by which people find it in lists of processes.
    let Ok(program) = std::env::current_exe() else { return };
    // It returns only where nothing came of it; then all goes on as it is.
    let why = Command::new(program).arg0(name).args(args).env(KNOB, LARGE).exec();
    tracing::debug!("freed memory is not given back at once: {why}");
}
