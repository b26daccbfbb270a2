//! The rules as plainly as they can be written: one list of tasks, searched from end to end, nothing kept twice.

use dispatcher_core::report::Status;

/// Who filed a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Worker,
    Reaper,
    LastAttempt,
}

/// A result that was accepted: attempt, status, who filed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stands {
    pub(crate) epoch: u64,
    pub(crate) status: Status,
    pub(crate) by: By,
}

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) service: i64,
    pub(crate) budget: u32,
    pub(crate) timeout: i64,
    pub(crate) at_begun: bool,
    pub(crate) cut_off: i64,
    pub(crate) legacy: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) run: u32,
    pub(crate) epoch: u64,
    pub(crate) worker: String,
    pub(crate) legacy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    None,
    At(i64),
    AtOnce,
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// Tells leases apart, for their receipts.
    pub(crate) serial: u64,
    pub(crate) deadline: Deadline,
    pub(crate) begun: bool,
    pub(crate) answered: bool,
    pub(crate) ended: Option<&'static str>,
    /// Whether it may still be undone, and what returns then.
    pub(crate) fresh: bool,
    pub(crate) replaced: Option<Box<Task>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: i64,
    pub(crate) run: u32,
    /// The first attempt of the run, where the set numbers runs itself.
    pub(crate) first: u64,
    pub(crate) newest: u64,
    pub(crate) attempts: u32,
    pub(crate) charged: u32,
    pub(crate) freed: u32,
    pub(crate) terms: Terms,
    pub(crate) cause: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) workers: Vec<Attempt>,
    pub(crate) results: Vec<Stands>,
    pub(crate) in_flight: bool,
    pub(crate) lease: Lease,
    /// Held only: the end of the window; whether a retry waits under what was accepted; a cause told meanwhile.
    pub(crate) until: i64,
    pub(crate) retry_waits: bool,
    pub(crate) told: bool,
}

/// A queued retry: the task as it was when its attempt ended.
pub(crate) type Retry = Task;

#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) task: i64,
    pub(crate) run: u32,
    pub(crate) result: Stands,
    pub(crate) before: Box<Task>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) task: i64,
    pub(crate) epoch: u64,
    pub(crate) ending: &'static str,
    pub(crate) began: bool,
    pub(crate) charged: bool,
    pub(crate) dead: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) attempts: u32,
    pub(crate) retries: u32,
    pub(crate) limit: i64,
    pub(crate) deadline: Option<i64>,
    pub(crate) cause: Option<String>,
}

/// The answer to anything, in words.
pub(crate) type Word = String;

pub(crate) enum Named<'a> {
    Token(u32, u64),
    Name(&'a str),
}

pub(crate) struct Naive {
    pub(crate) tasks: Vec<Task>,
    /// The lease serials of open receipts; 0 for receipts of held tasks.
    pub(crate) receipts: Vec<u64>,
    pub(crate) max_in_flight: usize,
    pub(crate) hard_limit: usize,
    pub(crate) window: i64,
    pub(crate) max_held: usize,
    pub(crate) superseded: u64,
    pub(crate) stale: u64,
    pub(crate) unknown: u64,
    pub(crate) undone: u64,
    serial: u64,
}

pub(crate) struct Ask {
    pub(crate) task: i64,
    pub(crate) run: u32,
    pub(crate) epoch: u64,
    pub(crate) first: Option<u64>,
    pub(crate) worker: Option<String>,
    pub(crate) terms: Terms,
    pub(crate) retries: u32,
    pub(crate) freed: u32,
    pub(crate) cause: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) adopted: bool,
    pub(crate) clock: Option<i64>,
}

impl Task {
    pub(crate) fn stands(&self) -> Option<Stands> {
        self.results.last().copied()
    }

    pub(crate) fn waits_for_retry(&self) -> bool {
        !self.in_flight && self.results.is_empty()
    }
}

/// C5 and around: does a worker's result take the place of what stands?
fn wins(epoch: u64, status: Status, stands: Option<Stands>) -> bool {
    let good = |status| matches!(status, Status::NoProblem | Status::Warning | Status::Error);
    match stands {
        None => true,
        Some(Stands { by: By::Reaper, .. }) => true,
        Some(Stands { by: By::LastAttempt, .. }) => good(status),
        Some(stood) if good(status) && !good(stood.status) => true,
        Some(stood) if !good(status) && good(stood.status) => false,
        Some(stood) => epoch > stood.epoch,
    }
}

