//! How a server starts and ends.

use crate::farm::{Farm, ended};
use crate::kit::{dispatcher, output, told, wait_for_file, wait_until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

// Rule S1.
#[test]
fn a_second_signal_ends_it_at_once_and_a_worker_that_goes_on_brings_its_result_later() {
    let farm = Farm::with_many(1, 20_000);
    farm.import(&[]);
    let mut server = farm.serve_watched(&["--drain=wait"], &[]);
    let (started, go) = (farm.path().join("started"), farm.path().join("go"));
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let exec = format!("touch {}; cat {} > /dev/null; echo done", started.display(), go.display());
    let worker = farm.worker("w1", &exec, &[]);
    wait_for_file(&started);
    server.signal(Signal::TERM);
    server.wait_for_line("told to stop");
    let second = Instant::now();
    server.signal(Signal::TERM);
    let output = ended(server);
    let took = second.elapsed();
    println!("ended {took:?} after the second signal");
    assert!(took < Duration::from_secs(5), "ended {took:?} after the second signal");
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    let server = farm.serve();
    std::fs::OpenOptions::new().write(true).open(&go).unwrap().write_all(b"go").unwrap();
    farm.wait_until_all_over();
    assert_eq!(farm.result("0000").unwrap(), b"done\n");
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
    farm.assert_healthy();
}

// Rules S1, S4.
#[test]
fn a_server_told_to_end_amid_work_leaves_it_to_its_workers() {
    let farm = Farm::with_many(1, 20_000);
    farm.import(&[]);
    let server = farm.serve();
    let (started, go) = (farm.path().join("started"), farm.path().join("go"));
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let exec = format!("touch {}; cat {} > /dev/null; echo done", started.display(), go.display());
    let worker = farm.worker("w1", &exec, &[]);
    wait_for_file(&started);
    server.end();
    // It finishes while nobody is there.
    std::fs::OpenOptions::new().write(true).open(&go).unwrap().write_all(b"go").unwrap();
    let server = farm.serve();
    farm.wait_until_all_over();
    let story = farm.look(&["show", "1"]);
    assert_eq!(story["attempts"].as_array().unwrap().len(), 1, "{story:#}");
    worker.signal(Signal::TERM);
    worker.end();
    server.end();
}

// Rule S2. Case F72.
#[test]
fn a_log_that_nobody_reads_holds_up_neither_tasks_nor_the_end() {
    let farm = Farm::with_many(40, 20_000);
    farm.import(&[]);
    let mut command = dispatcher();
    command.current_dir(farm.path()).args(["serve", "--until-empty", "--http=off"]);
    command.arg(format!("--listen=ipc://{}", farm.path().join("s/r").display())).env("RUST_LOG", "trace");
    let running = crate::kit::Running::start(&mut command);
    let worker = farm.worker("w1", "cat {input}", &[]);
    wait_until("every task has ended", || farm.tell(&["status"]).status.success() && farm.count("done") == 40);
    // Only now is its standard error read.
    let output = ended(running);
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    worker.signal(Signal::TERM);
    worker.end();
    farm.assert_healthy();
}

// Rule S5.
#[test]
fn a_bounded_server_ends_by_itself() {
    let farm = Farm::with_many(10, 20_000);
    farm.import(&[]);
    let worker = farm.worker("w1", "cat {input}", &[]);
    let limited = ended(farm.serve_with(&["--limit=4"], &[]).running);
    assert_eq!((limited.status.code(), farm.count("done")), (Some(0), 4), "{}", told(&limited));
    let all = ended(farm.serve_with(&["--until-empty"], &[]).running);
    assert_eq!((all.status.code(), farm.count("done")), (Some(0), 10), "{}", told(&all));
    worker.signal(Signal::TERM);
    worker.end();
}

#[test]
fn a_second_server_on_a_state_folder_or_an_endpoint_is_refused_with_words() {
    let farm = Farm::new(20_000);
    let server = farm.serve();
    let second = farm.tell(&["serve", "--http=off"]);
    assert_eq!(second.status.code(), Some(14), "{}", told(&second));
    assert!(told(&second).contains("another dispatcher"), "{}", told(&second));
    let listen = format!("--listen=ipc://{}", farm.path().join("s/r").display());
    let elsewhere = farm.tell(&["serve", "--http=off", "--state=other", &listen]);
    assert_eq!(elsewhere.status.code(), Some(2), "{}", told(&elsewhere));
    assert!(told(&elsewhere).contains("in use"), "{}", told(&elsewhere));
    server.end();
}

// Rules A1, A5.
#[test]
fn health_readiness_and_the_books_are_shown_on_a_local_page() {
    let farm = Farm::with_many(6, 20_000);
    farm.import(&[]);
    let mut command = dispatcher();
    command.current_dir(farm.path()).args(["serve", "--http=127.0.0.1:0"]);
    command.arg(format!("--listen=ipc://{}", farm.path().join("s/r").display()));
    let mut running = crate::kit::Running::start(&mut command);
    let line = running.wait_for_line("serving");
    running.drain_log();
    let address = line.split("http://").nth(1).unwrap().split(['"', ' ']).next().unwrap().to_owned();
    let page = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    assert!(page("/healthz").starts_with("HTTP/1.1 200"), "{}", page("/healthz"));
    assert!(page("/readyz").starts_with("HTTP/1.1 200"), "{}", page("/readyz"));
    let worker = farm.worker("w1", "cat {input}", &[]);
    farm.wait_until_all_over();
    let counted = |text: &str| page("/metrics").contains(text);
    wait_until("the books are shown", || counted("dispatcher_attempts_total{service=\"echo\",kind=\"accepted\"} 6"));
    assert!(counted("dispatcher_attempts_total{service=\"echo\",kind=\"dispatched\"} 6"), "{}", page("/metrics"));
    assert!(counted("dispatcher_durable_seconds_count 6") && counted("dispatcher_store_up 1"), "{}", page("/metrics"));
    assert!(page("/nothing").starts_with("HTTP/1.1 404"));
    worker.signal(Signal::TERM);
    worker.end();
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn without_a_command_it_serves_and_says_what_to_do_next() {
    let farm = Farm::new(20_000);
    let mut command = dispatcher();
    command.current_dir(farm.path()).env("DISPATCHER_HTTP", "off");
    command.env("DISPATCHER_LISTEN", format!("ipc://{}", farm.path().join("s/r").display()));
    let mut running = crate::kit::Running::start(&mut command);
    running.wait_for_line("serving");
    running.wait_for_line("dispatcher import");
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(0));
    let wrong = output(dispatcher().current_dir(farm.path()).args(["serve", "--listen", "nowhere"]));
    assert_eq!(wrong.status.code(), Some(2), "{}", told(&wrong));
}

// Rule S2.
#[test]
fn a_server_whose_socket_was_removed_ends_instead_of_waiting_for_nobody() {
    let farm = Farm::new(20_000);
    let server = farm.serve();
    std::fs::remove_file(farm.path().join("s/r")).unwrap();
    let output = ended(server.running);
    assert_eq!(output.status.code(), Some(13), "{}", told(&output));
    assert!(told(&output).contains("no worker can connect"), "{}", told(&output));
    farm.serve().end();
}

// Rule S5.
#[test]
fn a_bounded_server_with_nothing_to_do_ends_without_a_worker() {
    let farm = Farm::with_many(1, 20_000);
    let nothing = ended(farm.serve_with(&["--until-empty"], &[]).running);
    assert_eq!(nothing.status.code(), Some(0), "{}", told(&nothing));
}

#[test]
fn results_are_not_put_where_the_state_is_swept() {
    let farm = Farm::new(20_000).in_files();
    for results in [".dispatcher/spool", ".dispatcher", ".dispatcher/deeper/results"] {
        let refused = farm.tell(&["serve", "--http=off", "--results", results]);
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        assert!(told(&refused).contains("--results"), "{}", told(&refused));
    }
}
