//! Cleaning of texts that came from outside, so that every store takes them and no terminal is fooled by them.
//!
//! Owns which characters are replaced and by what, the caps, and the note that says so. Knows nothing of what the texts
//! mean.
//!
//! **Invariants** of every output: no NUL and no other control character (except, in [`clean_text`], line feed and tab);
//! no mark that turns the reading direction; within its cap in bytes, cut between characters; cleaning it again changes
//! nothing. An escaped NUL or a lone surrogate of JSON is, once decoded, a NUL or bytes that are not UTF-8, and treated as
//! such.

use crate::report::{Message, Severity};
use std::borrow::Cow;
use std::fmt;

/// The most bytes of a category or a what.
pub const KIND_MAX: usize = 200;
/// The most bytes of a message's details.
pub const DETAILS_MAX: usize = 8 * 1024;
/// The most bytes of a name: a worker's, a service's, a part's.
pub const NAME_MAX: usize = 128;

/// A clean text, and what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned<'a> {
    /// The text; borrowed where there was nothing to do.
    pub text: Cow<'a, str>,
    /// What was done.
    pub note: Note,
}

/// What cleaning did, in counts. `Display` gives a sentence for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Sequences of bytes that are not UTF-8, replaced by U+FFFD.
    pub not_utf8: u64,
    /// NULs, replaced by `␀`.
    pub nuls: u64,
    /// Other control characters, replaced by their pictures or code points.
    pub controls: u64,
    /// Marks that turn the reading direction or break a line unseen, replaced by their code points.
    pub marks: u64,
    /// Bytes of the original that were cut off.
    pub cut: u64,
}

/// Whether a text may have several lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Line,
    Text,
}

/// One character as it goes into the output.
enum Glyph {
    Plain,
    Picture(char),
    CodePoint,
}

/// Cleans a text of one line, such as a name or a category: line feeds and tabs are replaced, too.
///
/// ```
/// use dispatcher_core::text::clean_line;
/// assert_eq!(clean_line(b"a\0b\xFFc", 100).text, "a\u{2400}b\u{FFFD}c");
/// assert_eq!(clean_line(b"0123456789012345678901234567890123456789", 30).text, "012345678901… (28 bytes cut)");
/// ```
#[must_use]
pub fn clean_line(bytes: &[u8], cap: usize) -> Cleaned<'_> {
    clean(bytes, cap, Shape::Line)
}

/// Cleans a text of several lines, such as details: line feeds and tabs stay.
#[must_use]
pub fn clean_text(bytes: &[u8], cap: usize) -> Cleaned<'_> {
    clean(bytes, cap, Shape::Text)
}

/// A text as a terminal may be given it: what would break the line, move the cursor or turn the reading direction shows as
/// an escape, `\n` or `\u{202e}`. For lines that hold names of others; nothing is cut.
///
/// ```
/// use dispatcher_core::text::printed;
/// assert_eq!(printed("a\u{202e}b\n"), r"a\u{202e}b\n");
/// ```
#[must_use]
pub fn printed(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        push_printed(c, &mut out);
    }
    Cow::Owned(out)
}

/// A name as people see it: like [`printed`], with `\xff` for a byte that is not UTF-8 and `\\` for a backslash, so that
/// [`read_printed`] gives the very name back.
#[must_use]
pub fn printed_name(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                out.push_str("\\\\");
            } else {
                push_printed(c, &mut out);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// The name that [`printed_name`] shows so; `None` of a text that it never makes.
#[must_use]
pub fn read_printed(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escaped = match rest.next()? {
            '\\' => '\\',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'x' => {
                let digits: String = rest.by_ref().take(2).collect();
                let byte = if digits.len() == 2 { u8::from_str_radix(&digits, 16).ok()? } else { return None };
                bytes.push(byte);
                continue;
            }
            'u' => {
                let digits = rest.as_str().strip_prefix('{')?.split_once('}')?.0;
                rest = rest.as_str().get(digits.len() + 2..)?.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        };
        bytes.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
    }
    // Every name is shown in one way only.
    (printed_name(&bytes) == text).then_some(bytes)
}

/// Whether a terminal shows it as it is, and nothing else happens.
#[must_use]
pub fn is_plain(c: char) -> bool {
    matches!(glyph(c, Shape::Line), Glyph::Plain)
}

fn push_printed(c: char, out: &mut String) {
    if is_plain(c) { out.push(c) } else { out.extend(c.escape_default()) }
}

/// Cleans what a worker said. At most `most` messages are kept, the gravest first to be kept, in their order; where
/// anything was replaced, cut or left out, a last message of severity info says what.
#[must_use]
pub fn clean_messages(messages: Vec<Message>, most: usize) -> Vec<Message> {
    let mut note = Note::default();
    let (kept, left_out) = keep_gravest(messages, most);
    let mut cleaned: Vec<_> = kept.into_iter().map(|message| clean_message(message, &mut note)).collect();
    if !note.is_empty() || left_out > 0 {
        cleaned.push(note_message(&note, left_out));
    }
    cleaned
}

/// Cleans one message in the same way and adds what was done to `note`.
#[must_use]
pub fn clean_message(message: Message, note: &mut Note) -> Message {
    Message {
        severity: message.severity,
        category: clean_owned(message.category, KIND_MAX, Shape::Line, note),
        what: clean_owned(message.what, KIND_MAX, Shape::Line, note),
        details: clean_owned(message.details, DETAILS_MAX, Shape::Text, note),
    }
}

/// The message that tells what cleaning did: `dispatcher:text_replaced`.
#[must_use]
pub fn note_message(note: &Note, left_out: usize) -> Message {
    let mut details = note.to_string();
    if left_out > 0 {
        if !details.is_empty() {
            details.push_str(", ");
        }
        details.push_str(&format!("{left_out} messages left out"));
    }
    Message { severity: Severity::Info, category: "dispatcher".to_owned(), what: "text_replaced".to_owned(), details }
}

/// Of more than `most` messages, drops the least grave, the latest of them first. Returns how many were dropped.
fn keep_gravest(messages: Vec<Message>, most: usize) -> (Vec<Message>, usize) {
    if messages.len() <= most {
        return (messages, 0);
    }
    let left_out = messages.len() - most;
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(messages[i].severity), i));
    order.truncate(most);
    order.sort_unstable();
    let mut keep = order.into_iter().peekable();
    let kept = messages.into_iter().enumerate().filter(|(i, _)| keep.next_if_eq(i).is_some()).map(|(_, m)| m).collect();
    (kept, left_out)
}

