//! What each message of a worker means.

use super::Fleet;
use super::effect::{Answer, AnswerBytes, Cut, Effect, NoiseKind, Said};
use super::hello::{FORGED_MAX, Hello};
use super::life::{AnswerState, Held};
use crate::id::LeaseId;
use crate::report::Message;
use crate::session::{Fetch, PeerId};
use crate::text::{self, Note};
use crate::time::TimeMs;
use crate::wire::{AckWord, ErrorCode, FromWorker, HoldState, PartSpec, ToWorker, TokenText};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An answer as it was said.
struct Spoken {
    said: Said,
    messages: Vec<Message>,
    parts: Vec<PartSpec>,
    body: u64,
}

impl Fleet {
    /// A worker said `message`, with `body` bytes of binary after it.
    ///
    /// The effects that speak of the body ([`Effect::PieceArrived`], and [`Effect::Answered`] with
    /// [`AnswerBytes::Here`]) are pushed by this call and mean this message's.
    pub fn heard(&mut self, peer: PeerId, message: FromWorker, body: u64, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        let is_known = self.touch(peer);
        match message {
            FromWorker::Hello { .. } if is_known => {
                self.offend(peer, NoiseKind::Malformed, ErrorCode::Malformed, "hello is said once", effects);
                self.cut(peer, Cut::Offence, effects);
            }
            FromWorker::Hello { proto, name, incarnation, services, slots, holds } => {
                self.hello(peer, Hello { proto, name, incarnation, services, slots, holds }, effects);
            }
            _ if !is_known => {
                self.offend(peer, NoiseKind::NoHello, ErrorCode::NoHello, "say hello first", effects);
            }
            FromWorker::Ready { granted } => self.ready(peer, granted),
            FromWorker::Begun { token } => self.begun(peer, &token, effects),
            FromWorker::Beat { n, received, holds } => self.beat(peer, n, received, holds, effects),
            FromWorker::Fetch { token, offset, length } => self.fetch(peer, &token, offset, length, effects),
            FromWorker::Result { token, status, messages, parts } => {
                self.answer(peer, token, Spoken { said: Said::Result(status), messages, parts, body }, effects);
            }
            FromWorker::Retryable { token, cause, messages, parts } => {
                let said = Said::Retryable(text::clean_message(cause, &mut Note::default()));
                self.answer(peer, token, Spoken { said, messages, parts, body }, effects);
            }
            FromWorker::Release { token } => {
                let spoken = Spoken { said: Said::Release, messages: Vec::new(), parts: Vec::new(), body };
                self.answer(peer, token, spoken, effects);
            }
            FromWorker::Part { token, name, offset } => self.part(peer, &token, &name, offset, body, effects),
            FromWorker::Bye => self.cut(peer, Cut::Bye, effects),
        }
        self.pump(effects);
    }

    /// A message of the v1 wire that could not be read. It is counted, answered, and harms nothing after it.
    pub fn malformed(&mut self, peer: PeerId, now: TimeMs, effects: &mut Vec<Effect>) {
        self.clock.advance(now);
        self.touch(peer);
        self.offend(peer, NoiseKind::Malformed, ErrorCode::Malformed, "the message cannot be read", effects);
    }

    /// Any traffic is life. Returns whether the connection's worker has said hello.
    fn touch(&mut self, peer: PeerId) -> bool {
        let clock = self.clock.listened();
        let life = self.sessions.get(&peer).map(|session| session.life);
        if let Some(life) = life.and_then(|life| self.roster.get_mut(life)) {
            life.heard_at = clock;
        }
        life.is_some()
    }

