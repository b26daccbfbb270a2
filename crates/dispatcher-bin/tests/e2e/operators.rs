//! What operators do: with a dispatcher at work and without one, they get the same outcome and the same shapes.

use crate::farm::Farm;
use crate::kit::{members, told, wait_for_file, wait_until};
use serde_json::Value;

/// Three inputs of the service `html`.
fn imported() -> Farm {
    let farm = Farm::new(20_000);
    for name in ["a", "b", "c"] {
        farm.input(name, name.as_bytes());
    }
    farm.said(0, &["import", "in", "--service", "html"]);
    farm
}

fn why(farm: &Farm, task: &str) -> String {
    farm.said(0, &["why", task])
}

// Case F63.
#[test]
fn commands_are_carried_out_by_the_dispatcher_at_work_or_else_by_whoever_gives_them() {
    let farm = imported();
    let done = farm.look(&["cancel", "1", "2"]);
    assert_eq!(members(&done), "carried_out_by changed command error");
    assert_eq!(
        (&done["changed"], &done["carried_out_by"], &done["error"]),
        (&2.into(), &"ourselves".into(), &Value::Null)
    );
    assert!(why(&farm, "1").contains("by `cancel 1 2` (command "), "{}", why(&farm, "1"));
    farm.said(2, &["rerun"]);
    let unknown = farm.said(2, &["rerun", "--service", "pdf"]);
    assert!(unknown.contains("known: html"), "{unknown}");
    farm.said(2, &["cancel", "99"]);
    let nobody = farm.said(1, &["drain"]);
    assert!(nobody.contains("no dispatcher is at work"), "{nobody}");

    let server = farm.serve();
    let done = farm.look(&["rerun", "--in", "cancelled"]);
    assert_eq!((&done["changed"], &done["carried_out_by"]), (&2.into(), &"dispatcher".into()));
    assert!(why(&farm, "1").contains("run 2 was begun by `rerun --in cancelled`"), "{}", why(&farm, "1"));
    assert!(why(&farm, "3").contains("no worker that is connected offers the service html"));
    assert!(farm.said(0, &["pause", "html"]).contains("html is paused; carried out by the dispatcher"));
    assert!(why(&farm, "3").contains("dispatcher resume html"));
    assert!(farm.said(0, &["resume"]).contains("1 service resumed"));
    farm.said(2, &["pause", "pdf"]);
    farm.said(0, &["drain"]);
    // It has gone when the command returns.
    assert_eq!(farm.look(&["status"])["working"], false);
    let ended = server.running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", told(&ended));

    let log = farm.look(&["log"]);
    assert_eq!(members(&log[0]), "actor at command done_at id outcome");
    let kinds = |log: &Value| -> Vec<String> {
        let rows = log.as_array().unwrap().iter();
        rows.map(|row| row["command"]["kind"].as_str().unwrap().to_owned()).collect()
    };
    let given = ["put_service", "import", "cancel", "drain", "rerun", "pause", "resume", "drain"];
    assert_eq!(kinds(&log), given);
    assert_eq!(kinds(&farm.look(&["log", "--limit", "2"])), given[6..]);
    let after = log[5]["id"].to_string();
    assert_eq!(kinds(&farm.look(&["log", "--after", &after, "--limit", "1"])), given[6..7]);
    assert!(farm.said(0, &["log"]).contains("rerun --in cancelled: 2 changed"));
}

#[test]
fn services_and_corpora_are_set_up_listed_filtered_by_and_deleted() {
    let farm = imported();
    let set =
        ["services", "set", "html", "--limit", "10m", "--budget", "5", "--max-in-flight", "7", "--priority", "-1"];
    assert!(farm.said(0, &set).contains("html: limit 10m, budget 5"));
    assert!(farm.said(0, &["services", "set", "new", "--retry-delay", "5s"]).contains("retry delay 5s"));
    farm.said(2, &["services", "set", "a/b"]);
    let services = farm.look(&["services"]);
    assert_eq!(members(&services[0]), "id in_flight name settings tasks");
    let settings = &services[0]["settings"];
    assert_eq!(members(settings), "budget max_in_flight paused priority result_cap retry_delay_ms timeout_ms");
    assert_eq!((&settings["timeout_ms"], &settings["budget"]), (&600_000.into(), &5.into()));
    assert_eq!((&settings["max_in_flight"], &settings["priority"]), (&7.into(), &(-1).into()));
    let corpora = farm.look(&["corpora"]);
    assert_eq!(members(&corpora[0]), "id kind name parent parent_service root services total");
    assert_eq!((&corpora[0]["total"], &corpora[0]["services"][0]["service"]), (&3.into(), &"html".into()));
    assert_eq!(members(&corpora[0]["services"][0]), "service tasks");
    assert_eq!(farm.look(&["status", "--service", "new"])["total"], 0);
    assert_eq!(farm.look(&["tasks", "--corpus", "in", "--service", "html"]).as_array().unwrap().len(), 3);
    farm.said(2, &["tasks", "--corpus", "out"]);

    let asked = farm.said(2, &["delete", "corpus", "in"]);
    assert!(asked.contains("3 tasks, 3 of them not over") && asked.contains("--yes"), "{asked}");
    assert_eq!(farm.look(&["delete", "corpus", "in", "--yes"])["changed"], 3);
    farm.said(0, &["delete", "service", "new"]);
    farm.said(2, &["delete", "service", "new"]);
    let gone = farm.said(1, &["why", "3"]);
    assert!(gone.contains("no task 3") && gone.contains("deleted"), "{gone}");
    farm.said(0, &["import", "in", "--service", "html"]);
    assert!(farm.said(1, &["why", "3"]).contains("task 3 was deleted"));
    assert_eq!(farm.look(&["workers"]), Value::Array(vec![]));
}

