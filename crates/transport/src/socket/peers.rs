//! Who is connected to a ROUTER, and in which order that is told. Pure.
//!
//! Owns the table of connections: their allowance, what waits for them, and the promise that a peer arrives before its
//! first message and departs after its last. Knows nothing of the implementation below, which tells of each message with
//! its connection, and of the connections in one of two ways: it says when each came and went (`came`, `went`), or it has
//! a list of them now and then (a *look*) and says that nothing is left to be read.
//!
//! A connection that is missing from a look has handed over all that was received from it before the look, and messages
//! are read in order; so it departs once as many messages were read as can have been waiting then, or none is left.

use super::backlog::{Backlog, Room};
use super::budget::Allowance;
use super::router::{RouterEvent, RouterOptions, RouterStats};
use super::{PeerId, Sent};
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

/// The table of one ROUTER's connections.
#[derive(Debug)]
pub(super) struct Peers {
    known: HashMap<PeerId, Peer>,
    /// How many of them arrived and have not departed.
    told: usize,
    /// Who owns a routing identity. An identity that a peer chose moves with the last connection that claims it.
    owners: HashMap<Bytes, PeerId>,
    leaving: VecDeque<Leaving>,
    /// Connections that the implementation is to close.
    cutting: Vec<PeerId>,
    /// Messages read so far.
    read: u64,
    /// Looks asked for so far.
    looks: u64,
    look_due: bool,
    waiting: usize,
    most_unread: u64,
    options: RouterOptions,
    stats: RouterStats,
}

#[derive(Debug)]
struct Peer {
    route: Bytes,
    state: State,
    /// Its connection is gone; messages of it may still have to be read.
    gone: bool,
    /// How many looks had been asked for when it became known. A look can only miss who was known when it was asked for.
    since: u64,
    allowance: Allowance,
    backlog: Backlog,
    /// A message of it waits inside the implementation, so that later ones must not overtake it.
    sending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// Being closed by us. Its departure will be told.
    Cut,
    /// Turned away before it arrived. Nothing of it will be told.
    TurnedAway,
}

#[derive(Debug)]
struct Leaving {
    peer: PeerId,
    /// It departs when so many messages were read.
    at: u64,
}

impl Peers {
    /// A table for a socket in which at most `most_unread` messages can wait to be read.
    pub(super) fn new(options: RouterOptions, most_unread: u64) -> Self {
        Self {
            known: HashMap::new(),
            told: 0,
            owners: HashMap::new(),
            leaving: VecDeque::new(),
            cutting: Vec::new(),
            read: 0,
            looks: 0,
            look_due: false,
            waiting: 0,
            most_unread,
            options,
            stats: RouterStats::default(),
        }
    }

    /// Whether the connections have to be looked at although they did not change since the last look was asked for.
    pub(super) const fn look_is_due(&self) -> bool {
        self.look_due
    }

    /// Counts a look that is about to be asked for. Its answer comes back with the returned number.
    pub(super) const fn begin_look(&mut self) -> u64 {
        self.look_due = false;
        self.looks += 1;
        self.looks
    }

    /// The answer to look `number`: the connections that were there, each with its routing identity.
    pub(super) fn looked(
        &mut self,
        number: u64,
        there: impl IntoIterator<Item = (PeerId, Bytes)>,
        now: Instant,
        events: &mut VecDeque<RouterEvent>,
    ) {
        let mut listed = HashSet::new();
        for (peer, route) in there {
            listed.insert(peer);
            if !self.known.contains_key(&peer) {
                self.arrive(peer, route, now, events);
            }
        }
        let mut gone: Vec<_> = self
            .known
            .iter()
            .filter(|(peer, known)| !known.gone && known.since < number && !listed.contains(peer))
            .map(|(peer, _)| *peer)
            .collect();
        gone.sort_unstable();
        for peer in gone {
            self.leave(peer);
        }
    }

    /// A message of `peer`, whose routing identity is `route`.
    pub(super) fn heard(
        &mut self,
        peer: PeerId,
        route: impl FnOnce() -> Bytes,
        frames: Vec<Bytes>,
        now: Instant,
        events: &mut VecDeque<RouterEvent>,
    ) {
        if !self.known.contains_key(&peer) {
            self.arrive(peer, route(), now, events);
            // It may be gone already: the look that missed it may lie behind us.
            self.look_due = true;
        }
        self.read += 1;
        if let Some(known) = self.known.get_mut(&peer)
            && known.state == State::Live
        {
            if known.allowance.spend(frames.iter().map(Bytes::as_ref), now) {
                events.push_back(RouterEvent::Message { peer, frames });
            } else {
                self.stats.over_allowance += 1;
                self.cut(peer);
            }
        }
        self.depart(|leaving, read| leaving.at <= read, events);
    }

    /// Nothing was left to be read.
    pub(super) fn drained(&mut self, events: &mut VecDeque<RouterEvent>) {
        self.depart(|_, _| true, events);
    }

