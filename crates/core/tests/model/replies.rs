//! The rules of replies, expiry and the store's word, as plainly as they can be written.

use super::naive::{Accepted, By, Deadline, Naive, Named, Retry, Said, Stands, Taken, Task, Word};
use dispatcher_core::report::Status;

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
