//! A ROUTER over omq.
//!
//! Owns the socket, and the few things that are under way at it: one look at its connections, connections being closed,
//! and for each peer whose queue is full the one message that waits there. All of them are polled in
//! [`OmqRouter::next_many`] beside the messages; none is waited for alone.

use super::send::{self, Attempt};
use super::{BATCH, RECV_HWM, bind_error, frames, options, refused, resolved, to_omq};
use crate::socket::ipc::{self, Claim};
use crate::socket::peers::Peers;
use crate::socket::{Endpoint, PeerId, RouterEvent, RouterOptions, RouterStats, Sent, SocketError};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use omq_tokio::options::KeepAlive;
use omq_tokio::{ConnectionStatus, Endpoint as OmqEndpoint, Error, Message, Options, Socket, SocketType};
use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// How many received messages may wait in the socket when a look at the connections is answered: its queue, and the batch
/// of 256 that it fills from there.
const MOST_UNREAD: u64 = RECV_HWM as u64 + 256;

/// The least linger. With none at all, answers are lost and the port can stay in use.
const LEAST_LINGER: Duration = Duration::from_millis(100);

type Chore = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What came of something that was under way.
enum Done {
    /// The connections, in answer to the look of that number.
    Looked(u64, Result<Vec<ConnectionStatus>, Error>),
    /// The message that waited for this peer is sent, or its peer is gone.
    Sent(PeerId, bool),
    /// A connection was closed.
    Closed,
}

pub(in crate::socket) struct OmqRouter {
    socket: Socket,
    listens: OmqEndpoint,
    endpoint: Endpoint,
    peers: Peers,
    events: VecDeque<RouterEvent>,
    inbox: Vec<Message>,
    chores: FuturesUnordered<Chore>,
    looking: bool,
    /// The state of the connections that the last look was asked for.
    generation: u64,
    /// Messages taken since other tasks had their turn.
    taken: usize,
    /// Last, so that the path is given up after the socket.
    _claim: Option<Claim>,
}

