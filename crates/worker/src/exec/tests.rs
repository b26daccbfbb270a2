use super::*;
use crate::cancel::CancelReason;
use crate::scratch::{Scratch, SlotFolder};
use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::Message;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

/// A command with its folder.
struct Bench {
    dir: TempDir,
    scratch: Scratch,
    config: ExecConfig,
    entry: &'static [u8],
    input: Input,
    limit: Duration,
    cancel: Cancel,
}

/// What came of a command.
struct Got {
    outcome: Outcome,
    parts: BTreeMap<String, Bytes>,
    /// Whether its folder is not used again.
    is_folder_left: bool,
}

fn bench(command: &str) -> Bench {
    new_bench(command, false)
}

fn shell(script: &str) -> Bench {
    new_bench(script, true)
}

fn new_bench(command: &str, shell: bool) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let scratch = Scratch::open(&dir.path().join("scratch")).unwrap();
    let config = ExecConfig::new(CommandTemplate::parse(command, shell).unwrap());
    let (input, limit, cancel) =
        (Input::Bytes(Bytes::from_static(b"the input\n")), Duration::from_secs(60), Cancel::new().unwrap());
    Bench { dir, scratch, config, entry: b"folder/paper.tex", input, limit, cancel }
}

impl Bench {
    fn run(&self) -> Got {
        let (mut got, folder) = self.work();
        let mut folders = self.scratch.slot(0);
        let before = folder.path().unwrap().to_owned();
        folders.take_back(&folder);
        got.is_folder_left = folders.next().path().unwrap() != before;
        got
    }

    /// Runs the command, and leaves its folder as the command left it.
    fn work(&self) -> (Got, SlotFolder) {
        let task = Assignment {
            task: TaskId(42),
            attempt: 3,
            service: "s".to_owned(),
            corpus: "c".to_owned(),
            entry: EntryName(self.entry.to_vec()),
            size: 10,
            limit: self.limit,
            input: self.input.clone(),
            inline_max: 65_536,
            folder: self.scratch.slot(0).next(),
        };
        let outcome = ExecWorker::new(self.config.clone()).work(&task, &self.cancel);
        let parts = match &outcome {
            Outcome::Done { parts, .. } | Outcome::Retryable { parts, .. } => parts.as_slice(),
            Outcome::Release => &[],
        };
        let read = |body: &PartBody| match body {
            PartBody::Bytes(bytes) => bytes.clone(),
            PartBody::File(path) => fs::read(path).unwrap().into(),
        };
        let parts = parts.iter().map(|part| (part.name.clone(), read(&part.body))).collect();
        (Got { outcome, parts, is_folder_left: false }, task.folder)
    }
}

impl Bench {
    /// The process number that the script wrote to `pid` beside the scratch folder.
    fn noted_pid(&self) -> Pid {
        let text = fs::read_to_string(self.dir.path().join("pid")).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }
}

/// Whether a process lives. One that ended and was not waited for by its parent does not.
fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// A script that runs in its task's folder, two below the bench's own.
fn in_folder(script: &str) -> ExecConfig {
    let command = CommandTemplate::parse(script, true).unwrap();
    ExecConfig { in_folder: true, ..ExecConfig::new(command) }
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.file_name().into_string().unwrap());
        }
    }
    files.sort();
    files
}

impl Got {
    fn status(&self) -> Status {
        let Outcome::Done { status, .. } = &self.outcome else { panic!("a result, not {:?}", self.outcome) };
        *status
    }

    /// Kind and details of the message that matters most.
    fn reason(&self) -> String {
        let text = |m: &Message| format!("{}:{} {}", m.category, m.what, m.details);
        match &self.outcome {
            Outcome::Done { messages, .. } => messages.first().map(text).unwrap_or_default(),
            Outcome::Retryable { cause, .. } => format!("retryable {}", text(cause)),
            Outcome::Release => "release".to_owned(),
        }
    }

