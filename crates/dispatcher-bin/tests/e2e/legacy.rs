//! Workers of the legacy wire over libzmq, as existing CorTeX workers are, with a real server.

use crate::farm::{Farm, Server, ended};
use crate::kit::{Running, wait_for_file, wait_until};
use crate::peer::{Ports, archive};
use crate::python::python;
use rustix::process::Signal;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use zip::write::SimpleFileOptions;

const TASKS: usize = 2_000;
const WORKERS: usize = 4;

/// Runs the worker of `clients` with signs of life of libzmq, or without.
const WITH_HEARTBEATS: &str = "
import os, runpy, zmq
plain = zmq.Context.socket
def socket(self, *args):
    made = plain(self, *args)
    made.heartbeat_ivl, made.heartbeat_timeout, made.heartbeat_ttl = 200, 2000, 2000
    return made
if os.environ['HEARTBEATS'] == '1':
    zmq.Context.socket = socket
runpy.run_path(os.environ['SCRIPT'], run_name='__main__')
";

/// How each input says that it ends: the log that its worker gives back, and the status that follows from it.
const LOGS: [(&str, &str); 6] = [
    ("Info:work:begin nothing of note\n", "no_problem"),
    ("Warning:math:parse odd formula\n", "warning"),
    ("Info:a:b\nError:font:missing cmr10\nWarning:a:b\n", "error"),
    ("Fatal:tex:emergency stop\n", "fatal"),
    ("Fatal:invalid:tex no document\n", "invalid"),
    ("", "no_problem"),
];