#[test]
fn why_has_one_answer_and_one_shape() {
    let farm = imported();
    let answer = farm.look(&["why", "b"]);
    assert_eq!(members(&answer), "because headline next others state task");
    assert_eq!((&answer["task"], &answer["state"]), (&farm.look(&["show", "b"])["task"]["id"], &"ready".into()));
    assert_eq!(answer["because"][0], "no dispatcher is at work");
    assert!(answer["next"].as_str().unwrap().contains("dispatcher serve --state"));
    let nothing = farm.tell(&["why", "nothing", "--json"]);
    let answer: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!((nothing.status.code(), &answer["task"]), (Some(1), &Value::Null));
}

#[test]
fn config_says_every_setting_and_who_set_it() {
    let farm = imported();
    let file = farm.path().join(".dispatcher/dispatcher.toml");
    std::fs::write(&file, "beat = \"1s\"\n[services.html]\nbudget = 2\n").unwrap();
    let said_by = farm.look(&["config", "--drain-limit", "9s"]);
    let of = |name: &str| said_by.as_array().unwrap().iter().find(|said| said["name"] == name).unwrap();
    assert_eq!(members(of("beat")), "name source value");
    assert_eq!((&of("beat")["value"], &of("beat")["source"]["kind"]), (&"1s".into(), &"file".into()));
    assert!(of("beat")["source"]["of"].as_str().unwrap().ends_with(".dispatcher/dispatcher.toml"));
    assert_eq!(
        (&of("services.html.budget")["value"], &of("drain_limit")["source"]["of"]),
        (&2.into(), &"--drain-limit".into())
    );
    assert_eq!(of("listen")["source"]["kind"], "default");
    std::fs::write(&file, "bet = \"1s\"\n").unwrap();
    assert!(farm.said(2, &["config"]).contains("bet"));
}

#[test]
fn config_shows_where_results_go_as_serve_would_have_it() {
    let farm = Farm::with_many(1, 20_000);
    let of = |args: &[&str], name: &str| {
        let said = farm.look(&[&["config"], args].concat());
        let one = said.as_array().unwrap().iter().find(|said| said["name"] == name).unwrap().clone();
        (one["value"].clone(), one["source"]["kind"].clone(), one["source"]["of"].clone())
    };
    let beside = farm.path().canonicalize().unwrap().join("results").display().to_string();
    assert_eq!(of(&[], "archive"), ("packs".into(), "default".into(), Value::Null));
    assert_eq!(of(&[], "results").0, beside.as_str());
    let by_results = of(&["--results", "elsewhere"], "archive");
    assert_eq!(by_results, ("files".into(), "flag".into(), "--results".into()), "who says where files go wants them");
    let served = farm.serve_with(&["--archive=files", "--until-empty"], &[]).running.end();
    assert_eq!(served.status.code(), Some(0));
    let (value, kind, note) = of(&[], "archive");
    assert_eq!((value, kind), ("files".into(), "state".into()));
    assert!(note.as_str().unwrap().ends_with(".dispatcher/archive.json"), "{note}");
    assert_eq!((of(&[], "results").0, of(&[], "layout").1), (beside.as_str().into(), "state".into()));
    let refused = farm.said(0, &["config", "--archive", "packs"]);
    assert!(refused.contains("`serve` would refuse") && refused.contains("\"packs\"  (--archive)"), "{refused}");
}

// Rule A1.
#[test]
fn why_knows_the_flags_of_the_dispatcher_at_work() {
    let farm = imported();
    let server = farm.serve();
    wait_until("it serves", || why(&farm, "a").contains("no worker that is connected"));
    let told = why(&farm, "a");
    let listen = format!("--connect ipc://{}", farm.path().join("s/r").display());
    assert!(told.contains(&listen), "{told}");
    server.end();
    assert!(!why(&farm, "a").contains("--connect"), "{}", why(&farm, "a"));
}

