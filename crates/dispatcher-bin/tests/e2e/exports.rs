//! `export`: results out of every archive, whole or not at all, beside a dispatcher and without one.

use crate::farm::Farm;
use crate::kit::{Place, dispatcher, members, output, told};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A farm in which every task has a result, `input N` each, and no dispatcher is at work.
fn finished(farm: Farm) -> Farm {
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}; echo said {task} >&2", &["--slots=2"]);
    let server = farm.serve();
    farm.wait_until_all_over();
    server.end();
    worker.signal(Signal::TERM);
    worker.end();
    farm
}

fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let found = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap).filter(|found| found.file_type().is_file());
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    found.map(|file| (name(file.path()), std::fs::read(file.path()).unwrap())).collect()
}

fn expected(inputs: usize) -> BTreeMap<String, Vec<u8>> {
    (0..inputs).map(|i| (format!("echo/in/{i:04}"), format!("input {i}\n").into_bytes())).collect()
}

#[test]
fn every_archive_gives_the_same_results_as_a_folder_and_as_a_tar_file() {
    for farm in [Farm::with_many(30, 20_000), Farm::with_many(30, 20_000).in_files()] {
        let farm = finished(farm);
        let report = farm.look(&["export", "--out", "out"]);
        assert_eq!(members(&report), "already bytes count exported faults without");
        assert_eq!((&report["exported"], &report["already"], &report["count"]), (&30.into(), &0.into(), &0.into()));
        assert_eq!(files(&farm.path().join("out")), expected(30));
        farm.tell_well(&["export", "--tar", "all.tar"]);
        let streamed = farm.tell_well(&["export", "--tar", "-"]);
        assert_eq!(streamed.stdout, std::fs::read(farm.path().join("all.tar")).unwrap());
        std::fs::create_dir(farm.path().join("by-tar")).unwrap();
        let tar =
            Command::new("tar").args(["xf", "all.tar", "-C", "by-tar"]).current_dir(farm.path()).output().unwrap();
        assert!(tar.status.success(), "{}", told(&tar));
        assert_eq!(files(&farm.path().join("by-tar")), expected(30));
        assert_eq!(farm.tell_well(&["export", "1", "--to", "one"]).stdout, b"");
        assert_eq!(std::fs::read(farm.path().join("one")).unwrap(), farm.tell_well(&["export", "1"]).stdout);
        assert_eq!(farm.tell_well(&["export", "3", "--part", "stderr"]).stdout, b"said 3\n");
    }
}

#[test]
fn a_run_exports_under_the_names_of_its_own_files() {
    let place = Place::with(&[("a/b.txt", b"1"), ("c.txt", b"2")]);
    place.run_well(["--exec", "cat {input}", "--ext", "html"]);
    let export = ["export", "--state", "out", "--out", "elsewhere"];
    let told_of = output(dispatcher().current_dir(place.path()).args(export));
    assert_eq!(told_of.status.code(), Some(0), "{}", told(&told_of));
    let names: Vec<_> = files(&place.path().join("elsewhere")).into_keys().collect();
    assert_eq!(names, ["a/b.html", "c.html"]);
}

#[test]
fn an_export_goes_on_where_it_was_and_puts_right_what_is_wrong() {
    let farm = finished(Farm::with_many(20, 20_000));
    let out = farm.path().join("out");
    farm.tell_well(&["export", "--out", "out"]);
    std::fs::remove_file(out.join("echo/in/0003")).unwrap();
    std::fs::write(out.join("echo/in/0004"), b"input X\n").unwrap();
    std::fs::write(out.join("echo/in/0005"), b"cut").unwrap();
    // What an interrupted one has left.
    std::fs::create_dir(out.join(".dispatcher-export")).unwrap();
    std::fs::write(out.join(".dispatcher-export/7.1.1"), b"half").unwrap();
    let report = farm.look(&["export", "--out", "out"]);
    assert_eq!((&report["exported"], &report["already"]), (&3.into(), &17.into()), "{report:#}");
    assert_eq!(files(&out), expected(20));
}

#[test]
fn filters_mean_what_they_mean_elsewhere_and_a_name_that_is_taken_is_told() {
    let farm = finished(Farm::with_many(20, 20_000));
    farm.tell_well(&["export", "--out", "some", "--entry", "001"]);
    assert_eq!(files(&farm.path().join("some")).len(), 10);
    farm.tell_well(&["export", "--out", "two", "2", "19"]);
    assert_eq!(files(&farm.path().join("two")).len(), 2);
    assert_eq!(farm.look(&["export", "--out", "none", "--status", "fatal"])["exported"], 0);
    std::fs::create_dir_all(farm.path().join("taken/echo/in/0007/full")).unwrap();
    let told = farm.said(1, &["export", "--out", "taken"]);
    assert!(told.contains("0007") && told.contains("exported 19 results"), "{told}");
    assert!(farm.said(2, &["export"]).contains("--out DIR"));
    assert!(farm.said(2, &["export", "1", "2"]).contains("--out DIR"));
    farm.said(2, &["export", "--out", "x", "--tar", "y"]);
    farm.tell_well(&["rerun", "1"]);
    assert!(farm.said(1, &["export", "1"]).contains("dispatcher why 1"));
    assert_eq!(farm.look(&["export", "--out", "rest"])["without"], 1);
}

