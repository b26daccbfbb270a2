//! A DEALER over omq.
//!
//! omq would build a lost link again by itself, and put what was queued for the old one into the new one, ahead of our
//! `hello`. So each link has a socket of its own, which is dropped with its link, queue included. Owns that: dialling with
//! back-off, one link, and its end.

use super::send::{self, Attempt};
use super::{BATCH, frames, options, refused, to_omq};
use crate::socket::{DealerEvent, DealerOptions, Endpoint, Sent, SocketError};
use bytes::Bytes;
use omq_proto::backoff::next_delay;
use omq_tokio::{
    ConnectionStatus, Endpoint as OmqEndpoint, Error, Message, Options, ReconnectPolicy, Socket, SocketType,
};
use std::pin::Pin;
use std::time::Duration;

/// For how long one socket dials. A handshake that was refused for good is not tried again by it, so that another one has
/// to.
const DIALLING: Duration = Duration::from_secs(15);

type Dial = Pin<Box<dyn Future<Output = Result<Link, SocketError>> + Send>>;
type Look = Pin<Box<dyn Future<Output = Result<Vec<ConnectionStatus>, Error>> + Send>>;

pub(in crate::socket) struct OmqDealer {
    endpoint: OmqEndpoint,
    options: DealerOptions,
    state: State,
    /// Links in a row that ended before anything was heard over them.
    silent_links: u32,
}

enum State {
    Dialling(Dial),
    Up(Box<Link>),
}

/// One connection and the socket that was made for it.
struct Link {
    socket: Socket,
    connection: u64,
    /// The state of the socket's connections that the last look was asked for.
    generation: u64,
    look: Option<Look>,
    heard: bool,
    /// Messages taken since other tasks had their turn.
    taken: usize,
    end: End,
}

/// How far the end of a link is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The connection is gone; what was received over it is still to be read.
    Lost,
    /// Nothing of it is wanted any more.
    Dropped,
}

impl OmqDealer {
    pub(in crate::socket) fn connect(endpoint: &Endpoint, options: DealerOptions) -> Result<Self, SocketError> {
        dealer_options(&options).validate().map_err(|e| refused("cannot make a DEALER", &e))?;
        let endpoint = to_omq(endpoint);
        let state = State::Dialling(Box::pin(dial(endpoint.clone(), options.clone(), None)));
        Ok(Self { endpoint, options, state, silent_links: 0 })
    }

    pub(in crate::socket) const fn is_connected(&self) -> bool {
        matches!(&self.state, State::Up(link) if matches!(link.end, End::NotYet))
    }

    pub(in crate::socket) async fn next(&mut self) -> Result<DealerEvent, SocketError> {
        match &mut self.state {
            State::Dialling(dial) => {
                let dialled = dial.await;
                match dialled {
                    Ok(link) => self.state = State::Up(Box::new(link)),
                    Err(error) => {
                        self.dial_again();
                        return Err(error);
                    }
                }
                Ok(DealerEvent::Connected)
            }
            State::Up(link) => match link.next().await {
                Some(frames) => Ok(DealerEvent::Message { frames }),
                None => {
                    self.silent_links = if link.heard { 0 } else { self.silent_links.saturating_add(1) };
                    self.dial_again();
                    Ok(DealerEvent::Disconnected)
                }
            },
        }
    }

    pub(in crate::socket) fn try_send(&mut self, frames: Vec<Bytes>) -> Sent {
        match self.link() {
            Some(link) => sent(send::over_link(&link.socket, send::message(frames))),
            None => Sent::Gone,
        }
    }

    pub(in crate::socket) async fn send(&mut self, frames: Vec<Bytes>, patience: Duration) -> Sent {
        let State::Up(link) = &mut self.state else { return Sent::Gone };
        let Link { socket, connection, generation, look, end, .. } = &mut **link;
        if *end != End::NotYet {
            return Sent::Gone;
        }
        let message = match send::over_link(socket, send::message(frames)) {
            Attempt::Full(message) => message,
            done => return sent(done),
        };
        let sending = send::over_link_when_it_takes(socket, message);
        let out_of_patience = tokio::time::sleep(patience);
        tokio::pin!(sending, out_of_patience);
        loop {
            tokio::select! {
                biased;
                done = &mut sending => return sent(done),
                // What a look that is under way was asked for is no change any more.
                connections = poll_look(look), if look.is_some() => {
                    *look = None;
                    if !is_among(*connection, connections) {
                        *end = End::Lost;
                        return Sent::Gone;
                    }
                }
                _ = socket.connections_changed(*generation), if look.is_none() => return Sent::Gone,
                () = &mut out_of_patience => return Sent::Full,
            }
        }
    }

    pub(in crate::socket) fn rebuild(&mut self) {
        match &mut self.state {
            State::Up(link) => link.end = End::Dropped,
            State::Dialling(_) => self.dial_again(),
        }
    }

