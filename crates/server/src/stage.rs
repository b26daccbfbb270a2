//! Threads that must not die alone.
//!
//! Owns starting a stage and telling whoever waits how it ended: returned, failed or panicked. Knows nothing of what a
//! stage does.
//!
//! Invariant (rule S2): each stage reports its end exactly once, a panic included.

use crossbeam_channel::Sender;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

/// How a stage ended.
#[derive(Debug)]
pub struct StageEnd {
    /// Which one.
    pub name: &'static str,
    /// How.
    pub how: HowEnded,
}

/// The ways a stage can end.
#[derive(Debug, PartialEq, Eq)]
pub enum HowEnded {
    /// It was told to, and did.
    Asked,
    /// It could not go on.
    Failed(StageFailure),
    /// A fault of our own.
    Panicked(String),
}

impl std::fmt::Display for HowEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Asked => write!(f, "it was asked to end"),
            Self::Failed(failure) => write!(f, "{failure}"),
            Self::Panicked(what) => write!(f, "a fault of the program: {what}"),
        }
    }
}

/// Why a stage could not go on; each has an exit code of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageFailure {
    /// The store was away for longer than `store_patience` (rule D3).
    #[error("the store did not come back within the time it is waited for: {0}")]
    StoreLost(String),
    /// It was told to end, and what it waits for did not come within the time that a drain may take (rule S1).
    #[error("the drain took longer than its limit")]
    DrainSpent,
    /// One more task than the hard limit (rule L10).
    #[error("the hard limit of tasks in flight was exceeded: {0}")]
    HardLimit(String),
    /// The sockets cannot go on.
    #[error("the sockets cannot go on: {0}")]
    Socket(String),
    /// A neighbour stage is gone; its own report says why.
    #[error("the {0} is gone")]
    NeighbourGone(&'static str),
    /// A thread could not be started, or the like.
    #[error("{0}")]
    System(String),
}

/// Starts `body` as the stage `name`; its end goes to `ends`, which never fills because each stage reports once.
///
/// # Errors
/// Where the system gives no thread.
pub fn start<F>(name: &'static str, ends: &Sender<StageEnd>, body: F) -> Result<JoinHandle<()>, StageFailure>
where
    F: FnOnce() -> Result<(), StageFailure> + Send + 'static,
{
    let ends = ends.clone();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let how = match catch_unwind(AssertUnwindSafe(body)) {
                Ok(Ok(())) => HowEnded::Asked,
                Ok(Err(failure)) => HowEnded::Failed(failure),
                Err(panic) => HowEnded::Panicked(panic_text(panic.as_ref())),
            };
            // Whoever waits may be gone already at the very end of the process; then nobody needs to know.
            let _ = ends.send(StageEnd { name, how });
        })
        .map_err(|e| StageFailure::System(format!("no thread for the {name}: {e}")))
}

/// What a panic said, where it said it in words.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it said nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule S2.
    #[test]
    fn a_stage_reports_its_end_once_whether_it_returns_fails_or_panics() {
        let (ends, seen) = crossbeam_channel::unbounded();
        let stages = [
            start("a", &ends, || Ok(())).unwrap(),
            start("b", &ends, || Err(StageFailure::NeighbourGone("a"))).unwrap(),
            start("c", &ends, || panic!("on purpose")).unwrap(),
        ];
        for stage in stages {
            stage.join().unwrap();
        }
        drop(ends);
        let mut ends: Vec<_> = seen.iter().map(|end| (end.name, end.how)).collect();
        ends.sort_by_key(|(name, _)| *name);
        assert_eq!(
            ends,
            [
                ("a", HowEnded::Asked),
                ("b", HowEnded::Failed(StageFailure::NeighbourGone("a"))),
                ("c", HowEnded::Panicked("on purpose".to_owned())),
            ]
        );
    }
}
