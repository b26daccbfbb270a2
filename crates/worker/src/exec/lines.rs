//! The log lines in a program's output, taken over as messages.
//!
//! Owns the cutting of a stream into lines in bounded memory; the grammar of a line is core's.

use dispatcher_core::report::{Message, Severity};

/// The longest line that is looked at, in bytes; of longer ones the beginning is.
const LINE_MAX: usize = 4 * 1024;
/// The most messages that are kept. The worst severity counts beyond that, too.
const MESSAGES_MAX: usize = 1_000;

/// The messages of a stream so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    messages: Vec<Message>,
    worst: Option<Severity>,
    left_out: u64,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.add(piece);
            self.end_line();
        }
        self.add(last);
    }

    fn add(&mut self, piece: &[u8]) {
        let room = LINE_MAX - self.line.len();
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    fn end_line(&mut self) {
        // Most lines of most programs are no log lines: those cost a look at their first byte.
        if self.line.first().is_some_and(u8::is_ascii_alphabetic)
            && let Some(message) = parse_line(&String::from_utf8_lossy(&self.line))
        {
            self.worst = self.worst.max(Some(message.severity));
            if self.messages.len() < MESSAGES_MAX {
                self.messages.push(message);
            } else {
                self.left_out += 1;
            }
        }
        self.line.clear();
    }

    /// The messages and the worst severity among all, at the end of the stream.
    pub(super) fn finish(mut self) -> (Vec<Message>, Option<Severity>) {
        self.end_line();
        if self.left_out > 0 {
            let details = format!("{} more are left out", self.left_out);
            self.messages.push(crate::work::message(Severity::Info, "worker", "messages_cut", &details));
        }
        (self.messages, self.worst)
    }
}

/// Reads `Severity:category:what details`.
fn parse_line(line: &str) -> Option<Message> {
    let (severity, rest) = line.split_once(':')?;
    let severity = match severity {
        "Info" => Severity::Info,
        "Warning" => Severity::Warning,
        "Error" => Severity::Error,
        "Fatal" => Severity::Fatal,
        "Invalid" => Severity::Invalid,
        _ => return None,
    };
    let (category, rest) = rest.split_once(':')?;
    let (what, details) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some(crate::work::message(severity, category, what, details.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_found_however_the_stream_is_cut() {
        let stream = b"noise\nWarning:math:undefined macro \\foo\n\nError:xml:malformed here\nInfo:x:y without an end";
        for piece in 1..=stream.len() {
            let mut lines = Lines::default();
            stream.chunks(piece).for_each(|bytes| lines.push(bytes));
            let (messages, worst) = lines.finish();
            let whats: Vec<_> = messages.iter().map(|m| m.what.as_str()).collect();
            assert_eq!(whats, ["undefined", "malformed", "y"]);
            assert_eq!(worst, Some(Severity::Error));
        }
    }

    #[test]
    fn many_and_long_lines_stay_in_bounds_and_the_worst_still_counts() {
        let mut lines = Lines::default();
        for _ in 0..5_000 {
            lines.push(b"Warning:a:b c\n");
        }
        lines.push(&vec![b'W'; 1_000_000]);
        assert!(lines.line.len() <= LINE_MAX);
        lines.push(b"\nFatal:c:d e\n");
        let (messages, worst) = lines.finish();
        assert_eq!(messages.len(), 1_001);
        assert_eq!(messages[1_000].details, "4001 more are left out");
        assert_eq!(worst, Some(Severity::Fatal));
    }
}
