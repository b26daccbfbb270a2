//! A result that a program prints: in memory while it is small, in a file from there on.
//!
//! Owns the bytes and the cap. A file is made only for what does not fit into memory, because making and removing one for
//! each task costs more than everything else around a short program.

use crate::delivery::SMALL;
use crate::work::PartBody;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// What was printed so far.
pub(super) struct Spool<'a> {
    /// Says where a large result goes.
    place: &'a dyn Fn() -> io::Result<PathBuf>,
    /// The largest result, in bytes.
    cap: u64,
    total: u64,
    small: Vec<u8>,
    large: Option<(PathBuf, File)>,
}

impl<'a> Spool<'a> {
    /// Nothing yet. More than `cap` bytes are not taken; what does not fit into memory goes to the file at `place`.
    pub(super) const fn new(place: &'a dyn Fn() -> io::Result<PathBuf>, cap: u64) -> Self {
        Self { place, cap, total: 0, small: Vec::new(), large: None }
    }

    /// Whether more than the cap was printed. Nothing of it is taken from then on.
    pub(super) const fn is_too_large(&self) -> bool {
        self.total > self.cap
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// Where they cannot be written to the file.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        if self.is_too_large() {
            return Ok(());
        }
        if let Some((_, file)) = &mut self.large {
            return file.write_all(bytes);
        }
        if self.total <= SMALL {
            self.small.extend_from_slice(bytes);
            return Ok(());
        }
        let path = (self.place)()?;
        let mut file = File::create(&path)?;
        file.write_all(&std::mem::take(&mut self.small))?;
        file.write_all(bytes)?;
        self.large = Some((path, file));
        Ok(())
    }

    /// The result; `None` where it is too large.
    pub(super) fn finish(self) -> Option<PartBody> {
        if self.is_too_large() {
            return None;
        }
        Some(match self.large {
            Some((path, _)) => PartBody::File(path),
            None => PartBody::Bytes(self.small.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of `total` bytes in pieces of `piece`, below a cap of 200,000; and whether a file was made.
    fn spooled(total: usize, piece: usize) -> (Option<Vec<u8>>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result");
        let place = || Ok(path.clone());
        let mut spool = Spool::new(&place, 200_000);
        let bytes: Vec<u8> = (0..total).map(|n| u8::try_from(n % 251).unwrap()).collect();
        bytes.chunks(piece).for_each(|piece| spool.push(piece).unwrap());
        let result = spool.finish().map(|body| match body {
            PartBody::Bytes(bytes) => bytes.to_vec(),
            PartBody::File(path) => std::fs::read(path).unwrap(),
        });
        assert!(result.as_ref().is_none_or(|result| *result == bytes));
        (result, path.exists())
    }

    #[test]
    fn only_what_does_not_fit_into_memory_makes_a_file() {
        for (total, piece, makes_file) in
            [(0, 1, false), (65_536, 4_096, false), (65_537, 4_096, true), (200_000, 65_536, true)]
        {
            let (result, made) = spooled(total, piece);
            assert_eq!((result.map(|r| r.len()), made), (Some(total), makes_file), "{total} in pieces of {piece}");
        }
    }

    // Rule R7.
    #[test]
    fn more_than_the_cap_is_not_taken() {
        assert_eq!(spooled(200_001, 65_536).0, None);
        assert_eq!(spooled(1_000_000, 1_000_000), (None, false), "nothing of it is written down");
    }
}
