//! Names: of tasks, on the command line and on the screen; of services; of result files.

use crate::farm::Farm;
use crate::kit::{Place, dispatcher, output, told};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Inputs `a`, `b` and `7` for two services, and `a` once more in another corpus, as task 7.
fn imported() -> Farm {
    let farm = Farm::new(20_000);
    for name in ["a", "b", "7"] {
        farm.input(name, name.as_bytes());
    }
    farm.tell_well(&["import", "in", "--service", "html"]);
    farm.tell_well(&["import", "in", "--service", "pdf"]);
    std::fs::create_dir(farm.path().join("more")).unwrap();
    std::fs::write(farm.path().join("more/a"), b"x").unwrap();
    farm.tell_well(&["import", "more", "--service", "html"]);
    farm
}

fn id(farm: &Farm, name: &str) -> String {
    farm.look(&["show", name])["task"]["id"].to_string()
}

#[test]
fn every_command_takes_a_task_by_its_id_or_by_its_input() {
    let farm = imported();
    let tasks = farm.look(&["tasks", "--limit", "0"]);
    for task in tasks.as_array().unwrap() {
        let words = |member: &str| task[member].as_str().unwrap().to_owned();
        let full = format!("{}/{}/{}", words("service_name"), words("corpus_name"), words("entry"));
        assert_eq!(id(&farm, &full), task["id"].to_string(), "{full}");
    }
    assert_eq!(tasks.as_array().unwrap().len(), 7);
    assert_eq!(id(&farm, "7"), "7", "a number is an id where there is such a task");
    assert_ne!(id(&farm, "in/7"), "7");
    // Commands that change something mean one task by one name.
    let refused = farm.said(2, &["cancel", "a"]);
    assert!(refused.contains("means 3 tasks") && refused.contains("(html/more/a)"), "{refused}");
    assert!(farm.said(2, &["rerun", "in/b"]).contains("(pdf/in/b)"));
    assert!(farm.said(2, &["export", "a", "--to", "x"]).contains("means 3 tasks"));
    farm.said(2, &["cancel", "nothing"]);
    let changed = |args: &[&str]| farm.look(args)["changed"].as_u64().unwrap();
    assert_eq!(changed(&["cancel", "more/a", "b", "in/7", "--service", "html"]), 3);
    assert_eq!(changed(&["cancel", "pdf/in/a"]), 1);
    assert_eq!(changed(&["rerun", "html/more/a", &id(&farm, "pdf/in/a")]), 2);
    let listed = farm.look(&["tasks", "a", "--corpus", "in", "--service", "pdf"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["service_name"]), (1, &"pdf".into()));
    // Those that look take the first one, and say which others there are.
    for look in ["show", "why"] {
        let said = farm.said(0, &[look, "a"]);
        assert!(said.contains("other tasks with this input: ") && said.contains("(pdf/in/a)"), "{said}");
    }
    assert_eq!(changed(&["sandbox", "carve", "try", "--from", "in", "--of", "pdf", "--ids", "b,pdf/in/7"]), 2);
}

#[test]
fn a_list_of_tasks_says_service_and_corpus() {
    let farm = imported();
    let said = farm.said(0, &["tasks"]);
    for line in ["ready     -          html  in    a", "ready     -          pdf   in    a", "html  more  a"] {
        assert!(said.contains(line), "{line:?} is missing in\n{said}");
    }
    assert!(farm.said(0, &["show", "more/a"]).contains(": a (1 bytes), service html, corpus more"));
}

/// Names that would take over a terminal, and one that is not UTF-8 and has a backslash.
const NASTY: [&[u8]; 4] = [b"line\nend", b"\x1b[31mred", "\u{202e}gpj.exe".as_bytes(), b"\xff\\n"];

