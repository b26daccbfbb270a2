//! What becomes of tasks whose workers are silent, slow or far away, as the records tell it.

use crate::farm::Farm;
use crate::kit::{dispatcher, output, told, wait_for_file, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A pipe that holds a command up until the test says go.
fn gate(farm: &Farm) -> PathBuf {
    let gate = farm.path().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    gate
}

fn open(gate: &Path) {
    std::fs::OpenOptions::new().write(true).open(gate).unwrap().write_all(b"go").unwrap();
}

fn endings(story: &Value) -> Vec<&str> {
    story["attempts"].as_array().unwrap().iter().map(|a| a["ending"].as_str().unwrap_or("out")).collect()
}

// Rules A2, A3, A5, C5. Cases F07, F30.
#[test]
fn a_worker_that_is_silent_is_lost_and_one_whose_command_hangs_is_not() {
    let farm = Farm::with_many(1, 1_000);
    farm.import(&["--limit=1s", "--budget=3"]);
    let server = farm.serve();
    let started = farm.path().join("started");
    let worker = farm.worker("w1", &format!("touch {}; sleep 1000", started.display()), &["--kill-grace=100ms"]);
    wait_for_file(&started);
    worker.signal(Signal::STOP);
    wait_until("the worker is lost", || endings(&farm.look(&["show", "1"])).first() == Some(&"worker_lost"));
    worker.kill_tree();
    let hanging = farm.worker("w2", "sleep 1000", &["--kill-grace=100ms"]);
    wait_until("the budget is spent", || farm.count("dead") == 1);
    let story = farm.look(&["show", "1"]);
    assert_eq!(endings(&story), ["worker_lost", "retryable_cause", "retryable_cause"], "{story:#}");
    assert_eq!(story["attempts"][2]["why"]["what"], "wallclock", "{story:#}");
    assert_eq!(story["task"]["charged"], 3);
    hanging.signal(Signal::TERM);
    hanging.end();
    server.end();
    farm.assert_healthy();
}

// Rules A3, L1. Cases F09, F71.
#[test]
fn tasks_longer_than_the_silence_of_a_lost_worker_run_once_as_long_as_it_beats() {
    let farm = Farm::with_many(2, 500);
    farm.import(&[]);
    let server = farm.serve();
    // One waits, the other one burns a processor: neither keeps its worker from a sign of life.
    let exec = format!(
        "case {{task}} in 1) sleep 2;; *) timeout 2 sh -c 'while :; do :; done';; esac; echo {{task}} >> {}",
        farm.log().display()
    );
    let worker = farm.worker("w1", &exec, &["--slots=2"]);
    farm.wait_until_all_over();
    assert!(farm.ends().values().all(|n| *n == 1) && farm.ends().len() == 2, "{:?}", farm.ends());
    for task in ["1", "2"] {
        assert_eq!(endings(&farm.look(&["show", task])), ["accepted"]);
    }
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
}

// Rules S3, S4.
#[test]
fn leasing_that_stops_and_goes_on_resets_nothing_that_is_in_flight() {
    let farm = Farm::with_many(3, 20_000);
    farm.import(&[]);
    let server = farm.serve();
    let (gate, started) = (gate(&farm), farm.path().join("started"));
    let exec =
        format!("[ {{task}} = 1 ] && touch {} && cat {} > /dev/null; cat {{input}}", started.display(), gate.display());
    let worker = farm.worker("w1", &exec, &["--slots=1"]);
    wait_for_file(&started);
    farm.tell_well(&["pause"]);
    wait_until("the stock is back", || farm.count("leased") == 1);
    farm.tell_well(&["resume"]);
    open(&gate);
    farm.wait_until_all_over();
    assert_eq!(farm.count("done"), 3);
    for task in ["1", "2", "3"] {
        assert_eq!(endings(&farm.look(&["show", task])), ["accepted"]);
    }
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    farm.assert_healthy();
}

// Rule A1. Case F55.
#[test]
fn times_are_the_same_wherever_server_worker_and_reader_think_they_are() {
    let farm = Farm::with_many(2, 20_000);
    farm.import(&[]);
    let server = farm.serve_with(&[], &[("TZ", "Asia/Kolkata".to_owned())]);
    let worker = farm.worker_with("w1", "cat {input}", &[], &[("TZ", "America/St_Johns")]);
    farm.wait_until_all_over();
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    let shown = |zone: &str| {
        let mut show = dispatcher();
        let output = output(show.current_dir(farm.path()).env("TZ", zone).args(["show", "1"]));
        told(&output)
    };
    assert_eq!(shown("UTC"), shown("America/St_Johns"));
    assert_eq!(shown("UTC"), shown("Asia/Kolkata"));
    let story = farm.look(&["show", "1"]);
    let attempt = &story["attempts"][0];
    let at = |name: &str| attempt[name].as_i64().unwrap();
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    assert!(at("handed_at") <= at("began_at") && at("began_at") <= at("ended_at"), "{attempt:#}");
    assert!((now - at("ended_at")).abs() < 600_000, "a time zone is off by half an hour at least: {attempt:#}");
}

// Rules A4, L3. Case F16.
#[test]
fn a_changed_limit_and_budget_hold_for_what_begins_afterwards() {
    let farm = Farm::with_many(1, 20_000);
    farm.import(&["--limit=1h", "--budget=1"]);
    let server = farm.serve();
    farm.tell_well(&["services", "set", "echo", "--limit=500ms", "--budget=2"]);
    let worker = farm.worker("w1", "sleep 1000", &["--kill-grace=100ms"]);
    wait_until("the budget is spent", || farm.count("dead") == 1);
    assert_eq!(endings(&farm.look(&["show", "1"])).len(), 2, "the new budget");
    farm.tell_well(&["services", "set", "echo", "--limit=1h"]);
    farm.tell_well(&["rerun", "1"]);
    worker.signal(Signal::TERM);
    worker.end();
    let good = farm.worker("w2", "cat {input}", &[]);
    farm.wait_until_all_over();
    let story = farm.look(&["show", "1"]);
    assert_eq!((story["task"]["run"].as_u64(), farm.count("done")), (Some(2), 1), "{story:#}");
    good.signal(Signal::TERM);
    good.end();
    server.end();
    farm.assert_healthy();
}
