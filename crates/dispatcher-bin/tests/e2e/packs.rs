//! Packs across processes: kills in every window and at random, a disk that refuses, compaction beside work.

use crate::farm::{Farm, Server};
use crate::kit::{Dice, Running, dispatcher, full, told, wait_for_file};
use rustix::process::Signal;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints its input and then notes that it has ended.
fn echo(farm: &Farm) -> String {
    format!("cat {{input}} && echo {{task}} >> {}", farm.log().display())
}

/// A result of each input is there and right, and each pack is a whole tar file.
fn assert_all_right(farm: &Farm, inputs: usize) {
    let results = farm.results(&[]);
    assert_eq!(results.len(), inputs);
    for i in 0..inputs {
        assert_eq!(results[&format!("{i:04}")], format!("input {i}\n").as_bytes(), "{i:04}");
    }
    assert_packs_whole(farm);
    farm.assert_healthy();
}

fn assert_nothing_twice(farm: &Farm) {
    let twice: Vec<_> = farm.ends().into_iter().filter(|(_, n)| *n > 1).collect();
    assert!(twice.is_empty(), "done twice: {twice:?}");
}

/// Which tasks have a stored result, and how often a command has ended so far.
fn recorded(farm: &Farm) -> (HashSet<String>, usize) {
    let done = farm.look(&["tasks", "--in", "done", "--limit", "0"]);
    let ids = done.as_array().unwrap().iter().map(|task| task["id"].to_string()).collect();
    (ids, farm.ends().values().sum())
}

/// The system's own `tar` reads every pack without a complaint.
fn assert_packs_whole(farm: &Farm) {
    for pack in farm.packs() {
        let listed = Command::new("tar").arg("tf").arg(&pack).output().unwrap();
        assert!(listed.status.success() && listed.stderr.is_empty(), "{}: {}", pack.display(), told(&listed));
    }
}

/// One kill of the server at the n-th pass of a place; the worker lives on.
fn survives_a_kill_at(place: &str, n: u64, pack_size: &str) {
    let farm = Farm::with_many(40, 4_000).set(&format!("--pack-size={pack_size}"));
    farm.import(&[]);
    let worker = farm.worker("w1", &echo(&farm), &["--slots=2"]);
    farm.serve_and_kill_at(place, n);
    // What was recorded is there at once, whatever lies behind it.
    farm.assert_healthy();
    let server = farm.serve();
    assert_packs_whole(&farm);
    farm.wait_until_all_over();
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    assert_all_right(&farm, 40);
    assert_nothing_twice(&farm);
}

// Rules S4, D7.
#[test]
fn a_kill_after_a_result_was_received_loses_nothing_of_packs() {
    survives_a_kill_at("received", 5, "1GiB");
}

// Rules S4, D7.
#[test]
fn a_kill_before_a_batch_is_appended_loses_nothing() {
    survives_a_kill_at("staged", 3, "1GiB");
}

// Rules S4, D7.
#[test]
fn a_kill_after_a_batch_was_appended_and_before_its_sync_loses_nothing() {
    survives_a_kill_at("appended", 3, "1GiB");
}

// Rules S4, D7.
#[test]
fn a_kill_after_a_pack_was_synced_and_before_the_commit_loses_nothing() {
    survives_a_kill_at("synced", 6, "1GiB");
}

// Rules S4, D7.
#[test]
fn a_kill_after_packed_results_were_committed_and_before_the_answer_loses_nothing() {
    survives_a_kill_at("committed", 6, "1GiB");
}

// Rule S4.
#[test]
fn a_kill_before_a_pack_is_closed_loses_nothing() {
    survives_a_kill_at("sealing", 2, "2KiB");
}

// Rule S4.
#[test]
fn a_kill_after_a_pack_was_closed_loses_nothing() {
    survives_a_kill_at("sealed", 2, "2KiB");
}

/// A farm whose every task has been done twice: half of its packs is garbage.
fn with_garbage(inputs: usize) -> Farm {
    let farm = Farm::with_many(inputs, 20_000).set("--pack-size=8KiB");
    farm.import(&[]);
    let worker = farm.worker("w0", "cat {input}", &["--slots=2"]);
    let server = farm.serve();
    farm.wait_until_all_over();
    farm.tell_well(&["rerun", "--all"]);
    farm.wait_until_all_over();
    server.end();
    worker.signal(Signal::TERM);
    worker.end();
    farm
}

