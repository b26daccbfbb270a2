//! What every store can hold, checked before anything is written, so that stores cannot differ in it.

use crate::model::{ClaimedTask, Corpus, Entry, ErrorClass, ServiceSettings, StoreError};
use dispatcher_core::finalise::{PartRef, Record};
use dispatcher_core::id::{CorpusId, ServiceId};
use dispatcher_core::report::Message;
use dispatcher_core::text::{self, is_plain};
use dispatcher_core::time::TimeMs;
use std::collections::HashSet;

/// The longest name of an entry, in bytes: as long as a path may be.
pub const MAX_ENTRY: usize = 4096;

/// How many entries one transaction of an import takes.
pub const CHUNK: usize = 1024;

/// How many records one transaction of [`crate::Store::mark_done`] takes.
pub const BATCH: usize = 16_384;

/// How many tasks one claim and one page take at most, whatever is asked for.
pub const PAGE: usize = 10_000;

/// How many tasks one piece of a command changes at most, whatever is asked for. It holds the writer: with a million
/// tasks on disk half of the pieces of this size take up to 20 ms on two busy cores and 95 in 100 up to 40 ms, commit and
/// sync included, where 200 ms is what others may have to wait (`examples/control.rs` measures it).
pub const PIECE: usize = 500;

/// How many tasks one piece of a command looks at, to find those it means: few that match among many do not hold up
/// the writer either.
pub const WINDOW: usize = 10_000;

/// How many lives of workers are remembered, those heard most recently.
pub const WORKERS: usize = 10_000;

/// The longest name of a corpus, in bytes.
pub const MAX_NAME: usize = 200;

/// The longest name of a service, in bytes: workers say it on the wire, which takes no longer one.
pub const MAX_SERVICE_NAME: usize = text::NAME_MAX;

/// One in this many claimed tasks comes from the lowest priority that has ready ones, so that no stream of better ones
/// keeps it waiting for ever.
pub const TURNS: usize = 8;

/// How many kinds of causes a summary lists.
pub(crate) const CAUSES: usize = 20;

/// How many tasks a piece takes that was asked for `max`: at least one, or it would never come to its end.
pub(crate) fn piece(max: usize) -> usize {
    max.clamp(1, PIECE)
}

/// Until when a lease that is taken over may work: never longer than a whole time limit of its attempt from now on,
/// whatever clock the stored limit was written under (rule L3).
pub(crate) fn limit_after_takeover(stored: Option<TimeMs>, task: &ClaimedTask, now: TimeMs) -> Option<TimeMs> {
    let whole = task.timeout_ms.times(u64::from(task.charged) + 1);
    stored.map(|limit| limit.min(now.after(whole)))
}

/// Sizes, times and counts are kept as signed 64-bit numbers.
pub(crate) fn whole(number: u64, what: &'static str) -> Result<i64, String> {
    i64::try_from(number).map_err(|_| format!("{what} is {number}, more than can be stored"))
}

pub(crate) fn bad_row(doing: &'static str, why: String) -> StoreError {
    StoreError { class: ErrorClass::BadRow, doing, why }
}

/// Names of services and corpora become names of folders, and words in lists and commands.
pub(crate) fn check_name(of: &str, name: &str) -> Result<(), String> {
    check_name_up_to(MAX_NAME, of, name)
}

fn check_name_up_to(most: usize, of: &str, name: &str) -> Result<(), String> {
    let fits = !name.is_empty() && name.len() <= most && name != "." && name != "..";
    if fits && !name.chars().any(|c| c == '/' || !is_plain(c)) {
        return Ok(());
    }
    Err(format!(
        "the name {name:?} of {of} cannot be used: allowed are 1 to {most} bytes without '/', control characters and \
         marks of the reading direction, but not \".\" and \"..\""
    ))
}

/// A service's name also stands in lists with commas: workers say so what they offer.
///
/// # Errors
/// In words, with what is allowed.
pub fn check_service(name: &str) -> Result<(), String> {
    check_name_up_to(MAX_SERVICE_NAME, "a service", name)?;
    if !name.contains(',') {
        return Ok(());
    }
    Err(format!(
        "the name {name:?} of a service cannot be used: it has a comma, and workers offer services in a list with commas \
         (`dispatcher worker --service a,b`); leave the comma out"
    ))
}

pub(crate) fn check_settings(settings: &ServiceSettings) -> Result<(), String> {
    if settings.max_in_flight == Some(0) {
        return Err("a service with room for no task in flight is a paused one: pause it instead".to_owned());
    }
    whole(settings.timeout_ms.0, "the time-out")?;
    whole(settings.result_cap, "the result cap")?;
    whole(settings.retry_delay_ms.0, "the retry delay").map(drop)
}

pub(crate) fn check_entry(entry: &Entry) -> Result<(), String> {
    if entry.name.0.is_empty() {
        return Err("an entry has no name".to_owned());
    }
    if entry.name.0.len() > MAX_ENTRY {
        return Err(format!("the name of an entry has {} bytes, more than {MAX_ENTRY}", entry.name.0.len()));
    }
    whole(entry.size, "the size of an entry").map(drop)
}

/// Whether there are the service and the corpus that entries are imported for, and may be.
pub(crate) fn check_places(
    is_service: bool,
    found: Option<&Corpus>,
    service: ServiceId,
    corpus: CorpusId,
) -> Result<(), String> {
    match found {
        _ if !is_service => Err(format!("there is no service {}", service.0)),
        None => Err(format!("there is no corpus {}", corpus.0)),
        Some(corpus) => corpus.check_import(),
    }
}

pub(crate) fn check_record(record: &Record) -> Result<(), String> {
    let parts: &[PartRef] = match record {
        Record::Result { parts, .. } | Record::Ended { parts, .. } => parts,
        _ => &[],
    };
    for part in parts {
        whole(part.offset, "the offset of a part")?;
        whole(part.length, "the length of a part")?;
        whole(part.offset.saturating_add(part.length), "the end of a part")?;
    }
    Ok(())
}

/// The gravest message, the first of those equally grave: what a failure is counted under.
pub(crate) fn worst<'m>(messages: impl Iterator<Item = &'m Message>) -> Option<&'m Message> {
    messages.fold(None, |worst: Option<&Message>, m| match worst {
        Some(w) if w.severity >= m.severity => Some(w),
        _ => Some(m),
    })
}

/// Takes the next chunk off `entries`: up to [`CHUNK`], and up to a name that is in it already, so that a name given
/// twice means the same as two calls.
pub(crate) fn next_chunk<'e>(entries: &mut &'e [Entry]) -> Option<&'e [Entry]> {
    let mut names = HashSet::with_capacity(entries.len().min(CHUNK));
    let length = entries.iter().take(CHUNK).take_while(|e| names.insert(e.name.0.as_slice())).count();
    let (chunk, rest) = entries.split_at_checked(length)?;
    *entries = rest;
    (!chunk.is_empty()).then_some(chunk)
}
