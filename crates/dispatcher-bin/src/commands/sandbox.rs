//! `sandbox`: part of a corpus tried again, beside what the corpus has published.
//!
//! Owns which tasks a carve means, and that nobody drops a sandbox without having been told how many tasks go with it.
//! What of a sandbox is shown is the views'.

use super::Given;
use crate::cli::StateArgs;
use crate::exit::Exit;
use crate::filter::{MarkArgs, corpus_of, sandbox_of, service_of};
use crate::views::sandboxes::{self, CompareArgs};
use crate::views::{event_loop, open, told, words};
use clap::{Args, Subcommand};
use dispatcher_core::id::{CorpusId, TaskId};
use dispatcher_store::{Carve, Command, Named, Store, TaskFilter};
use std::ffi::OsString;

/// The largest sample: its ids are written down with the command.
const SAMPLE_MAX: u64 = 10_000;
/// Tasks in one read.
const PAGE: usize = 10_000;

/// `sandbox`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher sandbox carve try1 --from papers --status fatal,invalid
  dispatcher sandbox carve try2 --from papers --sample 500 --service html-new
  dispatcher sandbox compare try1 --changed
  dispatcher sandbox drop try1 --yes

A sandbox is a corpus of its own with inputs of its parent: workers get its tasks like any others, its
results lie in a folder of their own, and nothing that the parent has published or stored changes.")]
pub struct SandboxArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: SandboxAction,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// What can be done with sandboxes.
#[derive(Debug, Subcommand)]
pub enum SandboxAction {
    /// Make a sandbox of those tasks of a corpus that a filter means.
    Carve(CarveArgs),
    /// How its tasks have ended beside those of its parent, by status and by cause.
    Compare(CompareArgs),
    /// List sandboxes.
    #[command(after_help = "Examples:\n  dispatcher sandbox list\n  dispatcher sandbox list --json")]
    List,
    /// Delete a sandbox with its tasks and its result files.
    Drop(DropArgs),
}

/// `sandbox carve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher sandbox carve try1 --from papers --status fatal --category latex
  dispatcher sandbox carve try2 --from papers --entry 2024/ --limit 100
  dispatcher sandbox carve try3 --from papers --of html --sample 500

Nothing is copied: tasks of their own are made for inputs of the parent. Workers get the first ones at once.")]
pub struct CarveArgs {
    /// Its name; no corpus may have it.
    pub name: String,
    /// Out of which corpus.
    #[arg(long, value_name = "CORPUS")]
    pub from: String,
    /// Of which service's tasks; needed only where the corpus has tasks of several.
    #[arg(long, value_name = "SERVICE")]
    pub of: Option<String>,
    /// The service that is to do them [default: theirs].
    #[arg(long, value_name = "SERVICE")]
    pub service: Option<String>,
    /// Only these tasks, by id or by input; one whose input has a comma by its id.
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub ids: Vec<OsString>,
    /// What is so of them.
    #[command(flatten)]
    pub marks: MarkArgs,
    /// At most so many of them, the oldest ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample")]
    pub limit: Option<u64>,
    /// So many of them at random; at most 10,000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SAMPLE_MAX))]
    pub sample: Option<u64>,
}

/// `sandbox drop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher sandbox drop try1
  dispatcher sandbox drop try1 --yes

Without --yes it says what would go. Nothing of the parent changes.")]
pub struct DropArgs {
    /// Its name.
    pub name: String,
    /// Drop its tasks and results too.
    #[arg(long)]
    pub yes: bool,
}

/// Does what is asked for.
pub fn sandbox(args: &SandboxArgs) -> anyhow::Result<u8> {
    match &args.action {
        SandboxAction::Carve(carve) => carve.carve(&args.at),
        SandboxAction::Compare(compare) => sandboxes::compare(compare, &args.at),
        SandboxAction::List => sandboxes::list(&args.at),
        SandboxAction::Drop(drop) => drop.drop_it(&args.at),
    }
}

impl CarveArgs {
    fn carve(&self, at: &StateArgs) -> anyhow::Result<u8> {
        let given = event_loop()?.block_on(async {
            let (state, store) = open(&at.state).await?;
            if state.identity().exists() {
                return Err(Exit::usage(format!(
                    "{} belongs to a `dispatcher run`, which has one command: to try another one on its inputs, run it with \
                     another --out",
                    state.path().display()
                )));
            }
            let carve = self.command(&store).await?;
            Given::give(&state, &store, &Command::Carve(carve)).await
        })?;
        let done = format!("carved {} of {} into the sandbox {}", words::tasks(given.changed), self.from, self.name);
        let code = given.report(at.json, &done)?;
        if !at.json {
            crate::say(&format!("`dispatcher sandbox compare {}` tells how they do", self.name));
        }
        Ok(code)
    }

