//! Worker processes: stopped, killed, several in one place, and what they leave behind.

use crate::desk::{Desk, Guest, endpoint};
use crate::kit::{Place, Running, dispatcher, output, told, wait_for_file, wait_until};
use dispatcher_core::wire::HoldState;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// `dispatcher worker` in `dir`, for the desk there.
fn command(dir: &Path, script: &str, more: &[&str]) -> Command {
    let mut command = dispatcher();
    let connect = endpoint(dir).to_string();
    command.current_dir(dir).args(["worker", "--connect", &connect, "--service", "s", "--slots", "1"]);
    command.args(["--shell", "--exec", script]).args(more);
    command
}

fn start(dir: &Path, script: &str, more: &[&str]) -> Running {
    Running::start(&mut command(dir, script, more))
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", told(output)))
}

/// Whether a process lives. One that ended and was not waited for by its parent does not.
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// Kills the program alone; what it started stays.
fn kill(running: Running) {
    running.signal(Signal::KILL);
    running.end_without_children();
}

/// A command that says that it runs, by a file that names its process.
fn sleeper(dir: &Path) -> String {
    format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600 > /dev/null 2>&1", dir.join("pid").display())
}

fn pid_of_sleeper(dir: &Path) -> String {
    wait_for_file(&dir.join("pid"));
    std::fs::read_to_string(dir.join("pid")).unwrap()
}

// Rules S1, S6, D7.
#[test]
fn a_worker_does_its_task_and_ends_well_at_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let worker = start(dir.path(), "echo {stem}", &["--json"]);
    let guest = desk.greet();
    assert!(guest.name.ends_with("-1") && guest.services == ["s"] && guest.holds.is_empty(), "{guest:?}");
    desk.hand(&guest, "a");
    desk.result("a");
    desk.stored(&guest, "a");
    desk.hand(&guest, "b");
    desk.result("b");
    worker.signal(Signal::TERM);
    // What is under way is waited for.
    desk.stored(&guest, "b");
    desk.says_bye();
    let output = worker.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let summary = summary(&output);
    assert_eq!((&summary["received"], &summary["finished"], &summary["kept"]), (&2.into(), &2.into(), &0.into()));
    assert_eq!(summary["answers"][0], serde_json::json!(["stored", 2]));
}

// Rule D7. Cases F05, F30.
#[test]
fn a_result_outlives_a_kill_of_its_worker_and_the_next_one_hands_it_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let worker = start(dir.path(), "echo {stem}", &[]);
    let first = desk.greet();
    desk.hand(&first, "a");
    let result = desk.result("a");
    kill(worker);
    let worker = start(dir.path(), "echo other", &[]);
    let second = desk.greet();
    assert_eq!(second.holds, [("a".to_owned(), HoldState::Finished)]);
    assert!(second.name == first.name && second.incarnation != first.incarnation);
    assert_eq!(desk.result("a"), result);
    desk.stored(&second, "a");
    worker.signal(Signal::INT);
    desk.says_bye();
    assert_eq!(worker.end().status.code(), Some(0));
}

// Rule S1. Case F74.
#[test]
fn a_command_that_outlived_its_killed_worker_is_ended_by_the_next_one_in_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let worker = start(dir.path(), &sleeper(dir.path()), &[]);
    let guest = desk.greet();
    desk.hand(&guest, "a");
    let pid = pid_of_sleeper(dir.path());
    kill(worker);
    assert!(is_alive(&pid));
    let worker = start(dir.path(), "true", &[]);
    assert!(desk.greet().holds.is_empty());
    assert!(!is_alive(&pid), "before it says hello");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().status.code(), Some(0));
}

// Rule S1. Case F74.
#[test]
fn a_command_that_outlived_a_killed_run_is_ended_by_the_next_one() {
    let place = Place::with(&[("a", b"1")]);
    let running = place.start(["--shell", "--exec", &sleeper(place.path())]);
    let pid = pid_of_sleeper(place.path());
    kill(running);
    assert!(is_alive(&pid));
    std::fs::remove_file(place.path().join("pid")).unwrap();
    let running = place.start(["--shell", "--exec", &sleeper(place.path())]);
    wait_until("the first command is gone", || !is_alive(&pid));
    running.kill_tree();
}

// Rules S1, D7.
#[test]
fn a_worker_that_stops_while_its_dispatcher_is_away_keeps_its_results_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let worker = start(dir.path(), "echo {stem}", &["--drain", "200ms"]);
    let guest = desk.greet();
    desk.hand(&guest, "a");
    desk.result("a");
    desk.close();
    worker.signal(Signal::TERM);
    let output = worker.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let folder = dir.path().canonicalize().unwrap().join(".dispatcher-worker");
    assert!(told(&output).contains(&format!("1 results wait in {}", folder.display())), "{}", told(&output));
}

