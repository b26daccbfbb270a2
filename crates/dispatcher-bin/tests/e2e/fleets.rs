//! A server and its workers under kills, stops and terminations: everything ends, nothing is done twice.

use crate::farm::Farm;
use crate::kit::{Dice, full, output, told, wait_until};
use crate::real::real_files;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

/// What workers run: the input's bytes, and a line in a log when that is done.
const ECHO: &str = "cat {input} && echo {task} >> ../log";

/// Places in which the server can be killed, and how often it passes them with `n` tasks at least: each once a task, or once
/// for what eight workers' slots bring together.
fn places(n: u64) -> [(&'static str, u64); 8] {
    let batches = (n / 8).max(1);
    [
        ("claimed", batches),
        ("handed_out", n),
        ("received", n),
        ("staged", batches),
        ("synced", batches),
        ("committed", batches),
        ("publishing", n),
        ("published", n),
    ]
}

// Rules S4, C13, D7, A1, A4. Case F05.
#[test]
fn a_server_killed_again_and_again_has_every_result_of_real_files_and_no_command_runs_twice() {
    let mut dice = Dice::cast();
    let (inputs, kills) = if full() { (2_000, 20) } else { (240, 6) };
    let farm = Farm::new(10_000).in_files();
    let names = real_files(&farm.inputs(), inputs);
    farm.import(&[]);
    let exec = format!("gzip -9nc {{input}} && echo {{task}} >> {}", farm.log().display());
    let workers: Vec<_> = (1..=4).map(|n| farm.worker(&format!("w{n}"), &exec, &["--slots=2"])).collect();
    let per_kill = inputs as u64 / (kills + 1);
    for kill in 0..kills {
        let places = places(per_kill);
        let (place, most) = places[usize::try_from(dice.upto(places.len() as u64) - 1).unwrap()];
        let n = dice.upto(most);
        println!("kill {kill} at {place}, pass {n}, after {} ends", farm.ends().len());
        if farm.ends().len() < inputs {
            farm.serve_and_kill_at(place, n);
        }
    }
    let server = farm.serve();
    farm.wait_until_all_over();
    for worker in workers {
        worker.signal(Signal::TERM);
        let output = worker.end();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }
    server.end();
    let ends = farm.ends();
    assert_eq!(ends.len(), inputs, "every command ended");
    let twice: Vec<_> = ends.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:?}");
    for name in names {
        let by_hand = output(Command::new("gzip").arg("-9nc").arg(farm.inputs().join(&name))).stdout;
        let result = std::fs::read(farm.path().join("results/echo/in").join(&name)).unwrap();
        assert!(result == by_hand, "{} differs from the command by hand", name.display());
    }
    assert_eq!(farm.count("done"), inputs as u64);
    farm.assert_healthy();
}

/// One kill of the server at the first pass of a place; the worker lives on.
fn a_kill_at(place: &str) {
    let farm = Farm::with_many(12, 4_000).in_files();
    farm.import(&[]);
    let exec = ECHO.replace("../log", &farm.log().display().to_string());
    let worker = farm.worker("w1", &exec, &["--slots=2"]);
    farm.serve_and_kill_at(place, 1);
    let server = farm.serve();
    farm.wait_until_all_over();
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    assert_eq!((farm.count("done"), farm.ends().len()), (12, 12));
    assert!(farm.ends().values().all(|n| *n == 1), "{:?}", farm.ends());
    farm.assert_healthy();
}

// Rules S4, L2.
#[test]
fn a_kill_after_the_claim_loses_nothing() {
    a_kill_at("claimed");
}

// Rules S4, C13.
#[test]
fn a_kill_after_the_first_hand_out_and_before_its_note_loses_nothing() {
    a_kill_at("handed_out");
}

// Rules S4, D7.
#[test]
fn a_kill_after_a_result_was_received_has_it_sent_again() {
    a_kill_at("received");
}

// Rules S4, D7.
#[test]
fn a_kill_after_staging_has_the_result_sent_again_and_the_stray_swept() {
    a_kill_at("staged");
}

// Rules S4, D7.
#[test]
fn a_kill_after_the_sync_has_the_result_sent_again() {
    a_kill_at("synced");
}

// Rules S4, D6, D7.
#[test]
fn a_kill_after_the_commit_and_before_its_answer_stores_nothing_twice() {
    a_kill_at("committed");
}

// Rules S4, C8.
#[test]
fn a_kill_before_the_publication_publishes_after_the_start() {
    a_kill_at("publishing");
}

// Rules S4, C8.
#[test]
fn a_kill_after_the_publication_and_before_its_mark_marks_after_the_start() {
    a_kill_at("published");
}

/// Each task's charge is the number of its charged attempts, and none of its attempts is out.
fn assert_budgets_exact(farm: &Farm, budget: u64) {
    for task in farm.look(&["tasks", "--limit", "0"]).as_array().unwrap() {
        let story = farm.look(&["show", &task["id"].to_string()]);
        let attempts: &Vec<Value> = story["attempts"].as_array().unwrap();
        let charged = attempts.iter().filter(|a| a["charged"] == true).count() as u64;
        assert_eq!(story["task"]["charged"].as_u64(), Some(charged), "{story:#}");
        assert!(charged <= budget && attempts.iter().all(|a| !a["ending"].is_null()), "{story:#}");
    }
}

// Rules A2, A3, A4, X2, R4. Cases F07, F30.
#[test]
fn workers_killed_stopped_and_terminated_at_random_cost_attempts_and_no_task() {
    let mut dice = Dice::cast();
    let (inputs, rounds) = if full() { (400, 30) } else { (60, 6) };
    let farm = Farm::with_many(inputs, 1_000);
    farm.import(&["--budget=100"]);
    let server = farm.serve();
    let exec = ECHO.replace("../log", &farm.log().display().to_string());
    let start = |n: u64| farm.worker(&format!("w{n}"), &exec, &["--slots=2", "--drain=5s"]);
    let mut workers: Vec<_> = (0..4).map(|n| Some(start(n))).collect();
    for round in 0..rounds {
        let n = dice.upto(4) - 1;
        let before = farm.ends().len();
        wait_until("something has ended since", || farm.ends().len() > before || farm.count("ready") == 0);
        let name = format!("w{n}");
        let is_it = |w: &Value| w["name"] == name.as_str() && w["connected"] == true;
        let is_there = || farm.look(&["workers"]).as_array().unwrap().iter().any(is_it);
        // One that is just starting would die of the signal.
        wait_until("it is there", is_there);
        let worker = workers[usize::try_from(n).unwrap()].take().unwrap();
        let how = dice.upto(3);
        println!(
            "round {round}: worker {n}, {}",
            ["killed", "stopped", "terminated"][usize::try_from(how - 1).unwrap()]
        );
        match how {
            1 => worker.kill_tree(),
            2 => {
                worker.signal(Signal::STOP);
                wait_until("it is missed", || !is_there());
                worker.signal(Signal::CONT);
                worker.signal(Signal::TERM);
                worker.end();
            }
            _ => {
                worker.signal(Signal::TERM);
                assert_eq!(worker.end().status.code(), Some(0));
            }
        }
        workers[usize::try_from(n).unwrap()] = Some(start(n));
    }
    farm.wait_until_all_over();
    for worker in workers.into_iter().flatten() {
        worker.signal(Signal::TERM);
        worker.end();
    }
    server.end();
    assert_eq!(farm.count("done"), inputs as u64);
    assert_budgets_exact(&farm, 100);
    farm.assert_healthy();
}
