//! A DEALER over zeromq.
//!
//! zeromq does not build a lost link again: it would wait for ever. So each link has a socket of its own, which is dropped
//! with its link, queue included. Owns that: dialling with back-off, one link, and the watch over its end.

use super::held::{Held, Room};
use super::send::{self, Attempt};
use super::{BATCH, flushed, kept, too_long};
use crate::socket::endpoint::Place;
use crate::socket::{DealerEvent, DealerOptions, Endpoint, PeerId, Sent, SocketError};
use ::zeromq::{DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, ZmqMessage};
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many bytes wait for the link: a few of the longest messages, so that little is lost with it.
const QUEUE: Room = Room { each: 1024 * 1024, all: 1024 * 1024 };

/// There is one link, which has one name here.
const LINK: PeerId = PeerId(0);

type Dial = Pin<Box<dyn Future<Output = Link> + Send>>;

pub(in crate::socket) struct ZeromqDealer {
    endpoint: String,
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
    socket: DealerSocket,
    changes: BoxStream<'static, SocketEvent>,
    held: Held,
    heard: bool,
    /// Messages taken since other tasks had their turn.
    taken: usize,
    ended: bool,
}

impl ZeromqDealer {
    pub(in crate::socket) fn connect(endpoint: &Endpoint, options: DealerOptions) -> Result<Self, SocketError> {
        // The implementation takes an address as text.
        if let Place::Ipc(path) = endpoint.place()
            && path.to_str().is_none_or(|path| path.contains('\n'))
        {
            let why = format!("{} has bytes that zeromq cannot have in a path", path.display());
            return Err(SocketError::Refused { what: "cannot make a DEALER", why });
        }
        let endpoint = endpoint.to_string();
        let state = State::Dialling(Box::pin(dial(endpoint.clone(), options.clone(), 0)));
        Ok(Self { endpoint, options, state, silent_links: 0 })
    }

    pub(in crate::socket) const fn is_connected(&self) -> bool {
        matches!(&self.state, State::Up(link) if !link.ended)
    }

    /// It never fails; the other implementation does.
    pub(in crate::socket) async fn next(&mut self) -> Result<DealerEvent, SocketError> {
        match &mut self.state {
            State::Dialling(dial) => {
                let link = dial.await;
                self.state = State::Up(Box::new(link));
                Ok(DealerEvent::Connected)
            }
            State::Up(link) => match link.next(&self.options).await {
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
            Some(link) => link.try_send(frames).unwrap_or(Sent::Full),
            None => Sent::Gone,
        }
    }

    pub(in crate::socket) async fn send(&mut self, mut frames: Vec<Bytes>, patience: Duration) -> Sent {
        let Some(link) = self.link() else { return Sent::Gone };
        let until = Instant::now() + patience;
        loop {
            match link.try_send(frames) {
                Ok(done) => return done,
                Err(unsent) => frames = unsent,
            }
            tokio::select! {
                biased;
                () = link.held.freed() => {}
                change = link.changes.next() => {
                    link.see(change.as_ref());
                    if link.ended {
                        return Sent::Gone;
                    }
                }
                () = tokio::time::sleep_until(until) => return Sent::Full,
            }
        }
    }

    pub(in crate::socket) fn rebuild(&mut self) {
        match &mut self.state {
            State::Up(link) => link.ended = true,
            State::Dialling(_) => self.dial_again(),
        }
    }

    pub(in crate::socket) async fn close(self: Box<Self>, linger: Duration) {
        if let State::Up(link) = self.state {
            let inside = Arc::downgrade(&link.socket.backend());
            drop(link);
            flushed(inside, Instant::now() + linger).await;
        }
    }

    fn link(&mut self) -> Option<&mut Link> {
        match &mut self.state {
            State::Up(link) if !link.ended => Some(link),
            _ => None,
        }
    }

    /// Drops the link, if there is one, and dials: at once after a link that worked, and with a growing pause after links
    /// over which nothing was heard, such as those of a dispatcher that has no place left.
    fn dial_again(&mut self) {
        let dial = dial(self.endpoint.clone(), self.options.clone(), self.silent_links);
        self.state = State::Dialling(Box::pin(dial));
    }
}

impl Link {
    /// The next message; `None` at the end of the link, after all that was received over it.
    async fn next(&mut self, limits: &DealerOptions) -> Option<Vec<Bytes>> {
        loop {
            if self.ended {
                return None;
            }
            if self.taken >= BATCH {
                self.taken = 0;
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                message = self.socket.recv() => match message {
                    Ok(message) => {
                        let frames = self.take(message);
                        if !too_long(&frames, limits.max_message, limits.max_frames) {
                            return Some(frames);
                        }
                        self.ended = true;
                    }
                    Err(_) => self.ended = true,
                },
                change = self.changes.next() => self.see(change.as_ref()),
            }
        }
    }

    fn take(&mut self, message: ZmqMessage) -> Vec<Bytes> {
        self.heard = true;
        self.taken += 1;
        message.into_vec().into_iter().map(kept).collect()
    }

    fn see(&mut self, change: Option<&SocketEvent>) {
        self.ended |= matches!(change, None | Some(SocketEvent::Disconnected(_)));
    }

    /// Sends, or says why not; the frames come back where there is no room for them.
    fn try_send(&mut self, frames: Vec<Bytes>) -> Result<Sent, Vec<Bytes>> {
        let frames = self.held.count(LINK, frames, QUEUE)?;
        Ok(match send::over_link(&mut self.socket, frames) {
            Attempt::Sent => Sent::Sent,
            Attempt::Full => Sent::Full,
            Attempt::Gone => {
                self.ended = true;
                Sent::Gone
            }
        })
    }
}

/// A link to the dispatcher, however long it takes. `failures` in a row came before.
///
/// The implementation itself tries again for as long as an attempt may take while nobody listens, every 50 ms at first.
async fn dial(endpoint: String, limits: DealerOptions, mut failures: u32) -> Link {
    loop {
        if failures > 0 {
            tokio::time::sleep(pause(&limits, failures)).await;
        }
        let mut options = SocketOptions::default();
        options.connect_timeout(limits.handshake);
        let mut socket = DealerSocket::with_options(options);
        let changes = socket.monitor().boxed();
        match socket.connect(&endpoint).await {
            Ok(()) => return Link { socket, changes, held: Held::default(), heard: false, taken: 0, ended: false },
            Err(error) => tracing::debug!(%error, "dialling"),
        }
        failures = failures.saturating_add(1);
    }
}

/// The pause before the next attempt: doubled with each failure, and up to a tenth longer.
fn pause(limits: &DealerOptions, failures: u32) -> Duration {
    let doubled = limits.retry_least.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(limits.retry_most);
    // Every hasher of the standard library starts somewhere else.
    let chance = u32::try_from(RandomState::new().hash_one(failures) % 1_000).unwrap_or(0);
    doubled + doubled / 10_000 * chance
}

impl std::fmt::Debug for ZeromqDealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZeromqDealer").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
