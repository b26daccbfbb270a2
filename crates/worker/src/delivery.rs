//! From what work brought to what is sent of it.
//!
//! Owns the form of a result on its way: the message with the size and hash of each part, and where the bytes are.
//! Everything is read once: small files into memory, large ones through a buffer for their hash. Keeps the caps of the
//! wire, so that no result is too long to send. Knows nothing of when it is sent.

use crate::work::{OutPart, Outcome, PartBody, message};
use bytes::Bytes;
use dispatcher_core::report::{Message, Severity};
use dispatcher_core::text::{Note, clean_message, clean_messages};
use dispatcher_core::wire::limits::INLINE_MAX;
use dispatcher_core::wire::{FromWorker, PartSpec, TokenText};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Up to how many bytes a part is kept in memory: as many as may travel inside their message.
pub(crate) const SMALL: u64 = INLINE_MAX;
/// The most messages of one result.
const MESSAGES_MAX: usize = 1_000;
/// The most bytes that the messages of one result have as JSON. The header of a message has 128 KB, and its cause and
/// parts need some.
const MESSAGE_BYTES_MAX: usize = 96 * 1024;
/// The most parts of one result.
const PARTS_MAX: usize = 8;
/// The longest name of a part, in bytes.
const PART_NAME_MAX: usize = 64;
/// How much of a large part is read at once, in bytes.
const BUFFER: usize = 256 * 1024;

/// A result or a cause, ready for the outbox.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// `result` or `retryable`.
    pub(crate) message: FromWorker,
    /// Where the bytes of each of its parts are, in the same order.
    pub(crate) bodies: Vec<PartBody>,
}

impl Delivery {
    /// What is delivered of `outcome`; `None` where the task goes back. Parts of a retryable cause beyond `inline_max`
    /// bytes are left out, because they only travel with it.
    ///
    /// # Errors
    /// Where a part's file cannot be read.
    pub(crate) fn new(token: TokenText, outcome: Outcome, inline_max: u64) -> io::Result<Option<Self>> {
        match outcome {
            Outcome::Done { status, messages, parts } => {
                let (parts, bodies) = measure(parts, u64::MAX)?;
                let message = FromWorker::Result { token, status, messages: capped(messages), parts };
                Ok(Some(Self { message, bodies }))
            }
            Outcome::Retryable { cause, messages, parts } => {
                let (parts, bodies) = measure(parts, inline_max.min(SMALL))?;
                let cause = cleaned(cause);
                let message = FromWorker::Retryable { token, cause, messages: capped(messages), parts };
                Ok(Some(Self { message, bodies }))
            }
            Outcome::Release => Ok(None),
        }
    }

    /// A cause without parts.
    pub(crate) fn cause(token: TokenText, category: &str, what: &str, details: &str) -> Self {
        let cause = cleaned(message(Severity::Fatal, category, what, details));
        let message = FromWorker::Retryable { token, cause, messages: Vec::new(), parts: Vec::new() };
        Self { message, bodies: Vec::new() }
    }
}

/// The parts of a message that has any.
pub(crate) fn parts_of(message: &FromWorker) -> &[PartSpec] {
    match message {
        FromWorker::Result { parts, .. } | FromWorker::Retryable { parts, .. } => parts,
        _ => &[],
    }
}

/// Sizes and hashes of `parts`, leaving out what goes beyond `bytes_max` in all.
fn measure(parts: Vec<OutPart>, bytes_max: u64) -> io::Result<(Vec<PartSpec>, Vec<PartBody>)> {
    let (mut specs, mut bodies): (Vec<PartSpec>, Vec<PartBody>) = (Vec::new(), Vec::new());
    let mut left = bytes_max;
    for part in parts {
        let known = specs.iter().any(|spec| spec.name == part.name);
        if known || specs.len() == PARTS_MAX || part.name.len() > PART_NAME_MAX {
            continue;
        }
        let (size, sha256, body) = match part.body {
            PartBody::Bytes(bytes) => measured(bytes),
            PartBody::File(path) => measure_file(path)?,
        };
        if size <= left {
            left -= size;
            specs.push(PartSpec { name: part.name, size, sha256 });
            bodies.push(body);
        }
    }
    Ok((specs, bodies))
}

fn measured(bytes: Bytes) -> (u64, String, PartBody) {
    (bytes.len() as u64, hex(&Sha256::digest(&bytes)), PartBody::Bytes(bytes))
}

