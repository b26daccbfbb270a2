//! What a backend is known to fail, and the proof that it still does.
//!
//! Each entry is a test of the suite. It runs in a process of its own, since the worst of them end theirs, with little
//! memory and little patience, and has to fail in the way that is declared. One that passes has to leave the list.
#![expect(clippy::expect_used, clippy::panic, reason = "these functions are parts of tests")]

use rustix::process::{Resource, Rlimit, setrlimit};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A test that is known to fail.
pub(crate) struct Failure {
    /// As `cargo test` names it.
    test: &'static str,
    /// What its output has then.
    shows: &'static str,
    /// What is behind it.
    why: &'static str,
}

/// All of them. `docs/adr/0003-socket-boundary.md` says what they mean for who chooses the backend.
const DECLARED: &[Failure] = &[
    Failure {
        test: "zeromq::pulls::a_result_beyond_the_cap_costs_its_sender_the_connection_and_the_next_one_is_intact",
        shows: "memory allocation of ",
        why: "it reserves what the header of a frame claims, and the process aborts",
    },
    Failure {
        test: "zeromq::pulls::a_sender_that_asks_for_a_sign_of_life_is_given_one",
        shows: "the connection holds",
        why: "it knows no command but READY, so that a libzmq peer with heart-beats is cut again and again",
    },
    Failure {
        test: "zeromq::pulls::a_long_command_costs_its_sender_the_connection_and_nobody_memory",
        shows: "nothing came: the end of the connection",
        why: "a command is a frame like others to it, and is collected to its end",
    },
    Failure {
        test: "zeromq::hostile::frames_that_claim_to_be_huge_cost_their_sender_the_connection_and_nobody_memory",
        shows: "memory allocation of ",
        why: "it reserves what the header of a frame claims, and the process aborts",
    },
    Failure {
        test: "zeromq::hostile::a_message_that_never_ends_is_cut_whether_its_frames_are_large_or_empty",
        shows: "memory allocation of ",
        why: "it collects the frames of a message without a limit, until memory is gone",
    },
    Failure {
        test: "zeromq::hostile::what_does_not_speak_zmtp_is_cut_off_and_what_says_nothing_is_not_waited_for",
        shows: "nothing came: the end of the connection",
        why: "a handshake may take for ever, and nothing limits how many do",
    },
    Failure {
        test: "zeromq::hostile::a_peer_that_never_reads_loses_its_connection_when_it_is_disconnected",
        shows: "nothing came: a write",
        why: "its writer waits for the peer, and holds the connection until the peer closes it",
    },
    Failure {
        test: "zeromq::hostile::an_old_connection_that_dies_takes_no_new_one_of_the_same_name_with_it",
        shows: "the new connection lives",
        why: "a connection is known by its name alone, and the end of the old one ends the new one",
    },
    Failure {
        test: "zeromq::hostile::a_peer_that_asks_for_a_sign_of_life_is_given_one",
        shows: "the connection holds",
        why: "it knows no command but READY, so that a libzmq peer with heart-beats is cut again and again",
    },
    Failure {
        test: "zeromq::sockets::something_that_is_no_router_is_not_taken_for_a_dispatcher",
        shows: "of another DEALER",
        why: "it does not tell what kind of socket answers",
    },
    Failure {
        test: "omq::hostile::nothing_that_waits_for_a_connection_goes_to_another_one_of_the_same_name",
        shows: "it was meant for the old connection",
        why: "the one message that waits for a full queue waits for a name, and goes to whoever has it by then",
    },
];

/// Set in the process that is to fail, to the name of its test.
const TO_FAIL: &str = "DISPATCHER_TEST_DECLARED_TO_FAIL";

/// What that process may have in memory, so that a backend without limits finds this one instead of the machine's.
const MEMORY: u64 = 1024 * 1024 * 1024;

/// Far above what such a process takes.
const DEADLINE: Duration = Duration::from_secs(100);

/// What is declared about `test`. `None` in the process that is to fail: there it runs.
pub(crate) fn failure_of(test: &str) -> Option<&'static Failure> {
    let failure = DECLARED.iter().find(|failure| failure.test == test)?;
    if to_fail().is_none() {
        return Some(failure);
    }
    let all = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    setrlimit(Resource::As, all).expect("a lower limit");
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).expect("a lower limit");
    None
}

/// How long a test waits for `what` has to come: far longer than anything here takes. Where it is declared that it does
/// not come, the wait may be short.
pub(crate) fn patience(what: &str) -> Duration {
    let in_vain = to_fail().is_some_and(|failure| failure.shows == nothing_came(what));
    Duration::from_secs(if in_vain { 3 } else { 30 })
}

/// What is said when `what` did not come.
pub(crate) fn nothing_came(what: &str) -> String {
    format!("nothing came: {what}")
}

/// What this process is to fail.
fn to_fail() -> Option<&'static Failure> {
    let test = std::env::var(TO_FAIL).ok()?;
    DECLARED.iter().find(|failure| failure.test == test)
}

impl Failure {
    /// Runs the test in a process of its own and sees it fail as declared.
    pub(crate) fn is_seen(&self) {
        let (failed, said) = run(&[self.test, "--exact", "--nocapture"]);
        assert!(failed, "{} passes now: remove it from the list in declared.rs, and its row from ADR 0003", self.test);
        assert!(said.contains(self.shows), "{} fails in another way than this: {}\n{said}", self.test, self.why);
    }
}

/// Runs this test binary with `arguments`; says whether it failed, and all that it said.
fn run(arguments: &[&str]) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(arguments)
        .env(TO_FAIL, arguments[0])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("another process of this binary");
    let pid = rustix::process::Pid::from_child(&child);
    let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let readers = [read(stdout), read(stderr)];
    let (tell, told) = channel();
    let waiting = std::thread::spawn(move || tell.send(child.wait().expect("its end")));
    let end = match told.recv_timeout(DEADLINE) {
        Ok(end) => end,
        Err(RecvTimeoutError::Timeout) => {
            // Not waited for yet, so that the number is still its own.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is still there");
            panic!("{arguments:?} did not end within {DEADLINE:?}");
        }
        Err(RecvTimeoutError::Disconnected) => panic!("its end is unknown"),
    };
    waiting.join().expect("it told the end").expect("somebody listens");
    let said = readers.map(|reader| reader.join().expect("what it said")).concat();
    (!end.success(), said)
}

fn read(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[test]
fn everything_that_is_declared_is_a_test_of_the_suite() {
    let (failed, listed) = run(&["--list"]);
    assert!(!failed, "{listed}");
    for failure in DECLARED {
        assert!(listed.contains(&format!("{}: test", failure.test)), "there is no test {}", failure.test);
        assert!(!failure.shows.is_empty() && !failure.why.is_empty());
    }
}
