//! Claimed tasks on their way to a worker: first their input is checked and, where it is small, read; then they wait for
//! a worker with credit.
//!
//! Owns the order of these two steps and what is under way between them. A read that hangs is given up and charged to
//! its own task.

use super::{Router, StageFailure};
use crate::inputs::{Answered, InputFault, Job};
use crate::report::Work;
use bytes::Bytes;
use dispatcher_core::id::LeaseId;
use dispatcher_core::session::PeerId;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::wire::ToWorker;
use dispatcher_store::Record;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Reads that wait or are under way at most.
pub(super) const READS_MAX: usize = 4096;
/// How long one read may take.
const READ_LIMIT: SpanMs = SpanMs(30_000);

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tag {
    /// To hand the task out.
    Load(LeaseId),
    /// A piece that a worker asked for.
    Piece {
        /// Its connection.
        peer: PeerId,
        /// What it asked for.
        fetch: Fetch,
    },
}

/// A piece of an input, as a worker asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fetch {
    /// The lease.
    pub(super) lease: LeaseId,
    /// Where it begins, in bytes.
    pub(super) offset: u64,
    /// How long it is, in bytes.
    pub(super) length: u64,
}

/// A task that only waits for a worker.
pub(super) struct Loaded {
    pub(super) work: Work,
    /// The input, where it is small.
    pub(super) body: Option<Bytes>,
}

/// Bytes of inputs that are read or being read ahead for one service: with a hundred services less than a gigabyte,
/// and for the usual few enough to keep their workers busy.
const AHEAD_MAX: u64 = 8 * 1024 * 1024;

/// The stock.
#[derive(Default)]
pub(super) struct Stock {
    /// Not being read yet, by service: too many reads wait, or enough is read ahead.
    unread: BTreeMap<String, VecDeque<Work>>,
    /// Being read, with how many bytes of each.
    loading: HashMap<LeaseId, (Work, u64)>,
    /// Waiting for a worker, by service.
    pub(super) ready: BTreeMap<String, VecDeque<Loaded>>,
    /// Bytes that are read or being read ahead, by service.
    ahead: HashMap<String, u64>,
    /// Reads under way and when they are given up.
    reads: HashMap<Tag, TimeMs>,
    /// Pieces that each connection asked for, in order; only the first is being read, so that they are sent in order.
    fetches: HashMap<PeerId, VecDeque<Fetch>>,
}

impl Loaded {
    /// What its body holds.
    fn bytes(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.len() as u64)
    }
}

impl Stock {
    /// Everything that no worker has and that is `meant`.
    pub(super) fn take(&mut self, meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        let mut taken = Vec::new();
        for queue in self.unread.values_mut() {
            taken.extend(split_off(queue, &meant));
        }
        for (lease, (work, _)) in self.loading.extract_if(|_, (work, _)| meant(work)) {
            self.reads.remove(&Tag::Load(lease));
            taken.push(work);
        }
        for queue in self.ready.values_mut() {
            taken.extend(split_off(queue, |loaded| meant(&loaded.work)).map(|loaded| loaded.work));
        }
        self.count_ahead();
        taken
    }

    /// The next task of a service, if one waits.
    pub(super) fn pop(&mut self, service: &str) -> Option<Loaded> {
        let loaded = self.ready.get_mut(service)?.pop_front()?;
        self.less_ahead(service, loaded.bytes());
        Some(loaded)
    }

    /// Takes the task at `at` in the queue of a service.
    pub(super) fn take_at(&mut self, service: &str, at: usize) -> Option<Loaded> {
        let loaded = self.ready.get_mut(service)?.remove(at)?;
        self.less_ahead(service, loaded.bytes());
        Some(loaded)
    }

    /// Puts a task back to where it was.
    pub(super) fn put_at(&mut self, at: usize, loaded: Loaded) {
        *self.ahead.entry(loaded.work.service.clone()).or_default() += loaded.bytes();
        let queue = self.ready.entry(loaded.work.service.clone()).or_default();
        queue.insert(at.min(queue.len()), loaded);
    }

    /// Tasks whose inputs were only checked, and are no larger than `most`, are to be read.
    pub(super) fn read_again(&mut self, service: &str, most: u64) {
        let Some(queue) = self.ready.get_mut(service) else { return };
        let again = split_off(queue, |loaded| loaded.body.is_none() && loaded.work.task.input_size <= most);
        let unread = self.unread.entry(service.to_owned()).or_default();
        again.collect::<Vec<_>>().into_iter().rev().for_each(|loaded| unread.push_front(loaded.work));
    }

