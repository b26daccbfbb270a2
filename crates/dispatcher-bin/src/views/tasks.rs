//! `tasks`: a list, filtered, page by page.

use super::{event_loop, open, print_json, told, words};
use crate::cli::{StateWord, StatusWord, TasksArgs};
use crate::exit;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::Status;
use dispatcher_store::{Store, TaskFilter, TaskRow, TaskState};
use std::os::unix::ffi::OsStrExt;

/// Rows in one read.
const PAGE: usize = 1000;

/// Lists tasks.
pub fn tasks(args: &TasksArgs) -> anyhow::Result<u8> {
    let filter = filter(args);
    event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
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

/// The filter that the arguments mean.
fn filter(args: &TasksArgs) -> TaskFilter {
    TaskFilter {
        states: args.states.iter().map(|word| state_of(*word)).collect(),
        statuses: args.status.iter().map(|word| status_of(*word)).collect(),
        category: args.category.clone(),
        what: args.what.clone(),
        entry_prefix: args.entry.as_ref().map(|prefix| EntryName(prefix.as_bytes().to_vec())),
        ..TaskFilter::default()
    }
}

const fn state_of(word: StateWord) -> TaskState {
    match word {
        StateWord::Ready => TaskState::Ready,
        StateWord::Leased => TaskState::Leased,
        StateWord::Done => TaskState::Done,
        StateWord::Dead => TaskState::Dead,
        StateWord::Cancelled => TaskState::Cancelled,
    }
}

const fn status_of(word: StatusWord) -> Status {
    match word {
        StatusWord::NoProblem => Status::NoProblem,
        StatusWord::Warning => Status::Warning,
        StatusWord::Error => Status::Error,
        StatusWord::Fatal => Status::Fatal,
        StatusWord::Invalid => Status::Invalid,
    }
}

/// A task in one line.
fn line(row: &TaskRow) -> String {
    let status = row.standing.map_or("-", |stands| stands.status.as_str());
    let reason = row.last_cause.as_ref().or(row.last_reason.as_ref());
    let reason = reason.map_or(String::new(), |m| format!("  {}", words::kind(&m.category, &m.what)));
    format!("{:>8}  {:<9} {:<10} {}{reason}", row.id, words::state(row.state), status, row.entry)
}
