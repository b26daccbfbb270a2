//! What the tests of a server share: a folder with inputs, `serve`, and workers in processes of their own.

use crate::kit::{Running, TOO_LONG, dispatcher, output, told, wait_for_file, wait_until};
use crate::peer::Ports;
use serde_json::Value;
use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with inputs, a state folder and a socket.
pub struct Farm {
    dir: TempDir,
    settings: Vec<String>,
    connect: String,
}

/// A server, and where its log goes.
pub struct Server {
    pub running: Running,
}

impl Farm {
    /// An empty farm in which silence is short: a worker is lost after this many milliseconds.
    pub fn new(dead_after_ms: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(dir.path().join("s")).unwrap();
        let connect = format!("ipc://{}", dir.path().join("s/r").display());
        let settings = vec![
            format!("--listen={connect}"),
            "--http=off".to_owned(),
            format!("--dead-after={dead_after_ms}ms"),
            format!("--beat={}ms", dead_after_ms / 5),
        ];
        Self { dir, settings, connect }
    }

    /// The same with so many small inputs named `0000`, `0001`, ….
    pub fn with_many(inputs: usize, dead_after_ms: u64) -> Self {
        let farm = Self::new(dead_after_ms);
        for i in 0..inputs {
            farm.input(&format!("{i:04}"), format!("input {i}\n").as_bytes());
        }
        farm
    }

