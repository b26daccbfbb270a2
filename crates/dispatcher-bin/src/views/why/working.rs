//! Why a task is leased: with whom it is, since when, and until when it may go on.

use super::answer::{Answer, Facts, attempt};
use super::holds::holds;
use crate::views::words;
use dispatcher_core::time::TimeMs;
use dispatcher_store::AttemptRow;

pub(super) fn why(facts: &Facts) -> Answer {
    let task = facts.task();
    let newest = facts.story.attempts.iter().find(|attempt| attempt.epoch == task.epoch && attempt.ending.is_none());
    let handed = newest.filter(|attempt| attempt.handed_at.is_some() || attempt.began_at.is_some());
    if !facts.at_work {
        return orphaned(facts, handed);
    }
    match handed {
        None => claimed(facts),
        Some(out) if out.began_at.is_none() => handed_out(facts, out),
        Some(out) => running(facts, out),
    }
}

/// Claimed ahead of time.
fn claimed(facts: &Facts) -> Answer {
    let holds = holds(facts);
    let (name, workers) = (facts.service_name(), facts.workers_for_it().count());
    let enough = || {
        let why = format!("the workers connected for the service {name} ({workers}) have enough for now");
        (why, "it goes to the next worker that asks".to_owned())
    };
    let next = holds.first().map_or_else(|| enough().1, |(_, next)| next.clone());
    let because = if holds.is_empty() { vec![enough().0] } else { holds.into_iter().map(|(why, _)| why).collect() };
    Answer {
        headline: format!("task {} is claimed by the dispatcher and not handed out yet", facts.task().id),
        because,
        next,
    }
}

/// With a worker that has not said that work began.
fn handed_out(facts: &Facts, out: &AttemptRow) -> Answer {
    let mut because: Vec<String> =
        out.handed_at.map(|at| format!("{} went out at {}", attempt(out), facts.since(at))).into_iter().collect();
    because.push(facts.how_is(out.worker.as_ref()));
    because.extend(spent(facts));
    Answer {
        headline: format!("task {} is with worker {}, which has not begun it", facts.task().id, name(out)),
        because,
        next: match facts.lost_at(out.worker.as_ref()) {
            None => "it begins when the worker has room, or goes to another if the worker is lost; neither is charged"
                .to_owned(),
            at => format!("{}; that is not charged", given_up(facts, at)),
        },
    }
}

/// Being worked on.
fn running(facts: &Facts, out: &AttemptRow) -> Answer {
    let limit = facts.outlook.and_then(|outlook| outlook.limit_until);
    let mut because: Vec<String> =
        out.began_at.map(|at| format!("{} began at {}", attempt(out), facts.since(at))).into_iter().collect();
    let lost_at = facts.lost_at(out.worker.as_ref());
    let next = match limit {
        Some(limit) if limit < facts.now => {
            because.push(format!("its time limit passed at {}", facts.since(limit)));
            "its worker ends it and says so; where that does not come, the dispatcher gives it up".to_owned()
        }
        limit if lost_at.is_some_and(|at| limit.is_none_or(|limit| at < limit)) => given_up(facts, lost_at),
        Some(limit) => {
            let left = words::about(limit.since(facts.now));
            because.push(format!("its time limit is {} (in {left})", words::time(limit)));
            "its result is awaited until then".to_owned()
        }
        None => "its result is awaited".to_owned(),
    };
    because.push(facts.how_is(out.worker.as_ref()));
    because.extend(spent(facts));
    Answer { headline: format!("task {} is worked on by {}", facts.task().id, name(out)), because, next }
}

/// What comes of a worker that is gone.
fn given_up(facts: &Facts, at: Option<TimeMs>) -> String {
    match at.filter(|at| *at > facts.now) {
        Some(at) => {
            let left = words::about(at.since(facts.now));
            format!("it is given up at {} (in {left}, dead_after) unless its worker is back by then", words::time(at))
        }
        None => {
            "its worker was silent for longer than dead_after: it is given up when the dispatcher has waited so long"
                .to_owned()
        }
    }
}

/// Its dispatcher has gone.
fn orphaned(facts: &Facts, out: Option<&AttemptRow>) -> Answer {
    let mut because = vec!["no dispatcher is at work".to_owned()];
    let next = match out {
        None => {
            because.push("no worker had it".to_owned());
            format!("{}: it is handed out then, and nothing is charged", facts.start)
        }
        Some(out) => {
            because.push(match (out.began_at, out.handed_at) {
                (Some(at), _) => format!("{} began at {}", attempt(out), facts.since(at)),
                (None, Some(at)) => format!("{} went out at {}, and had not begun", attempt(out), facts.since(at)),
                (None, None) => format!("{} had it", attempt(out)),
            });
            format!(
                "{}: what its worker has finished is taken then; it is tried again if the worker does not come back",
                facts.start
            )
        }
    };
    Answer { headline: format!("task {} was leased when its dispatcher ended", facts.task().id), because, next }
}

fn name(out: &AttemptRow) -> &str {
    out.worker.as_ref().map_or("nobody known", |worker| &worker.name)
}

/// What the run has cost so far, where it has cost anything.
fn spent(facts: &Facts) -> Option<String> {
    let task = facts.task();
    let cause = task.last_cause.as_ref().or(task.last_reason.as_ref());
    let cause = cause.map_or(String::new(), |cause| format!("; the last cause: {}", words::message(cause)));
    (task.charged > 0).then(|| format!("its run has spent {} of {} attempts{cause}", task.charged, facts.budget()))
}
