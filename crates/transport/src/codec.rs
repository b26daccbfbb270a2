//! Between frames and the messages of the v1 wire. Pure.
//!
//! A v1 message is the frame [`MARK`], a JSON header, and no, one or several frames of bytes. Owns that form, and which
//! message carries which bytes. Knows nothing of sockets, and of a message only what its bytes have to be.
//!
//! **Invariants**: caps are checked before anything is parsed; nothing is allocated because a number in the message asks
//! for it; no input makes it panic. What was encoded decodes to the same message.
//!
//! A `result` or `retryable` is read whatever bytes come with it. Bytes that are not those of its parts make it unusable
//! (rule R1), and the worker is told so; a message that nobody can read would never be answered, and be sent for ever.

use crate::limits::{CHUNK_MAX, INLINE_MAX, MAX_FRAMES, MAX_HEADER, MAX_MESSAGE};
use bytes::Bytes;
use dispatcher_core::wire::{FromWorker, ToWorker};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(test)]
mod tests;

/// The first frame of every v1 message.
pub const MARK: &[u8] = b"DSP1";

/// Why frames are no v1 message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The first frame is not [`MARK`], or nothing follows it.
    #[error("not a message of the v1 wire")]
    NotV1,
    /// More frames than any message has.
    #[error("{frames} frames, at most {MAX_FRAMES} are allowed")]
    TooManyFrames {
        /// How many there are.
        frames: usize,
    },
    /// The header is longer than allowed.
    #[error("a header of {bytes} bytes, at most {MAX_HEADER} are allowed")]
    HeaderTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// All frames together are longer than allowed.
    #[error("a message of {bytes} bytes, at most {MAX_MESSAGE} are allowed")]
    TooLong {
        /// How long they are.
        bytes: usize,
    },
    /// The header is not JSON, or no message that is known.
    #[error("unreadable header: {why}")]
    Header {
        /// What the parser says, cut and escaped: it may quote the header.
        why: String,
    },
    /// The bytes that came are not those that belong to the message.
    #[error("`{message}` {why}")]
    Bodies {
        /// The message's type on the wire.
        message: &'static str,
        /// What is wrong with its bytes.
        why: &'static str,
    },
}

/// Whether `frames` claim to be a v1 message. A legacy request is a single frame, whatever is in it (rule W1).
#[must_use]
pub fn is_v1<F: AsRef<[u8]>>(frames: &[F]) -> bool {
    frames.len() > 1 && frames.first().is_some_and(|first| first.as_ref() == MARK)
}

/// The frames of `message` with `bodies`.
///
/// It does not look at the caps; [`check_frames`] tells whether the other side will take the frames.
#[must_use]
pub fn encode_from_worker(message: &FromWorker, bodies: &[Bytes]) -> Vec<Bytes> {
    encode(message, bodies)
}

/// The frames of `message` with `bodies`.
///
/// It does not look at the caps; [`check_frames`] tells whether the other side will take the frames.
#[must_use]
pub fn encode_to_worker(message: &ToWorker, bodies: &[Bytes]) -> Vec<Bytes> {
    encode(message, bodies)
}

/// Reads what a worker sent: the message and its bytes, one body for each frame after the header.
///
/// # Errors
/// Any [`CodecError`]; the peer and its next message are not affected by it.
pub fn decode_from_worker(frames: &[Bytes]) -> Result<(FromWorker, Vec<Bytes>), CodecError> {
    let (message, bodies) = decode::<FromWorker>(frames)?;
    check_from_worker(&message, bodies)?;
    Ok((message, bodies.to_vec()))
}

/// Reads what the dispatcher sent: the message and its bytes, one body for each frame after the header.
///
/// # Errors
/// Any [`CodecError`]; the connection and its next message are not affected by it.
pub fn decode_to_worker(frames: &[Bytes]) -> Result<(ToWorker, Vec<Bytes>), CodecError> {
    let (message, bodies) = decode::<ToWorker>(frames)?;
    check_to_worker(&message, bodies)?;
    Ok((message, bodies.to_vec()))
}

/// Whether `frames` keep the caps that hold for every v1 message: their number, the header's length, the whole length.
///
/// A sender asks before it sends something whose length it does not know, such as a result with many messages: the other
/// side's socket cuts the connection at a message that is too long.
///
/// # Errors
/// [`CodecError::NotV1`], [`CodecError::TooManyFrames`], [`CodecError::HeaderTooLong`] or [`CodecError::TooLong`].
pub fn check_frames(frames: &[Bytes]) -> Result<(), CodecError> {
    split(frames).map(|_| ())
}