#[test]
fn results_that_cannot_have_their_names_in_a_layout_are_no_reason_to_compute_them_anew() {
    let farm = finished(Farm::with_many(2, 20_000));
    let told = farm.said(1, &["export", "--out", "out", "--layout", "cortex"]);
    assert!(told.contains("--layout mirror") && !told.contains("rerun") && !told.contains("doctor"), "{told}");
}

#[test]
fn bytes_that_are_not_those_of_the_row_do_not_go_out() {
    let farm = finished(Farm::with_many(10, 20_000));
    let pack = farm.packs().remove(0);
    let bytes = std::fs::read(&pack).unwrap();
    let at = bytes.windows(8).position(|window| window == b"input 4\n").unwrap();
    let file = std::fs::File::options().write(true).open(&pack).unwrap();
    file.write_all_at(b"!", at as u64).unwrap();
    let report = farm.tell(&["export", "--out", "out", "--json"]);
    assert_eq!(report.status.code(), Some(1), "{}", told(&report));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["exported"], &report["count"]), (&9.into(), &1.into()));
    assert!(!farm.path().join("out/echo/in/0004").exists());
    let streamed = farm.tell(&["export", "--tar", "-"]);
    assert_eq!(streamed.status.code(), Some(1));
    let listed = farm.path().join("streamed.tar");
    std::fs::write(&listed, &streamed.stdout).unwrap();
    let tar = Command::new("tar").arg("tf").arg(&listed).output().unwrap();
    assert!(tar.status.success());
    assert_eq!(String::from_utf8(tar.stdout).unwrap().lines().count(), 9);
    let doctor = farm.tell(&["doctor", "--deep"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(told(&doctor).contains("checksum"), "{}", told(&doctor));
    std::fs::remove_file(&pack).unwrap();
    let doctor = farm.tell(&["doctor"]);
    assert!(told(&doctor).contains("is missing"), "{}", told(&doctor));
}

#[test]
fn an_export_beside_work_and_compaction_has_a_right_result_of_every_task() {
    let farm = finished(Farm::with_many(60, 20_000).set("--pack-size=8KiB"));
    let worker = farm.worker("w2", "cat {input}", &["--slots=2"]);
    let server = farm.serve();
    for round in 0..3 {
        farm.tell_well(&["rerun", "--entry", "00"]);
        farm.tell_well(&["export", "--out", &format!("beside-{round}")]);
        farm.tell_well(&["compact", "--live-under", "100%"]);
        farm.wait_until_all_over();
        farm.tell_well(&["compact", "--live-under", "100%"]);
    }
    assert_eq!(farm.look(&["export", "--out", "out"])["exported"], 60);
    assert_eq!(files(&farm.path().join("out")), expected(60));
    server.end();
    worker.signal(Signal::TERM);
    worker.end();
    farm.assert_healthy();
}

#[test]
fn a_state_keeps_the_archive_that_it_has_and_another_one_is_refused() {
    let files = finished(Farm::with_many(3, 20_000).in_files());
    // Without a word it goes on as it was.
    let mut command = dispatcher();
    command.current_dir(files.path()).args(["serve", "--until-empty", "--http=off"]);
    command.arg(format!("--listen=ipc://{}", files.path().join("s/r").display()));
    assert_eq!(output(&mut command).status.code(), Some(0));
    let refused = files.said(2, &["serve", "--http=off", "--archive=packs"]);
    assert!(refused.contains("--archive files --results"), "{refused}");
    let packs = finished(Farm::with_many(3, 20_000));
    assert!(packs.said(2, &["serve", "--http=off", "--archive=files"]).contains("--archive packs"));
    assert!(packs.said(2, &["serve", "--http=off", "--results=elsewhere"]).contains("--results"));
    assert!(files.said(2, &["compact"]).contains("no packs"));
}

#[test]
fn in_the_cortex_layout_results_lie_beside_their_inputs() {
    let farm = Farm::new(20_000).in_files().set("--layout=cortex");
    // Results go to the folder that the corpus lies in.
    let farm = {
        let here = farm.path().display().to_string();
        farm.set(&format!("--results={here}"))
    };
    farm.input("1105/1105.0001/1105.0001.zip", b"one");
    farm.input("1105/1105.0002/1105.0002.zip", b"two");
    let farm = finished(farm);
    assert_eq!(std::fs::read(farm.inputs().join("1105/1105.0001/echo.zip")).unwrap(), b"one");
    assert_eq!(std::fs::read(farm.inputs().join("1105/1105.0002/echo.zip")).unwrap(), b"two");
    farm.assert_healthy();
    farm.tell_well(&["export", "--out", "out"]);
    assert_eq!(files(&farm.path().join("out")).into_keys().next().unwrap(), "in/1105/1105.0001/echo.zip");
    farm.tell_well(&["export", "--out", "mirrored", "--layout", "mirror"]);
    let mirrored = files(&farm.path().join("mirrored"));
    assert_eq!(mirrored.into_keys().next().unwrap(), "echo/in/1105/1105.0001/1105.0001.zip");
}