/// An input: an archive whose member `log` is to come back as the result's log.
fn input(log: &str, n: usize) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file("log", SimpleFileOptions::default()).unwrap();
    writer.write_all(log.as_bytes()).unwrap();
    writer.start_file("body", SimpleFileOptions::default()).unwrap();
    writer.write_all(format!("body {n}\n").repeat(n % 50).as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

fn worker(farm: &Farm, ports: Ports, python: &str, heartbeats: bool) -> Running {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/legacy_worker.py");
    let mut command = Command::new(python);
    command.args(["-c", WITH_HEARTBEATS]).current_dir(farm.path());
    command.env("SCRIPT", script).env("HEARTBEATS", if heartbeats { "1" } else { "0" });
    command.env("DISPATCHER_CONNECT", format!("tcp://127.0.0.1:{}", ports.requests));
    command.env("DISPATCHER_LEGACY_RESULTS", format!("tcp://127.0.0.1:{}", ports.results));
    let mut running = Running::start(command.env("DISPATCHER_SERVICE", "echo"));
    running.drain_log();
    running
}

fn farm_of(tasks: usize) -> (Farm, Ports) {
    let mut farm = Farm::new(3_000);
    let ports = Ports::free();
    farm.listen_at(ports);
    (0..tasks).for_each(|n| farm.input(&format!("{n:04}.zip"), &input(LOGS[n % LOGS.len()].0, n)));
    (farm, ports)
}

/// How often messages of this kind were counted, over all starts: a new server reads it afresh.
fn counted(farm: &Farm, ports: Ports, kind: &str) -> u64 {
    let server = farm.serve();
    let page = ports.metrics();
    server.end();
    let kind = format!("kind=\"{kind}\"");
    assert!(page.contains("dispatcher_attempts_total"), "{page}");
    let lines = page.lines().filter(|line| line.starts_with("dispatcher_attempts_total") && line.contains(&kind));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn assert_all_as_they_should_be(farm: &Farm, tasks: usize) {
    for (kind, _) in LOGS.iter().enumerate() {
        let (log, status) = LOGS[kind];
        let named = farm.look(&["show", &format!("{kind:04}.zip")]);
        let result = named["results"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(result["status"], status, "{named:#}");
        let said: Vec<String> = log.lines().map(str::to_owned).collect();
        let stored = result["messages"].as_array().unwrap();
        assert_eq!(stored.len(), said.len(), "{named:#}");
        for (line, message) in said.iter().zip(stored) {
            let what = message["what"].as_str().unwrap();
            let category = message["category"].as_str().unwrap();
            assert!(line.contains(&format!("{category}:{what}")), "{line}: {message}");
        }
    }
    for status in ["no_problem", "warning", "error", "fatal", "invalid"] {
        let meant = (0..tasks).filter(|n| LOGS[n % LOGS.len()].1 == status).count();
        let found = farm.look(&["tasks", "--status", status, "--limit", "0"]).as_array().unwrap().len();
        assert_eq!(found, meant, "{status}");
    }
    farm.assert_healthy();
}

fn stop(workers: Vec<Running>) {
    for worker in workers {
        worker.signal(Signal::KILL);
        ended(worker);
    }
}

/// 2,000 tasks through workers on libzmq, with the server killed in the middle.
fn through_a_kill(heartbeats: bool) {
    let Some(python) = python() else { return };
    let (farm, ports) = farm_of(TASKS);
    farm.import(&["--limit", "3s"]);
    let held = farm.path().join("held");
    let hold = [("DISPATCHER_HOLD", "committed:20".to_owned()), ("DISPATCHER_HOLD_FILE", held.display().to_string())];
    let server = farm.serve_with(&[], &hold);
    let workers: Vec<_> = (0..WORKERS).map(|_| worker(&farm, ports, &python, heartbeats)).collect();
    wait_for_file(&held);
    server.kill();
    let server = farm.serve();
    farm.wait_until_all_over();
    stop(workers);
    server.end();
    assert_all_as_they_should_be(&farm, TASKS);
    assert_eq!(counted(&farm, ports, "accepted"), TASKS as u64);
    assert_eq!(counted(&farm, ports, "message_unknown"), 0, "no result was dropped as unknown");
}

// Rules W1, W2, W4, S4, C13.
#[test]
fn workers_on_libzmq_do_2000_archives_through_a_kill_of_the_server() {
    through_a_kill(false);
}

// Rules W1, W2, W4, W6, S4, C13.
#[test]
fn workers_on_libzmq_that_ask_for_signs_of_life_do_2000_archives_through_a_kill_of_the_server() {
    through_a_kill(true);
}

/// Two tasks are out when the server ends, and their results come to the next one.
fn hand_out_and_kill(farm: &Farm, ports: Ports) -> (Vec<String>, Server) {
    use crate::peer::Cortex;
    let server = farm.serve();
    let mut worker = Cortex::join(ports, "w");
    let ids = vec![worker.task().0, worker.task().0];
    let is_noted = |id: &String| !farm.look(&["show", id])["attempts"].as_array().unwrap().is_empty();
    wait_until("the hand-outs are noted", || ids.iter().all(is_noted));
    server.kill();
    let server = farm.serve();
    let mut worker = Cortex::join(ports, "w");
    worker.bring(&ids[0], &archive("Warning:a:b c\n", 10));
    worker.bring(&ids[1], &archive("Fatal:a:b c\n", 10));
    (ids, server)
}

// Rules C13, S4, C11.
#[test]
fn results_of_tasks_that_a_killed_server_had_handed_out_are_accepted_by_the_next_one() {
    let (farm, ports) = farm_of(2);
    farm.import(&[]);
    let (ids, server) = hand_out_and_kill(&farm, ports);
    farm.wait_until_all_over();
    server.end();
    for (id, status) in ids.iter().zip(["warning", "fatal"]) {
        let story = farm.look(&["show", id]);
        assert_eq!(story["attempts"].as_array().unwrap().len(), 1, "{story:#}");
        assert_eq!(story["task"]["standing"]["status"], status, "{story:#}");
    }
    farm.assert_healthy();
}

// Rules W1, W2. Case F53.
#[test]
fn results_lie_beside_their_inputs_where_existing_tools_look_for_them() {
    use crate::peer::Cortex;
    let (mut farm, ports) = (Farm::new(3_000), Ports::free());
    farm.listen_at(ports);
    farm.input("1234/1234.0001/1234.0001.zip", b"paper");
    farm.import(&[]);
    let server = farm.serve_with(&["--archive=files", "--layout=cortex", "--results=."], &[]);
    let mut worker = Cortex::join(ports, "w");
    let (id, input) = worker.task();
    assert_eq!(input, b"paper");
    let result = archive("Info:a:b c\n", 1000);
    worker.bring(&id, &result);
    let place = farm.inputs().join("1234/1234.0001/echo.zip");
    wait_until("it is in its place", || place.exists());
    assert_eq!(std::fs::read(place).unwrap(), result);
    // The same import again takes no result for an input, and with new papers beside the old ones only these.
    farm.input("1234/1234.0002/1234.0002.zip", b"another");
    farm.import(&[]);
    assert_eq!(farm.count_all(&["ready", "leased", "done"]), 2);
    server.end();
    farm.assert_healthy();
}

// Rule G8.
#[test]
fn results_that_would_have_one_name_are_told_and_the_first_one_stays() {
    let farm = Farm::with_many(3, 3_000);
    farm.import(&[]);
    let server = farm.serve();
    let worker = farm.worker("w1", "cat {input}", &[]);
    farm.wait_until_all_over();
    for args in [["export", "--layout", "cortex", "--out", "tree"], ["export", "--layout", "cortex", "--tar", "tar"]] {
        let said = farm.said(1, &args);
        assert!(said.contains("already"), "{said}");
    }
    let files = walkdir::WalkDir::new(farm.path().join("tree")).into_iter().map(Result::unwrap);
    assert_eq!(files.filter(|entry| entry.file_type().is_file()).count(), 1);
    worker.signal(Signal::TERM);
    ended(worker);
    server.end();
}
