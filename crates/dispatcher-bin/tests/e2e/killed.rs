//! Kills: whatever the moment, the next start goes on, nothing is lost and nothing that was recorded is done again.

use crate::kit::{Dice, Place, full, wait_for_file};
use crate::real::real_files;
use crate::results::assert_gzipped;
use std::collections::HashSet;

/// Starts, lets it come to the n-th pass of a place, and kills the whole tree there.
fn kill_at(place: &Place, exec: &str, at: &str, n: u64) {
    let held = place.path().join(format!("held-{at}"));
    let _ = std::fs::remove_file(&held);
    let mut command = place.run_command(["--shell", "--quiet", "--exec", exec]);
    command.env("DISPATCHER_HOLD", format!("{at}:{n}")).env("DISPATCHER_HOLD_FILE", &held);
    let running = crate::kit::Running::start(&mut command);
    wait_for_file(&held);
    running.kill_tree();
}

/// Which tasks have a stored result, and how many lines the log of ends has.
fn recorded(place: &Place, log: &std::path::Path) -> (HashSet<String>, usize) {
    let done = place.tasks().into_iter().filter(|task| task["state"] == "done");
    let ids = done.map(|task| task["id"].to_string()).collect();
    (ids, std::fs::read_to_string(log).unwrap_or_default().lines().count())
}

// Rules S4, D7, A2, A4.
#[test]
fn killed_at_five_moments_every_file_has_its_result_and_nothing_recorded_is_done_again() {
    let mut dice = Dice::cast();
    let place = Place::new();
    let names = real_files(&place.inputs(), if full() { 10_000 } else { 1_500 });
    let log = place.path().join("log");
    let exec = format!("gzip -9nc {{input}} && echo {{task}} >> {}", log.display());
    let some = names.len() as u64;
    let mut known = Vec::new();
    let moments = [
        ("imported", dice.upto(some / 1024 + 1)),
        ("handed_out", dice.upto(some / 10)),
        ("publishing", dice.upto(some / 10)),
        ("committed", dice.upto(20)),
        ("handed_out", dice.upto(some / 10)),
    ];
    for (at, n) in moments {
        println!("killed at {at}, pass {n}");
        kill_at(&place, &exec, at, n);
        known.push(recorded(&place, &log));
    }
    place.run_well(["--shell", "--exec", &exec]);
    assert_gzipped(&place, &names);
    assert_eq!(place.tasks().len(), names.len());
    let ends: Vec<String> = std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    for (done, lines) in known {
        let again: Vec<_> = ends[lines..].iter().filter(|task| done.contains(*task)).collect();
        assert!(again.is_empty(), "done again after their result was recorded: {again:?}");
    }
    place.assert_healthy();
}

/// One kill at the first pass of a place, then a start that finishes.
fn survives_a_kill_at(at: &str) {
    let place = Place::with_many(30);
    kill_at(&place, "cat {input}", at, 1);
    let stray = place.out().join(".dispatcher/staging");
    place.run_well(["--shell", "--exec", "cat {input}"]);
    for i in 0..30 {
        assert_eq!(place.result(format!("00/{i:04}")), format!("input {i}\n").as_bytes());
    }
    let left = std::fs::read_dir(stray).map(|files| files.count()).unwrap_or(0);
    assert_eq!(left, 0, "staged files are swept or published");
    place.assert_healthy();
}

// Rule S4.
#[test]
fn a_kill_after_the_claim_committed_loses_nothing() {
    survives_a_kill_at("claimed");
}

// Rule S4.
#[test]
fn a_kill_after_a_task_was_sent_loses_nothing() {
    survives_a_kill_at("handed_out");
}

// Rule S4.
#[test]
fn a_kill_after_a_result_was_received_loses_nothing() {
    survives_a_kill_at("received");
}

// Rule S4.
#[test]
fn a_kill_after_results_were_staged_loses_nothing() {
    survives_a_kill_at("staged");
}

// Rules S4, D7.
#[test]
fn a_kill_after_the_sync_and_before_the_commit_loses_nothing() {
    survives_a_kill_at("synced");
}

// Rules S4, D7.
#[test]
fn a_kill_after_the_commit_and_before_the_answer_loses_nothing() {
    survives_a_kill_at("committed");
}

// Rule S4.
#[test]
fn a_kill_after_the_commit_and_before_the_publication_loses_nothing() {
    survives_a_kill_at("publishing");
}

// Rule S4.
#[test]
fn a_kill_after_the_publication_and_before_its_mark_loses_nothing() {
    survives_a_kill_at("published");
}

// Rule C8.
#[test]
fn a_result_whose_bytes_were_removed_before_it_was_in_place_is_told_and_can_be_computed_anew() {
    let place = Place::with_many(30);
    kill_at(&place, "cat {input}", "publishing", 1);
    for staged in std::fs::read_dir(place.out().join(".dispatcher/staging")).unwrap() {
        std::fs::remove_file(staged.unwrap().path()).unwrap();
    }
    let told = place.run(["--shell", "--exec", "cat {input}"]);
    assert_eq!(told.status.code(), Some(1), "{}", crate::kit::told(&told));
    assert!(crate::kit::told(&told).contains("--again missing"), "{}", crate::kit::told(&told));
    place.run_well(["--shell", "--exec", "cat {input}", "--again", "missing"]);
    for i in 0..30 {
        assert_eq!(place.result(format!("00/{i:04}")), format!("input {i}\n").as_bytes());
    }
    place.assert_healthy();
}