/// A compaction beside a dispatcher at work, killed at a step.
fn survives_a_compaction_killed_at(step: &str) {
    let farm = with_garbage(40);
    let server = farm.serve();
    let held = farm.path().join("held");
    let mut command = dispatcher();
    command.current_dir(farm.path()).args(["compact", "--live-under", "95%"]);
    command.env("DISPATCHER_HOLD", format!("{step}:2")).env("DISPATCHER_HOLD_FILE", &held);
    let compaction = Running::start(&mut command);
    wait_for_file(&held);
    assert_eq!(farm.tell(&["compact"]).status.code(), Some(14), "one at a time");
    farm.assert_healthy();
    compaction.kill_tree();
    farm.assert_healthy();
    // Results that come meanwhile replace some that it had copied.
    let worker = farm.worker("w1", "cat {input}", &["--slots=2"]);
    farm.tell_well(&["rerun", "1", "2", "3", "--in", "done"]);
    farm.wait_until_all_over();
    let report = farm.look(&["compact", "--live-under", "95%"]);
    assert!(report["faults"].as_array().unwrap().is_empty(), "{report:#}");
    server.kill();
    let server = farm.serve();
    server.end();
    worker.signal(Signal::TERM);
    worker.end();
    assert_all_right(&farm, 40);
    let report = farm.look(&["compact", "--live-under", "60%"]);
    assert_eq!((&report["in_use"], &report["faults"]), (&0.into(), &serde_json::json!([])), "{report:#}");
    assert_all_right(&farm, 40);
}

// Rules S4, D7.
#[test]
fn a_compaction_killed_before_its_rows_move_loses_nothing() {
    survives_a_compaction_killed_at("compact_copied");
}

// Rules S4, D7.
#[test]
fn a_compaction_killed_after_its_rows_moved_loses_nothing() {
    survives_a_compaction_killed_at("compact_moved");
}

// Rules S4, D7.
#[test]
fn a_compaction_killed_before_the_old_pack_is_removed_loses_nothing() {
    survives_a_compaction_killed_at("compact_removing");
}

// Rules S4, D7.
#[test]
fn killed_at_random_moments_what_was_stored_is_there_and_is_not_done_again() {
    let mut dice = Dice::cast();
    let (inputs, kills) = if full() { (4_000, 200) } else { (240, 6) };
    let farm = Farm::with_many(inputs, 10_000).set("--pack-size=16KiB");
    farm.import(&[]);
    let workers: Vec<_> = (1..=4).map(|n| farm.worker(&format!("w{n}"), &echo(&farm), &["--slots=2"])).collect();
    let per_kill = (inputs as u64 / (kills + 1)).max(2);
    let batches = (per_kill / 4).max(1);
    let places = [
        ("received", per_kill),
        ("staged", batches),
        ("appended", batches),
        ("synced", batches),
        ("committed", batches),
        ("handed_out", per_kill),
        ("sealing", 1),
        ("sealed", 1),
    ];
    let mut known = Vec::new();
    for kill in 0..kills {
        if farm.ends().len() >= inputs {
            break;
        }
        let (place, most) = places[usize::try_from(dice.upto(places.len() as u64) - 1).unwrap()];
        let n = dice.upto(most);
        println!("kill {kill} at {place}, pass {n}, after {} ends", farm.ends().len());
        if killed_or_over(&farm, place, n) {
            break;
        }
        known.push(recorded(&farm));
        if kill % 5 == 0 {
            farm.assert_healthy();
        }
        if kill % 7 == 3 {
            farm.tell_well(&["compact"]);
        }
    }
    let server = farm.serve();
    farm.wait_until_all_over();
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.end();
    }
    server.end();
    assert_eq!(farm.ends().len(), inputs, "every command ended");
    assert_all_right(&farm, inputs);
    let log = std::fs::read_to_string(farm.log()).unwrap();
    let ends: Vec<&str> = log.lines().collect();
    for (done, lines) in known {
        let again: Vec<_> = ends[lines..].iter().filter(|task| done.contains(**task)).collect();
        assert!(again.is_empty(), "done again after their result was stored: {again:?}");
    }
}

/// Serves until it comes to the place and kills it there; whether it had nothing more to do before.
fn killed_or_over(farm: &Farm, place: &str, n: u64) -> bool {
    let held = farm.path().join("held");
    let _ = std::fs::remove_file(&held);
    let hold = [("DISPATCHER_HOLD", format!("{place}:{n}")), ("DISPATCHER_HOLD_FILE", held.display().to_string())];
    let server: Server = farm.serve_with(&[], &hold);
    let mut over = false;
    crate::kit::wait_until("it is held or everything is over", || {
        over = !held.exists() && farm.count_all(&["ready", "leased"]) == 0;
        over || held.exists()
    });
    server.kill();
    over
}

