//! What operators do: with a dispatcher at work and without one, they get the same outcome and the same shapes.

use crate::kit::{Place, told};
use crate::serving::{Serving, command, json, members, said};
use serde_json::Value;

/// Three inputs of the service `html`.
fn imported() -> Place {
    let place = Place::with(&[("a", b"1"), ("b", b"2"), ("c", b"3")]);
    said(&place, 0, &["import", "in", "--service", "html"]);
    place
}

fn why(place: &Place, task: &str) -> String {
    said(place, 0, &["why", task])
}

// Case F63.
#[test]
fn commands_are_carried_out_by_the_dispatcher_at_work_or_else_by_whoever_gives_them() {
    let place = imported();
    let done = json(&place, &["cancel", "1", "2"]);
    assert_eq!(members(&done), "carried_out_by changed command error");
    assert_eq!(
        (&done["changed"], &done["carried_out_by"], &done["error"]),
        (&2.into(), &"ourselves".into(), &Value::Null)
    );
    assert!(why(&place, "1").contains("by `cancel 1 2` (command "), "{}", why(&place, "1"));
    said(&place, 2, &["rerun"]);
    let unknown = said(&place, 2, &["rerun", "--service", "pdf"]);
    assert!(unknown.contains("known: html"), "{unknown}");
    said(&place, 2, &["cancel", "99"]);
    let nobody = said(&place, 1, &["drain"]);
    assert!(nobody.contains("no dispatcher is at work"), "{nobody}");

    let serving = Serving::start(&place, &[]);
    let done = json(&place, &["rerun", "--in", "cancelled"]);
    assert_eq!((&done["changed"], &done["carried_out_by"]), (&2.into(), &"dispatcher".into()));
    assert!(why(&place, "1").contains("run 2 was begun by `rerun --in cancelled`"), "{}", why(&place, "1"));
    assert!(why(&place, "3").contains("no worker that is connected offers the service html"));
    assert!(said(&place, 0, &["pause", "html"]).contains("html is paused; carried out by the dispatcher"));
    assert!(why(&place, "3").contains("dispatcher resume html"));
    assert!(said(&place, 0, &["resume"]).contains("1 service resumed"));
    said(&place, 2, &["pause", "pdf"]);
    said(&place, 0, &["drain"]);
    // It has gone when the command returns.
    assert_eq!(json(&place, &["status"])["working"], false);
    let ended = serving.end();
    assert_eq!(ended.status.code(), Some(0), "{}", told(&ended));

    let log = json(&place, &["log"]);
    assert_eq!(members(&log[0]), "actor at command done_at id outcome");
    let kinds = |log: &Value| -> Vec<String> {
        let rows = log.as_array().unwrap().iter();
        rows.map(|row| row["command"]["kind"].as_str().unwrap().to_owned()).collect()
    };
    let given = ["put_service", "import", "cancel", "drain", "rerun", "pause", "resume", "drain"];
    assert_eq!(kinds(&log), given);
    assert_eq!(kinds(&json(&place, &["log", "--limit", "2"])), given[6..]);
    let after = log[5]["id"].to_string();
    assert_eq!(kinds(&json(&place, &["log", "--after", &after, "--limit", "1"])), given[6..7]);
    assert!(said(&place, 0, &["log"]).contains("rerun --in cancelled: 2 changed"));
}

#[test]
fn services_and_corpora_are_set_up_listed_filtered_by_and_deleted() {
    let place = imported();
    let set =
        ["services", "set", "html", "--limit", "10m", "--budget", "5", "--max-in-flight", "7", "--priority", "-1"];
    assert!(said(&place, 0, &set).contains("html: limit 10m, budget 5"));
    assert!(said(&place, 0, &["services", "set", "new", "--retry-delay", "5s"]).contains("retry delay 5s"));
    said(&place, 2, &["services", "set", "a/b"]);
    let services = json(&place, &["services"]);
    assert_eq!(members(&services[0]), "id in_flight name settings tasks");
    let settings = &services[0]["settings"];
    assert_eq!(members(settings), "budget max_in_flight paused priority result_cap retry_delay_ms timeout_ms");
    assert_eq!((&settings["timeout_ms"], &settings["budget"]), (&600_000.into(), &5.into()));
    assert_eq!((&settings["max_in_flight"], &settings["priority"]), (&7.into(), &(-1).into()));
    let corpora = json(&place, &["corpora"]);
    assert_eq!(members(&corpora[0]), "id name parent root services total");
    assert_eq!((&corpora[0]["total"], &corpora[0]["services"][0]["service"]), (&3.into(), &"html".into()));
    assert_eq!(members(&corpora[0]["services"][0]), "service tasks");
    assert_eq!(json(&place, &["status", "--service", "new"])["total"], 0);
    assert_eq!(json(&place, &["tasks", "--corpus", "in", "--service", "html"]).as_array().unwrap().len(), 3);
    said(&place, 2, &["tasks", "--corpus", "out"]);

    let asked = said(&place, 2, &["delete", "corpus", "in"]);
    assert!(asked.contains("3 tasks, 3 of them not over") && asked.contains("--yes"), "{asked}");
    assert_eq!(json(&place, &["delete", "corpus", "in", "--yes"])["changed"], 3);
    said(&place, 0, &["delete", "service", "new"]);
    said(&place, 2, &["delete", "service", "new"]);
    let gone = said(&place, 1, &["why", "3"]);
    assert!(gone.contains("no task 3") && gone.contains("deleted"), "{gone}");
    said(&place, 0, &["import", "in", "--service", "html"]);
    assert!(said(&place, 1, &["why", "3"]).contains("task 3 was deleted"));
    assert_eq!(json(&place, &["workers"]), Value::Array(vec![]));
}

#[test]
fn why_has_one_answer_and_one_shape() {
    let place = imported();
    let answer = json(&place, &["why", "b"]);
    assert_eq!(members(&answer), "because headline next others state task");
    assert_eq!((&answer["task"], &answer["state"]), (&2.into(), &"ready".into()));
    assert_eq!(answer["because"][0], "no dispatcher is at work");
    assert!(answer["next"].as_str().unwrap().contains("dispatcher serve --state"));
    let nothing = command(&place, &["why", "nothing", "--json"]);
    let answer: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!((nothing.status.code(), &answer["task"]), (Some(1), &Value::Null));
}

#[test]
fn config_says_every_setting_and_who_set_it() {
    let place = imported();
    let file = place.path().join("state/dispatcher.toml");
    std::fs::write(&file, "beat = \"1s\"\n[services.html]\nbudget = 2\n").unwrap();
    let said_by = json(&place, &["config", "--drain-limit", "9s"]);
    let of = |name: &str| said_by.as_array().unwrap().iter().find(|said| said["name"] == name).unwrap();
    assert_eq!(members(of("beat")), "name source value");
    assert_eq!((&of("beat")["value"], &of("beat")["source"]["kind"]), (&"1s".into(), &"file".into()));
    assert!(of("beat")["source"]["of"].as_str().unwrap().ends_with("state/dispatcher.toml"));
    assert_eq!(
        (&of("services.html.budget")["value"], &of("drain_limit")["source"]["of"]),
        (&2.into(), &"--drain-limit".into())
    );
    assert_eq!(of("listen")["source"]["kind"], "default");
    std::fs::write(&file, "bet = \"1s\"\n").unwrap();
    assert!(said(&place, 2, &["config"]).contains("bet"));
}
