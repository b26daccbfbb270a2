//! The words that stand in a database for states, statuses, origins, severities and counters.

use dispatcher_core::finalise::{Tally, TaskState};
use dispatcher_core::report::{Ending, Origin, Severity, Status};

const ORIGINS: [Origin; 3] = [Origin::Worker, Origin::ReaperStandIn, Origin::LastAttemptStandIn];

const SEVERITIES: [Severity; 5] =
    [Severity::Info, Severity::Warning, Severity::Error, Severity::Fatal, Severity::Invalid];

pub(crate) const fn origin_word(origin: Origin) -> &'static str {
    match origin {
        Origin::Worker => "worker",
        Origin::ReaperStandIn => "reaper_stand_in",
        Origin::LastAttemptStandIn => "last_attempt_stand_in",
    }
}

pub(crate) const fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
        Severity::Invalid => "invalid",
    }
}

pub(crate) const fn tally_word(tally: Tally) -> &'static str {
    match tally {
        Tally::Dispatched => "dispatched",
        Tally::Ending(ending) => ending.as_str(),
        Tally::Repeated => "message_repeated",
        Tally::StaleMessage => "message_stale",
        Tally::UnknownMessage => "message_unknown",
        Tally::SetAside => "set_aside",
    }
}

pub(crate) fn state_of(word: &str) -> Option<TaskState> {
    TaskState::ALL.into_iter().find(|s| s.as_str() == word)
}

pub(crate) fn status_of(word: &str) -> Option<Status> {
    Status::ALL.into_iter().find(|s| s.as_str() == word)
}

pub(crate) fn origin_of(word: &str) -> Option<Origin> {
    ORIGINS.into_iter().find(|o| origin_word(*o) == word)
}

pub(crate) fn ending_of(word: &str) -> Option<Ending> {
    Ending::ALL.into_iter().find(|e| e.as_str() == word)
}

pub(crate) fn severity_of(word: &str) -> Option<Severity> {
    SEVERITIES.into_iter().find(|s| severity_word(*s) == word)
}