fn usable(status: Status) -> bool {
    status != Status::Fatal && status != Status::Invalid
}

impl Naive {
    pub(crate) fn new(max_in_flight: usize, hard_limit: usize, window: i64, max_held: usize) -> Self {
        Self {
            tasks: Vec::new(),
            receipts: Vec::new(),
            max_in_flight,
            hard_limit,
            window,
            max_held,
            superseded: 0,
            stale: 0,
            unknown: 0,
            undone: 0,
            serial: 0,
        }
    }

    pub(crate) fn find(&self, id: i64) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.iter().filter(|task| task.in_flight).count()
    }

    pub(crate) fn in_flight_of(&self, service: i64) -> usize {
        self.tasks.iter().filter(|task| task.in_flight && task.terms.service == service).count()
    }

    pub(crate) fn count_answered(&self) -> usize {
        self.tasks.iter().filter(|task| task.in_flight && task.lease.answered).count()
    }

    pub(crate) fn held(&self) -> usize {
        self.tasks.iter().filter(|task| !task.in_flight).count()
    }

    pub(crate) fn waiting(&self) -> Vec<i64> {
        let mut ids: Vec<_> = self.tasks.iter().filter(|task| task.waits_for_retry()).map(|task| task.id).collect();
        ids.sort_unstable();
        ids
    }

    fn take(&mut self, id: i64) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.id == id)?;
        Some(self.tasks.remove(at))
    }

    /// Puts a task back that was held or in flight before.
    fn put(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// Holds a task that was not held before, where there is a window and room (X4).
    fn hold(&mut self, mut task: Task, now: i64) {
        if self.window > 0 && self.held() < self.max_held {
            task.in_flight = false;
            task.until = now + self.window;
            task.told = false;
            self.tasks.push(task);
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn lease(&mut self, ask: Ask, now: i64) -> Result<Leased, Word> {
        if ask.task < 1 {
            return Err("untracked".into());
        }
        let known = self.find(ask.task).cloned();
        if let Some(task) = &known {
            if ask.run < task.run || ask.first.is_some_and(|first| first < task.first) {
                return Err("older run".into());
            }
            if ask.run == task.run {
                if task.stands().is_some_and(|stands| stands.by != By::Reaper) {
                    return Err("finished".into());
                }
                if ask.epoch < task.newest || (ask.epoch == task.newest && !task.in_flight) {
                    return Err("older claim".into());
                }
            }
            if ask.terms.legacy && !ask.adopted {
                let mut earlier = task.workers.iter().filter(|a| a.run < ask.run && a.legacy);
                if earlier.any(|a| Some(&a.worker) == ask.worker.as_ref()) {
                    return Err("worked earlier".into());
                }
            }
        }
        if !known.as_ref().is_some_and(|task| task.in_flight) {
            if ask.adopted && self.in_flight() >= self.hard_limit {
                return Err("hard limit".into());
            }
            if !ask.adopted && self.in_flight() >= self.max_in_flight {
                return Err("saturated".into());
            }
        }
        let task = self.leased(&ask, known, now);
        let deadline = match task.lease.deadline {
            Deadline::At(at) => Some(at),
            Deadline::None | Deadline::AtOnce => None,
        };
        let limit = i64::from(ask.retries + 1) * ask.terms.timeout;
        let leased =
            Leased { attempts: task.attempts, retries: ask.retries, limit, deadline, cause: task.cause.clone() };
        self.take(ask.task);
        self.put(task);
        Ok(leased)
    }

    fn leased(&mut self, ask: &Ask, known: Option<Task>, now: i64) -> Task {
        let span = i64::from(ask.retries + 1) * ask.terms.timeout + ask.terms.cut_off;
        let lease = Lease {
            serial: self.next_serial(),
            deadline: ask.clock.map_or(Deadline::None, |at| Deadline::At((at + span).min(now + span))),
            begun: ask.clock.is_some(),
            answered: false,
            ended: None,
            fresh: true,
            replaced: None,
        };
        let mut task = Task {
            id: ask.task,
            run: ask.run,
            first: ask.first.unwrap_or(0),
            newest: ask.epoch,
            attempts: ask.retries + ask.freed + 1,
            charged: ask.retries,
            freed: ask.freed,
            terms: ask.terms.clone(),
            cause: ask.cause.clone(),
            reason: ask.reason.clone(),
            workers: Vec::new(),
            results: Vec::new(),
            in_flight: true,
            lease,
            until: 0,
            retry_waits: false,
            told: false,
        };
        if let Some(mut before) = known {
            let again = before.run == ask.run && before.newest == ask.epoch;
            task.workers.clone_from(&before.workers);
            if before.run == ask.run {
                task.first = before.first;
                task.attempts = task.attempts.max(before.attempts + u32::from(!again));
                task.freed = task.freed.max(before.freed);
                // L7: told while it waited, else carried, else what was known.
                if before.told && !before.in_flight {
                    task.cause.clone_from(&before.cause);
                }
                task.cause = task.cause.or_else(|| before.cause.clone());
                task.reason = task.reason.or_else(|| before.reason.clone());
            }
            if again {
                task.lease.fresh = before.lease.fresh;
                task.lease.replaced = before.lease.replaced.take();
            } else {
                before.lease.fresh = false;
                before.lease.replaced = None;
                task.lease.replaced = Some(Box::new(before));
            }
        }
        if let Some(worker) = &ask.worker {
            task.workers.retain(|a| (a.run, a.epoch) != (ask.run, ask.epoch));
            if task.workers.len() == 64 {
                task.workers.remove(0);
            }
            let (run, epoch, legacy) = (ask.run, ask.epoch, ask.terms.legacy);
            task.workers.push(Attempt { run, epoch, worker: worker.clone(), legacy });
        }
        task
    }

    pub(crate) fn begun(&mut self, id: i64, run: u32, epoch: u64, now: i64) -> bool {
        let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) else { return false };
        if !task.in_flight || (task.run, task.newest) != (run, epoch) || task.lease.deadline != Deadline::None {
            return false;
        }
        let span = i64::from(task.charged + 1) * task.terms.timeout + task.terms.cut_off;
        task.lease.deadline = Deadline::At(now + span);
        task.lease.begun = true;
        task.lease.fresh = false;
        task.lease.replaced = None;
        true
    }

    /// `Some((goes back to a queue as a retry, was finished meanwhile))`.
    pub(crate) fn undo(&mut self, id: i64, run: u32, epoch: u64, now: i64) -> Option<(bool, bool)> {
        let task = self.find(id)?;
        let newest = (task.run, task.newest) == (run, epoch);
        let on_a_lease = task.in_flight || !task.retry_waits;
        if !newest || !on_a_lease || !task.lease.fresh {
            return None;
        }
        self.undone += 1;
        let mut task = self.take(id)?;
        let before = task.lease.replaced.take();
        let finished = !task.results.is_empty();
        let was_retry = task.attempts > 1;
        match before {
            None if !finished => {}
            None => {
                task.attempts -= 1;
                task.workers.retain(|a| a.epoch != epoch);
                task.retry_waits = true;
                self.put(task);
            }
            Some(before) if finished => {
                let restored = Task {
                    results: task.results,
                    in_flight: false,
                    until: task.until,
                    told: task.told,
                    retry_waits: !before.in_flight && before.retry_waits,
                    ..*before
                };
                self.put(restored);
            }
            Some(before) if before.in_flight => self.put(*before),
            Some(before) => {
                let until = before.until;
                let told = before.told;
                self.hold(*before, now);
                if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
                    task.until = until;
                    task.told = told;
                }
            }
        }
        Some((was_retry && !finished, finished))
    }

    /// C11, C6, C7, L14.
    fn attempt_of(task: &Task, by: &Named<'_>) -> Result<u64, &'static str> {
        match *by {
            Named::Token(run, epoch) => {
                if epoch < task.first || run < task.run {
                    Err("stale")
                } else if run > task.run || epoch > task.newest {
                    Err("unknown")
                } else {
                    Ok(epoch)
                }
            }
            Named::Name(name) => match task.workers.iter().rfind(|a| a.worker == name) {
                Some(attempt) if attempt.run < task.run => Err("stale"),
                Some(attempt) => Ok(attempt.epoch),
                None => Ok(task.newest),
            },
        }
    }

    pub(crate) fn receipt(&mut self, id: i64, by: &Named<'_>, service: Option<i64>) -> Option<u64> {
        let task = self.find(id)?;
        if service.is_some_and(|service| service != task.terms.service) {
            return None;
        }
        Self::attempt_of(task, by).ok()?;
        let serial = if task.in_flight { task.lease.serial } else { 0 };
        self.receipts.push(serial);
        Some(serial)
    }

    pub(crate) fn release(&mut self, serial: u64) {
        if let Some(at) = self.receipts.iter().position(|open| *open == serial) {
            self.receipts.remove(at);
        }
    }

    pub(crate) fn lease_state(&self, id: i64, run: u32, epoch: u64) -> Word {
        let Some(task) = self.find(id) else { return "unknown".into() };
        match Self::attempt_of(task, &Named::Token(run, epoch)) {
            Err(word) => word.into(),
            Ok(_) if !task.in_flight => format!("held {:?}", task.stands()),
            Ok(epoch) if epoch < task.newest => "older".into(),
            Ok(_) => format!("in flight {} {}", task.lease.begun, task.lease.answered),
        }
    }

    fn how_late(task: &Task, epoch: u64) -> &'static str {
        match task.stands() {
            _ if task.in_flight && epoch < task.newest => "older attempt",
            _ if task.in_flight => "on time",
            None => "after requeue",
            Some(Stands { by: By::Reaper, .. }) => "after dead letter",
            Some(stood) if epoch > stood.epoch => "newer attempt",
            Some(_) => "replaces failure",
        }
    }

    /// A result stands from now on: C1, C2, C3, C4, C9.
    fn land(&mut self, mut task: Task, result: Stands, now: i64) {
        let on_time = Self::how_late(&task, result.epoch) == "on time";
        if on_time && (usable(result.status) || task.attempts <= 1) {
            return;
        }
        if task.results.len() == 16 {
            task.results.remove(0);
        }
        task.results.push(result);
        if task.in_flight {
            if on_time {
                task.lease.fresh = false;
                task.lease.replaced = None;
            }
            task.retry_waits = false;
            self.hold(task, now);
        } else {
            task.until = now + self.window;
            task.told = false;
            self.put(task);
        }
    }

    pub(crate) fn claim(
        &mut self,
        id: i64,
        by: &Named<'_>,
        service: Option<i64>,
        status: Status,
        now: i64,
    ) -> (Word, Option<Accepted>) {
        let Some(task) = self.find(id).cloned() else {
            self.unknown += 1;
            return ("unknown".into(), None);
        };
        if service.is_some_and(|service| service != task.terms.service) {
            return (format!("wrong service, not {}", task.terms.service), None);
        }
        let epoch = match Self::attempt_of(&task, by) {
            Ok(epoch) => epoch,
            Err(word) => {
                *if word == "stale" { &mut self.stale } else { &mut self.unknown } += 1;
                return (word.into(), None);
            }
        };
        let stood = task.stands();
        if !wins(epoch, status, stood) {
            self.superseded += 1;
            return (format!("{epoch} superseded by {stood:?}"), None);
        }
        let result = Stands { epoch, status, by: By::Worker };
        let late = Self::how_late(&task, epoch);
        let word = format!("accepted {epoch} of {} replaces {stood:?} {late}", task.attempts);
        self.take(id);
        self.land(task.clone(), result, now);
        (word, Some(Accepted { task: id, run: task.run, result, before: Box::new(task) }))
    }

    #[expect(clippy::too_many_arguments, reason = "one argument for each thing that the rules speak of")]
    pub(crate) fn answered(
        &mut self,
        id: i64,
        by: &Named<'_>,
        service: Option<i64>,
        ending: &'static str,
        began: bool,
        why: &str,
        now: i64,
    ) -> Word {
        let by_token = matches!(by, Named::Token(..));
        let Some(mut task) = self.find(id).cloned() else {
            self.unknown += 1;
            return "dropped unknown".into();
        };
        if service.is_some_and(|service| service != task.terms.service) {
            return "dropped wrong service".into();
        }
        let epoch = match Self::attempt_of(&task, by) {
            Ok(epoch) => epoch,
            Err(word) => {
                *if word == "stale" { &mut self.stale } else { &mut self.unknown } += 1;
                return format!("dropped {word}");
            }
        };
        let is_cause = ending == "cause";
        if !task.in_flight {
            return match task.stands() {
                _ if !is_cause => "dropped not in flight".into(),
                Some(Stands { by: By::Reaper, .. }) => "dropped dead".into(),
                Some(_) => "dropped finished".into(),
                None if epoch != task.newest => "dropped older".into(),
                None => {
                    let waits = self.tasks.iter_mut().find(|task| task.id == id).expect("found above");
                    waits.cause = Some(why.into());
                    waits.told = true;
                    "rides along".into()
                }
            };
        }
        if epoch != task.newest {
            return "dropped older".into();
        }
        self.take(id);
        let budget = task.terms.budget.max(1);
        if is_cause && task.charged + 1 >= budget {
            task.results = vec![Stands { epoch, status: Status::Fatal, by: By::LastAttempt }];
            task.cause = Some(why.into());
            task.charged += 1;
            task.lease.fresh = false;
            task.lease.replaced = None;
            task.retry_waits = false;
            let attempts = task.attempts;
            self.hold(task, now);
            return format!("stand-in {epoch} of {attempts}");
        }
        if task.lease.ended.is_some() && !is_cause {
            self.put(task);
            return "repeated".into();
        }
        match ending {
            "cause" => task.cause = Some(why.into()),
            "unusable" | "lost" | "limit" => task.reason = Some(why.into()),
            _ => {}
        }
        match ending {
            "cause" | "unusable" | "limit" => task.lease.begun = true,
            "lost" => task.lease.begun = began,
            _ => {}
        }
        if ending != "lost" && ending != "limit" {
            task.lease.answered = true;
        }
        task.lease.ended = Some(ending);
        task.lease.fresh = false;
        task.lease.replaced = None;
        let waits = ending == "unusable" && !by_token && task.lease.deadline != Deadline::None;
        if !waits {
            task.lease.deadline = Deadline::AtOnce;
        }
        self.put(task);
        if waits { "waits".into() } else { "due at once".into() }
    }

    /// X8: forgets first, then takes. The order is that of the deadlines.
    pub(crate) fn sweep(&mut self, now: i64, max: usize) -> (Vec<i64>, Vec<(Taken, Retry)>) {
        let mut over: Vec<_> =
            self.tasks.iter().filter(|t| !t.in_flight && t.until <= now).map(|t| (t.until, t.id)).collect();
        over.sort_unstable();
        self.tasks.retain(|task| task.in_flight || task.until > now);
        let mut due: Vec<_> = Vec::new();
        for task in self.tasks.iter().filter(|task| task.in_flight) {
            let held_off = self.receipts.contains(&task.lease.serial);
            match task.lease.deadline {
                Deadline::AtOnce if !held_off => due.push((i64::MIN, task.id)),
                Deadline::At(at) if now > at && !held_off => due.push((at, task.id)),
                _ => {}
            }
        }
        due.sort_unstable();
        due.truncate(max);
        let taken = due.into_iter().map(|(_, id)| self.expire(id, now)).collect();
        (over.into_iter().map(|(_, id)| id).collect(), taken)
    }

    fn expire(&mut self, id: i64, now: i64) -> (Taken, Retry) {
        let mut task = self.take(id).expect("due");
        let (began, epoch) = (task.lease.begun, task.newest);
        let ending = match task.lease.ended {
            Some(ending) => ending,
            None if task.terms.at_begun => {
                task.reason = Some("time_limit".into());
                "limit"
            }
            None => "expired",
        };
        // A2
        let free = match ending {
            "undeliverable" | "handed back" => true,
            "lost" | "expired" => !began,
            _ => false,
        };
        let charged = !free || task.freed >= 10;
        if charged {
            task.charged += 1;
        } else {
            task.freed += 1;
        }
        let spent = charged && task.charged >= task.terms.budget.max(1);
        let words = task.cause.clone().or_else(|| task.reason.clone());
        let dead = spent.then(|| words.unwrap_or_else(|| "never_completed_with_retries".into()));
        if spent {
            task.results = vec![Stands { epoch, status: Status::Fatal, by: By::Reaper }];
        }
        task.retry_waits = true;
        let retry = task.clone();
        self.hold(task, now);
        (Taken { task: id, epoch, ending, began, charged, dead }, retry)
    }

    pub(crate) fn take_back(&mut self, accepted: Accepted, why: &str, now: i64) -> Word {
        let Some(mut task) = self.find(accepted.task).cloned() else {
            if let Some(stands) = accepted.before.stands() {
                return format!("stands {stands:?}");
            }
            return self.open_again(*accepted.before, &accepted.result, why, now);
        };
        if (task.run, task.first) != (accepted.run, accepted.before.first) {
            return "later run".into();
        }
        let stood = task.stands();
        if stood.is_none() {
            return "already open".into();
        }
        if let Some(at) = task.results.iter().position(|result| *result == accepted.result) {
            task.results.remove(at);
        }
        self.take(task.id);
        let stands = task.stands();
        match stands {
            None => self.open_again(task, &accepted.result, why, now),
            Some(stands) => {
                self.put(task);
                if Some(stands) == stood { format!("kept {stands:?}") } else { format!("stands {stands:?}") }
            }
        }
    }

    /// C8: a held one gets its retry back, one that had left flight is due at once.
    fn open_again(&mut self, mut task: Task, result: &Stands, why: &str, now: i64) -> Word {
        if !task.in_flight && task.retry_waits {
            task.told = false;
            let room = self.window > 0 && self.held() < self.max_held;
            task.until = now + self.window;
            if room {
                self.put(task);
            }
            return "requeued".into();
        }
        if self.in_flight() >= self.hard_limit {
            return "hard limit".into();
        }
        if result.epoch == task.newest {
            task.lease.ended = Some("unusable");
            task.lease.answered = true;
            task.lease.begun = true;
        }
        task.lease.serial = self.next_serial();
        task.lease.deadline = Deadline::AtOnce;
        task.lease.fresh = false;
        task.lease.replaced = None;
        task.reason = Some(why.into());
        task.in_flight = true;
        self.put(task);
        "due at once".into()
    }

    pub(crate) fn remove(&mut self, id: i64) -> bool {
        let there = self.find(id).is_some_and(|task| task.in_flight);
        if there {
            self.take(id);
        }
        there
    }

    pub(crate) fn abandon(&mut self, retry: &Retry) -> bool {
        let waits = self
            .find(retry.id)
            .is_some_and(|task| task.waits_for_retry() && (task.run, task.first) == (retry.run, retry.first));
        if waits {
            self.take(retry.id);
        }
        waits
    }

    /// What the store said of a lease.
    pub(crate) fn settle(&mut self, id: i64, run: u32, epoch: u64, said: &Said, now: i64) -> Word {
        let Some(task) = self.find(id).cloned() else { return "unchanged".into() };
        if task.run != run {
            return "unchanged".into();
        }
        let newest = task.newest == epoch;
        match *said {
            Said::Stands(result) if task.stands() == Some(result) => "unchanged".into(),
            Said::Stands(result) => {
                let late = Self::how_late(&task, result.epoch);
                self.take(id);
                self.land(task, result, now);
                format!("landed {late}")
            }
            Said::Superseded(by) if task.stands() == Some(by) => "unchanged".into(),
            Said::Superseded(by) => {
                self.take(id);
                if !(task.in_flight && newest && usable(by.status)) {
                    self.follow(task, vec![by], false, now);
                }
                "followed".into()
            }
            Said::Stale | Said::Cancelled => {
                self.take(id);
                "followed".into()
            }
            Said::Unknown if newest => {
                self.take(id);
                "followed".into()
            }
            Said::Requeued(charged) if newest => {
                if task.waits_for_retry() && task.charged == charged {
                    return "unchanged".into();
                }
                let mut task = self.take(id).expect("found above");
                if task.in_flight && charged <= task.charged {
                    task.freed += 1;
                }
                task.charged = charged;
                self.follow(task, Vec::new(), true, now);
                "followed".into()
            }
            Said::Dead(stand_in) if newest => {
                if task.stands() == Some(stand_in) {
                    return "unchanged".into();
                }
                self.take(id);
                self.follow(task, vec![stand_in], false, now);
                "followed".into()
            }
            Said::Returned => {
                let undone = self.undo(id, run, epoch, now).is_some();
                if undone {
                    // Counted as undone only when the set was asked to undo.
                    self.undone -= 1;
                }
                if undone { "followed".into() } else { "unchanged".into() }
            }
            Said::Unknown | Said::Requeued(_) | Said::Dead(_) => "unchanged".into(),
        }
    }

    /// Holds what the store says, in the window that runs or in a new one.
    fn follow(&mut self, mut task: Task, results: Vec<Stands>, requeued: bool, now: i64) {
        task.results = results;
        if task.in_flight {
            task.retry_waits = requeued;
            self.hold(task, now);
        } else {
            task.retry_waits |= requeued;
            task.told &= requeued;
            self.put(task);
        }
    }
}

/// What the store says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    Stands(Stands),
    Superseded(Stands),
    Stale,
    Cancelled,
    Unknown,
    Requeued(u32),
    Dead(Stands),
    Returned,
}
