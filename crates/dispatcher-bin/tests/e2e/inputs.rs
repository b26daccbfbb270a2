//! Inputs: which files are taken, what is said about the others, and what must not be mixed.

use crate::kit::{Place, dispatcher, told};

/// What a command said, for a look at its words.
fn said(output: &std::process::Output) -> String {
    told(output)
}

#[test]
fn links_and_special_files_are_skipped_and_counted() {
    let place = Place::with(&[("a", b"1")]);
    std::os::unix::fs::symlink("a", place.inputs().join("link")).unwrap();
    let pipe = place.inputs().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = place.run_well(["--exec", "cat {input}"]);
    assert!(said(&output).contains("skipped: 1 link, 1 special file"), "{}", said(&output));
    assert_eq!(place.tasks().len(), 1);
}

#[test]
fn folders_of_dispatchers_and_workers_are_no_inputs_wherever_they_lie() {
    let place = Place::with(&[
        ("a", b"1"),
        ("sub/.dispatcher", b"a file of that name is an input"),
        ("sub/.dispatcher-worker-x", b"and so is this"),
    ]);
    for folder in [".dispatcher", "deep/down/.dispatcher", "sub/.dispatcher-worker", "sub/.dispatcher-worker-12/outbox"]
    {
        place.input(format!("{folder}/file"), b"of others");
    }
    let output = place.run_well(["--exec", "cat {input}"]);
    assert!(said(&output).contains("skipped: 4 folders of dispatchers and workers"), "{}", said(&output));
    let entries: Vec<_> = place.tasks().iter().map(|task| task["entry"].as_str().unwrap().to_owned()).collect();
    assert_eq!(entries, ["a", "sub/.dispatcher", "sub/.dispatcher-worker-x"]);
    let import = ["import", "in", "--service", "s", "--state", "elsewhere"];
    let imported = crate::kit::output(dispatcher().current_dir(place.path()).args(import));
    assert!(said(&imported).contains("skipped: 4 folders of dispatchers and workers"), "{}", said(&imported));
    assert!(said(&imported).contains("added 3 tasks"), "{}", said(&imported));
}

