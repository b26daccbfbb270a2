//! Signals, installed once and by the binary only (rule S6).
//!
//! Invariant (rule S1): the handler only counts; the second signal ends the process at once by a call that is safe in a
//! signal handler.

use crate::exit::INTERRUPTED;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked to stop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the handlers.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Order matters: at the second signal the flag is set already, and this one, which runs first, ends all.
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// Whether a signal came.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
