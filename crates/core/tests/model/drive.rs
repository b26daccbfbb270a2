//! Plays one history on the set and on the model, and compares.

use super::naive::{self, Ask, By, Naive, Named, Said, Stands};
use dispatcher_core::claim::Standing;
use dispatcher_core::id::{Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::in_flight::{Attribution, Claim, InFlightSet, LeaseState, Limits, Receipt, Reply};
use dispatcher_core::lease::{Grant, LeaseRefusal, LeaseStart, Leased, Terms, ToldApart};
use dispatcher_core::reap::Taken;
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_core::retry::Retry;
use dispatcher_core::slot::table::SlotState;
use dispatcher_core::slot::{Accepted, Answered, Dropped, Lateness, NoResult, Settled, Settlement, TakenBack};
use dispatcher_core::time::{SpanMs, TimeMs};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// A service without a store, or the set beside one.
    pub(crate) own: bool,
    pub(crate) max_in_flight: usize,
    pub(crate) hard_limit: usize,
    pub(crate) window_ms: i64,
    pub(crate) max_held: usize,
}

/// One thing that happens; the dice say to what and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: u8,
    pub(crate) dice: [u8; 4],
}

impl Op {
    pub(crate) const KINDS: u8 = 18;
}

pub(crate) struct Drive {
    set: InFlightSet,
    model: Naive,
    own: bool,
    now: i64,
    /// Beside a store: run and epoch of each task's row.
    rows: BTreeMap<i64, (u32, u64)>,
    leases: Vec<LeaseId>,
    highest: u64,
    receipts: Vec<(Receipt, u64)>,
    accepted: Vec<(Accepted, naive::Accepted)>,
    queue: Vec<(Retry, naive::Retry)>,
    story: Vec<String>,
}

type Check = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, set: T, model: T) -> Check {
    if set == model { Ok(()) } else { Err(format!("{what}: the set says {set:?}, the model {model:?}")) }
}

fn worker(name: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: String::new() }
}

fn message(what: &str) -> Message {
    Message { severity: Severity::Error, category: "test".into(), what: what.into(), details: String::new() }
}

fn what(message: Option<&Message>) -> Option<String> {
    message.map(|message| message.what.clone())
}

fn stands(standing: Standing) -> Stands {
    let by = match standing.origin {
        Origin::Worker => By::Worker,
        Origin::ReaperStandIn => By::Reaper,
        Origin::LastAttemptStandIn => By::LastAttempt,
    };
    Stands { epoch: standing.epoch.0, status: standing.status, by }
}

fn late(late: Lateness) -> &'static str {
    match late {
        Lateness::OnTime => "on time",
        Lateness::OlderAttempt => "older attempt",
        Lateness::AfterRequeue => "after requeue",
        Lateness::AfterDeadLetter => "after dead letter",
        Lateness::NewerAttempt => "newer attempt",
        Lateness::ReplacesFailure => "replaces failure",
    }
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Expired => "expired",
        Ending::WorkerLost => "lost",
        Ending::TimeLimit => "limit",
        Ending::Unusable => "unusable",
        Ending::RetryableCause => "cause",
        Ending::Undeliverable => "undeliverable",
        Ending::HandedBack => "handed back",
        Ending::Accepted | Ending::Superseded | Ending::Stale | Ending::Cancelled => "not the reaper's",
    }
}

fn refusal(refusal: &LeaseRefusal) -> &'static str {
    match refusal {
        LeaseRefusal::Untracked(_) => "untracked",
        LeaseRefusal::Saturated { .. } => "saturated",
        LeaseRefusal::HardLimit { .. } => "hard limit",
        LeaseRefusal::OlderRun { .. } => "older run",
        LeaseRefusal::OlderClaim { .. } => "older claim",
        LeaseRefusal::Finished { .. } => "finished",
        LeaseRefusal::WorkedEarlier { .. } => "worked earlier",
        LeaseRefusal::LookFirst => "look first",
    }
}

