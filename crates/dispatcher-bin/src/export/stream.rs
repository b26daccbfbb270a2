//! Results as a stream: many as a tar file, or one by itself.
//!
//! Owns that nothing goes into a stream before it was checked, since a stream cannot be taken back, and that a file it goes
//! to appears whole or not at all.

use super::Report;
use super::results::{Found, Results, Written};
use crate::exit::{self, Exit};
use crate::filter::FilterArgs;
use anyhow::Context;
use dispatcher_core::id::TaskId;
use dispatcher_store::archive::packs::member::{END, front, padded};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Exports as a tar file; `-` is standard output.
pub fn tar(results: Results<'_>, to: &Path) -> anyhow::Result<Report> {
    if to.as_os_str() == "-" {
        return write_tar(results, &mut BufWriter::new(io::stdout().lock()));
    }
    into_file(to, |file| write_tar(results, file))
}

fn write_tar(mut results: Results<'_>, to: &mut impl Write) -> anyhow::Result<Report> {
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
        match results.stream(&mut found, to, front_of).map_err(closed)? {
            Written::Whole(bytes) => {
                let rest = usize::try_from(padded(bytes) - bytes).unwrap_or(0);
                to.write_all(END.get(..rest).unwrap_or_default())?;
                report.exported += 1;
                report.bytes += bytes;
            }
            Written::Not(why) => report.fault(task, &why),
        }
    }
    to.write_all(&END)?;
    to.flush()?;
    Ok(report)
}

fn front_of(found: &Found) -> io::Result<Vec<u8>> {
    front(&found.name.0, found.publication.lease, found.part.length)
}

/// Exports one result by itself.
pub fn one(mut results: Results<'_>, which: &FilterArgs, to: Option<&Path>) -> anyhow::Result<Report> {
    if which.tasks.len() != 1 {
        return Err(Exit::usage(
            "say where results go: --out DIR, --tar FILE, or one task, by its id or its input as `tasks` prints them",
        ));
    }
    let Some((task, found)) = results.next()? else {
        return Err(Exit::with(exit::SOME_NOT, "the task is not one of those that the rest means"));
    };
    let Some(mut found) = found else {
        let why = format!("task {task} has no such part of a result that stands: `dispatcher why {task}` says more");
        return Err(Exit::with(exit::SOME_NOT, why));
    };
    match to {
        None => write_one(&results, task, &mut found, &mut BufWriter::new(io::stdout().lock())),
        Some(path) => into_file(path, |file| write_one(&results, task, &mut found, file)),
    }
}

fn write_one(results: &Results<'_>, task: TaskId, found: &mut Found, to: &mut impl Write) -> anyhow::Result<Report> {
    let mut report = Report::default();
    match results.stream(found, to, |_| Ok(Vec::new())).map_err(closed)? {
        Written::Whole(bytes) => {
            to.flush()?;
            report.exported = 1;
            report.bytes = bytes;
        }
        Written::Not(why) => report.fault(task, &why),
    }
    Ok(report)
}

/// Writes a file under another name, and gives it its own when it is whole; nothing of it stays where it is not.
fn into_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut tempfile::NamedTempFile>) -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = || format!("cannot write {}", path.display());
    // A file appears there in place of what there is: of a device, a pipe or a link that is never meant.
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        return Err(Exit::usage(format!("{} is no file: name one, or `-` for standard output", path.display())));
    }
    let mut file = tempfile::Builder::new().prefix(".dispatcher-export-").tempfile_in(folder).with_context(cannot)?;
    let report = {
        let mut buffered = BufWriter::new(&mut file);
        let report = write(&mut buffered)?;
        buffered.flush().with_context(cannot)?;
        report
    };
    if report.exported == 0 && report.count > 0 {
        return Ok(report);
    }
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).with_context(cannot)?;
    file.persist(path).with_context(cannot)?;
    Ok(report)
}

/// A reader that has gone is told with few words.
fn closed(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::BrokenPipe) => Exit::with(exit::SOME_NOT, "whoever read the results has gone"),
        _ => error,
    }
}
