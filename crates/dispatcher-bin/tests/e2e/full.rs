//! A server whose disk is full for long, under load: it tells, loses nothing, charges nobody, and heals by itself.

use crate::farm::Farm;
use crate::kit::{Running, full, told, wait_until};
use crate::peer::{Cortex, Ports, archive};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TASKS: usize = 60;

/// A server in a mount namespace of its own, where the folder it works in is a small file system with a filler in it. Its
/// inputs and its workers are outside: their disk is another one.
struct Squeezed {
    farm: Farm,
    ports: Ports,
    server: Running,
    filler: PathBuf,
}

impl Squeezed {
    /// With a file system of these options, and what a shell has to do to leave little of it, in its `filler`.
    fn start(mut farm: Farm, options: &str, fill: &str) -> Self {
        let ports = Ports::free();
        farm.listen_at(ports);
        let small = farm.path().join("disk");
        std::fs::create_dir(&small).unwrap();
        let serve = farm.serve_command(&[], &[]);
        let words = |command: &Command| {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ")
        };
        let script = format!(
            "mount -t tmpfs -o {options},mode=700 tmpfs {small} && cd {small} && {program} import ../in --service echo >&2 &&
             mkdir filler && (cd filler && {fill}) && exec {serve}",
            small = small.display(),
            program = assert_cmd::cargo::cargo_bin!("dispatcher").display(),
            serve = words(&serve),
        );
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", &script]).current_dir(farm.path()).stdin(Stdio::null());
        let mut server = Running::start(&mut command);
        server.wait_for_line("serving");
        Self { filler: small.join("filler"), farm, ports, server }
    }

    /// A command in the server's own view of its files, to its end.
    fn tell(&self, args: &[&str]) -> Output {
        let pid = self.server.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "-U", "-m", "--preserve-credentials", "sh", "-c", "cd \"$0\" && exec \"$@\""]);
        command.arg(self.farm.path().join("disk")).arg(assert_cmd::cargo::cargo_bin!("dispatcher")).args(args);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn look(&self, args: &[&str]) -> Value {
        let output = self.tell(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", told(&output)))
    }

    /// The states that tasks are in.
    fn states(&self) -> HashSet<String> {
        let status = self.look(&["status"]);
        status["by_state"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap().to_owned()).collect()
    }

    /// Every task has its result.
    fn is_done(&self) -> bool {
        self.states().iter().all(|state| state == "done")
    }

    fn page(&self, path: &str) -> String {
        self.ports.page(path)
    }

    /// It lives, is not ready, and its page and its metrics say why.
    fn assert_tells(&self) {
        wait_until("it says that it is not ready", || self.page("/readyz").starts_with("HTTP/1.1 503"));
        assert!(self.page("/metrics").contains("dispatcher_waiting 1"), "{}", self.page("/metrics"));
        assert!(self.states().iter().any(|state| state != "done"), "not everything has its result");
        let until = Instant::now() + if full() { Duration::from_secs(20) } else { Duration::ZERO };
        loop {
            let (ready, alive) = (self.page("/readyz"), self.page("/healthz"));
            assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("space"), "{ready}");
            assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Somebody makes room.
    fn make_room(&self) {
        let seen = format!("/proc/{}/root{}", self.server.pid(), self.filler.display());
        std::fs::remove_dir_all(seen).unwrap();
    }

    /// Everything ends now, after one attempt each, and the result of each input is what `expected` says.
    fn assert_heals(self, expected: impl Fn(usize) -> Vec<u8>) {
        wait_until("every task has its result", || self.is_done());
        wait_until("it is ready again", || self.page("/readyz").starts_with("HTTP/1.1 200"));
        let counted = |kind: &str| {
            let line = format!("dispatcher_attempts_total{{service=\"echo\",kind=\"{kind}\"}} {TASKS}");
            wait_until(&format!("{line} is shown"), || self.page("/metrics").contains(&line));
        };
        counted("accepted");
        counted("dispatched");
        let exported = self.tell(&["export", "--out", "../out"]);
        assert_eq!(exported.status.code(), Some(0), "{}", told(&exported));
        for n in 0..TASKS {
            let result = std::fs::read(self.farm.path().join(format!("out/echo/in/{n:04}"))).unwrap();
            assert!(result == expected(n), "{n:04} has another result");
        }
        let findings = self.look(&["doctor", "--deep"]);
        assert_eq!(findings["healthy"], true, "{findings:#}");
        self.server.signal(Signal::TERM);
        let output = self.server.end();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }
}

/// What is in an input: bytes that no other one has.
fn input(n: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at / 7 + at + n) % 251).unwrap()).collect()
}

