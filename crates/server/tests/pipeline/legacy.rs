//! Workers of the legacy wire, beside those of the other.

use crate::kit::{Echo, Place, Puppet, SERVICE, Setup, TOO_LONG, start_worker, wait_until};
use bytes::Bytes;
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::SpanMs;
use dispatcher_core::wire::{AckWord, FromWorker, ToWorker};
use dispatcher_server::{DrainMode, Ended, LegacyWire};
use dispatcher_store::{Command, ServiceSettings, TaskFilter, TaskState};
use omq_tokio::{Context, Message, Options, SocketType, blocking};
use std::collections::BTreeSet;
use std::io::{Cursor, Write};
use std::sync::Arc;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A worker of the legacy wire that does only what a test says.
struct Cortex {
    name: String,
    dealer: blocking::Socket,
    push: blocking::Socket,
    _context: Context,
}

impl Cortex {
    fn join(place: &Place, name: &str) -> Self {
        let context = Context::new();
        let dealer = context.blocking_socket(SocketType::Dealer, Options::new().identity(name.to_owned()));
        let push = context.blocking_socket(SocketType::Push, Options::new());
        dealer.connect(place.endpoint().to_string().as_str()).unwrap();
        push.connect(place.dispatcher().results().unwrap().to_string().as_str()).unwrap();
        Self { name: name.to_owned(), dealer, push, _context: context }
    }

    fn ask(&self) {
        self.dealer.send(Message::single(SERVICE)).unwrap();
    }

    /// The next answer: an id and the input.
    fn hear(&self) -> (String, Vec<u8>) {
        let answer = self.dealer.recv_timeout(TOO_LONG).unwrap();
        let frames: Vec<Bytes> = (0..answer.len()).map(|at| answer.part_bytes(at).unwrap()).collect();
        (String::from_utf8(frames[0].to_vec()).unwrap(), frames[1..].concat())
    }

    /// Asks until there is a task.
    fn task(&self) -> (i64, Vec<u8>) {
        loop {
            self.ask();
            let (id, input) = self.hear();
            if id != "0" {
                return (id.parse().unwrap(), input);
            }
        }
    }

    fn bring(&self, task: i64, file: &[u8]) {
        self.bring_as(&self.name, task, file);
    }

    fn bring_as(&self, name: &str, task: i64, file: &[u8]) {
        let (head, tail) = file.split_at(file.len() / 2);
        let frames =
            [name.as_bytes(), SERVICE.as_bytes(), task.to_string().as_bytes(), head, tail].map(Bytes::copy_from_slice);
        self.push.send(Message::multipart(frames)).unwrap();
    }
}

