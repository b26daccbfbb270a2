//! A disk that is slow and not broken: whoever does not wait for it goes on.

use crate::farm::Farm;
use crate::kit::{full, told, wait_until};
use crate::peer::Ports;
use rustix::process::Signal;

const WORKERS: usize = 4;
/// What four workers of two slots each run at once.
const AT_ONCE: usize = 8;

// Rules D1, A3. Case F69.
#[test]
fn slow_writes_of_results_hold_up_neither_other_tasks_nor_signs_of_life() {
    let tasks = if full() { 200 } else { 60 };
    let mut farm = Farm::with_many(tasks, 2_000);
    let ports = Ports::free();
    farm.listen_at(ports);
    farm.import(&[]);
    // Each write takes longer than silence may last.
    let server = farm.serve_with(
        &[],
        &[("DISPATCHER_SLOW", "appended:3000".to_owned()), ("DISPATCHER_CLAIM_AHEAD", "256".to_owned())],
    );
    let exec = format!("cat {{input}} && echo {{task}} >> {}", farm.log().display());
    let workers: Vec<_> = (0..WORKERS).map(|n| farm.worker(&format!("w{n}"), &exec, &["--slots=2"])).collect();
    wait_until("far more has ended than could wait for one write", || {
        farm.ends().len() >= (farm.count("done") as usize + 2 * AT_ONCE).min(tasks)
    });
    assert!(farm.count("done") + (AT_ONCE as u64) < tasks as u64, "nothing was slow");
    farm.wait_until_all_over();
    let counted = |kind: &str| format!("dispatcher_attempts_total{{service=\"echo\",kind=\"{kind}\"}} {tasks}");
    wait_until("the books are shown", || ports.metrics().contains(&counted("accepted")));
    assert!(ports.metrics().contains(&counted("dispatched")), "each task took one attempt: {}", ports.metrics());
    for worker in workers {
        worker.signal(Signal::TERM);
        let output = worker.end();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(!told(&output).contains("answers no more"), "a beat was not answered in time: {}", told(&output));
    }
    server.end();
    farm.assert_healthy();
}
