//! What the dispatcher at work waits for, told to those that look: a full disk, a lost database.
//!
//! Owns a note in the state folder, because what is waited for is often the database itself. It is made while there is
//! room, as long as it ever gets, and written over in place, which a full disk takes, too. It is believed only as long as
//! the process that wrote it is at work.

use crate::state::StateDir;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// As long as it ever gets, in bytes.
const LENGTH: usize = 4096;

/// The note of the process at work.
#[derive(Debug)]
pub struct WaitingNote {
    /// Where it could be made.
    file: Option<File>,
    told: Option<String>,
}

impl WaitingNote {
    /// Makes it, and says that nothing is waited for. Where it cannot be made nobody looks at one.
    pub fn make(state: &StateDir) -> Self {
        let made = File::options().create(true).truncate(false).write(true).open(state.waiting_note());
        let made =
            made.and_then(|file| file.write_all_at(&page(None), 0).and_then(|()| file.sync_all()).map(|()| file));
        if let Err(e) = &made {
            tracing::warn!("`dispatcher why` will not know what this process waits for: {e}");
        }
        Self { file: made.ok(), told: None }
    }

    /// Says what is waited for.
    pub fn tell(&mut self, what: Option<String>) {
        if self.told == what {
            return;
        }
        if let Some(file) = &self.file
            && let Err(e) = file.write_all_at(&page(what.as_deref()), 0)
        {
            tracing::debug!("cannot note what is waited for: {e}");
        }
        self.told = what;
    }
}

/// What the process at work waits for; `None` where none is at work, or it waits for nothing.
pub fn read(state: &StateDir) -> Option<String> {
    if !state.is_locked() {
        return None;
    }
    let note = std::fs::read(state.waiting_note()).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(e),
    });
    let note = String::from_utf8_lossy(&note.ok()?).into_owned();
    let (process, what) = note.split_once(' ')?;
    let what = what.trim_end();
    (state.process().as_deref() == Some(process) && !what.is_empty()).then(|| what.to_owned())
}

/// The process and what it waits for, with spaces up to the end.
fn page(what: Option<&str>) -> Vec<u8> {
    let mut page = format!("{} {}", std::process::id(), what.unwrap_or_default()).into_bytes();
    page.resize(LENGTH, b' ');
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule D3.
    #[test]
    fn what_is_waited_for_is_told_while_its_process_is_at_work_and_takes_no_space() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::make_at(folder.path()).unwrap();
        let lock = state.lock().unwrap();
        let mut note = WaitingNote::make(&state);
        let length = || std::fs::metadata(state.waiting_note()).unwrap().len();
        assert_eq!((read(&state), length()), (None, 4096));
        note.tell(Some("space for results in packs: free some".to_owned()));
        assert_eq!(read(&state).as_deref(), Some("space for results in packs: free some"));
        note.tell(Some("long ".repeat(2000)));
        assert_eq!((read(&state).unwrap().len() > 4000, length()), (true, 4096));
        note.tell(None);
        assert_eq!(read(&state), None);
        note.tell(Some("the store".to_owned()));
        drop(lock);
        assert_eq!(read(&state), None, "nobody is at work");
        let _lock = state.lock().unwrap();
        drop(WaitingNote::make(&state));
        assert_eq!(read(&state), None, "a new process waits for nothing yet");
    }
}
