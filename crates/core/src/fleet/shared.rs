//! What several calls of the fleet share: taking turns, and the ends of connections, leases and lives.

use super::effect::{Cut, Effect, LostLease, NoiseKind, NotHeldWhy, Warning};
use super::life::{AnswerState, Held};
use super::{Fleet, LifeId};
use crate::id::LeaseId;
use crate::session::{PeerId, Waiting};
use crate::wire::ToWorker;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Fleet {
    /// Puts the connection into the turns of its services and of the pulls, or takes it out, as its state now says.
    pub(super) fn refresh(&mut self, peer: PeerId) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(life) = self.roster.get(session.life) else {
            return;
        };
        let has_room = life.deferred == 0 && life.leases().len() < self.limits.max_holds;
        let open = !self.draining && has_room && session.is_open(&self.limits);
        let pulls = session.can_be_asked(&self.limits);
        if !open {
            self.leave_turns(peer);
        } else if session.turn.is_none() {
            let services = Arc::clone(&life.services);
            let turn = self.roster.number();
            session.turn = Some(turn);
            for service in services.iter() {
                self.turns.entry(service.clone()).or_default().insert(turn, peer);
            }
        }
        self.refresh_pulls(peer, pulls);
    }

    pub(super) fn refresh_pulls(&mut self, peer: PeerId, pulls: bool) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        if !pulls {
            if let Some(turn) = session.pull_turn.take() {
                self.pull_turns.remove(turn, peer);
            }
        } else if session.pull_turn.is_none() {
            let turn = self.roster.number();
            session.pull_turn = Some(turn);
            self.pull_turns.insert(turn, peer);
        }
    }

    /// Takes the connection out of the turns of its services.
    pub(super) fn leave_turns(&mut self, peer: PeerId) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some((turn, life)) = session.turn.take().zip(self.roster.get(session.life)) else {
            return;
        };
        for service in life.services.iter() {
            if let Some(waiting) = self.turns.get_mut(service) {
                waiting.remove(turn, peer);
                if waiting.is_empty() {
                    self.turns.remove(service);
                }
            }
        }
    }

    /// Forgets the connection; what was under way on it ends. Its life stays.
    pub(super) fn close(&mut self, peer: PeerId, why: Cut, effects: &mut Vec<Effect>) -> Option<LifeId> {
        self.leave_turns(peer);
        self.refresh_pulls(peer, false);
        let session = self.sessions.remove(&peer)?;
        self.full.remove(&peer);
        for (lease, transfer) in &session.transfers {
            self.wanted.release(*lease, transfer.asked_bytes());
            self.roster.set_answer(*lease, AnswerState::None);
            effects.push(Effect::TransferEnded { lease: *lease, why });
        }
        let clock = self.clock.listened();
        let life = self.roster.get_mut(session.life)?;
        life.peer = None;
        life.heard_at = clock;
        // What could not be taken is with the worker: it offers it again when it is back.
        let is_deferred = |held: &Held| matches!(held.answer, AnswerState::Deferred(..));
        let deferred: Vec<_> = life.leases().iter().filter(|(_, h)| is_deferred(h)).map(|(l, _)| *l).collect();
        for lease in deferred {
            self.forget_words(lease);
        }
        Some(session.life)
    }

    /// Cuts the connection.
    pub(super) fn cut(&mut self, peer: PeerId, why: Cut, effects: &mut Vec<Effect>) {
        effects.push(Effect::Disconnect { peer, why });
        if let Some(life) = self.close(peer, why, effects) {
            self.forget_if_empty(life, effects);
        }
    }

    /// Cuts a connection that does not read: what its worker has not begun goes back.
    pub(super) fn cut_stuck(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        let Some((id, life)) = self.sessions.get(&peer).and_then(|s| Some((s.life, self.roster.get(s.life)?))) else {
            return;
        };
        let worker = Arc::clone(&life.worker);
        effects.push(Effect::Warn(Warning::Stuck { worker }));
        let is_waiting = |held: &Held| !held.began && matches!(held.answer, AnswerState::None);
        let unbegun = life.leases().iter().filter(|(_, held)| is_waiting(held)).map(|(lease, _)| *lease).collect();
        self.report_not_held(id, unbegun, NotHeldWhy::Stuck, effects);
        self.cut(peer, Cut::Stuck, effects);
    }

    /// Forgets these leases of one life and says so.
    pub(super) fn report_not_held(
        &mut self,
        id: LifeId,
        leases: Vec<LeaseId>,
        why: NotHeldWhy,
        effects: &mut Vec<Effect>,
    ) {
        let Some(worker) = self.roster.get(id).map(|life| Arc::clone(&life.worker)) else {
            return;
        };
        let taken = leases
            .into_iter()
            .filter_map(|lease| self.roster.take(lease).map(|(_, held)| LostLease { lease, began: held.began }));
        let leases: Vec<_> = taken.collect();
        if !leases.is_empty() {
            effects.push(Effect::NotHeld { worker, leases, why });
        }
    }

    /// Forgets a silent worker and says what it had.
    pub(super) fn lose(&mut self, id: LifeId, effects: &mut Vec<Effect>) {
        let Some(life) = self.roster.get(id) else {
            return;
        };
        // Named before the connection is closed: an answer whose pull is under way counts as answered here.
        let leases = life.lost_leases();
        if let Some(peer) = life.peer {
            effects.push(Effect::Disconnect { peer, why: Cut::Silent });
            self.close(peer, Cut::Silent, effects);
        }
        if let Some(life) = self.roster.remove(id) {
            let named: BTreeSet<_> = leases.iter().map(|lost| lost.lease).collect();
            self.orphans.extend(life.leases().keys().filter(|lease| !named.contains(lease)));
            effects.push(Effect::WorkerLost { worker: life.worker, leases });
        }
    }

    /// Forgets a life that has neither a connection nor anything to wait for.
    pub(super) fn forget_if_empty(&mut self, id: LifeId, effects: &mut Vec<Effect>) {
        if self.roster.get(id).is_some_and(|life| life.peer.is_none() && life.has_nothing())
            && let Some(life) = self.roster.remove(id)
        {
            effects.push(Effect::WorkerLeft { worker: life.worker });
        }
    }

    /// Forgets the lease and sends its worker the last message about it.
    pub(super) fn end(&mut self, lease: LeaseId, message: ToWorker, effects: &mut Vec<Effect>) {
        self.inline.release_all(lease);
        self.orphans.remove(&lease);
        let Some((id, _)) = self.detach(lease) else {
            return;
        };
        let most = self.limits.max_holds;
        if let Some(peer) = self.roster.get(id).and_then(|life| life.peer) {
            if let Some(session) = self.sessions.get_mut(&peer) {
                session.note_settled(lease, most);
            }
            effects.push(Effect::Send { peer, message });
            self.refresh(peer);
            self.serve_fetches(peer, effects);
        }
        self.forget_if_empty(id, effects);
        self.pump(effects);
    }

    /// Gives the lease to a life.
    pub(super) fn place(&mut self, id: LifeId, lease: LeaseId, held: Held) {
        self.orphans.remove(&lease);
        self.roster.put(id, lease, held);
    }

    /// Takes the lease from its worker, with all that is under way for it.
    pub(super) fn detach(&mut self, lease: LeaseId) -> Option<(LifeId, Held)> {
        self.forget_words(lease);
        let (id, held) = self.roster.take(lease)?;
        if let Some(peer) = self.roster.get(id).and_then(|life| life.peer)
            && let Some(session) = self.sessions.get_mut(&peer)
        {
            session.fetches.forget(lease);
            if let Some(transfer) = session.transfers.remove(&lease) {
                self.wanted.release(lease, transfer.asked_bytes());
            }
            self.refresh(peer);
        }
        Some((id, held))
    }

    /// Keeps a message for a connection whose queue is full.
    pub(super) fn keep_waiting(&mut self, peer: PeerId, waiting: Waiting, effects: &mut Vec<Effect>) {
        let clock = self.clock.listened();
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        session.queue.was_refused(clock);
        self.full.insert(peer);
        effects.push(Effect::Noise { peer, kind: NoiseKind::QueueFull });
        if session.queue.keep(waiting, self.limits.max_waiting) {
            self.refresh(peer);
        } else {
            self.cut_stuck(peer, effects);
        }
    }
}
