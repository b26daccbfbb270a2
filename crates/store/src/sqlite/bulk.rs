//! Many rows as two bound values, so that a statement costs the same number of binds whatever the batch.
//!
//! Owns the form: numbers and fixed words as a JSON array of arrays, which the statement takes apart with `jsonb_each`;
//! every other text and all bytes in one blob beside it, of which a row holds offset and length. A text inside JSON is
//! cut at a NUL without an error, and bytes that are not UTF-8 cannot be in it at all; in the blob they can.
//!
//! In a statement `?1` is the JSON and `?2` the blob; a text at elements n and n+1 is read as
//! `CAST(substr(?2, value ->> n, value ->> n+1) AS TEXT)`.

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use std::fmt::Write as _;

/// Rows for one statement.
#[derive(Debug)]
pub(super) struct Bulk {
    json: String,
    bytes: Vec<u8>,
    rows: usize,
}

/// One row of a [`Bulk`] while it is written.
pub(super) struct RowWriter<'b> {
    bulk: &'b mut Bulk,
    first: bool,
}

impl Bulk {
    pub(super) fn new() -> Self {
        // An empty blob would be taken for NULL.
        Self { json: "[".to_owned(), bytes: vec![0], rows: 0 }
    }

    /// A list of bare numbers.
    pub(super) fn numbers(numbers: impl IntoIterator<Item = i64>) -> Self {
        let mut bulk = Self::new();
        for number in numbers {
            bulk.separate();
            bulk.write(number);
        }
        bulk
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn row(&mut self) -> RowWriter<'_> {
        self.separate();
        self.json.push('[');
        RowWriter { bulk: self, first: true }
    }

    /// The JSON alone, for statements that need no bytes.
    pub(super) fn into_json(mut self) -> String {
        self.json.push(']');
        self.json
    }

    /// Both values, for statements that are put together from pieces.
    pub(super) fn into_parts(mut self) -> (String, Vec<u8>) {
        self.json.push(']');
        (self.json, self.bytes)
    }

    /// A statement with both values bound.
    pub(super) fn query(&self, sql: &'static str) -> Query<'static, Sqlite, SqliteArguments> {
        sqlx::query(sql).bind(format!("{}]", self.json)).bind(self.bytes.clone())
    }

    fn separate(&mut self) {
        if self.rows > 0 {
            self.json.push(',');
        }
        self.rows += 1;
    }

    fn write(&mut self, number: i64) {
        // Writing to a string cannot fail.
        let _ = write!(self.json, "{number}");
    }
}

impl RowWriter<'_> {
    pub(super) fn int(mut self, number: i64) -> Self {
        self.comma();
        self.bulk.write(number);
        self
    }

    pub(super) fn opt(mut self, number: Option<i64>) -> Self {
        match number {
            Some(number) => self.int(number),
            None => {
                self.comma();
                self.bulk.json.push_str("null");
                self
            }
        }
    }

    /// A word of our own: it has nothing that JSON would escape.
    pub(super) fn word(mut self, word: &'static str) -> Self {
        self.comma();
        self.bulk.json.push('"');
        self.bulk.json.push_str(word);
        self.bulk.json.push('"');
        self
    }

    pub(super) fn opt_word(self, word: Option<&'static str>) -> Self {
        match word {
            Some(word) => self.word(word),
            None => self.opt(None),
        }
    }

    /// Bytes or a text: two elements, where it begins in the blob (from 1) and its length.
    pub(super) fn bytes(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let (start, length) = (self.bulk.bytes.len() + 1, bytes.len());
        self.bulk.bytes.extend_from_slice(bytes);
        self.opt(i64::try_from(start).ok()).opt(i64::try_from(length).ok())
    }

    pub(super) fn opt_bytes(self, bytes: Option<impl AsRef<[u8]>>) -> Self {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.opt(None).opt(None),
        }
    }

    pub(super) fn end(self) {
        self.bulk.json.push(']');
    }

    fn comma(&mut self) {
        if !self.first {
            self.bulk.json.push(',');
        }
        self.first = false;
    }
}
