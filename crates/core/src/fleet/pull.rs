//! Bytes on request: pieces of answers that are wanted, pieces of inputs that are fetched, and answers that have to wait.

use super::Fleet;
use super::effect::{Answer, AnswerBytes, Cut, Effect, LostLease, Piece, Said};
use super::life::AnswerState;
use super::transfer::Transfer;
use crate::id::LeaseId;
use crate::report::Message;
use crate::session::{Fetch, PeerId, Waiting};
use crate::time::TimeMs;
use crate::wire::ToWorker;

impl Fetch {
    pub(super) const fn asked(self, peer: PeerId) -> Effect {
        Effect::FetchAsked { peer, lease: self.lease, offset: self.offset, length: self.length }
    }
}

impl Fleet {
    /// Begins to pull the bytes of an answer that came with [`AnswerBytes::Wanted`]: pieces arrive as
    /// [`Effect::PieceArrived`] and end with [`Effect::AllTaken`], or with [`Effect::TransferEnded`] where the worker is
    /// or goes away.
    pub fn want(&mut self, lease: LeaseId, now: TimeMs, effects: &mut Vec<Effect>) {
        let clock = self.clock.advance(now);
        let parts = match self.roster.held_mut(lease).map(|held| &mut held.answer) {
            Some(AnswerState::HandedOn(parts)) => std::mem::take(parts),
            Some(AnswerState::Pulling) => return,
            Some(AnswerState::None | AnswerState::Deferred(..)) | None => {
                effects.push(Effect::TransferEnded { lease, why: Cut::Settled });
                return;
            }
        };
        let life = self.roster.place(lease).and_then(|life| self.roster.get(life));
        let Some((peer, session)) = life.and_then(|life| life.peer).and_then(|p| Some((p, self.sessions.get_mut(&p)?)))
        else {
            self.roster.set_answer(lease, AnswerState::None);
            effects.push(Effect::TransferEnded { lease, why: Cut::Departed });
            return;
        };
        let transfer = Transfer::new(self.roster.number(), lease, parts, clock);
        if transfer.is_whole() {
            effects.push(Effect::AllTaken { lease });
            return;
        }
        session.transfers.insert(lease, transfer);
        self.roster.set_answer(lease, AnswerState::Pulling);
        self.refresh(peer);
        self.pump(effects);
    }

    /// The piece is written, or dropped; the next may be asked for. To be called once for every piece that arrived.
    pub fn taken(&mut self, piece: &Piece, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        self.wanted.release(piece.lease, piece.length);
        let life = self.roster.place(piece.lease).and_then(|life| self.roster.get(life));
        if let Some(peer) = life.and_then(|life| life.peer)
            && let Some(session) = self.sessions.get_mut(&peer)
            && let Some(transfer) = session.transfers.get_mut(&piece.lease)
        {
            transfer.taken(piece);
            if transfer.is_whole() {
                session.transfers.remove(&piece.lease);
                self.roster.set_answer(piece.lease, AnswerState::HandedOn(Vec::new()));
                effects.push(Effect::AllTaken { lease: piece.lease });
            }
            self.refresh(peer);
        }
        self.pump(effects);
    }

