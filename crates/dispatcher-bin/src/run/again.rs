//! `--again`: new runs of tasks that are over.
//!
//! Owns which tasks are meant. A new run is a fence: what an earlier run still brings never lands in it.

use crate::cli::{Again, RunArgs};
use crate::state::store_error;
use dispatcher_core::id::TaskId;
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::archive::Archive;
use dispatcher_store::{Store, TaskFilter, TaskState};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tasks in one piece of work.
const CHUNK: usize = 1000;

/// Begins the new runs that were asked for; changed inputs are found by the import.
pub async fn begin(args: &RunArgs, store: &dyn Store, archive: &dyn Archive) -> anyhow::Result<()> {
    if args.again.contains(&Again::Failed) {
        let failed = TaskFilter {
            states: vec![TaskState::Done, TaskState::Dead],
            statuses: vec![Status::Fatal, Status::Invalid],
            ..TaskFilter::default()
        };
        rerun(store, failed).await?;
    }
    if args.again.contains(&Again::Missing) {
        rerun_missing(store, archive).await?;
    }
    Ok(())
}

/// A new run of everything that matches.
async fn rerun(store: &dyn Store, filter: TaskFilter) -> anyhow::Result<()> {
    let mut after = TaskId(0);
    loop {
        let progress = store.rerun(&filter, after, CHUNK, now()).await.map_err(|e| store_error(&e))?;
        let Some(next) = progress.next else { return Ok(()) };
        after = next;
    }
}

/// A new run of every task whose result is not where it should be.
async fn rerun_missing(store: &dyn Store, archive: &dyn Archive) -> anyhow::Result<()> {
    let mut after = TaskId(0);
    loop {
        let page = store.standing_parts(after, CHUNK).await.map_err(|e| store_error(&e))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.lease.task;
        let missing = |publication: &&dispatcher_store::Publication| {
            archive.check(publication, true).is_ok_and(|faults| !faults.is_empty())
        };
        let ids: Vec<TaskId> = page.iter().filter(missing).map(|publication| publication.lease.task).collect();
        if !ids.is_empty() {
            rerun(store, TaskFilter { ids, ..TaskFilter::default() }).await?;
        }
    }
}

/// The wall clock: this happens before a dispatcher and its clock are there.
pub fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
