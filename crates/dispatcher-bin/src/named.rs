//! Which tasks a person names, for every command that takes some: by id, or by the input.
//!
//! Owns the forms of a name and which of them is meant where several could be; that what is printed can be typed; and that
//! nothing is done to a task that a name does not mean alone. Knows nothing of what is done with the tasks.

use crate::exit::Exit;
use crate::places::Places;
use crate::views::told;
use dispatcher_core::id::{CorpusId, EntryName, ServiceId, TaskId};
use dispatcher_core::text::read_printed;
use dispatcher_store::{Store, TaskFilter, TaskRow};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Names that are looked up in one read of the tasks.
const NAMES_AT_ONCE: usize = 500;
/// Rows in one read.
const PAGE: usize = 1000;
/// Tasks that an error lists.
const TOLD_MAX: usize = 5;

/// One way to read a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    entry: EntryName,
    service: Option<ServiceId>,
    corpus: Option<CorpusId>,
}

/// What people named, and what it can mean.
pub struct Named {
    places: Places,
    /// Of each name the tasks that it means, the lowest id first.
    meant: Vec<Vec<TaskRow>>,
}

impl Named {
    /// Looks names up among the tasks of a place. A number is an id, unless there is no such task. Otherwise it is an input
    /// as `tasks` prints it, alone or with its corpus or with its service and corpus before it: the first of these that there
    /// is. What is meant by an id is told wherever it is.
    pub async fn look_up(store: &dyn Store, names: &[OsString], place: &TaskFilter) -> anyhow::Result<Self> {
        let places = Places::read(store).await?;
        let mut meant = Vec::with_capacity(names.len());
        for some in names.chunks(NAMES_AT_ONCE) {
            let by_id = by_id(store, some).await?;
            let readings: Vec<Vec<Reading>> = some.iter().map(|name| readings(name, &places)).collect();
            let unknown: Vec<bool> =
                some.iter().map(|name| id_of(name).is_none_or(|id| !by_id.contains_key(&id))).collect();
            let wanted = readings.iter().zip(&unknown).filter(|(_, unknown)| **unknown).flat_map(|(of, _)| of);
            let by_entry = by_entry(store, wanted, place).await?;
            for (name, readings) in some.iter().zip(readings) {
                meant.push(match id_of(name).and_then(|id| by_id.get(&id)) {
                    Some(row) => vec![row.clone()],
                    None => first_of(&readings, &by_entry),
                });
            }
        }
        Ok(Self { places, meant })
    }

    /// The tasks, where each name means one.
    pub fn each(self, names: &[OsString]) -> anyhow::Result<Vec<TaskId>> {
        let one = |(name, meant): (&OsString, &Vec<TaskRow>)| match &meant[..] {
            [] => Err(no_such(name)),
            [one] => Ok(one.id),
            several => Err(Exit::usage(format!(
                "{} means {} tasks: {}; name one by its id or as SERVICE/CORPUS/INPUT, or say --service or --corpus",
                name.display(),
                several.len(),
                self.listed(several)
            ))),
        };
        names.iter().zip(&self.meant).map(one).collect()
    }

    /// The tasks that the only name means, for commands that look at one, and the others in words.
    pub fn first(mut self) -> (Option<TaskId>, Vec<TaskId>, String) {
        let mut meant = self.meant.pop().unwrap_or_default();
        let others = meant.split_off(meant.len().min(1));
        let ids = others.iter().map(|row| row.id).collect();
        (meant.first().map(|row| row.id), ids, self.listed(&others))
    }

    fn listed(&self, rows: &[TaskRow]) -> String {
        let one = |row: &TaskRow| {
            let service = self.places.service(row.service).unwrap_or("a service that is gone");
            let corpus = self.places.corpus(row.corpus).unwrap_or("a corpus that is gone");
            format!("{} ({service}/{corpus}/{})", row.id, row.entry)
        };
        let mut listed: Vec<String> = rows.iter().take(TOLD_MAX).map(one).collect();
        let more = rows.len().saturating_sub(TOLD_MAX);
        if more > 0 {
            listed.push(format!("and {more} more"));
        }
        listed.join(", ")
    }
}

