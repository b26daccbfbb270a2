//! Files of any size pass a server and its workers in bounded memory.

use crate::farm::Farm;
use crate::kit::{Running, full, told};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;

const MB: u64 = 1 << 20;

/// The most memory that a process has had, in MB.
fn peak(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// An input of this size, different from the others in each of its megabytes.
fn input(farm: &Farm, n: u64, bytes: u64) {
    let name = format!("file{n:04}");
    farm.input(&name, b"");
    let file = std::fs::File::options().write(true).open(farm.inputs().join(name)).unwrap();
    file.set_len(bytes).unwrap();
    for at in (0..bytes).step_by(usize::try_from(MB).unwrap()) {
        file.write_at(format!("file {n} at {at}").as_bytes(), at).unwrap();
    }
}

/// So many inputs of this size through five workers, all at once; the memory of the server and of the largest worker in MB.
fn through(count: u64, bytes: u64) -> (u64, u64) {
    let farm = Farm::new(30_000);
    (0..count).for_each(|n| input(&farm, n, bytes));
    farm.import(&[]);
    let server = farm.serve_with(&[], &[("DISPATCHER_CLAIM_AHEAD", "64".to_owned())]);
    let slots = format!("--slots={}", count.div_ceil(5));
    let workers: Vec<_> = (0..5).map(|n| farm.worker(&format!("w{n}"), "cp {input} {output}", &[&slots])).collect();
    farm.wait_until_all_over();
    let of_server = peak(&server.running);
    let of_workers = workers.iter().map(peak).max().unwrap();
    for worker in workers {
        worker.signal(Signal::TERM);
        let output = worker.end();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }
    server.end();
    assert_eq!(farm.count("done"), count);
    // Byte by byte: every checksum is that of the bytes, and the bytes of one are those of its input.
    farm.assert_healthy();
    let last = format!("file{:04}", count - 1);
    let id = farm.look(&["show", &last])["task"]["id"].to_string();
    farm.tell_well(&["export", &id, "--to", "exported"]);
    let same =
        std::process::Command::new("cmp").arg(farm.path().join("exported")).arg(farm.inputs().join(last)).status();
    assert!(same.unwrap().success());
    (of_server, of_workers)
}

// Rule D1. Case F53.
#[test]
fn forty_large_files_at_once_pass_in_bounded_memory() {
    let (server, worker) = through(40, if full() { 60 } else { 12 } * MB);
    println!("server {server} MB, workers at most {worker} MB");
    assert!(server < 250, "the server had {server} MB");
    assert!(worker < 100, "a worker had {worker} MB");
}

// Rule D1. Case F53.
#[test]
fn one_very_large_file_passes_in_memory_that_does_not_know_its_size() {
    let (server, worker) = through(1, if full() { 300 } else { 100 } * MB);
    println!("server {server} MB, workers at most {worker} MB");
    assert!(server < 100, "the server had {server} MB");
    assert!(worker < 100, "a worker had {worker} MB");
}
