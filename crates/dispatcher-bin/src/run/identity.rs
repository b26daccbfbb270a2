//! What a results folder is the result of: input folder, command, naming.
//!
//! Owns the check that nobody mixes the results of two commands in one folder.

use crate::cli::RunArgs;
use crate::exit::Exit;
use crate::state::{STATE, StateDir};
use dispatcher_core::id::EntryName;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What must stay the same from one start to the next.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    dir: EntryName,
    exec: String,
    shell: bool,
    ext: Option<String>,
}

/// Refuses a results folder whose database is gone: everything would be done again, in place of what is there.
pub fn check_database(out: &Path, state: &StateDir) -> anyhow::Result<()> {
    if state.has_database() || !has_results(out)? {
        return Ok(());
    }
    if !state.identity().exists() {
        crate::say(&format!("note: {} is not empty: results replace files of the same name", out.display()));
        return Ok(());
    }
    Err(Exit::usage(format!(
        "{} has results, and their database {} is gone: restore it from a backup, or remove the folder to begin anew",
        out.display(),
        state.database().display()
    )))
}

/// Whether anything but the state lies in OUT.
fn has_results(out: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(out)? {
        if entry?.file_name() != STATE {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that OUT belongs to this command, or makes it so.
pub fn claim_out(args: &RunArgs, dir: &Path, out: &Path, state: &StateDir) -> anyhow::Result<()> {
    let ours = Identity {
        dir: EntryName(dir.as_os_str().as_bytes().to_vec()),
        exec: args.exec.clone(),
        shell: args.shell,
        ext: args.ext.clone(),
    };
    let path = state.identity();
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return write(&path, &ours),
        Err(e) => return Err(e.into()),
    };
    let theirs: Identity = serde_json::from_slice(&bytes)
        .map_err(|e| Exit::usage(format!("{} cannot be read ({e}): choose another --out", path.display())))?;
    let differs = if ours.dir != theirs.dir {
        format!("the inputs of {}, not of {}", theirs.dir, ours.dir)
    } else if ours.exec != theirs.exec || ours.shell != theirs.shell {
        format!("the command `{}`, not `{}`", theirs.exec, ours.exec)
    } else if ours.ext != theirs.ext {
        let named = |ext: &Option<String>| ext.as_ref().map_or("no --ext".to_owned(), |e| format!("--ext {e}"));
        format!("a run with {}, not with {}", named(&theirs.ext), named(&ours.ext))
    } else {
        return Ok(());
    };
    Err(Exit::usage(format!(
        "{} holds the results of {differs}: choose another folder with --out, or remove this one first",
        out.display()
    )))
}

/// Writes it in one piece: a crash leaves all of it or nothing.
fn write(path: &Path, identity: &Identity) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec_pretty(identity)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
