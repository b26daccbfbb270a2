//! Two hundred workers, one of which asks for a large input and never reads it.

use crate::farm::Farm;
use crate::kit::{full, peak_memory, wait_until};
use crate::peer::{Cortex, Peer, Ports, archive};

const MB: u64 = 1 << 20;
/// The others.
const GOOD: usize = 199;
/// The input that is never read.
const LARGE: u64 = 30 * MB;
/// What may come to that.
const MORE_MEMORY: u64 = 50 * MB;

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

/// Each of them asks before the first one brings its result, so that all are served at once.
fn all_work(good: &mut [Cortex], result: &[u8]) {
    good.iter_mut().for_each(Cortex::send_request);
    // Who is told "nothing now" asks again: there is one for each.
    let ids: Vec<String> =
        good.iter_mut().map(|worker| worker.hear_task().unwrap_or_else(|| worker.task()).0).collect();
    good.iter_mut().zip(ids).for_each(|(worker, id)| worker.bring(&id, result));
}

// Cases F31, F36. Rules D1, A1.
#[test]
fn one_of_200_workers_that_never_reads_costs_the_others_nothing_and_bounded_memory() {
    let rounds = if full() { 25 } else { 4 };
    let mut farm = Farm::with_many(GOOD, 3_000);
    let ports = Ports::free();
    farm.listen_at(ports);
    farm.import(&[]);
    let server = farm.serve_with(&[], &[("DISPATCHER_CLAIM_AHEAD", "1024".to_owned())]);
    let pid = server.running.pid();
    let result = archive("Info:a:b c\n", 1_000);
    let mut good: Vec<Cortex> = (0..GOOD).map(|n| Cortex::join(ports, &format!("good {n}"))).collect();
    all_work(&mut good, &result);
    wait_until("all of them are known", || ports.metrics().contains(&format!("dispatcher_workers {GOOD}\n")));
    let (threads_before, memory_before) = (threads(pid), peak_memory(pid).unwrap());

    farm.input("large", &vec![b'x'; usize::try_from(LARGE).unwrap()]);
    farm.import(&[]);
    wait_until("it waits for a worker", || ports.metrics().contains("dispatcher_stock{service=\"echo\"} 1\n"));
    let mut stuck = Peer::dealer(ports, "stuck");
    stuck.send(&[b"echo"]);
    let has_the_large_one = || {
        let story = farm.look(&["show", "large"]);
        story["task"]["state"] == "leased" && story["attempts"][0]["worker"]["name"] == "stuck"
    };
    wait_until("it has the large input", has_the_large_one);
    (0..GOOD * rounds).for_each(|n| farm.input(&format!("more{n:04}"), b"more"));
    farm.import(&[]);
    for _ in 0..rounds {
        all_work(&mut good, &result);
    }
    let done = (GOOD * (rounds + 1)) as u64;
    wait_until("all that was brought is stored", || farm.count("done") == done);
    assert!(has_the_large_one(), "nobody had to wait until it was given up");
    let grown = peak_memory(pid).unwrap() - memory_before;
    println!("{} MB more", grown / MB);
    assert!(grown < LARGE + MORE_MEMORY, "{} MB more", grown / MB);
    assert!(threads(pid) <= threads_before + 2, "{} threads, before {threads_before}", threads(pid));
    assert_eq!(farm.look(&["workers", "--limit", "0"]).as_array().unwrap().len(), GOOD + 1, "each is noted once");

    // Once it has gone its task is another one's.
    drop(stuck);
    let (id, input) = good[0].task();
    assert_eq!(input.len() as u64, LARGE);
    good[0].bring(&id, &result);
    wait_until("the large one is stored, too", || farm.count("done") == done + 1);
    server.end();
    farm.assert_healthy();
}
