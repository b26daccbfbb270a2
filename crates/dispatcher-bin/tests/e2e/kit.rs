//! What the end-to-end tests share: a place with inputs and results, and the program started in it.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Beyond this a test is stuck; nothing waits for it to pass.
pub const TOO_LONG: Duration = Duration::from_secs(240);

/// A folder with `in` and `out`.
pub struct Place {
    dir: TempDir,
}

/// The program, running.
pub struct Running {
    child: Child,
    stderr: Option<BufReader<std::process::ChildStderr>>,
    log: Option<JoinHandle<Vec<u8>>>,
}

/// Whether the whole length of a test was asked for.
pub fn full() -> bool {
    std::env::var_os("DISPATCHER_FULL").is_some()
}

impl Place {
    pub fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.inputs()).unwrap();
        place
    }

    /// A place with these inputs.
    pub fn with(inputs: &[(&str, &[u8])]) -> Self {
        let place = Self::new();
        for (name, bytes) in inputs {
            place.input(name, bytes);
        }
        place
    }

    /// A place with `n` small inputs named `0000`, `0001`, … in folders of a hundred.
    pub fn with_many(n: usize) -> Self {
        let place = Self::new();
        for i in 0..n {
            place.input(format!("{:02}/{i:04}", i / 100), format!("input {i}\n").as_bytes());
        }
        place
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn inputs(&self) -> PathBuf {
        self.path().join("in")
    }

    pub fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Writes an input.
    pub fn input(&self, name: impl AsRef<Path>, bytes: &[u8]) {
        let path = self.inputs().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// A result's bytes.
    pub fn result(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.out().join(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// `dispatcher run in -o out` with more arguments, not started.
    pub fn run_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = dispatcher();
        command.current_dir(self.path()).args(["run", "in", "-o", "out"]).args(args);
        command
    }

    /// Runs to the end.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        output(&mut self.run_command(args))
    }

    /// Runs to the end, which must be good.
    pub fn run_well<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        output
    }

    /// Starts it.
    pub fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(&mut self.run_command(args))
    }

    /// A looking command with `--json`, parsed.
    pub fn look(&self, args: &[&str]) -> Value {
        let output = output(dispatcher().current_dir(self.path()).args(args).args(["--state", "out", "--json"]));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", told(&output)))
    }

    /// Every task.
    pub fn tasks(&self) -> Vec<Value> {
        self.look(&["tasks", "--limit", "0"]).as_array().unwrap().clone()
    }

    /// A task's story, by its input's name.
    pub fn story(&self, entry: &str) -> Value {
        self.look(&["show", entry])
    }

    /// The books balance and every result is where it should be.
    pub fn assert_healthy(&self) {
        let findings = self.look(&["doctor", "--deep"]);
        assert_eq!(findings["healthy"], true, "{findings:#}");
    }
}

/// The program.
pub fn dispatcher() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("dispatcher"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Everything that a command said.
pub fn told(output: &Output) -> String {
    format!(
        "exit {:?}\n{}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The members of an object, as one line.
pub fn members(value: &Value) -> String {
    value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

impl Running {
    /// Starts a command whose standard error is read line by line.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stderr, log: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(pid_of(self.pid()), signal).unwrap();
    }

    /// Kills the program and everything it started, at once.
    pub fn kill_tree(mut self) {
        let mut tree = vec![self.pid()];
        let mut next = 0;
        while next < tree.len() {
            tree.extend(children_of(tree[next]));
            next += 1;
        }
        for pid in tree {
            // What is gone already needs no kill.
            let _ = rustix::process::kill_process(pid_of(pid), rustix::process::Signal::KILL);
        }
        self.child.wait().unwrap();
    }

    /// Reads standard error up to a line that contains `text`.
    pub fn wait_for_line(&mut self, text: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if self.stderr.as_mut().unwrap().read_line(&mut line).unwrap() == 0 {
                panic!("ended before it said {text:?}; it said:\n{seen}");
            }
            if line.contains(text) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    /// Reads the rest of standard error on a thread, so that it never fills.
    pub fn drain_log(&mut self) {
        let Some(mut stderr) = self.stderr.take() else { return };
        self.log = Some(std::thread::spawn(move || {
            let mut said = Vec::new();
            // A pipe that breaks has said what it had to say.
            let _ = stderr.read_to_end(&mut said);
            said
        }));
    }

    /// Waits for its end alone: what it started may still have its streams.
    pub fn end_without_children(mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Output {
        self.drain_log();
        let mut output = self.child.wait_with_output().unwrap();
        output.stderr = self.log.take().map(|log| log.join().unwrap()).unwrap_or_default();
        output
    }
}

/// A small generator with a printed seed: what a test does at random can be repeated.
pub struct Dice(u64);

impl Dice {
    /// From the environment, or from the time.
    pub fn cast() -> Self {
        let seed = std::env::var("DISPATCHER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() % u128::from(u64::MAX)).unwrap()
        });
        println!("DISPATCHER_SEED={seed}");
        Self(seed)
    }

    /// A number from 1 to `most`.
    pub fn upto(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most + 1
    }
}

/// Waits until `path` is there: something else makes it.
pub fn wait_for_file(path: &Path) {
    wait_until(&format!("{} is made", path.display()), || path.exists());
}

/// Waits until `condition` holds, giving the processor away in between.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TOO_LONG, "waited too long until {what}");
        std::thread::yield_now();
    }
}

fn pid_of(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// The processes that `pid` has started and that live.
pub fn children_of(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return children };
    for task in tasks.filter_map(Result::ok) {
        if let Ok(list) = std::fs::read_to_string(task.path().join("children")) {
            children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    children
}

/// The most memory a process has held so far, in bytes; none of one that has ended.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