#[test]
fn a_changed_input_is_a_named_failure_and_again_changed_takes_it_anew() {
    let place = Place::with(&[("a", b"old"), ("b", b"same")]);
    place.run_well(["--exec", "cat {input}"]);
    place.input("a", b"newer");
    let output = place.run(["--exec", "cat {input}"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("1 inputs have changed since they were imported, such as a"), "{}", said(&output));
    assert_eq!(place.result("a"), b"old", "the old result stays until there is a new one");
    place.run_well(["--exec", "cat {input}", "--again", "changed"]);
    assert_eq!(place.result("a"), b"newer");
    assert_eq!(place.story("a")["task"]["run"], 2);
    assert_eq!(place.story("b")["task"]["run"], 1);
    place.assert_healthy();
}

#[test]
fn an_input_that_changes_after_its_import_fails_by_name() {
    // Inputs that are too large to be read ahead: whichever command is first changes all the others. One of them may have
    // been fetched by then.
    let large = vec![b'x'; 100_000];
    let names = ["a", "b", "c", "d", "e"];
    let place = Place::with(&names.map(|name| (name, large.as_slice())));
    let (once, inputs) = (place.path().join("once"), place.inputs());
    let exec = format!(
        "if mkdir {}; then for f in {}/*; do [ ${{f##*/}} = $(basename {{input}}) ] || printf changed > $f; done; fi; cat {{input}}",
        once.display(),
        inputs.display()
    );
    let output = place.run(["--shell", "--slots", "1", "--exec", &exec]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let mut changed = 0;
    for name in names {
        let task = place.story(name)["task"].clone();
        if task["state"] == "done" {
            assert_eq!(place.result(name), large);
        } else {
            changed += 1;
            let was = (&task["state"], &task["last_reason"]["what"]);
            assert_eq!(was, (&"dead".into(), &"input_changed".into()), "{task:#}");
        }
    }
    assert!(changed >= 3, "{changed} of the others");
    place.assert_healthy();
}

#[test]
fn two_inputs_with_one_result_name_are_told_before_anything_runs() {
    let place =
        Place::with(&[("x/a.md", b"1"), ("x/a.txt", b"2"), ("y/a.md", b"3"), ("y/a.rst", b"4"), ("y/a.txt", b"5")]);
    let output = place.run(["--ext", "html", "--exec", "cat {input}"]);
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains("a.md") && said.contains("a.txt") && said.contains("a.html"), "{said}");
    assert!(said.contains("and 2 more") && said.contains("without --ext"), "{said}");
    assert!(!place.out().join("x").exists());
    place.run(["--exec", "cat {input}"]);
    assert_eq!(place.result("x/a.md"), b"1", "the advice leads on");
}

#[test]
fn a_result_with_the_name_of_a_folder_of_results_is_told_before_anything_runs() {
    let place = Place::with(&[
        ("b.gz/x.txt", b"1"),
        ("b.txt", b"2"),
        ("c/a.md", b"3"),
        ("c/a.s/deep", b"4"),
        ("c/a.txt", b"5"),
    ]);
    let folder = place.run(["--ext", "gz", "--exec", "cat {input}"]);
    assert_eq!(folder.status.code(), Some(2));
    assert!(said(&folder).contains("b.gz"), "{}", said(&folder));
    let behind_a_folder = place.run(["--ext", "html", "--exec", "cat {input}"]);
    assert_eq!(behind_a_folder.status.code(), Some(2));
    assert!(said(&behind_a_folder).contains("a.html"), "{}", said(&behind_a_folder));
}

#[test]
fn the_results_of_one_run_are_the_inputs_of_another() {
    let place = Place::with(&[("a", b"text")]);
    place.run_well(["--exec", "cat {input}"]);
    let again = crate::kit::output(dispatcher().current_dir(place.path()).args([
        "run",
        "out",
        "-o",
        "second",
        "--exec",
        "cat {input}",
    ]));
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    let tasks = crate::kit::output(dispatcher().current_dir(place.path()).args(["tasks", "--state", "second"]));
    assert_eq!(said(&tasks).lines().filter(|line| line.contains("done")).count(), 1, "{}", said(&tasks));
}

#[test]
fn another_command_or_folder_on_the_same_results_is_refused() {
    let place = Place::with(&[("a", b"1")]);
    place.run_well(["--exec", "cat {input}"]);
    let output = place.run(["--exec", "wc {input}"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("holds the results of the command `cat {input}`"), "{}", said(&output));
    std::fs::create_dir(place.path().join("other")).unwrap();
    let other = crate::kit::output(dispatcher().current_dir(place.path()).args([
        "run",
        "other",
        "-o",
        "out",
        "--exec",
        "cat {input}",
    ]));
    assert_eq!(other.status.code(), Some(2));
    assert!(said(&other).contains("holds the results of the inputs"), "{}", said(&other));
    assert_eq!(place.result("a"), b"1");
}

#[test]
fn results_inside_the_inputs_are_no_inputs() {
    let place = Place::with(&[("a", b"1")]);
    for _ in 0..2 {
        let output = crate::kit::output(dispatcher().current_dir(place.path()).args([
            "run",
            "in",
            "-o",
            "in/results",
            "--exec",
            "cat {input}",
        ]));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(said(&output).contains("is skipped as an input"), "{}", said(&output));
    }
    assert_eq!(std::fs::read(place.inputs().join("results/a")).unwrap(), b"1");
    assert!(!place.inputs().join("results/results").exists());
}

#[test]
fn wrong_command_lines_say_what_to_do() {
    let place = Place::with(&[("a", b"1")]);
    for (args, word) in [
        (&["--exec", "cat {nothing}"][..], "{nothing}"),
        (&["--exec", ""], "command"),
        (&["--exec", "cat 'unclosed"], "quote"),
        (&["--exec", "cat", "--ext", "a/b"], "--ext"),
        (&["--exec", "cat", "--ext", ".."], "--ext"),
        (&["--exec", "cat", "--ext", "a."], "--ext"),
        (&["--exec", "cat", "--limit", "0s"], "time limit"),
    ] {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
    }
    let missing = crate::kit::output(dispatcher().args(["run", "/nowhere/at/all", "--exec", "cat"]));
    assert_eq!(missing.status.code(), Some(2));
    assert!(said(&missing).contains("/nowhere/at/all"));
    let no_state = crate::kit::output(dispatcher().current_dir(place.path()).arg("status"));
    assert_eq!(no_state.status.code(), Some(2));
    assert!(said(&no_state).contains("--state"), "{}", said(&no_state));
}