/// A result's archive.
fn archive(log: &str) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("paper.html", SimpleFileOptions::default()).unwrap();
    writer.write_all(b"<html>").unwrap();
    writer.start_file("cortex.log", SimpleFileOptions::default()).unwrap();
    writer.write_all(log.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

fn legacy() -> LegacyWire {
    LegacyWire { results: Some("tcp://127.0.0.1:0".parse().unwrap()), ..LegacyWire::default() }
}

fn setup(inputs: usize) -> Setup {
    Setup { legacy: legacy(), ..Setup::impatient(inputs) }
}

/// With a time limit that a test can wait for.
fn hasty(inputs: usize, budget: u32) -> Setup {
    let service = ServiceSettings { timeout_ms: SpanMs(300), budget, ..ServiceSettings::default() };
    Setup { service, ..setup(inputs) }
}

fn is_over(place: &Place, task: i64) -> bool {
    matches!(place.story(task).task.state, TaskState::Done | TaskState::Dead)
}

// Rules W1, W2, W4.
#[test]
fn a_worker_of_each_wire_side_by_side() {
    let place = Place::start(setup(2));
    let (cortex, puppet) = (Cortex::join(&place, "host:html:1"), Puppet::join(&place, "new", 1));
    let mut told = Vec::new();

    let (task, input) = cortex.task();
    let name = |id: i64| if id == task { "one" } else { "other" };
    let input_of = |id: i64, input: &[u8]| assert_eq!(input, format!("input {}", id - 1).as_bytes());
    input_of(task, &input);
    told.push(format!("cortex < {} and its input", name(task)));
    puppet.say(&FromWorker::Ready { granted: 1 });
    let (said, bodies) = puppet.hear_until("a task", |said| matches!(said, ToWorker::Task { .. }));
    let ToWorker::Task { token, task: other, .. } = said else { unreachable!() };
    input_of(other.0, &bodies[0]);
    told.push(format!("new    < task {} and its input", name(other.0)));

    puppet.say(&FromWorker::Begun { token: token.clone() });
    cortex.bring(task, &archive("Warning:math:parse odd formula\n"));
    told.push(format!("new    > result, {:?}", puppet.finish(&token)));
    wait_until("both are done", || is_over(&place, 1) && is_over(&place, 2));
    for id in [task, other.0] {
        let story = place.story(id);
        let attempt = &story.attempts[0];
        let worker = attempt.worker.as_ref().unwrap();
        told.push(format!("{}: {worker} {:?} {:?}", name(id), story.results[0].status, attempt.ending.unwrap()));
    }
    cortex.ask();
    told.push(format!("cortex < {:?}", cortex.hear()));
    assert_eq!(
        told,
        [
            "cortex < one and its input",
            "new    < task other and its input",
            "new    > result, Stored",
            "one: host:html:1 Warning Accepted",
            "other: new#new NoProblem Accepted",
            "cortex < (\"0\", [])",
        ]
    );
    puppet.leave();
    assert!(matches!(place.drain(DrainMode::Received), Ended::Well { in_time: true, .. }));
    place.assert_balance();
    let stored = std::fs::read(place.out().join(format!("{:06}", task - 1))).unwrap();
    assert_eq!(stored, archive("Warning:math:parse odd formula\n"), "to the byte");
    assert_eq!(place.story(task).results[0].messages[0].what, "parse");
}

// Rule W1.
#[test]
fn without_a_task_and_for_an_unknown_service_there_is_nothing_now() {
    let place = Place::start(setup(0));
    let cortex = Cortex::join(&place, "w");
    cortex.ask();
    assert_eq!(cortex.hear(), ("0".to_owned(), vec![]));
    cortex.dealer.send(Message::single("no such service")).unwrap();
    assert_eq!(cortex.hear(), ("0".to_owned(), vec![]));
    place.import(SERVICE, 0..1, 0);
    assert_eq!(cortex.task().0, 1, "and then there is something");
}

// Rules R1, R8, X2, X3. Case F04.
#[test]
fn three_replies_that_are_no_results_spend_the_budget_and_the_last_reason_stays() {
    let place = Place::start(hasty(1, 3));
    let cortex = Cortex::join(&place, "w");
    let whole = archive("Fatal:a:b c\n");
    for reply in [&whole[..0], &whole[..whole.len() / 2], &whole[..10]] {
        let (task, _) = cortex.task();
        cortex.bring(task, reply);
    }
    wait_until("the budget is spent", || is_over(&place, 1));
    let story = place.story(1);
    let whys: Vec<_> = story.attempts.iter().map(|a| (a.ending.unwrap(), a.why.clone().unwrap().what)).collect();
    let unusable = |what: &str| (Ending::Unusable, what.to_owned());
    assert_eq!(whys, [unusable("empty"), unusable("unreadable"), unusable("unreadable")]);
    assert_eq!((story.task.state, story.results[0].messages[0].what.as_str()), (TaskState::Dead, "unreadable"));
    place.assert_balance();
}

// Rules R1, C2, C5.
#[test]
fn a_usable_reply_after_one_that_was_no_result_is_accepted() {
    let place = Place::start(setup(1));
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    cortex.bring(task, b"");
    // Its worker is told nothing, and its task waits for its time limit.
    cortex.ask();
    assert_eq!(cortex.hear().0, "0");
    cortex.bring(task, &archive("Info:a:b c\n"));
    wait_until("it is done", || is_over(&place, 1));
    assert_eq!(place.story(1).results[0].status, Status::NoProblem);
    assert_eq!(place.story(1).attempts.len(), 1);
}

// Rules W4, R4, L7.
#[test]
fn a_retryable_cause_brings_the_task_back_at_once() {
    let place = Place::start(setup(1));
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    cortex.bring(task, &archive("Fatal:oom:shed at 3 GB\nInfo:cortex:retryable\n"));
    let (again, _) = cortex.task();
    cortex.bring(again, &archive(""));
    wait_until("it is done", || is_over(&place, 1));
    let story = place.story(1);
    assert_eq!(story.attempts[0].ending, Some(Ending::RetryableCause));
    assert_eq!(story.attempts[0].why.as_ref().unwrap().what, "shed");
    assert_eq!(story.results.last().unwrap().status, Status::NoProblem);
}

// Rules C13, A1, A5.
#[test]
fn a_task_that_got_its_result_before_it_was_given_to_anybody_is_given_to_nobody() {
    let place = Place::start(setup(3));
    let (worker, stranger) = (Cortex::join(&place, "w"), Cortex::join(&place, "stranger"));
    let (task, _) = worker.task();
    // The others are claimed by now, and wait for a worker.
    let others: Vec<i64> = (1..=3).filter(|id| *id != task).collect();
    others.iter().for_each(|id| stranger.bring(*id, &archive("Info:a:b c\n")));
    wait_until("they have their results", || others.iter().all(|id| is_over(&place, *id)));
    wait_until("no claim waits for a worker", || place.dispatcher().in_stock() == 0);
    worker.ask();
    assert_eq!(worker.hear().0, "0");
    worker.bring(task, &archive("Info:a:b c\n"));
    wait_until("it is done", || is_over(&place, task));
    for id in 1..=3 {
        assert_eq!(place.story(id).attempts.len(), 1, "each attempt has one record");
    }
    place.assert_balance();
}

// Rule R5.
#[test]
fn what_the_last_attempt_brought_beside_its_cause_is_in_its_place() {
    let service = ServiceSettings { budget: 1, ..ServiceSettings::default() };
    let place = Place::start(Setup { service, ..setup(1) });
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    let brought = archive("Fatal:oom:shed at 3 GB\nInfo:cortex:retryable\n");
    cortex.bring(task, &brought);
    // In this order: before it is over nothing waits for its place.
    wait_until("it is in its place", || is_over(&place, 1) && place.summary().unpublished == 0);
    assert_eq!((place.story(1).task.state, place.count(TaskState::Dead)), (TaskState::Dead, 1));
    assert_eq!(std::fs::read(place.out().join("000000")).unwrap(), brought);
}

// Rules C2, C11, L3, X2.
#[test]
fn a_late_result_of_a_worker_that_was_given_up_is_kept() {
    let place = Place::start(hasty(1, 3));
    let (slow, quick) = (Cortex::join(&place, "slow"), Cortex::join(&place, "quick"));
    let (task, _) = slow.task();
    wait_until("its time limit has passed", || {
        place.story(1).attempts.first().is_some_and(|attempt| attempt.ending == Some(Ending::Expired))
    });
    assert_eq!(quick.task().0, task);
    slow.bring(task, &archive("Warning:a:b late\n"));
    wait_until("it is done", || is_over(&place, 1));
    let story = place.story(1);
    assert_eq!((story.results[0].status, story.results[0].epoch), (Status::Warning, story.attempts[0].epoch));
    // The newer attempt brings something as good, and higher: it replaces it.
    quick.bring(task, &archive("Warning:a:b quick\n"));
    wait_until("the newer one stands", || place.story(1).results.len() == 2);
    place.assert_balance();
}

// Rules C6, C11, L8.
#[test]
fn a_rerun_waits_for_another_worker_and_an_old_result_never_lands_in_it() {
    let place = Place::start(setup(2));
    let first = Cortex::join(&place, "first");
    let (task, _) = first.task();
    let filter = TaskFilter { ids: vec![dispatcher_core::id::TaskId(task)], ..TaskFilter::default() };
    assert_eq!(place.command(&Command::Rerun { filter }).changed, 1);
    // The worker that had it is offered the next task of the queue, and then nothing.
    let (next, _) = first.task();
    assert_ne!(next, task);
    first.ask();
    assert_eq!(first.hear().0, "0");
    let second = Cortex::join(&place, "second");
    assert_eq!(second.task().0, task);
    first.bring(task, &archive("Fatal:old:run\n"));
    wait_until("the old result is counted", || {
        let books = place.ask(place.store.books());
        books.iter().any(|line| line.kind.contains("stale") && line.n > 0)
    });
    assert_eq!(place.story(task).task.state, TaskState::Leased);
    second.bring(task, &archive(""));
    wait_until("it is done", || is_over(&place, task));
    let story = place.story(task);
    assert_eq!((story.results.len(), story.results[0].status), (1, Status::NoProblem));
}

// Rules C13, S4, L3.
#[test]
fn after_a_restart_results_of_attempts_handed_out_before_are_accepted() {
    let place = Place::start(setup(3));
    let cortex = Cortex::join(&place, "w");
    let (one, two) = (cortex.task().0, cortex.task().0);
    wait_until("the hand-outs are written", || [one, two].iter().all(|task| !place.story(*task).attempts.is_empty()));
    drop(cortex);
    // Nothing is waited for of a worker that is away.
    assert!(matches!(place.drain(DrainMode::Received), Ended::Well { in_time: true, .. }));
    let place = place.start_again();
    let cortex = Cortex::join(&place, "w");
    cortex.bring(one, &archive("Info:a:b c\n"));
    cortex.bring(two, &archive("Error:a:b c\n"));
    wait_until("both are done", || is_over(&place, one) && is_over(&place, two));
    assert_eq!((place.story(one).attempts.len(), place.story(two).attempts.len()), (1, 1), "nothing was done again");
    assert_eq!(place.story(two).results[0].status, Status::Error);
}

// Rules L9, A2, A3. Case F02.
#[test]
fn workers_that_ask_and_vanish_cost_nothing_and_hold_up_nobody() {
    let limits = dispatcher_core::legacy::LegacyLimits { grace: SpanMs(100), ..Default::default() };
    let service = ServiceSettings { timeout_ms: SpanMs(240_000), ..ServiceSettings::default() };
    let place = Place::start(Setup { legacy: LegacyWire { limits, ..legacy() }, service, ..setup(300) });
    let good = start_worker(&place, "good", 2, Arc::new(Echo));
    for n in 0..255 {
        let gone = Cortex::join(&place, &format!("gone {}", n % 7));
        let service = if n % 5 == 0 { "no such service" } else { SERVICE };
        gone.dealer.send(Message::single(service)).unwrap();
    }
    let place = place.finish(std::slice::from_ref(&good.stop)).place;
    good.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 300);
    let charged: u32 = (1..=300).map(|task| place.story(task).task.charged).sum();
    assert_eq!(charged, 300, "each task is charged for the attempt that did it");
}

