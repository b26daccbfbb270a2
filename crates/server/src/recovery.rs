//! What a crash left, put in order before anything starts (rule S4).
//!
//! Owns the first look at store and archive: leases of a process that is gone, staged files that no row names. Nothing
//! that has a result runs again; what was merely handed out goes back, uncharged where its worker died with us.

use crate::clock::Clock;
use crate::dispatcher::{DispatcherConfig, Workers};
use dispatcher_core::id::{LeaseId, WorkerKey};
use dispatcher_core::report::{Ending, Message, Severity};
use dispatcher_core::time::TimeMs;
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::TokenText;
use dispatcher_store::archive::Archive;
use dispatcher_store::{Command, CommandOutcome, CommandPage, DispatcherId, OpenLease, Record, Store, WorkerRow};
use std::collections::HashSet;

/// Workers of an earlier process that are looked for: more than may be connected at once.
const WORKERS_MAX: usize = 10_000;
/// Rows in one transaction or page.
const CHUNK: usize = 1024;

/// Puts things in order: drains of processes that are gone are over, strays are swept, leases of processes that are gone become ours. Those of workers that died with
/// their process go back at once; the others are returned, for their workers may come back.
///
/// # Errors
/// In words, where the store or the archive cannot be read.
pub async fn recover(
    store: &dyn Store,
    archive: &dyn Archive,
    by: DispatcherId,
    config: &DispatcherConfig,
    key: &TokenKey,
    clock: &Clock,
) -> Result<Adopted, String> {
    end_drains(store, clock.now()).await?;
    let kept = unpublished(store).await?;
    let swept = archive.sweep(&|lease| kept.contains(&lease)).map_err(|e| e.to_string())?;
    let now = clock.now();
    let workers = store.workers(WORKERS_MAX).await.map_err(|e| e.to_string())?;
    // Where processes were killed in quick succession, a worker may not have been back at the last one yet.
    let may_live = |worker: &WorkerRow| worker.connected || now.since(worker.heard_at) < config.fleet.dead_after;
    let expected = workers.into_iter().filter(may_live).map(|worker| worker.worker).collect();
    let open = store.adopt(by, None, now).await.map_err(|e| e.to_string())?;
    if swept > 0 || !open.is_empty() {
        tracing::info!(leases = open.len(), files = swept, "took over what an earlier process left");
    }
    let Workers::Ours { worked_on } = &config.workers else { return Ok(Adopted { leases: open, expected }) };
    let before = Before::of(worked_on, key, &config.host);
    let records: Vec<Record> = open.into_iter().map(|lease| before.give_back(lease, now)).collect();
    for chunk in records.chunks(CHUNK) {
        store.mark_done(chunk, now).await.map_err(|e| e.to_string())?;
    }
    Ok(Adopted::default())
}

/// Ends what was commanded of the process before this one and means nothing to this one: to drain. What is commanded from
/// now on is meant for us.
async fn end_drains(store: &dyn Store, now: TimeMs) -> Result<(), String> {
    let mut page = CommandPage { open: true, max: CHUNK, ..CommandPage::default() };
    loop {
        let open = store.commands(&page).await.map_err(|e| e.to_string())?;
        let Some(last) = open.last() else { return Ok(()) };
        page.after = Some(last.id);
        for row in open.iter().filter(|row| matches!(row.command, Some(Command::Drain { .. }))) {
            tracing::info!(
                command = row.id.0,
                actor = row.actor,
                "a drain of the dispatcher before this one has no effect"
            );
            let error =
                "the dispatcher that it was meant for ended before it was told; the next one goes on".to_owned();
            let outcome = CommandOutcome { changed: 0, error: Some(error) };
            store.conclude(row.id, &outcome, now).await.map_err(|e| e.to_string())?;
        }
    }
}

/// What was taken over from an earlier process whose workers live on.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Leases that are out, or were claimed and may be.
    pub leases: Vec<OpenLease>,
    /// The workers that were connected to it, or to one shortly before it, when they were noted last.
    pub expected: HashSet<WorkerKey>,
}

/// What is known of the process before this one, whose workers died with it.
#[derive(Debug)]
struct Before {
    worked_on: HashSet<LeaseId>,
    host: String,
}

impl Before {
    /// From the tokens of what it was working on at its end; what was not signed here is ignored.
    fn of(tokens: &[TokenText], key: &TokenKey, host: &str) -> Self {
        let worked_on = tokens.iter().filter_map(|token| key.read(token).ok()).collect();
        Self { worked_on, host: host.to_owned() }
    }

    /// One of its leases as a record. A hand-out is written with the next batch, and a task can kill the process before
    /// that: what it was working on counts as handed out all the same, or such a task would come back for ever (rule A4).
    fn give_back(&self, open: OpenLease, now: TimeMs) -> Record {
        let lease = open.task.lease;
        let unwritten = || WorkerKey { name: self.host.clone(), incarnation: "unknown".to_owned() };
        let Some(worker) = open.worker.or_else(|| self.worked_on.contains(&lease).then(unwritten)) else {
            return Record::Returned { lease };
        };
        Record::Ended {
            lease,
            worker: Some(worker),
            ending: Ending::WorkerLost,
            // Its worker was part of that process: free of charge (rule A2).
            began: false,
            why: Message {
                severity: Severity::Info,
                category: "dispatcher".to_owned(),
                what: "process_lost".to_owned(),
                details: "the process that worked on it ended before it had a result".to_owned(),
            },
            messages: Vec::new(),
            parts: Vec::new(),
            at: now,
        }
    }
}

/// The leases whose staged files are still needed.
async fn unpublished(store: &dyn Store) -> Result<HashSet<LeaseId>, String> {
    let (mut leases, mut after) = (HashSet::new(), None);
    loop {
        let page = store.unpublished(after, CHUNK).await.map_err(|e| e.to_string())?;
        let Some(last) = page.last() else { return Ok(leases) };
        after = Some(last.lease);
        leases.extend(page.iter().map(|publication| publication.lease));
    }
}
