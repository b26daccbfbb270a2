//! Between frames and the messages of the legacy wire (rules W1, W2, W5). Pure.
//!
//! Owns the form of a request, of its two answers, and of a result. Knows neither sockets nor what is in a file.
//!
//! **Invariants**: nothing is copied or allocated because of what a message claims; no input makes it panic; each message is
//! judged alone, so that a bad one harms no other.

use crate::codec::MARK;
use bytes::{Bytes, BytesMut};
use dispatcher_core::id::TaskId;
use dispatcher_core::text::NAME_MAX;

/// Why frames are no message of the legacy wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LegacyError {
    /// Fewer frames than any such message has, or more.
    #[error("{frames} frames")]
    Frames {
        /// How many there are.
        frames: usize,
    },
    /// A name is empty, too long, or not UTF-8.
    #[error("no name of a {of}")]
    Name {
        /// Of what.
        of: &'static str,
    },
    /// It is no task's id: a decimal number from 1 on.
    #[error("no task id")]
    Task,
}

/// A result, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyResult {
    /// Who says that it made it.
    pub worker: String,
    /// The service.
    pub service: String,
    /// The task.
    pub task: TaskId,
    /// The result file, in as many frames as it came. None has a byte where the worker has nothing usable.
    pub file: Vec<Bytes>,
}

impl LegacyResult {
    /// The file's size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.iter().map(|frame| frame.len() as u64).sum()
    }

    /// The file in one piece.
    #[must_use]
    pub fn into_file(self) -> Bytes {
        let size = self.file.iter().map(Bytes::len).sum();
        match <[Bytes; 1]>::try_from(self.file) {
            Ok([whole]) => whole,
            Err(frames) => {
                let mut whole = BytesMut::with_capacity(size);
                frames.iter().for_each(|frame| whole.extend_from_slice(frame));
                whole.freeze()
            }
        }
    }
}

/// Whether `frames` are a request: a single frame that is not the mark of the other wire.
#[must_use]
pub fn is_request(frames: &[Bytes]) -> bool {
    matches!(frames, [only] if only != MARK)
}

/// Reads a request: the name of a service.
///
/// # Errors
/// [`LegacyError`]; the peer and its next message are not affected by it.
pub fn decode_request(frames: &[Bytes]) -> Result<&str, LegacyError> {
    let [service] = frames else { return Err(LegacyError::Frames { frames: frames.len() }) };
    name(service, "service")
}

/// The answer with a task: its id in decimal and the input file.
#[must_use]
pub fn encode_task(task: TaskId, input: Bytes) -> Vec<Bytes> {
    vec![Bytes::from(task.0.to_string()), input]
}

/// The answer that there is nothing now: `0` and an empty frame.
#[must_use]
pub fn encode_nothing_now() -> Vec<Bytes> {
    vec![Bytes::from_static(b"0"), Bytes::new()]
}

/// Reads a result: the worker's name, the service, the task, and the frames of the result file.
///
/// # Errors
/// [`LegacyError`]; the peer and its next message are not affected by it.
pub fn decode_result(frames: Vec<Bytes>) -> Result<LegacyResult, LegacyError> {
    let count = frames.len();
    let mut frames = frames.into_iter();
    let (Some(worker), Some(service), Some(task)) = (frames.next(), frames.next(), frames.next()) else {
        return Err(LegacyError::Frames { frames: count });
    };
    let file: Vec<Bytes> = frames.collect();
    if file.is_empty() {
        return Err(LegacyError::Frames { frames: count });
    }
    Ok(LegacyResult {
        worker: name(&worker, "worker")?.to_owned(),
        service: name(&service, "service")?.to_owned(),
        task: task_id(&task).ok_or(LegacyError::Task)?,
        file,
    })
}

/// Whether a worker's socket with this identity can name itself in its results. One without an identity, which then has one
/// that was made up and begins with a NUL, cannot, and need not.
#[must_use]
pub fn is_name(identity: &Bytes) -> bool {
    identity.first().is_none_or(|first| *first == 0) || name(identity, "worker").is_ok()
}

fn name<'a>(frame: &'a Bytes, of: &'static str) -> Result<&'a str, LegacyError> {
    let text = std::str::from_utf8(frame).ok().filter(|text| !text.is_empty() && text.len() <= NAME_MAX);
    text.ok_or(LegacyError::Name { of })
}

