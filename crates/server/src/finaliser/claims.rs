//! Claims ahead: keeps a small stock of claimed tasks ready, so that a worker never waits for the store.
//!
//! Owns when to claim, how much, and the turns of the services.

use super::{Finaliser, Pending, SWEEP_EVERY};
use crate::hooks;
use crate::meters::Meters;
use crate::report::{Order, Work};
use crate::stage::StageFailure;
use dispatcher_core::batch::Urgency;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{Claim, ClaimedTask, ErrorClass, Record, Service};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Finaliser {
    /// When the store is to be asked next; `None` while there is no reason to.
    pub(super) fn next_claim(&self) -> Option<TimeMs> {
        let wanted = self.services.iter().any(|service| self.room(service) > 0)
            || self.parts.shared.finish_when_empty.load(Ordering::Acquire);
        (wanted && self.may_claim()).then_some(self.claim_at)
    }

    /// Claims for each service whose stock is low and that somebody can do, where the store may have something. Those of
    /// higher priority come first, equal ones in turn.
    pub(super) fn claim_ahead(&mut self) -> Result<(), StageFailure> {
        if !self.may_claim() || self.now() < self.claim_at {
            return Ok(());
        }
        let mut low: Vec<Service> = self.services.iter().filter(|service| self.room(service) > 0).cloned().collect();
        if low.is_empty() {
            if self.parts.shared.stock.total() == 0 {
                // Nobody could take anything: there is nothing to ask for before somebody comes.
                self.claim_at = self.now().after(SWEEP_EVERY);
            }
            return Ok(());
        }
        self.turn = (self.turn + 1) % low.len();
        low.rotate_left(self.turn);
        low.sort_by_key(|service| std::cmp::Reverse(service.settings.priority));
        let mut dry = true;
        for service in low {
            let room = self.room(&service);
            dry &= self.claim_of(&service, room)? < room;
        }
        if dry {
            self.claim_at = self.now().after(SWEEP_EVERY);
        }
        Ok(())
    }

    /// Claims up to `max` tasks of a service and sends them to the router.
    fn claim_of(&mut self, service: &Service, max: usize) -> Result<usize, StageFailure> {
        let max = self.limit.as_ref().map_or(max, |limit| limit.most(max));
        let ask = Claim { dispatcher: self.parts.dispatcher, service: service.id, max };
        let now = self.now();
        let claimed = Meters::timed(&self.parts.meters.claim, || {
            self.patiently(|store| {
                let ask = ask.clone();
                async move { store.claim(&ask, now).await }
            })
        })?;
        if claimed.is_empty() {
            return Ok(0);
        }
        if claimed.iter().any(|task| self.corpora.get(task.corpus).is_none()) {
            self.learn_names()?;
        }
        hooks::pass("claimed");
        let count = claimed.len();
        let mut work: Vec<Work> = claimed.into_iter().filter_map(|task| self.work(service, task)).collect();
        if work.is_empty() && self.limit.is_none() {
            // None of them can be handed out: they are back with the next batch, and there is no hurry to ask again.
            return Ok(0);
        }
        self.name_who_worked_earlier(&mut work)?;
        self.parts.shared.stock.add(service.id, work.len());
        self.order(Order::Claimed(work))?;
        Ok(count)
    }

    /// A claimed task with all that is needed to hand it out. One of a corpus that is not known goes back, and is asked
    /// about again at its next claim (rule G8).
    fn work(&mut self, service: &Service, task: ClaimedTask) -> Option<Work> {
        let meant = self.limit.as_mut().is_none_or(|limit| limit.admit(&task));
        let work = if meant { self.known_work(service, &task) } else { None };
        if work.is_none() {
            if meant {
                self.corpora.miss(task.corpus, self.parts.clock.now());
            }
            let back = Record::Returned { lease: task.lease };
            self.batch.push(Pending::Record(back, None), Urgency::Relaxed, self.parts.clock.now());
        }
        work
    }

    /// A leased task with all that is needed to serve its worker, where its corpus is known.
    pub(super) fn known_work(&mut self, service: &Service, task: &ClaimedTask) -> Option<Work> {
        let (corpus, kind) = self.corpora.get(task.corpus)?;
        let name = self.parts.naming.name(&service.name, &corpus.name, kind, &task.entry);
        let path =
            Path::new(std::ffi::OsStr::from_bytes(&corpus.root.0)).join(std::ffi::OsStr::from_bytes(&task.entry.0));
        let work = Work {
            service: service.name.clone(),
            corpus: corpus.name.clone(),
            budget: service.settings.budget,
            result_cap: service.settings.result_cap,
            max_in_flight: service.settings.max_in_flight,
            path,
            worked_earlier: Vec::new(),
            task: task.clone(),
        };
        self.names.insert(task.lease.task, name);
        Some(work)
    }

    /// Reads the services and corpora; they are few. A store that is away is waited for; corpora that cannot be read for
    /// another reason stay not known (rule G8).
    pub(super) fn learn_names(&mut self) -> Result<(), StageFailure> {
        self.services = self.patiently(|store| async move { store.services().await })?;
        self.parts.shared.services.set(self.services.iter().map(|service| (service.name.clone(), service.id)));
        let read = self.patiently(|store| async move {
            match store.corpora().await {
                Err(e) if !matches!(e.class, ErrorClass::Transient | ErrorClass::Full) => Ok(Err(e)),
                read => read.map(Ok),
            }
        })?;
        self.corpora.learn(read, self.now());
        self.place_adopted();
        Ok(())
    }

    /// How many tasks of a service the stock lacks; none before it is half empty, so that claims come in batches.
    fn room(&self, service: &Service) -> usize {
        let shared = &self.parts.shared;
        if service.settings.paused || !shared.offered.has(&service.name) {
            return 0;
        }
        let (stocked, full) = (shared.stock.of(service.id), self.parts.claim_ahead);
        if stocked * 2 > full { 0 } else { full - stocked }
    }

    fn may_claim(&self) -> bool {
        !self.parts.shared.is_draining()
            && !self.parts.shared.holding.load(Ordering::Acquire)
            && !self.parts.set.is_saturated()
    }
}
