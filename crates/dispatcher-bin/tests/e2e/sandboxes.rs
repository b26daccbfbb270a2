//! Part of a corpus tried again: carved, worked on, compared and dropped, and the parent's rows and files stay as they were.

use crate::farm::{Farm, Server};
use crate::kit::{Running, dispatcher, members, wait_for_file, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Copies its input, but fails on every other one.
const POOR: &str = "grep -q '[13579]$' {input} && exit 3; cat {input}";
/// Does them all.
const BETTER: &str = "tr a-z A-Z < {input}";

/// Everything that is stored and published of the corpus `in`.
#[derive(Debug, PartialEq)]
struct Parent {
    files: BTreeMap<PathBuf, Vec<u8>>,
    stories: Vec<Value>,
}

fn files_below(folder: PathBuf) -> BTreeMap<PathBuf, Vec<u8>> {
    let found = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
    let files = found.filter(|found| found.file_type().is_file());
    files.map(|file| (file.path().to_owned(), std::fs::read(file.path()).unwrap())).collect()
}

fn parent(farm: &Farm) -> Parent {
    let tasks = farm.look(&["tasks", "--corpus", "in", "--limit", "0"]);
    let stories = tasks.as_array().unwrap().iter().map(|task| farm.look(&["show", &task["id"].to_string()]));
    Parent { files: files_below(farm.path().join("results/echo/in")), stories: stories.collect() }
}

fn sandbox(farm: &Farm, args: &[&str]) -> Value {
    farm.look(&[&["sandbox"], args].concat())
}

fn end(worker: Running) {
    worker.signal(rustix::process::Signal::TERM);
    worker.end();
}

/// Ten inputs of which the poor command has failed on half, and the dispatcher still at work.
fn half_failed(farm: Farm) -> (Farm, Server) {
    farm.import(&[]);
    let server = farm.serve();
    let worker = farm.worker("poor", POOR, &[]);
    farm.wait_until_all_over();
    wait_until("results are in place", || farm.look(&["status"])["unpublished"] == 0);
    end(worker);
    (farm, server)
}

fn in_files() -> Farm {
    Farm::with_many(10, 20_000).in_files()
}

/// The better command on all that waits.
fn work_well(farm: &Farm, name: &str) {
    let worker = farm.worker(name, BETTER, &[]);
    farm.wait_until_all_over();
    wait_until("results are in place", || farm.look(&["status"])["unpublished"] == 0);
    end(worker);
}

// Rule G8.
#[test]
fn failures_are_tried_again_in_a_sandbox_and_the_parent_stays_as_it_was_to_the_byte() {
    let (farm, server) = half_failed(in_files());
    let before = parent(&farm);
    assert_eq!((before.files.len(), before.stories.len()), (5, 10));

    let carved = sandbox(&farm, &["carve", "try", "--from", "in", "--status", "fatal", "--category", "exit"]);
    assert_eq!(members(&carved), "carried_out_by changed command error");
    assert_eq!((&carved["changed"], &carved["carried_out_by"]), (&5.into(), &"dispatcher".into()));
    let open = sandbox(&farm, &["compare", "try"]);
    let shape = "apart better by_cause by_status carving changed more open parent parent_service same sandbox service \
                 total worse";
    assert_eq!(members(&open), shape);
    assert_eq!((&open["total"], &open["open"], &open["changed"]), (&5.into(), &5.into(), &Value::Null));
    assert_eq!((&open["parent"], &open["service"], &open["carving"]), (&"in".into(), &"echo".into(), &false.into()));
    assert!(farm.said(0, &["sandbox", "compare", "try"]).contains("not through: 5 of 5 tasks are open"));

    work_well(&farm, "better");
    let compared = sandbox(&farm, &["compare", "try", "--changed", "--limit", "2"]);
    assert_eq!((&compared["better"], &compared["open"], &compared["more"]), (&5.into(), &0.into(), &true.into()));
    assert_eq!(compared["by_status"], json!([["fatal", "no_problem", 5]]));
    assert_eq!(compared["by_cause"], json!([[["exit", "3"], null, 5]]));
    let changed = compared["changed"].as_array().unwrap();
    assert_eq!(changed.len(), 2);
    assert_eq!(members(&changed[0]), "entry is is_cause parent task was was_cause");
    assert_eq!((&changed[0]["was_cause"], &changed[0]["is_cause"]), (&json!(["exit", "3"]), &Value::Null));
    let rest = ["compare", "try", "--changed", "--after", &changed[1]["task"].to_string(), "--what", "3"];
    assert_eq!(sandbox(&farm, &rest)["changed"].as_array().unwrap().len(), 3);
    let none = sandbox(&farm, &["compare", "try", "--changed", "--category", "latex"]);
    assert_eq!(none["changed"], json!([]));
    let said = farm.said(0, &["sandbox", "compare", "try", "--changed"]);
    assert!(said.contains("5 better, 0 worse, 0 the same") && said.contains("exit:3 -> no fault"), "{said}");
    assert!(said.contains("0001: fatal exit:3 -> no_problem"), "{said}");

    let own = farm.path().join("results/echo/try.sandbox-2");
    assert_eq!(std::fs::read(own.join("0001")).unwrap(), b"INPUT 1\n");
    assert_eq!(files_below(own.clone()).len(), 5);
    assert_eq!(parent(&farm), before);
    farm.assert_healthy();

    let listed = sandbox(&farm, &["list"]);
    assert_eq!(members(&listed[0]), "carving id name parent parent_service service tasks");
    assert_eq!((&listed[0]["name"], &listed[0]["tasks"]["total"]), (&"try".into(), &5.into()));
    assert!(farm.said(0, &["sandbox", "list"]).contains("try, of in for echo: 5 tasks, 5 no_problem"));
    let corpora = farm.look(&["corpora"]);
    assert_eq!((&corpora[0]["kind"], &corpora[0]["parent"]), (&"ordinary".into(), &Value::Null));
    assert_eq!((&corpora[1]["kind"], &corpora[1]["parent"]), (&"sandbox".into(), &1.into()));
    assert!(farm.said(0, &["corpora"]).contains("try: 5 tasks in "));
    assert!(farm.said(0, &["log"]).contains("sandbox carve try --status fatal --category exit service 1 corpus 1"));

    let told = farm.said(2, &["sandbox", "drop", "try"]);
    assert!(told.contains("5 tasks") && told.contains("--yes"), "{told}");
    let dropped = sandbox(&farm, &["drop", "try", "--yes"]);
    assert_eq!((&dropped["changed"], &dropped["carried_out_by"]), (&5.into(), &"dispatcher".into()));
    assert!(!own.exists(), "its files go with it");
    assert_eq!(sandbox(&farm, &["list"]), json!([]));
    assert_eq!(parent(&farm), before);
    farm.assert_healthy();
    server.end();
}

// Rule G8.
#[test]
fn a_sandbox_shares_packs_with_its_parent_and_takes_nothing_of_it_along() {
    let (farm, server) = half_failed(Farm::with_many(10, 20_000));
    let of_parent = || (parent(&farm).stories, farm.results(&["--corpus", "in"]));
    let before = of_parent();
    assert_eq!(before.1.len(), 5);
    sandbox(&farm, &["carve", "try", "--from", "in"]);
    work_well(&farm, "better");
    let compared = sandbox(&farm, &["compare", "try"]);
    assert_eq!((&compared["better"], &compared["same"], &compared["worse"]), (&5.into(), &5.into(), &0.into()));
    farm.tell_well(&["export", "--out", "all"]);
    let all = farm.path().join("all/echo");
    assert_eq!(std::fs::read(all.join("in/0002")).unwrap(), b"input 2\n");
    assert_eq!(std::fs::read(all.join("try.sandbox-2/0002")).unwrap(), b"INPUT 2\n");
    assert_eq!(sandbox(&farm, &["drop", "try", "--yes"])["changed"], 10);
    assert_eq!(of_parent(), before);
    server.end();
    assert!(farm.look(&["compact"])["bytes_after"].as_u64() > Some(0));
    assert_eq!(farm.results(&["--corpus", "in"]), before.1);
    farm.assert_healthy();
}

// Rule G8.
#[test]
fn beside_inputs_as_cortex_has_them_a_sandbox_has_a_folder_of_its_own() {
    let farm = Farm::new(20_000).in_files().set("--layout=cortex").set("--results=.");
    for n in ["1", "2"] {
        farm.input(&format!("{n}/{n}.zip"), n.as_bytes());
    }
    let (farm, server) = half_failed(farm);
    sandbox(&farm, &["carve", "try", "--from", "in"]);
    work_well(&farm, "better");
    let inputs = files_below(farm.inputs());
    assert_eq!(inputs.len(), 3, "two inputs and the result of one: {:?}", inputs.keys());
    assert_eq!(std::fs::read(farm.path().join("try.sandbox-2/1/echo.zip")).unwrap(), b"1");
    assert_eq!(sandbox(&farm, &["drop", "try", "--yes"])["changed"], 2);
    assert!(!farm.path().join("try.sandbox-2").exists());
    assert_eq!(files_below(farm.inputs()), inputs);
    server.end();
    farm.assert_healthy();
}

// Rule G8.
#[test]
fn what_would_touch_a_parent_or_a_sandbox_in_the_wrong_way_is_refused_with_what_to_do() {
    let farm = Farm::with_many(3, 20_000);
    farm.import(&[]);
    sandbox(&farm, &["carve", "try", "--from", "in", "--ids", "1,2"]);
    for (code, args, why) in [
        (2, &["sandbox", "carve", "new", "--from", "out"][..], "known: in, try"),
        (1, &["sandbox", "carve", "new", "--from", "try"], "carve another one out of its parent"),
        (1, &["sandbox", "carve", "try", "--from", "in"], "choose another name"),
        (1, &["sandbox", "carve", "in", "--from", "in"], "choose another name"),
        (1, &["sandbox", "carve", "new", "--from", "in", "--status", "fatal"], "nothing matches"),
        (1, &["sandbox", "carve", "new", "--from", "in", "--status", "fatal", "--sample", "2"], "nothing matches"),
        (2, &["sandbox", "carve", "new", "--from", "in", "--service", "pdf"], "known: echo"),
        (2, &["sandbox", "carve", "new", "--from", "in", "--ids", "77"], "there is no task 77"),
        (2, &["sandbox", "compare", "in"], "is no sandbox"),
        (2, &["sandbox", "compare", "none"], "known: try"),
        (2, &["sandbox", "drop", "in", "--yes"], "is no sandbox"),
        (1, &["delete", "corpus", "in", "--yes"], "`dispatcher sandbox drop try` before it"),
        (1, &["delete", "corpus", "try", "--yes"], "`dispatcher sandbox drop try` takes its result files as well"),
        (2, &["import", "in", "--service", "echo", "--corpus", "try"], "name another corpus"),
    ] {
        let said = farm.said(code, args);
        assert!(said.contains(why), "{args:?} says {why:?}: {said}");
    }
    let corpora = farm.look(&["corpora"]);
    assert_eq!((corpora.as_array().unwrap().len(), &corpora[1]["total"]), (2, &2.into()));
    assert_eq!(sandbox(&farm, &["carve", "sampled", "--from", "in", "--sample", "2"])["changed"], 2);
    assert_eq!(sandbox(&farm, &["carve", "all", "--from", "in", "--sample", "99"])["changed"], 3);
    farm.tell_well(&["import", "in", "--service", "pdf"]);
    assert!(farm.said(2, &["sandbox", "carve", "new", "--from", "in"]).contains("--of (echo, pdf)"));
    let pdf = ["carve", "new", "--from", "in", "--of", "pdf", "--service", "echo", "--limit", "1"];
    assert_eq!(sandbox(&farm, &pdf)["changed"], 1);
    let compared = sandbox(&farm, &["compare", "new"]);
    assert_eq!((&compared["parent_service"], &compared["service"]), (&"pdf".into(), &"echo".into()));
    for name in ["try", "sampled", "all", "new"] {
        assert_eq!(sandbox(&farm, &["drop", name, "--yes"])["carried_out_by"], "ourselves");
    }
    assert_eq!(farm.look(&["delete", "corpus", "in", "--yes"])["changed"], 6);
}

// Rules G8, C6.
#[test]
fn a_parent_that_is_run_again_meanwhile_and_its_sandbox_do_not_feel_each_other() {
    let (farm, server) = half_failed(in_files());
    farm.tell_well(&["services", "set", "new"]);
    let id = |entry: &str| farm.look(&["tasks", "--entry", entry])[0]["id"].to_string();
    let ids = ["0000", "0001", "0002", "0003"].map(id).join(",");
    let carve = ["carve", "try", "--from", "in", "--service", "new", "--limit", "9", "--ids", &ids];
    assert_eq!(sandbox(&farm, &carve)["changed"], 4);
    assert_eq!(farm.look(&["rerun", "--corpus", "in"])["changed"], 10);
    let meanwhile = sandbox(&farm, &["compare", "try"]);
    assert_eq!((&meanwhile["open"], &meanwhile["by_status"]), (&4.into(), &json!([["open", "open", 4]])));
    let echo = farm.worker("echo", BETTER, &[]);
    wait_until("the parent is through", || {
        farm.look(&["status", "--corpus", "in"])["by_status"] == json!([["no_problem", 10]])
    });
    let mut command = dispatcher();
    command.current_dir(farm.path()).args(["worker", "--service", "new", "--name", "new", "--dir", "new", "--shell"]);
    command.arg(format!("--connect=ipc://{}", farm.path().join("s/r").display())).args(["--exec", POOR]);
    let mut new = Running::start(&mut command);
    new.drain_log();
    farm.wait_until_all_over();
    wait_until("results are in place", || farm.look(&["status"])["unpublished"] == 0);
    let compared = sandbox(&farm, &["compare", "try"]);
    assert_eq!(compared["by_status"], json!([["no_problem", "no_problem", 2], ["no_problem", "fatal", 2]]));
    assert_eq!((&compared["same"], &compared["worse"], &compared["apart"]), (&2.into(), &2.into(), &0.into()));
    end(echo);
    end(new);
    let before = parent(&farm);
    assert_eq!(before.files.len(), 10);
    assert_eq!(files_below(farm.path().join("results/new")).len(), 2);
    server.end();
    let dropped = sandbox(&farm, &["drop", "try", "--yes"]);
    assert_eq!((&dropped["changed"], &dropped["carried_out_by"]), (&4.into(), &"ourselves".into()));
    assert!(!farm.path().join("results/new").exists());
    assert_eq!(parent(&farm), before);
    farm.assert_healthy();
}

/// A command given while a dispatcher is held at a place; both are killed there.
fn killed_at(farm: &Farm, place: &str, nth: u64, args: &[&str]) {
    let held = farm.path().join(format!("held-{place}"));
    let hold = [("DISPATCHER_HOLD", format!("{place}:{nth}")), ("DISPATCHER_HOLD_FILE", held.display().to_string())];
    let server = farm.serve_with(&[], &hold);
    let giver = Running::start(dispatcher().current_dir(farm.path()).args(args));
    wait_for_file(&held);
    // Who gave the command goes first, or it would carry it out itself.
    giver.kill_tree();
    server.kill();
}

// Rules G8, S4.
#[test]
fn a_carve_amid_which_everything_is_killed_is_finished_once_by_the_next_start() {
    let farm = Farm::with_many(1_200, 20_000);
    farm.import(&[]);
    killed_at(&farm, "commanded", 2, &["sandbox", "carve", "try", "--from", "in"]);
    let listed = sandbox(&farm, &["list"]);
    assert_eq!((&listed[0]["carving"], &listed[0]["tasks"]["total"]), (&true.into(), &1_000.into()));
    assert!(farm.said(0, &["sandbox", "compare", "try"]).contains("still being carved"));
    let server = farm.serve();
    wait_until("it is carved", || sandbox(&farm, &["list"])[0]["carving"] == false);
    let entries = |corpus: &str| -> Vec<Value> {
        let tasks = farm.look(&["tasks", "--corpus", corpus, "--limit", "0"]);
        tasks.as_array().unwrap().iter().map(|task| task["entry"].clone()).collect()
    };
    assert_eq!((entries("try").len(), entries("try")), (1_200, entries("in")), "each input once");
    server.end();
    assert!(farm.said(0, &["log"]).contains("sandbox carve try service 1 corpus 1: 1200 changed"));
}

// Rules G8, S4.
#[test]
fn a_drop_amid_which_everything_is_killed_is_finished_and_leaves_no_file_behind() {
    let (farm, server) = half_failed(in_files());
    sandbox(&farm, &["carve", "try", "--from", "in", "--status", "fatal"]);
    work_well(&farm, "better");
    let before = parent(&farm);
    server.end();
    killed_at(&farm, "unlinked", 1, &["sandbox", "drop", "try", "--yes"]);
    assert!(!farm.path().join("results/echo/try.sandbox-2").exists());
    assert_eq!(sandbox(&farm, &["list"])[0]["tasks"]["total"], 5, "files go before rows");
    let server = farm.serve();
    wait_until("it is dropped", || sandbox(&farm, &["list"]) == json!([]));
    assert_eq!(parent(&farm), before);
    server.end();
    farm.assert_healthy();
}

// Rule G8.
#[test]
fn a_run_has_one_command_and_no_sandboxes() {
    let place = crate::kit::Place::with(&[("a", b"1"), (".sandbox-7/a", b"2")]);
    place.run_well(["--exec", "cat {input}"]);
    // The only inputs whose results do not mirror them are those that look like a sandbox's.
    assert_eq!((place.result("a"), place.result(".sandbox-7_/a")), (b"1".to_vec(), b"2".to_vec()));
    let carve = ["sandbox", "carve", "try", "--from", "inputs", "--state", "out"];
    let refused = crate::kit::output(dispatcher().current_dir(place.path()).args(carve));
    let said = crate::kit::told(&refused);
    assert!(refused.status.code() == Some(2) && said.contains("another --out"), "{said}");
    place.assert_healthy();
}
