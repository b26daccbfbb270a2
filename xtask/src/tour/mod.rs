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
    let scratch = Scratch::new(workspace)?;
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
    fn new(workspace: &Workspace) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tour-").tempdir()?;
        let home = folder.path().join("home");
        fs::create_dir(&home)?;
        for file in workspace.files()?.iter().filter(|file| file.starts_with("examples/")) {
            let to = home.join(file);
            fs::create_dir_all(to.parent().unwrap_or(&home))?;
            fs::copy(workspace.root().join(file), &to)?;
        }
        let built = workspace.target()?.join("debug");
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
