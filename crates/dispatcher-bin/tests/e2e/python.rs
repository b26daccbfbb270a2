//! The Python worker of `clients` with a real server: it was written from the page of the wire alone.

use crate::farm::{Farm, ended};
use crate::kit::{Running, told, wait_for_file, wait_until};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const TASKS: usize = 2_000;

/// A Python that has pyzmq. Where none has and nobody insists, it is said, and nothing is tested.
pub fn python() -> Option<String> {
    let chosen = std::env::var("DISPATCHER_PYTHON").ok().filter(|path| !path.is_empty());
    let candidates = chosen.clone().map_or_else(|| vec!["python3".into(), "/usr/bin/python3".into()], |one| vec![one]);
    let has_zmq = |python: &String| {
        Command::new(python).args(["-c", "import zmq"]).output().is_ok_and(|output| output.status.success())
    };
    let found = candidates.into_iter().find(has_zmq);
    assert!(found.is_some() || chosen.is_none(), "DISPATCHER_PYTHON names a Python without pyzmq");
    if found.is_none() {
        println!("NOT TESTED: no Python with pyzmq here (install python3-zmq, or set DISPATCHER_PYTHON)");
    }
    found
}

/// Starts a Python worker of the service `echo`, which keeps its results in a folder of this name.
fn worker(farm: &Farm, python: &str, name: &str) -> Running {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/worker.py");
    let mut command = Command::new(python);
    command.arg(script).current_dir(farm.path()).env("DISPATCHER_WORKER_DIR", farm.path().join(name));
    command.env("DISPATCHER_CONNECT", format!("ipc://{}", farm.path().join("s/r").display()));
    let mut running = Running::start(command.env("DISPATCHER_SERVICE", "echo"));
    running.drain_log();
    running
}

fn stop_well(worker: Running) {
    worker.signal(Signal::TERM);
    let output = ended(worker);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

fn wait_until_done(farm: &Farm, count: usize) {
    wait_until(&format!("{count} tasks are done"), || farm.count("done") >= count as u64);
}

/// Results that wait in a worker's folder.
fn outbox(farm: &Farm, name: &str) -> usize {
    let files = std::fs::read_dir(farm.path().join(name)).unwrap();
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "report")).count()
}

// Rules S1, S4, D7, R4, A1. Cases F05, F30.
#[test]
fn a_worker_in_python_does_2000_tasks_through_kills_of_the_server_and_of_itself() {
    let Some(python) = python() else { return };
    // What a killed server had claimed waits for as long as a silent worker may.
    let farm = Farm::with_many(TASKS, 5_000);
    farm.input("retry", b"retry: never this time\n");
    farm.input("waits", format!("wait:{}\n", farm.path().join("never").display()).as_bytes());
    farm.import(&["--budget", "2"]);
    farm.tell_well(&["services", "set", "echo", "--retry-delay", "10ms"]);
    let server = farm.serve();
    let first = worker(&farm, &python, "w1");
    let second = worker(&farm, &python, "w2");
    wait_until_done(&farm, TASKS / 8);
    // The server is killed; the workers go on with what they have, and bring it to the next one.
    server.kill();
    let server = farm.serve();
    wait_until_done(&farm, TASKS / 4);
    // A worker is killed; what it had finished comes with its next life.
    first.signal(Signal::KILL);
    ended(first);
    let first = worker(&farm, &python, "w1");
    wait_until_done(&farm, TASKS / 2);
    // Another one is told to end, and comes back.
    stop_well(second);
    let second = worker(&farm, &python, "w2");
    wait_until("all but the one that waits are over", || farm.count_all(&["ready", "leased"]) == 1);
    let waits = farm.look(&["show", "waits"]);
    assert_eq!(waits["task"]["state"], "leased", "{waits:#}");
    farm.tell_well(&["cancel", &waits["task"]["id"].to_string()]);
    farm.wait_until_all_over();
    wait_until("every result was answered", || outbox(&farm, "w1") + outbox(&farm, "w2") == 0);
    stop_well(first);
    stop_well(second);
    server.end();
    assert_eq!((farm.count("done"), farm.count("dead"), farm.count("cancelled")), (TASKS as u64, 1, 1));
    for i in 0..TASKS {
        let name = format!("{i:04}");
        assert_eq!(farm.result(&name).unwrap(), format!("input {i}\n").as_bytes(), "{name}");
    }
    let story = farm.look(&["show", "retry"]);
    let endings: Vec<_> = story["attempts"].as_array().unwrap().iter().map(|a| a["ending"].clone()).collect();
    assert_eq!(endings, ["retryable_cause", "retryable_cause"], "{story:#}");
    assert!(farm.said(0, &["why", "retry"]).contains("conformance:asked"));
    assert_eq!(farm.look(&["tasks", "--status", "no_problem", "--limit", "0"]).as_array().unwrap().len(), TASKS);
    farm.assert_healthy();
}

// Rules D7, S4. Case F30.
#[test]
fn a_result_that_a_killed_worker_in_python_left_in_its_outbox_is_taken_from_its_next_life() {
    let Some(python) = python() else { return };
    let farm = Farm::new(20_000);
    let gate = farm.path().join("gate");
    farm.input("a", format!("wait:{}\n", gate.display()).as_bytes());
    farm.import(&[]);
    let server = farm.serve();
    let first = worker(&farm, &python, "w1");
    wait_until("it works", || farm.look(&["show", "a"])["attempts"][0]["began_at"].is_i64());
    // It ends its work while nobody is there, and is killed with the result on its disk alone.
    server.kill();
    std::fs::write(&gate, "").unwrap();
    wait_until("the result is on its disk", || outbox(&farm, "w1") == 1);
    first.signal(Signal::KILL);
    ended(first);
    std::fs::remove_file(&gate).unwrap();
    let server = farm.serve();
    let second = worker(&farm, &python, "w1");
    farm.wait_until_all_over();
    let story = farm.look(&["show", "a"]);
    assert_eq!(story["attempts"].as_array().unwrap().len(), 1, "{story:#}");
    assert_eq!(farm.result("a").unwrap(), format!("wait:{}\n", gate.display()).as_bytes());
    wait_until("it was answered", || outbox(&farm, "w1") == 0);
    stop_well(second);
    server.end();
    farm.assert_healthy();
}

// Rules S1, A2.
#[test]
fn a_worker_in_python_that_is_told_to_end_gives_back_what_it_has_not_begun() {
    let Some(python) = python() else { return };
    let farm = Farm::new(20_000);
    // It takes seconds to fetch and no room on the disk.
    farm.input("large", b"");
    std::fs::File::options().write(true).open(farm.inputs().join("large")).unwrap().set_len(4 << 30).unwrap();
    farm.import(&[]);
    let server = farm.serve();
    let one = worker(&farm, &python, "w1");
    wait_until("it has the task", || farm.look(&["show", "large"])["task"]["state"] == "leased");
    wait_for_file(&farm.path().join("w1"));
    stop_well(one);
    wait_until("the task is back", || farm.look(&["show", "large"])["attempts"][0]["ending"] == "handed_back");
    assert_eq!(farm.look(&["show", "large"])["task"]["charged"], 0);
    farm.tell_well(&["cancel", "1"]);
    server.end();
    farm.assert_healthy();
}