// Rules A3, A2.
#[test]
fn a_worker_whose_connection_is_gone_for_good_loses_what_it_had() {
    let limits = dispatcher_core::legacy::LegacyLimits { grace: SpanMs(50), delivery: SpanMs(0), ..Default::default() };
    let place = Place::start(Setup { legacy: LegacyWire { limits, ..legacy() }, ..setup(1) });
    let gone = Cortex::join(&place, "gone");
    gone.task();
    drop(gone);
    wait_until("it is lost", || {
        place.story(1).attempts.first().is_some_and(|attempt| attempt.ending == Some(Ending::WorkerLost))
    });
    assert_eq!(place.story(1).task.charged, 1);
    let other = Cortex::join(&place, "other");
    assert_eq!(other.task().0, 1);
}

// Rules W5, C7, C12.
#[test]
fn what_is_no_result_is_counted_and_the_next_one_is_unharmed() {
    let place = Place::start(setup(2));
    place.import("other", 5..6, 0);
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    let good = archive("");
    let frames = |parts: &[&[u8]]| Message::multipart(parts.iter().map(|part| Bytes::copy_from_slice(part)));
    let id = task.to_string();
    for bad in [
        &[&b"w"[..]][..],
        &[b"w", SERVICE.as_bytes()],
        &[b"w", SERVICE.as_bytes(), id.as_bytes()],
        &[b"w", SERVICE.as_bytes(), b"one", &good],
        &[b"w", SERVICE.as_bytes(), b"-1", &good],
        &[b"\xff", SERVICE.as_bytes(), id.as_bytes(), &good],
        &[b"w", b"nowhere", id.as_bytes(), &good],
        &[b"w", b"other", id.as_bytes(), &good],
        &[b"w", SERVICE.as_bytes(), b"99", &good],
    ] {
        cortex.push.send(frames(bad)).unwrap();
    }
    for bad in [&[&b""[..]][..], &[b"\xff"], &[b"a", b"b"], &[b"", b"x", b"y"]] {
        cortex.dealer.send(frames(bad)).unwrap();
    }
    cortex.bring(task, &good);
    wait_until("the good one is stored", || is_over(&place, task));
    assert_eq!(place.story(task).results.len(), 1);
    let next = cortex.task();
    assert_ne!(next.0, task, "requests are unharmed, too");
    wait_until("what nobody knows is counted", || {
        let books = place.ask(place.store.books());
        books.iter().any(|line| line.kind.contains("unknown") && line.n == 1)
    });
}

