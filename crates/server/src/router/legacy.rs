//! Workers of the legacy wire: their requests, and the tasks that they are given.
//!
//! Owns the translation between the desk of that wire and the socket. A task goes out with its whole input, so one whose
//! input is not in memory, or that its worker could not be told apart by, is passed over for the next one (rule L8).

use super::hand_out::HandOut;
use super::stock::Loaded;
use super::{Router, StageFailure};
use bytes::Bytes;
use dispatcher_core::fleet::NoiseKind;
use dispatcher_core::id::LeaseId;
use dispatcher_core::lease::{LeaseRefusal, LeaseStart, Terms, ToldApart};
use dispatcher_core::legacy::LegacyEffect;
use dispatcher_core::report::Ending;
use dispatcher_core::session::PeerId;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::Record;
use dispatcher_transport::legacy::{decode_request, encode_nothing_now, encode_task, is_name};
use dispatcher_transport::link;
use dispatcher_transport::socket::Sent;

/// How far into its queue it is looked for a task that a worker may have.
const LOOK_MAX: usize = 64;

impl Router {
    /// A worker of the legacy wire asks for a task (rules W1, W5).
    pub(super) fn request(&mut self, peer: PeerId, frames: &[Bytes]) -> Result<(), StageFailure> {
        let service = match decode_request(frames) {
            Ok(service) => service,
            Err(why) => {
                tracing::debug!(peer = peer.0, "a request that cannot be read: {why}");
                self.count_noise(NoiseKind::Malformed);
                return Ok(());
            }
        };
        if self.parts.legacy.is_none() {
            self.count_noise(NoiseKind::NotServed);
            return self.act_legacy(vec![LegacyEffect::SayNothingNow { peer }]);
        }
        let identity = self.socket.identity(peer).cloned().unwrap_or_default();
        // Its results could not name it.
        if !is_name(&identity) {
            self.count_noise(NoiseKind::Malformed);
            return self.act_legacy(vec![LegacyEffect::SayNothingNow { peer }]);
        }
        let (now, mut effects) = (self.now(), Vec::new());
        let is_known = self.legacy.worker_at(peer).is_some();
        if self.legacy.asked(peer, &identity, service, now, &mut effects) {
            self.offer();
            if let Some(worker) = self.legacy.worker_at(peer).filter(|_| !is_known) {
                tracing::info!(%worker, service, "a worker of the legacy wire joined");
                self.note_newcomer()?;
            }
        }
        self.act_legacy(effects)
    }

    /// Looks after requests that wait and workers that went away.
    pub(super) fn tick_legacy(&mut self, now: TimeMs) -> Result<(), StageFailure> {
        let mut effects = Vec::new();
        self.legacy.tick(now, &mut effects);
        self.act_legacy(effects)
    }

