//! Places where a test of the built program can hold a whole process, to kill it just there.
//!
//! Owns the arming by environment: `DISPATCHER_HOLD=place:n` holds the process at the n-th pass of `place` for ever, and
//! `DISPATCHER_HOLD_FILE` is made when that happens. `DISPATCHER_PANIC=place:n` panics there instead,
//! `DISPATCHER_FAIL=place:n` lets the n-th thing that can be refused there be refused, and `DISPATCHER_SLOW=place:ms` makes
//! every pass take so many milliseconds, as a slow disk does. Only builds with the feature `test-hooks` have it; in every
//! other build a call is nothing.
//!
//! Places: `claimed`, `staged`, `synced`, `committed`, `publishing`, `published`, `received`, `handed_out`,
//! `swept`, `imported`, `commanded`, `unlinked`; of packs `appended`, `sealing`, `sealed`, `compact_copied`, `compact_moved`,
//! `compact_removing`. Refused can be a `write` or a `sync` of a pack.

/// Passes a place.
#[cfg(not(feature = "test-hooks"))]
#[inline]
pub const fn pass(_place: &str) {}

/// Passes a place, or holds there for ever, or panics.
#[cfg(feature = "test-hooks")]
pub fn pass(place: &str) {
    use std::sync::LazyLock;
    static HOLD: LazyLock<Option<Armed>> = LazyLock::new(|| Armed::by("DISPATCHER_HOLD"));
    static PANIC: LazyLock<Option<Armed>> = LazyLock::new(|| Armed::by("DISPATCHER_PANIC"));
    static SLOW: LazyLock<Option<Armed>> = LazyLock::new(|| Armed::by("DISPATCHER_SLOW"));
    if let Some(slow) = SLOW.as_ref().filter(|slow| slow.place == place) {
        std::thread::sleep(std::time::Duration::from_millis(slow.number));
    }
    if PANIC.as_ref().is_some_and(|armed| armed.is_met(place)) {
        #[expect(clippy::panic, reason = "this is what it is armed for, and no release has it")]
        {
            panic!("armed to panic at {place}");
        }
    }
    if HOLD.as_ref().is_some_and(|armed| armed.is_met(place)) {
        if let Ok(path) = std::env::var("DISPATCHER_HOLD_FILE") {
            let _ = std::fs::write(path, place);
        }
        loop {
            std::thread::park();
        }
    }
}

/// Whether what is tried here is to be refused.
#[cfg(not(feature = "test-hooks"))]
#[must_use]
#[inline]
pub const fn fails(_place: &str) -> bool {
    false
}

/// Whether what is tried here is to be refused.
#[cfg(feature = "test-hooks")]
#[must_use]
pub fn fails(place: &str) -> bool {
    use std::sync::LazyLock;
    static FAIL: LazyLock<Option<Armed>> = LazyLock::new(|| Armed::by("DISPATCHER_FAIL"));
    FAIL.as_ref().is_some_and(|armed| armed.is_met(place))
}

/// A place, and a number: the pass of it that is meant, say.
#[cfg(feature = "test-hooks")]
struct Armed {
    place: String,
    number: u64,
    passes: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "test-hooks")]
impl Armed {
    fn by(variable: &str) -> Option<Self> {
        let armed = std::env::var(variable).ok()?;
        let (place, number) = armed.split_once(':')?;
        Some(Self { place: place.to_owned(), number: number.parse().ok()?, passes: 0.into() })
    }

    fn is_met(&self, place: &str) -> bool {
        self.place == place && self.passes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == self.number
    }
}