// Case F52.
#[test]
fn names_are_printed_so_that_no_terminal_is_fooled_and_can_be_typed_as_they_are_printed() {
    let place = Place::with(&[("plain", b"x")]);
    for name in NASTY {
        place.input(OsStr::from_bytes(name), b"x");
    }
    let exec =
        "case {input} in *plain) cat {input};; *) printf 'Fatal:a:b \\033[2J \\342\\200\\256\\n' >&2; exit 1;; esac";
    assert_eq!(place.run(["--shell", "--exec", exec]).status.code(), Some(1));
    let look = |args: &[&str]| {
        let said = output(dispatcher().current_dir(place.path()).args(args).args(["--state", "out"]));
        assert_eq!(said.status.code(), Some(0), "{}", told(&said));
        let said = told(&said);
        let bad = said.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert_eq!(bad, None, "{args:?}: {said:?}");
        said
    };
    let listed = look(&["tasks"]);
    for printed in ["line\\nend", "\\u{1b}[31mred", "\\u{202e}gpj.exe", "\\xff\\\\n"] {
        assert!(listed.contains(printed), "{printed} is missing in\n{listed}");
        for command in ["show", "why", "tasks"] {
            let said = look(&[command, printed]);
            assert!(said.contains(printed) || command == "why", "{command} {printed}: {said}");
            look(&[command, printed, "--json"]);
        }
    }
    // What is printed as JSON is the same value.
    let entries: Vec<Value> = place.tasks().into_iter().map(|task| task["entry"].clone()).collect();
    assert!(entries.contains(&"\u{202e}gpj.exe".into()) && entries.contains(&"line\nend".into()), "{entries:?}");
    look(&["rerun", "line\\nend", "\\u{202e}gpj.exe"]);
    look(&["cancel", "--entry", "\u{202e}"]);
    look(&["cancel", "--entry", "\u{1b}"]);
    look(&["log"]);
    look(&["status"]);
    look(&["workers"]);
}

// Case F52.
#[test]
fn a_folder_that_would_take_over_a_terminal_is_printed_as_harmlessly() {
    let place = Place::with(&[("a", b"x")]);
    let out = OsStr::from_bytes(b"\x1b[2Jred\nend");
    let run = ["run", "in", "--exec", "cat {input}", "--out"];
    let said = told(&output(dispatcher().current_dir(place.path()).args(run).arg(out)));
    assert!(said.contains("/\\u{1b}[2Jred\\nend"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let show = ["tasks", "no\u{1b}such", "--state"];
    let said = told(&output(dispatcher().current_dir(place.path()).args(show).arg(out)));
    assert!(said.contains("there is no task no\\u{1b}such"), "{said}");
}

#[test]
fn a_service_that_no_worker_could_offer_is_refused_where_it_would_be_made() {
    let farm = Farm::new(20_000);
    farm.input("a", b"1");
    for args in [&["import", "in", "--service", "a,b"][..], &["services", "set", "a,b"]] {
        let refused = farm.said(2, args);
        assert!(refused.contains("leave the comma out"), "{refused}");
    }
    farm.said(2, &["services", "set", "\u{202e}x"]);
    std::fs::write(farm.path().join("s.toml"), "[services.\"a,b\"]\nbudget = 1\n").unwrap();
    let refused = farm.said(2, &["serve", "--http=off", "--config=s.toml"]);
    assert!(refused.contains("leave the comma out"), "{refused}");
    assert_eq!(farm.look(&["services"]), Value::Array(vec![]));
}

// Rule G8: no result takes the place of another.
#[test]
fn results_have_the_same_names_in_a_folder_and_in_a_tar_file() {
    let farm = Farm::new(20_000);
    for name in ["50%.tex", "50%25.tex", "%=e", "new\nline", &"x".repeat(250)] {
        farm.input(name, name.as_bytes());
    }
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}; echo said >&2", &[]);
    let server = farm.serve();
    farm.wait_until_all_over();
    server.end();
    worker.signal(Signal::TERM);
    worker.end();
    let files = |root: &str| {
        let root = farm.path().join(root);
        let found = walkdir::WalkDir::new(&root).into_iter().map(Result::unwrap).filter(|f| f.file_type().is_file());
        let name = |path: &std::path::Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = found.map(|f| (name(f.path()), std::fs::read(f.path()).unwrap())).collect();
        names.sort();
        names
    };
    for part in ["result", "stderr"] {
        let (tree, tar) = (format!("tree-{part}"), format!("tar-{part}"));
        farm.tell_well(&["export", "--part", part, "--out", &tree]);
        farm.tell_well(&["export", "--part", part, "--tar", "all.tar"]);
        std::fs::create_dir(farm.path().join(&tar)).unwrap();
        let unpacked = Command::new("tar").args(["xf", "../all.tar"]).current_dir(farm.path().join(&tar)).output();
        assert!(unpacked.unwrap().status.success());
        assert_eq!(files(&tree).len(), 5);
        assert_eq!(files(&tree), files(&tar));
    }
    let result = |name: &str| std::fs::read(farm.path().join("tree-result/echo/in").join(name)).unwrap();
    for name in ["50%.tex", "50%25.tex", "new\nline"] {
        assert_eq!(result(name), name.as_bytes(), "what can be a file's name stays");
    }
    assert_eq!(result("%=%25=e"), b"%=e");
    let long = format!("tree-stderr/echo/in/%={}%+/{}%2Estderr", "x".repeat(238), "x".repeat(12));
    assert_eq!(std::fs::read(farm.path().join(long)).unwrap(), b"said\n");
}
