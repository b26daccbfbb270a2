//! `import`: what becomes a task, beside a dispatcher and without one, whole or interrupted.

use crate::kit::{Place, dispatcher};
use crate::serving::{Serving, json, members, said, wait_for_tasks};
use std::io::{Read, Write};
use std::process::Stdio;

#[test]
fn an_import_makes_service_and_corpus_and_takes_regular_files_only() {
    let place = Place::with(&[("a", b"1"), ("sub/b", b"2")]);
    std::os::unix::fs::symlink("a", place.inputs().join("link")).unwrap();
    // The state among the inputs: it and the results beside it are no inputs.
    place.input("results/html/in/old", b"x");
    let args = ["import", ".", "--service", "html", "--limit", "10m", "--json"];
    let imported = dispatcher().current_dir(place.inputs()).args(args).output().unwrap();
    let imported: serde_json::Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert_eq!(members(&imported), "corpus finished imported made_service service took_ms working");
    assert_eq!((&imported["corpus"], &imported["made_service"]), (&"in".into(), &true.into()));
    assert_eq!((&imported["imported"]["added"], &imported["imported"]["links"]), (&2.into(), &1.into()));
    let tasks = dispatcher().current_dir(place.inputs()).args(["tasks"]).output().unwrap();
    let tasks = String::from_utf8(tasks.stdout).unwrap();
    assert!(tasks.contains(" a\n") && tasks.contains(" sub/b\n") && !tasks.contains("old"), "{tasks}");
}

#[test]
fn an_import_again_adds_what_is_new_and_says_what_is_wrong_with_the_names() {
    let place = Place::with(&[("a", b"1"), ("b", b"2")]);
    said(&place, 0, &["import", "in", "--service", "html"]);
    place.input("c", b"3");
    place.input("a", b"another");
    let import = ["import", "in", "--service", "html"];
    let found = json(&place, &import);
    let found = &found["imported"];
    assert_eq!((&found["added"], &found["known"], &found["changed"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(json(&place, &[&import[..], &["--take-changed"]].concat())["imported"]["taken_anew"], 1);
    assert_eq!(json(&place, &["show", "a"])["task"]["run"], 2);

    let list = place.path().join("list");
    std::fs::write(&list, "c\nnone\n").unwrap();
    let listed = said(&place, 1, &["import", "in", "--service", "pdf", "--list", "list", "--priority", "-3"]);
    assert!(listed.contains("added 1 task of corpus in for service pdf") && listed.contains("none"), "{listed}");
    assert_eq!(json(&place, &["tasks", "--service", "pdf"])[0]["entry"], "c");

    let told = said(&place, 2, &["import", "in", "--service", "html", "--budget", "9"]);
    assert!(told.contains("dispatcher services set html"), "{told}");
    let told = said(&place, 2, &["import", ".", "--service", "html", "--corpus", "in"]);
    assert!(told.contains("/in, not ") && told.contains("--corpus"), "{told}");
    said(&place, 2, &["import", "in", "--service", "a/b"]);
    said(&place, 2, &["import", "nowhere", "--service", "html"]);
}

// Rule S1.
#[test]
fn an_interrupted_import_beside_a_dispatcher_leaves_whole_batches_and_the_same_command_goes_on() {
    let place = Place::with_many(1500);
    let serving = Serving::start(&place, &[]);
    let args = ["import", "in", "--state", "state", "--service", "html", "--list", "-"];
    let mut importing = dispatcher()
        .current_dir(place.path())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let names: String = (0..1500).map(|i| format!("{:02}/{i:04}\n", i / 100)).collect();
    let mut stdin = importing.stdin.take().unwrap();
    stdin.write_all(names.as_bytes()).unwrap();
    stdin.flush().unwrap();
    // The rest of the list never comes: what is imported are the whole batches.
    wait_for_tasks(&place, 1024);
    let pid = rustix::process::Pid::from_raw(i32::try_from(importing.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut told = String::new();
    importing.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((importing.wait().unwrap().code(), told.contains("goes on")), (Some(3), true), "{told}");
    drop(stdin);
    assert_eq!(json(&place, &["status"])["total"], 1024);
    let rest = json(&place, &["import", "in", "--service", "html"]);
    assert_eq!((&rest["imported"]["added"], &rest["imported"]["known"]), (&476.into(), &1024.into()));
    assert_eq!(rest["working"], true);
    assert_eq!(serving.stop().status.code(), Some(0));
}