    async fn command(&self, store: &dyn Store) -> anyhow::Result<Carve> {
        let corpus = corpus_of(store, &self.from).await?;
        let of = self.of_service(store, corpus).await?;
        let service = match &self.service {
            Some(name) => Some(
                service_of(store, name)
                    .await
                    .map_err(|unknown| Exit::usage(format!("{unknown}; `dispatcher services set {name}` makes it")))?,
            ),
            None => None,
        };
        let place = TaskFilter { corpus: Some(corpus), service: of, ..TaskFilter::default() };
        let mut filter = self.marks.filter(store, &self.ids, place.clone()).await?;
        if let Some(n) = self.sample {
            let ids = sample(store, &filter, n).await?;
            if ids.is_empty() {
                return Err(Exit::with(crate::exit::SOME_NOT, "nothing matches: no sandbox was made"));
            }
            // What is chosen is chosen, whatever becomes of it in the parent meanwhile.
            filter = TaskFilter { ids, ..place };
        }
        Ok(Carve { name: self.name.clone(), filter, service, most: self.limit })
    }

    /// The service of the parent's tasks that are meant.
    async fn of_service(
        &self,
        store: &dyn Store,
        corpus: CorpusId,
    ) -> anyhow::Result<Option<dispatcher_core::id::ServiceId>> {
        if let Some(name) = &self.of {
            return service_of(store, name).await.map(Some);
        }
        let mut found = Vec::new();
        for service in store.services().await.map_err(told)? {
            let filter = TaskFilter { service: Some(service.id), corpus: Some(corpus), ..TaskFilter::default() };
            if !store.tasks(&filter, TaskId(0), 1).await.map_err(told)?.is_empty() {
                found.push(service);
            }
        }
        match &found[..] {
            [] => Err(Exit::usage(format!("the corpus {:?} has no tasks", self.from))),
            [one] => Ok(Some(one.id)),
            several => {
                let names: Vec<_> = several.iter().map(|service| service.name.as_str()).collect();
                Err(Exit::usage(format!(
                    "the corpus {:?} has tasks of several services: say of which with --of ({})",
                    self.from,
                    names.join(", ")
                )))
            }
        }
    }
}

/// So many of the tasks that match, each as likely as any other, in id order.
async fn sample(store: &dyn Store, filter: &TaskFilter, n: u64) -> anyhow::Result<Vec<TaskId>> {
    let (mut chosen, mut seen, mut after) = (Vec::new(), 0_u64, TaskId(0));
    loop {
        let page = store.tasks(filter, after, PAGE).await.map_err(told)?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for row in page {
            seen += 1;
            if seen <= n {
                chosen.push(row.id);
                continue;
            }
            // The newcomer takes a place with the chance n of seen.
            let place = getrandom::u64().map_err(|e| anyhow::anyhow!("the system gave no random bytes: {e}"))? % seen;
            if let Some(had) = usize::try_from(place).ok().and_then(|place| chosen.get_mut(place)) {
                *had = row.id;
            }
        }
    }
    chosen.sort_unstable();
    Ok(chosen)
}

impl DropArgs {
    fn drop_it(&self, at: &StateArgs) -> anyhow::Result<u8> {
        let given = event_loop()?.block_on(async {
            let (state, store) = open(&at.state).await?;
            let (sandbox, _) = sandbox_of(&store, &self.name).await?;
            let filter = TaskFilter { corpus: Some(sandbox.id), ..TaskFilter::default() };
            let tasks = store.summary(&filter).await.map_err(told)?.total;
            if tasks > 0 && !self.yes {
                return Err(Exit::usage(format!(
                    "the sandbox {:?} has {}: they would be deleted with their results; say --yes",
                    self.name,
                    words::tasks(tasks)
                )));
            }
            Given::give(&state, &store, &Command::Delete { what: Named::Sandbox(self.name.clone()) }).await
        })?;
        given.report(at.json, &format!("dropped the sandbox {} and {}", self.name, words::tasks(given.changed)))
    }
}
