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

    /// Takes the lock, or says who has it. One that a dead process seems to have is waited for a little: a child that it was
    /// just starting when it was killed still has it for a moment.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        // The folder itself is locked: a file in it could be removed, and then two processes would each have a lock.
        let folder = File::open(&self.0)?;
        let note = self.process_note();
        let until = Instant::now() + LOCK_PATIENCE;
        let taken = loop {
            match folder.try_lock() {
                Err(TryLockError::WouldBlock) if !self.is_owner_alive() && Instant::now() < until => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                taken => break taken,
            }
        };
        match taken {
            Ok(()) => {
                std::fs::write(note, format!("{}\n", std::process::id()))?;
                Ok(Lock(folder))
            }
            Err(TryLockError::WouldBlock) => {
                let pid = self.process().unwrap_or_else(|| "unknown".to_owned());
                Err(Exit::with(
                    exit::LOCKED,
                    format!(
                        "another dispatcher (process {}) works on {}: wait for it, or stop it with `kill {0}`",
                        pid,
                        self.0.display()
                    ),
                ))
            }
            Err(TryLockError::Error(e)) => Err(e).context("cannot lock the state folder"),
        }
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
        std::fs::read_to_string(self.process_note()).ok().map(|pid| pid.trim().to_owned())
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