// Rule R7.
#[test]
fn a_result_above_its_services_cap_is_a_verdict_without_its_bytes() {
    let service = ServiceSettings { result_cap: 100, ..ServiceSettings::default() };
    let place = Place::start(Setup { service, ..setup(1) });
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    cortex.bring(task, &archive(""));
    wait_until("it is over", || is_over(&place, 1));
    let result = place.story(1).results.remove(0);
    assert_eq!((result.status, result.parts.len()), (Status::Invalid, 0));
    assert!(result.messages.iter().any(|message| message.what == "result_too_large"));
}

// Rule S1.
#[test]
fn a_drain_waits_for_what_its_workers_still_compute() {
    let place = Place::start(setup(2));
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    place.dispatcher().drain(DrainMode::Received);
    // Whoever asks now is told that there is nothing.
    cortex.ask();
    assert_eq!(cortex.hear().0, "0");
    cortex.bring(task, &archive(""));
    assert!(matches!(place.ended(), Ended::Well { in_time: true, .. }));
    assert_eq!((place.count(TaskState::Done), place.count(TaskState::Ready)), (1, 1));
    place.assert_balance();
}

// Rule L1. Case F53.
#[test]
fn inputs_of_any_size_reach_a_worker_whole_and_one_that_is_too_large_waits_for_another() {
    let limits = dispatcher_core::legacy::LegacyLimits { unread_each: 1_000_000, ..Default::default() };
    let place = Place::start(Setup { legacy: LegacyWire { limits, ..legacy() }, ..setup(0) });
    let inputs = place.inputs();
    let sizes = [0, 1, 65_535, 65_536, 65_537, 1_000_000, 1_000_001];
    place.import_sized(&sizes);
    let cortex = Cortex::join(&place, "w");
    // Inputs are read side by side, and what is read first goes first.
    let mut left: BTreeSet<i64> = (1..).take(sizes.len() - 1).collect();
    while !left.is_empty() {
        let (task, input) = cortex.task();
        assert!(left.remove(&task), "task {task} was not to be expected");
        assert_eq!(input, std::fs::read(inputs.join(format!("{:06}", task - 1))).unwrap(), "of task {task}");
        cortex.bring(task, &archive(""));
    }
    wait_until("six are done", || place.count(TaskState::Done) == 6);
    cortex.ask();
    assert_eq!(cortex.hear().0, "0");
    let good = start_worker(&place, "good", 1, Arc::new(Echo));
    let place = place.finish(std::slice::from_ref(&good.stop)).place;
    good.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 7);
}