    pub(in crate::socket) async fn close(self: Box<Self>, linger: Duration) {
        if let State::Up(link) = self.state
            && let Err(error) = link.socket.close_with_linger(Some(linger)).await
        {
            tracing::debug!(%error, "closing");
        }
    }

    fn link(&self) -> Option<&Link> {
        match &self.state {
            State::Up(link) if link.end == End::NotYet => Some(link),
            _ => None,
        }
    }

    /// Drops the link, if there is one, and dials: at once after a link that worked, and with a growing pause after links
    /// over which nothing was heard, such as those of a dispatcher that has no place left.
    fn dial_again(&mut self) {
        let pause = next_delay(&retry(&self.options), self.silent_links).filter(|_| self.silent_links > 0);
        self.state = State::Dialling(Box::pin(dial(self.endpoint.clone(), self.options.clone(), pause)));
    }
}

impl Link {
    /// The next message; `None` at the end of the link, after all that was received over it.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            match self.end {
                End::NotYet => {}
                End::Dropped => return None,
                End::Lost => return self.socket.try_recv().ok().map(|message| self.take(&message)),
            }
            if self.taken >= BATCH {
                self.taken = 0;
                tokio::task::yield_now().await;
            }
            if self.look.is_none() && self.socket.connections_generation() != self.generation {
                self.begin_look();
            }
            tokio::select! {
                biased;
                connections = poll_look(&mut self.look), if self.look.is_some() => {
                    self.look = None;
                    if !is_among(self.connection, connections) {
                        self.end = End::Lost;
                    }
                }
                message = self.socket.recv() => match message {
                    Ok(message) => return Some(self.take(&message)),
                    Err(_) => self.end = End::Dropped,
                },
                changed = self.socket.connections_changed(self.generation), if self.look.is_none() => {
                    if changed.is_err() {
                        self.end = End::Dropped;
                    }
                }
            }
        }
    }

    fn take(&mut self, message: &Message) -> Vec<Bytes> {
        self.heard = true;
        self.taken += 1;
        frames(message)
    }

    fn begin_look(&mut self) {
        self.generation = self.socket.connections_generation();
        let socket = self.socket.clone();
        self.look = Some(Box::pin(async move { socket.connections().await }));
    }
}

fn is_among(connection: u64, connections: Result<Vec<ConnectionStatus>, Error>) -> bool {
    connections.is_ok_and(|all| all.iter().any(|c| c.connection_id == connection))
}

async fn poll_look(look: &mut Option<Look>) -> Result<Vec<ConnectionStatus>, Error> {
    match look {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// A link to the dispatcher, however long it takes.
async fn dial(endpoint: OmqEndpoint, options: DealerOptions, pause: Option<Duration>) -> Result<Link, SocketError> {
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
    loop {
        let socket = Socket::try_new(SocketType::Dealer, dealer_options(&options))
            .map_err(|e| refused("cannot make a DEALER", &e))?;
        socket.connect(endpoint.clone()).await.map_err(|e| refused("cannot dial", &e))?;
        if let Ok(Some((connection, generation))) = tokio::time::timeout(DIALLING, connected(&socket)).await {
            return Ok(Link { socket, connection, generation, look: None, heard: false, taken: 0, end: End::NotYet });
        }
        drop(socket);
        tokio::time::sleep(options.retry_most).await;
    }
}

/// Waits for a connection with a ROUTER. `None` if something else answers, or the socket died.
///
/// Something else may be ourselves: a socket that dials a port of this machine again and again is one day given that port
/// for its own end.
async fn connected(socket: &Socket) -> Option<(u64, u64)> {
    loop {
        let generation = socket.connections_generation();
        let connections = socket.connections().await.ok()?;
        if let Some((connection, peer)) =
            connections.iter().find_map(|c| Some((c.connection_id, c.peer_info.as_ref()?)))
        {
            let is_router = peer.peer_properties.socket_type == Some(SocketType::Router);
            return is_router.then_some((connection, generation));
        }
        socket.connections_changed(generation).await.ok()?;
    }
}

fn dealer_options(limits: &DealerOptions) -> Options {
    options(limits.max_message, limits.max_frames).handshake_timeout(limits.handshake).reconnect(retry(limits))
}

const fn retry(limits: &DealerOptions) -> ReconnectPolicy {
    ReconnectPolicy::Exponential { min: limits.retry_least, max: limits.retry_most }
}

fn sent(attempt: Attempt) -> Sent {
    match attempt {
        Attempt::Sent => Sent::Sent,
        Attempt::Full(_) => Sent::Full,
        Attempt::Gone => Sent::Gone,
    }
}

impl std::fmt::Debug for OmqDealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OmqDealer").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
