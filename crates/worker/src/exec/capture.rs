//! What is kept of a program's output: its beginning and its end, in bounded memory however much it writes.

use bytes::Bytes;

/// The beginning and the end of a stream.
#[derive(Debug)]
pub(super) struct Capture {
    /// How many bytes are kept at each end.
    each: usize,
    head: Vec<u8>,
    /// The newest bytes after `head`: at least `each` of them where there are so many, at most twice that.
    tail: Vec<u8>,
    total: u64,
}

impl Capture {
    /// Keeps `each` bytes at either end.
    pub(super) const fn new(each: usize) -> Self {
        Self { each, head: Vec::new(), tail: Vec::new(), total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let (head, rest) = bytes.split_at(bytes.len().min(self.each - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest.get(rest.len().saturating_sub(self.each)..).unwrap_or_default());
        if self.tail.len() > 2 * self.each {
            self.tail.drain(..self.tail.len() - self.each);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// What was kept, at most `each` bytes of either end, with a note between them of how much was cut.
    pub(super) fn render(&self, each: usize) -> Bytes {
        let each = each.min(self.each);
        let kept = self.head.len() as u64 + self.tail.len() as u64;
        if self.total <= 2 * each as u64 && kept == self.total {
            return [self.head.as_slice(), &self.tail].concat().into();
        }
        let (head, _) = self.head.split_at(self.head.len().min(each));
        // Where nothing was pushed out of the head, its end is part of the stream's end.
        let end = [self.head.get(head.len()..).unwrap_or_default(), &self.tail].concat();
        let tail = end.get(end.len().saturating_sub(each)..).unwrap_or_default();
        let cut = self.total.saturating_sub(head.len() as u64 + tail.len() as u64);
        [head, format!("\n[... {cut} bytes are cut here ...]\n").as_bytes(), tail].concat().into()
    }

    /// The last line that is not empty, for a person, at most `max` bytes of it.
    pub(super) fn last_line(&self, max: usize) -> String {
        let kept = self.head.len() as u64 + self.tail.len() as u64;
        let bytes = if kept == self.total { [self.head.as_slice(), &self.tail].concat() } else { self.tail.clone() };
        let line = bytes.split(|byte| *byte == b'\n').rev().find(|line| !line.trim_ascii().is_empty());
        let mut text = String::from_utf8_lossy(line.unwrap_or_default().trim_ascii()).into_owned();
        text.truncate(text.floor_char_boundary(max));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut capture = Capture::new(8);
        assert!(capture.is_empty());
        [&b"one"[..], b" two", b" three"].into_iter().for_each(|bytes| capture.push(bytes));
        assert_eq!(capture.render(8), "one two three");
        assert_eq!(capture.last_line(100), "one two three");
    }

    // Case F74.
    #[test]
    fn of_long_output_both_ends_are_kept_in_bounded_memory_whatever_the_pieces() {
        let stream: Vec<u8> = (0..100_000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for piece in [1, 7, 99, 100, 101, 5_000, stream.len()] {
            let mut capture = Capture::new(100);
            stream.chunks(piece).for_each(|bytes| capture.push(bytes));
            assert!(capture.head.capacity() + capture.tail.capacity() < 2_000);
            let cut = stream.len() - 200;
            let note = format!("\n[... {cut} bytes are cut here ...]\n");
            let expected = [&stream[..100], note.as_bytes(), &stream[stream.len() - 100..]].concat();
            assert_eq!(capture.render(100), expected);
            assert_eq!(capture.last_line(100), "99999");
        }
    }

    #[test]
    fn what_is_kept_can_be_shown_shorter() {
        let mut capture = Capture::new(100);
        capture.push(b"beginning middle end");
        assert_eq!(capture.render(3), "beg\n[... 14 bytes are cut here ...]\nend");
    }
}
