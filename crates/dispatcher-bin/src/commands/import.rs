//! `import`: the files of a folder, or those that a list names, as tasks of a service.
//!
//! Owns the way from a name on the command line to service and corpus, and that looking at files and writing tasks go on
//! side by side. Works while a dispatcher does, and wakes it; killed at any point it leaves whole batches, and the same
//! command adds the rest.

mod report;

use super::services::ServiceArgs;
use super::{Given, open_or_make};
use crate::cli::StateArgs;
use crate::control::{actor, settle};
use crate::exit::Exit;
use crate::inputs::{BATCH, Folder, Imported, List, Seen, Target, import as import_all};
use crate::run::now;
use crate::settings::{self, ArchiveKind, LayoutKind, Settings};
use crate::signals::Stop;
use crate::state::{StateDir, store_error};
use crate::views::{event_loop, told};
use anyhow::Context;
use clap::Args;
use crossbeam_channel::{RecvTimeoutError, bounded};
use dispatcher_core::id::ServiceId;
use dispatcher_server::wake::wake;
use dispatcher_store::sqlite::{Durability, SqliteOptions};
use dispatcher_store::{Command, CommandOutcome, ErrorClass, ServiceChange, Store};
use report::{Progress, Report};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Batches that may wait to be written.
const AHEAD: usize = 8;
/// Batches after which the dispatcher is told that there is more to do.
const WAKE_EVERY: u64 = 8;
/// How often a signal is looked for while nothing is seen.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of a list is read at once, in bytes.
const LIST_BUFFER: usize = 1 << 16;

/// `import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher import papers --service html
  dispatcher import papers --service html --corpus 2024 --limit 10m
  find papers -name '*.tex' -printf '%P\\0' | \\
    dispatcher import papers --service html --list - -0

What is known already is left alone, whatever became of it; a file whose size or time has changed is
counted, and run again with --take-changed. May be used while a dispatcher serves, which begins with
the first files at once. Interrupted or killed, the same command goes on.")]
pub struct ImportArgs {
    /// The folder with the inputs. Every regular file below it is one task; links are skipped.
    pub dir: PathBuf,
    /// For which service; made where there is none of that name.
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// Into which corpus [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    pub corpus: Option<String>,
    /// The priority of new tasks: of a service's tasks, higher ones go first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Take inputs that have changed as they are now, and begin a new run of each.
    #[arg(long)]
    pub take_changed: bool,
    /// Only the files that FILE names, one a line, relative to DIR; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Names in the list end with NUL, as `find -print0` writes them.
    #[arg(long = "null", short = '0', requires = "list")]
    pub null: bool,
    /// Of a new service.
    #[command(flatten)]
    pub new: ServiceArgs,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// Imports.
pub fn import(args: &ImportArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    let stop = Stop::install()?;
    let dir = folder(&args.dir)?;
    let corpus = corpus_name(args, &dir)?;
    event_loop()?.block_on(async {
        // A power cut may cost the last batches, which the same command adds again; the note in the log that comes after
        // them is written so that it survives, and they with it.
        let fast = SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() };
        let instead = "new inputs below its folder are taken when the same command is given again; other folders need \
                       another --state";
        let (state, store) = open_or_make(&args.at.state, fast, instead).await?;
        settle(&state, &store).await?;
        let (skip, beside) = (skipped(&state, &dir)?, beside(args, &state, &store).await?);
        let folder = Folder { skip, beside, dir, by_name: false, priority: args.priority };
        let (service, made_service) = service(args, &state, &store).await?;
        let root = folder.dir.as_os_str().as_bytes();
        let to = Target {
            service,
            corpus: store.put_corpus(&corpus, root).await.map_err(|e| wrong_corpus(&e))?.id,
            take_changed: args.take_changed,
            now: now(),
        };
        let mut progress = Progress::open(args.quiet);
        let mut batches = 0;
        let after = |found: &Imported| {
            progress.show(found);
            batches += 1;
            if batches % WAKE_EVERY == 1 {
                wake(state.path());
            }
        };
        let seen = ahead(source(args, &folder)?, stop.clone())?;
        let imported = import_all(seen, &store, &to, after, || stop.is_asked()).await;
        progress.close();
        wake(state.path());
        let imported = imported?;
        write_down(args, &state, &corpus, &imported).await?;
        let finished = !stop.is_asked();
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let service = args.service.clone();
        let working = state.is_locked();
        Report { finished, took_ms, service, corpus, made_service, working, imported }.tell(args)
    })
}

/// The folder with the inputs, by its full name.
fn folder(named: &Path) -> anyhow::Result<PathBuf> {
    let dir = named
        .canonicalize()
        .map_err(|e| Exit::usage(format!("cannot use {} as the folder with the inputs: {e}", named.display())))?;
    if !dir.is_dir() {
        return Err(Exit::usage(format!(
            "{} is a file: name the folder that it lies in, and the file in a list with --list",
            dir.display()
        )));
    }
    Ok(dir)
}

fn corpus_name(args: &ImportArgs, dir: &Path) -> anyhow::Result<String> {
    let own = || dir.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    args.corpus.clone().or_else(own).ok_or_else(|| {
        Exit::usage(format!("the name of {} cannot be that of a corpus: say one with --corpus", dir.display()))
    })
}

