//! Why a task is over: what stands and what it stood against, why its run was given up, or who ended it.

use super::answer::{Answer, Facts, attempt, ended, given};
use crate::views::words;
use dispatcher_core::report::{Ending, Message, Origin};
use dispatcher_store::{AttemptRow, PartRef, ResultRow, TaskState};

/// With a worker's result.
pub(super) fn done(facts: &Facts) -> Answer {
    let task = facts.task();
    let Some(stands) = task.standing else {
        return Answer {
            headline: format!("task {} is done, and nothing stands for it", task.id),
            because: vec!["its row was changed by somebody else".to_owned()],
            next: again(facts),
        };
    };
    let by = facts.story.attempts.iter().find(|attempt| attempt.epoch == stands.epoch);
    let result = facts.story.results.iter().find(|result| result.epoch == stands.epoch);
    let who = by.map_or_else(|| format!("attempt {}", stands.epoch.attempt()), attempt);
    let mut because = Vec::new();
    because.extend(by.and_then(|by| by.ended_at).map(|at| format!("its result came at {}", facts.since(at))));
    because.extend(task.worst.as_ref().map(|worst| format!("it says: {}", words::message(worst))));
    if task.epoch > stands.epoch {
        because.push(format!("it came late: attempt {} had been leased meanwhile", task.epoch.attempt()));
    }
    because.extend(facts.story.results.iter().filter_map(|other| against(facts, other)));
    let unstored = |a: &&AttemptRow| {
        a.ending == Some(Ending::Superseded) && !facts.story.results.iter().any(|result| result.epoch == a.epoch)
    };
    because.extend(facts.attempts().filter(unstored).map(|a| format!("the result of {} was no better", attempt(a))));
    because.extend(result.map(files));
    let out: Vec<&AttemptRow> = facts.attempts().filter(|attempt| attempt.ending.is_none()).collect();
    because.extend(out.iter().map(|out| format!("{} is still out", attempt(out))));
    let next = match (out.is_empty(), stands.status.is_usable()) {
        (false, true) => {
            "what is still out replaces this result only if it is usable and of a later attempt".to_owned()
        }
        (false, false) => "a usable result of what is still out takes its place".to_owned(),
        (true, true) => "nothing more happens to it".to_owned(),
        (true, false) => again(facts),
    };
    Answer { headline: format!("task {} is done: {}, by {who}", task.id, stands.status.as_str()), because, next }
}

/// What another result of the run was beside the one that stands.
fn against(facts: &Facts, other: &ResultRow) -> Option<String> {
    let stands = facts.task().standing?;
    if other.run != facts.task().run || other.epoch == stands.epoch {
        return None;
    }
    let what = match other.origin {
        Origin::Worker => format!("the {} of attempt {}", other.status.as_str(), other.epoch.attempt()),
        Origin::ReaperStandIn | Origin::LastAttemptStandIn => {
            "the stand-in that was filed for the spent budget".to_owned()
        }
    };
    let lost = facts.attempts().any(|a| a.epoch == other.epoch && a.ending == Some(Ending::Superseded));
    Some(if lost { format!("{what} came after it and was no better") } else { format!("it replaced {what}") })
}

/// Where the files of a result are.
fn files(result: &ResultRow) -> String {
    let has_files = result.parts.iter().any(PartRef::is_to_be_placed);
    match (result.parts.is_empty(), result.published) {
        (true, _) => "it has no files".to_owned(),
        _ if result.parts.iter().any(PartRef::is_packed) => {
            "its bytes are in a pack: `dispatcher export` takes them out".to_owned()
        }
        _ if !has_files => "no file of it is kept, only its size and checksum".to_owned(),
        (false, true) => "its files are in place".to_owned(),
        (false, false) => "its bytes are safe, and its files are not in place yet".to_owned(),
    }
}

/// Given up.
pub(super) fn dead(facts: &Facts) -> Answer {
    let task = facts.task();
    let reason = task.worst.as_ref().or(task.last_reason.as_ref()).or(task.last_cause.as_ref());
    let own = reason.filter(|reason| reason.category == "dispatcher").map_or("", |reason| reason.what.as_str());
    let told = reason.map(|reason| format!("the reason: {}", words::message(reason)));
    let of_input = |headline: &str, next: &str| Answer {
        headline: format!("task {} is dead: {headline}", task.id),
        because: told.iter().cloned().collect(),
        next: next.to_owned(),
    };
    match own {
        "input_changed" => of_input(
            "its input is another than was imported",
            if facts.of_a_run {
                "take it as it is now: the same `dispatcher run` again with `--again changed`"
            } else {
                "take it as it is now: import its folder again with --take-changed"
            },
        ),
        "input_missing" => of_input("its input was gone when its turn came", &again(facts)),
        "input_unreadable" | "input_timeout" => of_input("its input could not be read", &again(facts)),
        "unreadable_row" => of_input(
            "it was set aside, because its row in the database cannot be right",
            &format!("see `dispatcher doctor`, then {}", again(facts)),
        ),
        "refused" => of_input("the database refused what was to be written of it", &again(facts)),
        _ => spent(facts, reason, told.as_ref()),
    }
}

/// Given up because its budget is spent.
fn spent(facts: &Facts, reason: Option<&Message>, told: Option<&String>) -> Answer {
    let task = facts.task();
    let mut because: Vec<String> = told.cloned().into_iter().collect();
    because.extend(facts.attempts().map(ended));
    let took_too_long = reason.is_some_and(|reason| reason.category == "timeout")
        || facts.attempts().any(|attempt| attempt.ending == Some(Ending::TimeLimit));
    let next = if took_too_long && facts.of_a_run {
        "give it longer: the same `dispatcher run` again with `--limit TIME --again failed`".to_owned()
    } else if took_too_long {
        format!(
            "give it longer with `dispatcher services set {} --limit TIME{}`, then {}",
            facts.service_name(),
            facts.state_flag,
            again(facts)
        )
    } else {
        format!("a late result of these attempts is still taken; or {}", again(facts))
    };
    Answer {
        headline: format!(
            "task {} is dead: its run has spent {} without a result",
            task.id,
            words::attempts(u64::from(task.charged))
        ),
        because,
        next,
    }
}

/// Ended by an operator.
pub(super) fn cancelled(facts: &Facts) -> Answer {
    let task = facts.task();
    let by = match facts.commanded().1 {
        Some(row) => format!("by {}", given(row)),
        None => "the log does not say by which command".to_owned(),
    };
    let stopped = |attempt: &&AttemptRow| attempt.ending == Some(Ending::Cancelled);
    let mut because = vec![by];
    because.extend(facts.attempts().filter(stopped).map(ended));
    Answer { headline: format!("task {} was cancelled", task.id), because, next: again(facts) }
}

/// How to have it done again. A `run` does again what failed, but not what was cancelled.
fn again(facts: &Facts) -> String {
    let rerun = format!("begin a new run with `dispatcher rerun {}{}`", facts.task().id, facts.state_flag);
    match (facts.of_a_run, facts.task().state) {
        (false, _) => rerun,
        (true, TaskState::Cancelled) => format!("{rerun}, then give the same `dispatcher run` again"),
        (true, _) => "do it again: the same `dispatcher run` again with `--again failed`".to_owned(),
    }
}
