//! Whether anything of a killed process group is still alive.
//!
//! The system answers for the whole group, dead members included that nobody has waited for yet: those are of no harm,
//! and where the first process of a container waits for nobody they stay. So only where the system says that there is
//! something, its list of processes is read.

use rustix::process::{Pid, test_kill_process_group};
use std::fs;
use std::time::{Duration, Instant};

/// Waits until no process of the group is alive, at most for `patience`. Usually there is none and nothing to wait for.
pub(crate) fn is_gone_within(group: Pid, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let mut pause = Duration::from_micros(100);
    while test_kill_process_group(group).is_ok() && has_living(group) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}

/// What the system says of a process that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: Pid,
    pub(crate) session: i32,
    /// When it started, in ticks since the machine did.
    pub(crate) started: u64,
}

/// The processes of a group that are more than a name that nobody has waited for. None without a list of processes.
pub(crate) fn members(group: Pid) -> Vec<ProcessStat> {
    if test_kill_process_group(group).is_err() {
        return Vec::new();
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let stats = processes.flatten().filter_map(|process| fs::read(process.path().join("stat")).ok());
    stats.filter_map(|stat| living_member(&stat, group)).collect()
}

/// Whether a process of the group is more than a name that nobody has waited for. Without a list of processes: yes.
fn has_living(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let stats = processes.flatten().filter_map(|process| fs::read(process.path().join("stat")).ok());
    stats.into_iter().any(|stat| living_member(&stat, group).is_some())
}

/// The session of this process: 0 where whoever leads it is outside of what this process may see, as in a container or
/// under a namespace of process numbers. None without a list of processes.
pub(crate) fn own_session() -> Option<i32> {
    let (_, _, me) = parse(&fs::read("/proc/self/stat").ok()?)?;
    Some(me.session)
}

fn living_member(stat: &[u8], group: Pid) -> Option<ProcessStat> {
    let (state, member_of, process) = parse(stat)?;
    (!matches!(state, 'Z' | 'X') && member_of == group.as_raw_nonzero().get()).then_some(process)
}

/// Reads a line of `/proc/PID/stat`: after the name, which ends with the last parenthesis, come the state, the parent, the
/// group, the session, and as the twentieth the time of the start. Group and session are 0 where their first process is
/// outside of the namespace.
fn parse(stat: &[u8]) -> Option<(char, i32, ProcessStat)> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let number = String::from_utf8_lossy(stat.split(|byte| *byte == b' ').next()?).parse().ok()?;
    let text = String::from_utf8_lossy(stat.get(name_ends + 1..)?);
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let (group, session) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    let started = fields.nth(15).and_then(|started| started.parse().ok()).unwrap_or(0);
    Some((state, group, ProcessStat { pid: Pid::from_raw(number)?, session, started }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_dead_member_that_nobody_waited_for_is_gone_and_a_living_one_is_not() {
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        assert!(!is_gone_within(group, Duration::ZERO));
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        assert!(is_gone_within(group, Duration::from_secs(60)));
        assert!(test_kill_process_group(group).is_ok(), "its number is still taken");
        child.wait().unwrap();
    }

    #[test]
    fn a_name_with_parentheses_hides_nothing() {
        let group = Pid::from_raw(77).unwrap();
        let rest = "0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 4711 5 6";
        let found = living_member(format!("5 (a) S 1 (x) S 1 77 70 {rest}").as_bytes(), group).unwrap();
        assert_eq!(found, ProcessStat { pid: Pid::from_raw(5).unwrap(), session: 70, started: 4_711 });
        assert!(living_member(b"5 (a) R 1 77) Z 1 77 77 0", group).is_none());
        assert!(living_member(b"5 (a) S 1 78 77 0", group).is_none());
        assert!(living_member(b"", group).is_none());
    }

    #[test]
    fn a_session_and_a_group_from_outside_are_read_as_nought() {
        let (state, group, process) = parse(b"5 (cat) R 0 0 0 0 -1").unwrap();
        assert_eq!((state, group, process.session, process.started), ('R', 0, 0, 0));
    }

    #[test]
    fn of_a_living_process_the_system_tells_what_is_read() {
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        let member = members(group).into_iter().find(|member| member.pid == group).unwrap();
        assert_eq!(Some(member.session), own_session(), "a child is of the session of its parent");
        assert!(member.started > 0);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
