//! A dispatcher that serves, for tests of what is done beside it.

use crate::kit::{Place, Running, dispatcher, output, told, wait_until};
use serde_json::Value;
use std::process::Output;
use tempfile::TempDir;

/// A dispatcher that serves a place's state folder; it is killed where the test does not end it.
pub struct Serving {
    running: Option<Running>,
    /// The socket of the workers lies in it.
    _folder: TempDir,
}

impl Serving {
    /// Starts one in `place`, with its state in `state`, and waits until it serves.
    pub fn start(place: &Place, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = format!("ipc://{}/w", folder.path().display());
        let mut command = dispatcher();
        command.current_dir(place.path()).args(["serve", "--state", "state", "--http", "off", "--listen", &listen]);
        let mut running = Running::start(command.args(args));
        running.wait_for_line("serving");
        Self { running: Some(running), _folder: folder }
    }

    /// Tells it to end as a supervisor does, and waits for that.
    pub fn stop(mut self) -> Output {
        let running = self.running.take().unwrap();
        running.signal(rustix::process::Signal::TERM);
        running.end()
    }

    /// Waits for its end, which something else brings about.
    pub fn end(mut self) -> Output {
        self.running.take().unwrap().end()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill_tree();
        }
    }
}

/// A command in `place`, on its state folder, to its end.
pub fn command(place: &Place, args: &[&str]) -> Output {
    output(dispatcher().current_dir(place.path()).args(args).args(["--state", "state"]))
}

/// The same, which must end so; what it said.
pub fn said(place: &Place, code: i32, args: &[&str]) -> String {
    let output = command(place, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", told(&output));
    told(&output)
}

/// The same with `--json`, which must end well.
pub fn json(place: &Place, args: &[&str]) -> Value {
    let output = command(place, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", told(&output)))
}

/// The members of an object, as one line.
pub fn members(value: &Value) -> String {
    value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Waits until so many tasks are in the state.
pub fn wait_for_tasks(place: &Place, n: u64) {
    wait_until(&format!("{n} tasks are in"), || {
        let output = command(place, &["status", "--json"]);
        let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        status.is_some_and(|status| status["total"].as_u64() >= Some(n))
    });
}
