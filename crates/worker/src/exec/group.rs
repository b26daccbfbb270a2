//! Whether anything of a killed process group is still alive.
//!
//! The system answers for the whole group, dead members included that nobody has waited for yet: those are of no harm,
//! and where the first process of a container waits for nobody they stay. So only where the system says that there is
//! something, its list of processes is read.

use rustix::process::{Pid, test_kill_process_group};
use std::fs;
use std::time::{Duration, Instant};

/// Waits until no process of the group is alive, at most for `patience`. Usually there is none and nothing to wait for.
pub(super) fn is_gone_within(group: Pid, patience: Duration) -> bool {
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

/// Whether a process of the group is more than a name that nobody has waited for. Without a list of processes: yes.
fn has_living(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let stats = processes.flatten().filter_map(|process| fs::read(process.path().join("stat")).ok());
    stats.into_iter().any(|stat| is_living_member(&stat, group))
}

/// Reads a line of `/proc/PID/stat`: after the name, which ends with the last parenthesis, come the state, the parent and
/// the group.
fn is_living_member(stat: &[u8], group: Pid) -> bool {
    let after = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let text = String::from_utf8_lossy(after);
    let mut fields = text.split_ascii_whitespace();
    let (state, member_of) = (fields.next(), fields.nth(1));
    let is_dead = matches!(state, None | Some("Z" | "X"));
    !is_dead && member_of.and_then(|number| number.parse().ok()) == Some(group.as_raw_nonzero().get())
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
        assert!(is_living_member(b"5 (a) S 1 (x) S 1 77 77 0", group));
        assert!(!is_living_member(b"5 (a) R 1 77) Z 1 77 77 0", group));
        assert!(!is_living_member(b"5 (a) S 1 78 77 0", group));
        assert!(!is_living_member(b"", group));
    }
}