#[test]
fn what_a_run_or_no_state_folder_means_to_services_set_is_said() {
    let place = crate::kit::Place::with(&[("a", b"1")]);
    place.run_well(["--exec", "cat {input}"]);
    let set = |args: &[&str]| {
        let mut command = crate::kit::dispatcher();
        told(&crate::kit::output(command.current_dir(place.path()).args(["services", "set"]).args(args)))
    };
    let refused = set(&["run", "--limit", "5m", "--state", "out"]);
    assert!(refused.starts_with("exit Some(2)") && refused.contains("flags of `run`"), "{refused}");
    assert!(!refused.contains("server"), "{refused}");
    let made = set(&["html"]);
    let at = place.path().canonicalize().unwrap().join(".dispatcher");
    assert!(made.contains(&format!("made the state folder {}", at.display())), "{made}");
    assert!(!set(&["html"]).contains("made the state folder"));
}

#[test]
fn what_matches_nothing_and_books_without_an_attempt_are_said_so() {
    let farm = imported();
    assert!(farm.said(0, &["tasks", "--in", "dead"]).contains("no task matches"));
    assert!(farm.said(0, &["doctor"]).contains("books: 0 attempts so far\n"));
    assert!(farm.said(0, &["log"]).contains(": 3 added"), "{}", farm.said(0, &["log"]));
    let carve = farm.said(2, &["sandbox", "carve", "x", "--from", "in", "--service", "new"]);
    assert!(carve.contains("`dispatcher services set new` makes it"), "{carve}");
}

#[test]
fn what_a_killed_dispatcher_had_ready_is_said_to_be_handed_out_again() {
    let farm = Farm::with_many(3, 20_000);
    farm.import(&[]);
    let server = farm.serve();
    let go = farm.path().join("go");
    let worker = farm.worker("w1", &format!("while ! test -e {}; do sleep 0.01; done", go.display()), &["--slots=1"]);
    wait_until("two are ready for others", || farm.said(0, &["status"]).contains("1 running, 2 waiting here"));
    assert!(!farm.said(0, &["status"]).contains("handed out again"), "as long as a dispatcher is at work");
    server.kill();
    worker.kill_tree();
    let told = farm.said(0, &["status"]);
    assert!(told.contains("no worker has the 2 that wait here"), "{told}");
    assert!(told.contains("handed out again when a dispatcher starts"), "{told}");
}

#[test]
fn the_folder_of_results_is_no_address() {
    let farm = Farm::new(20_000);
    let mut serve = farm.serve_command(&[], &[("DISPATCHER_RESULTS", "tcp://127.0.0.1:1".to_owned())]);
    let said = told(&crate::kit::output(&mut serve));
    assert!(said.contains("DISPATCHER_RESULTS is \"tcp://127.0.0.1:1\"") && said.contains("legacy_results"), "{said}");
    assert!(said.starts_with("exit Some(2)"), "{said}");
}

// Rules A1, A5.
#[test]
fn a_task_that_is_worked_on_is_told_with_its_worker_and_until_when() {
    let farm = Farm::with_many(1, 20_000);
    farm.import(&[]);
    let server = farm.serve();
    let (started, go) = (farm.path().join("started"), farm.path().join("go"));
    let exec = format!("touch {}; while ! test -e {}; do sleep 0.01; done", started.display(), go.display());
    let worker = farm.worker("w1", &exec, &[]);
    wait_for_file(&started);
    wait_until("its begin is written down", || why(&farm, "0000").contains("is worked on by w1"));
    wait_until("its worker is written down with it", || {
        let workers = farm.look(&["workers"]);
        workers[0]["current"].as_array().is_some_and(|current| current.len() == 1)
    });
    let told = why(&farm, "1");
    assert!(told.contains("its time limit is") && told.contains("worker w1 is connected"), "{told}");
    let workers = farm.look(&["workers"]);
    let known = "accepted connected current dispatched failed first_at heard_ago_ms heard_at incarnation name per_minute \
                 services slots";
    assert_eq!(members(&workers[0]), known);
    assert_eq!(members(&workers[0]["current"][0]), "began_at for_ms task");
    assert_eq!((&workers[0]["name"], &workers[0]["services"][0]), (&"w1".into(), &"echo".into()));
    assert!(farm.said(0, &["workers"]).contains("task 1 for "));
    std::fs::write(go, b"").unwrap();
    farm.wait_until_all_over();
    assert!(why(&farm, "1").contains("by attempt 0 by w1"), "{}", why(&farm, "1"));
    worker.signal(rustix::process::Signal::TERM);
    worker.end();
    server.end();
}
