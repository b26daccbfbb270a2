//! Faults of the world around: a full disk, a result's place taken, another process on the same folder.

use crate::kit::{Place, Running, dispatcher, output, told, wait_for_file};
use std::process::Command;

/// The program in a mount namespace of its own, where `out` is a file system of `size` bytes with a filler in it.
fn on_small_disk(place: &Place, size: &str, filler: &str, run: &str, check: &str) -> Command {
    let program = assert_cmd::cargo::cargo_bin!("dispatcher").display().to_string();
    let out = place.out();
    std::fs::create_dir_all(&out).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs {out} && head -c {filler} /dev/zero > {out}/filler && {program} {run} && {check}",
        out = out.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script]).current_dir(place.path()).stdin(std::process::Stdio::null());
    command
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing() {
    let place = Place::with_many(40);
    // Results of 100 kB each: forty of them do not fit beside the filler. The last command of the namespace compares
    // them, since its files vanish with it.
    let check = "test $(find out -type f -size 100000c -not -path '*/.dispatcher/*' | wc -l) = 40";
    let mut command = on_small_disk(&place, "12m", "9000k", "run in -o out --exec 'head -c 100000 /dev/zero'", check);
    let mut running = Running::start(&mut command);
    let line = running.wait_for_line("waiting for");
    assert!(line.contains("space"), "{line}");
    // Room is made from outside, through the process's own view of its files.
    let filler = format!("/proc/{}/root{}/filler", running.pid(), place.out().display());
    std::fs::remove_file(filler).unwrap();
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

#[test]
fn a_disk_too_small_for_database_and_results_heals_when_there_is_room() {
    let place = Place::new();
    for i in 0..6 {
        place.input(format!("{i}"), &vec![b'x'; 700_000]);
    }
    let check = "test $(find out -type f -size 700000c -not -path '*/.dispatcher/*' | wc -l) = 6";
    let mut command = on_small_disk(&place, "9m", "6200k", "run in -o out --exec 'cat {input}'", check);
    let mut running = Running::start(&mut command);
    running.wait_for_line("waiting for");
    let filler = format!("/proc/{}/root{}/filler", running.pid(), place.out().display());
    std::fs::remove_file(filler).unwrap();
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

#[test]
fn a_folder_in_a_results_place_is_told_and_waited_for() {
    let place = Place::with(&[("a", b"1"), ("b", b"2")]);
    std::fs::create_dir_all(place.out().join("a/full")).unwrap();
    let mut running = place.start(["--exec", "cat {input}"]);
    let line = running.wait_for_line("waiting for");
    assert!(line.contains("out/a"), "{line}");
    std::fs::remove_dir_all(place.out().join("a")).unwrap();
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert_eq!(place.result("a"), b"1");
    assert_eq!(place.result("b"), b"2");
    place.assert_healthy();
}

// Case F76.
#[test]
fn a_second_process_on_the_same_results_is_refused_and_the_first_goes_on() {
    let place = Place::with(&[("a", b"1")]);
    let (at_work, go) = (place.path().join("at-work"), place.path().join("go"));
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let exec = format!("touch {}; cat {}; cat {{input}}", at_work.display(), go.display());
    let running = place.start(["--shell", "--exec", &exec]);
    wait_for_file(&at_work);
    let second = place.run(["--shell", "--exec", &exec]);
    assert_eq!(second.status.code(), Some(14), "{}", told(&second));
    assert!(told(&second).contains(&format!("process {}", running.pid())), "{}", told(&second));
    let status = output(dispatcher().current_dir(place.path()).args(["status", "--state", "out"]));
    assert!(told(&status).contains("a dispatcher is at work"), "{}", told(&status));
    std::fs::write(&go, b"").unwrap();
    let first = running.end();
    assert_eq!(first.status.code(), Some(0), "{}", told(&first));
    assert_eq!(place.result("a"), b"1");
}

#[test]
fn results_without_their_database_are_not_computed_again_without_a_word() {
    let place = Place::with(&[("a", b"1")]);
    place.run_well(["--exec", "cat {input}"]);
    for name in ["dispatcher.db", "dispatcher.db-wal", "dispatcher.db-shm"] {
        // What is not there need not be removed.
        let _ = std::fs::remove_file(place.out().join(".dispatcher").join(name));
    }
    let output = place.run(["--exec", "cat {input}"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("dispatcher.db is gone"), "{}", told(&output));
    assert_eq!(place.result("a"), b"1");
}

#[test]
fn a_database_of_a_newer_program_is_refused() {
    let place = Place::with(&[("a", b"1")]);
    place.run_well(["--exec", "cat {input}"]);
    let database = place.out().join(".dispatcher/dispatcher.db");
    let script =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('pragma user_version = 99'); c.commit()";
    assert!(Command::new("python3").args(["-c", script]).arg(database).status().unwrap().success());
    let output = place.run(["--exec", "cat {input}"]);
    assert_eq!(output.status.code(), Some(15), "{}", told(&output));
    assert!(told(&output).contains("newer"), "{}", told(&output));
}
