//! `serve`: a dispatcher that goes on until it is told to end, with workers in processes of their own.
//!
//! **Owns** the wiring of store, archive and dispatcher, and the loop that waits for their ends and for signals.
//! **Refuses to know** how a task is handed out or decided.

use crate::archive::{self, Choice, Opened};
use crate::exit::{self, Exit};
use crate::log::Log;
use crate::run::host;
use crate::settings::{self, Settings, millis};
use crate::signals::Stop;
use crate::state::{StateDir, lost, store_error};
use crate::views::event_loop;
use crate::waiting::WaitingNote;
use clap::Args;
use crossbeam_channel::{select, tick};
use dispatcher_server::stage::StageFailure;
use dispatcher_server::{Dispatcher, DispatcherConfig, DrainMode, Ended, Workers, hooks};
use dispatcher_store::archive::{PackArchive, PackOptions};
use dispatcher_store::sqlite::{Durability, SqliteOptions};
use dispatcher_store::upkeep::{self, Swept};
use dispatcher_store::{Command, Store, TaskFilter};
use dispatcher_transport::socket::{BackendKind, Endpoint};
use figment::Figment;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `serve`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  dispatcher serve
  dispatcher serve --state /srv/tasks --listen tcp://127.0.0.1:6000
  dispatcher serve --archive files --results /srv/results
  dispatcher serve --until-empty

Then, in other shells:
  dispatcher import papers --service html
  dispatcher worker --service html --exec './convert {input}'
  dispatcher status
  dispatcher export --out results

SIGTERM or Ctrl-C: nothing more is handed out, what was received is written, and it ends with 0.
Workers go on meanwhile; what they finish is taken after the next start. A second signal ends it at
once, and still nothing is lost. Every setting can also stand in STATE/dispatcher.toml or in a
DISPATCHER_* variable; `dispatcher config` shows what is in force and who said so.")]
pub struct ServeArgs {
    /// The folder with the database and everything else that must survive.
    #[arg(long, value_name = "DIR", default_value = ".dispatcher", env = "DISPATCHER_STATE")]
    pub state: PathBuf,
    /// A TOML file with settings [default: STATE/dispatcher.toml].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End when every task has ended.
    #[arg(long)]
    pub until_empty: bool,
    /// End when so many tasks were handed out (not counting repeats) and have ended.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// At the end, wait for everything in flight, for as long as the drain may take.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub drain: DrainWord,
    /// What stands in the settings too.
    #[command(flatten)]
    pub flags: ServeFlags,
}

impl ServeArgs {
    /// What a command line without a word means.
    pub fn by_default() -> Self {
        #[derive(clap::Parser)]
        struct Bare {
            #[command(flatten)]
            args: ServeArgs,
        }
        <Bare as clap::Parser>::parse_from(["dispatcher"]).args
    }
}

/// The settings that have a flag.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub struct ServeFlags {
    /// Where workers connect [default: tcp://127.0.0.1:51695].
    #[arg(long, value_name = "ENDPOINT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Where results of existing CorTeX workers come: an endpoint, off, or auto [default: auto, port 51696].
    #[arg(long, value_name = "ENDPOINT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy_results: Option<String>,
    /// Which implementation of the sockets: omq or zeromq [default: omq].
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKind>,
    /// Where /healthz, /readyz and /metrics are, or `off` [default: 127.0.0.1:51697].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// What becomes of results [default: packs, or what the state folder has].
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<settings::ArchiveKind>,
    /// Where result files go, with --archive files [default: `results` beside the state folder].
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
    /// How result files are named, with --archive files [default: mirror].
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<settings::LayoutKind>,
    /// From this size on a pack is closed and another begun [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_size: Option<String>,
    /// How long a drain may take [default: 30s].
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_limit: Option<String>,
    /// After how much silence a worker counts as lost [default: 30s].
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_after: Option<String>,
    /// How often each side gives a sign of life [default: 2s].
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat: Option<String>,
    /// No task is leased while so many are in flight [default: 8000].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<usize>,
    /// Survive kills of the process, but not for sure a power cut: faster on slow disks.
    #[arg(long)]
    #[serde(skip_serializing_if = "is_not_said")]
    pub fast_commits: bool,
    /// How log lines look [default: text].
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<settings::LogForm>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_not_said(flag: &bool) -> bool {
    !*flag
}

/// What is waited for at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DrainWord {
    /// What was received is written; workers bring the rest after the next start.
    #[default]
    Received,
    /// Everything in flight.
    Wait,
}

impl From<DrainWord> for DrainMode {
    fn from(word: DrainWord) -> Self {
        match word {
            DrainWord::Received => Self::Received,
            DrainWord::Wait => Self::InFlight,
        }
    }
}

