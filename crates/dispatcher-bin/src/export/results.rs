//! The results that are meant, one after the other, with their names and their bytes.
//!
//! Owns that a part whose place has changed since its row was read is looked up again: a dispatcher may replace it and
//! `compact` may move it at any moment.

use crate::settings::LayoutKind;
use crate::views::told;
use dispatcher_core::id::{CorpusId, EntryName, ServiceId, TaskId};
use dispatcher_core::wire::PART_RESULT;
use dispatcher_store::archive::files::check_relative;
use dispatcher_store::archive::outside::file_name;
use dispatcher_store::archive::{Archive, ArchiveError, Checked};
use dispatcher_store::{Corpus, PartRef, Publication, Store, TaskFilter, TaskRow};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Tasks in one read.
const PAGE: usize = 1000;
/// How often a part is looked up again before it counts as missing.
const TRIES: usize = 5;
/// Results up to this length are checked in memory before a byte of them goes into a stream; longer ones are read twice.
const IN_MEMORY: u64 = 8 * 1024 * 1024;

/// What is exported.
pub struct Results<'a> {
    looped: &'a Runtime,
    store: &'a dyn Store,
    archive: Arc<dyn Archive>,
    filter: TaskFilter,
    part: &'static str,
    layout: Option<LayoutKind>,
    services: HashMap<ServiceId, String>,
    corpora: HashMap<CorpusId, Corpus>,
    /// Tasks that were read and not given out yet.
    tasks: VecDeque<TaskRow>,
    /// Results of tasks from the first of them on.
    standing: VecDeque<Publication>,
    after: Option<TaskId>,
    /// Names that were given out. In the layouts of ours each task has a name of its own, so they are not remembered.
    given: HashSet<EntryName>,
}

/// One of them.
pub struct Found {
    /// What stands.
    pub publication: Publication,
    /// The part that is meant.
    pub part: PartRef,
    /// What its file is called, in a folder and in a tar file alike.
    pub name: EntryName,
}

/// What became of one.
pub enum Written {
    /// It is out: so many bytes.
    Whole(u64),
    /// It could not be read as it should be, in words. Nothing of it is to be kept.
    Not(String),
}

impl<'a> Results<'a> {
    /// Of every task that `filter` means.
    pub fn new(
        looped: &'a Runtime,
        store: &'a dyn Store,
        archive: Arc<dyn Archive>,
        filter: TaskFilter,
        part: &'static str,
        layout: Option<LayoutKind>,
    ) -> anyhow::Result<Self> {
        let services = looped.block_on(store.services()).map_err(told)?;
        let corpora = looped.block_on(store.corpora()).map_err(told)?;
        Ok(Self {
            looped,
            store,
            archive,
            filter,
            part,
            layout,
            services: services.into_iter().map(|service| (service.id, service.name)).collect(),
            corpora: corpora.into_iter().map(|corpus| (corpus.id, corpus)).collect(),
            tasks: VecDeque::new(),
            standing: VecDeque::new(),
            after: Some(TaskId(0)),
            given: HashSet::new(),
        })
    }

    /// Why a result cannot have its name: no file can, or another one of this export has it. In the layout of CorTeX a
    /// folder has one.
    pub fn refused(&mut self, name: &EntryName) -> Option<String> {
        if let Err(why) = check_relative(name) {
            return Some(format!("no file can be named {name}: {why}"));
        }
        if self.layout != Some(LayoutKind::Cortex) || self.given.insert(name.clone()) {
            return None;
        }
        Some(format!("another result is called {name} already: with --layout mirror each has a name of its own"))
    }

    /// The next task that is meant, with its part; `None` beside it where it has no such part.
    pub fn next(&mut self) -> anyhow::Result<Option<(TaskId, Option<Found>)>> {
        if self.tasks.is_empty() {
            self.read_tasks()?;
        }
        let Some(task) = self.tasks.pop_front() else { return Ok(None) };
        if task.standing.is_none() {
            return Ok(Some((task.id, None)));
        }
        let publication = self.standing_of(task.id)?;
        let found = publication.and_then(|publication| self.found(&task, publication));
        Ok(Some((task.id, found)))
    }

    fn read_tasks(&mut self) -> anyhow::Result<()> {
        let Some(after) = self.after else { return Ok(()) };
        let page = self.looped.block_on(self.store.tasks(&self.filter, after, PAGE)).map_err(told)?;
        self.after = page.last().map(|task| task.id);
        self.tasks.extend(page);
        Ok(())
    }

    /// What stands of a task. Where the tasks that are meant lie close together many are read at once.
    fn standing_of(&mut self, task: TaskId) -> anyhow::Result<Option<Publication>> {
        while self.standing.front().is_some_and(|standing| standing.lease.task < task) {
            self.standing.pop_front();
        }
        if self.standing.is_empty() {
            let close = self.tasks.back().is_some_and(|last| last.id.0 - task.0 < 4 * self.tasks.len() as i64);
            let max = if close { PAGE } else { 1 };
            self.standing.extend(self.read_standing(task, max)?);
        }
        match self.standing.front() {
            Some(standing) if standing.lease.task == task => Ok(self.standing.pop_front()),
            _ => Ok(None),
        }
    }

