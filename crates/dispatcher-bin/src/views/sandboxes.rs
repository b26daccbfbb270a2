//! `sandbox list` and `sandbox compare`: what sandboxes there are, and how their tasks have ended beside their parent's.
//!
//! Owns what better and worse mean, and that a sandbox which is not through is told to be so.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::filter::sandbox_of;
use clap::Args;
use dispatcher_core::id::{CorpusId, ServiceId, TaskId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_store::{Carve, Command, CommandPage, Corpus, Pair, Service, Store, Summary, TaskEnd, TaskFilter};
use serde::Serialize;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

/// Pairs in one read.
const PAGE: usize = 10_000;
/// Commands that are looked at together.
const OPEN_MAX: usize = 1_000;
/// Changes of causes that are told.
const CAUSES_MAX: usize = 20;

/// `sandbox compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher sandbox compare try1
  dispatcher sandbox compare try1 --changed --category latex --limit 0")]
pub struct CompareArgs {
    /// Its name.
    pub name: String,
    /// Also list the tasks whose status or cause is another than in the parent.
    #[arg(long)]
    pub changed: bool,
    /// Of those only what had or has a cause of this category.
    #[arg(long, value_name = "WORD", requires = "changed")]
    pub category: Option<String>,
    /// Of those only what had or has a cause of this second word.
    #[arg(long, value_name = "WORD", requires = "changed")]
    pub what: Option<String>,
    /// Of those only ids above this one.
    #[arg(long, value_name = "ID", default_value_t = 0, requires = "changed")]
    pub after: i64,
    /// How many of those at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 50, requires = "changed")]
    pub limit: usize,
}

/// Category and `what`; none of what has no fault.
type Cause = Option<(String, String)>;

/// What `sandbox compare --json` prints.
#[derive(Debug, Default, Serialize)]
struct Comparison {
    sandbox: String,
    parent: String,
    /// The services that did the tasks, in the parent and in the sandbox.
    parent_service: Option<String>,
    service: Option<String>,
    /// Whether it is still being carved.
    carving: bool,
    /// Its tasks; the five counts that follow add up to it.
    total: u64,
    open: u64,
    better: u64,
    worse: u64,
    same: u64,
    /// Over, but on one side nothing stands: cancelled, gone, or run again in the parent.
    apart: u64,
    /// How it was, how it is, tasks.
    by_status: Vec<(TaskEnd, TaskEnd, u64)>,
    /// Why it was so, why it is so, tasks: of those with a status on both sides, the most frequent.
    by_cause: Vec<(Cause, Cause, u64)>,
    /// The tasks that changed, where they were asked for.
    changed: Option<Vec<Pair>>,
    /// Whether there are more of them.
    more: bool,
}

/// What is counted of pairs.
#[derive(Debug, Default)]
struct Tally {
    by_status: BTreeMap<(TaskEnd, TaskEnd), u64>,
    by_cause: BTreeMap<(Cause, Cause), u64>,
}

impl Comparison {
    fn count(&mut self, pair: &Pair, tally: &mut Tally) {
        self.total += 1;
        *tally.by_status.entry((pair.was, pair.is)).or_default() += 1;
        let Some(order) = order(pair) else {
            *if pair.is == TaskEnd::Open { &mut self.open } else { &mut self.apart } += 1;
            return;
        };
        match order {
            Ordering::Less => self.better += 1,
            Ordering::Equal => self.same += 1,
            Ordering::Greater => self.worse += 1,
        }
        let causes = (pair.was_cause.clone(), pair.is_cause.clone());
        if causes != (None, None) {
            *tally.by_cause.entry(causes).or_default() += 1;
        }
    }

    fn close(&mut self, tally: Tally) {
        self.by_status = tally.by_status.into_iter().map(|((was, is), n)| (was, is, n)).collect();
        self.by_cause = tally.by_cause.into_iter().map(|((was, is), n)| (was, is, n)).collect();
        self.by_cause.sort_by_key(|(.., n)| Reverse(*n));
        self.by_cause.truncate(CAUSES_MAX);
    }
}

/// Less is better; statuses are ordered so. `None` where one side has none.
fn order(pair: &Pair) -> Option<Ordering> {
    Some(pair.is.status()?.cmp(&pair.was.status()?))
}

impl CompareArgs {
    /// Whether a pair is to be listed.
    fn lists(&self, pair: &Pair) -> bool {
        let differs = (pair.was, &pair.was_cause) != (pair.is, &pair.is_cause);
        let has = |said: &Option<String>, of: fn(&(String, String)) -> &String| {
            let meant = |word: &String| [&pair.was_cause, &pair.is_cause].into_iter().flatten().any(|c| of(c) == word);
            said.as_ref().is_none_or(meant)
        };
        let is_over = pair.is != TaskEnd::Open && pair.task > TaskId(self.after);
        self.changed && is_over && differs && has(&self.category, |c| &c.0) && has(&self.what, |c| &c.1)
    }
}

/// Compares a sandbox with its parent.
pub fn compare(args: &CompareArgs, at: &StateArgs) -> anyhow::Result<u8> {
    let compared = event_loop()?.block_on(async {
        let (_, store) = open(&at.state).await?;
        let (sandbox, parent) = sandbox_of(&store, &args.name).await?;
        let services = store.services().await.map_err(told)?;
        let service = service_of(&store, &services, sandbox.id).await?;
        let mut compared = Comparison {
            carving: carving(&store, &args.name).await?,
            parent,
            parent_service: name_of(&services, sandbox.parent_service).or_else(|| service.clone()),
            service,
            changed: args.changed.then(Vec::new),
            sandbox: sandbox.name,
            ..Comparison::default()
        };
        let most = if args.limit == 0 { usize::MAX } else { args.limit };
        let (mut tally, mut after) = (Tally::default(), TaskId(0));
        loop {
            let page = store.pairs(sandbox.id, after, PAGE).await.map_err(told)?;
            let Some(last) = page.last() else { break };
            after = last.task;
            for pair in page {
                compared.count(&pair, &mut tally);
                if let Some(changed) = compared.changed.as_mut().filter(|_| args.lists(&pair)) {
                    if changed.len() < most { changed.push(pair) } else { compared.more = true }
                }
            }
        }
        compared.close(tally);
        anyhow::Ok(compared)
    })?;
    if at.json {
        print_json(&compared)?;
    } else {
        tell(&compared);
    }
    Ok(exit::ALL_USABLE)
}

/// For a person.
fn tell(compared: &Comparison) {
    let Comparison { sandbox, parent, total, better, worse, same, open, apart, .. } = compared;
    crate::tell(&format!("{sandbox}, a sandbox of {parent}: {better} better, {worse} worse, {same} the same"));
    if compared.carving {
        crate::tell("it is still being carved: more tasks will come");
    }
    if *open > 0 {
        crate::tell(&format!("not through: {open} of {} are open", words::tasks(*total)));
    }
    if *apart > 0 {
        crate::tell(&format!("{} cannot be compared: on one side nothing stands", words::tasks(*apart)));
    }
    if !compared.by_status.is_empty() {
        crate::tell(&format!("{:>8}  {:<12} {}", "tasks", "was", "is"));
    }
    for (was, is, n) in &compared.by_status {
        crate::tell(&format!("{n:>8}  {:<12} {}", was.as_str(), is.as_str()));
    }
    if !compared.by_cause.is_empty() {
        crate::tell("causes:");
    }
    for (was, is, n) in &compared.by_cause {
        crate::tell(&format!("{n:>8}  {} -> {}", cause(was.as_ref()), cause(is.as_ref())));
    }
    let Some(changed) = &compared.changed else { return };
    crate::tell("changed:");
    for pair in changed {
        let side = |end: TaskEnd, why: &Cause| match why {
            Some((category, what)) => format!("{} {}", end.as_str(), words::kind(category, what)),
            None => end.as_str().to_owned(),
        };
        let (was, is) = (side(pair.was, &pair.was_cause), side(pair.is, &pair.is_cause));
        if !crate::tell(&format!("{:>8}  {}: {was} -> {is}", pair.task, pair.entry)) {
            return;
        }
    }
    if let (true, Some(last)) = (compared.more, changed.last()) {
        crate::say(&format!("more: add --after {}", last.task));
    }
}

fn cause(cause: Option<&(String, String)>) -> String {
    cause.map_or_else(|| "no fault".to_owned(), |(category, what)| words::kind(category, what))
}

/// A sandbox in `sandbox list --json`.
#[derive(Debug, Serialize)]
struct Line {
    id: CorpusId,
    name: String,
    parent: String,
    parent_service: Option<String>,
    service: Option<String>,
    carving: bool,
    tasks: Summary,
}

/// Lists sandboxes.
pub fn list(at: &StateArgs) -> anyhow::Result<u8> {
    let lines = event_loop()?.block_on(async {
        let (_, store) = open(&at.state).await?;
        let services = store.services().await.map_err(told)?;
        let corpora = store.corpora().await.map_err(told)?;
        let mut lines = Vec::new();
        for sandbox in corpora.iter().filter(|corpus| matches!(corpus.kind, Some(CorpusKind::Sandbox(_)))) {
            lines.push(line(&store, &services, &corpora, sandbox).await?);
        }
        anyhow::Ok(lines)
    })?;
    if at.json {
        print_json(&lines)?;
        return Ok(exit::ALL_USABLE);
    }
    for Line { name, parent, carving, tasks, service, .. } in &lines {
        let by = service.as_ref().map_or(String::new(), |name| format!(" for {name}"));
        let still = if *carving { ", still being carved" } else { "" };
        crate::tell(&format!("{name}, of {parent}{by}: {}{still}", words::counts(tasks)));
    }
    if lines.is_empty() {
        crate::say("there are no sandboxes: `dispatcher sandbox carve NAME --from CORPUS` makes one");
    }
    Ok(exit::ALL_USABLE)
}

async fn line(store: &dyn Store, services: &[Service], corpora: &[Corpus], sandbox: &Corpus) -> anyhow::Result<Line> {
    let filter = TaskFilter { corpus: Some(sandbox.id), ..TaskFilter::default() };
    let parent = corpora.iter().find(|corpus| Some(corpus.id) == sandbox.parent);
    Ok(Line {
        id: sandbox.id,
        name: sandbox.name.clone(),
        parent: parent.map_or_else(String::new, |parent| parent.name.clone()),
        parent_service: name_of(services, sandbox.parent_service),
        service: service_of(store, services, sandbox.id).await?,
        carving: carving(store, &sandbox.name).await?,
        tasks: store.summary(&filter).await.map_err(told)?,
    })
}

/// The service that does the tasks of a sandbox; they are all of one.
async fn service_of(store: &dyn Store, services: &[Service], sandbox: CorpusId) -> anyhow::Result<Option<String>> {
    let filter = TaskFilter { corpus: Some(sandbox), ..TaskFilter::default() };
    let first = store.tasks(&filter, TaskId(0), 1).await.map_err(told)?;
    Ok(name_of(services, first.first().map(|row| row.service)))
}

fn name_of(services: &[Service], id: Option<ServiceId>) -> Option<String> {
    services.iter().find(|service| Some(service.id) == id).map(|service| service.name.clone())
}

/// Whether a carve of this name is not through.
async fn carving(store: &dyn Store, name: &str) -> anyhow::Result<bool> {
    let page = CommandPage { open: true, max: OPEN_MAX, ..CommandPage::default() };
    let open = store.commands(&page).await.map_err(told)?;
    Ok(open.iter().any(|row| matches!(&row.command, Some(Command::Carve(Carve { name: of, .. })) if of == name)))
}