impl OmqRouter {
    pub(in crate::socket) async fn bind(endpoint: &Endpoint, options: &RouterOptions) -> Result<Self, SocketError> {
        let claim = match endpoint.path() {
            Some(path) => Some(ipc::claim(path, endpoint).await?),
            None => None,
        };
        let socket = Socket::try_new(SocketType::Router, router_options(options))
            .map_err(|e| refused("cannot make a ROUTER", &e))?;
        let generation = socket.connections_generation();
        let listens = socket.bind(to_omq(endpoint)).await.map_err(|e| bind_error(endpoint, &e))?;
        Ok(Self {
            socket,
            endpoint: resolved(endpoint, &listens),
            listens,
            peers: Peers::new(options.clone(), MOST_UNREAD),
            events: VecDeque::new(),
            inbox: Vec::new(),
            chores: FuturesUnordered::new(),
            looking: false,
            generation,
            taken: 0,
            _claim: claim,
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
        let Some(route) = self.peers.route(peer) else { return Sent::Gone };
        if self.peers.is_sending(peer) {
            return self.peers.queue(peer, frames);
        }
        match send::to_peer(&self.socket, route, send::message(frames)) {
            Attempt::Sent => Sent::Sent,
            Attempt::Gone => Sent::Gone,
            Attempt::Full(message) => {
                self.wait_with(peer, message);
                Sent::Sent
            }
        }
    }

    pub(in crate::socket) fn disconnect(&mut self, peer: PeerId) {
        self.peers.cut(peer);
        self.close_cut();
    }

    pub(in crate::socket) async fn close(self: Box<Self>, linger: Duration) {
        let until = Instant::now() + linger.max(LEAST_LINGER);
        let Self { socket, listens, mut peers, mut chores, _claim: claim, .. } = *self;
        if let Err(error) = socket.unbind(listens).await {
            tracing::debug!(%error, "unbinding");
        }
        let flushed = async {
            while let Some(done) = chores.next().await {
                if let Done::Sent(peer, true) = done {
                    send_queued(&socket, &mut peers, &chores, peer);
                }
            }
        };
        // Half of the time for what waits here, so that there is some left for what the socket has.
        let half = linger.max(LEAST_LINGER) / 2;
        if tokio::time::timeout(half, flushed).await.is_err() {
            tracing::debug!(bytes = peers.waiting(), "closing, and peers have not read all that was for them");
        }
        drop(chores);
        let left = until.saturating_duration_since(Instant::now()).max(LEAST_LINGER);
        if let Err(error) = socket.close_with_linger(Some(left)).await {
            tracing::debug!(%error, "closing");
        }
        drop(claim);
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
            self.begin_look();
            while let Some(Some(done)) = self.chores.next().now_or_never() {
                self.settle(done)?;
            }
            self.take_messages()?;
            if self.events.is_empty() {
                self.wait().await?;
            }
        }
    }

    /// Waits until something happens, and takes it in.
    async fn wait(&mut self) -> Result<(), SocketError> {
        tokio::select! {
            biased;
            Some(done) = self.chores.next(), if !self.chores.is_empty() => self.settle(done),
            message = self.socket.recv() => {
                let message = message.map_err(|e| refused("cannot receive", &e))?;
                self.take(message, Instant::now());
                Ok(())
            }
            changed = self.socket.connections_changed(self.generation), if !self.looking => {
                changed.map(|_| ()).map_err(|e| refused("cannot watch the connections", &e))
            }
        }
    }

    /// Asks for the connections, if they changed and nobody asks already.
    fn begin_look(&mut self) {
        let generation = self.socket.connections_generation();
        if self.looking || (generation == self.generation && !self.peers.look_is_due()) {
            return;
        }
        self.looking = true;
        self.generation = generation;
        let number = self.peers.begin_look();
        let socket = self.socket.clone();
        self.chores.push(Box::pin(async move { Done::Looked(number, socket.connections().await) }));
    }

    fn take_messages(&mut self) -> Result<(), SocketError> {
        match self.socket.try_recv_many_into(BATCH, &mut self.inbox) {
            Ok(_) => {
                let now = Instant::now();
                for message in std::mem::take(&mut self.inbox) {
                    self.take(message, now);
                }
                Ok(())
            }
            Err(Error::WouldBlock) => {
                self.peers.drained(&mut self.events);
                Ok(())
            }
            Err(error) => Err(refused("cannot receive", &error)),
        }
    }

    fn take(&mut self, mut message: Message, now: Instant) {
        self.taken += 1;
        let Some(sender) = message.pop_identity() else {
            // A ROUTER of omq puts it in front of every message.
            tracing::error!("a message without its sender");
            return;
        };
        let peer = PeerId(sender.peer_info().connection_id);
        self.peers.heard(peer, || sender.to_bytes(), frames(&message), now, &mut self.events);
        self.close_cut();
    }

    fn settle(&mut self, done: Done) -> Result<(), SocketError> {
        match done {
            Done::Looked(number, connections) => {
                self.looking = false;
                let connections = connections.map_err(|e| refused("cannot watch the connections", &e))?;
                let there = connections.into_iter().map(|c| (PeerId(c.connection_id), c.identity));
                self.peers.looked(number, there, Instant::now(), &mut self.events);
                self.close_cut();
            }
            Done::Sent(peer, true) => send_queued(&self.socket, &mut self.peers, &self.chores, peer),
            // Its departure is seen by a look.
            Done::Sent(_, false) | Done::Closed => {}
        }
        Ok(())
    }

    /// Has the implementation close the connections that were cut.
    fn close_cut(&mut self) {
        for PeerId(connection) in self.peers.take_cuts() {
            let socket = self.socket.clone();
            self.chores.push(Box::pin(async move {
                // An error says that it is closed already.
                let _ = socket.disconnect_peer(connection).await;
                Done::Closed
            }));
        }
    }

    fn wait_with(&mut self, peer: PeerId, message: Message) {
        wait_with(&self.socket, &mut self.peers, &self.chores, peer, message);
    }
}

/// Sends what waits for `peer`, up to the first message for which its queue has no room.
fn send_queued(socket: &Socket, peers: &mut Peers, chores: &FuturesUnordered<Chore>, peer: PeerId) {
    peers.set_sending(peer, false);
    while let Some(frames) = peers.next_queued(peer) {
        let Some(route) = peers.route(peer) else { return };
        match send::to_peer(socket, route, send::message(frames)) {
            Attempt::Sent => {}
            Attempt::Gone => return,
            Attempt::Full(message) => return wait_with(socket, peers, chores, peer, message),
        }
    }
}

/// Leaves `message` to be sent as soon as `peer` has read, ahead of all that is queued for it.
fn wait_with(socket: &Socket, peers: &mut Peers, chores: &FuturesUnordered<Chore>, peer: PeerId, message: Message) {
    let Some(route) = peers.route(peer).cloned() else { return };
    peers.set_sending(peer, true);
    let sent = send::to_peer_when_it_reads(socket.clone(), route, message);
    chores.push(Box::pin(async move { Done::Sent(peer, sent.await) }));
}

fn router_options(limits: &RouterOptions) -> Options {
    options(limits.max_message, limits.max_frames)
        .router_mandatory(true)
        .handshake_timeout(limits.handshake)
        .max_pending_handshakes(limits.max_handshakes)
        .linger(LEAST_LINGER)
        .tcp_keepalive(keep_alive(limits.keep_alive))
}

/// Probes every 30 s, four of them, after `idle` (rule W6).
const fn keep_alive(idle: Option<Duration>) -> KeepAlive {
    match idle {
        Some(idle) => KeepAlive::Enabled { idle, intvl: Duration::from_secs(30), cnt: 4 },
        None => KeepAlive::Default,
    }
}

impl std::fmt::Debug for OmqRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OmqRouter")
            .field("endpoint", &self.endpoint)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
