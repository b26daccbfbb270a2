//! `import`: what becomes a task, beside a dispatcher and without one, whole or interrupted.

use crate::farm::Farm;
use crate::kit::{dispatcher, members, wait_until};
use std::io::{Read, Write};
use std::process::Stdio;

#[test]
fn an_import_makes_service_and_corpus_and_takes_regular_files_only() {
    let farm = Farm::new(20_000);
    farm.input("a", b"1");
    farm.input("sub/b", b"2");
    std::os::unix::fs::symlink("a", farm.inputs().join("link")).unwrap();
    // The state among the inputs: it and the results beside it are no inputs.
    farm.input("results/html/in/old", b"x");
    let args = ["import", ".", "--service", "html", "--limit", "10m", "--json"];
    let imported = dispatcher().current_dir(farm.inputs()).args(args).output().unwrap();
    let imported: serde_json::Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert_eq!(members(&imported), "corpus finished imported made_service service took_ms working");
    assert_eq!((&imported["corpus"], &imported["made_service"]), (&"in".into(), &true.into()));
    assert_eq!((&imported["imported"]["added"], &imported["imported"]["links"]), (&2.into(), &1.into()));
    let tasks = dispatcher().current_dir(farm.inputs()).args(["tasks"]).output().unwrap();
    let tasks = String::from_utf8(tasks.stdout).unwrap();
    assert!(tasks.contains(" a\n") && tasks.contains(" sub/b\n") && !tasks.contains("old"), "{tasks}");
}

#[test]
fn an_import_again_adds_what_is_new_and_says_what_is_wrong_with_the_names() {
    let farm = Farm::new(20_000);
    farm.input("a", b"1");
    farm.input("b", b"2");
    farm.said(0, &["import", "in", "--service", "html"]);
    farm.input("c", b"3");
    farm.input("a", b"another");
    let import = ["import", "in", "--service", "html"];
    let found = farm.look(&import);
    let found = &found["imported"];
    assert_eq!((&found["added"], &found["known"], &found["changed"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(farm.look(&[&import[..], &["--take-changed"]].concat())["imported"]["taken_anew"], 1);
    assert_eq!(farm.look(&["show", "a"])["task"]["run"], 2);

    let list = farm.path().join("list");
    std::fs::write(&list, "c\nnone\n").unwrap();
    let listed = farm.said(1, &["import", "in", "--service", "pdf", "--list", "list", "--priority", "-3"]);
    assert!(listed.contains("added 1 task of corpus in for service pdf") && listed.contains("none"), "{listed}");
    assert_eq!(farm.look(&["tasks", "--service", "pdf"])[0]["entry"], "c");

    let told = farm.said(2, &["import", "in", "--service", "html", "--budget", "9"]);
    assert!(told.contains("dispatcher services set html"), "{told}");
    let told = farm.said(2, &["import", ".", "--service", "html", "--corpus", "in"]);
    assert!(told.contains("/in, not ") && told.contains("--corpus"), "{told}");
    farm.said(2, &["import", "in", "--service", "a/b"]);
    farm.said(2, &["import", "nowhere", "--service", "html"]);
}

// Rule W1.
#[test]
fn a_service_that_no_worker_could_offer_is_refused_wherever_it_is_named() {
    let farm = Farm::new(20_000);
    let (long, fits) = ("x".repeat(129), "x".repeat(128));
    for args in [
        &["import", "in", "--service", &long][..],
        &["services", "set", &long],
        &["worker", "--exec", "cat {input}", "--service", &long],
    ] {
        let told = farm.said(2, args);
        assert!(told.contains("1 to 128 bytes"), "{told}");
    }
    farm.said(0, &["services", "set", &fits]);
}

// Rule S1.
#[test]
fn an_interrupted_import_beside_a_dispatcher_leaves_whole_batches_and_the_same_command_goes_on() {
    let farm = Farm::with_many(1500, 20_000);
    let server = farm.serve();
    let args = ["import", "in", "--service", "html", "--list", "-"];
    let mut importing = dispatcher()
        .current_dir(farm.path())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let names: String = (0..1500).map(|i| format!("{i:04}\n")).collect();
    let mut stdin = importing.stdin.take().unwrap();
    stdin.write_all(names.as_bytes()).unwrap();
    stdin.flush().unwrap();
    // The rest of the list never comes: what is imported are the whole batches.
    wait_until("a batch is in", || {
        let status: Option<serde_json::Value> = serde_json::from_slice(&farm.tell(&["status", "--json"]).stdout).ok();
        status.is_some_and(|status| status["total"] == 1024)
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(importing.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut told = String::new();
    importing.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((importing.wait().unwrap().code(), told.contains("goes on")), (Some(3), true), "{told}");
    drop(stdin);
    assert_eq!(farm.look(&["status"])["total"], 1024);
    let rest = farm.look(&["import", "in", "--service", "html"]);
    assert_eq!((&rest["imported"]["added"], &rest["imported"]["known"]), (&476.into(), &1024.into()));
    assert_eq!(rest["working"], true);
    server.end();
}
