//! Why nothing happens to a task just now, and where the leased ones are.

use crate::farm::{Farm, ended};
use crate::kit::{Place, Running, told, wait_until};
use crate::peer::{Cortex, Ports, archive};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

/// What `why` says of a task.
fn why(farm: &Farm, task: &str) -> String {
    let answer = farm.look(&["why", task]);
    format!("{} {} {}", answer["headline"], answer["because"], answer["next"])
}

// Rule L8.
#[test]
fn a_task_that_is_kept_from_the_only_worker_says_so_and_another_worker_gets_it() {
    let (mut farm, ports) = (Farm::new(20_000), Ports::free());
    farm.listen_at(ports);
    farm.input("a", b"x");
    farm.import(&[]);
    let server = farm.serve();
    let mut first = Cortex::join(ports, "first");
    let (id, _) = first.task();
    wait_until("the hand-out is noted", || farm.look(&["status"])["handed_out"] == 1);
    farm.tell_well(&["rerun", &id]);
    assert!(first.ask().is_none(), "it is not given to the worker that may still bring the old result");
    wait_until("why says so", || why(&farm, &id).contains("(first) had it in an earlier run"));
    let said = why(&farm, &id);
    assert!(said.contains("rule L8") && said.contains("start another worker"), "{said}");
    let mut second = Cortex::join(ports, "second");
    assert_eq!(second.task().0, id);
    second.bring(&id, &archive("Info:a:b c\n", 10));
    farm.wait_until_all_over();
    server.end();
    farm.assert_healthy();
}

// Rules L10, W1.
#[test]
fn a_task_that_its_workers_cannot_take_says_whether_it_is_too_large_or_they_have_enough() {
    let (mut farm, ports) = (Farm::new(20_000), Ports::free());
    farm.listen_at(ports);
    for n in 0..3 {
        farm.input(&format!("small{n}"), b"x");
    }
    farm.input("z-large", &[b'x'; 3000]);
    farm.import(&[]);
    std::fs::create_dir_all(farm.path().join(".dispatcher")).unwrap();
    std::fs::write(farm.path().join(".dispatcher/dispatcher.toml"), "legacy_window = 2\nlegacy_max = \"2KB\"\n")
        .unwrap();
    let server = farm.serve();
    let mut worker = Cortex::join(ports, "w");
    let (first, _) = worker.task();
    let (second, _) = worker.task();
    assert!(worker.ask().is_none());
    let tasks = farm.look(&["tasks"]);
    let is_third = |task: &&Value| task["input_size"] == 1 && ![&first, &second].contains(&&task["id"].to_string());
    let third = tasks.as_array().unwrap().iter().find(is_third).unwrap()["id"].to_string();
    wait_until("both are noted", || farm.look(&["status"])["handed_out"] == 2);
    wait_until("the window is full", || why(&farm, &third).contains("(legacy_window)"));
    assert!(why(&farm, "z-large").contains("3000 bytes"), "{}", why(&farm, "z-large"));
    assert!(why(&farm, "z-large").contains("2000 at most (legacy_max)"), "{}", why(&farm, "z-large"));
    farm.tell_well(&["services", "set", "echo", "--max-in-flight", "2"]);
    wait_until("the cap is told", || why(&farm, &third).contains("2 tasks of the service echo are in flight, and 2"));
    worker.bring(&first, &archive("Info:a:b c\n", 10));
    wait_until("there is room again", || !why(&farm, &third).contains("(legacy_window)"));
    assert_eq!(worker.task().1, b"x");
    server.end_with(Signal::KILL);
}

// Rules L1, L3.
#[test]
fn status_tells_what_runs_from_what_waits_at_a_worker_and_here() {
    let farm = Farm::with_many(5, 20_000);
    farm.import(&[]);
    let gate = farm.path().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let server = farm.serve();
    let worker = farm.worker("w1", &format!("cat {} {{input}}", gate.display()), &["--slots=1", "--prefetch=1"]);
    let counts = || {
        let status = farm.look(&["status"]);
        let leased = farm.count("leased");
        (leased, status["handed_out"].as_u64().unwrap(), status["running"].as_u64().unwrap())
    };
    wait_until("one runs and one waits at the worker", || counts() == (5, 2, 1));
    let said = farm.said(0, &["status"]);
    assert!(said.contains("5 leased (1 running, 1 waiting at workers, 3 waiting here)"), "{said}");
    worker.signal(Signal::KILL);
    ended(worker);
    server.end();
    // Its command waits for the gate.
    let _ = std::fs::File::options().read(true).write(true).open(&gate).unwrap();
}

// Rule D3.
#[test]
fn on_a_full_disk_why_and_status_say_that_space_is_waited_for() {
    let place = Place::with_many(40);
    let program = assert_cmd::cargo::cargo_bin!("dispatcher").display().to_string();
    let out = place.out();
    std::fs::create_dir_all(&out).unwrap();
    // The files of the namespace vanish with it: everything is looked at inside. Commands bring nothing before the disk is
    // full, so that what they bring finds it full.
    let script = format!(
        "mount -t tmpfs -o size=32m tmpfs {out} && \
         {{ {program} run in -o out --shell --slots 2 --exec 'until test -e {full}; do :; done; head -c 60000 {{input}} /dev/zero' & }} && \
         until {program} status --state out --json 2>/dev/null | grep -q '\"running\": 2'; do :; done && \
         {{ head -c 64m /dev/zero > {out}/filler || touch {full}; }} && \
         until grep -qs space {out}/.dispatcher/waiting; do :; done && \
         {program} why --state out 40 && {program} status --state out && rm {out}/filler && wait && \
         {program} why --state out 1 && {program} doctor --state out",
        out = out.display(),
        full = place.path().join("full").display(),
    );
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script]).current_dir(place.path()).stdin(std::process::Stdio::null());
    let output = ended(Running::start(&mut command));
    let said = told(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("- the dispatcher waits for space for"), "{said}");
    assert!(!said.contains("no worker that is connected"), "{said}");
    assert!(said.contains("a dispatcher is at work and waits for space"), "{said}");
    assert!(said.contains("task 1 is done") && said.contains("healthy"), "{said}");
}