    fn part(&self, name: &str) -> &[u8] {
        self.parts.get(name).unwrap_or_else(|| panic!("a part {name} among {:?}", self.parts.keys()))
    }
}

#[test]
fn the_result_is_what_the_command_leaves_at_output() {
    let got = bench("cp {input} {output}").run();
    assert_eq!(got.status(), Status::NoProblem);
    assert_eq!(got.part("result"), b"the input\n");
    assert_eq!(got.parts.len(), 1, "empty streams are no parts");
    assert!(!got.is_folder_left);
}

#[test]
fn without_output_the_result_is_what_the_command_prints() {
    let got = bench("cat {input}").run();
    assert_eq!((got.status(), got.part("result"), got.parts.len()), (Status::NoProblem, &b"the input\n"[..], 1));
    let got = bench("true").run();
    assert_eq!((got.status(), got.part("result")), (Status::NoProblem, &b""[..]), "an empty result is a result");
}

#[test]
fn names_are_those_of_the_input_and_of_the_result() {
    let mut bench = bench("printf '%s|' {input} {output} {stem} {ext} {task} {attempt}");
    bench.config.naming = ResultNaming::extension("html").unwrap();
    let got = bench.run();
    let printed = String::from_utf8(got.part("stdout").to_vec()).unwrap();
    let printed: Vec<_> = printed.split('|').collect();
    assert!(printed[0].ends_with("/in/paper.tex") && printed[1].ends_with("/out/paper.html"), "{printed:?}");
    assert_eq!(printed[2..], ["paper", "tex", "42", "3", ""]);
}

#[test]
fn names_that_are_not_text_reach_the_command_as_they_are() {
    for script in [false, true] {
        let mut bench = new_bench("cat {input} {input}", script);
        bench.entry = b"d/caf\xe9 '\"$(x)\n.txt";
        assert_eq!(bench.run().part("result"), b"the input\nthe input\n");
    }
}

#[test]
fn large_results_stay_files() {
    let got = bench("head -c 1000000 /dev/zero").run();
    let Outcome::Done { parts, .. } = &got.outcome else { panic!("a result") };
    assert!(matches!(parts[0].body, PartBody::File(_)));
    assert_eq!(got.part("result").len(), 1_000_000);
}

#[test]
fn the_exit_code_says_how_it_went() {
    for (code, reason) in [(1, "exit:1 last words"), (65, "exit:65 last words"), (75, "retryable exit:75 last words")] {
        let got = shell(&format!("echo half; echo first >&2; echo last words >&2; echo >&2; exit {code}")).run();
        assert_eq!(got.reason(), reason);
        assert_eq!(got.part("stderr"), b"first\nlast words\n\n");
        assert!(!got.parts.contains_key("result"), "half a result is none");
        if code != 75 {
            assert_eq!(got.status(), if code == 65 { Status::Invalid } else { Status::Fatal });
        }
    }
    let mut bench = shell("echo fine; exit 3");
    bench.config.exits = "3=warning".parse().unwrap();
    let got = bench.run();
    assert_eq!((got.status(), got.part("result")), (Status::Warning, &b"fine\n"[..]));
}

#[test]
fn the_worst_of_exit_code_and_log_lines_wins() {
    let got = shell("echo fine; echo 'Warning:math:undefined foo' >&2; echo Error:x:y z >&2; echo noise >&2").run();
    assert_eq!((got.status(), got.part("result")), (Status::Error, &b"fine\n"[..]));
    assert_eq!(got.reason(), "math:undefined foo");
    let got = shell("echo Fatal:x:y z >&2").run();
    assert_eq!(got.status(), Status::Fatal);
    assert!(!got.parts.contains_key("result"));
    assert_eq!(shell("echo Warning:x:y z >&2; exit 1").run().status(), Status::Fatal);
}

// Rules R4, W4.
#[test]
fn a_log_line_can_say_that_another_attempt_is_worth_while() {
    let got = shell("echo Error:net:timeout no answer >&2; echo Info:cortex:retryable >&2").run();
    assert!(got.reason().starts_with("retryable "), "{}", got.reason());
}

