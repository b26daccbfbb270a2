//! `tasks`: a list, filtered, page by page.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::filter::FilterArgs;
use crate::places::Places;
use clap::Args;
use dispatcher_core::id::TaskId;
use dispatcher_core::text::printed;
use dispatcher_store::{Store, TaskRow};

/// Rows in one read.
const PAGE: usize = 1000;

/// `tasks`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher tasks --state papers.out --status fatal,invalid
  dispatcher tasks --state papers.out --category exit --what 2 --limit 20
  dispatcher tasks --service html --in ready --entry 2024/
  dispatcher tasks --limit 0 --json

A line has the task's id, state, status, service, corpus and input, and its cause: of what stands, or else of its last attempt.
Every command that takes tasks takes them by id or by input, as they are printed here.")]
pub struct TasksArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// Which.
    #[command(flatten)]
    pub which: FilterArgs,
    /// Only ids above this one: the last id of the page before.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub after: i64,
    /// How many at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// Lists tasks.
pub fn tasks(args: &TasksArgs) -> anyhow::Result<u8> {
    event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        let filter = args.which.filter(&store).await?;
        let places = Places::read(&store).await?;
        let table = Table::of(&places);
        let most = if args.limit == 0 { usize::MAX } else { args.limit };
        let (mut after, mut listed, mut rows) = (TaskId(args.after), 0, Vec::new());
        while listed < most {
            let page = store.tasks(&filter, after, PAGE.min(most - listed)).await.map_err(told)?;
            let Some(last) = page.last() else { break };
            after = last.id;
            listed += page.len();
            if args.at.json {
                rows.extend(page);
            } else if !page.iter().all(|row| crate::tell(&table.line(row))) {
                return anyhow::Ok(());
            }
        }
        if args.at.json {
            print_json(&rows.iter().map(|row| places.placed(row)).collect::<Vec<_>>())?;
        } else if listed == 0 {
            crate::say("no task matches");
        } else if listed == most && !store.tasks(&filter, after, 1).await.map_err(told)?.is_empty() {
            crate::say(&format!("more: add --after {after}"));
        }
        anyhow::Ok(())
    })?;
    Ok(exit::ALL_USABLE)
}

/// How wide a column of names becomes at most; what is longer pushes the rest of its line.
const NAMES_WIDE: usize = 24;

/// The columns, as wide as all pages need them.
struct Table<'a> {
    places: &'a Places,
    service: usize,
    corpus: usize,
}

impl<'a> Table<'a> {
    fn of(places: &'a Places) -> Self {
        let wide = |name: &str| printed(name).chars().count();
        let service = places.services().map(|(_, name)| wide(name)).max().unwrap_or(0);
        let corpus = places.corpora().map(|(_, name)| wide(name)).max().unwrap_or(0);
        Self { places, service: service.min(NAMES_WIDE), corpus: corpus.min(NAMES_WIDE) }
    }

    /// A task in one line.
    fn line(&self, row: &TaskRow) -> String {
        let status = row.standing.map_or("-", |stands| stands.status.as_str());
        let service = printed(self.places.service(row.service).unwrap_or("-"));
        let corpus = printed(self.places.corpus(row.corpus).unwrap_or("-"));
        let reason = row.standing.and(row.worst.as_ref()).or(row.last_cause.as_ref()).or(row.last_reason.as_ref());
        let reason = reason.map_or(String::new(), |m| format!("  {}", words::kind(&m.category, &m.what)));
        format!(
            "{:>8}  {:<9} {:<10} {service:<of$}  {corpus:<from$}  {}{reason}",
            row.id,
            row.state.as_str(),
            status,
            row.entry,
            of = self.service,
            from = self.corpus,
        )
    }
}
