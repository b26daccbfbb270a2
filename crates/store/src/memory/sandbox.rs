//! Sandboxes in the maps.

use super::rows::{Ids, Rows};
use crate::limits::{self, worst};
use crate::model::{
    Carve, CarvePlaces, Command, CommandId, Corpus, Doomed, Entry, Imported, Named, Pair, Piece, TaskEnd, TaskFilter,
};
use dispatcher_core::id::{CorpusId, Epoch, LeaseId, TaskId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::report::Status;

impl Rows {
    pub(super) fn corpus_named(&self, name: &str) -> Option<&Corpus> {
        self.corpora.iter().find(|c| c.name == name)
    }

    pub(super) fn carve(&mut self, carve: &Carve, after: TaskId, made: u64, max: usize) -> Piece {
        let sandbox = if after == TaskId(0) {
            match self.begin_carve(carve) {
                Ok(sandbox) => sandbox,
                Err(why) => return Piece::refused(why),
            }
        } else {
            match self.corpus_named(&carve.name) {
                Some(found) if carve.has_made(found) => found.id,
                _ => return Piece::refused(carve.lost()),
            }
        };
        let room = carve.room(made);
        let max = limits::piece(max.min(room));
        let mut ids = self.matching(&carve.filter, after, max, |_| true);
        let full = ids.len() == max;
        ids.truncate(room);
        let next = ids.last().copied().filter(|_| full && ids.len() < room);
        let changed = self.add_carved(carve, sandbox, &ids);
        if next.is_none() && made + changed == 0 {
            self.corpora.retain(|c| c.id != sandbox);
            return Piece::refused(carve.nothing_matches());
        }
        Piece { changed, next, ..Piece::default() }
    }

    fn begin_carve(&mut self, carve: &Carve) -> Result<CorpusId, String> {
        let is = |id| self.services.iter().any(|s| Some(s.id) == id);
        let parent = self.corpora.iter().find(|c| Some(c.id) == carve.filter.corpus).cloned();
        let is_taken = self.corpus_named(&carve.name).is_some();
        let places = CarvePlaces { is_taken, parent, of: is(carve.filter.service), by: is(carve.by()) };
        carve.check(&places)?;
        let parent = places.parent.ok_or_else(|| carve.lost())?;
        let id = CorpusId(self.given.next(Ids::Corpus));
        self.corpora.push(Corpus {
            id,
            name: carve.name.clone(),
            root: parent.root,
            kind: Some(CorpusKind::Sandbox(id)),
            parent: Some(parent.id),
            parent_service: carve.filter.service,
        });
        Ok(id)
    }

    fn add_carved(&mut self, carve: &Carve, sandbox: CorpusId, ids: &[TaskId]) -> u64 {
        let Some(service) = carve.by() else { return 0 };
        let mut done = Imported::default();
        for id in ids {
            let Some(row) = self.tasks.get(id) else { continue };
            let entry =
                Entry { name: row.entry.clone(), size: row.size, mtime_ns: row.mtime_ns, priority: row.priority };
            self.import(service, sandbox, &entry, &mut done);
        }
        done.added
    }

    pub(super) fn pairs(&self, sandbox: CorpusId, after: TaskId, max: usize) -> Vec<Pair> {
        let Some(corpus) = self.corpora.iter().find(|c| c.id == sandbox) else { return Vec::new() };
        let Some(parent) = corpus.parent else { return Vec::new() };
        let of = TaskFilter { corpus: Some(sandbox), ..TaskFilter::default() };
        let pair = |task: TaskId| {
            let row = self.tasks.get(&task)?;
            let key = (corpus.parent_service.unwrap_or(row.service), parent, row.entry.clone());
            let parent = self.names.get(&key).copied();
            let ((is, is_cause), (was, was_cause)) = (self.end_of(Some(task)), self.end_of(parent));
            Some(Pair { task, parent, entry: row.entry.clone(), was, was_cause, is, is_cause })
        };
        self.matching(&of, after, max, |_| true).into_iter().filter_map(pair).collect()
    }

    fn end_of(&self, id: Option<TaskId>) -> (TaskEnd, Option<(String, String)>) {
        let Some((id, row)) = id.and_then(|id| Some((id, self.tasks.get(&id)?))) else { return (TaskEnd::Gone, None) };
        let standing = row.facts.standing;
        let end = TaskEnd::of(row.facts.state, standing.map(|s| s.status));
        let papers = standing.and_then(|s| self.papers.get(&(id, s.epoch)));
        let has_cause = end.status().is_some_and(|status| status != Status::NoProblem);
        let cause = papers.filter(|_| has_cause).and_then(|p| worst(p.messages.iter()));
        (end, cause.map(|m| (m.category.clone(), m.what.clone())))
    }

    pub(super) fn doomed(&self, command: CommandId, max: usize) -> Vec<Doomed> {
        let Some((Command::Delete { what: what @ Named::Sandbox(name) }, after)) = self.open_command(command) else {
            return Vec::new();
        };
        let Some(corpus) = self.corpus_named(name).filter(|corpus| what.check(corpus, &[]).is_ok()) else {
            return Vec::new();
        };
        let of = TaskFilter { corpus: Some(corpus.id), ..TaskFilter::default() };
        let mut all = Vec::new();
        for task in self.matching(&of, after, limits::piece(max), |_| true) {
            let Some(row) = self.tasks.get(&task) else { continue };
            let Some(service) = self.services.iter().find(|s| s.id == row.service) else { continue };
            for ((_, epoch), kept) in self.papers.range((task, Epoch(0))..=(task, Epoch(u64::MAX))) {
                let filed = self.results.get(&(task, *epoch)).map(|filed| filed.run);
                let tried = self.attempts.get(&(task, *epoch)).map(|attempt| attempt.run);
                let lease = LeaseId { task, run: filed.or(tried).unwrap_or(row.facts.run), epoch: *epoch };
                if !kept.parts.is_empty() {
                    let (service, entry) = (service.name.clone(), row.entry.clone());
                    all.push(Doomed { corpus: corpus.clone(), service, entry, lease, parts: kept.parts.clone() });
                }
            }
        }
        all
    }
}