    pub(super) fn act_legacy(&mut self, effects: Vec<LegacyEffect>) -> Result<(), StageFailure> {
        for effect in effects {
            match effect {
                LegacyEffect::SayNothingNow { peer } => {
                    if link::send_legacy(&mut self.socket, peer, encode_nothing_now()) == Sent::Full {
                        self.legacy.not_told(peer);
                    }
                }
                LegacyEffect::Lost { worker, lease, delivered } => {
                    self.out.remove(&lease);
                    let (ending, what, why) = if delivered {
                        (Ending::WorkerLost, "worker_lost", "the worker's connection is gone, and it did not come back")
                    } else {
                        (
                            Ending::Undeliverable,
                            "not_held",
                            "the worker's connection was gone a moment after the task went out",
                        )
                    };
                    tracing::warn!(%worker, task = lease.task.0, "a worker of the legacy wire is lost");
                    self.ended(lease, &worker, ending, delivered, super::act::own(what, why))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a worker of the legacy wire waits for a task of the service, and it is its turn.
    pub(super) fn is_legacys_turn(&self, service: &str) -> bool {
        self.legacy.is_asked_for(service) && !(self.served_legacy && self.fleet.next_taker(service).is_some())
    }

    /// Hands the first task of a service that it may have to the worker that has waited longest.
    pub(super) fn hand_out_legacy(&mut self, service: &str) -> Result<Option<HandOut>, StageFailure> {
        let takers: Vec<PeerId> = self.legacy.takers(service).take(LOOK_MAX).collect();
        for peer in takers {
            let mut at = 0;
            while let Some(found) = self.next_for(peer, service, at) {
                at = found + 1;
                let Some(loaded) = self.stock.take_at(service, found) else { break };
                match self.try_hand_out_legacy(peer, loaded)? {
                    // The same worker may have the next one.
                    Tried::NotThisTask(loaded) => self.stock.put_at(found, *loaded),
                    Tried::As(outcome) => return Ok(Some(outcome)),
                }
            }
        }
        Ok(None)
    }

    /// Where the first task at or after `from` lies that the worker at `peer` may have. One whose input was not read, though
    /// it could be, is read again.
    fn next_for(&mut self, peer: PeerId, service: &str, from: usize) -> Option<usize> {
        let now = self.now();
        let window = SpanMs(u64::try_from(self.parts.set.limits().window_ms).unwrap_or(0));
        let worker = self.legacy.worker_at(peer)?.name.clone();
        let most = self.legacy.limits().unread_each;
        let queue = self.stock.ready.get(service)?;
        let may_have = |loaded: &Loaded| {
            let worked = loaded.work.worked_earlier.iter().any(|(name, at)| *name == worker && now.since(*at) < window);
            // A smaller bound than that of what travels inline on the other wire holds, too.
            !worked && loaded.body.is_some() && loaded.work.task.input_size <= most
        };
        let found = queue.iter().enumerate().skip(from).take(LOOK_MAX).find(|(_, loaded)| may_have(loaded));
        let found =
            found.filter(|(_, loaded)| self.legacy.may_take(peer, loaded.work.task.input_size)).map(|(at, _)| at);
        if found.is_none() && queue.iter().take(LOOK_MAX).any(|l| l.body.is_none() && l.work.task.input_size <= most) {
            self.stock.read_again(service, most);
            self.read_more();
        }
        found
    }

    /// Leases, sends, notes; or undoes (rules L1, L2, L9).
    fn try_hand_out_legacy(&mut self, peer: PeerId, loaded: Loaded) -> Result<Tried, StageFailure> {
        let now = self.now();
        let Some(worker) = self.legacy.worker_at(peer).cloned() else {
            return Ok(Tried::NotThisTask(Box::new(loaded)));
        };
        let terms = Terms {
            service: loaded.work.task.service,
            budget: loaded.work.budget,
            timeout: loaded.work.task.timeout_ms,
            start: LeaseStart::Now,
            cut_off: SpanMs::ZERO,
            told_apart: ToldApart::ByWorker,
        };
        match self.parts.set.lease(super::hand_out::grant(&loaded.work, &worker, terms), now) {
            Ok(_) => {}
            Err(LeaseRefusal::WorkedEarlier { .. }) => return Ok(Tried::NotThisTask(Box::new(loaded))),
            Err(refusal) => return self.refused(loaded, &refusal).map(Tried::As),
        }
        let (lease, service) = (loaded.work.task.lease, loaded.work.service.clone());
        let input = loaded.body.clone().unwrap_or_default();
        let sent = link::send_legacy(&mut self.socket, peer, encode_task(lease.task, input));
        if sent != Sent::Sent {
            self.parts.set.undo(lease, now);
            if sent == Sent::Full {
                self.legacy.full(peer)
            } else {
                self.legacy.gone(peer, &service)
            }
            self.count_noise(NoiseKind::QueueFull);
            return Ok(Tried::As(self.put_back(loaded, HandOut::NotThisOne)));
        }
        self.served_legacy = true;
        self.legacy.sent(peer, &service, lease, loaded.work.task.input_size, now);
        self.parts.shared.stock.take(loaded.work.task.service);
        self.out.insert(lease, loaded.work);
        crate::hooks::pass("handed_out");
        self.note(Record::HandedOut { lease, worker: (*worker).clone(), at: now, began: true })?;
        Ok(Tried::As(HandOut::Done))
    }

    /// The lease is over: its worker has room for another task.
    pub(super) fn over_legacy(&mut self, lease: LeaseId) {
        self.legacy.over(lease);
    }

    /// The lease was taken away from its worker.
    pub(super) fn cut_legacy(&mut self, lease: LeaseId) {
        if let Some(peer) = self.legacy.cut(lease) {
            self.socket.disconnect(peer);
        }
    }
}

/// What came of one try.
enum Tried {
    /// What comes of any hand-out.
    As(HandOut),
    /// This worker cannot have this task.
    NotThisTask(Box<Loaded>),
}
