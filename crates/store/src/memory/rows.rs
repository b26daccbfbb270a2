//! The maps, and what changes them.

use super::control::{Given, Seen};
use crate::limits::{PAGE, check_record, limit_after_takeover};
use crate::model::{
    Claim, ClaimedTask, CommandId, Corpus, Entry, Imported, OpenLease, PartRef, Piece, Service, TaskFilter,
};
use crate::{Answer, DispatcherId, Record};
use dispatcher_core::claim::Standing;
use dispatcher_core::finalise::{self, AT_ONCE, AttemptFacts, Decision, Move, Policy, Tally, TaskFacts, TaskState};
use dispatcher_core::id::{CorpusId, EntryName, Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::Message;
use dispatcher_core::retry::MAX_DELAY;
use dispatcher_core::time::{SpanMs, TimeMs};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is stored.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) token_key: Option<[u8; 32]>,
    pub(super) services: Vec<Service>,
    pub(super) corpora: Vec<Corpus>,
    pub(super) dispatchers: BTreeSet<DispatcherId>,
    pub(super) tasks: BTreeMap<TaskId, Row>,
    pub(super) names: BTreeMap<(ServiceId, CorpusId, EntryName), TaskId>,
    pub(super) attempts: BTreeMap<(TaskId, Epoch), AttemptFacts>,
    pub(super) results: BTreeMap<(TaskId, Epoch), Filed>,
    pub(super) papers: BTreeMap<(TaskId, Epoch), Kept>,
    pub(super) counters: BTreeMap<(ServiceId, CorpusId, String, Tally), i64>,
    pub(super) commands: BTreeMap<CommandId, Given>,
    pub(super) workers: BTreeMap<WorkerKey, Seen>,
    /// Tasks of each service claimed since the last one that was taken from the lowest priority.
    pub(super) turns: BTreeMap<ServiceId, usize>,
    pub(super) given: GivenIds,
    commits: u64,
}

/// The highest ids given so far: none is given twice.
#[derive(Debug, Default)]
pub(super) struct GivenIds {
    services: i64,
    corpora: i64,
    tasks: i64,
}

/// Of what an id is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ids {
    Service,
    Corpus,
    Task,
}

impl GivenIds {
    pub(super) fn next(&mut self, of: Ids) -> i64 {
        let last = match of {
            Ids::Service => &mut self.services,
            Ids::Corpus => &mut self.corpora,
            Ids::Task => &mut self.tasks,
        };
        *last += 1;
        *last
    }
}

/// A task's row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) service: ServiceId,
    pub(super) corpus: CorpusId,
    pub(super) entry: EntryName,
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
    pub(super) priority: i32,
    pub(super) facts: TaskFacts,
}

/// A result's row.
#[derive(Debug)]
pub(super) struct Filed {
    pub(super) order: u64,
    pub(super) run: Run,
    pub(super) standing: Standing,
    pub(super) place: Placing,
}

/// How far the files of a result are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    Waiting,
    InPlace,
    Overtaken,
}

/// Messages and parts of one attempt.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) messages: Vec<Message>,
    pub(super) parts: Vec<PartRef>,
}

impl Row {
    pub(super) const fn is_over(&self) -> bool {
        !matches!(self.facts.state, TaskState::Ready | TaskState::Leased)
    }
}

impl Rows {
    pub(super) fn new(token_key: Option<[u8; 32]>) -> Self {
        Self { token_key, ..Self::default() }
    }

    pub(super) fn import(&mut self, service: ServiceId, corpus: CorpusId, entry: &Entry, done: &mut Imported) {
        let key = (service, corpus, entry.name.clone());
        if let Some(row) = self.names.get(&key).and_then(|id| self.tasks.get(id)) {
            if row.size == entry.size && row.mtime_ns == entry.mtime_ns {
                done.known += 1;
            } else {
                done.changed.push(entry.name.clone());
            }
            return;
        }
        let id = TaskId(self.given.next(Ids::Task));
        let row = Row {
            service,
            corpus,
            entry: entry.name.clone(),
            size: entry.size,
            mtime_ns: entry.mtime_ns,
            priority: entry.priority,
            facts: new_task(),
        };
        self.tasks.insert(id, row);
        self.names.insert(key, id);
        done.added += 1;
    }

    pub(super) fn accept_change(&mut self, service: ServiceId, corpus: CorpusId, entry: &Entry, now: TimeMs) -> bool {
        let Some(id) = self.names.get(&(service, corpus, entry.name.clone())).copied() else { return false };
        let Some(row) = self.tasks.get_mut(&id) else { return false };
        if row.size == entry.size && row.mtime_ns == entry.mtime_ns {
            return false;
        }
        row.size = entry.size;
        row.mtime_ns = entry.mtime_ns;
        self.command(&[id], 1, finalise::begin_run, now).changed == 1
    }