    /// Counts what a peer did wrong, and tells it.
    pub(super) fn offend(
        &mut self,
        peer: PeerId,
        kind: NoiseKind,
        code: ErrorCode,
        message: &str,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Noise { peer, kind });
        effects.push(Effect::Send { peer, message: ToWorker::Error { code, message: message.to_owned() } });
    }

    /// The lease of a token, where this connection's worker has it.
    fn own_lease(&mut self, peer: PeerId, lease: LeaseId) -> Option<&mut Held> {
        let life = self.sessions.get(&peer)?.life;
        if self.roster.place(lease) != Some(life) {
            return None;
        }
        self.roster.held_mut(lease)
    }

    fn read_token(&mut self, peer: PeerId, token: &TokenText, effects: &mut Vec<Effect>) -> Option<LeaseId> {
        match self.key.read(token) {
            Ok(lease) => Some(lease),
            Err(why) => {
                self.offend(peer, NoiseKind::BadToken, ErrorCode::BadToken, &why.to_string(), effects);
                None
            }
        }
    }

    fn ready(&mut self, peer: PeerId, granted: u64) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.credit.grant(granted);
            self.refresh(peer);
        }
    }

    fn begun(&mut self, peer: PeerId, token: &TokenText, effects: &mut Vec<Effect>) {
        let Some(lease) = self.read_token(peer, token, effects) else {
            return;
        };
        if self.own_lease(peer, lease).is_some() {
            self.prove_arrival(peer, lease);
            self.note_begun(lease, effects);
        } else {
            self.claim_one(peer, lease, HoldState::Running, effects);
        }
    }

    /// A lease that the worker speaks of has arrived, and so has every one sent before it.
    fn prove_arrival(&mut self, peer: PeerId, lease: LeaseId) {
        let clock = self.clock.listened();
        let sent = self.own_lease(peer, lease).and_then(|held| held.sent);
        if let Some((number, session)) = sent.zip(self.sessions.get_mut(&peer))
            && number.0 == session.number
        {
            session.credit.prove(number.1, clock);
            self.refresh(peer);
        }
    }

    fn fetch(&mut self, peer: PeerId, token: &TokenText, offset: u64, length: u64, effects: &mut Vec<Effect>) {
        let Some(lease) = self.read_token(peer, token, effects) else {
            return;
        };
        let Some(held) = self.own_lease(peer, lease) else {
            return self.claim_one(peer, lease, HoldState::Queued, effects);
        };
        let is_within = |size| offset.checked_add(length).is_some_and(|end| end <= size);
        if !held.size.is_some_and(is_within) || length == 0 || length > self.limits.chunk_max {
            let message = format!("a fetch lies within the input and has 1 to {} bytes", self.limits.chunk_max);
            return self.offend(peer, NoiseKind::BadFetch, ErrorCode::Limit, &message, effects);
        }
        self.prove_arrival(peer, lease);
        let most = self.limits.max_fetches;
        let fetch = Fetch { lease, offset, length };
        if self.sessions.get_mut(&peer).is_some_and(|session| session.fetches.ask(fetch, most)) {
            self.serve_fetches(peer, effects);
        } else {
            self.offend(peer, NoiseKind::OverLimit, ErrorCode::Limit, "too many fetches wait", effects);
        }
    }

    fn part(
        &mut self,
        peer: PeerId,
        token: &TokenText,
        name: &str,
        offset: u64,
        length: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.read_token(peer, token, effects) else {
            return;
        };
        let clock = self.clock.listened();
        let transfer = self.sessions.get_mut(&peer).and_then(|session| session.transfers.get_mut(&lease));
        match transfer.map(|transfer| transfer.arrived(name, offset, length, clock)) {
            Some(Ok(piece)) => effects.push(Effect::PieceArrived(piece)),
            // A piece may cross the end of its transfer: it is counted, and no offence.
            Some(Err(_)) | None => effects.push(Effect::Noise { peer, kind: NoiseKind::UnwantedPiece }),
        }
    }

    fn answer(&mut self, peer: PeerId, token: TokenText, spoken: Spoken, effects: &mut Vec<Effect>) {
        let Ok(lease) = self.key.read(&token) else {
            return self.refuse_forged(peer, token, effects);
        };
        if !self.take_up(peer, lease, &spoken.said, effects) {
            return;
        }
        self.prove_arrival(peer, lease);
        if spoken.said != Said::Release {
            self.note_begun(lease, effects);
        }
        self.hand_on(peer, lease, spoken, effects);
    }

    /// An answer under a forged token is refused without a look-up (rule C13), and so that its worker forgets it.
    fn refuse_forged(&mut self, peer: PeerId, token: TokenText, effects: &mut Vec<Effect>) {
        if token.0.len() > FORGED_MAX {
            return self.offend(peer, NoiseKind::BadToken, ErrorCode::BadToken, "that is no token", effects);
        }
        effects.push(Effect::Noise { peer, kind: NoiseKind::BadToken });
        let why = Some("the token was not signed here".to_owned());
        effects.push(Effect::Send { peer, message: ToWorker::Ack { token, answer: AckWord::Refused, why } });
    }

    /// Makes the lease this worker's, if it is not: its token proves that it worked on it. False where the answer is not
    /// to be taken now.
    fn take_up(&mut self, peer: PeerId, lease: LeaseId, said: &Said, effects: &mut Vec<Effect>) -> bool {
        if let Some(held) = self.own_lease(peer, lease) {
            // A repeat while the first one's fate is open: one acknowledgement answers both.
            return matches!(held.answer, AnswerState::None | AnswerState::Deferred(..));
        }
        let Some(session) = self.sessions.get_mut(&peer) else {
            return false;
        };
        session.settled.remove(&lease);
        session.refused.remove(&lease);
        let id = session.life;
        if self.roster.get(id).is_none_or(|life| life.leases().len() >= self.limits.max_holds) {
            self.offend(peer, NoiseKind::OverLimit, ErrorCode::Limit, "too many leases", effects);
            return false;
        }
        if self.roster.place(lease).is_some() {
            self.move_lease(id, lease, effects);
        } else {
            self.place(id, lease, Held::new(None, *said != Said::Release, None));
            self.welcome_if_settled(peer, effects);
        }
        true
    }

    /// Gives the answer to whoever drives the fleet.
    fn hand_on(&mut self, peer: PeerId, lease: LeaseId, spoken: Spoken, effects: &mut Vec<Effect>) {
        self.forget_words(lease);
        let Spoken { mut said, messages, mut parts, body } = spoken;
        let bytes = match self.locate_bytes(&parts, body) {
            Ok(AnswerBytes::Here) if !self.inline.reserve(lease, body) => AnswerBytes::Wanted,
            Ok(bytes) => bytes,
            Err(why) => {
                effects.push(Effect::Noise { peer, kind: NoiseKind::UnusableAnswer });
                said = Said::Unusable(why);
                parts.clear();
                AnswerBytes::None
            }
        };
        let Some((held, worker)) = self.roster.held_mut(lease).map(|h| h.began).zip(self.worker_of(lease).cloned())
        else {
            return;
        };
        let pullable = if bytes == AnswerBytes::Wanted { parts.clone() } else { Vec::new() };
        self.roster.set_answer(lease, AnswerState::HandedOn(pullable));
        let messages = text::clean_messages(messages, self.limits.max_messages);
        let answer = Answer { lease, worker: Arc::clone(&worker), said, began: held, messages, parts, bytes };
        effects.push(Effect::Answered(Box::new(answer)));
        self.refresh(peer);
    }

    /// Where the bytes of an answer are, or why the answer is unusable (rule R1).
    fn locate_bytes(&self, parts: &[PartSpec], body: u64) -> Result<AnswerBytes, String> {
        if parts.len() > self.limits.max_parts {
            return Err(format!("it has {} parts, and {} are allowed", parts.len(), self.limits.max_parts));
        }
        let mut names = BTreeSet::new();
        let mut total = 0_u64;
        for part in parts {
            check_part(part)?;
            if !names.insert(part.name.as_str()) {
                return Err(format!("it has two parts named {}", part.name));
            }
            total = total.checked_add(part.size).ok_or("its sizes add up to more than can be counted")?;
        }
        match (total, body) {
            (0, 0) => Ok(AnswerBytes::None),
            (_, 0) => Ok(AnswerBytes::Wanted),
            (total, body) if total != body => Err(format!("its parts declare {total} bytes, and {body} came")),
            _ if body > self.limits.inline_max => Ok(AnswerBytes::Wanted),
            _ => Ok(AnswerBytes::Here),
        }
    }
}

/// A part's name is safe as a file name, and its digest is one.
fn check_part(part: &PartSpec) -> Result<(), String> {
    let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let is_name =
        (1..=64).contains(&part.name.len()) && !part.name.starts_with('.') && part.name.bytes().all(is_name_byte);
    if !is_name {
        let shown = text::clean_line(part.name.as_bytes(), 64).text.into_owned();
        return Err(format!("a part's name is up to 64 letters, digits, `_`, `-` and `.`, not {shown:?}"));
    }
    let is_digest_byte = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if part.sha256.len() != 64 || !part.sha256.bytes().all(is_digest_byte) {
        return Err(format!("the digest of its part {} is not 64 hexadecimal digits", part.name));
    }
    Ok(())
}
