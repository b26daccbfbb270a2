//! Whole runs with good workers.

use crate::kit::{Echo, Place, Setup, start_worker};
use dispatcher_core::report::Status;
use dispatcher_store::TaskState;
use dispatcher_transport::socket::{BackendKind, Endpoint};
use std::sync::Arc;

fn every_task_ends(workers: usize, setup: Setup) {
    let inputs = setup.inputs;
    let place = Place::start(setup);
    let running: Vec<_> = (0..workers).map(|n| start_worker(&place, &format!("w{n}"), 1, Arc::new(Echo))).collect();
    let stops: Vec<_> = running.iter().map(|worker| worker.stop.clone()).collect();
    let place = place.finish(&stops).place;
    let mut stored = 0;
    for worker in running {
        let summary = worker.thread.join().unwrap();
        assert_eq!(summary.answers.unknown, 0, "no result is dropped as unknown");
        assert_eq!(summary.answers.superseded + summary.answers.stale + summary.answers.refused, 0);
        stored += summary.answers.stored;
    }
    assert_eq!(stored, inputs as u64, "each task was done once");
    assert_eq!(place.count(TaskState::Done), inputs as u64);
    for i in [0, inputs / 2, inputs - 1] {
        assert_eq!(std::fs::read(place.out().join(format!("{i:06}"))).unwrap(), format!("input {i}").as_bytes());
    }
}

// Rule D1. Case F53.
#[test]
fn inputs_that_fill_what_is_read_ahead_are_all_handed_out() {
    let place = Place::start(Setup { inputs: 0, ..Setup::default() });
    // More of them are claimed ahead than may be read ahead.
    place.import_sized(&[60_000; 200]);
    let worker = start_worker(&place, "good", 2, Arc::new(Echo));
    let place = place.finish(std::slice::from_ref(&worker.stop)).place;
    worker.thread.join().unwrap();
    assert_eq!(place.count(TaskState::Done), 200);
}

// Rules L2, D7, A1. Case F01.
#[test]
fn workers_that_answer_at_once_find_their_leases_on_record() {
    let (inputs, rounds) = if std::env::var_os("DISPATCHER_FULL").is_some() { (20_000, 10) } else { (500, 1) };
    for _ in 0..rounds {
        every_task_ends(8, Setup { inputs, ..Setup::default() });
        every_task_ends(16, Setup { inputs, ..Setup::default() });
    }
}

#[test]
fn a_whole_run_goes_over_zeromq_as_well_on_a_unix_socket_and_on_the_loopback_interface() {
    let over_zeromq = || Setup { backend: BackendKind::Zeromq, inputs: 300, ..Setup::default() };
    every_task_ends(8, over_zeromq());
    // A port that was free a moment ago: a dispatcher does not tell which one it was given.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    every_task_ends(8, Setup { endpoint: Some(Endpoint::tcp(port).unwrap()), ..over_zeromq() });
}

// Rules C1, D2.
#[test]
fn a_status_and_its_messages_come_through() {
    use dispatcher_core::report::{Message, Severity};
    use dispatcher_worker::{Assignment, Cancel, Outcome, Worker};
    struct Grumbling;
    impl Worker for Grumbling {
        fn work(&self, _task: &Assignment, _cancel: &Cancel) -> Outcome {
            let message = Message {
                severity: Severity::Warning,
                category: "font".to_owned(),
                what: "missing".to_owned(),
                details: "a NUL \0 and more".to_owned(),
            };
            Outcome::Done { status: Status::Warning, messages: vec![message], parts: Vec::new() }
        }
    }
    let place = Place::start(Setup::default());
    let worker = start_worker(&place, "w", 1, Arc::new(Grumbling));
    let place = place.finish(std::slice::from_ref(&worker.stop)).place;
    worker.thread.join().unwrap();
    let story = place.story(1);
    assert_eq!(story.task.standing.unwrap().status, Status::Warning);
    let messages = &story.results[0].messages;
    assert_eq!(messages[0].what, "missing");
    assert!(!messages[0].details.contains('\0'), "{:?}", messages[0].details);
}
