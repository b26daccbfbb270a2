//! The commands that look: what they say of a run, and that `doctor` finds what is planted.

use crate::kit::{Place, dispatcher, output, told};
use serde_json::Value;
use std::process::Command;

/// A run with one good, one bad and one invalid task.
fn mixed() -> Place {
    let place = Place::with(&[("bad", b"x"), ("good", b"y"), ("sub/invalid", b"z")]);
    let exec = "case {input} in *bad) exit 7;; *invalid) exit 65;; *) cat {input};; esac";
    let output = place.run(["--shell", "--exec", exec]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    place
}

/// A looking command's words.
fn said(place: &Place, args: &[&str]) -> String {
    let output = output(dispatcher().current_dir(place.path()).args(args).args(["--state", "out"]));
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

// Rule R4.
#[test]
fn a_run_can_be_told_to_wait_before_a_retry() {
    let place = Place::with(&[("a", b"1")]);
    place.run_well(["--exec", "cat {input}", "--retry-delay", "90s"]);
    assert_eq!(place.look(&["services"])[0]["settings"]["retry_delay_ms"], 90_000);
    place.run_well(["--exec", "cat {input}"]);
    assert_eq!(place.look(&["services"])[0]["settings"]["retry_delay_ms"], 0);
}

#[test]
fn status_counts_by_state_status_and_cause() {
    let place = mixed();
    let status = place.look(&["status"]);
    assert_eq!(status["total"], 3);
    assert_eq!(status["working"], false);
    let by_status = status["by_status"].to_string();
    for line in ["[\"no_problem\",1]", "[\"fatal\",1]", "[\"invalid\",1]"] {
        assert!(by_status.contains(line), "{by_status}");
    }
    assert!(said(&place, &["status"]).contains("exit:7"));
}

#[test]
fn tasks_are_filtered_and_paged() {
    let place = mixed();
    let names = |args: &[&str]| -> Vec<String> {
        let list = place.look(&[&["tasks"], args].concat());
        list.as_array().unwrap().iter().map(|task| task["entry"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--status", "fatal"]), ["bad"]);
    assert_eq!(names(&["--status", "fatal,invalid"]), ["bad", "sub/invalid"]);
    assert_eq!(names(&["--category", "exit", "--what", "7"]), ["bad"]);
    assert_eq!(names(&["--entry", "sub/"]), ["sub/invalid"]);
    assert_eq!(names(&["--in", "ready"]), [""; 0]);
    assert_eq!(names(&["--limit", "1"]), ["bad"]);
    assert_eq!(names(&["--limit", "1", "--after", "1"]), ["good"]);
}

// Rule A5.
#[test]
fn show_tells_every_attempt_with_worker_times_and_cause() {
    let place = mixed();
    let text = said(&place, &["show", "bad"]);
    for word in ["task 1: bad", "done, fatal", "attempt 0", "handed out", "begun", "ended", "accepted", "exit:7"] {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
    assert_eq!(place.look(&["show", "1"]), place.look(&["show", "bad"]));
}

// Rule A1.
#[test]
fn doctor_finds_a_removed_result_a_damaged_one_and_a_changed_counter() {
    let place = mixed();
    place.assert_healthy();
    let faults = |place: &Place| -> Value { place.look(&["doctor", "--deep"]) };
    std::fs::write(place.out().join("good"), b"Y").unwrap();
    assert_eq!(faults(&place)["count"], 1, "{:#}", faults(&place));
    let exec = "case {input} in *bad) exit 7;; *invalid) exit 65;; *) cat {input};; esac";
    place.run(["--shell", "--exec", exec, "--again", "missing"]);
    assert_eq!(place.result("good"), b"y", "a damaged result was computed anew");
    std::fs::remove_file(place.out().join("good")).unwrap();
    std::os::unix::fs::symlink("bad", place.out().join("good")).unwrap();
    assert_eq!(faults(&place)["count"], 1, "a link is no result: {:#}", faults(&place));
    std::fs::remove_file(place.out().join("good")).unwrap();
    let found = faults(&place);
    assert!(found["faults"].to_string().contains("good"), "{found:#}");
    let code = output(dispatcher().current_dir(place.path()).args(["doctor", "--state", "out"])).status.code();
    assert_eq!(code, Some(1));
    place.run(["--shell", "--exec", exec, "--again", "missing"]);
    assert_eq!(place.result("good"), b"y", "the lost result was computed anew");
    place.assert_healthy();

    let database = place.out().join(".dispatcher/dispatcher.db");
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
        c.execute(\"update counters set n = n + 1 where kind = 'dispatched'\"); c.commit()";
    let changed = Command::new("python3").args(["-c", script]).arg(database).status().unwrap();
    assert!(changed.success());
    let found = faults(&place);
    assert_ne!(found["books"]["differences"].as_array().unwrap().len(), 0, "{found:#}");
}

#[test]
fn again_failed_begins_a_new_run_of_what_failed_only() {
    let place = Place::with(&[("bad", b"x"), ("good", b"y")]);
    let gate = place.path().join("gate");
    let exec = format!("case {{input}} in *bad) test -e {0};; esac && cat {{input}}", gate.display());
    assert_eq!(place.run(["--shell", "--exec", &exec]).status.code(), Some(1));
    std::fs::write(&gate, b"").unwrap();
    let unchanged = place.run(["--shell", "--exec", &exec]);
    assert_eq!(unchanged.status.code(), Some(1), "without --again a failure stays: {}", told(&unchanged));
    place.run_well(["--shell", "--exec", &exec, "--again", "failed"]);
    assert_eq!(place.result("bad"), b"x");
    assert_eq!(place.story("bad")["task"]["run"], 2);
    assert_eq!(place.story("good")["task"]["run"], 1);
    place.assert_healthy();
}

#[test]
fn the_summary_as_json_has_what_the_text_has() {
    let place = Place::with(&[("a", b"1")]);
    let output = place.run_well(["--exec", "cat {input}", "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["finished"], true);
    assert_eq!(summary["imported"]["added"], 1);
    assert_eq!(summary["tasks"]["total"], 1);
}

#[test]
fn what_was_asked_for_and_cannot_be_written_is_no_success() {
    let place = mixed();
    for args in [&["status"][..], &["tasks", "--json"], &["doctor"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = dispatcher();
        command.current_dir(place.path()).args(args).args(["--state", "out"]).stdout(full);
        let status = command.stderr(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{args:?}");
    }
}
