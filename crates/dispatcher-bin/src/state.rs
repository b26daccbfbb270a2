//! The state folder: where a run's database, lock and working files are.
//!
//! Owns its layout, the lock that keeps two processes from working on one, and that no database is made in the place of a
//! lost one (`lost`). Knows nothing of what is in the database.

pub mod lost;

use crate::exit::{self, Exit};
use anyhow::Context;
use dispatcher_store::sqlite::{SqliteOptions, SqliteStore};
use dispatcher_store::{ErrorClass, StoreError};
use rustix::process::{Pid, test_kill_process};
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder's name below a results folder.
pub const STATE: &str = ".dispatcher";

/// The name of the folder of the first worker that is started in a place; the others have a number behind it.
pub const WORKER: &str = ".dispatcher-worker";

/// The database's name in the state folder.
const DATABASE: &str = "dispatcher.db";

/// How long the lock of a dead process is waited for, and how often it is tried.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How long a dispatcher that starts waits for a command that carries itself out.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// What stands behind the number of the process that has the lock.
const DISPATCHER: &str = "";
const COMMAND: &str = " command";

/// A state folder.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

/// Held while a process works on a state folder.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock lasts as long as the open file")] File);

impl StateDir {
    /// The state folder of a results folder; made where it is not there.
    pub fn make(out: &Path) -> anyhow::Result<Self> {
        let dir = out.join(STATE);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).with_context(|| {
            format!("cannot make {}: choose another folder for the results with --out", dir.display())
        })?;
        let dir = dir.canonicalize()?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir.join("scratch"))?;
        Ok(Self(dir))
    }

    /// A server's state folder, made where it is not there.
    pub fn make_at(dir: &Path) -> anyhow::Result<Self> {
        let run = Self(dir.join(STATE));
        if run.identity().exists() {
            return Err(Exit::usage(format!(
                "{} holds the results of a `dispatcher run`: give the server a state folder of its own with --state",
                dir.display()
            )));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
            format!("cannot make {}: choose another folder for the state with --state", dir.display())
        })?;
        Ok(Self(dir.canonicalize()?))
    }

    /// The state folder that a person names: itself, or the results folder that it is in.
    pub fn find(named: &Path) -> anyhow::Result<Self> {
        for dir in [named.to_owned(), named.join(STATE)] {
            if dir.join(DATABASE).is_file() {
                return Ok(Self(dir.canonicalize()?));
            }
        }
        Err(Exit::usage(format!(
            "there are no tasks in {}: name a state folder, or the results folder of a run, with --state, as in \
             `dispatcher status --state papers.out`",
            named.display()
        )))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Working files of the slots; nothing in it outlives its task.
    pub fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }

    /// The file that says what this folder's run is.
    pub fn identity(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Refuses the folder of a `run` to whoever needs a server's, and says what to do instead.
    pub fn check_is_a_servers(&self, instead: &str) -> anyhow::Result<()> {
        if !self.identity().exists() {
            return Ok(());
        }
        Err(Exit::usage(format!("{} belongs to a `dispatcher run`: {instead}", self.0.display())))
    }

    /// The file that says what the process at work waits for.
    pub fn waiting_note(&self) -> PathBuf {
        self.0.join("waiting")
    }

    /// The file that says what the server at work obeys.
    pub fn settings_note(&self) -> PathBuf {
        self.0.join("settings.json")
    }

    /// The file that says what becomes of results.
    pub fn archive_note(&self) -> PathBuf {
        self.0.join("archive.json")
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.0.join(DATABASE)
    }

    /// Whether there is a database in which anything was ever written.
    pub fn has_database(&self) -> bool {
        std::fs::metadata(self.database()).is_ok_and(|found| found.len() > 0)
    }

    /// The file that says where the socket is.
    pub fn socket_note(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Takes the lock for a dispatcher, or says who has it. A command of an operator that carries itself out is soon over:
    /// it is waited for.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        let mut told = false;
        self.lock_as(DISPATCHER, COMMAND_PATIENCE, || {
            if !std::mem::replace(&mut told, true) && self.is_owner_a_command() {
                tracing::info!("waiting for a command of an operator that carries itself out");
            }
            std::thread::sleep(LOCK_PAUSE);
        })
    }

    /// Takes the lock for a command that carries itself out.
    pub fn lock_for_command(&self) -> anyhow::Result<Lock> {
        self.lock_as(COMMAND, Duration::ZERO, || std::thread::sleep(LOCK_PAUSE))
    }

    /// One that a dead process seems to have is waited for a little: a child that it was just starting when it was killed
    /// still has it for a moment.
    fn lock_as(&self, what: &str, patience: Duration, mut pause: impl FnMut()) -> anyhow::Result<Lock> {
        // The folder itself is locked: a file in it could be removed, and then two processes would each have a lock.
        let folder = File::open(&self.0)?;
        let began = Instant::now();
        let taken = loop {
            let wait = match (self.is_owner_alive(), self.is_owner_a_command()) {
                (false, _) => LOCK_PATIENCE,
                (true, true) => patience,
                (true, false) => Duration::ZERO,
            };
            match folder.try_lock() {
                Err(TryLockError::WouldBlock) if began.elapsed() < wait => pause(),
                taken => break taken,
            }
        };
        match taken {
            Ok(()) => {
                std::fs::write(self.process_note(), format!("{}{what}\n", std::process::id()))?;
                Ok(Lock(folder))
            }
            Err(TryLockError::WouldBlock) => Err(Exit::with(exit::LOCKED, self.who_has_it())),
            Err(TryLockError::Error(e)) => Err(e).context("cannot lock the state folder"),
        }
    }

    fn who_has_it(&self) -> String {
        let (pid, state) = (self.process().unwrap_or_else(|| "unknown".to_owned()), self.0.display());
        if self.is_owner_a_command() {
            return format!(
                "a command of an operator (process {pid}) still carries itself out on {state}: start it again when that is \
                 through"
            );
        }
        format!("another dispatcher (process {pid}) works on {state}: wait for it, or stop it with `kill {pid}`")
    }

    /// Whether the process that took the lock last lives, as far as can be seen from here.
    fn is_owner_alive(&self) -> bool {
        let pid = self.process().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        pid.is_none_or(|pid| match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
            // Dead and not waited for yet is dead.
            Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
            Err(_) => test_kill_process(pid).is_ok(),
        })
    }

    fn process_note(&self) -> PathBuf {
        self.0.join("process")
    }

    /// The process that took the lock last, as it says itself.
    pub fn process(&self) -> Option<String> {
        let note = std::fs::read_to_string(self.process_note()).ok()?;
        note.split_whitespace().next().map(ToOwned::to_owned)
    }

    /// Whether it took the lock for a command.
    fn is_owner_a_command(&self) -> bool {
        std::fs::read_to_string(self.process_note()).is_ok_and(|note| note.trim_end().ends_with(COMMAND))
    }

    /// Whether a process works on it now.
    pub fn is_locked(&self) -> bool {
        File::open(&self.0).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Opens the database, or makes it where nothing shows that there was one.
    pub async fn store(&self, options: SqliteOptions) -> anyhow::Result<SqliteStore> {
        lost::check_file(self)?;
        SqliteStore::open(&self.database(), options).await.map_err(|e| store_error(&e))
    }
}

