//! `corpora`: the sets of inputs, and how far each is for each service.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use clap::Args;
use dispatcher_core::lookup::CorpusKind;
use dispatcher_store::{Corpus, Store, Summary, TaskFilter};
use serde::Serialize;

/// `corpora`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher corpora
  dispatcher corpora --json

Each has the folder that its inputs are in, and how far each service is with it.")]
pub struct CorporaArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// A corpus in `corpora --json`.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    corpus: Corpus,
    /// Its tasks for all services.
    total: u64,
    /// Its tasks for each service that has some.
    services: Vec<OfService>,
}

/// The tasks of a corpus for one service.
#[derive(Debug, Serialize)]
struct OfService {
    service: String,
    tasks: Summary,
}

/// Lists corpora.
pub fn corpora(args: &CorporaArgs) -> anyhow::Result<u8> {
    let lines = event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        let services = store.services().await.map_err(told)?;
        let mut lines = Vec::new();
        for corpus in store.corpora().await.map_err(told)? {
            let mut line = Line { corpus, total: 0, services: Vec::new() };
            for service in &services {
                let filter =
                    TaskFilter { service: Some(service.id), corpus: Some(line.corpus.id), ..TaskFilter::default() };
                let tasks = store.summary(&filter).await.map_err(told)?;
                if tasks.total > 0 {
                    line.total += tasks.total;
                    line.services.push(OfService { service: service.name.clone(), tasks });
                }
            }
            lines.push(line);
        }
        anyhow::Ok(lines)
    })?;
    if args.at.json {
        print_json(&lines)?;
        return Ok(exit::ALL_USABLE);
    }
    for line in &lines {
        let parent = lines.iter().find(|other| Some(other.corpus.id) == line.corpus.parent);
        let what = match (line.corpus.kind, parent) {
            (Some(CorpusKind::Ordinary), _) => String::new(),
            (Some(CorpusKind::Sandbox(_)), Some(parent)) => format!(", a sandbox of {}", parent.corpus.name),
            (Some(CorpusKind::Sandbox(_)), None) => ", a sandbox of what is gone".to_owned(),
            (None, _) => ", and its row does not say what it is: nothing is written for it".to_owned(),
        };
        let Corpus { name, root, .. } = &line.corpus;
        crate::tell(&format!("{name}: {} in {root}{what}", words::tasks(line.total)));
        for of in &line.services {
            crate::tell(&format!("  {}: {}", of.service, words::counts(&of.tasks)));
        }
    }
    if lines.is_empty() {
        crate::say("there are no corpora: `dispatcher import DIR --service NAME` makes one");
    }
    Ok(exit::ALL_USABLE)
}
