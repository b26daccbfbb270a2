//! A PULL over omq.
//!
//! Owns the socket and the short queue through which its messages come. Each connection puts a message there when it is
//! whole, and reads no further while the queue is full: the queues that the implementation has of its own count messages, each
//! as large as a message may be, and it has one for each connection.

use super::{bind_error, frames, options, refused, resolved, to_omq};
use crate::socket::ipc::{self, Claim};
use crate::socket::{Endpoint, PullOptions, SocketError};
use bytes::Bytes;
use omq_tokio::engine::{AuthenticatedRecvItem, RecvSink, RecvSinkConfig, StateSignal};
use omq_tokio::options::KeepAlive;
use omq_tokio::{ConnectionStatus, Endpoint as OmqEndpoint, Error, Options, Socket, SocketType};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// Whole messages that wait to be taken, all connections together.
const WAITING: usize = 8;
/// How long it waits before it tries again to bind.
const BIND_PAUSE: Duration = Duration::from_millis(50);

pub(in crate::socket) struct OmqPull {
    socket: Socket,
    listens: OmqEndpoint,
    endpoint: Endpoint,
    messages: Receiver<AuthenticatedRecvItem>,
    max_connections: usize,
    /// The state of the connections that was looked at last.
    generation: u64,
    /// Last, so that the path is given up after the socket.
    _claim: Option<Claim>,
}

impl OmqPull {
    pub(in crate::socket) async fn bind(endpoint: &Endpoint, options: PullOptions) -> Result<Self, SocketError> {
        let options = options.within_open_files();
        let until = Instant::now() + options.bind_patience;
        loop {
            match Self::try_bind(endpoint, &options).await {
                Err(SocketError::InUse { .. }) if Instant::now() < until => tokio::time::sleep(BIND_PAUSE).await,
                done => return done,
            }
        }
    }

    async fn try_bind(endpoint: &Endpoint, options: &PullOptions) -> Result<Self, SocketError> {
        let claim = match endpoint.path() {
            Some(path) => Some(ipc::claim(path, endpoint).await?),
            None => None,
        };
        let nobody_waits_for_it = Arc::new(|| {});
        let (sink, messages) = RecvSink::authenticated(WAITING, nobody_waits_for_it.clone());
        let config = RecvSinkConfig::new(sink, nobody_waits_for_it, Arc::new(StateSignal::new()), WAITING);
        let socket = Socket::try_new_with_recv_sink_config(SocketType::Pull, pull_options(options), Arc::new(config))
            .map_err(|e| refused("cannot make a PULL", &e))?;
        let generation = socket.connections_generation();
        let listens = socket.bind(to_omq(endpoint)).await.map_err(|e| bind_error(endpoint, &e))?;
        Ok(Self {
            socket,
            endpoint: resolved(endpoint, &listens),
            listens,
            messages,
            max_connections: options.max_connections,
            generation,
            _claim: claim,
        })
    }

    pub(in crate::socket) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(in crate::socket) async fn next(&mut self) -> Result<Vec<Bytes>, SocketError> {
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => {
                    let (message, _) = message.ok_or(SocketError::Closed)?.into_parts();
                    return Ok(frames(&message));
                }
                changed = self.socket.connections_changed(self.generation) => {
                    self.generation = changed.map_err(|e| refused("cannot watch the connections", &e))?;
                }
            }
            self.close_those_beyond().await?;
        }
    }

    /// Closes the connections beyond the limit, the newest ones.
    async fn close_those_beyond(&self) -> Result<(), SocketError> {
        let there: Result<Vec<ConnectionStatus>, Error> = self.socket.connections().await;
        let mut there: Vec<u64> =
            there.map_err(|e| refused("cannot watch the connections", &e))?.iter().map(|c| c.connection_id).collect();
        there.sort_unstable();
        for connection in there.split_off(self.max_connections.min(there.len())) {
            tracing::debug!(connection, "too many connections that bring results: closed");
            // An error says that it is closed already.
            let _ = self.socket.disconnect_peer(connection).await;
        }
        Ok(())
    }

    pub(in crate::socket) async fn close(self: Box<Self>) {
        let Self { socket, listens, messages, _claim: claim, .. } = *self;
        if let Err(error) = socket.unbind(listens).await {
            tracing::debug!(%error, "unbinding");
        }
        drop(messages);
        // There is nothing to be sent, so nothing to wait for; with none at all the port can stay in use.
        if let Err(error) = socket.close_with_linger(Some(Duration::from_millis(100))).await {
            tracing::debug!(%error, "closing");
        }
        drop(claim);
    }
}

fn pull_options(limits: &PullOptions) -> Options {
    let options = options(limits.max_message, limits.max_frames)
        .handshake_timeout(limits.handshake)
        .max_pending_handshakes(limits.max_handshakes);
    options.tcp_keepalive(keep_alive(limits.keep_alive))
}

/// Probes every 30 s, four of them, after `idle` (rule W6).
pub(super) const fn keep_alive(idle: Option<Duration>) -> KeepAlive {
    match idle {
        Some(idle) => KeepAlive::Enabled { idle, intvl: Duration::from_secs(30), cnt: 4 },
        None => KeepAlive::Default,
    }
}

impl std::fmt::Debug for OmqPull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OmqPull").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
