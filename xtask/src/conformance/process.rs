//! The program under test: how it is started, told where to connect, signalled and ended.
//!
//! **Owns** its process group and its folder. **Refuses to know** what it says. **Invariant**: nothing that it started is
//! left when its check is over.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The service that a program under test does.
pub(super) const SERVICE: &str = "conformance";

/// What every check is given.
#[derive(Debug, Clone)]
pub(super) struct Rig {
    command: Vec<String>,
    pub(super) patience: Duration,
}

/// Where a program finds its dispatcher.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) connect: String,
    pub(super) results: String,
}

/// The program, running.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
}

impl Rig {
    pub(super) fn new(command: &[String], patience: Duration) -> Self {
        Self { command: command.to_vec(), patience }
    }

    /// Starts the program; `folder` is the check's own. What it prints goes to a file there.
    pub(super) fn start(&self, folder: &Path, places: &Places) -> Result<Program> {
        let own = folder.join("worker");
        std::fs::create_dir_all(&own)?;
        let own = own.to_str().context("the folder for temporary files has a name in UTF-8")?;
        let values = [
            ("{connect}", "DISPATCHER_CONNECT", places.connect.as_str()),
            ("{results}", "DISPATCHER_LEGACY_RESULTS", places.results.as_str()),
            ("{service}", "DISPATCHER_SERVICE", SERVICE),
            ("{folder}", "DISPATCHER_WORKER_DIR", own),
        ];
        let fill = |arg: &String| values.iter().fold(arg.clone(), |arg, (hole, _, value)| arg.replace(hole, value));
        let [program, args @ ..] = self.command.as_slice() else { bail!("no program was given") };
        let said = File::options().create(true).append(true).open(folder.join("said"))?;
        let mut command = Command::new(fill(program));
        command.args(args.iter().map(fill)).envs(values.iter().map(|(_, name, value)| (name, value)));
        command.env("DISPATCHER_SLOTS", "1").stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start `{program}`"))?;
        Ok(Program { child })
    }
}

impl Program {
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal to the program alone.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("a process has a number")?;
        kill_process(pid, signal).context("the program has ended by itself")
    }

    /// Kills it and what it started, and waits until it is gone.
    pub(super) fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// How it ended, where it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it has ended by itself.
    pub(super) async fn end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("the process goes on after {} s", patience.as_secs())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // Where all of it is gone already there is nothing to kill.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