fn answered(answered: &Answered) -> String {
    match answered {
        Answered::DueAtOnce(_) => "due at once".into(),
        Answered::Waits(_) => "waits".into(),
        Answered::Repeated(_) => "repeated".into(),
        Answered::StandIn(facts) => format!("stand-in {} of {}", facts.lease.epoch.0, facts.attempts),
        Answered::RidesAlong(_) => "rides along".into(),
        Answered::Dropped(Dropped::OlderAttempt) => "dropped older".into(),
        Answered::Dropped(Dropped::Finished) => "dropped finished".into(),
        Answered::Dropped(Dropped::DeadLettered) => "dropped dead".into(),
        Answered::Dropped(Dropped::NotInFlight) => "dropped not in flight".into(),
        Answered::Dropped(Dropped::Stale) => "dropped stale".into(),
        Answered::Dropped(Dropped::Unknown) => "dropped unknown".into(),
        Answered::Dropped(Dropped::WrongService) => "dropped wrong service".into(),
    }
}

fn lease_state(state: LeaseState) -> String {
    match state {
        LeaseState::InFlight { begun, answered } => format!("in flight {begun} {answered}"),
        LeaseState::Older => "older".into(),
        LeaseState::Held { standing } => format!("held {:?}", standing.map(stands)),
        LeaseState::Stale => "stale".into(),
        LeaseState::Unknown => "unknown".into(),
    }
}

fn compare_retry(set: &Retry, model: &naive::Retry) -> Check {
    let run = &set.run;
    same("task of the retry", set.task.0, model.id)?;
    same("numbers of the retry", (run.run.0, run.first.0, run.attempts), (model.run, model.first, model.attempts))?;
    same("spent by the retry", (run.charged, run.freed), (model.charged, model.freed))?;
    same("cause of the retry", what(run.cause.as_deref()), model.cause.clone())?;
    same("reason of the retry", what(run.reason.as_deref()), model.reason.clone())
}

impl Drive {
    pub(crate) fn new(setting: Setting) -> Self {
        let Setting { own, max_in_flight, hard_limit, window_ms, max_held } = setting;
        let limits = Limits { max_in_flight, hard_limit, window_ms, max_held, shards: 2 };
        Self {
            set: InFlightSet::new(limits).expect("good limits"),
            model: Naive::new(max_in_flight, hard_limit, window_ms.max(0), max_held),
            own,
            now: 1000,
            rows: BTreeMap::new(),
            leases: Vec::new(),
            highest: 0,
            receipts: Vec::new(),
            accepted: Vec::new(),
            queue: Vec::new(),
            story: Vec::new(),
        }
    }

    /// The last steps, for whoever reads a failure.
    pub(crate) fn story(&self) -> String {
        self.story[self.story.len().saturating_sub(40)..].join("\n")
    }

    pub(crate) fn step(&mut self, op: Op) -> Check {
        let [a, b, c, d] = op.dice;
        match (op.kind, self.own) {
            (0, _) => {
                self.now += i64::from(a) % 40;
                Ok(())
            }
            (1 | 2, false) => self.lease(a, b, c, d, false),
            (3, false) => self.lease(a, b, c, d, d.is_multiple_of(3)),
            (1 | 2, true) => self.lease_fresh(a, b, c),
            (3, true) => self.lease_retry(a, b, c),
            (4, _) => self.begun(a),
            (5, _) => self.receipt(a, b, c),
            (6, _) => self.release(a),
            (7..=9, _) => self.claim(a, b, c, d),
            (10 | 11, _) => self.answer(a, b, c, d),
            (12 | 13, _) => self.sweep(a, b),
            (14, _) => self.publish(a, b),
            (15, _) => self.undo(a),
            (16, false) => self.settle(a, b, c),
            (16, true) => self.lease_retry(a, b, c),
            (_, _) => self.rare(a, b),
        }?;
        self.compare()
    }

    fn note(&mut self, what: String) {
        self.story.push(format!("{:>6} {what}", self.now));
        if self.story.len() > 400 {
            self.story.drain(..200);
        }
    }

    fn at(&self) -> TimeMs {
        TimeMs(self.now)
    }

    /// A lease that was once given out; recent ones more often.
    fn pick(&self, dice: u8) -> Option<LeaseId> {
        let reach = if dice.is_multiple_of(4) { 60 } else { 5 };
        let back = usize::from(dice / 4) % reach.min(self.leases.len().max(1));
        self.leases.iter().rev().nth(back).copied()
    }

