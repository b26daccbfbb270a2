//! `run`: a folder of inputs, a command for each, results in a folder that mirrors it.
//!
//! **Owns** the wiring of import, dispatcher and workers in one process, and the loop that waits for their ends, for
//! signals and for the next picture. **Refuses to know** how a task is handed out or decided.

mod again;
mod identity;
mod import;
mod plan;
mod screen;
mod summary;
mod workers;

pub use again::now;
pub use plan::archive_of;
pub use workers::{host, incarnation};

use crate::cli::RunArgs;
use crate::exit::{self, Exit};
use crate::inputs::{self, Imported, Target};
use crate::signals::Stop;
use crate::state::{StateDir, store_error};
use crate::views::event_loop;
use crate::waiting::WaitingNote;
use crossbeam_channel::{Receiver, bounded, never, select, tick};
use dispatcher_server::{Dispatcher, DrainMode, Ended};
use dispatcher_store::{Store, TaskFilter, TaskState};
use plan::Plan;
use screen::{Screen, Shown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use summary::RunSummary;
use workers::Workers;

/// How often signals are looked at and the picture is drawn.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a process that ends in disorder waits for its commands to be ended.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a command on every file of a folder.
pub fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    let plan = Plan::of(args)?;
    let stop = Stop::install()?;
    // Nothing is made before everything that can be told from the inputs is told.
    plan.tree.check_result_names()?;
    let state = StateDir::make(&plan.tree.out)?;
    let _lock = state.lock()?;
    identity::check_database(&plan.tree.out, &state)?;
    identity::claim_out(args, &plan.tree.dir, &plan.tree.out, &state)?;
    let looped = event_loop()?;
    let store = Arc::new(looped.block_on(state.store(plan.durability()))?);
    let archive = Arc::new(archive_of(&state, plan.naming.clone())?);
    let (service, corpus) = looped.block_on(plan.register(&*store))?;
    looped.block_on(again::begin(args, &*store, &*archive))?;
    let before = looped.block_on(store.summary(&TaskFilter::default())).map_err(|e| store_error(&e))?;

    let socket = workers::Socket::make(&state)?;
    let worked_on = dispatcher_worker::tokens_worked_on(&state.scratch())?;
    let dispatcher = Dispatcher::start(plan.dispatcher(socket.endpoint()?, worked_on, &state), store.clone(), archive)
        .map_err(|failure| Exit::with(exit::of_failure(&failure), failure.to_string()))?;
    let workers = Workers::start(&plan, socket.endpoint()?, &state.scratch())?;
    let counts = Arc::new(Counts::default());
    let over =
        before.by_state.iter().filter(|(s, _)| matches!(s, TaskState::Done | TaskState::Dead)).map(|(_, n)| n).sum();
    let import = start_import(
        &plan,
        store.clone(),
        Target { service, corpus, take_changed: plan.take_changed, now: now() },
        &counts,
        &stop,
    )?;
    let mut running = Running {
        plan: &plan,
        dispatcher,
        workers,
        counts,
        total_before: before.total,
        over_before: over,
        imported: None,
        stop,
        asked_at: None,
        note: WaitingNote::make(&state),
        screen: Screen::open(args.quiet),
    };
    let finished = match running.until_over(import) {
        Ok(finished) => finished,
        Err(error) => {
            running.workers.end_at_once(ORPHANS_PATIENCE);
            return Err(error);
        }
    };
    let now = running.dispatcher.progress().now();
    let imported = running.imported.take().unwrap_or_default();
    running.screen.close();
    let tasks = looped.block_on(store.summary(&TaskFilter::default())).map_err(|e| store_error(&e))?;
    let summary = RunSummary::new(finished, began.elapsed(), plan.tree.out.clone(), imported, tasks, &now);
    if args.json {
        crate::views::print_json(&summary)?;
    } else {
        summary.print();
    }
    if !finished {
        crate::say(&format!("to go on: {}", plan.command_line()));
    }
    Ok(summary.code())
}

/// Counts that the import thread moves and the screen reads.
#[derive(Debug, Default)]
struct Counts {
    added: AtomicU64,
    over: AtomicBool,
}

/// What goes on, and how it is waited for.
struct Running<'a> {
    plan: &'a Plan,
    dispatcher: Dispatcher,
    workers: Workers,
    counts: Arc<Counts>,
    total_before: u64,
    over_before: u64,
    imported: Option<Imported>,
    stop: Stop,
    asked_at: Option<Instant>,
    note: WaitingNote,
    screen: Screen,
}

