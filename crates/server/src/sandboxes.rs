//! What goes with a sandbox that is dropped.
//!
//! Owns the way from what is stored of a task to its files in the archive, by the sandbox's own name: never to a file of
//! its parent. Who carries the drop out, a dispatcher or a command, calls it before the rows go.

use crate::finaliser::names::ResultNames;
use dispatcher_store::Doomed;
use dispatcher_store::archive::{Archive, ArchiveError};

/// Removes the files of one attempt of a sandbox's task. Doing it twice is the same as once.
///
/// # Errors
/// Where the archive cannot remove one.
pub fn remove_files(archive: &dyn Archive, naming: ResultNames, gone: &Doomed) -> Result<(), ArchiveError> {
    let Some(kind) = gone.corpus.kind else { return Ok(()) };
    let name = naming.name(&gone.service, &gone.corpus.name, kind, &gone.entry);
    archive.remove(gone.lease, &name, &gone.parts)
}
