//! Running other programs: what is run is shown, what fails says which command it was.
//!
//! **Owns** the spawning and the words of failure. **Refuses to know** what the programs are for.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// One command line that is about to run in the root of the workspace.
pub(crate) struct Cmd {
    command: Command,
    quiet: bool,
}

impl Cmd {
    /// A program by its name, to be run in `dir` without standard input.
    pub(crate) fn new(program: impl AsRef<OsStr>, dir: &Path) -> Self {
        let mut command = Command::new(program);
        command.current_dir(dir).stdin(Stdio::null());
        Self { command, quiet: false }
    }

    /// Cargo, the same one that runs this tool.
    pub(crate) fn cargo(dir: &Path) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), dir)
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub(crate) fn env_remove(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Keeps standard output free for figures: what the command prints there goes to standard error.
    pub(crate) fn onto_stderr(mut self) -> Self {
        self.command.stdout(std::io::stderr());
        self
    }

    /// Does not show the command line before it runs.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The command line as a person would type it.
    pub(crate) fn line(&self) -> String {
        let program = Path::new(self.command.get_program());
        let mut line = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        for arg in self.command.get_args() {
            let arg = arg.to_string_lossy();
            let plain = !arg.is_empty() && !arg.contains(|c: char| c.is_whitespace() || "'\"$(){}&|;<>*".contains(c));
            let _ = if plain { write!(line, " {arg}") } else { write!(line, " '{arg}'") };
        }
        line
    }

    fn announce(&self) {
        if !self.quiet {
            eprintln!("$ {}", self.line());
        }
    }

    /// Runs it with its output passed through; an exit code other than 0 is an error.
    pub(crate) fn run(self) -> Result<()> {
        let line = self.line();
        let status = self.status()?;
        if status.success() { Ok(()) } else { bail!("`{line}` ended with {status}") }
    }

    /// Runs it with its output passed through and answers how it ended.
    pub(crate) fn status(mut self) -> Result<ExitStatus> {
        self.announce();
        self.command.status().with_context(|| format!("cannot start `{}`", self.line()))
    }

    /// Runs it, standard error passed through and also kept: answers how it ended and what it said there.
    pub(crate) fn status_and_stderr(mut self) -> Result<(ExitStatus, String)> {
        self.announce();
        let line = self.line();
        let mut child =
            self.command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
        let mut kept = String::new();
        if let Some(stderr) = child.stderr.take() {
            for text in BufReader::new(stderr).split(b'\n') {
                let text = String::from_utf8_lossy(&text?).into_owned();
                writeln!(std::io::stderr(), "{text}")?;
                kept.push_str(&text);
                kept.push('\n');
            }
        }
        Ok((child.wait()?, kept))
    }

    /// Runs it with everything caught: how it ended, standard output, standard error.
    pub(crate) fn capture(mut self) -> Result<Captured> {
        let line = self.line();
        let output = self.command.output().with_context(|| format!("cannot start `{line}`"))?;
        Ok(Captured {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it quietly and answers its standard output; an exit code other than 0 is an error with what it said.
    pub(crate) fn read(self) -> Result<String> {
        let line = self.line();
        let captured = self.capture()?;
        if captured.status.success() {
            Ok(captured.stdout)
        } else {
            bail!("`{line}` ended with {}:\n{}", captured.status, captured.stderr.trim_end())
        }
    }
}

/// What a caught command left behind.
pub(crate) struct Captured {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_as_it_would_be_typed() {
        let cmd = Cmd::new("/usr/bin/printf", Path::new(".")).args(["%s", "two words"]);
        assert_eq!(cmd.line(), "printf %s 'two words'");
    }

    #[test]
    fn a_failing_command_names_itself_and_what_it_said() {
        let error = Cmd::new("sh", Path::new(".")).args(["-c", "echo no luck >&2; exit 3"]).read().unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("sh -c"), "{text}");
        assert!(text.contains("no luck") && text.contains('3'), "{text}");
    }
}
