//! The desk at which one record is decided: the facts on it, and each change to them.

use super::{
    AT_ONCE, Answer, AttemptFacts, Decision, Move, Papers, PartRef, Policy, Record, Tally, TaskFacts, TaskState,
    own_reason,
};
use crate::claim::{Offer, Verdict, decide};
use crate::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use crate::report::{Ending, Message, Origin, Severity, Status};
use crate::retry::{FREE_ENDINGS, delay};
use crate::time::{SpanMs, TimeMs};

/// The facts of one decision while it is made.
pub(super) struct Desk<'r> {
    lease: LeaseId,
    policy: Policy,
    now: TimeMs,
    out: Decision<'r>,
}

/// Where a lease stands beside the row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A run, or a claim, that the task never had.
    Unknown,
    /// An earlier run.
    EarlierRun,
    /// An older claim of this run, or the newest one that is no longer open.
    Gone,
    /// The newest claim, and open.
    Open,
}

/// What an attempt's end costs its run's budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// Nothing, and that is counted.
    Free,
    /// One attempt.
    Charged,
    /// What it cost was settled before.
    Settled,
}

/// An attempt's end without a result, as its record tells it.
struct End<'r> {
    worker: Option<&'r WorkerKey>,
    ending: Ending,
    began: bool,
    why: &'r Message,
    papers: Papers<'r>,
    at: TimeMs,
}

impl<'r> Desk<'r> {
    pub(super) fn new(
        task: TaskFacts,
        attempt: Option<AttemptFacts>,
        lease: LeaseId,
        policy: Policy,
        now: TimeMs,
    ) -> Self {
        let out = Decision {
            task,
            task_changed: false,
            attempt,
            attempt_changed: false,
            filed: None,
            papers: None,
            published: false,
            moves: Vec::new(),
            answer: Answer::Noted,
        };
        Self { lease, policy, now, out }
    }

    /// A desk for the task's newest claim, for commands that no lease brings.
    pub(super) fn at_newest(task: TaskFacts, attempt: Option<AttemptFacts>, id: TaskId, now: TimeMs) -> Self {
        let lease = LeaseId { task: id, run: task.run, epoch: task.epoch };
        Self::new(task, attempt, lease, Policy { budget: 0, retry_delay_ms: SpanMs::ZERO }, now)
    }

