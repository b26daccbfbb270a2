//! Exit codes: a public table (`docs/operations.md`).

use dispatcher_server::stage::{HowEnded, StageFailure};

/// Everything has a usable result.
pub const ALL_USABLE: u8 = 0;
/// It ran, and something has no usable result, or `doctor` found a fault.
pub const SOME_NOT: u8 = 1;
/// The command line, or what it names, is wrong.
pub const USAGE: u8 = 2;
/// Interrupted; the same command resumes.
pub const INTERRUPTED: u8 = 3;
/// The store stayed away.
pub const STORE_LOST: u8 = 10;
/// More tasks in flight than the hard limit.
pub const HARD_LIMIT: u8 = 11;
/// The workers were not done within the drain limit.
pub const DRAIN_TIMED_OUT: u8 = 12;
/// A part of the process died.
pub const PART_DIED: u8 = 13;
/// Another process has it.
pub const LOCKED: u8 = 14;
/// The database's schema is newer or older than the program.
pub const SCHEMA: u8 = 15;

/// An error with the exit code it leads to.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Exit {
    /// The code.
    pub code: u8,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Exit {
    /// An error of usage.
    pub fn usage(what: impl Into<String>) -> anyhow::Error {
        Self { code: USAGE, what: what.into() }.into()
    }

    /// An error with `code`.
    pub fn with(code: u8, what: impl Into<String>) -> anyhow::Error {
        Self { code, what: what.into() }.into()
    }
}

/// The code for an error.
#[must_use]
pub fn of_error(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Exit>().map_or(USAGE, |exit| exit.code)
}

/// The code for the way a stage ended.
#[must_use]
pub const fn of_stage(how: &HowEnded) -> u8 {
    match how {
        HowEnded::Failed(failure) => of_failure(failure),
        HowEnded::Asked | HowEnded::Panicked(_) => PART_DIED,
    }
}

/// The code for why a stage could not start or go on.
#[must_use]
pub const fn of_failure(failure: &StageFailure) -> u8 {
    match failure {
        StageFailure::StoreLost(_) => STORE_LOST,
        StageFailure::HardLimit(_) => HARD_LIMIT,
        StageFailure::DrainSpent => DRAIN_TIMED_OUT,
        StageFailure::Socket(_) | StageFailure::NeighbourGone(_) | StageFailure::System(_) => PART_DIED,
    }
}
