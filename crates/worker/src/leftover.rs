//! Commands that outlived their worker: which process groups it had started, on record for whoever comes after it.
//!
//! **Owns** one small file per slot in the scratch folder, with the newest group that the slot started, and the end of
//! such groups by force at the next start. **Refuses to know** what the commands were for: their results are nobody's any
//! more.
//!
//! **Invariants**: no process is ended only because it has a number that was on record. The group's first process has to
//! have started in the moment that was noted, on the same start of the machine; where it is gone, everything in the
//! group has to be of the noted session and younger. Noting costs one write per task; what is noted need not be removed.

use crate::exec::group::{self, ProcessStat};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How the names of the records begin.
const RECORD: &str = "running-";
/// The longest record that is read, in bytes.
const RECORD_MAX: u64 = 256;
/// How long a group that was killed may take to be gone.
const GONE: Duration = Duration::from_secs(2);
/// Where the system says which start of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where a slot notes what it starts. Clones note in the same place.
#[derive(Clone, Debug)]
pub(crate) struct GroupNotes(Arc<Place>);

#[derive(Debug)]
struct Place {
    path: PathBuf,
    boot: Arc<str>,
    file: OnceLock<File>,
}

/// A moment, in the ticks in which the system tells when processes started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(u64);

/// A group on record.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    group: Pid,
    /// Its first process started not before this.
    from: Ticks,
    /// Nor after this.
    to: Ticks,
    /// 0 where its first process cannot be seen from here.
    session: i32,
    boot: String,
}

impl Ticks {
    /// Now.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        let hz = rustix::param::clock_ticks_per_second();
        Self(seconds.saturating_mul(hz).saturating_add(nanos.saturating_mul(hz) / 1_000_000_000))
    }
}

impl GroupNotes {
    /// The place of a slot in `scratch`.
    pub(crate) fn new(scratch: &Path, slot: usize, boot: Arc<str>) -> Self {
        Self(Arc::new(Place { path: scratch.join(format!("{RECORD}{slot}")), boot, file: OnceLock::new() }))
    }

    /// Notes a group that was started between `from` and now. It is no reason not to work where that cannot be written.
    pub(crate) fn note(&self, group: Pid, from: Ticks) {
        if let Err(e) = self.write(group, from) {
            tracing::warn!(file = %self.0.path.display(), error = %e, "a command's process group could not be noted");
        }
    }

    fn write(&self, group: Pid, from: Ticks) -> io::Result<()> {
        let place = &*self.0;
        if place.file.get().is_none() {
            let file = File::options().create(true).truncate(true).write(true).open(&place.path)?;
            let _ = place.file.set(file);
        }
        let Some(file) = place.file.get() else { return Ok(()) };
        let session = group::own_session().unwrap_or(0);
        let Ticks(to) = Ticks::now();
        // Of one length always, so that nothing of an older record is left behind it.
        let line = format!("{:>10} {:>20} {to:>20} {session:>10} {}\n", group.as_raw_nonzero(), from.0, place.boot);
        file.write_all_at(line.as_bytes(), 0)
    }
}