/// A store's error with its exit code and what to do.
pub fn store_error(error: &StoreError) -> anyhow::Error {
    let (code, hint) = match error.class {
        ErrorClass::Misconfigured if error.why.contains("schema") => {
            (exit::SCHEMA, "use the version of the program that made it")
        }
        ErrorClass::Misconfigured => (exit::STORE_LOST, "see that the folder is there and can be written"),
        ErrorClass::Full => (exit::STORE_LOST, "free some space and try again"),
        ErrorClass::Corrupt => {
            (exit::STORE_LOST, "restore the state folder from a backup, or begin anew in another --out")
        }
        ErrorClass::Conflict => (exit::USAGE, "choose another --out"),
        ErrorClass::Transient | ErrorClass::BadRow => (exit::STORE_LOST, "try again"),
    };
    Exit::with(code, format!("{error}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_lock_is_said_and_a_command_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::make_at(folder.path()).unwrap();
        let refused = |taken: anyhow::Result<Lock>| {
            let error = taken.unwrap_err();
            assert_eq!(exit::of_error(&error), exit::LOCKED);
            error.to_string()
        };
        let dispatcher = state.lock().unwrap();
        assert!(refused(state.lock_for_command()).contains("another dispatcher"));
        drop(dispatcher);
        let command = state.lock_for_command().unwrap();
        assert!(refused(state.lock_for_command()).contains("a command of an operator"));
        assert_eq!(state.process(), Some(std::process::id().to_string()));
        let mut command = Some(command);
        let waited_for = state.lock_as(DISPATCHER, COMMAND_PATIENCE, || drop(command.take()));
        assert!(waited_for.is_ok(), "a dispatcher waits until it is over");
    }
}