fn measure_file(path: PathBuf) -> io::Result<(u64, String, PartBody)> {
    let mut file = File::open(&path)?;
    if file.metadata()?.len() <= SMALL {
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(SMALL + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= SMALL {
            return Ok(measured(Bytes::from(bytes)));
        }
    }
    let (size, sha256) = hash_file(&path)?;
    Ok((size, sha256, PartBody::File(path)))
}

fn hash_file(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((size, hex(&hash.finalize()))),
            Ok(n) => {
                hash.update(buffer.get(..n).unwrap_or_default());
                size += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| DIGITS.get(usize::from(digit))).collect()
}

/// Messages cleaned and within the caps. Of too many, or of too long ones, the gravest are kept, and a last one says how
/// many were left out.
fn capped(messages: Vec<Message>) -> Vec<Message> {
    if messages.is_empty() {
        return messages;
    }
    let mut most = MESSAGES_MAX;
    loop {
        let kept = clean_messages(messages.clone(), most);
        let bytes = serde_json::to_vec(&kept).map_or(usize::MAX, |json| json.len());
        if bytes <= MESSAGE_BYTES_MAX || most == 0 {
            return kept;
        }
        most /= 2;
    }
}

fn cleaned(message: Message) -> Message {
    clean_message(message, &mut Note::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::report::Status;

    fn token() -> TokenText {
        TokenText("t".to_owned())
    }

    #[test]
    fn parts_are_measured_from_memory_and_from_files_alike() {
        let dir = tempfile::tempdir().unwrap();
        let large = vec![7_u8; 300_000];
        std::fs::write(dir.path().join("large"), &large).unwrap();
        std::fs::write(dir.path().join("small"), "abc").unwrap();
        let part = |name: &str, body| OutPart { name: name.to_owned(), body };
        let parts = vec![
            part("a", PartBody::Bytes(Bytes::from_static(b"abc"))),
            part("b", PartBody::File(dir.path().join("small"))),
            part("c", PartBody::File(dir.path().join("large"))),
            part("a", PartBody::Bytes(Bytes::from_static(b"second of its name"))),
        ];
        let delivery = Delivery::new(token(), Outcome::done(parts), 65_536).unwrap().unwrap();
        let specs = parts_of(&delivery.message);
        assert_eq!(
            specs.iter().map(|s| (s.name.as_str(), s.size)).collect::<Vec<_>>(),
            [("a", 3), ("b", 3), ("c", 300_000)]
        );
        assert_eq!(specs[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(specs[1].sha256, specs[0].sha256);
        assert_eq!(specs[2].sha256, hex(&Sha256::digest(&large)));
        assert!(matches!(delivery.bodies[1], PartBody::Bytes(_)), "a small file is read once and kept");
        assert!(matches!(delivery.bodies[2], PartBody::File(_)), "a large one stays a file");
    }

    // Rule R4.
    #[test]
    fn a_cause_leaves_out_what_does_not_travel_with_it() {
        let parts =
            vec![OutPart::result(vec![0; 60_000]), OutPart { name: "stderr".to_owned(), ..OutPart::result("why") }];
        let outcome =
            Outcome::Retryable { cause: message(Severity::Fatal, "crash", "SIGSEGV", ""), messages: Vec::new(), parts };
        let delivery = Delivery::new(token(), outcome, 10_000).unwrap().unwrap();
        assert_eq!(parts_of(&delivery.message).iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["stderr"]);
    }

    #[test]
    fn no_number_or_length_of_messages_makes_a_result_too_long_to_send() {
        for (count, length) in [(5_000, 10), (1_000, 5_000), (3, 1_000_000)] {
            let messages = vec![message(Severity::Warning, "\u{1}", "ä", &"\u{1}ä".repeat(length / 3)); count];
            let outcome = Outcome::Done { status: Status::Warning, messages, parts: vec![OutPart::result("x")] };
            let delivery = Delivery::new(token(), outcome, 65_536).unwrap().unwrap();
            assert!(serde_json::to_vec(&delivery.message).unwrap().len() < 128 * 1024);
            let FromWorker::Result { messages, .. } = delivery.message else { panic!("a result") };
            assert!(messages.len() > 1 && messages.last().unwrap().what == "text_replaced");
        }
    }
}
