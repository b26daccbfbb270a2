//! Bad tasks: what kills, hangs, floods or lies ends after its budget, and the good ones do not notice.

use crate::kit::{Place, full, peak_memory, told};
use serde_json::Value;

/// The attempts of a story.
fn attempts(story: &Value) -> Vec<Value> {
    story["attempts"].as_array().unwrap().clone()
}

// Rules R4, R5, A4.
#[test]
fn a_command_that_dies_by_a_signal_is_tried_up_to_its_budget_and_its_cause_is_stored() {
    let place = Place::with(&[("bad", b"x"), ("good", b"y")]);
    let exec = "case {input} in *bad) kill -SEGV $$;; *) cat {input};; esac";
    let output = place.run(["--shell", "--exec", exec]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let story = place.story("bad");
    assert_eq!(story["task"]["state"], "dead");
    assert_eq!(story["task"]["charged"], 3);
    assert_eq!(attempts(&story).len(), 3, "{story:#}");
    for attempt in attempts(&story) {
        assert_eq!(attempt["ending"], "retryable_cause");
        assert_eq!(attempt["why"]["what"], "SIGSEGV", "{attempt:#}");
    }
    assert_eq!(story["results"][0]["origin"], "last_attempt_stand_in");
    assert_eq!(place.result("good"), b"y");
    place.assert_healthy();
}

// Rules A3, R4, L3. Case F74.
#[test]
fn what_ignores_its_end_is_killed_at_its_limit_and_the_slot_goes_on() {
    let place = Place::with(&[("a-stubborn", b""), ("b-closed", b""), ("c-good", b"fine")]);
    let exec = "case {input} in \
        *stubborn) trap '' TERM; while :; do :; done;; \
        *closed) exec >&- 2>&-; sleep 1000;; \
        *) cat {input};; esac";
    let output = place.run([
        "--shell",
        "--slots",
        "1",
        "--limit",
        "500ms",
        "--kill-grace",
        "200ms",
        "--budget",
        "1",
        "--exec",
        exec,
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    for name in ["a-stubborn", "b-closed"] {
        let story = place.story(name);
        assert_eq!(story["task"]["state"], "dead");
        let why = &attempts(&story)[0]["why"];
        assert_eq!((&why["category"], &why["what"]), (&"timeout".into(), &"wallclock".into()), "{story:#}");
    }
    assert_eq!(place.result("c-good"), b"fine");
    place.assert_healthy();
}

// Case F74.
#[test]
fn a_flood_on_standard_error_is_kept_at_both_ends_and_costs_no_memory() {
    let place = Place::with(&[("a", b"result")]);
    let megabytes = if full() { 1000 } else { 100 };
    let peak = place.path().join("peak");
    let exec = format!(
        "echo first >&2; head -c {megabytes}000000 /dev/zero | tr '\\0' x >&2; echo last >&2; cat {{input}}; \
         grep VmHWM /proc/$PPID/status > {}",
        peak.display()
    );
    place.run_well(["--shell", "--exec", &exec]);
    assert_eq!(place.result("a"), b"result");
    let story = place.story("a");
    let parts = story["results"][0]["parts"].as_array().unwrap().clone();
    let kept = parts.iter().find(|part| part["name"] == "stderr").unwrap();
    assert!(kept["length"].as_u64().unwrap() < 200_000, "{kept:#}");
    let kilobytes: u64 = std::fs::read_to_string(peak).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 100_000, "{kilobytes} kB");
    place.assert_healthy();
}

// Rule A2. Case F19.
#[test]
fn a_task_that_kills_the_whole_process_ends_in_the_end() {
    let place = Place::with(&[("bad", b"x"), ("good", b"y")]);
    let exec = "case {input} in *bad) kill -KILL $PPID;; *) cat {input};; esac";
    let mut starts = 0;
    loop {
        starts += 1;
        assert!(starts <= 20, "it never ends");
        let output = place.run(["--shell", "--slots", "1", "--exec", exec]);
        if output.status.code().is_some() {
            assert_eq!(output.status.code(), Some(1), "{}", told(&output));
            break;
        }
    }
    // Ten times free of charge, because the worker was part of the killed process; then three that are charged.
    let story = place.story("bad");
    assert_eq!(story["task"]["state"], "dead", "{story:#}");
    assert_eq!(story["task"]["charged"], 3);
    assert_eq!(place.result("good"), b"y");
    place.assert_healthy();
}

// Rules R4, D4. Case F52.
#[test]
fn dirty_words_on_standard_error_are_kept_cleaned_and_the_status_still_counts() {
    let place = Place::with(&[("a", b"x")]);
    let exec = "printf 'Warning:font:missing a\\000b\\377c\\n\\377\\376\\nError:math:bad \\342\\200\\256evil\\n' >&2; cat {input}";
    place.run_well(["--shell", "--exec", exec]);
    let story = place.story("a");
    assert_eq!(story["task"]["standing"]["status"], "error", "{story:#}");
    let messages = story["results"][0]["messages"].as_array().unwrap();
    let all = Value::from(messages.clone()).to_string();
    assert!(!all.contains("\\u0000") && !all.contains('\u{202e}'), "{all}");
    assert!(messages.iter().any(|m| m["category"] == "font" && m["what"] == "missing"), "{all}");
    place.assert_healthy();
}

#[test]
fn exit_statuses_mean_what_the_help_says() {
    let place = Place::with(&[("x0", b""), ("x2", b""), ("x65", b""), ("x75", b""), ("x127", b"")]);
    let output = place.run(["--shell", "--budget", "2", "--exec", "exit $(basename {input} | tr -d x)"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let status = |name: &str| place.story(name)["task"]["standing"]["status"].as_str().unwrap().to_owned();
    assert_eq!(status("x0"), "no_problem");
    assert_eq!(status("x2"), "fatal");
    assert_eq!(status("x65"), "invalid");
    assert_eq!(attempts(&place.story("x2")).len(), 1, "a failure is a verdict and is not tried again");
    assert_eq!(attempts(&place.story("x75")).len(), 2, "a temporary failure is");
    assert_eq!(place.story("x75")["task"]["state"], "dead");
    place.assert_healthy();
}

#[test]
fn a_command_that_is_not_there_is_said_before_anything_starts() {
    let place = Place::with(&[("a", b"")]);
    let run = place.run(["--exec", "no-such-command-anywhere {input}"]);
    assert_eq!(run.status.code(), Some(2), "{}", told(&run));
    assert!(told(&run).contains("no-such-command-anywhere"), "{}", told(&run));
}

// Rule L10.
#[test]
fn many_tasks_need_little_memory() {
    let place = Place::with_many(if full() { 10_000 } else { 2_000 });
    let running = place.start(["--exec", "true", "--limit", "10m"]);
    let mut peak = 0;
    while let Some(memory) = peak_memory(running.pid()) {
        peak = peak.max(memory);
        std::thread::yield_now();
    }
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(peak < 100_000_000, "{peak} bytes");
}
