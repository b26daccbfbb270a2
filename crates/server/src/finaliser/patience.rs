//! How long a store that is away is waited for (rule D3).
//!
//! Owns the pauses between repeats and the decision that it is enough. While it waits nothing is leased and people are
//! told what is waited for.

use super::Finaliser;
use crate::stage::StageFailure;
use dispatcher_store::{ErrorClass, Store, StoreError};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The first pause before a repeat; each further one is twice as long (rule D3).
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often it is looked, while it waits, whether it is told to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Repeats that are made even where patience is shorter than their pauses (rule D3).
const REPEATS_AT_LEAST: u32 = 3;

impl Finaliser {
    /// Asks the store until it answers, for as long as its error may pass.
    pub(super) fn patiently<T, F, Asked>(&self, ask: F) -> Result<T, StageFailure>
    where
        F: Fn(Arc<dyn Store>) -> Asked,
        Asked: Future<Output = Result<T, StoreError>>,
    {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut repeats = 0;
        loop {
            let error = match self.runtime.block_on(ask(Arc::clone(&self.parts.store))) {
                Ok(answer) => {
                    if repeats > 0 {
                        self.go_on();
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let spent = began.elapsed() >= self.parts.store_patience && repeats >= REPEATS_AT_LEAST;
            let hopeless = match error.class {
                // Space is made by people, and only they know how long they need.
                ErrorClass::Full => false,
                ErrorClass::Transient => spent,
                ErrorClass::Conflict | ErrorClass::BadRow | ErrorClass::Corrupt | ErrorClass::Misconfigured => true,
            };
            if hopeless {
                return Err(StageFailure::StoreLost(error.to_string()));
            }
            self.hold(match error.class {
                ErrorClass::Full => format!("space for the database ({error}): free some, work goes on by itself"),
                _ => format!("the store: {error}"),
            });
            self.rest(pause)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
            repeats += 1;
        }
    }

    /// Waits before a repeat. Who is told to end waits no longer than a drain may take: what is not written was answered to
    /// nobody, and comes again after the next start (rule S1).
    pub(super) fn rest(&self, pause: Duration) -> Result<(), StageFailure> {
        let until = Instant::now() + pause;
        loop {
            if self.parts.shared.drained_for().is_some_and(|time| time >= self.parts.drain_limit) {
                self.parts.shared.drain_spent.store(true, Ordering::Release);
                return Err(StageFailure::DrainSpent);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Nothing is leased from now on, and people are told why.
    pub(super) fn hold(&self, what: String) {
        let is_news = self.parts.progress.wait_for(Some(what.clone()));
        self.parts.shared.holding.store(true, Ordering::Release);
        if is_news {
            tracing::warn!("waiting for {what}");
        }
    }

    /// What was waited for is back.
    pub(super) fn go_on(&self) {
        self.parts.shared.holding.store(false, Ordering::Release);
        if self.parts.progress.wait_for(None) {
            tracing::info!("work goes on");
        }
    }
}
