//! Links that break, dispatchers that go and come back, and several of them.

use crate::fake::{Fake, config, shell, start, token};
use crate::proxy::{Fault, Proxy};
use crate::{HOUR, fake::talk, fifo};
use dispatcher_core::wire::{ErrorCode, FromWorker, HoldState, ToWorker};
use dispatcher_transport::socket::Endpoint;
use dispatcher_worker::WorkerConfig;
use std::fs;

/// One task, all the way.
async fn works(fake: &mut Fake, name: &str) {
    fake.hand(name, b"x", HOUR);
    fake.begun(name).await;
    fake.result(name).await;
    fake.stored(name);
}

fn ipc(dir: &tempfile::TempDir, name: &str) -> Endpoint {
    Endpoint::ipc(dir.path().join(name).join("s")).unwrap()
}

fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

// Case F05.
#[test]
fn a_link_that_was_reset_or_fell_silent_is_built_anew_and_what_ran_meanwhile_is_taken() {
    for fault in [Fault::Reset, Fault::Silence] {
        talk(async {
            let dir = tempfile::tempdir().unwrap();
            let pipe = fifo(dir.path(), "pipe");
            let mut fake = Fake::listen_at(&anywhere()).await;
            fake.beat_ms = 100;
            let proxy = Proxy::before(fake.address()).await;
            let endpoints = vec![Endpoint::tcp(proxy.address).unwrap()];
            let worker = start(
                WorkerConfig { endpoints, slots: 2, ..config(&dir) },
                shell(&format!("[ {{stem}} != slow ] || cat '{}'", pipe.display())),
            );
            fake.greet().await;
            fake.hand("slow", b"x", HOUR);
            fake.begun("slow").await;
            proxy.strike(fault);
            fake.departs().await;
            // The worker found out by itself, and dials through the same proxy.
            assert_eq!(fake.greet().await, [("slow".to_owned(), HoldState::Running)]);
            assert_eq!(proxy.links(), 2);
            works(&mut fake, "quick").await;
            tokio::task::spawn_blocking(move || fs::write(pipe, "late").unwrap()).await.unwrap();
            assert_eq!(fake.result("slow").await.1["result"], b"late");
            fake.stored("slow");
            worker.stop.drain();
            assert_eq!(fake.hear().await.0, FromWorker::Bye);
            worker.join();
        });
    }
}

// Case F05.
#[test]
fn a_dispatcher_that_dies_and_comes_back_on_its_port_twice_is_found_again() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen_at(&anywhere()).await;
        let endpoint = fake.endpoint();
        let worker = start(WorkerConfig { endpoints: vec![endpoint.clone()], ..config(&dir) }, shell("cat {input}"));
        fake.greet().await;
        for life in ["first", "second"] {
            works(&mut fake, life).await;
            fake.vanish().await;
            fake = Fake::listen_at(&endpoint).await;
            assert_eq!(fake.greet().await, []);
        }
        works(&mut fake, "third").await;
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().connections, 3);
    });
}

// Case F05.
#[test]
fn of_two_dispatchers_the_one_that_is_there_gets_the_worker() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = Fake::listen_at(&ipc(&dir, "second")).await;
        let endpoints = vec![ipc(&dir, "dead"), fake.endpoint()];
        let worker = start(WorkerConfig { endpoints, ..config(&dir) }, shell("cat {input}"));
        fake.greet().await;
        works(&mut fake, "a").await;
        worker.stop.drain();
        assert_eq!(fake.hear().await.0, FromWorker::Bye);
        assert_eq!(worker.join().connections, 1);
    });
}

// Rule D7. Case F05.
#[test]
fn a_dispatcher_that_refuses_or_falls_silent_is_left_for_the_other_one_with_all_that_is_held() {
    talk(async {
        let dir = tempfile::tempdir().unwrap();
        let (mut first, mut second) =
            (Fake::listen_at(&ipc(&dir, "first")).await, Fake::listen_at(&ipc(&dir, "second")).await);
        let endpoints = vec![first.endpoint(), second.endpoint()];
        let worker = start(WorkerConfig { endpoints, ..config(&dir) }, shell("cat {input}"));
        // The first one has no place left.
        assert!(matches!(first.hear().await.0, FromWorker::Hello { .. }));
        first.say(ToWorker::Error { code: ErrorCode::Limit, message: "full".to_owned() });
        second.beat_ms = 100;
        second.greet().await;
        second.hand("a", b"x", HOUR);
        second.begun("a").await;
        let told = second.result("a").await;
        // Nobody reads the second one any more: its beats stay unanswered, and what is held is told to the first.
        first.departs_if_there().await;
        assert_eq!(first.greet().await, [("a".to_owned(), HoldState::Finished)]);
        assert!(first.result("a").await == told);
        first.say(ToWorker::Beat { n: 0, unknown: vec![token("a")] });
        worker.stop.drain();
        assert_eq!(first.hear().await.0, FromWorker::Bye);
        worker.join();
    });
}
