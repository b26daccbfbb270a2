//! Stops: signals end a run in good order, and the same command goes on.

use crate::kit::{Place, children_of, told, wait_for_file};
use rustix::process::Signal;

// Rules S1, S6, A2.
#[test]
fn ctrl_c_lets_running_commands_end_within_the_drain_limit() {
    let place = Place::with_many(50);
    let (at_work, go) = (place.path().join("at-work"), place.path().join("go"));
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let exec = format!("touch {}; cat {}; cat {{input}}", at_work.display(), go.display());
    let mut running = place.start(["--shell", "--slots", "1", "--exec", &exec]);
    wait_for_file(&at_work);
    running.signal(Signal::INT);
    running.wait_for_line("stopping");
    std::fs::write(&go, b"").unwrap();
    let output = running.end();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("to go on: "), "{}", told(&output));
    let done = place.tasks().iter().filter(|task| task["state"] == "done").count();
    assert_eq!(done, 1, "what ran was finished, and nothing more was begun");
    place.assert_healthy();
}

// Rules S1, A2.
#[test]
fn after_the_drain_limit_the_groups_are_ended_and_their_tasks_go_back_uncharged() {
    let place = Place::with(&[("a", b"1")]);
    let (at_work, pid) = (place.path().join("at-work"), place.path().join("pid"));
    let exec = format!("sleep 1000 & echo $! > {}; touch {}; wait", pid.display(), at_work.display());
    let running = place.start(["--shell", "--drain", "100ms", "--kill-grace", "100ms", "--exec", &exec]);
    wait_for_file(&at_work);
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    let sleeper = std::fs::read_to_string(pid).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(" Z "), "a process of the group lives: {state}");
    let task = place.story("a")["task"].clone();
    assert_eq!((&task["state"], &task["charged"]), (&"ready".into(), &0.into()), "{task:#}");
    place.assert_healthy();
}

// Rule S1.
#[test]
fn a_second_signal_ends_at_once() {
    let place = Place::with(&[("a", b"1")]);
    let at_work = place.path().join("at-work");
    let exec = format!("touch {}; sleep 1000", at_work.display());
    let mut running = place.start(["--shell", "--exec", &exec]);
    wait_for_file(&at_work);
    let commands = children_of(running.pid());
    running.signal(Signal::INT);
    running.wait_for_line("stopping");
    running.signal(Signal::INT);
    let output = running.end();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    for pid in commands {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        // The command is left alone by a process that ends at once; the test cleans up.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let exec = "cat {input}";
    let other = place.run(["--shell", "--exec", exec]);
    assert_eq!(other.status.code(), Some(2), "the folder still belongs to the first command");
}

// Rules S1, S4. Case F59.
#[test]
fn stopped_at_many_moments_each_task_has_its_result_or_is_ready() {
    let place = Place::with_many(400);
    let mut finished = false;
    for moment in 0..if crate::kit::full() { 50 } else { 8 } {
        if finished {
            break;
        }
        let wanted = moment * 5 + 1;
        // The moment is a number of results in place, not a time.
        let results = || {
            walkdir::WalkDir::new(place.out())
                .into_iter()
                .filter_map(Result::ok)
                .filter(|e| e.file_type().is_file() && !e.path().components().any(|c| c.as_os_str() == ".dispatcher"))
                .count()
        };
        let before = results();
        if before == 400 {
            // A stop may have come after the last result: then there is no moment left, and nothing to wait for.
            break;
        }
        let running = place.start(["--exec", "cat {input}"]);
        crate::kit::wait_until("some results are there", || results() >= (before + wanted).min(400));
        running.signal(Signal::TERM);
        let output = running.end();
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 3)), "{}", told(&output));
        finished = code == Some(0);
        for task in place.tasks() {
            let entry = task["entry"].as_str().unwrap();
            match task["state"].as_str().unwrap() {
                "done" => assert!(place.out().join(entry).is_file(), "{entry} is done and has no file"),
                "ready" => assert!(!place.out().join(entry).exists(), "{entry} has a file and no row"),
                other => panic!("{entry} is {other} after the end"),
            }
        }
        place.assert_healthy();
    }
    place.run_well(["--exec", "cat {input}"]);
}
