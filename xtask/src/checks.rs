//! The checks of this workspace as steps: `lint`, `test`, and `ci`, which is all of them.
//!
//! **Owns** which checks there are and in what order. **Invariant**: `ci` is what the hosted checks run, nothing beside it.

use anyhow::{Context, Result, bail};

use crate::plan::{Note, Plan};
use crate::tools::{DENY, NEXTEST};
use crate::workspace::Workspace;
use crate::{conformance, mutants, tidy, tour};

/// Everything, cheapest first. Ends with a line that counts the tests.
pub(crate) fn ci(workspace: &Workspace) -> Result<()> {
    // Here a Python without pyzmq is a failure; the tests that need one skip themselves where nobody insists.
    let python = conformance::python(workspace)?;
    let mut counted = None;
    let outcome = Plan::default()
        .plain("fmt", || fmt(workspace))
        .plain("tidy", || tidy::run(workspace))
        .plain("patches", || mutants::check_patches(workspace))
        .step("deny", || deny(workspace))
        .plain("clippy", || clippy(workspace))
        .plain("build", || build(workspace))
        .step("nextest", || nextest(workspace, false, &[], Some(&python), &mut counted))
        .plain("conformance", || conformance::own(workspace))
        .plain("doctests", || doctests(workspace))
        .plain("docs", || docs(workspace))
        .plain("tour", || tour::run(workspace, false))
        .run();
    if let Some(summary) = counted {
        println!("\ntests: {summary}");
    }
    outcome
}

/// The checks that run no product code.
pub(crate) fn lint(workspace: &Workspace) -> Result<()> {
    Plan::default()
        .plain("fmt", || fmt(workspace))
        .plain("tidy", || tidy::run(workspace))
        .plain("clippy", || clippy(workspace))
        .step("deny", || deny(workspace))
        .keep_going()
        .run()
}

/// The tests: short or whole, all of them or those that nextest's own `filter` names.
pub(crate) fn test(workspace: &Workspace, full: bool, filter: &[String]) -> Result<()> {
    let plan = Plan::default().step("nextest", || nextest(workspace, full, filter, None, &mut None));
    if filter.is_empty() { plan.plain("doctests", || doctests(workspace)).run() } else { plan.run() }
}

fn fmt(workspace: &Workspace) -> Result<()> {
    workspace.cargo().args(["fmt", "--all", "--check"]).run().context("`cargo fmt --all` mends it")
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let lint = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    workspace.cargo().args(lint).run()
}

/// Licences, bans and sources always; advisories where their database can be fetched.
fn deny(workspace: &Workspace) -> Result<Note> {
    DENY.ensure(workspace)?;
    workspace.cargo().args(["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]).run()?;
    // A network that swallows packets must not hold up everything else.
    let fetched =
        workspace.cmd("timeout").args(["60", "cargo", "deny", "--log-level", "error", "fetch", "db"]).capture()?;
    if fetched.status.success() {
        workspace.cargo().args(["deny", "--log-level", "error", "check", "--disable-fetch", "advisories"]).run()?;
        return Ok(Some("licences, bans, sources, advisories".to_owned()));
    }
    println!(
        "advisories skipped: {}",
        fetched.stderr.lines().rfind(|line| !line.is_empty()).unwrap_or("the fetch took more than a minute")
    );
    Ok(Some("advisories SKIPPED: their database cannot be fetched from here".to_owned()))
}

fn build(workspace: &Workspace) -> Result<()> {
    workspace.cargo().args(["build", "--workspace", "--locked"]).run()
}

fn doctests(workspace: &Workspace) -> Result<()> {
    workspace.cargo().args(["test", "--doc", "--workspace", "--all-features", "--locked"]).run()
}

fn docs(workspace: &Workspace) -> Result<()> {
    let doc = ["doc", "--workspace", "--no-deps", "--all-features", "--document-private-items", "--locked"];
    workspace.cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings").run()
}

/// How many tests did what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summary {
    passed: u64,
    /// Of these, how many passed at the second try only.
    flaky: u64,
    failed: u64,
    skipped: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, flaky, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")?;
        if *flaky > 0 {
            write!(f, "; FLAKY {flaky}: passed at the second try only, see above and mend")?;
        }
        Ok(())
    }
}

/// Runs the tests; `counted` tells afterwards how many did what, whether they passed or not.
/// Tests that need a Python insist on `python`, where it is given.
fn nextest(
    workspace: &Workspace,
    full: bool,
    filter: &[String],
    python: Option<&str>,
    counted: &mut Option<Summary>,
) -> Result<Note> {
    NEXTEST.ensure(workspace)?;
    let flags = ["nextest", "run", "--profile", "ci", "--all-features", "--locked", "--color", "never"];
    let mut run = workspace.cargo().args(flags).args(filter);
    if !filter.iter().any(|arg| arg == "-p" || arg.starts_with("--package")) {
        run = run.args(["--workspace"]);
    }
    if full {
        run = run.env("DISPATCHER_FULL", "1");
    }
    if let Some(python) = python {
        run = run.env("DISPATCHER_PYTHON", python);
    }
    let (status, said) = run.status_and_stderr()?;
    *counted = said.lines().rev().find_map(summary);
    match (status.success(), counted) {
        (true, Some(summary)) => Ok(Some(summary.to_string())),
        (true, None) => bail!("nextest passed without its summary line"),
        (false, Some(summary)) => bail!("nextest: {summary}"),
        (false, None) => bail!("nextest ended with {status} before it ran the tests"),
    }
}

/// Reads nextest's closing line: `Summary [ 1.2s] 12 tests run: 11 passed (1 slow), 1 failed, 2 skipped`.
fn summary(line: &str) -> Option<Summary> {
    let (_, counts) = line.trim_start().strip_prefix("Summary [")?.split_once("run: ")?;
    let mut summary = Summary { passed: 0, flaky: 0, failed: 0, skipped: 0 };
    // What is in brackets tells of those that passed.
    for part in counts.split([',', '(']) {
        let mut words = part.split_whitespace();
        let count = words.next()?.parse::<u64>().ok()?;
        match words.next()?.trim_end_matches(')') {
            "passed" => summary.passed = count,
            "flaky" => summary.flaky = count,
            "skipped" => summary.skipped = count,
            // A test that ran into its time limit, or leaked a process, has failed.
            "failed" | "timed" | "exec" => summary.failed += count,
            _ => {}
        }
    }
    Some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_the_runner_is_read() {
        let line = "     Summary [   2.034s] 14 tests run: 11 passed (1 slow), 2 failed, 1 timed out, 3 skipped";
        assert_eq!(summary(line), Some(Summary { passed: 11, flaky: 0, failed: 3, skipped: 3 }));
        for brackets in ["(1 slow, 2 flaky)", "(2 flaky)", "(2 flaky, 1 leaky)"] {
            let line = format!("     Summary [   2.034s] 11 tests run: 11 passed {brackets}, 0 skipped");
            assert_eq!(summary(&line), Some(Summary { passed: 11, flaky: 2, failed: 0, skipped: 0 }), "{brackets}");
        }
        let line = "     Summary [   0.134s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(summary(line).map(|s| s.to_string()).as_deref(), Some("1 passed, 0 failed, 0 skipped"));
        assert_eq!(summary("        PASS [   0.1s] a b"), None);
    }
}
