//! The README's tour, executed and compared: what a document says a command prints is what it prints.
//!
//! **Owns** the scratch folder, the order of the commands and the verdict. `transcript` reads and writes the document,
//! `compare` decides what counts as the same.

mod compare;
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::Cmd;
use crate::workspace::Workspace;
use transcript::Exchange;

const DOCUMENT: &str = "README.md";

/// How a reader without an installed binary calls it; the tour calls the binary it has built instead.
const FROM_SOURCE: &str = "cargo run --release -p dispatcher-bin --";

/// The longest one command of the tour may take, in seconds.
const LIMIT_S: &str = "120";

/// Runs the document's console blocks; with `bless` writes what they print into it.
///
/// # Errors
/// Fails when a command ends with a code other than 0, or prints something else than the document says.
pub(crate) fn run(workspace: &Workspace, bless: bool) -> Result<()> {
    let path = workspace.root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let exchanges =
        transcript::read(&text).with_context(|| format!("{DOCUMENT} has a console block that cannot be read"))?;
    if exchanges.is_empty() {
        bail!("{DOCUMENT} has no ```console block with a `$ command`: the tour is empty");
    }
    workspace.cargo().args(["build", "-p", "dispatcher-bin", "--locked"]).run()?;
    let examples = workspace.files()?.into_iter().filter(|file| file.starts_with("examples/"));
    let scratch = Scratch::new(&workspace.target()?.join("debug"), workspace.root(), examples)?;
    let (mut differing, mut answers) = (0_usize, Vec::with_capacity(exchanges.len()));
    for exchange in &exchanges {
        println!("{DOCUMENT}:{}: $ {}", exchange.line, exchange.command.replace('\n', "\n> "));
        let printed = scratch.execute(exchange)?;
        let same = compare::same(&exchange.expected, &printed);
        if !same {
            differing += 1;
            println!("{}", compare::difference(&exchange.expected, &printed));
        }
        answers.push((!same).then_some(printed));
    }
    if differing == 0 {
        println!("tour: {} commands printed what {DOCUMENT} says", exchanges.len());
    } else if bless {
        fs::write(&path, transcript::write(&text, &exchanges, &answers))?;
        println!("tour: {differing} answers written into {DOCUMENT}");
    } else {
        bail!(
            "{differing} of {} commands print something else; `cargo xtask tour --bless` writes it down",
            exchanges.len()
        );
    }
    Ok(())
}

/// A folder that is gone afterwards, with the examples in it and the binary in PATH.
struct Scratch {
    folder: tempfile::TempDir,
    path: String,
}

impl Scratch {
    /// `built` is the folder of the binary; `examples` are files below `root`.
    fn new(built: &Path, root: &Path, examples: impl Iterator<Item = String>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tour-").tempdir()?;
        let home = folder.path().join("home");
        fs::create_dir(&home)?;
        for file in examples {
            let to = home.join(&file);
            fs::create_dir_all(to.parent().unwrap_or(&home))?;
            fs::copy(root.join(&file), &to)?;
        }
        let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap_or_default());
        fs::write(folder.path().join("cwd"), format!("{}\n", home.display()))?;
        Ok(Self { folder, path })
    }

    /// The folder that the last command left.
    fn cwd(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(fs::read_to_string(self.folder.path().join("cwd"))?.trim_end_matches('\n')))
    }

    /// Runs one command where the last one ended, and answers what it printed on both streams.
    fn execute(&self, exchange: &Exchange) -> Result<String> {
        let command = exchange.command.replace(FROM_SOURCE, "dispatcher");
        let script = format!("exec 2>&1\n{command}\ntour_status=$?; pwd >\"$TOUR_CWD\"; exit \"$tour_status\"");
        let answer = Cmd::new("timeout", &self.cwd()?)
            .args(["--kill-after", "5", LIMIT_S, "bash", "-c", &script])
            .env("PATH", &self.path)
            .env("HOME", self.home())
            .env("TOUR_CWD", self.folder.path().join("cwd"))
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .capture()?;
        if !answer.status.success() {
            bail!(
                "{DOCUMENT}:{}: `{}` ended with {}:\n{}",
                exchange.line,
                exchange.command,
                answer.status,
                answer.stdout
            );
        }
        Ok(answer.stdout.replace(&format!("{}/", self.home().display()), ""))
    }

    fn home(&self) -> PathBuf {
        Path::new(self.folder.path()).join("home")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(scratch: &Scratch, command: &str) -> Result<String> {
        let text = format!("```console\n$ {}\n```\n", command.replace('\n', "\n> "));
        scratch.execute(&transcript::read(&text)?[0])
    }

    fn scratch(built: &Path) -> Scratch {
        let examples = ["examples/README.md".to_owned()].into_iter();
        Scratch::new(built, Workspace::find().unwrap().root(), examples).unwrap()
    }

    #[test]
    fn a_command_starts_where_the_last_one_ended_and_both_streams_are_its_answer() {
        let scratch = scratch(Path::new("/nowhere"));
        assert_eq!(print(&scratch, "cd examples\nls").unwrap(), "README.md\n");
        assert_eq!(
            print(&scratch, "echo out; echo err >&2; cat README.md | head -n 1").unwrap(),
            "out\nerr\n# Examples\n"
        );
        assert_eq!(print(&scratch, "echo \"$PWD/x\"").unwrap(), "examples/x\n");
    }

    #[test]
    fn the_call_from_source_is_answered_by_the_built_binary() {
        let built = tempfile::tempdir().unwrap();
        fs::write(built.path().join("dispatcher"), "#!/bin/sh\necho \"called with $*\"\n").unwrap();
        Cmd::new("chmod", built.path()).args(["+x", "dispatcher"]).quiet().run().unwrap();
        let printed = print(&scratch(built.path()), "cargo run --release -p dispatcher-bin -- run in").unwrap();
        assert_eq!(printed, "called with run in\n");
    }

    #[test]
    fn a_command_that_fails_fails_the_tour_with_what_it_printed() {
        let error = print(&scratch(Path::new("/nowhere")), "echo the reason; false").unwrap_err().to_string();
        assert!(error.contains("README.md:2") && error.contains("the reason"), "{error}");
    }
}
