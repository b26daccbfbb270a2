//! One connection of a PULL.
//!
//! Owns what is under way on it: the codec, and the body of a long frame, which is read to where it stays. Refuses to know
//! what is in a message.
//!
//! **Invariants**: what a frame claims is not allocated, only what came of it; nothing more is read while there is no room
//! for what is under way; who has a place in the room that others wait for, and brings next to nothing of its message, is cut off.

use super::frames::{FRAME_COST, Frames, LongCommand};
use super::pace::Pace;
use crate::socket::Brought;
use crate::socket::room::{Held, Room, SHORT};
use bytes::{BufMut, Bytes};
use omq_proto::error::Error;
use omq_proto::proto::connection::{Connection, ConnectionConfig, Role};
use omq_tokio::{Message, SocketType};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc::Sender;
use tokio::time::{timeout, timeout_at};

/// What is read at once, but for the bodies of long frames.
const PIECE: usize = 16 * 1024;
/// The body of a frame that is not whole, and is at least so long, is read to where it stays.
const BODY_LEAST: usize = 1024;
/// Up to here the whole of a frame is allocated at once; beyond it twice as much as came.
const BODY_AT_ONCE: usize = 256 * 1024;
/// The greeting with which each end begins (ZMTP 3.1); frames come after it.
const GREETING: usize = 64;

/// How long a peer may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the connections of one socket share.
pub(super) struct Port {
    /// The most bytes of a message, with what its frames cost beside them.
    pub(super) max_message: usize,
    pub(super) handshake: Duration,
    pub(super) room: Room,
    pub(super) messages: Sender<Brought>,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("it is closed")]
    Left,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Protocol(#[from] Error),
    #[error("{0}")]
    Command(#[from] LongCommand),
    #[error("no handshake within {0:?}")]
    NoHandshake(Duration),
    #[error("it has a place that others wait for, and brings next to nothing")]
    Stalled,
    #[error("it does not take its answers")]
    Deaf,
    #[error("nobody takes messages any more")]
    NobodyTakes,
}

pub(super) struct Link<'p, S> {
    stream: S,
    port: &'p Port,
    codec: Connection,
    /// Bytes of the greeting that are still to come.
    greeting_left: usize,
    frames: Frames,
    body: Option<Body>,
    held: Held,
    pace: Pace,
}

/// The body of a long frame.
struct Body {
    bytes: Vec<u8>,
    length: usize,
}

impl<'p, S: AsyncRead + AsyncWrite + Unpin> Link<'p, S> {
    pub(super) fn new(stream: S, port: &'p Port) -> Self {
        let config = ConnectionConfig::new(Role::Server, SocketType::Pull).max_message_size(port.max_message);
        let mut codec = Connection::new(config);
        codec.set_input_budget(true);
        Self {
            stream,
            port,
            codec,
            greeting_left: GREETING,
            frames: Frames::default(),
            body: None,
            held: Held::default(),
            pace: Pace::default(),
        }
    }

    /// Until the peer may send messages.
    pub(super) async fn shake_hands(&mut self) -> Result<(), End> {
        let patience = self.port.handshake;
        let shaking = async {
            while !self.codec.is_ready() {
                self.answer().await?;
                self.read().await?;
            }
            Ok(())
        };
        timeout(patience, shaking).await.unwrap_or(Err(End::NoHandshake(patience)))
    }

    /// Brings messages until the connection ends.
    pub(super) async fn bring(&mut self) -> Result<(), End> {
        loop {
            self.deliver().await?;
            self.begin_body()?;
            self.make_room().await;
            self.read().await?;
        }
    }

    /// Hands over what is whole and writes what is to be answered, until nothing is left to do without another read.
    async fn deliver(&mut self) -> Result<(), End> {
        loop {
            self.answer().await?;
            // Of a PULL nobody may want anything but an answer.
            while self.codec.poll_event().is_some() {}
            while let Some(message) = self.codec.poll_message() {
                self.hand_over(&message).await?;
            }
            if !self.codec.has_pending_input() {
                return Ok(());
            }
            self.codec.resume_input()?;
        }
    }