// Rule R4.
#[test]
fn death_by_a_signal_is_a_cause_with_the_signal_s_name() {
    let got = shell("echo before >&2; kill -SEGV $$").run();
    assert_eq!(got.reason(), "retryable crash:SIGSEGV before");
    assert_eq!(got.part("stderr"), b"before\n");
}

#[test]
fn a_command_that_cannot_be_found_is_told_clearly() {
    let got = bench("no-such-program-anywhere {input}").run();
    assert_eq!(got.status(), Status::Fatal);
    assert!(
        got.reason().starts_with("exec:not_found there is no program `no-such-program-anywhere` here"),
        "{}",
        got.reason()
    );
    let got = bench("/etc/passwd {input}").run();
    assert!(got.reason().starts_with("exec:not_allowed"), "{}", got.reason());
}

#[test]
fn a_command_that_succeeds_without_a_result_has_failed() {
    let got = bench("true {output}").run();
    assert_eq!(got.status(), Status::Fatal);
    assert_eq!(got.reason(), "exec:no_output the command succeeded and wrote nothing to {output}");
    for script in ["mkdir {output}", "mkfifo {output}", "ln -s /etc/passwd {output}"] {
        let got = shell(script).run();
        assert!(got.reason().starts_with("exec:no_output what the command left at {output}"), "{}", got.reason());
    }
}

// Rules A3, R4; case F74.
#[test]
fn a_child_that_ignores_sigterm_and_spins_is_killed_at_limit_and_grace() {
    let mut bench = shell("trap '' TERM; echo begun >&2; while :; do :; done");
    (bench.limit, bench.config.grace) = (Duration::from_millis(100), Duration::from_millis(100));
    let begun = Instant::now();
    let got = bench.run();
    assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(20));
    assert_eq!(got.reason(), "retryable timeout:wallclock ended after its time limit of 100ms");
    assert_eq!(got.part("stderr"), b"begun\n");
    assert!(got.is_folder_left, "what was killed may have left anything");
}

// Case F74.
#[test]
fn a_child_that_closes_its_output_and_sleeps_is_ended_by_sigterm() {
    let mut bench = shell("exec >&- 2>&-; sleep 600");
    (bench.limit, bench.config.grace) = (Duration::from_millis(50), Duration::from_secs(600));
    assert!(bench.run().reason().starts_with("retryable timeout:wallclock"));
}

// Case F74.
#[test]
fn of_a_gigabyte_of_stderr_both_ends_are_kept_in_bounded_memory() {
    let got =
        shell("echo Warning:first:line >&2; head -c 1000000000 /dev/zero >&2; echo >&2; echo Error:last:line >&2")
            .run();
    assert_eq!(got.status(), Status::Error);
    let stderr = got.part("stderr");
    assert!(stderr.len() < 132_000, "{}", stderr.len());
    assert!(stderr.starts_with(b"Warning:first:line\n\0\0") && stderr.ends_with(b"\0\0\nError:last:line\n"));
    assert!(stderr.windows(16).any(|window| window == b"bytes are cut he"));
}

// Case F74.
#[test]
fn nothing_of_the_group_outlives_its_task() {
    let script = "sh -c 'trap \"\" TERM; echo $$ > ../../pid; exec sleep 600' & while ! [ -s ../../pid ]; do :; done";
    let bench = Bench { config: in_folder(script), ..shell("true") };
    let got = bench.run();
    assert_eq!(got.status(), Status::NoProblem);
    assert!(!is_alive(bench.noted_pid()), "the grandchild is gone");
    assert!(!got.is_folder_left, "nothing is left that could write there");
}

