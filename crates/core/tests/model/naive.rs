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

    pub(crate) fn take(&mut self, id: i64) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.id == id)?;
        Some(self.tasks.remove(at))
    }

    /// Puts a task back that was held or in flight before.
    pub(crate) fn put(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// Holds a task that was not held before, where there is a window and room (X4).
    pub(crate) fn hold(&mut self, mut task: Task, now: i64) {
        if self.window > 0 && self.held() < self.max_held {
            task.in_flight = false;
            task.until = now + self.window;
            task.told = false;
            self.tasks.push(task);
        }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
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