    fn terms(dice: u8) -> (Terms, naive::Terms) {
        let bit = |n: u8| dice >> n & 1 == 1;
        let (service, budget) = (1 + i64::from(bit(0)), u32::from(dice >> 1 & 3));
        let (at_begun, legacy, cut_off) = (bit(3), bit(4), if bit(5) { 7 } else { 0 });
        let timeout = if bit(6) { 10 } else { 25 };
        let terms = Terms {
            service: ServiceId(service),
            budget,
            timeout: SpanMs(timeout),
            start: if at_begun { LeaseStart::AtBegun } else { LeaseStart::Now },
            cut_off: SpanMs(cut_off),
            told_apart: if legacy { ToldApart::ByWorker } else { ToldApart::ByToken },
        };
        let (timeout, cut_off) = (timeout as i64, cut_off as i64);
        (terms, naive::Terms { service, budget, timeout, at_begun, cut_off, legacy })
    }

    fn compare_leased(&mut self, set: Result<Leased, LeaseRefusal>, model: Result<naive::Leased, String>) -> Check {
        self.note(format!("leased {set:?}"));
        if let Ok(leased) = &set {
            self.leases.push(leased.lease);
            self.highest = self.highest.max(leased.lease.epoch.0);
            if self.leases.len() > 400 {
                self.leases.drain(..200);
            }
        }
        let plain = |leased: Leased| naive::Leased {
            attempts: leased.attempts,
            retries: leased.retries,
            limit: leased.limit.0 as i64,
            deadline: leased.deadline.map(|at| at.0),
            cause: what(leased.cause.as_ref()),
        };
        same("lease", set.map(plain).map_err(|r| refusal(&r).to_owned()), model)
    }

    /// A claim of a row, or a lease adopted from it.
    fn lease(&mut self, a: u8, b: u8, c: u8, d: u8, adopted: bool) -> Check {
        let task = i64::from(a % 7);
        let (run, epoch) = *self.rows.entry(task).or_insert((1, 0));
        let (run, epoch) = match b % 8 {
            0 => (run + 1, epoch + 1),
            1 if run > 1 => (run - 1, epoch + 1),
            2 => (run, epoch.max(1)),
            _ => (run, epoch + 1),
        };
        let row = self.rows.entry(task).or_default();
        *row = (row.0.max(run), row.1.max(epoch));
        let (terms, plain) = Self::terms(c);
        let name = (d % 5 != 4 || !adopted).then(|| format!("w{}", d % 5));
        let (retries, freed) = (u32::from(b >> 3 & 1), u32::from(b >> 4 & 1));
        let cause = (b >> 5 & 1 == 1).then(|| format!("row{d}"));
        let lease = LeaseId { task: TaskId(task), run: Run(run), epoch: Epoch(epoch) };
        let grant = Grant {
            lease,
            worker: name.as_deref().map(worker),
            terms,
            retries,
            freed,
            cause: cause.as_deref().map(message),
            reason: None,
        };
        let began = self.now - i64::from(b % 9) + 3;
        let (set, clock) = match (adopted, plain.at_begun) {
            (false, true) => (self.set.lease(grant, self.at()), None),
            (false, false) => (self.set.lease(grant, self.at()), Some(self.now)),
            (true, true) => (self.set.adopt(grant, Some(self.at()), Some(TimeMs(began)), self.at()), Some(began)),
            (true, false) => (self.set.adopt(grant, None, None, self.at()), Some(self.now)),
        };
        let ask = Ask {
            task,
            run,
            epoch,
            first: None,
            worker: name,
            terms: plain,
            retries,
            freed,
            cause,
            reason: None,
            adopted,
            clock,
        };
        let model = self.model.lease(ask, self.now);
        self.compare_leased(set, model)
    }

    /// The number that the set gave, which it never gave before; where it refused, any new one will do.
    fn numbered(&self, set: &Result<Leased, LeaseRefusal>) -> Result<u64, String> {
        match set {
            Ok(leased) if leased.lease.epoch.0 <= self.highest => Err(format!("{leased:?} is numbered again")),
            Ok(leased) => Ok(leased.lease.epoch.0),
            Err(_) => Ok(self.highest + 1),
        }
    }

    fn lease_fresh(&mut self, a: u8, b: u8, c: u8) -> Check {
        let task = i64::from(a % 7);
        let (terms, plain) = Self::terms(c);
        let name = format!("w{}", b % 4);
        let set = self.set.lease_fresh(TaskId(task), &worker(&name), terms, self.at());
        let epoch = self.numbered(&set)?;
        let ask = Ask {
            task,
            run: self.model.find(task).map_or(1, |task| task.run + 1),
            epoch,
            first: Some(epoch),
            worker: Some(name),
            clock: (!plain.at_begun).then_some(self.now),
            terms: plain,
            retries: 0,
            freed: 0,
            cause: None,
            reason: None,
            adopted: false,
        };
        let model = self.model.lease(ask, self.now);
        self.compare_leased(set, model)
    }

