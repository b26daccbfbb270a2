//! What the other stages ask of the router.

use super::{Router, StageFailure};
use crate::report::{Order, Work};
use dispatcher_core::id::LeaseId;
use dispatcher_store::Record;
use std::collections::HashSet;

impl Router {
    /// Handles one order.
    pub(super) fn order(&mut self, order: Order) -> Result<(), StageFailure> {
        let now = self.now();
        let mut effects = Vec::new();
        match order {
            Order::Claimed(work) => {
                self.take_in(work);
                return if self.draining_since.is_some() { self.give_back(|_| true) } else { Ok(()) };
            }
            Order::Answer { lease, word, why } => {
                self.out.remove(&lease);
                self.over_legacy(lease);
                self.fleet.ack(lease, word, why, &mut effects);
            }
            Order::Cut { lease, why } => return self.cut(lease, &why),
            Order::Holds { worker, keep, drop } => self.fleet.settle(&worker, &keep, &drop, &mut effects),
            Order::PieceTaken(piece) => self.fleet.taken(&piece, now, &mut effects),
            Order::Adopted(work) => self.out.extend(work.into_iter().map(|work| (work.task.lease, work))),
            Order::AdoptedLegacy(leases) => {
                leases.into_iter().for_each(|(lease, worker)| self.legacy.adopted(lease, worker, now));
            }
            Order::Brought(lease) => self.legacy.brought(lease),
            Order::Revoked { leases, why } => return self.revoked(leases, &why),
            Order::Drain => return self.drain(),
            Order::GiveBack(service) => return self.give_back(|work| work.task.service == service),
        }
        self.act(effects, &[])
    }

    /// A worker is to stop working on a lease.
    pub(super) fn cut(&mut self, lease: LeaseId, why: &str) -> Result<(), StageFailure> {
        self.out.remove(&lease);
        self.cut_legacy(lease);
        let mut effects = Vec::new();
        self.fleet.cancel(lease, why.to_owned(), &mut effects);
        self.act(effects, &[])
    }

    /// Leases that the store has ended already: those in stock vanish, the others' workers stop.
    fn revoked(&mut self, leases: Vec<LeaseId>, why: &str) -> Result<(), StageFailure> {
        let ended: HashSet<LeaseId> = leases.iter().copied().collect();
        for work in self.stock.take(|work| ended.contains(&work.task.lease)) {
            self.parts.shared.stock.take(work.task.service);
        }
        self.read_more();
        leases.into_iter().try_for_each(|lease| self.cut(lease, why))
    }

    /// Hands out nothing more: the stock goes back, the workers are told. Doing it again changes nothing.
    pub(super) fn drain(&mut self) -> Result<(), StageFailure> {
        if self.draining_since.is_some() {
            return Ok(());
        }
        self.draining_since = Some(self.now());
        self.give_back(|_| true)?;
        let mut effects = Vec::new();
        self.fleet.drain(&mut effects);
        self.act(effects, &[])?;
        let mut effects = Vec::new();
        self.legacy.drain(&mut effects);
        self.act_legacy(effects)
    }

    /// Claimed tasks that no worker has and that are `meant` go back, uncharged.
    fn give_back(&mut self, meant: impl Fn(&Work) -> bool) -> Result<(), StageFailure> {
        for work in self.stock.take(meant) {
            self.parts.shared.stock.take(work.task.service);
            self.note(Record::Returned { lease: work.task.lease })?;
        }
        Ok(())
    }
}