fn task_id(frame: &[u8]) -> Option<TaskId> {
    let digits = std::str::from_utf8(frame).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().map(TaskId).filter(|task| task.is_tracked())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(parts: &[&[u8]]) -> Vec<Bytes> {
        parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
    }

    // Rule W1.
    #[test]
    fn a_request_is_one_frame_with_the_name_of_a_service() {
        assert_eq!(decode_request(&frames(&[b"tex_to_html"])), Ok("tex_to_html"));
        assert!(is_request(&frames(&[b"tex_to_html"])) && is_request(&frames(&[b""])));
        assert!(!is_request(&frames(&[MARK])) && !is_request(&frames(&[b"a", b"b"])) && !is_request(&[]));
    }

    // Rule W5.
    #[test]
    fn a_request_that_is_empty_long_or_not_utf_8_is_told_apart_from_a_good_one() {
        let long = vec![b'x'; NAME_MAX + 1];
        for bad in [&b""[..], b"\xff", &long] {
            assert_eq!(decode_request(&frames(&[bad])), Err(LegacyError::Name { of: "service" }));
        }
        assert!(decode_request(&frames(&[&long[1..]])).is_ok());
        assert_eq!(decode_request(&[]), Err(LegacyError::Frames { frames: 0 }));
        assert_eq!(decode_request(&frames(&[b"a", b"b"])), Err(LegacyError::Frames { frames: 2 }));
    }

    // Rules W1, W5.
    #[test]
    fn an_identity_that_no_result_could_name_is_told_apart() {
        for good in [&b"host:html:1"[..], b"", b"\0\x01\x02\x03\xff"] {
            assert!(is_name(&Bytes::copy_from_slice(good)), "{good:?}");
        }
        for bad in [&b"\xff\xfe"[..], &[b'm'; NAME_MAX + 1]] {
            assert!(!is_name(&Bytes::copy_from_slice(bad)), "{bad:?}");
        }
    }

    // Rule W1.
    #[test]
    fn the_answers_are_the_id_with_the_file_and_a_nought_with_an_empty_frame() {
        assert_eq!(encode_task(TaskId(71), Bytes::from_static(b"zip")), frames(&[b"71", b"zip"]));
        assert_eq!(encode_nothing_now(), frames(&[b"0", b""]));
    }

    // Rule W2.
    #[test]
    fn a_result_is_put_together_from_its_frames() {
        let result = decode_result(frames(&[b"host:1", b"html", b"12", b"ab", b"", b"c"])).unwrap();
        assert_eq!((result.worker.as_str(), result.service.as_str(), result.task), ("host:1", "html", TaskId(12)));
        assert_eq!((result.size(), result.into_file()), (3, Bytes::from_static(b"abc")));
        let nothing = decode_result(frames(&[b"w", b"html", b"12", b""])).unwrap();
        assert_eq!(nothing.size(), 0);
    }

    // Rule W5.
    #[test]
    fn a_result_that_is_short_or_names_nobody_nothing_or_no_task_is_refused() {
        for few in 0..4 {
            let all = frames(&[b"w", b"html", b"12"]);
            let some = all.into_iter().take(few).collect::<Vec<_>>();
            assert_eq!(decode_result(some), Err(LegacyError::Frames { frames: few.min(3) }));
        }
        for id in [&b"0"[..], b"-1", b"+1", b"1.0", b" 1", b"", b"99999999999999999999", b"\xff", b"one"] {
            assert_eq!(decode_result(frames(&[b"w", b"html", id, b"x"])), Err(LegacyError::Task), "{id:?}");
        }
        for (worker, service) in [(&b""[..], &b"html"[..]), (b"\xff", b"html"), (b"w", b""), (b"w", b"\xff")] {
            assert!(matches!(decode_result(frames(&[worker, service, b"1", b"x"])), Err(LegacyError::Name { .. })));
        }
        assert_eq!(decode_result(frames(&[b"w", b"s", b"007", b"x"])).unwrap().task, TaskId(7));
    }

    proptest! {
        // Rule W5.
        #[test]
        fn no_frames_make_it_panic(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let frames: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
            let _ = decode_request(&frames);
            if let Ok(result) = decode_result(frames.clone()) {
                let whole: Vec<u8> = frames[3..].concat();
                prop_assert_eq!(result.into_file(), Bytes::from(whole));
            }
        }
    }
}