    /// A task waits again, before all others.
    pub(super) fn push_front(&mut self, loaded: Loaded) {
        *self.ahead.entry(loaded.work.service.clone()).or_default() += loaded.bytes();
        self.ready.entry(loaded.work.service.clone()).or_default().push_front(loaded);
    }

    fn less_ahead(&mut self, service: &str, bytes: u64) {
        if let Some(ahead) = self.ahead.get_mut(service) {
            *ahead = ahead.saturating_sub(bytes);
        }
    }

    /// Counts anew what is read ahead, after many were taken out of the middle.
    fn count_ahead(&mut self) {
        self.ahead.clear();
        let loaded = self.ready.values().flatten().map(|loaded| (&loaded.work.service, loaded.bytes()));
        let loading = self.loading.values().map(|(work, bytes)| (&work.service, *bytes));
        for (service, bytes) in loaded.chain(loading) {
            *self.ahead.entry(service.clone()).or_default() += bytes;
        }
    }
}

/// Takes what is `meant` out of a queue; the rest keeps its order.
fn split_off<T>(queue: &mut VecDeque<T>, meant: impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
    let (taken, rest): (VecDeque<T>, VecDeque<T>) = std::mem::take(queue).into_iter().partition(meant);
    *queue = rest;
    taken.into_iter()
}

impl Router {
    /// Freshly claimed tasks.
    pub(super) fn take_in(&mut self, claimed: Vec<Work>) {
        for work in claimed {
            self.stock.unread.entry(work.service.clone()).or_default().push_back(work);
        }
        self.read_more();
    }

    /// Starts reads as far as there is room for them.
    pub(super) fn read_more(&mut self) {
        let services: Vec<String> =
            self.stock.unread.iter().filter(|(_, queue)| !queue.is_empty()).map(|(name, _)| name.clone()).collect();
        for service in services {
            self.read_more_of(&service);
        }
    }

    fn read_more_of(&mut self, service: &str) {
        // What is larger is only checked: on the v1 wire its worker fetches it.
        let legacy_max = if self.legacy.is_offered(service) { self.legacy.limits().unread_each } else { 0 };
        let most = self.parts.fleet.inline_max.max(legacy_max);
        while self.stock.ahead.get(service).is_none_or(|ahead| *ahead < AHEAD_MAX) {
            let Some(work) = self.stock.unread.get_mut(service).and_then(VecDeque::pop_front) else { return };
            let size = if work.task.input_size <= most { work.task.input_size } else { 0 };
            let tag = Tag::Load(work.task.lease);
            if !self.start_read(tag, &work, 0, usize::try_from(size).unwrap_or(0)) {
                self.stock.unread.entry(service.to_owned()).or_default().push_front(work);
                return;
            }
            *self.stock.ahead.entry(service.to_owned()).or_default() += size;
            self.stock.loading.insert(work.task.lease, (work, size));
        }
    }

    /// Starts a read; `false` where too many are under way.
    fn start_read(&mut self, tag: Tag, work: &Work, offset: u64, length: usize) -> bool {
        if self.stock.reads.len() >= READS_MAX {
            return false;
        }
        let job = Job {
            tag,
            path: work.path.clone(),
            size: work.task.input_size,
            mtime_ns: work.task.input_mtime_ns,
            offset,
            length,
        };
        if self.inputs.submit(job).is_err() {
            return false;
        }
        self.stock.reads.insert(tag, self.now().after(READ_LIMIT));
        true
    }

    /// A worker asked for a piece of its input.
    pub(super) fn fetch(&mut self, peer: PeerId, fetch: Fetch) -> Result<(), StageFailure> {
        let queue = self.stock.fetches.entry(peer).or_default();
        queue.push_back(fetch);
        if queue.len() == 1 { self.read_next_piece(peer) } else { Ok(()) }
    }

    /// Starts the read of the first piece that a connection waits for.
    fn read_next_piece(&mut self, peer: PeerId) -> Result<(), StageFailure> {
        while let Some(fetch) = self.stock.fetches.get(&peer).and_then(|queue| queue.front().copied()) {
            if let Some(work) = self.out.get(&fetch.lease).cloned() {
                let length = usize::try_from(fetch.length).unwrap_or(usize::MAX);
                if self.start_read(Tag::Piece { peer, fetch }, &work, fetch.offset, length) {
                    return Ok(());
                }
                let seconds = READ_LIMIT.0 / 1000;
                self.fail_input(fetch.lease, &InputFault::TooSlow { path: work.path, seconds })?;
            }
            self.forget_piece(peer);
            self.piece_done(peer)?;
        }
        self.stock.fetches.remove(&peer);
        Ok(())
    }