    /// The chunk of an [`Effect::FetchAsked`] is sent, or will not be; the next is served.
    pub fn chunk_done(&mut self, peer: PeerId, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.queue.went_through();
            session.fetches.done();
            self.serve_fetches(peer, effects);
        }
    }

    /// The chunk of an [`Effect::FetchAsked`] found the worker's queue full: the piece is asked for again by a later
    /// [`Self::flush`].
    pub fn chunk_full(
        &mut self,
        peer: PeerId,
        lease: LeaseId,
        offset: u64,
        length: u64,
        now: TimeMs,
        effects: &mut Vec<Effect>,
    ) {
        self.clock.advance(now);
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.fetches.done();
            self.keep_waiting(peer, Waiting::Chunk(Fetch { lease, offset, length }), effects);
        }
    }

    /// The answer cannot be taken now (rule D1): it stays with its worker, unacknowledged, its bytes dropped, and the
    /// worker is sent no task meanwhile. [`Self::resume`] pushes it again. Where its worker was lost meanwhile, the lease
    /// is lost with it, and the next [`Self::tick`] says so.
    pub fn defer(&mut self, mut answer: Box<Answer>) {
        let lease = answer.lease;
        self.inline.release_all(lease);
        let Some(id) = self.roster.place(lease) else {
            if self.orphans.remove(&lease) {
                self.lost_late.push((answer.worker, LostLease { lease, began: answer.began }));
            }
            return;
        };
        let Some(AnswerState::HandedOn(_)) = self.roster.held_mut(lease).map(|held| &held.answer) else {
            return;
        };
        let Some(peer) = self.roster.get(id).and_then(|life| life.peer) else {
            // Its worker answers again when it is back.
            self.roster.set_answer(lease, AnswerState::None);
            return;
        };
        if answer.bytes == AnswerBytes::Here {
            answer.bytes = AnswerBytes::Wanted;
        }
        let fits = self.inline.reserve(lease, weight(&answer));
        let number = self.roster.number();
        self.roster.set_answer(lease, AnswerState::Deferred(number, fits.then_some(answer)));
        self.refresh(peer);
    }

    /// There is room again: pushes up to `most` answers that had to wait, the longest waiting first. A worker whose words
    /// were not kept is cut off, so that it says them again.
    pub fn resume(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            let Some(lease) = self.roster.first_deferred() else {
                return;
            };
            let peer = self.roster.place(lease).and_then(|life| self.roster.get(life)).and_then(|life| life.peer);
            let words = self.forget_words(lease);
            match (words, peer) {
                (Some(answer), Some(peer)) => {
                    let wanted = answer.bytes == AnswerBytes::Wanted;
                    let pullable = if wanted { answer.parts.clone() } else { Vec::new() };
                    self.roster.set_answer(lease, AnswerState::HandedOn(pullable));
                    effects.push(Effect::Answered(answer));
                    self.refresh(peer);
                }
                (None, Some(peer)) => self.cut(peer, Cut::AskedAgain, effects),
                (_, None) => {}
            }
        }
    }

    /// How many answers wait to be taken.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.roster.lives().map(|(_, life)| life.deferred).sum()
    }

    /// Forgets that an answer waits; returns its words, where they were kept.
    pub(super) fn forget_words(&mut self, lease: LeaseId) -> Option<Box<Answer>> {
        let is_deferred = |held: &mut super::life::Held| matches!(held.answer, AnswerState::Deferred(..));
        if !self.roster.held_mut(lease).is_some_and(is_deferred) {
            return None;
        }
        let Some(AnswerState::Deferred(_, words)) = self.roster.set_answer(lease, AnswerState::None) else {
            return None;
        };
        if let Some(answer) = &words {
            self.inline.release(lease, weight(answer));
        }
        words
    }

    /// Asks for the next pieces, worker after worker, as far as the limits allow.
    pub(super) fn pump(&mut self, effects: &mut Vec<Effect>) {
        let clock = self.clock.listened();
        while let Some(peer) = self.pull_turns.first() {
            let Some(session) = self.sessions.get_mut(&peer) else {
                return;
            };
            let chunk_max = self.limits.chunk_max;
            let next = session.next_pull().and_then(|lease| session.transfers.get_mut(&lease));
            let Some(transfer) = next else {
                self.refresh_pulls(peer, false);
                continue;
            };
            let fits = transfer.peek(chunk_max).is_some_and(|p| self.wanted.reserve(p.lease, p.length));
            if !fits {
                return;
            }
            let Some((piece, name)) = transfer.ask(chunk_max, clock) else {
                return;
            };
            session.last_pull = Some(piece.lease);
            let token = self.key.sign(piece.lease);
            let message = ToWorker::Want { token, name, offset: piece.offset, length: piece.length };
            effects.push(Effect::Send { peer, message });
            // The next in turn is somebody else, if anybody waits.
            self.refresh_pulls(peer, false);
            self.refresh(peer);
        }
    }

    /// Serves the fetches of one worker, as far as its limit allows.
    pub(super) fn serve_fetches(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        let at_once = self.limits.outstanding_per_peer;
        let Some(session) = self.sessions.get_mut(&peer).filter(|session| !session.queue.is_full()) else {
            return;
        };
        while let Some(fetch) = session.fetches.next(at_once) {
            if self.roster.place(fetch.lease) == Some(session.life) {
                effects.push(fetch.asked(peer));
            } else {
                session.fetches.forget(fetch.lease);
            }
        }
    }
}

/// About how many bytes an answer's words take in memory.
fn weight(answer: &Answer) -> u64 {
    let message = |m: &Message| m.category.len() + m.what.len() + m.details.len() + size_of::<Message>();
    let cause = match &answer.said {
        Said::Retryable(cause) => message(cause),
        Said::Unusable(why) => why.len(),
        Said::Result(_) | Said::Release => 0,
    };
    let messages: usize = answer.messages.iter().map(message).sum();
    let parts: usize = answer.parts.iter().map(|part| part.name.len() + part.sha256.len()).sum();
    u64::try_from(size_of::<Answer>() + cause + messages + parts).unwrap_or(u64::MAX)
}
