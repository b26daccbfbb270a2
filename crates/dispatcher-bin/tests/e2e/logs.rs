//! The log of a server: what it could not write is counted, and its last line is written.

use crate::farm::{Farm, ended};
use crate::kit::{full, told, wait_until};
use crate::peer::{Peer, Ports};
use rustix::process::Signal;

/// The number behind a word on a line of the metrics, or of the log.
fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains(word) && !line.starts_with('#'))?;
    line.split_once(word)?.1.split_whitespace().next()?.parse().ok()
}

// Case F72.
#[test]
fn lines_of_a_log_that_nobody_reads_are_counted_in_the_metrics_and_then_in_the_log_and_hold_up_no_task() {
    let mut farm = Farm::with_many(20, 20_000);
    let ports = Ports::free();
    farm.listen_at(ports);
    farm.import(&[]);
    let mut server = farm.serve_watched(&[], &[("RUST_LOG", "debug".to_owned())]);
    let counted = || number(&ports.metrics(), "dispatcher_dropped_log_lines_total ").unwrap();
    // One line for each message that is no result.
    let mut junk = Peer::push(ports);
    (0..if full() { 1_000_000 } else { 30_000 }).for_each(|_| junk.send(&[b"junk"]));
    wait_until("so many lines came that some were dropped", || counted() > 100);
    let worker = farm.worker("w1", "cat {input}", &["--slots=2"]);
    farm.wait_until_all_over();
    worker.signal(Signal::TERM);
    worker.end();
    // Now somebody reads, and learns it.
    let line = server.wait_for_line("log lines were dropped");
    server.drain_log();
    let mut last = 0;
    wait_until("nothing more is dropped", || std::mem::replace(&mut last, counted()) == last);
    server.signal(Signal::TERM);
    let output = ended(server);
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    let said = line + &String::from_utf8_lossy(&output.stderr);
    let told_last = said.lines().rev().find(|line| line.contains("log lines were dropped")).unwrap();
    assert!(number(told_last, "lines=").unwrap() >= last, "{last} were dropped: {told_last}");
    farm.assert_healthy();
}

// Rules S1, S2. Case F72.
#[test]
fn the_last_line_of_the_log_says_why_a_server_ended_each_time() {
    let farm = Farm::new(20_000);
    for _ in 0..if full() { 34 } else { 3 } {
        let stopped = farm.serve();
        let output = stopped.end_with(Signal::TERM);
        assert_last_line(&output, 0, "ended");

        let server = farm.serve();
        std::fs::remove_file(farm.path().join("s/r")).unwrap();
        assert_last_line(&ended(server.running), 13, "no worker can connect");

        let panicking = [("DISPATCHER_PANIC", "swept:2".to_owned())];
        assert_last_line(&ended(farm.serve_with(&[], &panicking).running), 13, "the finaliser died");
    }
}

fn assert_last_line(output: &std::process::Output, code: i32, says: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", told(output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().last().is_some_and(|line| line.contains(says)), "the last line is not about {says:?}: {said}");
}
