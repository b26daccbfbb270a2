//! How soon a process ends: when one of its parts dies, and when it is told to with nothing to do.
//!
//! The bounds of the rules are 2 s and 250 ms; what is asserted here leaves room for a busy machine, and stays far below
//! the time that a drain may take.

use crate::farm::{Farm, ended};
use crate::kit::{told, wait_until};
use crate::peer::{Cortex, Ports, archive};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// From the panic of a part to the end of the process.
const PART_DIED: Duration = Duration::from_secs(10);
/// From the signal to the end of a server with nothing to do.
const IDLE: Duration = Duration::from_secs(5);

/// A panic at a pass of a place, amid work, ends the process soon, with the code of a part that died.
fn a_panic_at(place: &str, nth: u64, stage: &str) {
    let farm = Farm::with_many(120, 2_000);
    // What is packed needs no publisher.
    let farm = if place == "publishing" { farm.in_files() } else { farm };
    farm.import(&[]);
    let mut server = farm.serve_watched(&[], &[("DISPATCHER_PANIC", format!("{place}:{nth}"))]);
    let workers: Vec<_> = (0..2).map(|n| farm.worker(&format!("w{n}"), "cat {input}", &["--slots=2"])).collect();
    server.wait_for_line("armed to panic");
    assert_ends_soon(server, stage);
    let server = farm.serve();
    farm.wait_until_all_over();
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.end();
    }
    server.end();
    assert_eq!(farm.count("done"), 120);
    farm.assert_healthy();
}

/// It has just panicked.
fn assert_ends_soon(server: crate::kit::Running, stage: &str) {
    let died = Instant::now();
    let output = ended(server);
    let took = died.elapsed();
    println!("ended {took:?} after the {stage} had died");
    assert!(took < PART_DIED, "ended {took:?} after the {stage} had died");
    assert_eq!(output.status.code(), Some(13), "{}", told(&output));
    assert!(told(&output).contains(&format!("the {stage}")) && told(&output).contains(" died"), "{}", told(&output));
}

// Rules S2, D8. Cases F15, F68.
#[test]
fn a_panic_of_the_router_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_at("handed_out", 10, "router");
}

// Rules S2, D8. Cases F15, F68.
#[test]
fn a_panic_of_the_receiver_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_at("received", 10, "receiver");
}

// Rules S2, D8. Cases F15, F68.
#[test]
fn a_panic_of_the_finaliser_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_at("committed", 5, "finaliser");
}

// Rules S2, X1. Case F15.
#[test]
fn a_panic_of_the_reaper_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_at("swept", 2, "finaliser");
}

// Rule S2. Case F15.
#[test]
fn a_panic_of_the_publisher_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_at("publishing", 10, "finaliser");
}

/// The same of a part that only the legacy wire has.
fn a_panic_of_the_legacy_wire_at(place: &str, stage: &str) {
    let mut farm = Farm::with_many(5, 2_000);
    let ports = Ports::free();
    farm.listen_at(ports);
    farm.import(&[]);
    let mut server = farm.serve_watched(&[], &[("DISPATCHER_PANIC", format!("{place}:2"))]);
    let result = archive("Info:a:b c\n", 100);
    let mut worker = Cortex::join(ports, "w");
    (0..2).for_each(|_| worker.work(&result));
    server.wait_for_line("armed to panic");
    assert_ends_soon(server, stage);
    // What was not stored is given out anew once its worker is not awaited any more.
    let server = farm.serve();
    let mut worker = Cortex::join(ports, "w");
    while farm.count("done") < 5 {
        if let Some((id, _)) = worker.ask() {
            worker.bring(&id, &result);
        }
    }
    server.end();
    farm.assert_healthy();
}

// Rules S2, D8. Cases F15, F68.
#[test]
fn a_panic_of_the_sink_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_of_the_legacy_wire_at("sunk", "sink");
}

// Rules S2, D8. Cases F15, F68.
#[test]
fn a_panic_of_a_decoder_ends_a_server_soon_and_nothing_is_lost() {
    a_panic_of_the_legacy_wire_at("decoding", "decoder-");
}

// Rules S1, S6. Case F58.
#[test]
fn an_idle_server_ends_soon_with_0_and_the_next_one_has_its_ports_at_once() {
    for (workers, signal) in [(0, Signal::TERM), (0, Signal::INT), (4, Signal::TERM), (4, Signal::INT)] {
        let mut farm = Farm::with_many(2, 20_000);
        let ports = Ports::free();
        farm.listen_at(ports);
        let server = farm.serve();
        let idle: Vec<_> = (0..workers / 2).map(|n| farm.worker(&format!("w{n}"), "true", &[])).collect();
        let mut legacy: Vec<_> = (0..workers / 2).map(|n| Cortex::join(ports, &format!("l{n}"))).collect();
        assert!(legacy.iter_mut().all(|worker| worker.ask().is_none()), "there is nothing to do");
        wait_until("they are connected", || {
            farm.look(&["workers"]).as_array().unwrap().iter().filter(|w| w["connected"] == true).count() >= workers / 2
        });
        let told_to = Instant::now();
        let output = server.end_with(signal);
        let took = told_to.elapsed();
        println!("{workers} workers, {signal:?}: ended after {took:?}");
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(took < IDLE, "{workers} workers, {signal:?}: ended after {took:?}");
        // The next one has nothing to wait for, whatever the system remembers of the connections.
        farm.serve().end();
        assert_eq!(farm.count("leased"), 0);
        drop(legacy);
        for worker in idle {
            worker.signal(Signal::TERM);
            assert_eq!(worker.end().status.code(), Some(0));
        }
    }
}
