//! A PULL over zeromq.
//!
//! Owns the socket. The implementation has no limits: a message is measured when it is there, and connections are as many as
//! come. So it is for peers that are trusted.

use super::{BATCH, FRAME_COST, kept, refused, theirs, too_long};
use crate::socket::ipc::Claim;
use crate::socket::listen::{Listening, listen};
use crate::socket::room::Room;
use crate::socket::{Brought, Endpoint, PullOptions, SocketError};
use ::zeromq::{PullSocket, Socket, SocketOptions, SocketRecv};
use bytes::Bytes;

pub(in crate::socket) struct ZeromqPull {
    socket: PullSocket,
    endpoint: Endpoint,
    options: PullOptions,
    room: Room,
    /// A message that waits for its place in the room.
    waiting: Option<Vec<Bytes>>,
    /// Messages taken since other tasks had their turn.
    taken: usize,
    claim: Option<Claim>,
}

impl ZeromqPull {
    pub(in crate::socket) async fn bind(endpoint: &Endpoint, options: &PullOptions) -> Result<Self, SocketError> {
        let Listening { listener, claim, endpoint } = listen(endpoint, options.keep_alive).await?;
        let mut socket = PullSocket::with_options(SocketOptions::default());
        socket.bind_listener(theirs(listener)).await.map_err(|e| refused("cannot listen", &e))?;
        let room = Room::new(options.held_max);
        Ok(Self { socket, endpoint, options: options.clone(), room, waiting: None, taken: 0, claim })
    }

    pub(in crate::socket) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(in crate::socket) async fn next(&mut self) -> Result<Brought, SocketError> {
        loop {
            if let Some(frames) = &self.waiting {
                let cost = frames.iter().fold(0_usize, |sum, frame| sum.saturating_add(frame.len() + FRAME_COST));
                let held = self.room.whole(cost).await;
                return Ok(Brought { frames: self.waiting.take().unwrap_or_default(), held });
            }
            if self.taken >= BATCH {
                self.taken = 0;
                tokio::task::yield_now().await;
            }
            // An error is that of one connection, which is gone by then.
            match self.socket.recv().await {
                Ok(message) => {
                    self.taken += 1;
                    let frames: Vec<Bytes> = message.into_vec();
                    if too_long(&frames, self.options.max_message, self.options.max_frames) {
                        tracing::debug!("a message that is longer than a message may be is dropped");
                        continue;
                    }
                    self.waiting = Some(frames.into_iter().map(kept).collect());
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection that brings results");
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    pub(in crate::socket) async fn close(mut self: Box<Self>) {
        for error in self.socket.unbind_all().await {
            tracing::debug!(%error, "unbinding");
        }
        drop(self.claim.take());
    }
}

impl std::fmt::Debug for ZeromqPull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZeromqPull").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