/// Stops a worker whose command would never end, with a short drain; returns its guest when it has given the task back.
fn stopped_in_mid_task(dir: &Path, desk: &mut Desk, more: &[&str]) -> (Running, Guest) {
    let worker = start(dir, &sleeper(dir), &[&["--kill-grace", "100ms"], more].concat());
    let guest = desk.greet();
    desk.hand(&guest, "a");
    let pid = pid_of_sleeper(dir);
    worker.signal(Signal::TERM);
    desk.released("a");
    assert!(!is_alive(&pid), "what ran was ended");
    (worker, guest)
}

// Rules S1, A2.
#[test]
fn after_the_drain_limit_what_runs_is_ended_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let (worker, guest) = stopped_in_mid_task(dir.path(), &mut desk, &["--drain", "2s"]);
    desk.stored(&guest, "a");
    desk.says_bye();
    let output = worker.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

// Rule S1.
#[test]
fn a_task_given_back_without_an_answer_is_told_by_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let (worker, _) = stopped_in_mid_task(dir.path(), &mut desk, &["--drain", "100ms", "--json"]);
    desk.says_bye();
    let output = worker.end();
    assert_eq!(output.status.code(), Some(12), "{}", told(&output));
    assert_eq!(summary(&output)["unconfirmed"], 1);
}

// Rule S1.
#[test]
fn a_second_signal_ends_a_worker_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let mut worker = start(dir.path(), &sleeper(dir.path()), &[]);
    let guest = desk.greet();
    desk.hand(&guest, "a");
    let pid = pid_of_sleeper(dir.path());
    worker.signal(Signal::INT);
    worker.wait_for_line("stopping");
    worker.signal(Signal::INT);
    assert_eq!(worker.end_without_children().code(), Some(3));
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process_group(pid, Signal::KILL).unwrap();
}

// Case F27.
#[test]
fn workers_in_one_place_find_folders_of_their_own_and_one_name_may_be_had_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path());
    let mut workers: Vec<Running> = (0..3).map(|_| start(dir.path(), "echo {stem}", &[])).collect();
    let mut names: Vec<String> = (0..3).map(|_| desk.greet().name).collect();
    names.sort();
    for (n, name) in (1..).zip(&names) {
        assert!(name.ends_with(&format!("-{n}")), "{names:?}");
    }
    for folder in [".dispatcher-worker", ".dispatcher-worker-2", ".dispatcher-worker-3"] {
        assert!(dir.path().join(folder).is_dir());
    }
    let refused = output(&mut command(dir.path(), "true", &["--dir", ".dispatcher-worker-2"]));
    assert_eq!(refused.status.code(), Some(14), "{}", told(&refused));
    assert!(told(&refused).contains("another worker (process") && told(&refused).contains(".dispatcher-worker-2"));
    // One name, two folders: two workers.
    workers.extend(["x", "y"].map(|folder| start(dir.path(), "echo {stem}", &["--name", "twin", "--dir", folder])));
    let twins = [desk.greet(), desk.greet()];
    assert!(twins[0].incarnation != twins[1].incarnation && twins.iter().all(|twin| twin.name == "twin"));
    for (twin, task) in twins.iter().zip(["a", "b"]) {
        desk.hand(twin, task);
        desk.result(task);
        desk.stored(twin, task);
    }
    for worker in workers {
        worker.signal(Signal::TERM);
        desk.says_bye();
        assert_eq!(worker.end().status.code(), Some(0));
    }
}

#[test]
fn what_is_wrong_with_the_command_line_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let with = |args: &[&str]| output(dispatcher().current_dir(dir.path()).arg("worker").args(args));
    for (args, says) in [
        (&["--service", "s", "--exec", "no-such-program-anywhere {input}"][..], "there is no program"),
        (&["--service", "s", "--exec", "cat {file}"], "no placeholder"),
        (&["--service", "s", "--exec", "cat {input}", "--ext", "a/b"], "--ext"),
        (&["--service", "s", "--exec", "cat {input}", "--connect", "nowhere"], "tcp://127.0.0.1:PORT"),
        (&["--exec", "cat {input}"], "--service"),
        (&["--service", "s", "--exec", "cat {input}", "--slots", "300", "--prefetch", "200"], "400 together"),
    ] {
        let output = with(args);
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains(says), "{}", told(&output));
    }
    let help = with(&["--help"]);
    assert!(told(&help).contains("Examples:") && told(&help).contains("Exit codes:"), "{}", told(&help));
}