fn encode<M: Serialize>(message: &M, bodies: &[Bytes]) -> Vec<Bytes> {
    #[expect(
        clippy::expect_used,
        reason = "messages are plain structs, whose JSON goes to memory: nothing in it can fail"
    )]
    let header = serde_json::to_vec(message).expect("messages of the wire serialise");
    let mut frames = Vec::with_capacity(2 + bodies.len());
    frames.push(Bytes::from_static(MARK));
    frames.push(Bytes::from(header));
    frames.extend_from_slice(bodies);
    frames
}

fn decode<M: DeserializeOwned>(frames: &[Bytes]) -> Result<(M, &[Bytes]), CodecError> {
    let (header, bodies) = split(frames)?;
    // The parser's depth limit (128) holds for what is skipped, too.
    let message = serde_json::from_slice(header).map_err(|e| CodecError::Header { why: brief(&e.to_string()) })?;
    Ok((message, bodies))
}

/// What the parser says, fit for a log: it may quote the header at length, control characters included.
fn brief(said: &str) -> String {
    said.chars().take(160).flat_map(char::escape_debug).collect()
}

/// The header and the bodies of `frames`, once the caps are known to be kept.
fn split(frames: &[Bytes]) -> Result<(&Bytes, &[Bytes]), CodecError> {
    let [mark, header, bodies @ ..] = frames else { return Err(CodecError::NotV1) };
    if mark.as_ref() != MARK {
        return Err(CodecError::NotV1);
    }
    if frames.len() > MAX_FRAMES {
        return Err(CodecError::TooManyFrames { frames: frames.len() });
    }
    if header.len() > MAX_HEADER {
        return Err(CodecError::HeaderTooLong { bytes: header.len() });
    }
    let bytes = frames.iter().fold(0_usize, |sum, frame| sum.saturating_add(frame.len()));
    if bytes > MAX_MESSAGE {
        return Err(CodecError::TooLong { bytes });
    }
    Ok((header, bodies))
}

fn check_from_worker(message: &FromWorker, bodies: &[Bytes]) -> Result<(), CodecError> {
    match message {
        FromWorker::Result { .. } | FromWorker::Retryable { .. } => Ok(()),
        FromWorker::Part { .. } => one_piece("part", bodies),
        FromWorker::Hello { .. } => no_bodies("hello", bodies),
        FromWorker::Ready { .. } => no_bodies("ready", bodies),
        FromWorker::Begun { .. } => no_bodies("begun", bodies),
        FromWorker::Beat { .. } => no_bodies("beat", bodies),
        FromWorker::Fetch { .. } => no_bodies("fetch", bodies),
        FromWorker::Release { .. } => no_bodies("release", bodies),
        FromWorker::Bye => no_bodies("bye", bodies),
    }
}

fn check_to_worker(message: &ToWorker, bodies: &[Bytes]) -> Result<(), CodecError> {
    match message {
        ToWorker::Task { size, .. } => inline_input(*size, bodies),
        ToWorker::Chunk { .. } => one_piece("chunk", bodies),
        ToWorker::Welcome { .. } => no_bodies("welcome", bodies),
        ToWorker::Want { .. } => no_bodies("want", bodies),
        ToWorker::Ack { .. } => no_bodies("ack", bodies),
        ToWorker::Beat { .. } => no_bodies("beat", bodies),
        ToWorker::Cancel { .. } => no_bodies("cancel", bodies),
        ToWorker::Drain => no_bodies("drain", bodies),
        ToWorker::Error { .. } => no_bodies("error", bodies),
    }
}

/// The whole input, or nothing of it: then it is fetched.
fn inline_input(size: u64, bodies: &[Bytes]) -> Result<(), CodecError> {
    let why = match bodies {
        [] => return Ok(()),
        [body] if length(body) != size => "has a body whose size is not the one of its input",
        [_] if size > INLINE_MAX => "has more bytes than may travel inside a message",
        [_] => return Ok(()),
        _ => "has more than one body",
    };
    Err(CodecError::Bodies { message: "task", why })
}

/// Exactly one piece of a file, not empty, at most as long as a piece may be.
fn one_piece(message: &'static str, bodies: &[Bytes]) -> Result<(), CodecError> {
    let why = match bodies {
        [piece] if piece.is_empty() => "has an empty body",
        [piece] if length(piece) > CHUNK_MAX => "has a body longer than a piece may be",
        [_] => return Ok(()),
        _ => "has not exactly one body",
    };
    Err(CodecError::Bodies { message, why })
}

fn no_bodies(message: &'static str, bodies: &[Bytes]) -> Result<(), CodecError> {
    if bodies.is_empty() { Ok(()) } else { Err(CodecError::Bodies { message, why: "has bytes, and may have none" }) }
}

fn length(body: &Bytes) -> u64 {
    body.len() as u64
}