/// Serves until it is told to end.
pub fn serve(args: &ServeArgs) -> anyhow::Result<u8> {
    crate::allocator::give_large_pieces_back();
    let stop = Stop::install()?;
    let layers = settings::layers(&args.state, args.config.as_deref(), &args.flags)?;
    let settings = Settings::of(&layers)?;
    let mut log = Log::start(settings.log, "info");
    let state = StateDir::make_at(&args.state)?;
    state.check_is_a_servers("give the server a state folder of its own with --state")?;
    let _lock = state.lock()?;
    let looped = event_loop()?;
    let store = Arc::new(looped.block_on(state.store(options(&settings)))?);
    looped.block_on(lost::check_rows(&state, &*store))?;
    let had = looped.block_on(archive::kept(&state, &*store))?;
    let choice = choice(&settings, &layers, &state, had.as_ref())?;
    let (opened, trial) = archive::choose(&state, had.as_ref(), &choice, pack_options(&settings))?;
    looped.block_on(make_services(&*store, &settings))?;
    if let Opened::Packs(packs) = &opened {
        looped.block_on(sweep(packs, &*store))?;
    }
    let config = dispatcher_config(args, &settings, &state, choice.layout)?;
    let listen = config.endpoint.to_string();
    let dispatcher =
        Dispatcher::start(config, store.clone(), opened.archive()).map_err(|failure| could_not_start(&failure))?;
    trial.passed();
    settings::note(&state, &settings);
    looped.block_on(greet(&*store, &dispatcher, &listen, &state))?;
    if args.until_empty || args.limit.is_some() {
        dispatcher.finish_when_empty();
    }
    let note = WaitingNote::make(&state);
    Serving { dispatcher, stop, log: &mut log, note, mode: args.drain.into(), asked: false }.until_over().or_else(
        |error| {
            if !tracing::enabled!(tracing::Level::ERROR) {
                return Err(error);
            }
            tracing::error!("{error:#}");
            Ok(exit::of_error(&error))
        },
    )
}

/// What goes on, and how its end is waited for.
struct Serving<'a> {
    dispatcher: Dispatcher,
    stop: Stop,
    log: &'a mut Log,
    note: WaitingNote,
    mode: DrainMode,
    asked: bool,
}

impl Serving<'_> {
    fn until_over(mut self) -> anyhow::Result<u8> {
        let looks = tick(LOOK_EVERY);
        let ends = self.dispatcher.ends().clone();
        loop {
            select! {
                recv(ends) -> end => {
                    if let Some(ended) = end.ok().and_then(|end| self.dispatcher.ended(end)) {
                        self.log.tell_dropped();
                        return self.over(ended);
                    }
                },
                recv(looks) -> _ => self.look(),
            }
        }
    }

    fn look(&mut self) {
        self.dispatcher.note_dropped_lines(self.log.dropped());
        self.note.tell(self.dispatcher.waits_for());
        if self.stop.is_asked() && !self.asked {
            self.asked = true;
            tracing::info!("told to stop: nothing more is handed out; a second signal ends at once");
            self.dispatcher.drain(self.mode);
        }
    }

    fn over(&self, ended: Ended) -> anyhow::Result<u8> {
        match ended {
            Ended::Well { in_time: false, .. } => Err(Exit::with(
                exit::DRAIN_TIMED_OUT,
                "the drain took longer than drain_limit; nothing is lost: workers bring the rest after the next start",
            )),
            Ended::Well { finished, .. } => {
                tracing::info!(finished, "ended");
                Ok(exit::ALL_USABLE)
            }
            Ended::Died { stage, how } => Err(Exit::with(
                exit::of_stage(&how),
                format!("the {stage} died: {how}; what is recorded stays recorded: start it again"),
            )),
        }
    }
}

fn options(settings: &Settings) -> SqliteOptions {
    let durability = if settings.fast_commits { Durability::Normal } else { Durability::Full };
    SqliteOptions { durability, ..SqliteOptions::default() }
}

fn pack_options(settings: &Settings) -> PackOptions {
    PackOptions { seal_at: settings.pack_size.as_u64(), pass: hooks::pass, fails: hooks::fails }
}

/// What an earlier process left of its packs, put in order before the first row can name a new one.
async fn sweep(packs: &PackArchive, store: &dyn Store) -> anyhow::Result<()> {
    match upkeep::sweep(packs, store).await? {
        Some(Swept { removed: 0, ended: 0 }) => {}
        Some(Swept { removed, ended }) => {
            tracing::info!(removed, ended, "put the packs of an earlier process in order")
        }
        None => tracing::info!("the packs are being compacted: what an earlier process left of them stays for now"),
    }
    for missing in upkeep::missing(packs, store).await.map_err(|e| store_error(&e))? {
        if missing.is_loss() {
            tracing::error!("{missing}; `dispatcher doctor` names their tasks");
        } else {
            tracing::info!("{missing}");
        }
    }
    Ok(())
}

