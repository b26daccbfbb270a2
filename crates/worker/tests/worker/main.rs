//! A whole worker over real sockets, against a small dispatcher that the test plays.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions outside tests that are parts of tests"
)]

mod fake;
mod links;
mod proxy;

use dispatcher_core::report::Status;
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, ToWorker};
use dispatcher_worker::{Assignment, Cancel, OutPart, OutboxKind, Outcome, Worker, WorkerConfig};
use fake::{Fake, config, files_below, shell, start, talk, token};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOUR: u64 = 3_600_000;
/// The SHA-256 of `SOME TEXT`.
const SHA_OF_SOME_TEXT: &str = "0afab594c00f83d300130c476ece121184be8538366062c5828127f587fe85a7";

/// A named pipe, at which a command and its test wait for each other.
fn fifo(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

/// Whether a process lives. One that ended and was not waited for by its parent does not.
fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// Waits for what is written to a named pipe, without keeping the sockets' thread.
async fn read_fifo(path: PathBuf) -> String {
    tokio::task::spawn_blocking(move || fs::read_to_string(path).unwrap()).await.unwrap()
}

#[test]
fn a_task_goes_through_from_hello_to_bye() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        let worker = start(config(&dir), shell("tr a-z A-Z < {input}; echo Warning:a:b c >&2"));
        assert_eq!(fake.greet().await, []);
        for round in 1..=3 {
            fake.is_asked_for(round).await;
            let name = format!("task-{round}");
            fake.hand(&name, b"some text", HOUR);
            fake.begun(&name).await;
            let (message, parts) = fake.result(&name).await;
            let FromWorker::Result { status, messages, parts: specs, .. } = message else { panic!("a result") };
            assert_eq!((status, messages[0].what.as_str()), (Status::Warning, "b"));
            assert_eq!(parts["result"], b"SOME TEXT");
            assert_eq!(parts["stderr"], b"Warning:a:b c\n");
            assert_eq!(specs[0].sha256, SHA_OF_SOME_TEXT);
            fake.stored(&name);
        }
        fake.is_asked_for(4).await;
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        let summary = worker.join();
        assert_eq!((summary.received, summary.finished, summary.answers.stored, summary.unanswered), (3, 3, 3, 0));
        assert_eq!(files_below(&dir.path().join("scratch")), ["lock", "running-0", "working-on-0"]);
    });
}

#[test]
fn large_inputs_and_results_go_piece_by_piece() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        let worker = start(config(&dir), shell("cat {input} {input} > {output}"));
        fake.greet().await;
        fake.is_asked_for(1).await;
        let input: Vec<u8> = (0..3_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        fake.hand("big", &input, HOUR);
        fake.serve("big", &input).await;
        let (_, parts) = fake.result("big").await;
        assert!(parts["result"] == [input.as_slice(), &input].concat());
        fake.stored("big");
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        worker.join();
        assert_eq!(
            files_below(&dir.path().join("scratch")),
            ["lock", "running-0", "working-on-0"],
            "nothing of it stays on disk"
        );
    });
}

// Rule D7; case F05.
#[test]
fn a_dispatcher_that_comes_back_is_told_what_is_held_and_gets_the_result_again() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let pipe = fifo(dir.path(), "pipe");
        let mut fake = Fake::listen(&dir).await;
        let worker = start(
            WorkerConfig { slots: 2, ..config(&dir) },
            shell(&format!("[ {{stem}} = a ] || cat '{}'", pipe.display())),
        );
        fake.greet().await;
        fake.hand("a", b"", HOUR);
        fake.begun("a").await;
        let (first, _) = fake.result("a").await;
        fake.hand("b", b"", HOUR);
        fake.begun("b").await;
        fake.vanish().await;

        let mut fake = Fake::listen(&dir).await;
        let held = [("a".to_owned(), HoldState::Finished), ("b".to_owned(), HoldState::Running)];
        assert_eq!(fake.greet().await, held);
        assert_eq!(fake.result("a").await.0, first);
        fake.stored("a");
        // What ran all the while is taken as well.
        tokio::task::spawn_blocking(move || fs::write(pipe, "late").unwrap()).await.unwrap();
        assert_eq!(fake.result("b").await.1["result"], b"late");
        fake.stored("b");
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().connections, 2);
    });
}

