//! `tasks`: a list, filtered, page by page.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::filter::FilterArgs;
use clap::Args;
use dispatcher_core::id::TaskId;
use dispatcher_store::{Store, TaskRow};

/// Rows in one read.
const PAGE: usize = 1000;

/// `tasks`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher tasks --state papers.out --status fatal,invalid
  dispatcher tasks --state papers.out --category exit --what 2 --limit 20
  dispatcher tasks --service html --in ready --entry 2024/")]
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
        let most = if args.limit == 0 { usize::MAX } else { args.limit };
        let (mut after, mut listed, mut rows) = (TaskId(args.after), 0, Vec::new());
        while listed < most {
            let page = store.tasks(&filter, after, PAGE.min(most - listed)).await.map_err(told)?;
            let Some(last) = page.last() else { break };
            after = last.id;
            listed += page.len();
            if args.at.json {
                rows.extend(page);
            } else if !page.iter().all(|row| crate::tell(&line(row))) {
                return anyhow::Ok(());
            }
        }
        if args.at.json {
            print_json(&rows)?;
        } else if listed == most && !store.tasks(&filter, after, 1).await.map_err(told)?.is_empty() {
            crate::say(&format!("more: add --after {after}"));
        }
        anyhow::Ok(())
    })?;
    Ok(exit::ALL_USABLE)
}

/// A task in one line.
fn line(row: &TaskRow) -> String {
    let status = row.standing.map_or("-", |stands| stands.status.as_str());
    let reason = row.last_cause.as_ref().or(row.last_reason.as_ref());
    let reason = reason.map_or(String::new(), |m| format!("  {}", words::kind(&m.category, &m.what)));
    format!("{:>8}  {:<9} {:<10} {}{reason}", row.id, row.state.as_str(), status, row.entry)
}
