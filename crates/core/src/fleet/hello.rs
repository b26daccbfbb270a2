//! Hellos, and the leases that a worker says to hold.

use super::effect::{Cut, Effect, NoiseKind, NotHeldWhy, Warning};
use super::life::{AnswerState, Held};
use super::{Fleet, Kept, LifeId};
use crate::id::{LeaseId, WorkerKey};
use crate::session::{PeerId, Session};
use crate::text;
use crate::wire::{ErrorCode, Hold, HoldState, PROTO, ToWorker, TokenText};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Up to how many bytes a text that is no token of ours is sent back, so that its worker forgets it.
pub(super) const FORGED_MAX: usize = 256;

/// What a worker says first.
pub(super) struct Hello {
    pub(super) proto: u32,
    pub(super) name: String,
    pub(super) incarnation: String,
    pub(super) services: Vec<String>,
    pub(super) slots: u32,
    pub(super) holds: Vec<Hold>,
}

/// What came of reading a list of holds.
#[derive(Default)]
struct Listed {
    leases: BTreeSet<LeaseId>,
    claimed: Vec<(LeaseId, HoldState)>,
    /// Not this worker's.
    unknown: Vec<TokenText>,
    forged: Vec<TokenText>,
}

/// How far a list of holds may be believed against another life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A worker that begins: what it holds was left to it by its life before, which may still look alive.
    Hello,
    Beat,
}

impl HoldState {
    const fn has_begun(self) -> bool {
        matches!(self, Self::Running | Self::Finished)
    }
}

impl Hello {
    /// Who says hello, or what is wrong with it.
    fn check(&self, max_services: usize, max_holds: usize) -> Result<WorkerKey, (NoiseKind, ErrorCode, String)> {
        if self.proto != PROTO {
            let message = format!("protocol version {} is not spoken here, {PROTO} is", self.proto);
            return Err((NoiseKind::Version, ErrorCode::Version, message));
        }
        if self.name.is_empty() || self.incarnation.is_empty() || self.slots == 0 {
            let message = "hello needs a name, an incarnation and at least one slot".to_owned();
            return Err((NoiseKind::Malformed, ErrorCode::Malformed, message));
        }
        let longest = self.services.iter().chain([&self.name, &self.incarnation]).map(String::len).max().unwrap_or(0);
        if self.services.len() > max_services || self.holds.len() > max_holds || longest > text::NAME_MAX {
            let message = format!(
                "hello may have {max_services} services and {max_holds} holds, and names of {} bytes",
                text::NAME_MAX
            );
            return Err((NoiseKind::OverLimit, ErrorCode::Limit, message));
        }
        let clean = |name: &str| text::clean_line(name.as_bytes(), text::NAME_MAX).text.into_owned();
        Ok(WorkerKey { name: clean(&self.name), incarnation: clean(&self.incarnation) })
    }
}

impl Fleet {
    pub(super) fn hello(&mut self, peer: PeerId, hello: Hello, effects: &mut Vec<Effect>) {
        let worker = match hello.check(self.limits.max_services, self.limits.max_holds) {
            Ok(worker) => worker,
            Err((noise, code, message)) => {
                self.offend(peer, noise, code, &message, effects);
                return self.cut(peer, Cut::Offence, effects);
            }
        };
        let (id, returned) = self.roster.life_of(worker, self.clock.listened());
        self.replace_connection(id, peer, effects);
        let number = self.roster.number();
        self.sessions.insert(peer, Session::new(id, number));
        self.join(id, peer, &hello, returned, effects);
        let listed = self.read_holds(peer, id, hello.holds, Source::Hello, effects);
        self.report_unlisted(id, number, 0, &listed.leases, effects);
        if let Some(greeting) = self.sessions.get_mut(&peer).and_then(|session| session.greeting.as_mut()) {
            greeting.listed = listed.leases.into_iter().collect();
            greeting.forged = listed.forged;
        }
        self.claim(id, listed.claimed, effects);
        self.welcome_if_settled(peer, effects);
    }

    /// A worker's list of what it has, with each beat.
    pub(super) fn beat(&mut self, peer: PeerId, n: u64, received: u64, holds: Vec<Hold>, effects: &mut Vec<Effect>) {
        if holds.len() > self.limits.max_holds {
            let message = format!("a beat may have {} holds", self.limits.max_holds);
            self.offend(peer, NoiseKind::OverLimit, ErrorCode::Limit, &message, effects);
            return self.cut(peer, Cut::Offence, effects);
        }
        let clock = self.clock.listened();
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        session.beat = n;
        session.credit.prove(received, clock);
        let (id, number, received) = (session.life, session.number, session.credit.received());
        let mut listed = self.read_holds(peer, id, holds, Source::Beat, effects);
        self.report_unlisted(id, number, received, &listed.leases, effects);
        if let Some(session) = self.sessions.get_mut(&peer) {
            // What the worker lists no more it has read about.
            session.settled.retain(|lease| listed.leases.contains(lease));
            session.refused.retain(|lease| listed.leases.contains(lease));
        }
        self.claim(id, listed.claimed, effects);
        listed.unknown.append(&mut listed.forged);
        effects.push(Effect::Send { peer, message: ToWorker::Beat { n, unknown: listed.unknown } });
        self.refresh(peer);
    }

