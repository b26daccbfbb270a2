//! The pulling of one answer's bytes, piece by piece, and the budgets of bytes under way.

use super::effect::Piece;
use crate::id::LeaseId;
use crate::time::SpanMs;
use crate::wire::PartSpec;
use std::collections::BTreeMap;

/// Which pieces of an answer's parts to ask for next, and which are on their way.
///
/// Ends with its connection: a worker that comes back answers again, from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// Tells it from the lease's earlier transfers.
    number: u64,
    lease: LeaseId,
    parts: Vec<PartSpec>,
    /// The part and the offset to ask for next.
    next: (usize, u64),
    asked: Vec<Piece>,
    untaken: usize,
    /// When a byte came last, on the listening clock.
    heard_at: SpanMs,
}

/// What arrived for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwanted;

impl Transfer {
    pub(crate) fn new(number: u64, lease: LeaseId, parts: Vec<PartSpec>, clock: SpanMs) -> Self {
        let mut transfer = Self { number, lease, parts, next: (0, 0), asked: Vec::new(), untaken: 0, heard_at: clock };
        transfer.pass_empty_parts();
        transfer
    }

    pub(crate) fn has_more(&self) -> bool {
        self.next.0 < self.parts.len()
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.has_more() && self.outstanding() == 0
    }

    /// Pieces asked for and not arrived, or arrived and not taken.
    pub(crate) fn outstanding(&self) -> usize {
        self.asked.len() + self.untaken
    }

    /// The piece that [`Self::ask`] would ask for.
    pub(crate) fn peek(&self, chunk_max: u64) -> Option<Piece> {
        let (part, offset) = self.next;
        let size = self.parts.get(part)?.size;
        Some(Piece { transfer: self.number, lease: self.lease, part, offset, length: (size - offset).min(chunk_max) })
    }

    /// Asks for the next piece; returns it with its part's name.
    pub(crate) fn ask(&mut self, chunk_max: u64, clock: SpanMs) -> Option<(Piece, String)> {
        let piece = self.peek(chunk_max)?;
        let name = self.parts.get(piece.part)?.name.clone();
        if self.asked.is_empty() {
            // Until now we were not waiting for the worker.
            self.heard_at = clock;
        }
        self.asked.push(piece);
        self.next.1 += piece.length;
        self.pass_empty_parts();
        Some((piece, name))
    }

    /// Takes a piece that came, where it was asked for in just this form.
    pub(crate) fn arrived(&mut self, name: &str, offset: u64, length: u64, clock: SpanMs) -> Result<Piece, Unwanted> {
        let is_it = |piece: &Piece| {
            (piece.offset, piece.length) == (offset, length)
                && self.parts.get(piece.part).is_some_and(|part| part.name == name)
        };
        let at = self.asked.iter().position(is_it).ok_or(Unwanted)?;
        self.heard_at = clock;
        self.untaken += 1;
        Ok(self.asked.swap_remove(at))
    }

    /// Notes that `piece` is written; a piece of an earlier transfer of the lease changes nothing.
    pub(crate) fn taken(&mut self, piece: &Piece) {
        if piece.transfer == self.number {
            self.untaken = self.untaken.saturating_sub(1);
        }
    }

    /// Bytes asked for and not arrived.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.asked.iter().map(|piece| piece.length).sum()
    }

    /// Whether the worker owes a piece and has sent nothing for `span`.
    pub(crate) fn is_stalled(&self, clock: SpanMs, span: SpanMs) -> bool {
        !self.asked.is_empty() && clock.0.saturating_sub(self.heard_at.0) >= span.0
    }

    fn pass_empty_parts(&mut self) {
        while self.parts.get(self.next.0).is_some_and(|part| self.next.1 >= part.size) {
            self.next = (self.next.0 + 1, 0);
        }
    }
}

/// Bytes held or promised for leases, within a limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    total: u64,
    held: BTreeMap<LeaseId, u64>,
}

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, total: 0, held: BTreeMap::new() }
    }

    /// Takes `bytes` for `lease`; false, and nothing taken, where the limit does not allow it.
    pub(crate) fn reserve(&mut self, lease: LeaseId, bytes: u64) -> bool {
        match self.total.checked_add(bytes) {
            Some(total) if total <= self.limit => {
                self.total = total;
                if bytes > 0 {
                    *self.held.entry(lease).or_default() += bytes;
                }
                true
            }
            _ => false,
        }
    }

    /// Gives `bytes` of `lease` back, at most what it has.
    pub(crate) fn release(&mut self, lease: LeaseId, bytes: u64) {
        if let Some(held) = self.held.get_mut(&lease) {
            let given = bytes.min(*held);
            *held -= given;
            self.total -= given;
            if *held == 0 {
                self.held.remove(&lease);
            }
        }
    }

    /// Gives back all that `lease` has.
    pub(crate) fn release_all(&mut self, lease: LeaseId) {
        self.total -= self.held.remove(&lease).unwrap_or(0);
    }

    /// Bytes held or promised now.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }
}