/// What lies in the folder and is no input: the state, and the results that come of it.
fn skipped(state: &StateDir, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if dir.starts_with(state.path()) {
        return Err(Exit::usage(format!(
            "the inputs lie in the state folder {}: name another with --state",
            state.path().display()
        )));
    }
    let results = match crate::archive::read(state)? {
        // They lie beside their inputs, and each is told by its name.
        Some(choice) if choice.layout == LayoutKind::Cortex => return Ok(vec![state.path().to_owned()]),
        Some(choice) => choice.results,
        // Where they will go, if nobody says otherwise.
        None => {
            let none = std::collections::BTreeMap::<String, String>::new();
            let settings = Settings::of(&settings::layers(state.path(), None, none)?)?;
            state.path().parent().unwrap_or(Path::new("/")).join(settings.results)
        }
    };
    let results = results.canonicalize().unwrap_or(results);
    if dir.starts_with(&results) {
        crate::say(&format!("note: the inputs are results of this dispatcher: {} is where they go", results.display()));
    }
    for inside in [state.path(), &results].into_iter().filter(|inside| inside.starts_with(dir) && *inside != dir) {
        if inside.exists() {
            crate::say(&format!("note: {} lies inside the inputs and is skipped as an input", inside.display()));
        }
    }
    Ok(vec![state.path().to_owned(), results])
}

/// Services whose results lie beside the inputs.
async fn beside(args: &ImportArgs, state: &StateDir, store: &dyn Store) -> anyhow::Result<Vec<String>> {
    let choice = crate::archive::read(state)?;
    if !choice.is_some_and(|choice| choice.kind == ArchiveKind::Files && choice.layout == LayoutKind::Cortex) {
        return Ok(Vec::new());
    }
    let mut services: Vec<String> =
        store.services().await.map_err(|e| store_error(&e))?.into_iter().map(|service| service.name).collect();
    services.push(args.service.clone());
    Ok(services)
}

/// The service, made where it is missing. Whether it was is told.
async fn service(args: &ImportArgs, state: &StateDir, store: &dyn Store) -> anyhow::Result<(ServiceId, bool)> {
    let name = &args.service;
    let change = args.new.change();
    let id = |known: Vec<dispatcher_store::Service>| known.into_iter().find(|s| s.name == *name).map(|s| s.id);
    match id(store.services().await.map_err(told)?) {
        Some(id) if change == ServiceChange::default() => Ok((id, false)),
        Some(_) => Err(Exit::usage(format!(
            "there is a service {name:?} already: change it with `dispatcher services set {name}`, and import without \
             --limit, --budget and --result-cap"
        ))),
        None => {
            // Through the log, so that a dispatcher at work knows the service before its first task.
            let given = Given::give(state, store, &Command::PutService { name: name.clone(), change }).await?;
            let made = id(store.services().await.map_err(told)?);
            let why = || Exit::usage(given.error.unwrap_or_else(|| format!("the service {name:?} could not be made")));
            made.map(|id| (id, true)).ok_or_else(why)
        }
    }
}

fn wrong_corpus(error: &dispatcher_store::StoreError) -> anyhow::Error {
    match error.class {
        ErrorClass::Conflict => Exit::usage(format!("{}: name another corpus with --corpus", error.why)),
        ErrorClass::BadRow => Exit::usage(error.why.clone()),
        _ => store_error(error),
    }
}

/// What is to be imported.
type Source = Box<dyn Iterator<Item = io::Result<Seen>> + Send>;

fn source(args: &ImportArgs, folder: &Folder) -> anyhow::Result<Source> {
    let Some(file) = &args.list else { return Ok(Box::new(folder.seen())) };
    let names: Box<dyn Read + Send> = if file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        let open = File::open(file);
        Box::new(open.map_err(|e| Exit::usage(format!("cannot read the list {}: {e}", file.display())))?)
    };
    let ends_with = if args.null { 0 } else { b'\n' };
    Ok(Box::new(List::new(BufReader::with_capacity(LIST_BUFFER, names), ends_with, folder)?))
}

/// The same, looked at by a thread of its own, a few batches ahead; ends at a signal, even where nothing comes.
fn ahead(source: Source, stop: Stop) -> anyhow::Result<impl Iterator<Item = io::Result<Seen>>> {
    let (batches, coming) = bounded::<Vec<io::Result<Seen>>>(AHEAD);
    // Nobody waits for it: where it hangs in a folder that does not answer, the process ends all the same.
    std::thread::Builder::new().name("look".to_owned()).spawn(move || {
        let mut source = source.peekable();
        while source.peek().is_some() {
            if batches.send(source.by_ref().take(BATCH).collect()).is_err() {
                return;
            }
        }
    })?;
    let next = move || {
        while !stop.is_asked() {
            match coming.recv_timeout(LOOK_EVERY) {
                Ok(batch) => return Some(batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    };
    Ok(std::iter::from_fn(next).flatten())
}

/// Writes the import on the log, where it survives a power cut, and so does everything before it.
async fn write_down(args: &ImportArgs, state: &StateDir, corpus: &str, imported: &Imported) -> anyhow::Result<()> {
    let store = state.store(SqliteOptions::default()).await?;
    let command = Command::Import { service: args.service.clone(), corpus: corpus.to_owned(), added: imported.added };
    let outcome = CommandOutcome { changed: imported.added + imported.taken_anew, error: None };
    let id = store.submit(&command, &actor(), now()).await.map_err(told)?;
    store.conclude(id, &outcome, now()).await.map_err(told).context("the tasks are imported")
}