    /// On TCP from now on, for workers of the legacy wire as well.
    pub fn listen_at(&mut self, ports: Ports) {
        self.settings.retain(|setting| !setting.starts_with("--listen") && !setting.starts_with("--http"));
        self.settings.extend(ports.arguments());
        self.connect = format!("tcp://127.0.0.1:{}", ports.requests);
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn inputs(&self) -> PathBuf {
        self.path().join("in")
    }

    pub fn input(&self, name: &str, bytes: &[u8]) {
        let path = self.inputs().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The same with a file for each result.
    pub fn in_files(mut self) -> Self {
        self.settings.push("--archive=files".to_owned());
        self
    }

    /// The same with another setting.
    pub fn set(mut self, flag: &str) -> Self {
        self.settings.push(flag.to_owned());
        self
    }

    /// The result of an input of the service `echo`, if it is there.
    pub fn result(&self, name: &str) -> Option<Vec<u8>> {
        let in_files = self.path().join("results/echo/in").join(name);
        if in_files.exists() {
            return std::fs::read(in_files).ok();
        }
        self.results(&["--entry", name]).remove(name)
    }

    /// The results of inputs of the service `echo`, as `export` gives them, by name.
    pub fn results(&self, args: &[&str]) -> HashMap<String, Vec<u8>> {
        let out = tempfile::tempdir().unwrap();
        self.tell_well(&[&["export", "--out", &out.path().display().to_string()], args].concat());
        let root = out.path().join("echo/in");
        let files = walkdir::WalkDir::new(&root).into_iter().filter_map(Result::ok).filter(|f| f.file_type().is_file());
        let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        files.map(|file| (name(file.path()), std::fs::read(file.path()).unwrap())).collect()
    }

    /// The packs, in the order in which they were begun.
    pub fn packs(&self) -> Vec<PathBuf> {
        let Ok(found) = std::fs::read_dir(self.path().join(".dispatcher/packs")) else { return Vec::new() };
        let mut packs: Vec<_> = found.map(|found| found.unwrap().path()).collect();
        packs.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
        packs.sort();
        packs
    }

    /// Where commands of workers write that they have ended.
    pub fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// How often each task's command has ended.
    pub fn ends(&self) -> HashMap<String, usize> {
        let mut ends = HashMap::new();
        for task in std::fs::read_to_string(self.log()).unwrap_or_default().lines() {
            *ends.entry(task.to_owned()).or_default() += 1;
        }
        ends
    }

    /// A command of the program in this folder, to its end.
    pub fn tell(&self, args: &[&str]) -> Output {
        output(dispatcher().current_dir(self.path()).args(args))
    }

    /// The same, which must end well.
    pub fn tell_well(&self, args: &[&str]) -> Output {
        let output = self.tell(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", told(&output));
        output
    }

    /// The same, which must end with this code; what it said.
    pub fn said(&self, code: i32, args: &[&str]) -> String {
        let output = self.tell(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", told(&output));
        told(&output)
    }

    /// A command with `--json`, parsed.
    pub fn look(&self, args: &[&str]) -> Value {
        let output = self.tell(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", told(&output)))
    }

    /// Imports everything for the service `echo`, which may have options.
    pub fn import(&self, options: &[&str]) {
        self.tell_well(&[&["import", "in", "--service", "echo"], options].concat());
    }

    /// Starts a server, with more arguments and variables.
    pub fn serve_with(&self, args: &[&str], variables: &[(&str, String)]) -> Server {
        let mut running = self.serve_watched(args, variables);
        running.drain_log();
        Server { running }
    }

    /// The same with a log that the test reads.
    pub fn serve_watched(&self, args: &[&str], variables: &[(&str, String)]) -> Running {
        let mut running = Running::start(&mut self.serve_command(args, variables));
        running.wait_for_line("serving");
        running
    }

    /// A server that is not started yet.
    pub fn serve_command(&self, args: &[&str], variables: &[(&str, String)]) -> Command {
        let mut command = dispatcher();
        command.current_dir(self.path()).arg("serve").args(&self.settings).args(args);
        // Little is claimed ahead: what a killed server had in stock waits until its workers had time to come back.
        command.env("DISPATCHER_CLAIM_AHEAD", "8").envs(variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[], &[])
    }

    /// Starts a server that stops at the n-th pass of a place, waits until it does, and kills it there.
    pub fn serve_and_kill_at(&self, place: &str, n: u64) {
        let held = self.path().join(format!("held-{place}"));
        let _ = std::fs::remove_file(&held);
        let hold = [("DISPATCHER_HOLD", format!("{place}:{n}")), ("DISPATCHER_HOLD_FILE", held.display().to_string())];
        let server = self.serve_with(&[], &hold);
        wait_for_file(&held);
        server.kill();
    }

    /// Starts a worker of the service `echo` in a folder of its own, which runs `exec` in a shell.
    pub fn worker(&self, name: &str, exec: &str, args: &[&str]) -> Running {
        self.worker_with(name, exec, args, &[])
    }

    /// The same with variables.
    pub fn worker_with(&self, name: &str, exec: &str, args: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = dispatcher();
        command.envs(variables.iter().copied());
        command.current_dir(self.path()).args(["worker", "--service", "echo", "--name", name, "--dir", name]);
        command.arg(format!("--connect={}", self.connect)).args(["--shell", "--exec", exec]).args(args);
        let mut running = Running::start(&mut command);
        running.drain_log();
        running
    }

    /// Tasks in a state.
    pub fn count(&self, state: &str) -> u64 {
        self.count_all(&[state])
    }

    /// Tasks in any of these states, at one moment.
    pub fn count_all(&self, states: &[&str]) -> u64 {
        let status = self.look(&["status"]);
        let rows = status["by_state"].as_array().unwrap().iter();
        rows.filter(|row| states.iter().any(|state| row[0] == *state)).map(|row| row[1].as_u64().unwrap()).sum()
    }

    /// Waits until every task has ended.
    pub fn wait_until_all_over(&self) {
        // Looked at twice, a task could be leased at the first look, ready at the second, and seem to be neither.
        wait_until("every task has ended", || self.count_all(&["ready", "leased"]) == 0);
    }

    /// The books balance, every result is where it should be, and each task's charge is that of its attempts.
    pub fn assert_healthy(&self) {
        let findings = self.look(&["doctor", "--deep"]);
        assert_eq!(findings["healthy"], true, "{findings:#}");
    }
}

impl Server {
    /// Kills it, and leaves its workers alone.
    pub fn kill(self) {
        self.running.signal(rustix::process::Signal::KILL);
        let _ = self.running.end();
    }

    /// Ends it as a service manager does; it must end well.
    pub fn end(self) {
        let output = self.end_with(rustix::process::Signal::TERM);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }

    pub fn end_with(self, signal: rustix::process::Signal) -> Output {
        self.running.signal(signal);
        self.running.end()
    }
}

/// Waits for a process's end, which must come by itself.
pub fn ended(running: Running) -> Output {
    let began = std::time::Instant::now();
    let output = running.end();
    assert!(began.elapsed() < TOO_LONG);
    output
}