    fn read_standing(&self, task: TaskId, max: usize) -> anyhow::Result<Vec<Publication>> {
        self.looped.block_on(self.store.standing_parts(TaskId(task.0 - 1), max)).map_err(told)
    }

    fn found(&self, task: &TaskRow, publication: Publication) -> Option<Found> {
        let part = publication.parts.iter().find(|part| part.name == self.part)?.clone();
        let name = self.name_of(task, &publication)?;
        Some(Found { publication, part, name })
    }

    /// Of a file that has a place already, this place; otherwise what the layout says.
    fn name_of(&self, task: &TaskRow, publication: &Publication) -> Option<EntryName> {
        let placed = publication.parts.iter().find(|part| part.is_to_be_placed());
        let mut name = match placed.filter(|_| self.layout.is_none()) {
            Some(placed) => placed.place.clone(),
            None => {
                let (service, corpus) = (self.services.get(&task.service)?, self.corpora.get(&task.corpus)?);
                // A guess would put a sandbox's result over its parent's (rule G8).
                let naming = crate::archive::naming(self.layout.unwrap_or_default());
                naming.name(service, &corpus.name, corpus.kind?, &task.entry)
            }
        };
        if self.part != PART_RESULT {
            name.0.push(b'.');
            name.0.extend_from_slice(self.part.as_bytes());
        }
        Some(file_name(&name))
    }

    /// Copies the bytes of a result to what `begin` gives for it, and compares their checksum. Begun anew where the part
    /// has moved; what it is by then is in `found`.
    pub fn write<W: Write>(
        &self,
        found: &mut Found,
        mut begin: impl FnMut(&Found) -> io::Result<W>,
    ) -> anyhow::Result<(Option<W>, Written)> {
        let mut fault = String::new();
        for _ in 0..TRIES {
            let mut to = begin(found)?;
            match self.copy(found, &mut to)? {
                None => return Ok((Some(to), Written::Whole(found.part.length))),
                Some(why) => fault = why,
            }
            if !self.look_again(found)? {
                break;
            }
        }
        Ok((None, Written::Not(fault)))
    }

    /// What is wrong with the bytes that were copied, if something is. What cannot be written is an error.
    fn copy(&self, found: &Found, to: &mut impl Write) -> anyhow::Result<Option<String>> {
        let mut from = match self.archive.read(&found.publication, &found.part) {
            Ok(from) => Checked::new(from),
            Err(e) => return Ok(Some(fault_of(&e))),
        };
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(from.fault(&found.part)),
                Ok(n) => to.write_all(buffer.get(..n).unwrap_or_default())?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Ok(Some(format!("it cannot be read: {e}"))),
            }
        }
    }

    /// Reads the row anew; whether it says something else by now.
    fn look_again(&self, found: &mut Found) -> anyhow::Result<bool> {
        let task = found.publication.lease.task;
        let now = self.read_standing(task, 1)?.pop().filter(|now| now.lease.task == task);
        let Some(now) = now else { return Ok(false) };
        let Some(part) = now.parts.iter().find(|part| part.name == self.part).cloned() else { return Ok(false) };
        let changed = now.published != found.publication.published || part != found.part;
        (found.part, found.publication) = (part, now);
        Ok(changed)
    }

    /// Checks a result before a byte of it goes into a stream, and then writes it there, with `front` before it.
    pub fn stream(
        &self,
        found: &mut Found,
        to: &mut impl Write,
        front: impl Fn(&Found) -> io::Result<Vec<u8>>,
    ) -> anyhow::Result<Written> {
        if found.part.length <= IN_MEMORY {
            let (bytes, written) = self.write(found, |found| Ok(Vec::with_capacity(found.part.length as usize)))?;
            if let Some(bytes) = bytes {
                to.write_all(&front(found)?)?;
                to.write_all(&bytes)?;
            }
            return Ok(written);
        }
        for _ in 0..TRIES {
            let (_, written) = self.write(found, |_| Ok(io::sink()))?;
            if let Written::Not(_) = written {
                return Ok(written);
            }
            // What is open stays readable, whatever becomes of its pack meanwhile.
            match self.archive.read(&found.publication, &found.part) {
                Ok(from) => {
                    to.write_all(&front(found)?)?;
                    return self.pour(found, from, to);
                }
                Err(_) if self.look_again(found)? => {}
                Err(e) => return Ok(Written::Not(fault_of(&e))),
            }
        }
        Ok(Written::Not("it moved again and again while it was read".to_owned()))
    }

    /// Copies what was checked a moment ago; it cannot be taken back any more.
    fn pour(&self, found: &Found, from: impl Read, to: &mut impl Write) -> anyhow::Result<Written> {
        let mut from = Checked::new(from);
        let bytes = io::copy(&mut from, to)?;
        match from.fault(&found.part) {
            None => Ok(Written::Whole(bytes)),
            Some(why) => {
                anyhow::bail!("a result changed between being checked and being written ({why}): the stream ends here")
            }
        }
    }
}

fn fault_of(error: &ArchiveError) -> String {
    match error {
        ArchiveError::Gone { place } => format!("its bytes are not there: {place}"),
        other => other.to_string(),
    }
}
