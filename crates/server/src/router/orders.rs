//! What the other stages ask of the router.

use super::{Router, StageFailure};
use crate::report::Order;
use dispatcher_core::id::LeaseId;
use dispatcher_store::Record;
use std::sync::atomic::Ordering;

impl Router {
    /// Handles one order.
    pub(super) fn order(&mut self, order: Order) -> Result<(), StageFailure> {
        let now = self.now();
        let mut effects = Vec::new();
        match order {
            Order::Claimed(work) => {
                self.take_in(work);
                return if self.draining_since.is_some() { self.give_back_stock() } else { Ok(()) };
            }
            Order::Answer { lease, word, why } => {
                self.out.remove(&lease);
                self.fleet.ack(lease, word, why, &mut effects);
            }
            Order::Cut { lease, why } => return self.cut(lease, &why),
            Order::Holds { worker, keep, drop } => self.fleet.settle(&worker, &keep, &drop, &mut effects),
            Order::PieceTaken(piece) => self.fleet.taken(&piece, now, &mut effects),
            Order::Drain => return self.drain(),
        }
        self.act(effects, &[])
    }

    /// A worker is to stop working on a lease.
    pub(super) fn cut(&mut self, lease: LeaseId, why: &str) -> Result<(), StageFailure> {
        self.out.remove(&lease);
        let mut effects = Vec::new();
        self.fleet.cancel(lease, why.to_owned(), &mut effects);
        self.act(effects, &[])
    }

    /// Hands out nothing more: the stock goes back, the workers are told. Doing it again changes nothing.
    pub(super) fn drain(&mut self) -> Result<(), StageFailure> {
        if self.draining_since.is_some() {
            return Ok(());
        }
        let now = self.now();
        self.draining_since = Some(now);
        self.parts.shared.draining.store(true, Ordering::Release);
        self.give_back_stock()?;
        let mut effects = Vec::new();
        self.fleet.drain(&mut effects);
        self.act(effects, &[])
    }

    /// Claimed tasks that no worker has go back, uncharged.
    fn give_back_stock(&mut self) -> Result<(), StageFailure> {
        for work in self.stock.take_all() {
            self.parts.shared.buffered.fetch_sub(1, Ordering::AcqRel);
            self.note(Record::Returned { lease: work.task.lease })?;
        }
        Ok(())
    }
}