// Case F74.
#[test]
fn a_grandchild_that_left_the_group_and_keeps_the_pipes_open_does_not_hang_the_slot() {
    let script =
        "setsid sh -c 'echo $$ > ../../pid; exec sleep 600' & while ! [ -s ../../pid ]; do :; done; echo done >&2";
    let bench = Bench { config: in_folder(script), ..shell("true") };
    let got = bench.run();
    assert_eq!((got.status(), got.part("stderr")), (Status::NoProblem, &b"done\n"[..]));
    rustix::process::kill_process(bench.noted_pid(), Signal::KILL).unwrap();
}

// Case F74.
#[test]
fn what_outlives_its_task_and_goes_on_printing_adds_nothing_to_any_result() {
    let script = "setsid sh -c 'echo $$ > ../../pid; while echo late; do :; done' & while ! [ -s ../../pid ]; do :; done; echo done";
    let bench = Bench { config: in_folder(script), ..shell("true") };
    let got = bench.run();
    assert_eq!(got.status(), Status::NoProblem);
    let printed = String::from_utf8(got.part("result").to_vec()).unwrap();
    assert!(printed.lines().any(|line| line == "done"), "{printed:?}");
    let next = Bench { config: ExecConfig::new(CommandTemplate::parse("cat {input}", false).unwrap()), ..bench };
    assert_eq!(next.run().part("result"), b"the input\n");
    // Its pipe is gone, and it with it; where it ended by itself already there is nothing to end.
    let _ = rustix::process::kill_process(next.noted_pid(), Signal::KILL);
}

#[test]
fn a_folder_is_made_only_for_what_needs_one() {
    let made = |bench: &Bench| {
        let folders = fs::read_dir(bench.dir.path().join("scratch")).unwrap();
        folders.filter(|entry| entry.as_ref().unwrap().file_name().as_bytes().starts_with(b"slot-")).count()
    };
    for (command, makes) in
        [("echo {stem}", 0), ("cat {input}", 1), ("touch {output}", 1), ("head -c 70000 /dev/zero", 1)]
    {
        let bench = bench(command);
        assert_eq!(bench.work().0.status(), Status::NoProblem);
        assert_eq!(made(&bench), makes, "{command}");
    }
}

// Rule S1.
#[test]
fn a_cancelled_task_s_whole_group_ends_and_the_task_goes_back() {
    let bench = Bench { config: in_folder("sleep 600 & echo $! > ../../pid; wait"), ..shell("true") };
    let fifo = bench.dir.path().join("pid");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (got, pid) = thread::scope(|scope| {
        let run = scope.spawn(|| bench.run());
        let pid = fs::read_to_string(&fifo).unwrap();
        bench.cancel.cancel(CancelReason::Stopping);
        (run.join().unwrap(), pid)
    });
    assert_eq!(got.reason(), "release");
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    assert!(!is_alive(pid), "the shell's child is gone");
}

// Rule R7.
#[test]
fn a_result_above_the_cap_is_invalid_and_leaves_nothing_on_disk() {
    for (script, ends_itself) in [
        ("head -c 5000 /dev/zero", true),
        ("head -c 5000 /dev/zero > {output}", true),
        ("head -c 5000 /dev/zero > {output}; sleep 600", false),
    ] {
        let mut bench = shell(script);
        bench.config.result_cap = 4_999;
        let got = bench.run();
        assert_eq!(got.status(), Status::Invalid);
        assert_eq!(got.reason(), "result:too_large the result is larger than 4999 bytes, the cap of this service");
        assert!(got.parts.is_empty());
        // What prints too much may be ended before it ends by itself.
        assert!(got.is_folder_left || ends_itself);
        assert_eq!(files_below(&bench.dir.path().join("scratch")), ["lock", "running-0"]);
    }
}

#[test]
fn what_a_command_litters_is_gone_before_the_next_task() {
    let bench =
        Bench { config: in_folder("echo a > stray; mkdir -p sub/dir; touch {input}.aux sub/dir/b"), ..shell("true") };
    assert!(!bench.run().is_folder_left);
    assert_eq!(files_below(&bench.dir.path().join("scratch")), ["lock", "running-0"]);
}
