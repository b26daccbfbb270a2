//! The grammar of a log line, `Severity:category:what details`, and what a whole log says (rules W4, R4).
//!
//! Owns reading of raw bytes as they come from a program's standard error or from a log file. Knows nothing of exit
//! statuses, files or archives.
//!
//! A message begins at the start of a line with one of the words `Info`, `Warning`, `Error`, `Fatal`, `Invalid` (so
//! written), two names without blanks or colons after it, then optional details. A line that begins with a tab continues
//! the details of the message above it. All other lines are no messages.
//!
//! **Invariants**: never panics; a stray byte spoils at most its own line; memory is bounded whatever the input, and the
//! status counts every line, also those not kept.

use super::{Message, Severity, Status};
use crate::text::{self, Note};

/// Of a line, at most this many bytes are looked at; the rest up to the line feed is passed over.
pub const LINE_MAX: usize = 16 * 1024;

/// Reads a log piece by piece.
///
/// ```
/// use dispatcher_core::report::{Log, Status};
///
/// let log = Log::read(b"Warning:math:parse odd \xFF formula\nnot a message\nError:font:missing cmr10\n");
/// assert_eq!(log.status, Status::Error);
/// assert_eq!(log.messages[1].what, "missing");
/// ```
#[derive(Debug)]
pub struct LogReader {
    most: usize,
    line: Vec<u8>,
    messages: Vec<Raw>,
    left_out: usize,
    /// Once it is full: the least severity that is kept. Nothing below or equal to it takes a place.
    floor: Option<Severity>,
    worst: Status,
    marked: bool,
}

/// What a whole log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The messages that were kept, cleaned, in their order; a last one tells if anything was replaced or left out.
    pub messages: Vec<Message>,
    /// The worst severity of all lines.
    pub status: Status,
    /// The cause, where the log says that this is not a result but worth another try.
    pub retryable: Option<Message>,
}

/// A message before it is cleaned.
#[derive(Debug)]
struct Raw {
    severity: Severity,
    category: Vec<u8>,
    what: Vec<u8>,
    details: Vec<u8>,
}

impl Log {
    /// How many messages are kept, unless asked otherwise: with a note about the others 1,000, which is what a result may
    /// have.
    pub const MESSAGES_MAX: usize = 999;

    /// Reads a whole log.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut reader = LogReader::new(Self::MESSAGES_MAX);
        reader.push(bytes);
        reader.finish()
    }
}

impl Default for LogReader {
    fn default() -> Self {
        Self::new(Log::MESSAGES_MAX)
    }
}

impl LogReader {
    /// A reader that keeps at most `most` messages: of more, the least grave give way.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            messages: Vec::new(),
            left_out: 0,
            floor: None,
            worst: Status::NoProblem,
            marked: false,
        }
    }

    /// Takes the next bytes, which may end anywhere in a line.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            self.extend_line(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.extend_line(rest);
    }

    /// Ends the log; a last line without a line feed counts.
    #[must_use]
    pub fn finish(mut self) -> Log {
        self.end_line();
        let mut note = Note::default();
        let mut messages: Vec<_> = self.messages.iter().map(|raw| raw.clean(&mut note)).collect();
        let retryable = self.marked.then(|| cause(&messages));
        if !note.is_empty() || self.left_out > 0 {
            messages.push(text::note_message(&note, self.left_out));
        }
        Log { messages, status: self.worst, retryable }
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let room = LINE_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let trimmed = line.strip_suffix(b"\r").unwrap_or(&line);
        if let Some(continued) = trimmed.strip_prefix(b"\t") {
            if let Some(last) = self.messages.last_mut() {
                last.continue_with(continued);
            }
        } else if let Some(raw) = Raw::read(trimmed) {
            self.add(raw);
        }
        // The buffer serves for the next line again.
        self.line = line;
        self.line.clear();
    }

    fn add(&mut self, raw: Raw) {
        self.worst = self.worst.max(raw.severity.status());
        self.marked |= raw.marks_retryable();
        if self.messages.len() < self.most {
            self.messages.push(raw);
            return;
        }
        self.left_out += 1;
        if self.floor.is_some_and(|floor| raw.severity <= floor) {
            return;
        }
        let least = self.messages.iter().enumerate().rev().min_by_key(|(_, kept)| kept.severity);
        if let Some((i, _)) = least.filter(|(_, kept)| kept.severity < raw.severity) {
            self.messages.remove(i);
            self.messages.push(raw);
        }
        self.floor = self.messages.iter().map(|kept| kept.severity).min();
    }
}