    /// A connection came. Its first message may have told that already.
    pub(super) fn came(&mut self, peer: PeerId, route: Bytes, now: Instant, events: &mut VecDeque<RouterEvent>) {
        if !self.known.contains_key(&peer) {
            self.arrive(peer, route, now, events);
        }
    }

    /// A connection went, and all that was received from it was read.
    pub(super) fn went(&mut self, peer: PeerId, events: &mut VecDeque<RouterEvent>) {
        self.leave(peer);
        self.depart(|leaving, _| leaving.peer == peer, events);
    }

    /// Cuts a peer whose message is longer than a message may be.
    pub(super) fn cut_for_size(&mut self, peer: PeerId) {
        if self.known.get(&peer).is_some_and(|known| known.state == State::Live) {
            self.stats.over_allowance += 1;
            self.cut(peer);
        }
    }

    /// Has the connection closed, and drops all that comes from it or waits for it.
    pub(super) fn cut(&mut self, peer: PeerId) {
        if let Some(known) = self.known.get_mut(&peer)
            && known.state == State::Live
        {
            known.state = State::Cut;
            known.backlog.clear(&mut self.waiting);
            self.cutting.push(peer);
        }
    }

    /// The connections that the implementation is to close, each once.
    pub(super) fn take_cuts(&mut self) -> Vec<PeerId> {
        std::mem::take(&mut self.cutting)
    }

    /// Lets `bytes` more come from `peer`, beside its allowance.
    pub(super) fn expect(&mut self, peer: PeerId, bytes: u64) {
        if let Some(known) = self.known.get_mut(&peer) {
            known.allowance.expect(bytes);
        }
    }

    /// The routing identity under which `peer` can be sent to.
    pub(super) fn route(&self, peer: PeerId) -> Option<&Bytes> {
        let known = self.known.get(&peer).filter(|known| known.state == State::Live && !known.gone)?;
        (self.owners.get(&known.route) == Some(&peer)).then_some(&known.route)
    }

    /// Whether a message to `peer` has to wait behind others.
    pub(super) fn is_sending(&self, peer: PeerId) -> bool {
        self.known.get(&peer).is_some_and(|known| known.sending)
    }

    /// Says whether a message to `peer` waits inside the implementation.
    pub(super) fn set_sending(&mut self, peer: PeerId, sending: bool) {
        if let Some(known) = self.known.get_mut(&peer) {
            known.sending = sending;
        }
    }

    /// Lets `frames` wait for `peer`, if there is room.
    pub(super) fn queue(&mut self, peer: PeerId, frames: Vec<Bytes>) -> Sent {
        let room = Room { each: self.options.backlog_each, all: self.options.backlog_all };
        let Some(known) = self.known.get_mut(&peer).filter(|known| !known.gone) else { return Sent::Gone };
        if known.backlog.push(frames, room, &mut self.waiting) { Sent::Sent } else { Sent::Full }
    }

    /// The next message that waits for `peer`.
    pub(super) fn next_queued(&mut self, peer: PeerId) -> Option<Vec<Bytes>> {
        self.known.get_mut(&peer)?.backlog.pop(&mut self.waiting)
    }

    /// How many bytes wait for all peers together.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn stats(&self) -> RouterStats {
        let connections = self.known.values().filter(|known| known.state == State::Live && !known.gone).count();
        RouterStats { connections, ..self.stats }
    }

    fn arrive(&mut self, peer: PeerId, route: Bytes, now: Instant, events: &mut VecDeque<RouterEvent>) {
        let full = self.told >= self.options.max_connections;
        let state = if full { State::TurnedAway } else { State::Live };
        self.owners.insert(route.clone(), peer);
        let allowance = Allowance::new(self.options.burst_bytes, self.options.bytes_per_second, now);
        let backlog = Backlog::default();
        self.known
            .insert(peer, Peer { route, state, gone: false, since: self.looks, allowance, backlog, sending: false });
        if full {
            self.stats.turned_away += 1;
            self.cutting.push(peer);
        } else {
            self.told += 1;
            events.push_back(RouterEvent::Arrived { peer });
        }
    }

    fn leave(&mut self, peer: PeerId) {
        let Some(known) = self.known.get_mut(&peer) else { return };
        known.backlog.clear(&mut self.waiting);
        if self.owners.get(&known.route) == Some(&peer) {
            self.owners.remove(&known.route);
        }
        if known.state == State::TurnedAway {
            self.known.remove(&peer);
        } else {
            known.gone = true;
            self.leaving.push_back(Leaving { peer, at: self.read.saturating_add(self.most_unread) });
        }
    }

    fn depart(&mut self, due: impl Fn(&Leaving, u64) -> bool, events: &mut VecDeque<RouterEvent>) {
        while let Some(first) = self.leaving.front()
            && due(first, self.read)
        {
            let peer = first.peer;
            self.leaving.pop_front();
            self.known.remove(&peer);
            self.told -= 1;
            events.push_back(RouterEvent::Departed { peer });
        }
    }
}

#[cfg(test)]
mod tests;