    fn service(&self, id: ServiceId) -> Option<&Service> {
        self.services.iter().find(|s| s.id == id)
    }

    pub(super) fn claim(&mut self, ask: &Claim, now: TimeMs) -> Vec<ClaimedTask> {
        self.wake_delayed(ask.service, now);
        let Some(settings) = self.service(ask.service).map(|s| s.settings.clone()).filter(|s| !s.paused) else {
            return Vec::new();
        };
        let claimable = |row: &Row| {
            row.service == ask.service && row.facts.state == TaskState::Ready && row.facts.not_before == AT_ONCE
        };
        let max = ask.max.min(PAGE);
        let mut found: Vec<(Reverse<i32>, TaskId)> =
            self.tasks.iter().filter(|(_, row)| claimable(row)).map(|(id, r)| (Reverse(r.priority), *id)).collect();
        found.sort_unstable();
        let lowest = found.last().map(|(priority, _)| *priority);
        let (mut of_lowest, mut others): (Vec<_>, Vec<_>) = found.iter().partition(|(p, _)| Some(*p) == lowest);
        let rest = of_lowest.split_off(self.lowest_turns(ask.service, max).min(of_lowest.len()));
        others.extend(rest);
        others.truncate(max - of_lowest.len().min(max));
        let mut found = [others, of_lowest].concat();
        found.sort_unstable();
        let mut claimed = Vec::new();
        for (_, id) in found {
            let Some(row) = self.tasks.get_mut(&id) else { continue };
            let facts = &mut row.facts;
            facts.state = TaskState::Leased;
            facts.epoch = Epoch(facts.epoch.0 + 1);
            facts.owner = Some(ask.dispatcher);
            facts.limit_until = None;
            facts.timeout_ms = facts.timeout_ms.or(Some(settings.timeout_ms));
            claimed.push(claimed_task(id, row));
        }
        self.count_turns(ask.service, claimed.len());
        claimed
    }

    fn wake_delayed(&mut self, service: ServiceId, now: TimeMs) {
        let delayed = |f: &TaskFacts| f.state == TaskState::Ready && f.not_before != AT_ONCE;
        let due = |f: &TaskFacts| f.not_before <= now || f.not_before > now.after(MAX_DELAY);
        for row in self.tasks.values_mut().filter(|r| r.service == service && delayed(&r.facts) && due(&r.facts)) {
            row.facts.not_before = AT_ONCE;
        }
    }

    pub(super) fn adopt(&mut self, by: DispatcherId, gone: Option<&[DispatcherId]>, now: TimeMs) -> Vec<OpenLease> {
        let is_gone = |owner: DispatcherId| owner != by && gone.is_none_or(|gone| gone.contains(&owner));
        self.let_go_of_workers(is_gone);
        let mut leases = Vec::new();
        for (id, row) in &mut self.tasks {
            if !row.facts.owner.is_some_and(is_gone) {
                continue;
            }
            row.facts.owner = Some(by);
            let attempt = self.attempts.get(&(*id, row.facts.epoch));
            let task = claimed_task(*id, row);
            leases.push(OpenLease {
                limit_until: limit_after_takeover(row.facts.limit_until, &task, now),
                task,
                worker: attempt.and_then(|a| a.worker.clone()),
                handed_at: attempt.and_then(|a| a.handed_at),
                began_at: attempt.and_then(|a| a.began_at),
            });
        }
        leases
    }

    pub(super) fn mark_done(&mut self, record: &Record, now: TimeMs) -> Answer {
        let lease = record.lease();
        let known = self.attempts.get(&(lease.task, lease.epoch)).cloned();
        let Some(row) = self.tasks.get(&lease.task) else {
            if record.is_an_end() {
                let worker = record.worker().map(|w| w.name.clone());
                let lost = Move { tally: Tally::UnknownMessage, by: 1, dispatcher: None, worker };
                self.count((ServiceId(0), CorpusId(0)), lost);
            }
            return Answer::Unknown;
        };
        let facts = row.facts.clone();
        let settings = self.service(row.service).map(|s| s.settings.clone()).unwrap_or_default();
        let policy = Policy { budget: settings.budget, retry_delay_ms: settings.retry_delay_ms };
        let decision = match check_record(record) {
            Ok(()) => finalise::finalise(facts, known, policy, record, now),
            Err(why) => finalise::refuse(facts, known, policy, record, &why, now),
        };
        self.apply(lease.task, lease.epoch, decision)
    }