#[test]
fn a_cancelled_task_s_processes_are_gone_before_its_slot_takes_another() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let pipe = fifo(dir.path(), "pipe");
        let mut fake = Fake::listen(&dir).await;
        let worker = start(config(&dir), shell(&format!("sleep 600 & echo $! > '{}'; wait", pipe.display())));
        fake.greet().await;
        fake.is_asked_for(1).await;
        fake.hand("a", b"", HOUR);
        fake.begun("a").await;
        let pid = read_fifo(pipe).await;
        assert!(is_alive(&pid));
        fake.say(ToWorker::Cancel { token: token("a"), why: "asked".to_owned() });
        fake.is_asked_for(2).await;
        assert!(!is_alive(&pid));
        worker.stop.now();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().cancelled, 1);
    });
}

// Rules S1, A2.
#[test]
fn a_drain_gives_back_what_waits_and_finishes_what_runs() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let pipe = fifo(dir.path(), "pipe");
        let mut fake = Fake::listen(&dir).await;
        let worker = start(WorkerConfig { prefetch: 1, ..config(&dir) }, shell(&format!("cat '{}'", pipe.display())));
        fake.greet().await;
        fake.is_asked_for(2).await;
        fake.hand("a", b"", HOUR);
        fake.hand("b", b"", HOUR);
        fake.begun("a").await;
        fake.say(ToWorker::Drain);
        assert_eq!(fake.hear().await.0, FromWorker::Release { token: token("b") });
        fake.stored("b");
        tokio::task::spawn_blocking(move || fs::write(pipe, "done").unwrap()).await.unwrap();
        assert_eq!(fake.result("a").await.1["result"], b"done");
        fake.stored("a");
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().released, 1);
    });
}

// Rules S1, A2.
#[test]
fn a_worker_that_stops_at_once_ends_its_commands_and_gives_their_tasks_back() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let pipe = fifo(dir.path(), "pipe");
        let mut fake = Fake::listen(&dir).await;
        let worker = start(config(&dir), shell(&format!("echo $$ > '{}'; exec sleep 600", pipe.display())));
        fake.greet().await;
        fake.hand("a", b"", HOUR);
        fake.begun("a").await;
        let pid = read_fifo(pipe).await;
        worker.stop.now();
        assert_eq!(fake.hear().await.0, FromWorker::Release { token: token("a") });
        assert!(!is_alive(&pid));
        fake.stored("a");
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        worker.join();
    });
}

// Rules A3, R4; case F74.
#[test]
fn a_command_that_outlasts_its_limit_is_ended_and_told_and_the_slot_takes_the_next_task() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        let worker = start(config(&dir), shell("echo before >&2; [ {stem} = fine ] || sleep 600"));
        fake.greet().await;
        fake.hand("slow", b"", 100);
        fake.begun("slow").await;
        let (FromWorker::Retryable { cause, parts, .. }, bodies) = fake.hear().await else { panic!("a cause") };
        assert_eq!((cause.category.as_str(), cause.what.as_str()), ("timeout", "wallclock"));
        assert_eq!((parts[0].name.as_str(), &bodies[0][..]), ("stderr", &b"before\n"[..]));
        fake.stored("slow");
        fake.hand("fine", b"", HOUR);
        fake.begun("fine").await;
        assert!(matches!(fake.result("fine").await.0, FromWorker::Result { status: Status::NoProblem, .. }));
        fake.stored("fine");
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        worker.join();
    });
}

// Rule D7; case F05.
#[test]
fn results_in_an_outbox_on_disk_are_sent_by_the_next_life_of_the_worker() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = || WorkerConfig { slots: 2, outbox: OutboxKind::Disk(dir.path().join("outbox")), ..config(&dir) };
        let mut fake = Fake::listen(&dir).await;
        let worker = start(
            WorkerConfig { linger: Duration::ZERO, ..disk() },
            shell("[ {stem} = small ] && echo small || head -c 400000 /dev/zero"),
        );
        fake.greet().await;
        let mut first = Vec::new();
        for name in ["large", "small"] {
            fake.hand(name, b"", HOUR);
            fake.begun(name).await;
            first.push(fake.result(name).await);
        }
        worker.stop.now();
        fake.departs().await;
        assert_eq!(worker.join().unanswered, 2);

        let worker = start(WorkerConfig { incarnation: "next".to_owned(), ..disk() }, shell("true"));
        let held = [("large".to_owned(), HoldState::Finished), ("small".to_owned(), HoldState::Finished)];
        assert_eq!(fake.greet().await, held);
        assert_eq!(first[0].1["result"].len(), 400_000);
        for (name, told) in ["large", "small"].into_iter().zip(first) {
            assert!(fake.result(name).await == told);
            fake.stored(name);
        }
        worker.stop.drain();
        while fake.hear().await.0 != FromWorker::Bye {}
        worker.join();
        assert_eq!(files_below(&dir.path().join("outbox")), ["lock"]);
    });
}

