//! Processes of a test's own binary that play a part in the test: a kill ends one of them and nothing else, and no two share
//! memory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Set in a process that plays a part: the file that it works on.
const PART: &str = "DISPATCHER_TEST_PART";

/// What this process works on, where it plays a part.
pub fn part() -> Option<PathBuf> {
    std::env::var_os(PART).map(PathBuf::from)
}

/// Starts this binary once more, in the same test, to play its part on `path`. It says and hears what its caller agrees on.
pub fn start(test: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([test, "--exact", "--nocapture"]).env(PART, path).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("another process of this binary")
}

/// The line that begins with `word`, without it, in what such a process said. The test's own runner says something, too.
pub fn said<'a>(output: &'a str, word: &str) -> Option<&'a str> {
    output.lines().find_map(|line| line.strip_prefix(word))
}
