//! This tree against another commit: two builds, measured in turns, so that a slow minute of the machine hits both.
//!
//! **Owns** the checkout and build of the other commit, in a folder of its own below the target folder, and the table of
//! ratios. **Refuses to know** which of the two is better.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::pipeline::{Place, Programs};
use super::{Figure, processes, spread};
use crate::process::Cmd;
use crate::workspace::Workspace;

/// Rounds of each measurement.
const ROUNDS: usize = 7;

/// One thing that is measured of both: a rate, higher is better.
struct Measurement {
    name: &'static str,
    of: fn(&Programs, &Path) -> Result<f64>,
}

/// Measures both and answers the ratio of each rate: above 100 % this tree is faster.
pub(super) fn measure(workspace: &Workspace, reference: &str, quick: bool) -> Result<Vec<Figure>> {
    let ours = Programs::build(workspace)?;
    let theirs = build(workspace, reference)?;
    let rounds = if quick { 1 } else { ROUNDS };
    let measurements = [
        Measurement { name: "run --exec true", of: run },
        Measurement { name: "serve, 0 KB, 4 workers", of: |programs, _| serve(programs, 0, 4) },
        Measurement { name: "serve, 8 KB, 16 workers", of: |programs, _| serve(programs, 8 * 1024, 16) },
    ];
    let scratch = tempfile::Builder::new().prefix("compare-").tempdir()?;
    let inputs = scratch.path().join("in");
    processes::generate(&inputs, 2_000)?;
    let mut figures = Vec::new();
    for Measurement { name, of } in measurements {
        let (mut new, mut old, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // Who goes first changes, so that what the first leaves behind hits both.
            let (a, b) = if round % 2 == 0 { (&ours, &theirs) } else { (&theirs, &ours) };
            let (first, second) = (of(a, &inputs)?, of(b, &inputs)?);
            let (mine, other) = if round % 2 == 0 { (first, second) } else { (second, first) };
            new.push(mine);
            old.push(other);
            ratios.push(mine / other * 100.0);
        }
        figures.extend(spread(&format!("{name}: here"), "tasks/s", &new));
        figures.extend(spread(&format!("{name}: {reference}"), "tasks/s", &old));
        figures.extend(spread(&format!("{name}: here / {reference}"), "%", &ratios));
    }
    Ok(figures)
}

fn run(programs: &Programs, inputs: &Path) -> Result<f64> {
    let out = tempfile::Builder::new().prefix("compare-").tempdir()?;
    let (seconds, _) = processes::dispatcher(programs.dispatcher(), inputs, &out.path().join("out"))?;
    Ok(2_000.0 / seconds)
}

fn serve(programs: &Programs, size: u64, workers: u32) -> Result<f64> {
    Ok(Place::new(programs, size, 5_000)?.rate("omq", "none", workers)?.0)
}

/// Builds the programs of another commit, in a checkout of its own.
fn build(workspace: &Workspace, reference: &str) -> Result<Programs> {
    let folder = workspace.target()?.join("compare");
    let (tree, target) = (folder.join("tree"), folder.join("target"));
    remove(workspace, &tree);
    let tree_name = tree.to_str().context("the target folder's path is not UTF-8")?;
    workspace.cmd("git").args(["worktree", "add", "--force", "--detach", tree_name, reference]).onto_stderr().run()?;
    let built = build_in(&tree, &target);
    remove(workspace, &tree);
    built
}

fn build_in(tree: &Path, target: &PathBuf) -> Result<Programs> {
    for args in [["-p", "dispatcher-bin", "--bins"], ["-p", "dispatcher-transport", "--examples"]] {
        let cargo = Cmd::cargo(tree).args(["build", "--release", "--locked"]).args(args);
        cargo.env("CARGO_TARGET_DIR", target).onto_stderr().run()?;
    }
    Ok(Programs::in_target(&target.join("release")))
}

/// A checkout that an earlier comparison left is in the way; none is fine.
fn remove(workspace: &Workspace, tree: &Path) {
    if let Some(tree) = tree.to_str().filter(|_| tree.exists()) {
        let _ = workspace.cmd("git").args(["worktree", "remove", "--force", tree]).run();
    }
}