    /// A worker speaks of a lease that is not known to be its: asks the store, once.
    pub(super) fn claim_one(&mut self, peer: PeerId, lease: LeaseId, state: HoldState, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(&peer) else {
            return;
        };
        let (id, n) = (session.life, session.beat);
        let mut listed = Listed::default();
        self.note_hold(peer, id, lease, state, Source::Beat, &mut listed, effects);
        self.claim(id, listed.claimed, effects);
        if !listed.unknown.is_empty() {
            effects.push(Effect::Send { peer, message: ToWorker::Beat { n, unknown: listed.unknown } });
        }
    }

    /// The store confirms a lease.
    pub(super) fn keep(&mut self, id: LifeId, kept: Kept) {
        let Some(life) = self.roster.get_mut(id) else {
            return;
        };
        let state = life.claims.remove(&kept.lease);
        match self.roster.place(kept.lease) {
            Some(_) => {
                if let Some(held) = self.roster.held_mut(kept.lease) {
                    held.size = Some(kept.size);
                }
            }
            None => {
                let began = state.is_some_and(HoldState::has_begun);
                self.place(id, kept.lease, Held::new(None, began, Some(kept.size)));
            }
        }
    }

    /// The store does not know these as the worker's.
    pub(super) fn refuse_claims(&mut self, id: LifeId, drop: &[LeaseId], effects: &mut Vec<Effect>) {
        let Some(life) = self.roster.get_mut(id) else {
            return;
        };
        for lease in drop {
            life.claims.remove(lease);
        }
        // An answer that came meanwhile is decided by the store, and told with its acknowledgement.
        let refused: Vec<_> = drop.iter().filter(|lease| life.lease(**lease).is_none()).copied().collect();
        let Some((peer, session)) = life.peer.and_then(|peer| Some((peer, self.sessions.get_mut(&peer)?))) else {
            return;
        };
        for lease in &refused {
            session.note_refused(*lease, self.limits.max_holds);
        }
        if session.greeting.is_none() && !refused.is_empty() {
            let unknown = refused.into_iter().map(|lease| self.key.sign(lease)).collect();
            effects.push(Effect::Send { peer, message: ToWorker::Beat { n: session.beat, unknown } });
        }
    }

    /// Welcomes a worker once the store has decided on all it holds.
    pub(super) fn welcome_if_settled(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(life) = self.roster.get(session.life).filter(|life| life.claims.is_empty()) else {
            return;
        };
        let Some(greeting) = session.greeting.take() else {
            return;
        };
        let (keep, drop): (Vec<_>, Vec<_>) =
            greeting.listed.into_iter().partition(|lease| life.lease(*lease).is_some());
        let sign = |leases: Vec<LeaseId>| leases.into_iter().map(|lease| self.key.sign(lease));
        let message = ToWorker::Welcome {
            beat_ms: self.limits.beat.0,
            dead_after_ms: self.limits.dead_after.0,
            inline_max: self.limits.inline_max,
            chunk_max: self.limits.chunk_max,
            keep: sign(keep).collect(),
            drop: greeting.forged.into_iter().chain(sign(drop)).collect(),
        };
        effects.push(Effect::Send { peer, message });
        if self.draining {
            effects.push(Effect::Send { peer, message: ToWorker::Drain });
        }
        self.refresh(peer);
    }

    /// The life's old connection, if there is one, is cut: the newest is the one that works.
    fn replace_connection(&mut self, id: LifeId, peer: PeerId, effects: &mut Vec<Effect>) {
        if let Some(old) = self.roster.get(id).and_then(|life| life.peer) {
            effects.push(Effect::Noise { peer, kind: NoiseKind::Replaced });
            effects.push(Effect::Disconnect { peer: old, why: Cut::Replaced });
            self.close(old, Cut::Replaced, effects);
        }
    }

    fn join(&mut self, id: LifeId, peer: PeerId, hello: &Hello, returned: bool, effects: &mut Vec<Effect>) {
        let clock = self.clock.listened();
        let Some(life) = self.roster.get_mut(id) else {
            return;
        };
        let services: BTreeSet<_> =
            hello.services.iter().map(|s| text::clean_line(s.as_bytes(), text::NAME_MAX).text.into_owned()).collect();
        life.services = services.into_iter().collect();
        life.slots = hello.slots.min(self.limits.max_slots);
        life.peer = Some(peer);
        life.heard_at = clock;
        let (worker, services, slots) = (Arc::clone(&life.worker), Arc::clone(&life.services), life.slots);
        effects.push(Effect::Joined { peer, worker: Arc::clone(&worker), services, slots, returned });
        if let Some(other) = self.roster.namesake(id).filter(|_| !returned) {
            effects.push(Effect::Warn(Warning::NameShared { worker, other: Arc::clone(&other.worker) }));
        }
    }

