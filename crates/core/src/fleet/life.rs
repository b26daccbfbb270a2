//! The lives of workers, and which life has which lease.

use super::effect::{Answer, LostLease};
use crate::id::{LeaseId, WorkerKey};
use crate::session::PeerId;
use crate::time::SpanMs;
use crate::wire::{HoldState, PartSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The number of a worker's life, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LifeId(u64);

/// One life of a worker: from its first hello until it left with nothing or is lost. It outlives its connections.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) worker: Arc<WorkerKey>,
    pub(crate) services: Arc<[String]>,
    pub(crate) slots: u32,
    /// Its connection, where it has one.
    pub(crate) peer: Option<PeerId>,
    /// When it was heard last, on the listening clock. A departure counts, so that a worker whose connection breaks has
    /// the whole time to come back.
    pub(crate) heard_at: SpanMs,
    leases: BTreeMap<LeaseId, Held>,
    /// What it says to hold and the store has not confirmed yet.
    pub(crate) claims: BTreeMap<LeaseId, HoldState>,
    /// How many of its answers wait until they can be taken.
    pub(crate) deferred: usize,
}

/// A lease at its worker, as far as we know.
#[derive(Debug)]
pub(crate) struct Held {
    /// Orders the leases of a life by when they came to it.
    order: u64,
    /// On which connection it was sent, and as which task there; none where it came by the worker's own list.
    pub(crate) sent: Option<(u64, u64)>,
    pub(crate) began: bool,
    /// The size of its input, where it is known.
    pub(crate) size: Option<u64>,
    pub(crate) answer: AnswerState,
}

/// What became of a lease's answer.
#[derive(Debug)]
pub(crate) enum AnswerState {
    /// There is none, or it counts for nothing.
    None,
    /// It was handed on, and its fate is not known yet. These parts can be pulled.
    HandedOn(Vec<PartSpec>),
    /// Its bytes are being pulled on the life's connection.
    Pulling,
    /// It could not be taken: offered again in the order of the numbers; without its words, where there was no room to
    /// keep them.
    Deferred(u64, Option<Box<Answer>>),
}

/// Every life, by name and by lease.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    lives: BTreeMap<LifeId, Life>,
    names: BTreeMap<WorkerKey, LifeId>,
    places: BTreeMap<LeaseId, LifeId>,
    deferred: BTreeSet<(u64, LeaseId)>,
    next: u64,
}

impl Life {
    pub(crate) fn lease(&self, lease: LeaseId) -> Option<&Held> {
        self.leases.get(&lease)
    }

    pub(crate) const fn leases(&self) -> &BTreeMap<LeaseId, Held> {
        &self.leases
    }

    /// Whether there is nothing to wait for when it goes.
    pub(crate) fn has_nothing(&self) -> bool {
        self.leases.is_empty() && self.claims.is_empty()
    }

    /// How many leases have an answer that is whole in the driver's hands.
    pub(crate) fn answering(&self) -> usize {
        let is_whole = |held: &&Held| matches!(&held.answer, AnswerState::HandedOn(parts) if parts.is_empty());
        self.leases.values().filter(is_whole).count()
    }

    /// The leases whose answer is not whole in the driver's hands, in the order in which they came; of those without any
    /// answer the first, as many as the worker has slots, count as begun (rule A2).
    pub(crate) fn lost_leases(&self) -> Vec<LostLease> {
        let is_whole = |held: &Held| matches!(&held.answer, AnswerState::HandedOn(parts) if parts.is_empty());
        let unanswered = self.leases.iter().filter(|(_, held)| !is_whole(held));
        let mut in_order: Vec<_> = unanswered.map(|(lease, held)| (held.order, *lease, held)).collect();
        in_order.sort_unstable_by_key(|(order, ..)| *order);
        let slots = usize::try_from(self.slots).unwrap_or(usize::MAX);
        let without_result = |held: &Held| matches!(held.answer, AnswerState::None);
        let mut slots_left = slots;
        let mut lost = Vec::with_capacity(in_order.len());
        for (_, lease, held) in in_order {
            let in_slot = without_result(held) && slots_left > 0;
            slots_left -= usize::from(in_slot);
            lost.push(LostLease { lease, began: held.began || in_slot });
        }
        lost
    }
}

impl Held {
    /// A lease of which nothing is known but that its worker has it.
    pub(crate) const fn new(sent: Option<(u64, u64)>, began: bool, size: Option<u64>) -> Self {
        Self { order: 0, sent, began, size, answer: AnswerState::None }
    }