    async fn hand_over(&mut self, message: &Message) -> Result<(), End> {
        let frames: Vec<Bytes> = (0..message.len()).filter_map(|index| message.part_bytes(index)).collect();
        let cost = frames.iter().fold(0_usize, |sum, frame| sum.saturating_add(frame.len() + FRAME_COST));
        let mut held = std::mem::take(&mut self.held);
        if held.is_empty() {
            held = self.port.room.whole(cost).await;
        } else {
            self.port.room.grow(&mut held, cost).await;
        }
        self.pace = Pace::default();
        self.port.messages.send(Brought { frames, held }).await.map_err(|_| End::NobodyTakes)
    }

    /// Writes what the peer waits for.
    async fn answer(&mut self) -> Result<(), End> {
        while self.codec.has_pending_transmit() {
            let bytes = self.codec.poll_transmit();
            let written = timeout(PATIENCE, self.stream.write(&bytes)).await.map_err(|_| End::Deaf)??;
            self.codec.advance_transmit(written);
        }
        Ok(())
    }

    /// Takes the body of a long frame over, if one is under way.
    fn begin_body(&mut self) -> Result<(), End> {
        let next = self.codec.peek_next_frame_payload_size()?;
        if next.is_some_and(|next| next.payload_len >= BODY_LEAST && !next.flags.command)
            && let Some((length, begun)) = self.codec.begin_supplied_payload_with_prefix()
        {
            self.body = Some(Body { bytes: begun.as_slice().to_vec(), length });
        }
        Ok(())
    }

    /// Waits for the place of a long message, as far as it came.
    async fn make_room(&mut self) {
        let cost = self.frames.cost();
        if cost > SHORT {
            self.port.room.grow(&mut self.held, cost).await;
            self.pace.had_to_wait();
        }
    }

    /// Reads once, and tells the codec what came.
    async fn read(&mut self) -> Result<(), End> {
        let Some(mut body) = self.body.take() else {
            let bytes = self.in_time(None).await?;
            self.follow(&bytes)?;
            return Ok(self.codec.handle_input(bytes)?);
        };
        let had = body.bytes.len();
        self.in_time(Some(&mut body)).await?;
        self.frames.follow(body.bytes.get(had..).unwrap_or_default())?;
        if body.bytes.len() < body.length {
            self.body = Some(body);
            return Ok(());
        }
        Ok(self.codec.supply_payload(body.bytes.into())?)
    }

    /// Reads into the body, or a piece, which it returns. Who has a place that others wait for has to keep its pace.
    async fn in_time(&mut self, mut body: Option<&mut Body>) -> Result<Bytes, End> {
        loop {
            let reading = async {
                match &mut body {
                    Some(body) => body.read(&mut self.stream).await.map(|count| (count, Bytes::new())),
                    None => read_piece(&mut self.stream).await.map(|bytes| (bytes.len(), bytes)),
                }
            };
            let read = match self.held.is_empty() {
                true => Some(reading.await),
                false => timeout_at(self.pace.next_look(), reading).await.ok(),
            };
            if !self.held.is_empty() && self.pace.is_too_slow(self.frames.cost(), self.port.room.wanted_by()) {
                return Err(End::Stalled);
            }
            match read.transpose()? {
                Some((0, _)) => return Err(End::Left),
                Some((_, bytes)) => return Ok(bytes),
                None => {}
            }
        }
    }

    fn follow(&mut self, bytes: &[u8]) -> Result<(), LongCommand> {
        let greeting = self.greeting_left.min(bytes.len());
        self.greeting_left -= greeting;
        self.frames.follow(bytes.get(greeting..).unwrap_or_default())
    }
}

impl Body {
    /// Reads some of what is left.
    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        let left = self.length - self.bytes.len();
        if self.bytes.capacity() == self.bytes.len() {
            self.bytes.reserve_exact(left.min(BODY_AT_ONCE.max(self.bytes.len())));
        }
        stream.read_buf(&mut (&mut self.bytes).limit(left)).await
    }
}

/// Reads a piece. While nothing comes no memory is kept for it.
async fn read_piece(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    std::future::poll_fn(|context| {
        let mut piece = [const { MaybeUninit::uninit() }; PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut piece))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(piece.filled())))
    })
    .await
}
