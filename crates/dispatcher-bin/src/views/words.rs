//! Stored facts as words: counts, causes, times.

use dispatcher_core::report::{Message, Severity};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{Summary, TaskState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Causes that a summary lists.
const CAUSES_MAX: usize = 10;

/// Tasks by state and status in one line.
pub fn counts(summary: &Summary) -> String {
    let mut parts = vec![tasks(summary.total)];
    parts.extend(summary.by_status.iter().filter(|(_, n)| *n > 0).map(|(s, n)| format!("{n} {}", s.as_str())));
    let open = |state: &TaskState| !matches!(state, TaskState::Done | TaskState::Dead);
    let counted = summary.by_state.iter().filter(|(s, n)| open(s) && *n > 0);
    parts.extend(counted.map(|(state, n)| match state {
        TaskState::Leased => format!("{n} leased ({})", whereabouts(summary)),
        state => format!("{n} {}", state.as_str()),
    }));
    if summary.unpublished > 0 {
        parts.push(format!("{} not yet in place", summary.unpublished));
    }
    parts.join(", ")
}

/// Where the leased tasks are.
fn whereabouts(summary: &Summary) -> String {
    let (leased, out, running) = (leased(summary), summary.handed_out, summary.running);
    let counted = [
        (running, "running"),
        (out.saturating_sub(running), "waiting at workers"),
        (leased.saturating_sub(out), "waiting here"),
    ];
    let said: Vec<String> = counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    said.join(", ")
}

fn leased(summary: &Summary) -> u64 {
    summary.by_state.iter().find(|(state, _)| *state == TaskState::Leased).map_or(0, |(_, n)| *n)
}

/// The most frequent causes of failure, a line each.
pub fn causes(summary: &Summary) -> Vec<String> {
    let mut lines: Vec<String> = summary
        .causes
        .iter()
        .take(CAUSES_MAX)
        .map(|(category, what, n)| format!("  {n:>8}  {}", kind(category, what)))
        .collect();
    if summary.causes.len() > CAUSES_MAX {
        lines.push("  and others: `dispatcher tasks --status fatal,invalid` lists all".to_owned());
    }
    lines
}

/// So many tasks.
pub fn tasks(n: u64) -> String {
    counted(n, "task")
}

/// So many attempts.
pub fn attempts(n: u64) -> String {
    counted(n, "attempt")
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Of tasks whose dispatcher has gone, what comes of those that no worker has.
pub fn stranded(summary: &Summary) -> Option<String> {
    let waiting = leased(summary).saturating_sub(summary.handed_out);
    let what = if waiting == 1 { "it is" } else { "they are" };
    (waiting > 0).then(|| format!("no worker has {}: {what} handed out again when a dispatcher starts", these(waiting)))
}

fn these(n: u64) -> String {
    if n == 1 { "the one that waits here".to_owned() } else { format!("the {n} that wait here") }
}

/// A span of time, as people write it.
pub fn span(span: SpanMs) -> String {
    humantime::format_duration(Duration::from_millis(span.0)).to_string()
}

/// A span of time without its small change: hours need no seconds.
pub fn about(span: SpanMs) -> String {
    let seconds = span.0 / 1000;
    let whole = match seconds {
        0..=599 => seconds,
        600..=86_399 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    humantime::format_duration(Duration::from_secs(whole)).to_string()
}

/// How long ago something was.
pub fn ago(span: SpanMs) -> String {
    format!("{} ago", about(span))
}

/// A message's kind.
pub fn kind(category: &str, what: &str) -> String {
    if what.is_empty() { category.to_owned() } else { format!("{category}:{what}") }
}

/// A message in one line.
pub fn message(message: &Message) -> String {
    let severity = match message.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
        Severity::Invalid => "invalid",
    };
    let kind = kind(&message.category, &message.what);
    if message.details.is_empty() {
        format!("{severity} {kind}")
    } else {
        format!("{severity} {kind}: {}", message.details)
    }
}

/// A point in time, in UTC.
pub fn time(at: TimeMs) -> String {
    let span = Duration::from_millis(at.0.unsigned_abs());
    let point: Option<SystemTime> = if at.0 < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    // Years past 9999 have no form that people read; a number says it as well.
    match point {
        Some(point) if (0..253_402_300_800_000).contains(&at.0) => humantime::format_rfc3339_millis(point).to_string(),
        _ => format!("{} ms after 1970", at.0),
    }
}
