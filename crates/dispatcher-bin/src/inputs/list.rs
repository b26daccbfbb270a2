//! Inputs named in a list, one below the other.
//!
//! Owns how a line becomes the name of an input: as long as a path may be, below the folder, without detours. Each file is
//! looked at once, from the open folder, so that a name costs the way below it and not the way to it.

use super::{Seen, is_working_folder};
use dispatcher_core::id::EntryName;
use dispatcher_store::Entry;
use dispatcher_store::limits::MAX_ENTRY;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A list of names.
#[derive(Debug)]
pub struct List<R> {
    names: R,
    ends_with: u8,
    dir: PathBuf,
    folder: File,
    /// Names below the folder.
    skip: Vec<PathBuf>,
    priority: i32,
}

impl<R: BufRead> List<R> {
    /// Reads names of files below `folder`, each ended by `ends_with`.
    ///
    /// # Errors
    /// Where the folder cannot be opened.
    pub fn new(names: R, ends_with: u8, folder: &super::Folder) -> io::Result<Self> {
        let open = File::open(&folder.dir)?;
        Ok(Self {
            names,
            ends_with,
            dir: folder.dir.clone(),
            folder: open,
            skip: folder.skip.iter().filter_map(|skip| below(&folder.dir, skip)).collect(),
            priority: folder.priority,
        })
    }

    /// The next line; `None` at the end, and an error in words for one that is too long.
    fn line(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
        let mut line = Vec::new();
        // One more than fits, and its end.
        let most = self.dir.as_os_str().len() + MAX_ENTRY + 2;
        let read = self.names.by_ref().take(most as u64).read_until(self.ends_with, &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() == Some(&self.ends_with) {
            line.pop();
        } else if read == most {
            self.names.skip_until(self.ends_with)?;
            return Ok(Some(Err(format!("a name of the list has more than {MAX_ENTRY} bytes"))));
        }
        Ok(Some(Ok(line)))
    }

    fn look(&self, line: &[u8]) -> Seen {
        let said = Path::new(OsStr::from_bytes(line));
        let unreadable = |why: &str| Seen::Unreadable(format!("{}: {why}", EntryName(line.to_vec())));
        let Some(name) = below(&self.dir, said) else { return unreadable("it does not lie below the folder") };
        if self.skip.iter().any(|skip| name.starts_with(skip)) {
            return Seen::Folder;
        }
        let is_in_one = name.parent().is_some_and(|folder| folder.iter().any(is_working_folder));
        if is_in_one {
            return Seen::Working;
        }
        match statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.seen(&name, &stat),
            Err(e) => unreadable(&io::Error::from(e).to_string()),
        }
    }

    fn seen(&self, name: &Path, stat: &Stat) -> Seen {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Seen::Input(Entry {
                name: EntryName(name.as_os_str().as_bytes().to_vec()),
                size: u64::try_from(stat.st_size).unwrap_or(0),
                mtime_ns: stat
                    .st_mtime
                    .saturating_mul(1_000_000_000)
                    .saturating_add(i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
                priority: self.priority,
            }),
            FileType::Directory if name.file_name().is_some_and(is_working_folder) => Seen::Working,
            FileType::Directory => Seen::Folder,
            FileType::Symlink => Seen::Link,
            _ => Seen::Special,
        }
    }
}

impl<R: BufRead> Iterator for List<R> {
    type Item = io::Result<Seen>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.line() {
                Err(e) => return Some(Err(e)),
                Ok(None) => return None,
                Ok(Some(Ok(line))) if line.is_empty() => {}
                Ok(Some(Ok(line))) => return Some(Ok(self.look(&line))),
                Ok(Some(Err(why))) => return Some(Ok(Seen::Unreadable(why))),
            }
        }
    }
}

/// The name below `dir`, as a walk would find it; `None` where there is none.
fn below(dir: &Path, said: &Path) -> Option<PathBuf> {
    let said = if said.is_absolute() { said.strip_prefix(dir).ok()? } else { said };
    let mut name = PathBuf::new();
    for part in said.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!name.as_os_str().is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::Folder;
    use super::*;

    /// What a list says of a folder with the file `sub/a` and a link to it.
    fn seen(names: &[u8], ends_with: u8) -> Vec<Seen> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/a"), b"123").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("sub/link")).unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        std::fs::write(dir.path().join("state/b"), b"").unwrap();
        std::fs::create_dir_all(dir.path().join("sub/.dispatcher-worker-2/outbox")).unwrap();
        std::fs::write(dir.path().join("sub/.dispatcher-worker-2/outbox/x"), b"").unwrap();
        std::fs::write(dir.path().join("sub/.dispatcher"), b"a file").unwrap();
        let skip = vec![dir.path().join("state")];
        let folder = Folder { dir: dir.path().to_owned(), skip, beside: Vec::new(), by_name: true, priority: 7 };
        let listed: Vec<Seen> = List::new(names, ends_with, &folder).unwrap().map(Result::unwrap).collect();
        let walked: Vec<Seen> = folder.seen().map(Result::unwrap).filter(|seen| *seen != Seen::Folder).collect();
        // What a list finds is what a walk finds, times and sizes included.
        for input in listed.iter().filter(|seen| matches!(seen, Seen::Input(_))) {
            assert!(walked.contains(input), "{input:?} is not among {walked:?}");
        }
        listed
    }

    fn word(seen: &Seen) -> &'static str {
        match seen {
            Seen::Input(_) => "input",
            Seen::Folder => "folder",
            Seen::Link => "link",
            Seen::Special => "special",
            Seen::Working => "working",
            Seen::Unreadable(_) => "unreadable",
        }
    }

    #[test]
    fn a_list_names_files_below_the_folder_and_nothing_else() {
        let words = |names: &[u8]| seen(names, b'\n').iter().map(word).collect::<Vec<_>>();
        assert_eq!(words(b"sub/a\n\n./sub//a"), ["input", "input"], "however it is written, and without a last end");
        assert_eq!(words(b"sub\nsub/link\nsub/none\n"), ["folder", "link", "unreadable"]);
        assert_eq!(words(b"sub/.dispatcher-worker-2\nsub/.dispatcher-worker-2/outbox/x\n"), ["working"; 2]);
        assert_eq!(words(b"sub/.dispatcher\n"), ["input"], "a file of that name is a file");
        assert_eq!(words(b"../x\n/etc/passwd\n.\nsub/../sub/a\n"), ["unreadable"; 4]);
        assert_eq!(words(b"state/b\n"), ["folder"], "what is passed by in a walk is passed by in a list");
    }

    #[test]
    fn names_may_hold_line_ends_where_nul_ends_them_and_none_is_longer_than_a_path() {
        assert_eq!(seen(b"sub/a\0sub/\nb\0", 0).iter().map(word).collect::<Vec<_>>(), ["input", "unreadable"]);
        let long = [vec![b'x'; 10_000_000], b"\nsub/a".to_vec()].concat();
        assert_eq!(seen(&long, b'\n').iter().map(word).collect::<Vec<_>>(), ["unreadable", "input"]);
    }
}