    /// A piece will not be sent; the connection's next one may be served.
    fn piece_done(&mut self, peer: PeerId) -> Result<(), StageFailure> {
        let (now, mut effects) = (self.now(), Vec::new());
        self.fleet.chunk_done(peer, now, &mut effects);
        self.act(effects, &[])
    }

    /// The first piece of a connection is dealt with.
    fn forget_piece(&mut self, peer: PeerId) {
        if let Some(queue) = self.stock.fetches.get_mut(&peer) {
            queue.pop_front();
        }
    }

    /// A read is through. One that was given up meanwhile is ignored.
    pub(super) fn input_read(&mut self, answer: Answered<Tag>) -> Result<(), StageFailure> {
        if self.stock.reads.remove(&answer.tag).is_none() {
            return Ok(());
        }
        match (answer.tag, answer.outcome) {
            (Tag::Load(lease), Ok(bytes)) => {
                if let Some((work, read)) = self.stock.loading.remove(&lease) {
                    let body = (work.task.input_size == read).then_some(bytes);
                    self.stock.ready.entry(work.service.clone()).or_default().push_back(Loaded { work, body });
                }
            }
            (Tag::Load(lease), Err(fault)) => self.fail_input(lease, &fault)?,
            (Tag::Piece { peer, fetch }, read) => {
                self.forget_piece(peer);
                match read {
                    Ok(bytes) => self.send_piece(peer, fetch, bytes)?,
                    Err(fault) => {
                        self.fail_input(fetch.lease, &fault)?;
                        self.piece_done(peer)?;
                    }
                }
                self.read_next_piece(peer)?;
            }
        }
        self.read_more();
        Ok(())
    }

    /// Sends a piece of an input. Where the connection's queue is full, all that it waits for is asked for again later, so
    /// that the order stays.
    fn send_piece(&mut self, peer: PeerId, fetch: Fetch, bytes: Bytes) -> Result<(), StageFailure> {
        let now = self.now();
        let mut effects = Vec::new();
        let chunk = ToWorker::Chunk { token: self.fleet.token(fetch.lease), offset: fetch.offset };
        if self.send(peer, &chunk, &[bytes]) {
            self.fleet.chunk_done(peer, now, &mut effects);
        } else {
            let behind = self.stock.fetches.remove(&peer).unwrap_or_default();
            for Fetch { lease, offset, length } in std::iter::once(fetch).chain(behind) {
                self.fleet.chunk_full(peer, lease, offset, length, now, &mut effects);
            }
        }
        self.act(effects, &[])
    }

    /// The input of a task cannot be used: the store learns why, and a worker that has the task stops.
    fn fail_input(&mut self, lease: LeaseId, fault: &InputFault) -> Result<(), StageFailure> {
        let reason = fault.reason();
        if let Some((work, bytes)) = self.stock.loading.remove(&lease) {
            self.parts.shared.stock.take(work.task.service);
            self.stock.less_ahead(&work.service, bytes);
        } else if self.out.remove(&lease).is_some() {
            self.cut(lease, &reason.details)?;
        } else {
            return Ok(());
        }
        let at = self.now();
        self.note(Record::InputFailed { lease, why: reason, retry: fault.may_pass(), at })
    }

    /// Gives up reads that hang, each with the thread that hangs in it.
    pub(super) fn give_up_slow_reads(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        let slow: Vec<Tag> = self.stock.reads.iter().filter(|(_, at)| now > **at).map(|(tag, _)| *tag).collect();
        for tag in slow {
            self.stock.reads.remove(&tag);
            self.inputs.add_reader().map_err(|e| StageFailure::System(format!("no thread to read inputs: {e}")))?;
            let (Tag::Load(lease) | Tag::Piece { fetch: Fetch { lease, .. }, .. }) = tag;
            let loading = self.stock.loading.get(&lease).map(|(work, _)| work);
            let work = loading.or_else(|| self.out.get(&lease));
            if let Some(path) = work.map(|work| work.path.clone()) {
                self.fail_input(lease, &InputFault::TooSlow { path, seconds: READ_LIMIT.0 / 1000 })?;
            }
            if let Tag::Piece { peer, .. } = tag {
                self.forget_piece(peer);
                self.piece_done(peer)?;
                self.read_next_piece(peer)?;
            }
        }
        Ok(())
    }
}
