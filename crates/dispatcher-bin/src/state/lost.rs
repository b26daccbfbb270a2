//! Whether a state folder has lost its database.
//!
//! Owns what is taken as a sign of that: results without a database, or with one that never stored any. Where there is one,
//! no database is made and none goes to work: by its word the results would be swept away as what nobody needs.

use super::{StateDir, store_error};
use crate::archive;
use crate::exit::Exit;
use crate::settings::ArchiveKind;
use dispatcher_store::Store;
use dispatcher_store::archive::packs;
use std::path::Path;

/// Refuses to make a database beside results.
pub fn check_file(state: &StateDir) -> anyhow::Result<()> {
    if state.has_database() {
        return Ok(());
    }
    let lost = if state.database().exists() { "is empty" } else { "is missing" };
    match results_in(state)? {
        Some(found) => Err(refused(state, lost, &found)),
        None => Ok(()),
    }
}

/// Refuses a database that never stored a result beside packs with some.
pub async fn check_rows(state: &StateDir, store: &dyn Store) -> anyhow::Result<()> {
    if store.has_worked().await.map_err(|e| store_error(&e))? {
        return Ok(());
    }
    match packed(state)? {
        Some(found) => Err(refused(state, "knows of none", &found)),
        None => Ok(()),
    }
}

fn refused(state: &StateDir, lost: &str, found: &str) -> anyhow::Error {
    Exit::usage(format!(
        "{found}, and their database {} {lost}. Nothing was changed. Put the database back, from a backup or from where it \
         was moved to, and give the command again; or leave this folder as it is and begin anew in another one with --state",
        state.database().display()
    ))
}

/// Results of a server's state folder, in words.
fn results_in(state: &StateDir) -> anyhow::Result<Option<String>> {
    if let Some(found) = packed(state)? {
        return Ok(Some(found));
    }
    // A note on trial is of a start that nothing was stored after.
    let Some(choice) = archive::passed(state)? else { return Ok(None) };
    let has_files = choice.kind == ArchiveKind::Files
        && [&choice.results, &state.path().join("staging")].into_iter().any(|folder| has_file(folder));
    Ok(has_files.then(|| format!("{} has results", choice.results.display())))
}

fn packed(state: &StateDir) -> anyhow::Result<Option<String>> {
    let packs = packs::filled(state.path())?;
    let folder = state.path().join("packs");
    let (folder, files) = (folder.display(), if packs == 1 { "pack" } else { "packs" });
    let told = || format!("{folder} has {packs} {files} of results (`tar tf` lists and `tar xf` extracts them)");
    Ok((packs > 0).then(told))
}

/// Whether a file lies anywhere below a folder; what cannot be looked into may have some.
fn has_file(folder: &Path) -> bool {
    let Ok(found) = std::fs::read_dir(folder) else { return folder.exists() };
    found.into_iter().any(|entry| {
        entry.is_ok_and(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => has_file(&entry.path()),
            _ => true,
        })
    })
}
