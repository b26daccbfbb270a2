//! The checks of `cargo xtask conformance` against workers that have one fault each: every fault is found, and by the check
//! that is about it. The faults are in `faulty_worker.py`, on top of the Python worker of this tree.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stderr, reason = "what a test cannot do here it says")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Each fault, and the check that has to find it.
const FAULTS: [(&str, &str); 26] = [
    ("asks_too_early", "hello"),
    ("begins_silently", "small-task"),
    ("wrong_hash", "small-task"),
    ("wrong_piece", "pieces"),
    ("fetches_too_much", "pieces"),
    ("knows_six_words_less", "acks"),
    ("lists_nothing", "beats"),
    ("numbers_beats_wrongly", "beats"),
    ("works_in_its_loop", "beats"),
    ("knows_every_type", "unknown-types"),
    ("knows_every_error", "errors"),
    ("keeps_back", "drain-gives-back"),
    ("leaves_silently", "leave"),
    ("listens_to_no_signal", "leave"),
    ("ignores_cancel", "cancel-amid"),
    ("ignores_unknown", "unknown"),
    ("asks_for_too_much", "credit"),
    ("takes_a_task_twice", "task-again"),
    ("ignores_limits", "limit"),
    ("dies_with_its_link", "cut-amid-work"),
    ("forgets_before_ack", "until-acked"),
    ("ignores_drop", "drop"),
    ("ignores_silence", "silence"),
    ("has_no_outbox", "killed"),
    ("never_waits", "waits"),
    ("knows_one_address", "several"),
];

/// The Python to use; none where none has pyzmq and nobody insists.
fn python() -> Option<String> {
    let chosen = std::env::var("DISPATCHER_PYTHON").ok().filter(|path| !path.is_empty());
    let candidates = chosen.clone().map_or_else(|| vec!["python3".into(), "/usr/bin/python3".into()], |one| vec![one]);
    let has_zmq =
        |python: &String| Command::new(python).args(["-c", "import zmq"]).output().is_ok_and(|o| o.status.success());
    let found = candidates.into_iter().find(has_zmq);
    assert!(found.is_some() || chosen.is_none(), "DISPATCHER_PYTHON names a Python without pyzmq");
    if found.is_none() {
        eprintln!("NOT TESTED: no Python with pyzmq here (install python3-zmq, or set DISPATCHER_PYTHON)");
    }
    found
}

fn drive(python: &str, fault: &str, check: &str, patience: &str) -> (bool, Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/faulty_worker.py");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["conformance", "--level", "full", "--json", "--patience", patience, "--only", check, "--", python]);
    let output = command.arg(script).arg(fault).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = serde_json::from_str(&told)
        .unwrap_or_else(|e| panic!("{e}: {told}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), json)
}

fn row<'a>(outcome: &'a Value, check: &str) -> &'a Value {
    let rows = outcome["checks"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == check).unwrap()
}

/// Every fault of one in so many, so that the tests can share the work.
fn every_fault_is_found(first: usize) {
    let Some(python) = python() else { return };
    let mut missed = Vec::new();
    for (fault, check) in FAULTS.into_iter().skip(first).step_by(3) {
        let (conforms, outcome) = drive(&python, fault, check, "2");
        let why = row(&outcome, check)["why"].as_str().unwrap_or_default();
        if conforms || why.is_empty() {
            missed.push((fault, check, why.to_owned()));
        }
        eprintln!("{fault}: {}", why.lines().next().unwrap_or_default());
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[test]
fn each_fault_of_a_worker_is_found_by_the_check_that_is_about_it() {
    every_fault_is_found(0);
}

#[test]
fn each_fault_of_a_worker_is_found_by_the_check_that_is_about_it_2() {
    every_fault_is_found(1);
}

#[test]
fn each_fault_of_a_worker_is_found_by_the_check_that_is_about_it_3() {
    every_fault_is_found(2);
}

#[test]
fn a_worker_without_a_fault_passes_the_same_checks_and_the_outcome_has_its_shape() {
    let Some(python) = python() else { return };
    let mut checks: Vec<_> = FAULTS.into_iter().map(|(_, check)| check).collect();
    checks.sort_unstable();
    checks.dedup();
    for check in checks.into_iter().step_by(4) {
        let (conforms, outcome) = drive(&python, "none", check, "30");
        assert!(conforms, "{outcome:#}");
        let members: Vec<_> = outcome.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["checks", "failed", "level", "passed", "wire"]);
        let members: Vec<_> = row(&outcome, check).as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["expects", "level", "ms", "name", "number", "passed", "sentence", "why"]);
    }
}

#[test]
fn a_program_that_cannot_be_started_and_a_name_that_no_check_has_are_told() {
    let tell = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("conformance").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    assert!(tell(&["--only", "hello", "--", "/no/such/program"]).contains("cannot start `/no/such/program`"));
    let told = tell(&["--only", "weather", "--", "true"]);
    assert!(told.contains("no check") && told.contains("small-task"), "{told}");
    assert!(tell(&["--only", "hello", "--patience", "1", "--", "true"]).contains("the program has ended"));
}