// Rules W5, R1, G3.
#[test]
fn a_result_of_one_byte_too_many_is_none() {
    let largest = archive("Info:as:large as may be\n");
    let place = Place::start(Setup { legacy: LegacyWire { max_result: Some(largest.len()), ..legacy() }, ..setup(1) });
    let cortex = Cortex::join(&place, "w");
    let (task, _) = cortex.task();
    // Read from its end, an archive may have something in front.
    cortex.bring(task, &[b"x", &largest[..]].concat());
    cortex.bring(task, &largest);
    wait_until("it is over", || is_over(&place, task));
    let story = place.story(task);
    assert_eq!((story.results.len(), story.results[0].parts[0].length), (1, largest.len() as u64));
    assert!(story.attempts.iter().all(|attempt| attempt.ending == Some(Ending::Accepted)), "the connection lives on");
    place.assert_balance();
}

// Rule W1.
#[test]
fn where_nobody_takes_results_nobody_is_given_a_task() {
    let place = Place::start(Setup::impatient(1));
    let context = Context::new();
    let dealer = context.blocking_socket(SocketType::Dealer, Options::new().identity("w"));
    dealer.connect(place.endpoint().to_string().as_str()).unwrap();
    dealer.send(Message::single(SERVICE)).unwrap();
    let answer = dealer.recv_timeout(TOO_LONG).unwrap();
    assert_eq!(answer.part_bytes(0).unwrap(), Bytes::from_static(b"0"));
    let puppet = Puppet::join(&place, "new", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    assert_eq!(puppet.finish(&puppet.hear_task()), AckWord::Stored);
    puppet.leave();
}