// Case F27.
#[test]
fn a_folder_that_another_worker_has_is_refused_and_named() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let outbox = dir.path().join("outbox");
        let disk = |scratch: &str| WorkerConfig {
            outbox: OutboxKind::Disk(outbox.clone()),
            scratch: dir.path().join(scratch),
            ..config(&dir)
        };
        let mut fake = Fake::listen(&dir).await;
        let first = start(disk("scratch"), shell("true"));
        fake.greet().await;
        fake.is_asked_for(1).await;
        for (scratch, named) in [("scratch", "scratch"), ("another", "outbox")] {
            let refused = start(disk(scratch), shell("true")).end().unwrap_err().to_string();
            let named = dir.path().join(named).display().to_string();
            assert!(refused.contains(&named) && refused.contains("in use by another worker"), "{refused}");
        }
        first.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        first.join();
    });
}

// Rule D7. Cases F07, F30.
#[test]
fn whatever_the_answer_to_a_result_is_it_is_dropped_once_and_new_work_is_taken() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        let outbox = dir.path().join("outbox");
        let worker =
            start(WorkerConfig { outbox: OutboxKind::Disk(outbox.clone()), ..config(&dir) }, shell("cat {input}"));
        fake.greet().await;
        let words = [AckWord::Stale, AckWord::Superseded, AckWord::Unknown, AckWord::Cancelled, AckWord::Refused];
        for (n, answer) in (1..).zip(words) {
            fake.is_asked_for(n).await;
            let name = format!("{answer:?}").to_lowercase();
            fake.hand(&name, b"x", HOUR);
            fake.begun(&name).await;
            fake.result(&name).await;
            fake.say(ToWorker::Ack { token: token(&name), answer, why: Some("a newer one stands".to_owned()) });
        }
        fake.is_asked_for(6).await;
        // A connection later nothing of it is told any more.
        fake.vanish().await;
        let mut fake = Fake::listen(&dir).await;
        assert_eq!(fake.greet().await, []);
        fake.is_asked_for(1).await;
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        let answers = worker.join().answers;
        assert_eq!((answers.stale, answers.superseded, answers.unknown), (1, 1, 1));
        assert_eq!((answers.cancelled, answers.refused, answers.stored), (1, 1, 0));
        assert_eq!(files_below(&outbox), ["lock"]);
    });
}

/// Works until it is told that it was heard long enough.
struct Spin(Arc<AtomicBool>);

impl Worker for Spin {
    fn work(&self, task: &Assignment, _cancel: &Cancel) -> Outcome {
        while !self.0.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Outcome::done(vec![OutPart::result(task.input.read().unwrap())])
    }
}

// Case F71.
#[test]
fn work_that_burns_the_processor_keeps_no_beat_back() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        fake.beat_ms = 20;
        let enough = Arc::new(AtomicBool::new(false));
        let slots = 4;
        let worker = start(WorkerConfig { slots, ..config(&dir) }, Arc::new(Spin(Arc::clone(&enough))));
        fake.greet().await;
        fake.is_asked_for(u64::from(slots)).await;
        for n in 0..slots {
            fake.hand(&n.to_string(), b"x", HOUR);
            fake.begun(&n.to_string()).await;
        }
        fake.beats(20).await;
        enough.store(true, Ordering::Relaxed);
        for _ in 0..slots {
            let (FromWorker::Result { token, .. }, _) = fake.hear().await else { panic!("a result") };
            fake.stored(&token.0);
        }
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().connections, 1);
    });
}

// Rules A2, A4; case F19.
#[test]
fn begun_is_out_before_a_task_can_kill_its_worker() {
    const FOLDER: &str = "DISPATCHER_TEST_WORKER_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        // The same test in a process of its own is the worker, until its first task kills it.
        let endpoint = dispatcher_transport::socket::Endpoint::ipc(Path::new(&folder).join("run/s")).unwrap();
        let config = WorkerConfig::new(endpoint, "worker", "life", "service", Path::new(&folder).join("scratch"));
        start(config, shell("kill -9 $PPID")).join();
        return;
    }
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen(&dir).await;
        for life in 0..20 {
            let mut process = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "begun_is_out_before_a_task_can_kill_its_worker"])
                .env(FOLDER, dir.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            fake.greet().await;
            let name = format!("task-{life}");
            fake.hand(&name, b"", HOUR);
            fake.begun(&name).await;
            fake.departs().await;
            assert!(!process.wait().unwrap().success());
        }
    });
}
