//! `worker`: a command for each task of a dispatcher, in a process of its own.
//!
//! **Owns** the worker's folder, the loop that waits for its end and for signals, and what its end means. **Refuses to
//! know** the wire and how a command is run.
//!
//! Invariant: nothing is connected before everything that is wrong with the command line is told.

mod folder;
mod summary;

use crate::cli::WorkerArgs;
use crate::exit::{self, Exit};
use crate::run::{host, incarnation};
use crate::signals::Stop as Signals;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use dispatcher_core::text::NAME_MAX;
use dispatcher_store::limits::check_service;
use dispatcher_worker::exec::{CommandTemplate, ExecConfig, ExecWorker, Placeholder, ResultNaming};
use dispatcher_worker::{OutboxKind, Stop, WorkerConfig, WorkerError, WorkerSummary, run_worker};
use folder::Folder;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use summary::Ended;

/// How often signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a worker may take, beyond the drain and the grace of its commands, to give back what it has and be gone.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// How the worker ended.
type WorkerEnd = Result<WorkerSummary, WorkerError>;

/// Runs a command on every task that a dispatcher hands out, until a signal says to stop.
pub fn worker(args: &WorkerArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    let exec = exec_config(args)?;
    let signals = Signals::install()?;
    let folder = Folder::take(args.dir.as_deref())?;
    let name = args.name.clone().unwrap_or_else(|| format!("{}-{}", host(), folder.label()));
    let config = config(args, &name, folder.path())?;
    announce(args, &name, folder.path());
    let stop = Stop::new();
    let end = start(config, exec, stop.clone())?;
    let summary = until_over(args, &signals, &stop, &end)?.map_err(|error| exit_of(&error))?;
    let ended = Ended::new(name, folder.path().to_owned(), began.elapsed(), summary);
    if args.json {
        crate::views::print_json(&ended)?;
    } else {
        ended.print();
    }
    Ok(ended.code())
}

/// How commands are run, with everything said that is wrong about it.
fn exec_config(args: &WorkerArgs) -> anyhow::Result<ExecConfig> {
    let command = CommandTemplate::parse(&args.exec, args.shell).map_err(|e| Exit::usage(e.to_string()))?;
    // A command that is not there would fail every task; it is said before the first one is asked for.
    command.find_program().map_err(|e| Exit::usage(e.to_string()))?;
    if !command.uses(Placeholder::Input) {
        crate::say("note: CMD does not name {input}: it will be run once for each task without seeing its input");
    }
    for name in &args.service {
        check_service(name).map_err(|why| Exit::usage(format!("--service: {why}")))?;
    }
    if args.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > NAME_MAX) {
        return Err(Exit::usage(format!("--name: a worker's name has 1 to {NAME_MAX} bytes")));
    }
    let naming = match &args.ext {
        Some(ext) => ResultNaming::extension(ext).map_err(|e| Exit::usage(format!("--ext: {e}")))?,
        None => ResultNaming::same(),
    };
    let result_cap = args.result_cap.as_u64();
    Ok(ExecConfig { naming, grace: args.kill_grace, result_cap, ..ExecConfig::new(command) })
}

fn config(args: &WorkerArgs, name: &str, folder: &Path) -> anyhow::Result<WorkerConfig> {
    let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    let [endpoint, ..] = args.connect.as_slice() else {
        return Err(Exit::usage("--connect needs the address of a dispatcher"));
    };
    let (outbox, scratch) = (folder.join("outbox"), folder.join("scratch"));
    Ok(WorkerConfig {
        endpoints: args.connect.clone(),
        services: args.service.clone(),
        slots: args.slots.unwrap_or(cores),
        prefetch: args.prefetch,
        backend: args.backend,
        outbox: OutboxKind::Disk(outbox),
        // Answers may come for as long as commands may go on; the end comes at that time anyway.
        linger: args.drain,
        ..WorkerConfig::new(endpoint.clone(), name, &incarnation()?, "", scratch)
    })
}

/// Says who this is, for a person who starts several.
fn announce(args: &WorkerArgs, name: &str, folder: &Path) {
    let endpoints: Vec<_> = args.connect.iter().map(ToString::to_string).collect();
    crate::say(&format!(
        "worker {name}: {} for {}, results wait in {}",
        args.service.join(", "),
        endpoints.join(", "),
        folder.display()
    ));
}

/// Starts the worker on a thread of its own; its end is told once.
fn start(config: WorkerConfig, exec: ExecConfig, stop: Stop) -> anyhow::Result<Receiver<WorkerEnd>> {
    let (done, end) = bounded(1);
    std::thread::Builder::new().name("worker".to_owned()).spawn(move || {
        // Where nobody waits any more the process is ending anyway.
        let _ = done.send(run_worker(config, Arc::new(ExecWorker::new(exec)), stop));
    })?;
    Ok(end)
}

/// Waits for the worker's end, and brings it about when a signal says so (rule S1).
fn until_over(
    args: &WorkerArgs,
    signals: &Signals,
    stop: &Stop,
    end: &Receiver<WorkerEnd>,
) -> anyhow::Result<WorkerEnd> {
    let mut asked: Option<Instant> = None;
    loop {
        match end.recv_timeout(LOOK_EVERY) {
            Ok(end) => return Ok(end),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Exit::with(exit::PART_DIED, "the worker died of a fault of the program"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match asked {
            None if signals.is_asked() => {
                asked = Some(Instant::now());
                crate::say(&format!(
                    "stopping: what runs gets up to {}; a second signal ends at once",
                    humantime::format_duration(args.drain)
                ));
                stop.drain();
            }
            Some(at) if at.elapsed() >= args.drain + args.kill_grace + LAST_WORDS => {
                return Err(Exit::with(exit::DRAIN_TIMED_OUT, "the drain took too long: something could not be ended"));
            }
            Some(at) if at.elapsed() >= args.drain => stop.now(),
            _ => {}
        }
    }
}

/// The exit code of a worker that could not start or go on.
fn exit_of(error: &WorkerError) -> anyhow::Error {
    let code = match error {
        WorkerError::Config { .. } | WorkerError::Refused { .. } => exit::USAGE,
        WorkerError::Io { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => exit::LOCKED,
        WorkerError::Io { .. } => exit::USAGE,
        WorkerError::Socket(_) | WorkerError::Died { .. } => exit::PART_DIED,
    };
    Exit::with(code, error.to_string())
}
