//! The log of a server: lines that never make the work wait.
//!
//! Owns the writer behind a bounded buffer and the count of lines that did not fit into it (case F72): a log that nobody
//! reads costs lines, not tasks. Panics are told through it too, since a panic that waits for a log is not the end.

use crate::settings::LogForm;
use std::time::{Duration, Instant};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that may wait to be written.
const LINES_MAX: usize = 8192;
/// How long it is not told again that lines were dropped, where there was no room for that line either.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Held while the log is written; what waits is written when it goes, for at most a second.
#[derive(Debug)]
pub struct Log {
    counter: ErrorCounter,
    told: u64,
    untold_at: Option<Instant>,
    _guard: WorkerGuard,
}

impl Log {
    /// Logs to standard error what `RUST_LOG` asks for, or else `level`.
    pub fn start(form: LogForm, level: &str) -> Self {
        let (writer, guard) =
            NonBlockingBuilder::default().buffered_lines_limit(LINES_MAX).lossy(true).finish(std::io::stderr());
        let counter = writer.error_counter();
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        match form {
            LogForm::Text => log.with_ansi(false).init(),
            LogForm::Json => log.json().flatten_event(true).init(),
        }
        std::panic::set_hook(Box::new(|panic| tracing::error!("a fault of the program: {panic}")));
        Self { counter, told: 0, untold_at: None, _guard: guard }
    }

    /// How many lines did not fit so far. The log tells it as well, once there is room again.
    pub fn dropped(&mut self) -> u64 {
        if self.untold_at.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
            self.tell_dropped();
        }
        self.counter.dropped_lines() as u64
    }

    /// Tells in the log how many lines did not fit so far, where it does not say so yet.
    pub fn tell_dropped(&mut self) {
        let dropped = self.counter.dropped_lines() as u64;
        if dropped == self.told {
            return;
        }
        tracing::warn!(lines = dropped, "log lines were dropped so far: nobody took them in time");
        // Where more were dropped meanwhile, the line itself may be one of them.
        if self.counter.dropped_lines() as u64 == dropped {
            (self.told, self.untold_at) = (dropped, None);
        } else {
            self.untold_at = Some(Instant::now());
        }
    }
}