impl Raw {
    fn read(line: &[u8]) -> Option<Self> {
        let (word, rest) = split_once(line, |b| b == b':')?;
        let severity = Severity::from_log_word(word)?;
        let (category, rest) = split_once(rest, |b| b == b':' || b.is_ascii_whitespace())?;
        if category.is_empty() || line.get(word.len() + 1 + category.len()) != Some(&b':') {
            return None;
        }
        let (what, details) = split_once(rest, |b| b.is_ascii_whitespace()).unwrap_or((rest, b""));
        if what.is_empty() {
            return None;
        }
        let severity = if severity == Severity::Fatal && category == b"invalid" { Severity::Invalid } else { severity };
        let mut raw = Self { severity, category: category.to_vec(), what: what.to_vec(), details: Vec::new() };
        raw.details.extend_from_slice(&details[..details.len().min(text::DETAILS_MAX + 1)]);
        Some(raw)
    }

    fn continue_with(&mut self, line: &[u8]) {
        // One byte above the cap is kept, so that cleaning sees and tells the cut.
        let room = (text::DETAILS_MAX + 1).saturating_sub(self.details.len());
        if room > 0 {
            self.details.push(b'\n');
            self.details.extend_from_slice(&line[..line.len().min(room - 1)]);
        }
    }

    fn marks_retryable(&self) -> bool {
        let is_marker = self.severity == Severity::Info && self.category == b"cortex" && self.what == b"retryable";
        is_marker || (self.severity == Severity::Fatal && is_retryable_kind(&self.category, &self.what))
    }

    fn clean(&self, note: &mut Note) -> Message {
        let category = text::clean_line(&self.category, text::KIND_MAX);
        let what = text::clean_line(&self.what, text::KIND_MAX);
        let details = text::clean_text(&self.details, text::DETAILS_MAX);
        for done in [category.note, what.note, details.note] {
            note.add(done);
        }
        Message {
            severity: self.severity,
            category: category.text.into_owned(),
            what: what.text.into_owned(),
            details: details.text.into_owned(),
        }
    }
}

impl Severity {
    /// The status that a log has whose gravest line has this severity.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Info => Status::NoProblem,
            Self::Warning => Status::Warning,
            Self::Error => Status::Error,
            Self::Fatal => Status::Fatal,
            Self::Invalid => Status::Invalid,
        }
    }

    fn from_log_word(word: &[u8]) -> Option<Self> {
        match word {
            b"Info" => Some(Self::Info),
            b"Warning" => Some(Self::Warning),
            b"Error" => Some(Self::Error),
            b"Fatal" => Some(Self::Fatal),
            b"Invalid" => Some(Self::Invalid),
            _ => None,
        }
    }
}

/// Whether a failure of this kind is no verdict about the input but worth another try (rule R4): `timeout:wallclock`,
/// `oom:shed`, `crash:unrecorded`, and death by a signal, `crash:SIG…`.
#[must_use]
pub fn is_retryable_cause(category: &str, what: &str) -> bool {
    is_retryable_kind(category.as_bytes(), what.as_bytes())
}

fn is_retryable_kind(category: &[u8], what: &[u8]) -> bool {
    matches!((category, what), (b"timeout", b"wallclock") | (b"oom", b"shed") | (b"crash", b"unrecorded"))
        || (category == b"crash" && what.len() > 3 && what.starts_with(b"SIG"))
}

/// The cause of a log that is marked retryable: its first gravest message that is not the mark itself.
fn cause(messages: &[Message]) -> Message {
    let is_mark = |m: &&Message| m.severity == Severity::Info;
    let gravest = messages.iter().filter(|m| !is_mark(m)).rev().max_by_key(|m| m.severity);
    gravest.cloned().unwrap_or_else(|| Message {
        severity: Severity::Fatal,
        category: "cortex".to_owned(),
        what: "retryable".to_owned(),
        details: String::new(),
    })
}

/// The bytes before and after the first that `is_end` names.
fn split_once(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| is_end(b))?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests;
