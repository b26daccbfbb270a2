//! The programs of this tree, each driven as far as it has to go; and the Python that runs some of them.

use anyhow::{Context, Result, bail};

use super::{Level, Options, Wire};
use crate::process::Cmd;
use crate::workspace::Workspace;

/// What `dispatcher worker` runs for each task of a check.
const SCRIPT: &str = r#"f={input}; out={output}; first=$(head -c 4096 "$f" | head -n 1 | tr -d '\0')
case "$first" in
  retry:*) exit 75 ;;
  wait:*) gate=${first#wait:}; while [ ! -e "$gate" ] && [ -d "${gate%/*}" ]; do sleep 0.02; done ;;
esac
cat "$f" > "$out""#;

/// How long anything may take where other work may slow the machine down, in seconds.
const PATIENCE_S: u64 = 60;

/// Drives every program of this tree.
///
/// # Errors
/// Fails when one of them does not conform, or no Python with pyzmq is here.
pub(crate) fn own(workspace: &Workspace) -> Result<()> {
    let python = python(workspace)?;
    let client = |name: &str| workspace.root().join("clients/python").join(name).display().to_string();
    let worker = workspace.target()?.join("debug/dispatcher");
    if !worker.is_file() {
        workspace.cargo().args(["build", "-p", "dispatcher-bin", "--locked"]).run()?;
    }
    let own = [&worker.display().to_string(), "worker", "--shell", "--exec", SCRIPT].map(str::to_owned);
    let programs = [
        ("clients/python/worker.py", Wire::V1, Level::Full, vec![python.clone(), client("worker.py")]),
        ("clients/python/legacy_worker.py", Wire::Legacy, Level::Basic, vec![python, client("legacy_worker.py")]),
        ("dispatcher worker --exec", Wire::V1, Level::Full, own.to_vec()),
    ];
    let mut failed = Vec::new();
    for (name, wire, level, command) in programs {
        println!("-- {name}");
        let options = Options { wire, level, command, only: None, patience: PATIENCE_S, json: false };
        if let Err(error) = super::run(workspace, &options) {
            println!("{error:#}");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{} of this tree does not conform", failed.join(", ")) }
}

/// A Python that has pyzmq: `DISPATCHER_PYTHON`, the first one in the path, or that of the system.
///
/// # Errors
/// Fails with what to install where there is none.
pub(crate) fn python(workspace: &Workspace) -> Result<String> {
    let chosen = std::env::var("DISPATCHER_PYTHON").ok().filter(|path| !path.is_empty());
    let candidates =
        chosen.clone().map_or_else(|| vec!["python3".to_owned(), "/usr/bin/python3".to_owned()], |one| vec![one]);
    for candidate in &candidates {
        if has_zmq(workspace.cmd(candidate)) {
            return Ok(candidate.clone());
        }
    }
    let tried = candidates.join(", ");
    Err(anyhow::anyhow!("`import zmq` fails in {tried}"))
        .context("no Python with pyzmq: install python3-zmq, or name one that has it in DISPATCHER_PYTHON")
}

fn has_zmq(python: Cmd) -> bool {
    python.args(["-c", "import zmq"]).capture().is_ok_and(|captured| captured.status.success())
}
