//! What a start fixes, and what it says of what was lost.

use crate::farm::{Farm, ended};
use crate::kit::{dispatcher, output, told};
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;

#[test]
fn only_a_start_that_succeeded_decides_where_results_go() {
    let farm = Farm::with_many(2, 20_000);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("--http=127.0.0.1:{}", taken.local_addr().unwrap().port());
    let note = farm.path().join(".dispatcher/archive.json");
    let listen = format!("--listen=ipc://{}", farm.path().join("s/r").display());
    for args in [&["--archive=files", "--results=elsewhere"][..], &["--archive=none"], &[]] {
        let refused = farm.tell(&[&["serve", &there, &listen], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        let noted = std::fs::read_to_string(&note).unwrap();
        assert!(noted.contains("\"trial\": true"), "{args:?}: a start that failed decides nothing: {noted}");
    }
    farm.import(&[]);
    farm.serve().end();
    assert!(std::fs::read_to_string(&note).unwrap().contains("packs"), "without a word it is packs");
    let refused = farm.said(2, &["serve", "--http=off", &listen, "--archive=files"]);
    assert!(refused.contains("--archive packs"), "{refused}");
}

// Rule D7.
#[test]
fn a_start_that_was_killed_decides_nothing_before_a_task_was_handed_out_and_stays_after() {
    let farm = Farm::with_many(2, 20_000);
    let note = farm.path().join(".dispatcher/archive.json");
    farm.import(&[]);
    let trial = r#"{"kind": "files", "results": "/nowhere/results", "layout": "mirror", "trial": true}"#;
    std::fs::write(&note, trial).unwrap();
    let server = farm.serve();
    assert!(std::fs::read_to_string(&note).unwrap().contains("packs"), "nothing had been handed out");
    let worker = farm.worker("w1", "cat {input}", &[]);
    farm.wait_until_all_over();
    server.end();
    worker.signal(Signal::TERM);
    ended(worker);
    let kept = std::fs::read_to_string(&note).unwrap();
    assert!(!kept.contains("trial"), "{kept}");
    // As if it had been killed between its first hand-out and the note of its success.
    std::fs::write(&note, kept.replacen('{', "{\"trial\": true,", 1)).unwrap();
    let listen = format!("--listen=ipc://{}", farm.path().join("s/r").display());
    let refused = farm.said(2, &["serve", "--http=off", &listen, "--archive=files"]);
    assert!(refused.contains("--archive packs"), "{refused}");
    farm.assert_healthy();
}

// Rule C5: one judgement, at the start and when asked.
#[test]
fn a_start_and_doctor_say_the_same_of_a_pack_that_is_missing() {
    let farm = Farm::with_many(3, 20_000);
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}", &[]);
    let server = farm.serve();
    farm.wait_until_all_over();
    server.end();
    for pack in farm.packs() {
        std::fs::remove_file(pack).unwrap();
    }
    let doctor = farm.look(&["doctor"]);
    assert_eq!((&doctor["healthy"], &doctor["count"]), (&false.into(), &3.into()), "{doctor:#}");
    let log = || {
        let mut command = dispatcher();
        command.current_dir(farm.path()).args(["serve", "--until-empty", "--http=off"]);
        command.arg(format!("--listen=ipc://{}", farm.path().join("s/r").display()));
        String::from_utf8(output(&mut command).stderr).unwrap()
    };
    let said = log();
    assert!(said.contains("3 parts of results that stand") && said.contains("ERROR"), "{said}");
    farm.tell_well(&["rerun", "--all"]);
    let said = log();
    assert!(said.contains("nothing that stands was in it") && !said.contains("ERROR"), "{said}");
    worker.signal(Signal::TERM);
    ended(worker);
    let doctor = farm.look(&["doctor"]);
    assert_eq!(doctor["healthy"], true, "{doctor:#}");
    assert!(doctor["remarks"][0].as_str().unwrap().contains("nothing that stands was in it"), "{doctor:#}");
}

/// A farm with three results, at rest.
fn with_results(farm: Farm) -> Farm {
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}", &[]);
    let server = farm.serve();
    farm.wait_until_all_over();
    server.end();
    worker.signal(Signal::TERM);
    ended(worker);
    farm
}

/// Moves a database with all that belongs to it.
fn move_database(from: &Path, to: &Path) {
    for name in ["dispatcher.db", "dispatcher.db-wal", "dispatcher.db-shm"] {
        let _ = std::fs::remove_file(to.join(name));
        if from.join(name).exists() {
            std::fs::rename(from.join(name), to.join(name)).unwrap();
        }
    }
}

// Rules C5, S4.
#[test]
fn results_without_their_database_are_left_alone_by_every_command_that_would_make_one() {
    let kinds = [(Farm::with_many(3, 20_000), "tar xf"), (Farm::with_many(3, 20_000).in_files(), "has results")];
    for (farm, told_of) in kinds {
        let farm = with_results(farm);
        let packs = || farm.packs().into_iter().map(|pack| std::fs::read(pack).unwrap()).collect::<Vec<_>>();
        let (before, has_packs) = (packs(), !farm.packs().is_empty());
        let (state, saved, fresh) =
            (farm.path().join(".dispatcher"), farm.path().join("saved"), farm.path().join("fresh"));
        std::fs::create_dir(&saved).unwrap();
        move_database(&state, &saved);
        let refuses = |lost: &str, args: &[&str]| {
            let refused = farm.said(2, args);
            assert!(refused.contains(lost) && refused.contains(told_of), "{lost}, {args:?}: {refused}");
            assert_eq!(packs(), before, "{lost}, {args:?}");
        };
        let listen = format!("--listen=ipc://{}", farm.path().join("s/r").display());
        let making: [&[&str]; 3] = [
            &["serve", "--until-empty", "--http=off", &listen],
            &["import", "in", "--service", "echo"],
            &["services", "set", "echo"],
        ];
        for args in making {
            refuses("is missing", args);
            assert!(!state.join("dispatcher.db").exists(), "{args:?} makes none");
        }
        std::fs::write(state.join("dispatcher.db"), []).unwrap();
        making.iter().chain([&["status"][..], &["compact"]].iter()).for_each(|args| refuses("is empty", args));
        if has_packs {
            farm.tell_well(&["services", "set", "echo", "--state=fresh"]);
            move_database(&fresh, &state);
            making.iter().chain([&["compact"][..]].iter()).for_each(|args| refuses("knows of none", args));
        }
        move_database(&saved, &state);
        farm.serve().end();
        assert_eq!(farm.results(&[]).len(), 3);
        farm.assert_healthy();
    }
}