/// Which start of the machine this is.
pub(crate) fn boot_id() -> Arc<str> {
    fs::read_to_string(BOOT_ID).map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

/// Ends the groups on record in `scratch` that are still there, and removes the records. To be called by whoever has the
/// folder's lock.
///
/// # Errors
/// Where the folder cannot be read.
pub(crate) fn end_groups(scratch: &Path) -> io::Result<()> {
    let boot = boot_id();
    for entry in fs::read_dir(scratch)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(RECORD) {
            continue;
        }
        let mut text = String::new();
        // A record that cannot be read names nothing.
        let is_read = File::open(entry.path())?.take(RECORD_MAX).read_to_string(&mut text).is_ok();
        if let Some(record) = parse(&text).filter(|record| is_read && record.boot == *boot && record.boot != "unknown")
        {
            end_group(&record);
        }
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

fn end_group(record: &Record) {
    let members = group::members(record.group);
    if members.is_empty() || !is_ours(record, &members) {
        return;
    }
    let group = record.group.as_raw_nonzero().get();
    tracing::warn!(group, "ending a command that outlived the worker before this one");
    let _ = kill_process_group(record.group, Signal::KILL);
    if !group::is_gone_within(record.group, GONE) {
        tracing::error!(group, "a command that outlived the worker before this one could not be ended");
    }
}

/// Whether the processes of a group with the number on record are what was started then.
fn is_ours(record: &Record, members: &[ProcessStat]) -> bool {
    match members.iter().find(|member| member.pid == record.group) {
        Some(first) => (record.from..=record.to).contains(&Ticks(first.started)),
        None => members.iter().all(|member| member.session == record.session && Ticks(member.started) >= record.from),
    }
}

fn parse(text: &str) -> Option<Record> {
    let mut fields = text.split_ascii_whitespace();
    let group = fields.next()?.parse().ok().filter(|number: &i32| *number > 1).and_then(Pid::from_raw)?;
    let from = Ticks(fields.next()?.parse().ok()?);
    let to = Ticks(fields.next()?.parse().ok()?);
    let session = fields.next()?.parse().ok()?;
    Some(Record { group, from, to, session, boot: fields.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap()
    }

    fn scratch_with(group: Pid, from: Ticks) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        GroupNotes::new(dir.path(), 0, boot_id()).note(group, from);
        dir
    }

    // Rule S1.
    #[test]
    fn a_group_on_record_is_ended_and_its_record_removed() {
        let from = Ticks::now();
        let mut child = start("sleep 600");
        let dir = scratch_with(Pid::from_child(&child), from);
        end_groups(dir.path()).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    // Rule S1.
    #[test]
    fn what_the_first_process_of_a_group_left_behind_is_ended_too() {
        let dir = tempfile::tempdir().unwrap();
        let from = Ticks::now();
        let mut child = start(&format!("sleep 600 & echo $! > {}", dir.path().join("pid").display()));
        let group = Pid::from_child(&child);
        child.wait().unwrap();
        GroupNotes::new(dir.path(), 0, boot_id()).note(group, from);
        assert!(!group::members(group).is_empty());
        end_groups(dir.path()).unwrap();
        assert!(group::is_gone_within(group, Duration::from_secs(60)));
    }

    #[test]
    fn a_number_that_others_have_by_now_ends_nobody() {
        let mut child = start("sleep 600");
        let group = Pid::from_child(&child);
        // It started before the time on record; on another start of the machine; or in another session.
        let Ticks(now) = Ticks::now();
        end_groups(scratch_with(group, Ticks(now + 1_000_000)).path()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        GroupNotes::new(dir.path(), 0, "another".into()).note(group, Ticks(0));
        end_groups(dir.path()).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        let record = |session| Record { group, from: Ticks(5), to: Ticks(9), session, boot: String::new() };
        let member = |pid, session, started| ProcessStat { pid: Pid::from_raw(pid).unwrap(), session, started };
        assert!(is_ours(&record(3), &[member(group.as_raw_nonzero().get(), 3, 9)]));
        assert!(!is_ours(&record(3), &[member(group.as_raw_nonzero().get(), 3, 10)]));
        assert!(is_ours(&record(3), &[member(1, 3, 100)]));
        assert!(!is_ours(&record(4), &[member(1, 3, 100)]));
        assert!(!is_ours(&record(3), &[member(1, 3, 4)]));
        kill_process_group(group, Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_damaged_record_names_nobody() {
        for text in ["", "1 0 9 1 boot", "0 0 9 1 boot", "-5 0 9 1 boot", "x", "77 1 2 3", "99999999999999 1 2 3 boot"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(parse("        77 1 2 3 boot\n").is_some());
    }
}
