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
use std::sync::atomic::Ordering;

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

/// The stock.
#[derive(Default)]
pub(super) struct Stock {
    /// Not being read yet, because too many reads wait.
    unread: VecDeque<Work>,
    /// Being read.
    loading: HashMap<LeaseId, Work>,
    /// Waiting for a worker, by service.
    pub(super) ready: BTreeMap<String, VecDeque<Loaded>>,
    /// Reads under way and when they are given up.
    reads: HashMap<Tag, TimeMs>,
    /// Pieces that each connection asked for, in order; only the first is being read, so that they are sent in order.
    fetches: HashMap<PeerId, VecDeque<Fetch>>,
}

impl Stock {
    /// Everything that no worker has.
    pub(super) fn take_all(&mut self) -> Vec<Work> {
        let mut all: Vec<Work> = self.unread.drain(..).collect();
        for (lease, work) in self.loading.drain() {
            self.reads.remove(&Tag::Load(lease));
            all.push(work);
        }
        for queue in self.ready.values_mut() {
            all.extend(queue.drain(..).map(|loaded| loaded.work));
        }
        all
    }
}

impl Router {
    /// Freshly claimed tasks.
    pub(super) fn take_in(&mut self, claimed: Vec<Work>) {
        self.stock.unread.extend(claimed);
        self.read_more();
    }

    /// Starts reads as far as there is room for them.
    fn read_more(&mut self) {
        while let Some(work) = self.stock.unread.pop_front() {
            let small = work.task.input_size <= self.parts.fleet.inline_max;
            let length = if small { usize::try_from(work.task.input_size).unwrap_or(0) } else { 0 };
            let tag = Tag::Load(work.task.lease);
            if !self.start_read(tag, &work, 0, length) {
                self.stock.unread.push_front(work);
                return;
            }
            self.stock.loading.insert(work.task.lease, work);
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
                if let Some(work) = self.stock.loading.remove(&lease) {
                    let body = (work.task.input_size <= self.parts.fleet.inline_max).then_some(bytes);
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
        if self.stock.loading.remove(&lease).is_some() {
            self.parts.shared.buffered.fetch_sub(1, Ordering::AcqRel);
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
            let work = self.stock.loading.get(&lease).or_else(|| self.out.get(&lease));
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
