//! What a `run` is to do, checked before anything starts.
//!
//! Owns the defaults and the errors of the command line that only the file system can tell.

use super::import::Tree;
use crate::cli::{Again, RunArgs};
use crate::exit::Exit;
use crate::state::{STATE, StateDir, store_error};
use anyhow::Context;
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::id::{CorpusId, ServiceId};
use dispatcher_core::in_flight::Limits;
use dispatcher_core::time::SpanMs;
use dispatcher_core::wire::TokenText;
use dispatcher_server::{DispatcherConfig, LegacyWire, ResultNames};
use dispatcher_store::archive::files::{FileArchive, FileArchiveOptions, Layout};
use dispatcher_store::sqlite::{Durability, SqliteOptions};
use dispatcher_store::{ServiceSettings, Store};
use dispatcher_transport::socket::{BackendKind, Endpoint};
use dispatcher_worker::exec::{CommandTemplate, Placeholder, ResultNaming};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The service and the corpus of a `run`; each results folder has one of each.
pub const SERVICE: &str = "run";
const CORPUS: &str = "inputs";

/// Claimed tasks held ready for each slot.
const CLAIM_AHEAD_PER_SLOT: usize = 64;
/// Claimed tasks held ready at most.
const CLAIM_AHEAD_MAX: usize = 1024;

/// A checked plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Inputs and results.
    pub tree: Tree,
    /// The command.
    pub command: CommandTemplate,
    /// What results are called.
    pub naming: ResultNaming,
    /// Commands at once.
    pub slots: u32,
    /// The service's settings.
    pub settings: ServiceSettings,
    /// Whether changed inputs are run again.
    pub take_changed: bool,
    /// How long commands may go on after a signal.
    pub drain: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    fast_commits: bool,
}

impl Plan {
    /// Checks the arguments against the file system.
    pub fn of(args: &RunArgs) -> anyhow::Result<Self> {
        let dir = args
            .dir
            .canonicalize()
            .with_context(|| format!("cannot use {} as the folder with the inputs", args.dir.display()))?;
        if !dir.is_dir() {
            return Err(Exit::usage(format!(
                "{} is a file: name the folder that it lies in; `run` works on every file below a folder",
                dir.display()
            )));
        }
        let out = out_of(args, &dir)?;
        let naming = naming(args)?;
        let command = CommandTemplate::parse(&args.exec, args.shell).map_err(|e| Exit::usage(e.to_string()))?;
        let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        advise(args, &command);
        // A command that is not there would fail every input; it is said before anything starts.
        command.find_program().map_err(|e| Exit::usage(e.to_string()))?;
        Ok(Self {
            tree: Tree { dir, out, naming: naming.clone(), renames: args.ext.is_some() },
            command,
            naming,
            slots: args.slots.unwrap_or(cores),
            settings: ServiceSettings {
                timeout_ms: span(args.limit),
                budget: args.budget,
                result_cap: args.result_cap.as_u64(),
                retry_delay_ms: span(args.retry_delay),
                ..ServiceSettings::default()
            },
            take_changed: args.again.contains(&Again::Changed),
            drain: args.drain,
            kill_grace: args.kill_grace,
            fast_commits: args.fast_commits,
        })
    }

    /// How the database commits.
    pub fn durability(&self) -> SqliteOptions {
        let durability = if self.fast_commits { Durability::Normal } else { Durability::Full };
        SqliteOptions { durability, ..SqliteOptions::default() }
    }

    /// Makes the service and the corpus known.
    pub async fn register(&self, store: &dyn Store) -> anyhow::Result<(ServiceId, CorpusId)> {
        let service = store.put_service(SERVICE, &self.settings).await.map_err(|e| store_error(&e))?;
        let root = self.tree.dir.as_os_str().as_bytes();
        let corpus = store.put_corpus(CORPUS, root).await.map_err(|e| store_error(&e))?;
        Ok((service.id, corpus.id))
    }

    /// The dispatcher's set-up.
    pub fn dispatcher(&self, endpoint: Endpoint, worked_on: Vec<TokenText>, state: &StateDir) -> DispatcherConfig {
        let slots = self.slots as usize;
        DispatcherConfig {
            endpoint,
            backend: BackendKind::default(),
            host: crate::run::workers::host(),
            limits: Limits::default(),
            fleet: FleetLimits::default(),
            legacy: LegacyWire::default(),
            kill_grace: span(self.kill_grace),
            claim_ahead: (slots * CLAIM_AHEAD_PER_SLOT).min(CLAIM_AHEAD_MAX),
            store_patience: Duration::from_secs(300),
            drain_limit: self.drain + self.kill_grace + Duration::from_secs(10),
            workers: dispatcher_server::Workers::Ours { worked_on },
            naming: ResultNames::ByEntry,
            http: None,
            task_limit: None,
            wake_in: Some(state.path().to_owned()),
        }
    }

    /// The command that goes on with this run, for a shell.
    pub fn command_line(&self) -> String {
        // The arguments as they were given are what a person knows; quoting makes them whole again.
        std::env::args_os().map(|arg| quoted(&arg.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }
}

/// The archive of a results folder.
pub fn archive_of(state: &StateDir, naming: ResultNaming) -> anyhow::Result<FileArchive> {
    let out = state.path().parent().unwrap_or(Path::new("."));
    let options = FileArchiveOptions {
        out: out.to_owned(),
        state: state.path().to_owned(),
        layout: Layout::new(move |entry| naming.result_name(entry)),
    };
    FileArchive::open(options).with_context(|| format!("cannot use {} for results", out.display()))
}

/// The results folder: made if need be, and not the inputs' own.
fn out_of(args: &RunArgs, dir: &Path) -> anyhow::Result<PathBuf> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let mut name = dir.as_os_str().to_owned();
            name.push(".out");
            name.into()
        }
    };
    std::fs::create_dir_all(&out)
        .with_context(|| format!("cannot make the results folder {}: name another with --out", out.display()))?;
    let out = out.canonicalize()?;
    if out == dir {
        return Err(Exit::usage(format!(
            "the results would lie among the inputs in {}: name another folder with --out",
            dir.display()
        )));
    }
    if dir.starts_with(out.join(STATE)) {
        return Err(Exit::usage("the inputs lie in the state folder of the results: name another --out"));
    }
    if out.starts_with(dir) {
        crate::say(&format!("note: {} lies inside the inputs and is skipped as an input", out.display()));
    }
    Ok(out)
}

/// Says what a command line probably does not mean.
fn advise(args: &RunArgs, command: &CommandTemplate) {
    if !command.uses(Placeholder::Input) {
        crate::say("note: CMD does not name {input}: it will be run once for each input without seeing it");
    }
    let for_a_shell = |word: &str| matches!(word, "|" | "||" | "&&" | ";" | "<" | ">" | ">>" | "2>&1");
    if !args.shell && args.exec.split_whitespace().any(for_a_shell) {
        crate::say("note: CMD has words that only a shell understands: give it to one with --shell");
    }
}

/// What results are called.
fn naming(args: &RunArgs) -> anyhow::Result<ResultNaming> {
    let Some(ext) = &args.ext else { return Ok(ResultNaming::same()) };
    ResultNaming::extension(ext).map_err(|e| Exit::usage(format!("--ext: {e}")))
}

/// A span in whole milliseconds.
pub fn span(duration: Duration) -> SpanMs {
    SpanMs(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
