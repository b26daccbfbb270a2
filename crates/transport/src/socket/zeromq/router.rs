//! A ROUTER over zeromq.
//!
//! Owns the socket, the events of its connections, and which of them has which [`PeerId`]: the implementation knows its
//! peers by routing identity alone, and gives a random one to each that brings none.
//!
//! It reads a connection only when it is asked for messages, and tells of the connection's end when it comes to it. So a
//! departure is told after all messages. It tells through a queue of [`EVENTS`], and what finds that full is lost; then
//! nobody can say who is still there, and all are cut off: whoever lives connects again.

use super::held::{Held, Room};
use super::send::{self, Attempt};
use super::{BATCH, flushed, kept, refused, theirs, too_long};
use crate::socket::ipc::Claim;
use crate::socket::listen::{Listening, listen};
use crate::socket::peers::Peers;
use crate::socket::{Endpoint, PeerId, RouterEvent, RouterOptions, RouterStats, Sent, SocketError};
use ::zeromq::util::PeerIdentity;
use ::zeromq::{RouterSocket, Socket, SocketEvent, SocketOptions, SocketRecv, ZmqMessage};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How many events of connections the implementation keeps for us.
const EVENTS: usize = 1024;

/// The least linger, as with the other implementation.
const LEAST_LINGER: Duration = Duration::from_millis(100);

/// How long the last buffers may take to be written at the end. Longer is of no use: a connection that never finishes its
/// handshake looks the same as one that is being written to.
const LAST_WRITES: Duration = Duration::from_millis(500);

pub(in crate::socket) struct ZeromqRouter {
    socket: RouterSocket,
    endpoint: Endpoint,
    options: RouterOptions,
    changes: BoxStream<'static, SocketEvent>,
    peers: Peers,
    /// Who has which routing identity now.
    routes: HashMap<Bytes, Known>,
    next_peer: u64,
    events: VecDeque<RouterEvent>,
    held: Held,
    /// Messages taken since other tasks had their turn.
    taken: usize,
    claim: Option<Claim>,
    runtime: Handle,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    peer: PeerId,
    /// The implementation told of it. A message may be faster; then this is still to come.
    told: bool,
}

impl ZeromqRouter {
    pub(in crate::socket) async fn bind(endpoint: &Endpoint, options: &RouterOptions) -> Result<Self, SocketError> {
        let Listening { listener, claim, endpoint } = listen(endpoint, options.keep_alive).await?;
        let mut socket = RouterSocket::with_options(SocketOptions::default());
        let changes = socket.monitor().boxed();
        socket.bind_listener(theirs(listener)).await.map_err(|e| refused("cannot listen", &e))?;
        Ok(Self {
            socket,
            endpoint,
            options: options.clone(),
            changes,
            peers: Peers::new(options.clone(), 0),
            routes: HashMap::new(),
            next_peer: 0,
            events: VecDeque::new(),
            held: Held::default(),
            taken: 0,
            claim,
            runtime: Handle::current(),
        })
    }

    pub(in crate::socket) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(in crate::socket) fn stats(&self) -> RouterStats {
        self.peers.stats()
    }

    pub(in crate::socket) async fn next_many(
        &mut self,
        out: &mut Vec<RouterEvent>,
        max: usize,
    ) -> Result<usize, SocketError> {
        if max == 0 {
            return Ok(0);
        }
        self.fill().await?;
        let count = max.min(self.events.len());
        out.extend(self.events.drain(..count));
        Ok(count)
    }

    pub(in crate::socket) async fn next(&mut self) -> Result<RouterEvent, SocketError> {
        loop {
            self.fill().await?;
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
        }
    }

    pub(in crate::socket) fn identity(&self, peer: PeerId) -> Option<&Bytes> {
        self.peers.route(peer)
    }

    pub(in crate::socket) fn expect(&mut self, peer: PeerId, bytes: u64) {
        self.peers.expect(peer, bytes);
    }

    pub(in crate::socket) fn try_send(&mut self, peer: PeerId, frames: Vec<Bytes>) -> Sent {
        let Some(route) = self.peers.route(peer).cloned() else { return Sent::Gone };
        let room = Room { each: self.options.backlog_each, all: self.options.backlog_all };
        let Ok(frames) = self.held.count(peer, frames, room) else { return Sent::Full };
        match send::to_peer(&mut self.socket, &route, frames) {
            Attempt::Sent => Sent::Sent,
            Attempt::Full => Sent::Full,
            Attempt::Gone => {
                self.went(&route);
                Sent::Gone
            }
        }
    }

    pub(in crate::socket) fn disconnect(&mut self, peer: PeerId) {
        self.peers.cut(peer);
        self.close_cut();
    }

    pub(in crate::socket) async fn close(mut self: Box<Self>, linger: Duration) {
        let end = tokio::time::Instant::now() + linger.max(LEAST_LINGER);
        for error in self.socket.unbind_all().await {
            tracing::debug!(%error, "unbinding");
        }
        let taken = async {
            while self.held.all() > 0 {
                self.held.freed().await;
            }
        };
        if tokio::time::timeout_at(end, taken).await.is_err() {
            tracing::debug!(bytes = self.held.all(), "closing, and peers have not read all that was for them");
        }
        let inside = Arc::downgrade(&self.socket.backend());
        drop(std::mem::replace(&mut self.socket, RouterSocket::new()));
        flushed(inside, end.min(tokio::time::Instant::now() + LAST_WRITES)).await;
        drop(self.claim.take());
    }