    /// A retry from the queue; whether or not it is still wanted, and more than once.
    fn lease_retry(&mut self, a: u8, b: u8, c: u8) -> Check {
        if self.queue.is_empty() {
            return Ok(());
        }
        let at = self.queue.len() - 1 - usize::from(a) % self.queue.len().min(6);
        let (retry, plain) = self.queue[at].clone();
        let name = format!("w{}", b % 4);
        let looked = c.is_multiple_of(2);
        let set = if looked {
            self.set.lease_forgotten(&retry, &worker(&name), self.at())
        } else {
            self.set.lease_retry(&retry, &worker(&name), self.at())
        };
        let epoch = self.numbered(&set)?;
        if self.model.find(plain.id).is_none() && !looked {
            return same("retry", set.map_err(|r| refusal(&r)), Err("look first"));
        }
        let ask = Ask {
            task: plain.id,
            run: plain.run,
            epoch,
            first: Some(plain.first),
            worker: Some(name),
            clock: (!plain.terms.at_begun).then_some(self.now),
            terms: plain.terms,
            retries: plain.charged,
            freed: plain.freed,
            cause: plain.cause,
            reason: plain.reason,
            adopted: false,
        };
        let model = self.model.lease(ask, self.now);
        self.compare_leased(set, model)
    }

    fn begun(&mut self, a: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        self.note(format!("begun {lease}"));
        let set = self.set.begun(lease, self.at());
        same("begun", set, self.model.begun(lease.task.0, lease.run.0, lease.epoch.0, self.now))
    }

    /// Whose reply it is: by token, or by name, with a service or none, now and then the wrong one.
    fn reply(lease: LeaseId, b: u8, name: &str) -> (Reply<'_>, Named<'_>, Option<i64>) {
        let service = [None, None, Some(1), Some(2)][usize::from(b % 4)];
        let (by, plain) = if b & 8 == 0 {
            (Attribution::Token { run: lease.run, epoch: lease.epoch }, Named::Token(lease.run.0, lease.epoch.0))
        } else {
            (Attribution::Worker(name), Named::Name(name))
        };
        (Reply { task: lease.task, by, service: service.map(ServiceId) }, plain, service)
    }

    fn receipt(&mut self, a: u8, b: u8, c: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        let name = format!("w{}", c % 5);
        let (reply, plain, service) = Self::reply(lease, b, &name);
        self.note(format!("receipt {reply:?}"));
        let set = self.set.receipt(reply);
        let model = self.model.receipt(lease.task.0, &plain, service);
        same("receipt", set.is_some(), model.is_some())?;
        self.receipts.extend(set.zip(model));
        Ok(())
    }

    fn release(&mut self, a: u8) -> Check {
        if !self.receipts.is_empty() {
            let (receipt, serial) = self.receipts.swap_remove(usize::from(a) % self.receipts.len());
            self.model.release(serial);
            self.note(format!("released {}", receipt.lease()));
        }
        Ok(())
    }

    fn claim(&mut self, a: u8, b: u8, c: u8, d: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        let name = format!("w{}", c % 5);
        let status = Status::ALL[usize::from(d) % 5];
        let (reply, plain, service) = Self::reply(lease, b, &name);
        let set = self.set.claim(reply, status, self.at());
        self.note(format!("claim {reply:?} {status:?}: {set:?}"));
        let (model, kept) = self.model.claim(lease.task.0, &plain, service, status, self.now);
        let (word, accepted) = match set {
            Claim::Accepted(accepted) => {
                let facts = accepted.facts.clone();
                let (epoch, replaced) = (facts.lease.epoch.0, facts.replaced.map(stands));
                let word = format!("accepted {epoch} of {} replaces {replaced:?} {}", facts.attempts, late(facts.late));
                (word, Some(accepted))
            }
            Claim::Superseded { lease, by } => {
                (format!("{} superseded by {:?}", lease.epoch.0, Some(stands(by))), None)
            }
            Claim::Stale => ("stale".into(), None),
            Claim::Unknown => ("unknown".into(), None),
            Claim::WrongService { service } => (format!("wrong service, not {}", service.0), None),
        };
        same("claim", word, model)?;
        self.accepted.extend(accepted.zip(kept));
        Ok(())
    }