/// How the import ended.
type ImportEnd = anyhow::Result<Imported>;

impl Running<'_> {
    /// Waits until everything has ended; returns whether all is done.
    fn until_over(&mut self, mut import: Receiver<ImportEnd>) -> anyhow::Result<bool> {
        let looks = tick(LOOK_EVERY);
        let ends = self.dispatcher.ends().clone();
        let mut workers = self.workers.ends().clone();
        loop {
            select! {
                recv(import) -> end => {
                    // It ends once; a closed channel would be ready for ever.
                    import = never();
                    if let Ok(end) = end { self.import_over(end)?; }
                },
                recv(workers) -> end => {
                    workers = never();
                    if let Ok(end) = end { self.worker_over(end)?; }
                },
                recv(ends) -> end => {
                    if let Some(ended) = end.ok().and_then(|end| self.dispatcher.ended(end)) {
                        return self.over(ended);
                    }
                },
                recv(looks) -> _ => self.look()?,
            }
        }
    }

    /// Everything is imported: the run ends when every task has.
    fn import_over(&mut self, end: ImportEnd) -> anyhow::Result<()> {
        let imported = end?;
        self.counts.over.store(true, Ordering::Release);
        self.imported = Some(imported);
        if self.asked_at.is_none() {
            self.dispatcher.finish_when_empty();
        }
        Ok(())
    }

    /// The workers live as long as the dispatcher; that they end first is a fault unless they were told to.
    fn worker_over(&self, end: workers::WorkersEnd) -> anyhow::Result<()> {
        match end {
            Ok(()) => Ok(()),
            Err(what) => Err(Exit::with(exit::PART_DIED, format!("the workers died: {what}"))),
        }
    }

    /// The dispatcher has ended.
    fn over(&self, ended: Ended) -> anyhow::Result<bool> {
        match ended {
            Ended::Well { finished, .. } => Ok(finished),
            Ended::Died { stage, how } => Err(Exit::with(
                exit::of_stage(&how),
                format!(
                    "the {stage} died: {how}; what is recorded stays recorded, to go on: {}",
                    self.plan.command_line()
                ),
            )),
        }
    }

    /// Signals, the drain's limit, and the picture.
    fn look(&mut self) -> anyhow::Result<()> {
        if self.stop.is_asked() && self.asked_at.is_none() {
            self.asked_at = Some(Instant::now());
            self.screen.say(&format!(
                "stopping: running commands get up to {}; a second Ctrl-C ends at once",
                humantime::format_duration(self.plan.drain)
            ));
            self.dispatcher.drain(DrainMode::WorkersLeft);
        }
        if self.asked_at.is_some() || self.dispatcher.is_finished() {
            self.workers.drain();
        }
        if let Some(asked) = self.asked_at {
            if asked.elapsed() >= self.plan.drain {
                self.workers.stop_now();
            }
            if asked.elapsed() >= self.plan.drain + self.plan.kill_grace + Duration::from_secs(30) {
                return Err(Exit::with(
                    exit::DRAIN_TIMED_OUT,
                    format!("the drain took too long; nothing is lost, to go on: {}", self.plan.command_line()),
                ));
            }
        }
        self.note.tell(self.dispatcher.waits_for());
        let now = self.dispatcher.progress().now();
        let total = self.total_before + self.counts.added.load(Ordering::Relaxed);
        let importing = !self.counts.over.load(Ordering::Acquire);
        self.screen.show(&Shown { total, before: self.over_before, importing, now });
        if importing {
            self.dispatcher.nudge();
        }
        Ok(())
    }
}

/// Imports on a thread of its own, so that work begins with the first batch.
fn start_import(
    plan: &Plan,
    store: Arc<dyn Store>,
    to: Target,
    counts: &Arc<Counts>,
    stop: &Stop,
) -> anyhow::Result<Receiver<ImportEnd>> {
    let (done, end) = bounded(1);
    let (folder, counts, stop) = (plan.tree.inputs(), Arc::clone(counts), stop.clone());
    let looped = event_loop()?;
    std::thread::Builder::new().name("import".to_owned()).spawn(move || {
        let after = |found: &Imported| counts.added.store(found.added, Ordering::Relaxed);
        let import = inputs::import(folder.seen(), &*store, &to, after, || stop.is_asked());
        // Where nobody waits any more the process is ending anyway.
        let _ = done.send(looped.block_on(import));
    })?;
    Ok(end)
}