fn farm_of(size: usize) -> Farm {
    let farm = Farm::new(2_000);
    (0..TASKS).for_each(|n| farm.input(&format!("{n:04}"), &input(n, size)));
    farm
}

/// Workers of the v1 wire, two of them, until the disk has been full for a while and has room again.
fn through_with_workers(mut squeezed: Squeezed, size: usize) {
    let exec = format!("cat {{input}} && echo {{task}} >> {}", squeezed.farm.log().display());
    let workers: Vec<_> = (0..2).map(|n| squeezed.farm.worker(&format!("w{n}"), &exec, &["--slots=2"])).collect();
    let line = squeezed.server.wait_for_line("waiting for");
    assert!(line.contains("space"), "{line}");
    squeezed.server.drain_log();
    squeezed.assert_tells();
    squeezed.make_room();
    wait_until("every command has ended", || squeezed.farm.ends().len() == TASKS);
    assert!(squeezed.farm.ends().values().all(|times| *times == 1), "none runs twice");
    let ended = |worker: Running| {
        worker.signal(Signal::TERM);
        let output = worker.end();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    };
    wait_until("every task has its result", || squeezed.is_done());
    workers.into_iter().for_each(ended);
    squeezed.assert_heals(|n| input(n, size));
}

// Rules C8, D3, D7, A2.
#[test]
fn a_disk_that_is_full_for_long_makes_large_results_wait_and_heals() {
    let size = 100_000;
    through_with_workers(Squeezed::start(farm_of(size), "size=14m", "head -c 9500k /dev/zero > filler"), size);
}

// Rules C8, D3, D7, A2.
#[test]
fn a_disk_that_is_full_for_long_makes_small_results_and_the_database_wait_and_heals() {
    // Everything, but for a few pages: enough to start, and for no result and no row.
    let (size, fill) = (500, "{ head -c 14m /dev/zero > filler; truncate -s -150k filler; }");
    through_with_workers(Squeezed::start(farm_of(size), "size=14m", fill), size);
}

// Rules R1, A2.
#[test]
fn a_disk_that_takes_no_more_files_makes_results_wait_and_charges_nobody() {
    // Room for ten more than there are when it starts.
    let (size, fill) = (1_000, "{ i=0; while true > f$i; do i=$((i+1)); done; rm -f f?; } 2> /dev/null");
    through_with_workers(Squeezed::start(farm_of(size).in_files(), "size=64m,nr_inodes=200", fill), size);
}

// Rules S1, D3, D7.
#[test]
fn who_is_told_to_end_waits_for_room_no_longer_than_a_drain_may_take() {
    let farm = farm_of(100_000).set("--drain-limit=1s");
    let mut squeezed = Squeezed::start(farm, "size=14m", "head -c 9500k /dev/zero > filler");
    let worker = squeezed.farm.worker("w", "cat {input}", &["--slots=2"]);
    let line = squeezed.server.wait_for_line("waiting for");
    assert!(line.contains("space"), "{line}");
    squeezed.server.signal(Signal::TERM);
    let output = squeezed.server.end();
    assert_eq!(output.status.code(), Some(12), "{}", told(&output));
    let news = told(&output).matches("waiting for space for results").count();
    assert!(news <= 1, "a repeat is none: {}", told(&output));
    let kept = std::fs::read_dir(squeezed.farm.path().join("w/outbox")).unwrap().count();
    assert!(kept > 0, "what was answered to nobody is with its worker");
    worker.signal(Signal::TERM);
    worker.end();
}

/// Says that it is over when it goes.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// Rules C8, D1, D3, D7, A2.
#[test]
fn a_disk_that_is_full_for_long_makes_results_of_the_legacy_wire_wait_and_heals() {
    let result = |n: usize| archive(&format!("Info:a:b {n}\n"), 100_000);
    let mut squeezed = Squeezed::start(farm_of(100), "size=14m", "head -c 9500k /dev/zero > filler");
    let (ports, over, heard) = (squeezed.ports, AtomicBool::new(false), input);
    std::thread::scope(|scope| {
        let over = &over;
        // The workers end with the test, whatever becomes of it.
        let _until_then = Until(over);
        for name in ["l1", "l2"] {
            scope.spawn(move || {
                let mut worker = Cortex::join(ports, name);
                while !over.load(Ordering::SeqCst) {
                    let Some((id, had)) = worker.ask() else { continue };
                    let n = (0..TASKS).find(|n| heard(*n, 100) == had).unwrap();
                    worker.bring(&id, &result(n));
                }
            });
        }
        let line = squeezed.server.wait_for_line("waiting for");
        assert!(line.contains("space"), "{line}");
        squeezed.server.drain_log();
        squeezed.assert_tells();
        squeezed.make_room();
        wait_until("every task has its result", || squeezed.is_done());
    });
    squeezed.assert_heals(result);
}
