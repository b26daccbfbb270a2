//! Results: what the command makes of each input, to the byte, where people look for it.

use crate::kit::{Place, dispatcher, full, output, told};
use crate::real::real_files;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compares every result with the command run by hand.
pub fn assert_gzipped(place: &Place, names: &[PathBuf]) {
    for name in names {
        let by_hand = output(Command::new("gzip").arg("-9nc").arg(place.inputs().join(name))).stdout;
        assert!(place.result(name) == by_hand, "{} differs from the command by hand", name.display());
    }
}

// Rules C1, D2, S5.
#[test]
fn every_real_file_has_exactly_the_result_of_the_command_by_hand() {
    let place = Place::new();
    let names = real_files(&place.inputs(), if full() { 12_000 } else { 800 });
    place.run_well(["--exec", "gzip -9nc {input}"]);
    assert_gzipped(&place, &names);
    assert_eq!(place.tasks().len(), names.len());
    place.assert_healthy();
}

// Rule L11.
#[test]
fn a_second_start_finds_everything_done_and_adds_only_what_is_new() {
    let place = Place::with(&[("a", b"1"), ("b", b"2")]);
    let count = place.path().join("count");
    let exec = format!("cat {{input}}; echo x >> {}", count.display());
    place.run_well(["--shell", "--exec", &exec]);
    place.input("c", b"3");
    place.run_well(["--shell", "--exec", &exec]);
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 3, "each input was worked on once");
    assert_eq!(place.result("c"), b"3");
    place.assert_healthy();
}

#[test]
fn an_output_placeholder_already_has_the_results_name() {
    let place = Place::with(&[("deep/er/a.txt", b"text")]);
    place.run_well(["--ext", "html", "--exec", "cp {input} {output}"]);
    assert_eq!(place.result("deep/er/a.html"), b"text");
    let named = Place::with(&[("a.txt", b"text")]);
    named.run_well(["--ext", "up", "--shell", "--exec", "basename {output} > {output}"]);
    assert_eq!(named.result("a.up"), b"a.up\n");
}

#[test]
fn an_empty_result_is_an_empty_file_and_no_result_is_a_failure() {
    let place = Place::with(&[("a", b"")]);
    place.run_well(["--exec", "true"]);
    assert_eq!(place.result("a"), b"");
    let none = Place::with(&[("a", b"")]);
    let output = none.run(["--exec", "true {output}"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert_eq!(none.tasks()[0]["standing"]["status"], "fatal");
    assert!(!none.out().join("a").exists());
}

// Case F52.
#[test]
fn names_that_are_not_utf_8_work_from_end_to_end() {
    let place = Place::new();
    let name = Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9 \n\"'$x/\xff.txt"));
    place.input(name, b"bytes");
    place.run_well(["--exec", "cat {input}"]);
    assert_eq!(place.result(name), b"bytes");
    place.assert_healthy();
    let shown = output(dispatcher().current_dir(place.path()).args(["show", "--state", "out"]).arg(name));
    assert_eq!(shown.status.code(), Some(0), "{}", told(&shown));
}

#[test]
fn the_shell_gets_hostile_names_as_data() {
    let place = Place::with(&[("a; touch pwned; '$(touch pwned)`touch pwned`", b"safe")]);
    place.run_well(["--shell", "--exec", "cat {input}"]);
    assert_eq!(place.result("a; touch pwned; '$(touch pwned)`touch pwned`"), b"safe");
    assert!(!place.path().join("pwned").exists());
}

// Rule R7.
#[test]
fn a_result_above_the_cap_is_invalid_and_none_of_it_stays() {
    let place = Place::with(&[("big", b"x"), ("small", b"y")]);
    let exec = "case {input} in *big) head -c 300000 /dev/zero;; *) echo small;; esac";
    let output = place.run(["--shell", "--result-cap", "200KB", "--exec", exec]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let story = place.story("big");
    assert_eq!(story["task"]["standing"]["status"], "invalid");
    let messages = story["results"][0]["messages"].to_string();
    assert!(messages.contains("200000"), "the message names the cap: {messages}");
    assert!(!place.out().join("big").exists());
    assert_eq!(place.result("small"), b"small\n");
    place.assert_healthy();
}

// Case F53.
#[test]
fn a_large_input_passes_in_bounded_memory() {
    let place = Place::new();
    let megabytes = if full() { 300 } else { 64 };
    let path = place.inputs().join("large");
    let mut file = std::fs::File::create(&path).unwrap();
    for n in 0..megabytes {
        std::io::Write::write_all(&mut file, &vec![u8::try_from(n % 251).unwrap(); 1_000_000]).unwrap();
    }
    drop(file);
    let peak = place.path().join("peak");
    // The command looks at its grandparent, the dispatcher itself, when the input is through.
    let exec = format!("cat {{input}}; grep VmHWM /proc/$PPID/status > {}", peak.display());
    place.run_well(["--shell", "--exec", &exec]);
    let (input, result) = (std::fs::read(&path).unwrap(), place.result("large"));
    assert!(input == result, "the result is not the input");
    let kilobytes: u64 = std::fs::read_to_string(peak).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 100_000, "{kilobytes} kB for an input of {megabytes} MB");
    place.assert_healthy();
}
