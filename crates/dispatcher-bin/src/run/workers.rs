//! The workers of a `run`: threads of this process that speak the v1 wire over a private socket.
//!
//! Owns the socket's folder and how the workers are told to stop. They live and die with the dispatcher, so their
//! outbox is in memory.

use super::plan::{Plan, SERVICE};
use crate::state::StateDir;
use anyhow::Context;
use crossbeam_channel::{Receiver, bounded};
use dispatcher_transport::socket::Endpoint;
use dispatcher_worker::exec::{ExecConfig, ExecWorker};
use dispatcher_worker::{OutboxKind, Stop, WorkerConfig, run_worker};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the names of sockets' folders begin.
const PREFIX: &str = "dispatcher-";

/// How the workers ended.
pub type WorkersEnd = Result<(), String>;

/// The folder of the socket, gone at the end.
pub struct Socket(tempfile::TempDir);

impl Socket {
    /// A new folder with a short name that only this user can enter: a socket's path ends at 108 bytes.
    pub fn make(state: &StateDir) -> anyhow::Result<Self> {
        remove_left_over(&state.socket_note());
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
        let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&base)
            .with_context(|| format!("cannot make a folder for the socket in {}", base.display()))?;
        std::fs::write(state.socket_note(), dir.path().as_os_str().as_bytes())?;
        Ok(Self(dir))
    }

    /// The endpoint in it.
    pub fn endpoint(&self) -> anyhow::Result<Endpoint> {
        Ok(Endpoint::ipc(self.0.path().join("s"))?)
    }
}

/// Removes the socket's folder of a process that was killed. The note is only believed as far as it names such a folder.
fn remove_left_over(note: &Path) {
    let Ok(bytes) = std::fs::read(note) else { return };
    let folder = PathBuf::from(OsString::from_vec(bytes));
    let is_ours = folder.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    if is_ours && folder.join("s.lock").exists() {
        // What stays is an empty folder in a place for such.
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// The running workers.
pub struct Workers {
    stop: Stop,
    ends: Receiver<WorkersEnd>,
}

impl Workers {
    /// Starts as many slots as planned.
    pub fn start(plan: &Plan, endpoint: Endpoint, scratch: &Path) -> anyhow::Result<Self> {
        let harness = ExecWorker::new(ExecConfig {
            naming: plan.naming.clone(),
            grace: plan.kill_grace,
            result_cap: plan.settings.result_cap,
            ..ExecConfig::new(plan.command.clone())
        });
        let config = WorkerConfig {
            slots: plan.slots,
            prefetch: plan.slots,
            outbox: OutboxKind::Memory,
            ..WorkerConfig::new(endpoint, &host(), &incarnation()?, SERVICE, scratch.to_owned())
        };
        let stop = Stop::new();
        let (done, ends) = bounded(1);
        let asked = stop.clone();
        std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            let worked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_worker(config, Arc::new(harness), asked)));
            let end = match worked {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(e)) => Err(e.to_string()),
                Err(_) => Err("a fault of the program".to_owned()),
            };
            // Where nobody waits any more the process is ending anyway.
            let _ = done.send(end);
        })?;
        Ok(Self { stop, ends })
    }

    /// Where their end is told.
    pub const fn ends(&self) -> &Receiver<WorkersEnd> {
        &self.ends
    }

    /// Take nothing new, finish what runs.
    pub fn drain(&self) {
        self.stop.drain();
    }

    /// Ends what runs, whatever becomes of it, so that no command outlives the process; waits at most `patience`.
    pub fn end_at_once(&self, patience: Duration) {
        self.stop.now();
        // Either they have ended or their time is up.
        let _ = self.ends.recv_timeout(patience);
    }

    /// End what runs and give it back.
    pub fn stop_now(&self) {
        self.stop.now();
    }
}

/// The host's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Which life of a worker this is: random.
pub fn incarnation() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).context("the system has no randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