// Rules C8, D7.
#[test]
fn a_sync_that_fails_makes_its_pack_suspect_and_loses_nothing() {
    let farm = Farm::with_many(40, 20_000);
    farm.import(&[]);
    let mut command = dispatcher();
    command.current_dir(farm.path()).args(["serve", "--until-empty", "--http=off"]);
    command.arg(format!("--listen=ipc://{}", farm.path().join("s/r").display())).env("DISPATCHER_FAIL", "sync:3");
    let mut server = Running::start(&mut command);
    let worker = farm.worker("w1", &echo(&farm), &["--slots=2"]);
    server.wait_for_line("is suspect");
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    worker.signal(Signal::TERM);
    worker.end();
    let suspects = || {
        let found = std::fs::read_dir(farm.path().join(".dispatcher/packs")).unwrap();
        found.filter(|found| found.as_ref().unwrap().path().extension().is_some_and(|e| e == "suspect")).count()
    };
    assert_eq!((farm.packs().len(), suspects()), (2, 1));
    assert_all_right(&farm, 40);
    assert_eq!(farm.look(&["compact", "--live-under", "0%"])["removed"], 1);
    assert_eq!(suspects(), 0);
    assert_all_right(&farm, 40);
}

/// A server and its worker in a mount namespace of their own, where the state is a file system of `size` with a filler.
fn on_small_disk(farm: &Farm, size: &str, filler: &str, exec: &str, check: &str) -> Command {
    let program = assert_cmd::cargo::cargo_bin!("dispatcher").display().to_string();
    let state = farm.path().join(".dispatcher");
    std::fs::create_dir_all(&state).unwrap();
    let listen = format!("ipc://{}", farm.path().join("s/r").display());
    let script = format!(
        "mount -t tmpfs -o size={size},mode=700 tmpfs {state} && {program} import in --service echo >&2 &&
         head -c {filler} /dev/zero > {state}/filler &&
         {{ {program} worker --service echo --name w1 --dir w1 --connect {listen} --slots 2 --exec '{exec}' &
           worker=$!; {program} serve --until-empty --http off --listen {listen}; served=$?; kill $worker; wait $worker; }}
         {check} && exit $served",
        state = state.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script]).current_dir(farm.path()).stdin(Stdio::null());
    command
}

fn make_room(running: &Running, farm: &Farm) {
    let state = farm.path().join(".dispatcher");
    std::fs::remove_file(Path::new(&format!("/proc/{}/root{}/filler", running.pid(), state.display()))).unwrap();
}

// Rules C8, D7.
#[test]
fn a_disk_that_fills_up_under_load_is_waited_for_and_heals() {
    let farm = Farm::with_many(60, 20_000);
    // Results of 100 kB each: sixty of them do not fit beside the filler.
    let program = assert_cmd::cargo::cargo_bin!("dispatcher").display().to_string();
    let check = format!(
        "{program} doctor --deep && {program} export --out out && test $(find out -type f -size 100000c | wc -l) = 60 &&
         for pack in .dispatcher/packs/*.tar; do tar tf $pack > /dev/null || exit 1; done"
    );
    let mut command = on_small_disk(&farm, "14m", "9500k", "head -c 100000 /dev/zero", &check);
    let mut running = Running::start(&mut command);
    let line = running.wait_for_line("waiting for");
    assert!(line.contains("space"), "{line}");
    make_room(&running, &farm);
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

// Case F53.
#[test]
fn results_of_every_size_go_through_a_worker_and_packs_byte_for_byte() {
    let farm = Farm::new(20_000);
    let mut sizes = vec![0, 1, 255, 256, 511, 512, 513, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073];
    sizes.extend([8 * 1024 * 1024, if full() { 64_000_000 } else { 9_000_000 }]);
    let bytes = |size: usize| -> Vec<u8> { (0..size).map(|n| (n % 253) as u8 ^ (n / 253) as u8).collect() };
    for size in &sizes {
        farm.input(&format!("{size}"), &bytes(*size));
    }
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}", &[]);
    let server = farm.serve();
    farm.wait_until_all_over();
    let results = farm.results(&[]);
    assert_eq!(results.len(), sizes.len());
    for size in &sizes {
        assert!(results[&format!("{size}")] == bytes(*size), "{size} bytes come back otherwise");
    }
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    assert_packs_whole(&farm);
    farm.assert_healthy();
}