fn clean_owned(text: String, cap: usize, shape: Shape, note: &mut Note) -> String {
    let cleaned = clean(text.as_bytes(), cap, shape);
    note.add(cleaned.note);
    match cleaned.text {
        Cow::Owned(replaced) => replaced,
        Cow::Borrowed(_) => text,
    }
}

fn clean(bytes: &[u8], cap: usize, shape: Shape) -> Cleaned<'_> {
    if bytes.len() <= cap
        && let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(|c| matches!(glyph(c, shape), Glyph::Plain))
    {
        return Cleaned { text: Cow::Borrowed(text), note: Note::default() };
    }
    let mut writer = Writer::new(bytes.len(), cap);
    let mut note = Note::default();
    let mut at = 0;
    'source: for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let picture = glyph(c, shape);
            if !writer.write(at, c, &picture) {
                break 'source;
            }
            note.count(c, &picture);
            at += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            if !writer.write(at, char::REPLACEMENT_CHARACTER, &Glyph::Plain) {
                break 'source;
            }
            note.not_utf8 += 1;
            at += chunk.invalid().len();
        }
    }
    let (text, cut) = writer.finish(at);
    note.cut = cut;
    Cleaned { text: Cow::Owned(text), note }
}

fn glyph(c: char, shape: Shape) -> Glyph {
    match c {
        '\n' | '\t' if shape == Shape::Text => Glyph::Plain,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).map_or(Glyph::CodePoint, Glyph::Picture),
        '\x7f' => Glyph::Picture('\u{2421}'),
        '\u{80}'..='\u{9f}' => Glyph::CodePoint,
        // Marks and overrides of the reading direction, the two separators that break a line unseen, the byte-order mark.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
            Glyph::CodePoint
        }
        _ => Glyph::Plain,
    }
}

/// Writes up to the cap and remembers where it could be cut so that the words about the cut fit as well.
struct Writer {
    out: String,
    cap: usize,
    source_len: usize,
    /// The longest output that leaves room for the words about a cut.
    room: usize,
    /// Where to cut: length of the output, and of the source that it stands for.
    cut_at: (usize, usize),
}

impl Writer {
    fn new(source_len: usize, cap: usize) -> Self {
        let room = cap.saturating_sub(cut_words(source_len).len());
        Self { out: String::with_capacity(source_len.min(cap)), cap, source_len, room, cut_at: (0, 0) }
    }

    /// Whether there was room.
    fn write(&mut self, at: usize, c: char, picture: &Glyph) -> bool {
        if self.out.len() <= self.room {
            self.cut_at = (self.out.len(), at);
        }
        let before = self.out.len();
        match picture {
            Glyph::Plain => self.out.push(c),
            Glyph::Picture(shown) => self.out.push(*shown),
            Glyph::CodePoint => self.out.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
        }
        if self.out.len() > self.cap {
            self.out.truncate(before);
            return false;
        }
        true
    }

    /// The output and how many bytes of the source are missing from it. `at` is where writing ended.
    fn finish(mut self, at: usize) -> (String, u64) {
        if at >= self.source_len {
            return (self.out, 0);
        }
        let words = cut_words(self.source_len);
        let source_at = if words.len() <= self.cap {
            let (length, source_at) = self.cut_at;
            self.out.truncate(length);
            self.out.push_str(&cut_words(self.source_len - source_at));
            source_at
        } else {
            // A cap below the words' own length: the text alone.
            at
        };
        (self.out, u64::try_from(self.source_len - source_at).unwrap_or(u64::MAX))
    }
}

fn cut_words(bytes: usize) -> String {
    format!("… ({bytes} bytes cut)")
}

impl Note {
    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what was done elsewhere.
    pub fn add(&mut self, other: Self) {
        self.not_utf8 = self.not_utf8.saturating_add(other.not_utf8);
        self.nuls = self.nuls.saturating_add(other.nuls);
        self.controls = self.controls.saturating_add(other.controls);
        self.marks = self.marks.saturating_add(other.marks);
        self.cut = self.cut.saturating_add(other.cut);
    }

    fn count(&mut self, c: char, picture: &Glyph) {
        match (c, picture) {
            (_, Glyph::Plain) => {}
            ('\0', _) => self.nuls += 1,
            ('\u{1}'..='\u{9f}', _) => self.controls += 1,
            _ => self.marks += 1,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.not_utf8, "sequences that are not UTF-8 replaced"),
            (self.nuls, "NULs replaced"),
            (self.controls, "control characters replaced"),
            (self.marks, "direction or line marks made visible"),
            (self.cut, "bytes cut"),
        ];
        let mut first = true;
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{}{count} {what}", if first { "" } else { ", " })?;
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