    fn answer(&mut self, a: u8, b: u8, c: u8, d: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        let name = format!("w{}", c % 5);
        let (reply, plain, service) = Self::reply(lease, b, &name);
        let why = format!("why{}", c >> 3);
        let began = d >= 128;
        let word = match d % 6 {
            0 => NoResult::Unusable(message(&why)),
            1 => NoResult::WorkerLost { began, why: message(&why) },
            2 => NoResult::TimeLimit(message(&why)),
            3 => NoResult::HandedBack,
            4 if d.is_multiple_of(5) => NoResult::Undeliverable,
            _ => NoResult::Cause(message(&why)),
        };
        let how = ending(word.ending());
        let set = self.set.answered(reply, word, self.at());
        self.note(format!("answered {reply:?} {how} {why}: {set:?}"));
        same("answered", answered(&set), self.model.answered(lease.task.0, &plain, service, how, began, &why, self.now))
    }

    fn sweep(&mut self, a: u8, b: u8) -> Check {
        self.now += i64::from(a % 3) * 13;
        let max = if b.is_multiple_of(3) { 1 } else { 100 };
        let set = self.set.sweep(self.at(), max);
        self.note(format!("sweep {set:?}"));
        let (forgotten, taken) = self.model.sweep(self.now, max);
        same("forgotten", set.forgotten.iter().map(|lease| lease.task.0).collect(), forgotten)?;
        same("more", set.more, taken.len() == max)?;
        let (dead, requeued): (Vec<_>, Vec<_>) = taken.into_iter().partition(|(taken, _)| taken.dead.is_some());
        for (set, model) in [(set.dead, dead), (set.requeued, requeued)] {
            same("number taken", set.len(), model.len())?;
            for (set, (model, plain)) in set.into_iter().zip(model) {
                let Taken { lease, ending: how, began, charged, ref dead, ref retry, .. } = set;
                let dead = what(dead.as_ref());
                let (task, epoch, ending) = (lease.task.0, lease.epoch.0, ending(how));
                same("taken", naive::Taken { task, epoch, ending, began, charged, dead }, model)?;
                compare_retry(retry, &plain)?;
                self.queue.push((set.retry, plain));
            }
        }
        if self.queue.len() > 40 {
            self.queue.drain(..20);
        }
        Ok(())
    }

    fn publish(&mut self, a: u8, b: u8) -> Check {
        if self.accepted.is_empty() {
            return Ok(());
        }
        let (set, model) = self.accepted.swap_remove(usize::from(a) % self.accepted.len());
        self.note(format!("published {} {}", b < 80, set.facts.lease));
        if b < 80 {
            return Ok(());
        }
        let task = model.task;
        let taken_back = self.set.take_back(set, message("disk full"), self.at());
        let word = match &taken_back {
            Ok(TakenBack::Stands(standing)) => format!("stands {:?}", stands(*standing)),
            Ok(TakenBack::Kept(standing)) => format!("kept {:?}", stands(*standing)),
            Ok(TakenBack::Requeued(_)) => "requeued".into(),
            Ok(TakenBack::DueAtOnce(_)) => "due at once".into(),
            Ok(TakenBack::AlreadyOpen) => "already open".into(),
            Ok(TakenBack::LaterRun) => "later run".into(),
            Err(other) => refusal(other).into(),
        };
        same("taken back", word, self.model.take_back(model, "disk full", self.now))?;
        if let (Ok(TakenBack::Requeued(retry)), Some(plain)) = (taken_back, self.model.find(task)) {
            compare_retry(&retry, plain)?;
            self.queue.push((retry, plain.clone()));
        }
        Ok(())
    }

    fn undo(&mut self, a: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        let before = self.model.find(lease.task.0).cloned();
        let set = self.set.undo(lease, self.at());
        self.note(format!("undo {lease}: {set:?}"));
        let model = self.model.undo(lease.task.0, lease.run.0, lease.epoch.0, self.now);
        same("undone", set.as_ref().map(|undone| (undone.retry.is_some(), undone.finished)), model)?;
        if let (Some(retry), Some(mut plain)) = (set.and_then(|undone| undone.retry), before) {
            plain.attempts -= 1;
            compare_retry(&retry, &plain)?;
            self.queue.push((retry, plain));
        }
        Ok(())
    }

