//! What is read from the maps.

use super::rows::{Filed, Placing, Row, Rows};
use crate::limits::{CAUSES, worst};
use crate::model::{
    AttemptRow, Audit, Difference, Outlook, Publication, ResultRow, Story, Summary, TaskFilter, TaskRow, Trail,
};
use dispatcher_core::finalise::{AT_ONCE, Tally, TaskState};
use dispatcher_core::id::{CorpusId, Epoch, LeaseId, ServiceId, TaskId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Rows {
    pub(super) fn summary(&self, filter: &TaskFilter) -> Summary {
        let (mut by_state, mut by_status, mut causes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut summary = Summary::default();
        for (id, row) in self.tasks.iter().filter(|(id, row)| self.matches(filter, **id, row)) {
            summary.total += 1;
            *by_state.entry(row.facts.state).or_insert(0) += 1;
            let newest = self.attempts.get(&(*id, row.facts.epoch)).filter(|attempt| attempt.ending.is_none());
            if let Some(out) = newest.filter(|_| row.facts.state == TaskState::Leased) {
                summary.handed_out += 1;
                summary.running += u64::from(out.began_at.is_some());
            }
            let Some(standing) = row.facts.standing else { continue };
            *by_status.entry(standing.status).or_insert(0) += 1;
            let papers = self.papers.get(&(*id, standing.epoch));
            if let Some(m) = papers.and_then(|p| worst(p.messages.iter())).filter(|_| !standing.status.is_usable()) {
                *causes.entry((m.category.clone(), m.what.clone())).or_insert(0) += 1;
            }
        }
        let mut causes: Vec<_> = causes.into_iter().map(|((category, what), n)| (category, what, n)).collect();
        causes.sort_by_key(|(_, _, n)| Reverse(*n));
        causes.truncate(CAUSES);
        summary.by_state = by_state.into_iter().collect();
        summary.by_status = by_status.into_iter().collect();
        summary.causes = causes;
        let meant = |id: TaskId| self.tasks.get(&id).is_some_and(|row| self.matches(filter, id, row));
        summary.unpublished = self.waiting().filter(|((id, _), _)| meant(*id)).count() as u64;
        summary
    }

    fn waiting(&self) -> impl Iterator<Item = (&(TaskId, Epoch), &Filed)> {
        self.results.iter().filter(|(_, filed)| filed.place == Placing::Waiting)
    }

    pub(super) fn task_row(&self, id: TaskId) -> Option<TaskRow> {
        let row = self.tasks.get(&id)?;
        let papers = row.facts.standing.and_then(|s| self.papers.get(&(id, s.epoch)));
        Some(TaskRow {
            id,
            service: row.service,
            corpus: row.corpus,
            entry: row.entry.clone(),
            input_size: row.size,
            state: row.facts.state,
            run: row.facts.run,
            epoch: row.facts.epoch,
            charged: row.facts.charged,
            standing: row.facts.standing,
            not_before: row.facts.not_before,
            last_cause: row.facts.last_cause.clone(),
            last_reason: row.facts.last_reason.clone(),
            worst: papers.and_then(|p| worst(p.messages.iter())).cloned(),
        })
    }

    pub(super) fn outlook(&self, id: TaskId) -> Option<Outlook> {
        let row = self.tasks.get(&id).filter(|row| !row.is_over())?;
        let place = |id: TaskId, row: &Row| (Reverse(row.priority), id);
        let queued: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, q)| q.service == row.service && q.facts.state == TaskState::Ready)
            .filter(|(_, q)| q.facts.not_before == AT_ONCE)
            .map(|(id, q)| place(*id, q))
            .collect();
        Some(Outlook {
            priority: row.priority,
            ahead: queued.iter().filter(|other| **other < place(id, row)).count() as u64,
            queued: queued.len() as u64,
            timeout_ms: row.facts.timeout_ms,
            limit_until: row.facts.limit_until,
        })
    }

    pub(super) fn trail(&self, id: TaskId) -> Option<Trail> {
        let row = self.tasks.get(&id)?;
        let newest = LeaseId { task: id, run: row.facts.run, epoch: row.facts.epoch };
        let attempts = self.attempts.range((id, Epoch(0))..=(id, Epoch(u64::MAX))).map(|(_, attempt)| attempt.clone());
        Some(Trail { newest, service: row.service, attempts: attempts.collect() })
    }

    pub(super) fn story(&self, id: TaskId) -> Option<Story> {
        let task = self.task_row(id)?;
        let of_task = (id, Epoch(0))..=(id, Epoch(u64::MAX));
        let kept = |epoch: Epoch| {
            self.papers.get(&(id, epoch)).map(|p| (p.messages.clone(), p.parts.clone())).unwrap_or_default()
        };
        let mut filed: Vec<_> = self.results.range(of_task.clone()).collect();
        filed.sort_by_key(|(_, filed)| filed.order);
        let result = |((_, epoch), filed): (&(TaskId, Epoch), &Filed)| {
            let (messages, parts) = kept(*epoch);
            ResultRow {
                run: filed.run,
                epoch: *epoch,
                status: filed.standing.status,
                origin: filed.standing.origin,
                published: filed.place == Placing::InPlace,
                messages,
                parts,
            }
        };
        let results = filed.into_iter().map(result).collect();
        let mut attempts = Vec::new();
        for (key, a) in self.attempts.range(of_task) {
            let (messages, parts) = if self.results.contains_key(key) { Default::default() } else { kept(a.epoch) };
            attempts.push(AttemptRow {
                run: a.run,
                epoch: a.epoch,
                worker: a.worker.clone(),
                handed_at: a.handed_at,
                began_at: a.began_at,
                ended_at: a.ended_at,
                ending: a.ending,
                charged: a.charged,
                why: a.why.clone(),
                messages,
                parts,
            });
        }
        Some(Story { task, attempts, results })
    }

    pub(super) fn unpublished(&self, after: Option<LeaseId>, max: usize) -> Vec<Publication> {
        let after = after.and_then(|l| self.results.get(&(l.task, l.epoch))).map_or(0, |filed| filed.order);
        let mut waiting: Vec<_> = self.waiting().filter(|(_, filed)| filed.order > after).collect();
        waiting.sort_by_key(|(_, filed)| filed.order);
        waiting.into_iter().filter_map(|((id, epoch), filed)| self.publication(*id, *epoch, filed)).take(max).collect()
    }

    pub(super) fn standing_parts(&self, after: TaskId, max: usize) -> Vec<Publication> {
        let standing = |(id, row): (&TaskId, &Row)| {
            let epoch = row.facts.standing?.epoch;
            self.publication(*id, epoch, self.results.get(&(*id, epoch))?)
        };
        let above = self.tasks.iter().filter(|(id, _)| **id > after);
        above.filter_map(standing).filter(|p| !p.parts.is_empty()).take(max).collect()
    }

    fn publication(&self, id: TaskId, epoch: Epoch, filed: &Filed) -> Option<Publication> {
        Some(Publication {
            lease: LeaseId { task: id, run: filed.run, epoch },
            entry: self.tasks.get(&id)?.entry.clone(),
            status: filed.standing.status,
            parts: self.papers.get(&(id, epoch)).map(|p| p.parts.clone()).unwrap_or_default(),
            published: filed.place == Placing::InPlace,
        })
    }

    pub(super) fn audit(&self) -> Audit {
        let mut found: BTreeMap<(ServiceId, CorpusId, String, Tally), i64> = BTreeMap::new();
        let mut audit = Audit::default();
        let mut endings = BTreeMap::new();
        for ((id, _), attempt) in &self.attempts {
            let place = self.tasks.get(id).map_or((ServiceId(0), CorpusId(0)), |row| (row.service, row.corpus));
            let worker = attempt.worker.as_ref().map(|w| w.name.clone()).unwrap_or_default();
            *found.entry((place.0, place.1, worker.clone(), Tally::Dispatched)).or_default() += 1;
            audit.dispatched += 1;
            match attempt.ending {
                Some(ending) => {
                    *found.entry((place.0, place.1, worker, Tally::Ending(ending))).or_default() += 1;
                    *endings.entry(ending).or_insert(0) += 1;
                }
                None => audit.out += 1,
            }
        }
        audit.endings = endings.into_iter().collect();
        let of_attempts = |tally: Tally| matches!(tally, Tally::Dispatched | Tally::Ending(_));
        let keys = found.keys().chain(self.counters.keys().filter(|(.., tally)| of_attempts(*tally)));
        for key in keys.collect::<std::collections::BTreeSet<_>>() {
            let (counted, rows) = (self.counters.get(key).copied().unwrap_or(0), found.get(key).copied().unwrap_or(0));
            if counted != rows {
                let what = format!("attempts {:?} of service {}, corpus {}, worker {}", key.3, key.0.0, key.1.0, key.2);
                audit.differences.push(Difference { what, counted, found: rows });
            }
        }
        audit.differences.extend(self.faults());
        audit
    }

    /// What must not be.
    fn faults(&self) -> Vec<Difference> {
        let count = |what: &str, wrong: &dyn Fn(&TaskId, &Row) -> bool| Difference {
            what: what.to_owned(),
            counted: 0,
            found: self.tasks.iter().filter(|(id, row)| wrong(id, row)).count() as i64,
        };
        let is = |row: &Row, states: &[TaskState]| states.contains(&row.facts.state);
        let faults = [
            count("tasks that are not over and have a result", &|_, r| {
                is(r, &[TaskState::Ready, TaskState::Leased]) && r.facts.standing.is_some()
            }),
            count("tasks that are over and have no result", &|_, r| {
                is(r, &[TaskState::Done, TaskState::Dead]) && r.facts.standing.is_none()
            }),
            count("leased tasks of no dispatcher", &|_, r| is(r, &[TaskState::Leased]) && r.facts.owner.is_none()),
            count("tasks of a dispatcher that are not leased", &|_, r| {
                is(r, &[TaskState::Ready, TaskState::Cancelled, TaskState::Dead]) && r.facts.owner.is_some()
            }),
            count("tasks whose result is missing or another", &|id, r| {
                r.facts.standing.is_some_and(|s| self.results.get(&(*id, s.epoch)).is_none_or(|f| f.standing != s))
            }),
            count("attempts that are out and belong to no open lease", &|id, r| {
                let of_task = self.attempts.range((*id, Epoch(0))..=(*id, Epoch(u64::MAX)));
                let mut out = of_task.filter(|(_, a)| a.ending.is_none());
                out.any(|(_, a)| r.facts.owner.is_none() || a.epoch != r.facts.epoch)
            }),
        ];
        faults.into_iter().filter(|fault| fault.found > 0).collect()
    }
}