/// Where results go: as it was said, or else as it was before. A folder is seen from beside the state folder.
pub fn wanted(settings: &Settings, layers: &Figment, state: &Path, had: Option<&Choice>) -> Choice {
    let beside = state.parent().unwrap_or(Path::new("."));
    let mut wanted =
        Choice { kind: settings.archive, results: beside.join(&settings.results), layout: settings.layout };
    let said = |name| settings::is_said(layers, name);
    if let Some(had) = had {
        wanted.kind = if said("archive") { wanted.kind } else { had.kind };
        wanted.results = if said("results") { wanted.results } else { had.results.clone() };
        wanted.layout = if said("layout") { wanted.layout } else { had.layout };
    } else if !said("archive") && (said("results") || said("layout")) {
        // Whoever says where result files go wants them.
        wanted.kind = settings::ArchiveKind::Files;
    }
    wanted
}

/// The same, with its folder made, or why it cannot be.
fn choice(settings: &Settings, layers: &Figment, state: &StateDir, had: Option<&Choice>) -> anyhow::Result<Choice> {
    let wanted = wanted(settings, layers, state.path(), had);
    if wanted.kind != settings::ArchiveKind::Files {
        return without_files(wanted, layers);
    }
    let results = &wanted.results;
    std::fs::create_dir_all(results)
        .map_err(|e| Exit::usage(format!("cannot make {}: {e}; name another with --results", results.display())))?;
    let results = results.canonicalize()?;
    if results.starts_with(state.path()) {
        return Err(Exit::usage(format!(
            "{} lies in the state folder, which is cleared of what no row names: name another folder with --results",
            results.display()
        )));
    }
    Ok(Choice { results, ..wanted })
}

/// Whoever says where files go and gets none would look for them in vain.
fn without_files(wanted: Choice, layers: &Figment) -> anyhow::Result<Choice> {
    let said = ["results", "layout"].into_iter().find(|name| settings::is_said(layers, name));
    match said {
        Some(name) => Err(Exit::usage(format!(
            "{} says something of result files, and this state has none since its first start: leave it out, for \
             `dispatcher export` makes files of what it has, or begin a new state folder with --state",
            settings::who(layers, name)
        ))),
        None => Ok(wanted),
    }
}

/// Makes or changes the services that the settings name.
async fn make_services(store: &dyn Store, settings: &Settings) -> anyhow::Result<()> {
    for (name, service) in &settings.services {
        let known = store.services().await.map_err(|e| store_error(&e))?;
        let had = known.into_iter().find(|known| known.name == *name).map(|known| known.settings);
        let change = service.change();
        if had.as_ref().is_some_and(|had| change.on(had) == *had) {
            continue;
        }
        let command = Command::PutService { name: name.clone(), change };
        let outcome = crate::control::carry_out(store, &command).await?;
        if let Some(error) = outcome.error {
            return Err(Exit::usage(format!("the service {name:?} of the settings: {error}")));
        }
    }
    Ok(())
}

fn dispatcher_config(
    args: &ServeArgs,
    settings: &Settings,
    state: &StateDir,
    layout: settings::LayoutKind,
) -> anyhow::Result<DispatcherConfig> {
    let endpoint: Endpoint = settings.listen.parse().map_err(|e| {
        Exit::usage(format!("listen is {:?}: {e}; write it like {}", settings.listen, settings::LISTEN))
    })?;
    Ok(DispatcherConfig {
        endpoint,
        backend: settings.backend,
        host: host(),
        limits: settings.limits(),
        fleet: settings.fleet(),
        legacy: settings.legacy()?,
        kill_grace: millis(settings.kill_grace),
        claim_ahead: settings.claim_ahead,
        store_patience: settings.store_patience,
        drain_limit: settings.drain_limit,
        workers: Workers::Elsewhere,
        naming: archive::naming(layout),
        http: settings.http()?,
        wake_in: Some(state.path().to_owned()),
        task_limit: args.limit,
    })
}

/// At the start it is not a part that died: what was asked for cannot be had.
fn could_not_start(failure: &StageFailure) -> anyhow::Error {
    match failure {
        StageFailure::Socket(why) => {
            Exit::usage(format!("{why}; choose another address with --listen or --legacy-results"))
        }
        StageFailure::System(why) => Exit::usage(why.clone()),
        other => Exit::with(exit::of_failure(other), other.to_string()),
    }
}

/// Says where it is and what to do next.
async fn greet(store: &dyn Store, dispatcher: &Dispatcher, listen: &str, state: &StateDir) -> anyhow::Result<()> {
    let tasks = store.summary(&TaskFilter::default()).await.map_err(|e| store_error(&e))?;
    let services: Vec<String> =
        store.services().await.map_err(|e| store_error(&e))?.into_iter().map(|service| service.name).collect();
    let http = dispatcher.http().map_or_else(|| "off".to_owned(), |address| format!("http://{address}"));
    let (state, tasks) = (state.path().display(), crate::views::words::counts(&tasks));
    let legacy = dispatcher.results().map_or_else(|| "off".to_owned(), ToString::to_string);
    tracing::info!(%listen, legacy_results = legacy, http, %state, services = services.join(","), "serving: {tasks}");
    if services.is_empty() {
        tracing::info!(
            "nothing to do yet: `dispatcher import DIR --service NAME` adds tasks, and `dispatcher worker --service NAME \
             --exec CMD` works on them (`--help` of each has examples)"
        );
    }
    Ok(())
}