    fn settle(&mut self, a: u8, b: u8, c: u8) -> Check {
        let Some(lease) = self.pick(a) else { return Ok(()) };
        let status = Status::ALL[usize::from(c) % 5];
        let other = Epoch(lease.epoch.0.saturating_sub(u64::from(c % 3)));
        let by_worker = |epoch| Standing { epoch, status, origin: Origin::Worker };
        let stand_in = |origin| Standing { epoch: lease.epoch, status: Status::Fatal, origin };
        let charged = u32::from(c % 4);
        let (settlement, said) = match b % 10 {
            0 | 1 => (Settlement::Stands(by_worker(lease.epoch)), Said::Stands(stands(by_worker(lease.epoch)))),
            2 => (Settlement::Superseded { by: by_worker(other) }, Said::Superseded(stands(by_worker(other)))),
            3 => (Settlement::Stale, Said::Stale),
            4 => (Settlement::Cancelled, Said::Cancelled),
            5 => (Settlement::Unknown, Said::Unknown),
            6 | 7 => (Settlement::Requeued { charged }, Said::Requeued(charged)),
            8 => {
                let origin = [Origin::ReaperStandIn, Origin::LastAttemptStandIn][usize::from(c % 2)];
                (Settlement::DeadLettered(stand_in(origin)), Said::Dead(stands(stand_in(origin))))
            }
            _ => (Settlement::Returned, Said::Returned),
        };
        let set = match self.set.settle(lease, &settlement, self.at()) {
            Settled::Landed(how) => format!("landed {}", late(how)),
            Settled::Followed => "followed".into(),
            Settled::Unchanged => "unchanged".into(),
        };
        self.note(format!("settle {lease} {settlement:?}: {set}"));
        same("settled", set, self.model.settle(lease.task.0, lease.run.0, lease.epoch.0, &said, self.now))
    }

    /// Removal, and retries that are refused for good.
    fn rare(&mut self, a: u8, b: u8) -> Check {
        match b % 4 {
            0 => {
                let task = i64::from(a % 7);
                self.note(format!("remove {task}"));
                same("removed", self.set.remove(TaskId(task)), self.model.remove(task))
            }
            1 if !self.queue.is_empty() => {
                let (retry, plain) = self.queue.swap_remove(usize::from(a) % self.queue.len());
                self.note(format!("abandon {:?}", retry.after()));
                same("abandoned", self.set.abandon(&retry), self.model.abandon(&plain))
            }
            _ => Ok(()),
        }
    }

    fn compare(&self) -> Check {
        let (set, model) = (self.set.counts(), &self.model);
        same("in flight", set.in_flight, model.in_flight())?;
        same("answered", set.answered, model.count_answered())?;
        same("held", set.held, model.held())?;
        same("receipts", set.receipts, model.receipts.len())?;
        same("superseded", set.superseded, model.superseded)?;
        same("stale", set.stale, model.stale)?;
        same("unknown", set.unknown, model.unknown)?;
        same("undone", set.undone, model.undone)?;
        same("saturated", self.set.is_saturated(), model.in_flight() >= model.max_in_flight)?;
        for service in [1, 2] {
            let of_service = (self.set.in_flight_of(ServiceId(service)), model.in_flight_of(service));
            same("in flight of a service", of_service.0, of_service.1)?;
        }
        let clocks = model.tasks.iter().filter(|t| t.in_flight && t.lease.deadline != naive::Deadline::None).count();
        same("index", self.set.indexed(), (clocks, model.held()))?;
        same("waiting", self.set.waiting().iter().map(|retry| retry.task.0).collect(), model.waiting())?;
        for task in 0..7 {
            same("state", self.set.state_of(TaskId(task)), Self::state(model.find(task)))?;
        }
        for lease in self.leases.iter().rev().take(4) {
            let (task, run, epoch) = (lease.task.0, lease.run.0, lease.epoch.0);
            same("lease state", lease_state(self.set.lease_state(*lease)), model.lease_state(task, run, epoch))?;
        }
        Ok(())
    }

    fn state(task: Option<&naive::Task>) -> SlotState {
        match task {
            None => SlotState::Absent,
            Some(task) if task.in_flight && task.lease.answered => SlotState::Answered,
            Some(task) if task.in_flight => SlotState::InFlight,
            Some(task) => match task.stands() {
                None => SlotState::Requeued,
                Some(Stands { by: By::Reaper, .. }) => SlotState::Dead,
                Some(Stands { by: By::LastAttempt, .. }) => SlotState::StandIn,
                Some(Stands { status: Status::Fatal | Status::Invalid, .. }) => SlotState::Failure,
                Some(_) => SlotState::Usable,
            },
        }
    }
}
