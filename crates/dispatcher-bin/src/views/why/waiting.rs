//! Why a task waits: what holds it up, and its place in the queue.

use super::answer::{Answer, Facts, ended, given};
use super::holds::holds;
use crate::views::words;
use dispatcher_core::id::Run;
use dispatcher_core::time::TimeMs;

pub(super) fn why(facts: &Facts) -> Answer {
    let (task, last) = (facts.task(), facts.attempts().next_back());
    let mut because = Vec::new();
    let headline = match last {
        Some(last) => {
            because.push(ended(last));
            because.extend(task.last_cause.as_ref().map(|cause| format!("the last cause: {}", words::message(cause))));
            format!(
                "task {} waits for another attempt: its run has spent {} of {}",
                task.id,
                task.charged,
                facts.budget()
            )
        }
        None if task.run > Run::FIRST => {
            because.push(match facts.commanded().0 {
                Some(rerun) => format!("run {} was begun by {}", task.run.0, given(rerun)),
                None => format!("run {} was begun because its input changed, or by `--again`", task.run.0),
            });
            format!("task {} waits for the first attempt of its run {}", task.id, task.run.0)
        }
        None => format!("task {} waits for its first attempt", task.id),
    };
    let holds = holds(facts);
    let next =
        holds.first().map_or_else(|| "it is handed out when its turn comes".to_owned(), |(_, next)| next.clone());
    because.extend(holds.into_iter().map(|(why, _)| why));
    because.extend(place(facts));
    Answer { headline, because, next }
}

/// Its place, where it is in the queue already.
fn place(facts: &Facts) -> Option<String> {
    let outlook = facts.outlook.filter(|_| facts.task().not_before == TimeMs(0))?;
    let priority = if outlook.priority == 0 { String::new() } else { format!(", with priority {}", outlook.priority) };
    let (ahead, queued, name) = (outlook.ahead, outlook.queued, facts.service_name());
    Some(format!("{ahead} of {} in the queue of {name} come before it{priority}", words::tasks(queued)))
}