    pub(super) fn command(
        &mut self,
        ids: &[TaskId],
        max: usize,
        rule: fn(TaskFacts, Option<AttemptFacts>, TaskId, TimeMs) -> Decision<'static>,
        now: TimeMs,
    ) -> Piece {
        let piece = self.piece(ids, max);
        for id in ids {
            let Some(facts) = self.tasks.get(id).map(|row| row.facts.clone()) else { continue };
            let epoch = facts.epoch;
            let attempt = self.attempts.get(&(*id, epoch)).cloned();
            self.apply(*id, epoch, rule(facts, attempt, *id, now));
        }
        piece
    }

    fn apply(&mut self, id: TaskId, epoch: Epoch, decision: Decision<'_>) -> Answer {
        let Some(row) = self.tasks.get_mut(&id) else { return Answer::Unknown };
        let place = (row.service, row.corpus);
        let run = decision.task.run;
        row.facts = decision.task;
        if let Some(attempt) = decision.attempt {
            self.attempts.insert((id, epoch), attempt);
        }
        if let Some(standing) = decision.filed {
            for (_, earlier) in self.results.range_mut((id, Epoch(0))..=(id, Epoch(u64::MAX))) {
                if earlier.place == Placing::Waiting {
                    earlier.place = Placing::Overtaken;
                }
            }
            self.commits += 1;
            let waits = decision.papers.as_ref().is_some_and(|p| p.parts.iter().any(PartRef::is_to_be_placed));
            let place = if waits { Placing::Waiting } else { Placing::InPlace };
            self.results.insert((id, epoch), Filed { order: self.commits, run, standing, place });
        }
        if let Some(papers) = decision.papers {
            let kept = Kept { messages: papers.all_messages().cloned().collect(), parts: papers.parts.to_vec() };
            self.papers.insert((id, epoch), kept);
        }
        if let Some(filed) = self.results.get_mut(&(id, epoch)).filter(|_| decision.published) {
            filed.place = Placing::InPlace;
        }
        decision.moves.into_iter().for_each(|m| self.count(place, m));
        decision.answer
    }

    fn count(&mut self, (service, corpus): (ServiceId, CorpusId), m: Move) {
        let key = (service, corpus, m.worker.unwrap_or_default(), m.tally);
        *self.counters.entry(key).or_default() += m.by;
    }

    /// Ids above `after` that match, in order.
    pub(super) fn matching(
        &self,
        filter: &TaskFilter,
        after: TaskId,
        max: usize,
        also: impl Fn(&Row) -> bool,
    ) -> Vec<TaskId> {
        let above = self.tasks.iter().filter(|(id, _)| **id > after);
        above.filter(|(id, row)| also(row) && self.matches(filter, **id, row)).map(|(id, _)| *id).take(max).collect()
    }

    pub(super) fn matches(&self, filter: &TaskFilter, id: TaskId, row: &Row) -> bool {
        let standing = row.facts.standing;
        let said = |m: &Message| {
            filter.category.as_ref().is_none_or(|c| *c == m.category)
                && filter.what.as_ref().is_none_or(|w| *w == m.what)
        };
        let papers = || standing.and_then(|s| self.papers.get(&(id, s.epoch)));
        (filter.ids.is_empty() || filter.ids.contains(&id))
            && filter.service.is_none_or(|s| s == row.service)
            && filter.corpus.is_none_or(|c| c == row.corpus)
            && (filter.states.is_empty() || filter.states.contains(&row.facts.state))
            && (filter.statuses.is_empty() || standing.is_some_and(|s| filter.statuses.contains(&s.status)))
            && ((filter.category.is_none() && filter.what.is_none())
                || papers().is_some_and(|p| p.messages.iter().any(said)))
            && (filter.entries.is_empty() || filter.entries.contains(&row.entry))
            && filter.entry_prefix.as_ref().is_none_or(|p| row.entry.0.starts_with(&p.0))
    }
}

fn new_task() -> TaskFacts {
    TaskFacts {
        state: TaskState::Ready,
        run: Run::FIRST,
        epoch: Epoch::NONE,
        owner: None,
        charged: 0,
        freed: 0,
        timeout_ms: None,
        limit_until: None,
        not_before: AT_ONCE,
        standing: None,
        last_cause: None,
        last_reason: None,
    }
}

fn claimed_task(id: TaskId, row: &Row) -> ClaimedTask {
    ClaimedTask {
        lease: LeaseId { task: id, run: row.facts.run, epoch: row.facts.epoch },
        service: row.service,
        corpus: row.corpus,
        entry: row.entry.clone(),
        input_size: row.size,
        input_mtime_ns: row.mtime_ns,
        charged: row.facts.charged,
        timeout_ms: row.facts.timeout_ms.unwrap_or(SpanMs::ZERO),
        last_cause: row.facts.last_cause.clone(),
    }
}
