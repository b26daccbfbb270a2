//! What a program writes to one of its streams, through a pipe of its own.
//!
//! **Owns** the reading end and where the bytes go: kept at both ends, read as log lines besides, or taken as the result.
//! **Refuses to know** the program.
//!
//! **Invariants**: each task has pipes of its own, so nothing that outlives it can add a byte to another task; at the end
//! only what is in the pipe by then is read, so nobody who still holds its other end is waited for (case F74).

use super::capture::Capture;
use super::spool::Spool;
use dispatcher_core::report::{Log, LogReader};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, ioctl_fionread, read};
use std::io::{self, PipeReader, PipeWriter};

/// How much of a pipe is read at once, in bytes: all that a pipe holds by default.
const READ: usize = 64 * 1024;

/// A pipe that is read until it ends, and where its bytes go.
pub(super) struct Pipe<'a> {
    reader: Option<PipeReader>,
    pub(super) sink: Sink<'a>,
}

/// Where the bytes of a pipe go.
pub(super) enum Sink<'a> {
    /// Both ends are kept.
    Kept(Capture),
    /// Both ends are kept, and lines are read as messages.
    Logged(Capture, LogReader),
    /// They are the result.
    Result(Spool<'a>),
}

impl<'a> Sink<'a> {
    /// What it came to: what was kept, what its lines say, and the result; nothing where it is none of that.
    pub(super) fn finish(self, keep: usize) -> (Capture, Log, Option<Spool<'a>>) {
        match self {
            Self::Kept(kept) => (kept, LogReader::default().finish(), None),
            Self::Logged(kept, log) => (kept, log.finish(), None),
            Self::Result(spool) => (Capture::new(keep), LogReader::default().finish(), Some(spool)),
        }
    }
}

impl<'a> Pipe<'a> {
    /// A pipe into `sink`, and the end for the program.
    pub(super) fn new(sink: Sink<'a>) -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self { reader: Some(reader), sink }, writer))
    }

    /// Its reading end; `None` once it has ended.
    pub(super) const fn reader(&self) -> Option<&PipeReader> {
        self.reader.as_ref()
    }

    /// Whether more has come than is taken.
    pub(super) const fn is_too_large(&self) -> bool {
        matches!(&self.sink, Sink::Result(spool) if spool.is_too_large())
    }

    /// Reads once, through `buffer`; there is something to read, or the pipe has ended. How many bytes there were.
    ///
    /// # Errors
    /// Where the system refuses, or a result cannot be written down.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let Some(reader) = &self.reader else { return Ok(0) };
        buffer.clear();
        buffer.reserve(READ);
        let n = match read(reader, spare_capacity(buffer)) {
            Err(Errno::INTR) => return Ok(0),
            n => n?,
        };
        if n == 0 {
            self.reader = None;
        }
        match &mut self.sink {
            Sink::Kept(kept) => kept.push(buffer),
            Sink::Logged(kept, log) => {
                kept.push(buffer);
                log.push(buffer);
            }
            Sink::Result(spool) => spool.push(buffer)?,
        }
        Ok(n)
    }

    /// Reads what is in the pipe now and closes it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_rest(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut left = self.reader.as_ref().map_or(Ok(0), ioctl_fionread)?;
        while left > 0 && self.reader.is_some() {
            left = left.saturating_sub(self.read(buffer)? as u64);
        }
        self.reader = None;
        Ok(())
    }
}
