//! Results as files in a folder.
//!
//! Owns that a file there is whole or not there: it is written under another name and renamed; and that what is there and
//! right is left alone. The other names lie in one folder, which one export has at a time and clears.

use super::Report;
use super::results::{Found, Results, Written};
use crate::exit::{self, Exit};
use anyhow::Context;
use dispatcher_store::archive::Checked;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where files grow.
const GROWING: &str = ".dispatcher-export";

/// Exports into a folder.
pub fn export(mut results: Results<'_>, out: &Path) -> anyhow::Result<Report> {
    let growing = Growing::make(out)?;
    let mut report = Report::default();
    while let Some((task, found)) = results.next()? {
        let Some(mut found) = found else {
            report.without += 1;
            continue;
        };
        if let Some(why) = results.refused(&found.name) {
            report.refuse(task, &why);
            continue;
        }
        let path = out.join(OsStr::from_bytes(&found.name.0));
        if is_there(&path, &found) {
            report.already += 1;
            continue;
        }
        match growing.put(&results, &mut found, &path)? {
            Ok(bytes) => {
                report.exported += 1;
                report.bytes += bytes;
            }
            Err(why) => report.fault(task, &why),
        }
    }
    growing.remove();
    Ok(report)
}

/// Whether the file is there and right.
fn is_there(path: &Path, found: &Found) -> bool {
    let length = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    if length != Some(found.part.length) {
        return false;
    }
    let Ok(file) = File::open(path) else { return false };
    let mut file = Checked::new(file);
    io::copy(&mut file, &mut io::sink()).is_ok() && file.fault(&found.part).is_none()
}

/// The folder of files that are not whole.
struct Growing {
    folder: PathBuf,
    #[expect(dead_code, reason = "the lock lasts as long as the open folder")]
    lock: File,
}

impl Growing {
    fn make(out: &Path) -> anyhow::Result<Self> {
        let folder = out.join(GROWING);
        fs::create_dir_all(&folder)
            .map_err(|e| Exit::usage(format!("cannot make {}: {e}; name another with --out", folder.display())))?;
        let lock = File::open(&folder)?;
        if lock.try_lock().is_err() {
            let why = format!("another export writes to {}: wait for it, or name another with --out", out.display());
            return Err(Exit::with(exit::LOCKED, why));
        }
        for left in fs::read_dir(&folder)? {
            fs::remove_file(left?.path()).context("cannot clear what an interrupted export has left")?;
        }
        Ok(Self { folder, lock })
    }

    /// Writes a result and gives it its name, or says why it cannot be.
    fn put(&self, results: &Results<'_>, found: &mut Found, path: &Path) -> anyhow::Result<Result<u64, String>> {
        let place = self.folder.join(found.publication.lease.to_string());
        let room = |e: io::Error| anyhow::anyhow!("cannot write to {}: {e}", self.folder.display());
        let (file, written) = results.write(found, |_| File::create(&place).map(BufWriter::new))?;
        let bytes = match written {
            Written::Whole(bytes) => bytes,
            Written::Not(why) => {
                fs::remove_file(&place).map_err(room)?;
                return Ok(Err(why));
            }
        };
        if let Some(mut file) = file {
            file.flush().map_err(room)?;
        }
        let parent = path.parent().unwrap_or(Path::new("."));
        let placed = fs::create_dir_all(parent).and_then(|()| fs::rename(&place, path));
        match placed {
            Ok(()) => Ok(Ok(bytes)),
            Err(e) => {
                fs::remove_file(&place).map_err(room)?;
                Ok(Err(format!("it cannot be put at {}: {e}", path.display())))
            }
        }
    }

    fn remove(self) {
        // One that stays is cleared by the next export.
        drop(fs::remove_dir(self.folder));
    }
}
