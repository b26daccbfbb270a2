//! Places where a test of the built program can hold a whole process, to kill it just there.
//!
//! Owns the arming by environment: `DISPATCHER_HOLD=place:n` holds the process at the n-th pass of `place` for ever, and
//! `DISPATCHER_HOLD_FILE` is made when that happens. Only builds with the feature `test-hooks` have it; in every other
//! build a call is nothing.
//!
//! Places: `claimed`, `staged`, `synced`, `committed`, `publishing`, `published`, `received`, `handed_out`.

/// Passes a place.
#[cfg(not(feature = "test-hooks"))]
#[inline]
pub const fn pass(_place: &str) {}

/// Passes a place, or holds there for ever.
#[cfg(feature = "test-hooks")]
pub fn pass(place: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static ARMED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSES: AtomicU64 = AtomicU64::new(0);
    let armed = ARMED.get_or_init(|| {
        let armed = std::env::var("DISPATCHER_HOLD").ok()?;
        let (place, n) = armed.split_once(':')?;
        Some((place.to_owned(), n.parse().ok()?))
    });
    let Some((held, n)) = armed else { return };
    if held != place || PASSES.fetch_add(1, Ordering::SeqCst) + 1 != *n {
        return;
    }
    if let Ok(path) = std::env::var("DISPATCHER_HOLD_FILE") {
        let _ = std::fs::write(path, place);
    }
    loop {
        std::thread::park();
    }
}