    fn read_holds(
        &mut self,
        peer: PeerId,
        id: LifeId,
        holds: Vec<Hold>,
        source: Source,
        effects: &mut Vec<Effect>,
    ) -> Listed {
        let mut listed = Listed::default();
        for hold in holds {
            match self.key.read(&hold.token) {
                Ok(lease) => {
                    if listed.leases.insert(lease) {
                        self.note_hold(peer, id, lease, hold.state, source, &mut listed, effects);
                    }
                }
                Err(_) => {
                    effects.push(Effect::Noise { peer, kind: NoiseKind::BadToken });
                    if hold.token.0.len() <= FORGED_MAX {
                        listed.forged.push(hold.token);
                    }
                }
            }
        }
        listed
    }

    #[expect(clippy::too_many_arguments, reason = "one row of a list, between the list and what comes of it")]
    fn note_hold(
        &mut self,
        peer: PeerId,
        id: LifeId,
        lease: LeaseId,
        state: HoldState,
        source: Source,
        listed: &mut Listed,
        effects: &mut Vec<Effect>,
    ) {
        match self.roster.place(lease) {
            Some(at) if at == id => self.note_state(lease, state, effects),
            Some(other) => {
                let is_live = self.roster.get(other).is_some_and(|life| life.peer.is_some());
                if source == Source::Beat && is_live {
                    listed.unknown.push(self.key.sign(lease));
                } else {
                    self.move_lease(id, lease, effects);
                    self.note_state(lease, state, effects);
                }
            }
            None => {
                let Some((session, life)) = self.sessions.get(&peer).zip(self.roster.get(id)) else {
                    return;
                };
                if session.refused.contains(&lease) {
                    listed.unknown.push(self.key.sign(lease));
                } else if !session.settled.contains(&lease) && !life.claims.contains_key(&lease) {
                    listed.claimed.push((lease, state));
                }
            }
        }
    }

    /// The worker says how far a lease is.
    fn note_state(&mut self, lease: LeaseId, state: HoldState, effects: &mut Vec<Effect>) {
        if state.has_begun() {
            self.note_begun(lease, effects);
        }
    }

    /// Work on a lease has begun; said once.
    pub(super) fn note_begun(&mut self, lease: LeaseId, effects: &mut Vec<Effect>) {
        let Some(held) = self.roster.held_mut(lease).filter(|held| !held.began) else {
            return;
        };
        held.began = true;
        if let Some(worker) = self.worker_of(lease) {
            effects.push(Effect::Begun { lease, worker: Arc::clone(worker) });
        }
    }

    /// Gives a lease to the life whose token proves that it has it.
    pub(super) fn move_lease(&mut self, id: LifeId, lease: LeaseId, effects: &mut Vec<Effect>) {
        let Some((from, held)) = self.detach(lease) else {
            return;
        };
        if matches!(held.answer, AnswerState::Pulling) {
            effects.push(Effect::TransferEnded { lease, why: Cut::Settled });
        }
        self.place(id, lease, Held::new(None, held.began, held.size));
        if let Some(peer) = self.roster.get(from).and_then(|life| life.peer) {
            self.refresh(peer);
        }
        self.forget_if_empty(from, effects);
    }

    /// Reports the leases that the life ought to have listed and did not.
    fn report_unlisted(
        &mut self,
        id: LifeId,
        session: u64,
        received: u64,
        listed: &BTreeSet<LeaseId>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(life) = self.roster.get(id) else {
            return;
        };
        let is_missing =
            |lease: &LeaseId, held: &Held| held.ought_to_be_listed(session, received) && !listed.contains(lease);
        let missing: Vec<_> = life.leases().iter().filter(|(l, h)| is_missing(l, h)).map(|(lease, _)| *lease).collect();
        if !missing.is_empty() {
            self.report_not_held(id, missing, NotHeldWhy::NotListed, effects);
        }
    }

    /// Asks the store about leases that memory does not know.
    fn claim(&mut self, id: LifeId, claimed: Vec<(LeaseId, HoldState)>, effects: &mut Vec<Effect>) {
        let most = self.limits.max_holds;
        let Some(life) = self.roster.get_mut(id) else {
            return;
        };
        let room = most.saturating_sub(life.claims.len());
        let holds: Vec<_> = claimed.into_iter().take(room).collect();
        if !holds.is_empty() {
            life.claims.extend(holds.iter().copied());
            effects.push(Effect::HoldsClaimed { worker: Arc::clone(&life.worker), holds });
        }
    }
}