    pub(super) fn finish(self, answer: Answer) -> Decision<'r> {
        Decision { answer, ..self.out }
    }

    pub(super) fn decide(&mut self, record: &'r Record) -> Answer {
        let place = self.place();
        if place == Place::Unknown {
            if record.is_an_end() {
                self.tally(Tally::UnknownMessage, 1, record.worker());
            }
            return Answer::Unknown;
        }
        match record {
            Record::HandedOut { worker, at, began, .. } => self.handed_out(place, worker, *at, *began),
            Record::Began { at, .. } => self.began(place, *at),
            Record::Result { worker, status, messages, parts, at, .. } => {
                self.result(place, worker, *status, messages, parts, *at)
            }
            Record::Ended { worker, ending, began, why, messages, parts, at, .. } => {
                let papers = Papers { reason: None, messages, parts };
                let (worker, ending, began, at) = (worker.as_ref(), *ending, *began, *at);
                self.ended(place, End { worker, ending, began, why, papers, at })
            }
            Record::InputFailed { why, retry, at, .. } => self.input_failed(place, why, *retry, *at),
            Record::Returned { .. } => self.returned(place),
            Record::Published { .. } => {
                self.out.published = true;
                Answer::Noted
            }
        }
    }

    fn place(&self) -> Place {
        let (lease, task) = (self.lease, &self.out.task);
        let never_had = lease.run > task.run || lease.run < Run::FIRST || lease.epoch > task.epoch;
        let of_another_run = self.out.attempt.as_ref().is_some_and(|a| a.run != lease.run);
        if never_had || of_another_run || lease.epoch == Epoch::NONE {
            Place::Unknown
        } else if lease.run < task.run {
            Place::EarlierRun
        } else if lease.epoch == task.epoch && task.owner.is_some() {
            Place::Open
        } else {
            Place::Gone
        }
    }

    // What each record does.

    fn handed_out(&mut self, place: Place, worker: &WorkerKey, at: TimeMs, began: bool) -> Answer {
        if self.out.attempt.is_some() {
            return Answer::Noted;
        }
        self.open(Some(worker), Some(at));
        if began {
            self.began(place, at);
        }
        match place {
            Place::Open => {}
            Place::EarlierRun => self.close(Ending::Stale, at, None),
            _ if self.out.task.state == TaskState::Cancelled => self.close(Ending::Cancelled, at, None),
            // The claim was taken away before the note of its hand-out arrived. Its result may still land.
            _ => {
                let why = own_reason("lease_gone", "the claim had been taken away when the hand-out was written");
                self.close(Ending::Expired, at, Some(why));
            }
        }
        Answer::Noted
    }

    fn began(&mut self, place: Place, at: TimeMs) -> Answer {
        let Some(attempt) = self.out.attempt.as_mut() else { return Answer::Noted };
        if attempt.began_at.is_none() && attempt.ending.is_none() {
            attempt.began_at = Some(at);
            self.out.attempt_changed = true;
            if place == Place::Open {
                let times = u64::from(self.out.task.charged) + 1;
                self.out.task.limit_until = self.out.task.timeout_ms.map(|limit| at.after(limit.times(times)));
                self.out.task_changed = true;
            }
        }
        Answer::Noted
    }

    fn result(
        &mut self,
        place: Place,
        worker: &WorkerKey,
        status: Status,
        messages: &'r [Message],
        parts: &'r [PartRef],
        at: TimeMs,
    ) -> Answer {
        if place == Place::EarlierRun {
            return self.stale(Some(worker), at);
        }
        if self.out.task.state == TaskState::Cancelled {
            return self.of_a_cancelled_task(Some(worker), at);
        }
        let offer = Offer { run: self.lease.run, epoch: self.lease.epoch, status, origin: Origin::Worker };
        match decide(self.out.task.run, self.out.task.epoch, self.out.task.standing, offer) {
            Verdict::Lands { replaces } => {
                self.open(Some(worker), None);
                self.charge();
                self.close(Ending::Accepted, at, None);
                self.leave();
                self.file(offer, TaskState::Done, Papers { reason: None, messages, parts });
                Answer::Stored { replaced: replaces, repeat: false }
            }
            Verdict::Superseded { by } if by.is_repeated_by(&offer) => {
                self.tally(Tally::Repeated, 1, Some(worker));
                Answer::Stored { replaced: None, repeat: true }
            }
            Verdict::Superseded { by } => {
                self.open(Some(worker), None);
                if self.ending() != Some(Ending::Accepted) {
                    self.charge();
                    self.close(Ending::Superseded, at, None);
                }
                self.leave();
                Answer::Superseded { by }
            }
            Verdict::Stale => self.stale(Some(worker), at),
            Verdict::Unknown => {
                self.tally(Tally::UnknownMessage, 1, Some(worker));
                Answer::Unknown
            }
        }
    }

    fn ended(&mut self, place: Place, end: End<'r>) -> Answer {
        if place == Place::EarlierRun {
            return self.stale(end.worker, end.at);
        }
        if self.out.task.state == TaskState::Cancelled {
            return self.of_a_cancelled_task(end.worker, end.at);
        }
        if end.worker.is_some() {
            self.open(end.worker, None);
        }
        let newest = self.lease.epoch == self.out.task.epoch;
        match self.out.task.state {
            TaskState::Leased if newest => {
                self.leave();
                let cost = self.end_attempt(&end);
                self.requeue_or_bury(end, cost)
            }
            TaskState::Ready if newest => self.ended_while_requeued(end),
            TaskState::Dead if newest && self.ending().is_some() => self.buried_already(end.why),
            // Something stands already, or a newer attempt is out: only this attempt's record is closed.
            _ => {
                if self.ending().is_none() {
                    self.end_attempt(&end);
                    self.keep(end.papers);
                }
                self.leave();
                Answer::Noted
            }
        }
    }

    /// The newest attempt is told to have ended, and its task waits for a retry already. A cause rides along to the retry
    /// (rule R6), an attempt of which nothing was known is closed; anything else is a repeat.
    fn ended_while_requeued(&mut self, end: End<'r>) -> Answer {
        let is_news = match self.ending() {
            None => self.out.attempt.is_some(),
            Some(told) => end.ending == Ending::RetryableCause && told != Ending::RetryableCause,
        };
        if is_news {
            let cost = self.end_attempt(&end);
            if cost == Cost::Charged {
                return self.requeue_or_bury(end, cost);
            }
            self.keep(end.papers);
        }
        Answer::Requeued { charged: self.out.task.charged, not_before: self.out.task.not_before }
    }

    /// The newest attempt is told to have ended again, and a stand-in was filed for it.
    fn buried_already(&self, why: &Message) -> Answer {
        match self.out.task.standing {
            Some(stands) if stands.epoch == self.lease.epoch => {
                let reason = self.reason_for(stands.origin, why);
                Answer::DeadLettered { origin: stands.origin, reason }
            }
            _ => Answer::Noted,
        }
    }

    fn input_failed(&mut self, place: Place, why: &'r Message, retry: bool, at: TimeMs) -> Answer {
        let of_the_newest = place != Place::EarlierRun && self.lease.epoch == self.out.task.epoch;
        match self.out.task.state {
            TaskState::Leased if place == Place::Open => {}
            TaskState::Cancelled => return self.of_a_cancelled_task(None, at),
            TaskState::Ready if of_the_newest => {
                return Answer::Requeued { charged: self.out.task.charged, not_before: self.out.task.not_before };
            }
            TaskState::Dead if of_the_newest => {
                let reason = as_fatal(why);
                return Answer::DeadLettered { origin: Origin::ReaperStandIn, reason };
            }
            _ => {
                if self.ending().is_none() {
                    self.close(Ending::Unusable, at, Some(why.clone()));
                }
                self.leave();
                return if place == Place::EarlierRun { Answer::Stale } else { Answer::Noted };
            }
        }
        self.close(Ending::Unusable, at, Some(why.clone()));
        self.leave();
        self.out.task.charged = self.out.task.charged.saturating_add(1);
        self.out.task.last_reason = Some(why.clone());
        if retry && self.has_budget() {
            return self.requeue(true);
        }
        self.bury(Origin::ReaperStandIn, as_fatal(why), Papers::default())
    }

    fn returned(&mut self, place: Place) -> Answer {
        if place != Place::Open {
            return Answer::Noted;
        }
        if self.ending().is_none() {
            self.close(Ending::Undeliverable, self.now, None);
        }
        self.leave();
        if self.out.task.state == TaskState::Leased {
            self.requeue(false);
        }
        Answer::Noted
    }

    pub(super) fn refuse(&mut self, worker: Option<&WorkerKey>, why: &Message) {
        let place = self.place();
        if place == Place::Unknown {
            return;
        }
        if worker.is_some() {
            self.open(worker, None);
        }
        if self.ending().is_none() {
            self.close(Ending::Unusable, self.now, Some(why.clone()));
        }
        if place == Place::Open && self.out.task.state == TaskState::Leased {
            self.leave();
            self.out.task.last_reason = Some(why.clone());
            self.bury(Origin::ReaperStandIn, why.clone(), Papers::default());
        }
    }

    pub(super) fn begin_run(&mut self) {
        if self.ending().is_none() {
            self.close(Ending::Stale, self.now, None);
        }
        let task = &mut self.out.task;
        *task = TaskFacts {
            state: TaskState::Ready,
            run: Run(task.run.0.saturating_add(1)),
            epoch: task.epoch,
            owner: None,
            charged: 0,
            freed: 0,
            timeout_ms: None,
            limit_until: None,
            not_before: AT_ONCE,
            standing: None,
            last_cause: None,
            last_reason: None,
        };
        self.out.task_changed = true;
    }

    pub(super) fn cancel(&mut self) {
        if !matches!(self.out.task.state, TaskState::Ready | TaskState::Leased) {
            return;
        }
        if self.ending().is_none() {
            self.close(Ending::Cancelled, self.now, None);
        }
        self.leave();
        self.out.task.state = TaskState::Cancelled;
        self.out.task.not_before = AT_ONCE;
        self.out.task_changed = true;
    }

    /// Drops a message of an earlier run: the new run feels nothing of it (rule C6). Its attempt keeps one ending.
    fn stale(&mut self, worker: Option<&WorkerKey>, at: TimeMs) -> Answer {
        self.tally(Tally::StaleMessage, 1, worker);
        self.drop_as(Ending::Stale, worker, at);
        Answer::Stale
    }

    fn of_a_cancelled_task(&mut self, worker: Option<&WorkerKey>, at: TimeMs) -> Answer {
        self.drop_as(Ending::Cancelled, worker, at);
        Answer::Cancelled
    }

    fn drop_as(&mut self, ending: Ending, worker: Option<&WorkerKey>, at: TimeMs) {
        if worker.is_some() {
            self.open(worker, None);
        }
        if self.ending().is_none() {
            self.close(ending, at, None);
        }
    }

    // Steps that they share.

    /// The attempt's ending; `None` while it is out or where there is no attempt.
    fn ending(&self) -> Option<Ending> {
        self.out.attempt.as_ref().and_then(|a| a.ending)
    }

    /// Makes the attempt's record where there is none.
    fn open(&mut self, worker: Option<&WorkerKey>, handed_at: Option<TimeMs>) {
        if self.out.attempt.is_some() {
            return;
        }
        let at_newest = self.lease.run == self.out.task.run && self.lease.epoch == self.out.task.epoch;
        self.out.attempt = Some(AttemptFacts {
            run: self.lease.run,
            epoch: self.lease.epoch,
            dispatcher: self.out.task.owner.filter(|_| at_newest),
            worker: worker.cloned(),
            handed_at,
            began_at: None,
            ended_at: None,
            ending: None,
            charged: false,
            why: None,
        });
        self.out.attempt_changed = true;
        self.tally(Tally::Dispatched, 1, None);
    }

    /// Gives the attempt its ending, or moves it from the one it had to this one (rules A1, A5).
    fn close(&mut self, ending: Ending, at: TimeMs, why: Option<Message>) {
        let Some(attempt) = self.out.attempt.as_mut() else { return };
        let before = attempt.ending.replace(ending);
        attempt.ended_at = Some(at);
        attempt.why = why;
        self.out.attempt_changed = true;
        if before != Some(ending) {
            if let Some(before) = before {
                self.tally(Tally::Ending(before), -1, None);
            }
            self.tally(Tally::Ending(ending), 1, None);
        }
    }

    /// Charges the attempt to the budget, once (rule A2).
    fn charge(&mut self) {
        let Some(attempt) = self.out.attempt.as_mut() else { return };
        if !attempt.charged {
            attempt.charged = true;
            self.out.task.charged = self.out.task.charged.saturating_add(1);
            self.out.attempt_changed = true;
            self.out.task_changed = true;
        }
    }

    /// The lease of the newest claim is no longer open.
    fn leave(&mut self) {
        if self.lease.run == self.out.task.run && self.lease.epoch == self.out.task.epoch {
            self.out.task_changed |= self.out.task.owner.is_some() || self.out.task.limit_until.is_some();
            self.out.task.owner = None;
            self.out.task.limit_until = None;
        }
    }

    /// Closes an attempt that ended without a result: charges it or not (rule A2), and remembers why (rules L7, X3).
    fn end_attempt(&mut self, end: &End<'_>) -> Cost {
        let cost = self.cost_of(end);
        match cost {
            Cost::Free => self.out.task.freed += 1,
            Cost::Charged if self.out.attempt.is_some() => self.charge(),
            Cost::Charged => self.out.task.charged = self.out.task.charged.saturating_add(1),
            Cost::Settled => {}
        }
        self.close(end.ending, end.at, Some(end.why.clone()));
        match end.ending {
            Ending::RetryableCause => self.out.task.last_cause = Some(end.why.clone()),
            // Nothing was seen of a lease that merely ran out.
            Ending::Expired => {}
            _ => self.out.task.last_reason = Some(end.why.clone()),
        }
        self.out.task_changed = true;
        cost
    }

    /// What an attempt's end costs: free are those that no worker began and orderly returns, ten times in a run; then
    /// they are charged like the others. What was charged or freed before is not counted again.
    fn cost_of(&self, end: &End<'_>) -> Cost {
        let looks_free = !end.began || matches!(end.ending, Ending::Undeliverable | Ending::HandedBack);
        match &self.out.attempt {
            Some(a) if a.charged || (a.ending.is_some() && looks_free) => Cost::Settled,
            _ if looks_free && self.out.task.freed < FREE_ENDINGS => Cost::Free,
            _ => Cost::Charged,
        }
    }

    /// Budget left: back to the queue (rules R4, X2). Spent: a stand-in (rules R5, X3).
    fn requeue_or_bury(&mut self, end: End<'r>, cost: Cost) -> Answer {
        if cost != Cost::Charged || self.has_budget() {
            self.keep(end.papers);
            return self.requeue(cost == Cost::Charged);
        }
        let origin = match end.ending {
            Ending::RetryableCause => Origin::LastAttemptStandIn,
            _ => Origin::ReaperStandIn,
        };
        let reason = self.reason_for(origin, end.why);
        self.bury(origin, reason, end.papers)
    }

    fn has_budget(&self) -> bool {
        self.out.task.charged < self.policy.budget
    }

    fn requeue(&mut self, delayed: bool) -> Answer {
        let task = &mut self.out.task;
        let delay =
            if delayed { delay(task.charged, self.policy.retry_delay_ms, self.lease.task) } else { SpanMs::ZERO };
        task.state = TaskState::Ready;
        task.not_before = if delay == SpanMs::ZERO { AT_ONCE } else { self.now.after(delay) };
        self.out.task_changed = true;
        Answer::Requeued { charged: task.charged, not_before: task.not_before }
    }

    /// The reason of a stand-in (rules R5, X3).
    fn reason_for(&self, origin: Origin, told: &Message) -> Message {
        let task = &self.out.task;
        match origin {
            Origin::LastAttemptStandIn => as_fatal(told),
            _ => task.last_cause.as_ref().or(task.last_reason.as_ref()).map_or_else(
                || own_reason("never_completed_with_retries", "every attempt that its budget allows ran out"),
                as_fatal,
            ),
        }
    }

    /// Files a stand-in where the run has no result (rule D5).
    fn bury(&mut self, origin: Origin, reason: Message, papers: Papers<'r>) -> Answer {
        let offer = Offer { run: self.lease.run, epoch: self.lease.epoch, status: Status::Fatal, origin };
        match decide(self.out.task.run, self.out.task.epoch, self.out.task.standing, offer) {
            Verdict::Lands { .. } => {
                self.file(offer, TaskState::Dead, Papers { reason: Some(reason.clone()), ..papers });
                Answer::DeadLettered { origin, reason }
            }
            _ => Answer::Noted,
        }
    }

    fn file(&mut self, offer: Offer, state: TaskState, papers: Papers<'r>) {
        self.out.task.state = state;
        self.out.task.standing = Some(offer.standing());
        self.out.task.not_before = AT_ONCE;
        self.out.task_changed = true;
        self.out.filed = Some(offer.standing());
        self.out.papers = Some(papers);
    }

    /// Keeps what was said and written by an attempt without a result. What was filed for it and stands keeps its own.
    fn keep(&mut self, papers: Papers<'r>) {
        let is_something = !papers.messages.is_empty() || !papers.parts.is_empty();
        let has_filed = self.out.task.standing.is_some_and(|s| s.epoch == self.lease.epoch);
        if is_something && self.out.attempt.is_some() && !has_filed {
            self.out.papers = Some(papers);
        }
    }

    /// Moves a counter for the attempt's own worker, or for `worker` where a message belongs to no attempt.
    fn tally(&mut self, tally: Tally, by: i64, worker: Option<&WorkerKey>) {
        let attempt = self.out.attempt.as_ref();
        let whose = worker.or_else(|| attempt.and_then(|a| a.worker.as_ref()));
        self.out.moves.push(Move {
            tally,
            by,
            dispatcher: attempt.and_then(|a| a.dispatcher),
            worker: whose.map(|w| w.name.clone()),
        });
    }
}

/// The same message with the severity of a stand-in.
fn as_fatal(message: &Message) -> Message {
    Message { severity: Severity::Fatal, ..message.clone() }
}