    /// Whether the worker's list, made when it had received `received` tasks on the connection `session`, ought to have
    /// this lease: it was not on its way, and no answer to it is being settled.
    pub(crate) fn ought_to_be_listed(&self, session: u64, received: u64) -> bool {
        let on_its_way = self.sent.is_some_and(|(on, number)| on == session && number > received);
        !on_its_way && matches!(self.answer, AnswerState::None)
    }
}

impl Roster {
    /// The life of this worker, made where there is none. Says whether it was known.
    pub(crate) fn life_of(&mut self, worker: WorkerKey, clock: SpanMs) -> (LifeId, bool) {
        if let Some(id) = self.names.get(&worker) {
            return (*id, true);
        }
        let id = LifeId(self.number());
        let life = Life {
            worker: Arc::new(worker.clone()),
            services: Arc::from([]),
            slots: 1,
            peer: None,
            heard_at: clock,
            leases: BTreeMap::new(),
            claims: BTreeMap::new(),
            deferred: 0,
        };
        self.lives.insert(id, life);
        self.names.insert(worker, id);
        (id, false)
    }

    pub(crate) fn get(&self, id: LifeId) -> Option<&Life> {
        self.lives.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LifeId) -> Option<&mut Life> {
        self.lives.get_mut(&id)
    }

    pub(crate) fn find(&self, worker: &WorkerKey) -> Option<LifeId> {
        self.names.get(worker).copied()
    }

    pub(crate) fn lives(&self) -> impl Iterator<Item = (LifeId, &Life)> {
        self.lives.iter().map(|(id, life)| (*id, life))
    }

    /// A connected life other than `than` that has its name.
    pub(crate) fn namesake(&self, than: LifeId) -> Option<&Life> {
        let name = &self.lives.get(&than)?.worker.name;
        let from = Bound::Included(WorkerKey { name: name.clone(), incarnation: String::new() });
        self.names
            .range((from, Bound::Unbounded))
            .take_while(|(key, _)| key.name == *name)
            .filter(|(_, id)| **id != than)
            .filter_map(|(_, id)| self.lives.get(id))
            .find(|life| life.peer.is_some())
    }

    /// The life that has `lease`.
    pub(crate) fn place(&self, lease: LeaseId) -> Option<LifeId> {
        self.places.get(&lease).copied()
    }

    pub(crate) fn held_mut(&mut self, lease: LeaseId) -> Option<&mut Held> {
        self.lives.get_mut(self.places.get(&lease)?)?.leases.get_mut(&lease)
    }

    /// Gives `lease` to `id`, whoever had it before.
    pub(crate) fn put(&mut self, id: LifeId, lease: LeaseId, mut held: Held) {
        self.take(lease);
        held.order = self.number();
        if let Some(life) = self.lives.get_mut(&id) {
            life.claims.remove(&lease);
            life.leases.insert(lease, held);
            self.places.insert(lease, id);
        }
    }

    /// Forgets `lease`.
    pub(crate) fn take(&mut self, lease: LeaseId) -> Option<(LifeId, Held)> {
        let id = self.places.remove(&lease)?;
        let life = self.lives.get_mut(&id)?;
        let held = life.leases.remove(&lease)?;
        if let AnswerState::Deferred(number, _) = held.answer {
            life.deferred -= 1;
            self.deferred.remove(&(number, lease));
        }
        Some((id, held))
    }

    /// Sets what became of the answer to `lease`; returns what it was.
    pub(crate) fn set_answer(&mut self, lease: LeaseId, answer: AnswerState) -> Option<AnswerState> {
        let life = self.lives.get_mut(self.places.get(&lease)?)?;
        let held = life.leases.get_mut(&lease)?;
        if let AnswerState::Deferred(number, _) = answer {
            life.deferred += 1;
            self.deferred.insert((number, lease));
        }
        let before = std::mem::replace(&mut held.answer, answer);
        if let AnswerState::Deferred(number, _) = before {
            life.deferred -= 1;
            self.deferred.remove(&(number, lease));
        }
        Some(before)
    }

    /// The answer that waits longest to be taken.
    pub(crate) fn first_deferred(&self) -> Option<LeaseId> {
        self.deferred.first().map(|(_, lease)| *lease)
    }

    /// Forgets a life and its leases.
    pub(crate) fn remove(&mut self, id: LifeId) -> Option<Life> {
        let life = self.lives.remove(&id)?;
        self.names.remove(&*life.worker);
        for (lease, held) in &life.leases {
            self.places.remove(lease);
            if let AnswerState::Deferred(number, _) = held.answer {
                self.deferred.remove(&(number, *lease));
            }
        }
        Some(life)
    }

    pub(crate) fn lease_count(&self) -> usize {
        self.places.len()
    }

    /// A number above all before it.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
