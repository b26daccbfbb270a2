//! Parts that die: the whole process ends at once, says which, and the next start goes on.

use crate::kit::{Place, Running, told};
use std::time::{Duration, Instant};

/// From the panic of a part to the end of the process: the rule says 2 s, the rest is for a busy machine.
const PART_DIED: Duration = Duration::from_secs(10);

/// A panic at the n-th pass of a place ends the process with its code; the same command then finishes.
fn ends_with_its_part(place_name: &str, nth: u64, part: &str) {
    let place = Place::with_many(60);
    let mut command = place.run_command(["--exec", "cat {input}"]);
    command.env("DISPATCHER_PANIC", format!("{place_name}:{nth}"));
    let mut running = Running::start(&mut command);
    running.wait_for_line("armed to panic");
    let began = Instant::now();
    let died = running.end();
    let took = began.elapsed();
    println!("ended {took:?} after the {part} had died");
    assert!(took < PART_DIED, "ended {took:?} after the {part} had died");
    assert_eq!(died.status.code(), Some(13), "{}", told(&died));
    let words = told(&died);
    assert!(words.contains(&format!("the {part} died")) && words.contains("to go on: "), "{words}");
    place.run_well(["--exec", "cat {input}"]);
    assert_eq!(place.result("00/0059"), b"input 59\n");
    place.assert_healthy();
}

// Rules S2, D8. Case F15.
#[test]
fn a_panic_of_the_finaliser_ends_the_process_and_nothing_is_lost() {
    ends_with_its_part("committed", 1, "finaliser");
}

// Rules S2, D8. Case F15.
#[test]
fn a_panic_of_the_receiver_ends_the_process_and_nothing_is_lost() {
    ends_with_its_part("received", 20, "receiver");
}

// Rule S2. Case F15.
#[test]
fn a_panic_of_the_router_ends_the_process_and_nothing_is_lost() {
    ends_with_its_part("handed_out", 30, "router");
}

// Rules S2, X1. Case F15.
#[test]
fn a_panic_of_the_reaper_ends_the_process_and_nothing_is_lost() {
    ends_with_its_part("swept", 1, "finaliser");
}

// Rules S2, R3. Case F15.
#[test]
fn a_panic_of_the_publisher_ends_the_process_and_nothing_is_lost() {
    ends_with_its_part("publishing", 10, "finaliser");
}