/// That there is no task of this name.
pub fn no_such(name: &OsStr) -> anyhow::Error {
    Exit::usage(format!("there is no task {}: `dispatcher tasks` lists ids and inputs", name.display()))
}

fn id_of(name: &OsStr) -> Option<TaskId> {
    name.to_str().and_then(|text| text.parse().ok()).map(TaskId)
}

/// The tasks whose ids are among the names.
async fn by_id(store: &dyn Store, names: &[OsString]) -> anyhow::Result<HashMap<TaskId, TaskRow>> {
    let ids: Vec<TaskId> = names.iter().filter_map(|name| id_of(name)).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let filter = TaskFilter { ids, ..TaskFilter::default() };
    let rows = store.tasks(&filter, TaskId(0), PAGE).await.map_err(told)?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// The tasks of a place whose entries some reading names, by entry.
async fn by_entry(
    store: &dyn Store,
    readings: impl Iterator<Item = &Reading>,
    place: &TaskFilter,
) -> anyhow::Result<HashMap<EntryName, Vec<TaskRow>>> {
    let mut entries: Vec<EntryName> = readings.map(|reading| reading.entry.clone()).collect();
    entries.sort_unstable();
    entries.dedup();
    let mut found: HashMap<EntryName, Vec<TaskRow>> = HashMap::new();
    if entries.is_empty() {
        return Ok(found);
    }
    let filter = TaskFilter { entries, service: place.service, corpus: place.corpus, ..TaskFilter::default() };
    let mut after = TaskId(0);
    loop {
        let rows = store.tasks(&filter, after, PAGE).await.map_err(told)?;
        let Some(last) = rows.last() else { return Ok(found) };
        after = last.id;
        for row in rows {
            found.entry(row.entry.clone()).or_default().push(row);
        }
    }
}

/// The tasks of the first reading that means some.
fn first_of(readings: &[Reading], by_entry: &HashMap<EntryName, Vec<TaskRow>>) -> Vec<TaskRow> {
    let of = |reading: &Reading| -> Vec<TaskRow> {
        let fits = |row: &&TaskRow| {
            reading.service.is_none_or(|service| service == row.service)
                && reading.corpus.is_none_or(|corpus| corpus == row.corpus)
        };
        by_entry.get(&reading.entry).into_iter().flatten().filter(fits).cloned().collect()
    };
    readings.iter().map(of).find(|rows| !rows.is_empty()).unwrap_or_default()
}

/// Every way to read a name, the one that counts most first: as it stands, then as what was printed.
fn readings(name: &OsStr, places: &Places) -> Vec<Reading> {
    let mut readings = forms(name.as_bytes(), places);
    let printed = name.to_str().and_then(read_printed).filter(|bytes| bytes != name.as_bytes());
    readings.extend(printed.iter().flat_map(|bytes| forms(bytes, places)));
    readings
}

fn forms(name: &[u8], places: &Places) -> Vec<Reading> {
    let mut forms = vec![Reading { entry: EntryName(name.to_vec()), service: None, corpus: None }];
    forms.extend(in_corpus(name, places).map(|(corpus, entry)| Reading { entry, service: None, corpus: Some(corpus) }));
    for (service, of) in places.services() {
        let Some(rest) = below(name, of) else { continue };
        forms.extend(in_corpus(rest, places).map(|(corpus, entry)| Reading {
            entry,
            service: Some(service),
            corpus: Some(corpus),
        }));
    }
    forms
}

fn in_corpus<'a>(name: &'a [u8], places: &'a Places) -> impl Iterator<Item = (CorpusId, EntryName)> + 'a {
    places.corpora().filter_map(|(corpus, of)| Some((corpus, EntryName(below(name, of)?.to_vec()))))
}

/// What comes after a first folder of this name.
fn below<'a>(name: &'a [u8], folder: &str) -> Option<&'a [u8]> {
    name.strip_prefix(folder.as_bytes())?.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}