    /// Waits until there is an event.
    async fn fill(&mut self) -> Result<(), SocketError> {
        loop {
            if !self.events.is_empty() {
                return Ok(());
            }
            if self.taken >= BATCH {
                self.taken = 0;
                tokio::task::yield_now().await;
            }
            self.take_changes();
            self.take_messages()?;
            self.take_changes();
            if self.events.is_empty() {
                self.wait().await?;
            }
        }
    }

    /// Waits until something happens, and takes it in.
    async fn wait(&mut self) -> Result<(), SocketError> {
        tokio::select! {
            biased;
            message = self.socket.recv() => {
                let message = message.map_err(|e| refused("cannot receive", &e))?;
                self.take(message, Instant::now());
                Ok(())
            }
            change = self.changes.next() => match change {
                Some(change) => {
                    self.take_change(change);
                    Ok(())
                }
                None => Err(SocketError::Closed),
            }
        }
    }

    fn take_messages(&mut self) -> Result<(), SocketError> {
        let now = Instant::now();
        for _ in 0..BATCH {
            let Some(message) = self.socket.recv().now_or_never() else { break };
            self.take(message.map_err(|e| refused("cannot receive", &e))?, now);
        }
        Ok(())
    }

    fn take(&mut self, message: ZmqMessage, now: Instant) {
        self.taken += 1;
        let mut frames = message.into_vecdeque();
        // A ROUTER of zeromq puts it in front of every message.
        let Some(route) = frames.pop_front() else { return };
        if !self.routes.contains_key(&route) {
            self.take_changes();
        }
        let peer = match self.routes.get(&route) {
            Some(known) => known.peer,
            None => self.came(route.clone(), false),
        };
        let frames: Vec<Bytes> = frames.into_iter().map(kept).collect();
        if too_long(&frames, self.options.max_message, self.options.max_frames) {
            self.peers.cut_for_size(peer);
        } else {
            self.peers.heard(peer, || route, frames, now, &mut self.events);
        }
        self.close_cut();
    }

    fn take_changes(&mut self) {
        let mut count = 0;
        while let Some(Some(change)) = self.changes.next().now_or_never() {
            count += 1;
            self.take_change(change);
        }
        if count >= EVENTS {
            tracing::warn!("too much came and went at once to be told; every peer has to connect again");
            let all: Vec<_> = self.routes.values().map(|known| known.peer).collect();
            for peer in all {
                self.peers.cut(peer);
            }
            self.close_cut();
        }
    }

    fn take_change(&mut self, change: SocketEvent) {
        match change {
            SocketEvent::Accepted(_, identity) => {
                let route = Bytes::from(identity);
                match self.routes.get_mut(&route) {
                    Some(known) if !known.told => known.told = true,
                    known => {
                        // Whoever had that name lost it: the implementation has dropped its connection.
                        if known.is_some() {
                            self.went(&route);
                        }
                        self.came(route, true);
                        self.close_cut();
                    }
                }
            }
            SocketEvent::Disconnected(identity) => self.went(&Bytes::from(identity)),
            SocketEvent::AcceptFailed(error) => tracing::debug!(%error, "a stranger at the door"),
            _ => {}
        }
    }

    /// A new connection with the routing identity `route`.
    fn came(&mut self, route: Bytes, told: bool) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        self.routes.insert(route.clone(), Known { peer, told });
        self.peers.came(peer, route, Instant::now(), &mut self.events);
        peer
    }

    /// The connection with the routing identity `route` is gone. One that we cut off is unknown by then.
    fn went(&mut self, route: &Bytes) {
        if let Some(known) = self.routes.remove(route) {
            self.held.forget(known.peer);
            self.peers.went(known.peer, &mut self.events);
        }
    }

    /// Has the implementation close the connections that were cut. A peer that never reads is told so when it does: what
    /// is being written to it stays until then.
    fn close_cut(&mut self) {
        for peer in self.peers.take_cuts() {
            let Some(route) = self.routes.iter().find(|(_, known)| known.peer == peer).map(|(route, _)| route.clone())
            else {
                continue;
            };
            if let Ok(identity) = PeerIdentity::try_from(route.clone()) {
                self.socket.backend().peer_disconnected(&identity);
            }
            self.went(&route);
        }
    }
}

impl Drop for ZeromqRouter {
    fn drop(&mut self) {
        // The task that accepts removes the socket's path when it ends; nobody else may bind there before.
        let Some(claim) = self.claim.take() else { return };
        let mut socket = std::mem::replace(&mut self.socket, RouterSocket::new());
        self.runtime.spawn(async move {
            socket.unbind_all().await;
            drop(claim);
        });
    }
}

impl std::fmt::Debug for ZeromqRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZeromqRouter")
            .field("endpoint", &self.endpoint)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
