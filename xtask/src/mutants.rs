//! Faults made on purpose: a test that does not fail with the product broken proves nothing.
//!
//! **Owns** the patches under `mutants/`, the scratch worktree in which one at a time is applied, and the verdict.
//! **Invariant**: the working folder is never touched.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::Cmd;
use crate::tools::NEXTEST;
use crate::workspace::Workspace;

const FOLDER: &str = "mutants";

/// What nextest answers when tests ran and some failed; other codes mean that they did not run.
const TESTS_FAILED: i32 = 100;

/// One patch with what its opening lines say.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    /// The rules it breaks.
    rule: String,
    /// What it does to the product.
    breaks: String,
    /// Arguments for nextest: a package and a filter.
    test: Vec<String>,
}

/// Checks that every patch can be read and still applies to the working folder; compiles nothing.
pub(crate) fn check_patches(workspace: &Workspace) -> Result<()> {
    let mutants = load(workspace, None)?;
    for mutant in &mutants {
        let check = workspace.cmd("git").args(["apply", "--check"]).args([path_of(mutant)]).quiet().read();
        check.with_context(|| format!("{} no longer applies: make it anew", mutant.name))?;
    }
    println!("{} patches apply", mutants.len());
    Ok(())
}

/// Applies each patch whose name contains `name`, runs the test it names, and demands that it fails.
///
/// # Errors
/// Fails when a patch does not apply or compile, or when its test passes with it or fails without it.
pub(crate) fn run(workspace: &Workspace, name: Option<&str>) -> Result<()> {
    let mutants = load(workspace, name)?;
    if mutants.is_empty() {
        bail!("no patch in {FOLDER}/ matches; its files are named after what they break");
    }
    NEXTEST.ensure(workspace)?;
    let tree = ScratchTree::new(workspace)?;
    let mut rows = Vec::with_capacity(mutants.len());
    for mutant in &mutants {
        println!("\n== {} (rule {}): {}", mutant.name, mutant.rule, mutant.breaks);
        rows.push((mutant, tree.judge(mutant)?));
    }
    println!("\n{:<36} {:<10} {:<32} test", "patch", "rule", "verdict");
    for (mutant, verdict) in &rows {
        let said = verdict.as_ref().map_or_else(String::clone, |()| "caught".to_owned());
        println!("{:<36} {:<10} {said:<32} {}", mutant.name, mutant.rule, mutant.test.join(" "));
    }
    let missed = rows.iter().filter(|(_, verdict)| verdict.is_err()).count();
    if missed > 0 {
        bail!("{missed} of {} patches were not caught", rows.len());
    }
    println!("{} of {} patches were caught", rows.len(), rows.len());
    Ok(())
}

fn path_of(mutant: &Mutant) -> PathBuf {
    Path::new(FOLDER).join(format!("{}.patch", mutant.name))
}

fn load(workspace: &Workspace, name: Option<&str>) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for path in workspace.files()? {
        let Some(stem) = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')?.strip_suffix(".patch"))
        else {
            continue;
        };
        if name.is_none_or(|name| stem.contains(name)) {
            let text = fs::read_to_string(workspace.root().join(&path))?;
            mutants.push(parse(stem, &text).with_context(|| format!("{path} cannot be read"))?);
        }
    }
    Ok(mutants)
}

/// Reads the opening lines of a patch; git ignores them.
fn parse(name: &str, text: &str) -> Result<Mutant> {
    let field = |key: &str| {
        let line = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .find_map(|line| line.trim_start_matches('#').trim().strip_prefix(key)?.strip_prefix(':'));
        let value = line.map(str::trim).filter(|value| !value.is_empty());
        value.map(str::to_owned).with_context(|| format!("it opens without `# {key}: …`"))
    };
    let test: Vec<String> = field("test")?.split_whitespace().map(str::to_owned).collect();
    if test.first().is_none_or(|first| first != "-p") || test.len() < 3 {
        bail!("`# test:` must be `-p package filter`, so that the test that catches it is known");
    }
    Ok(Mutant { name: name.to_owned(), rule: field("rule")?, breaks: field("breaks")?, test })
}

/// A worktree of HEAD that is gone afterwards. It shares the target folder, so dependencies are not built again.
struct ScratchTree<'a> {
    workspace: &'a Workspace,
    folder: tempfile::TempDir,
    target: PathBuf,
}

impl<'a> ScratchTree<'a> {
    fn new(workspace: &'a Workspace) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("mutants-").tempdir()?;
        let tree = Self { workspace, target: workspace.target()?, folder };
        let add = workspace.cmd("git").args(["worktree", "add", "--quiet", "--force", "--detach"]);
        add.args([tree.path().as_os_str(), "HEAD".as_ref()]).quiet().run()?;
        Ok(tree)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn git(&self, args: &[&str]) -> Cmd {
        Cmd::new("git", &self.path()).args(args).quiet()
    }

    fn nextest(&self, mutant: &Mutant, more: &[&str]) -> Cmd {
        let run =
            ["nextest", "run", "--profile", "ci", "--all-features", "--locked", "--no-tests", "fail", "--retries", "0"];
        Cmd::cargo(&self.path()).args(run).args(more).args(&mutant.test).env("CARGO_TARGET_DIR", &self.target)
    }

    /// `Ok(Ok(()))` when the mutant is caught, `Ok(Err(why))` when it is not.
    fn judge(&self, mutant: &Mutant) -> Result<std::result::Result<(), String>> {
        if !self.nextest(mutant, &[]).status()?.success() {
            return Ok(Err("the test fails without it".to_owned()));
        }
        let patch = self.workspace.root().join(path_of(mutant));
        if !self.git(&["apply"]).args([&patch]).status()?.success() {
            return Ok(Err("does not apply".to_owned()));
        }
        let verdict = self.judge_applied(mutant);
        self.git(&["checkout", "--quiet", "--", "."]).run()?;
        self.git(&["clean", "--quiet", "-fd"]).run()?;
        verdict
    }

    fn judge_applied(&self, mutant: &Mutant) -> Result<std::result::Result<(), String>> {
        if !self.nextest(mutant, &["--no-run"]).status()?.success() {
            return Ok(Err("does not compile".to_owned()));
        }
        Ok(match self.nextest(mutant, &[]).status()?.code() {
            Some(TESTS_FAILED) => Ok(()),
            Some(0) => Err("NOT CAUGHT: the test passes".to_owned()),
            code => Err(format!("the test did not run ({code:?})")),
        })
    }
}

impl Drop for ScratchTree<'_> {
    fn drop(&mut self) {
        let remove = self.workspace.cmd("git").args(["worktree", "remove", "--force"]).args([self.path()]);
        if let Err(error) = remove.quiet().run() {
            eprintln!("{error:#}; `git worktree prune` tidies up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "# rule: C5\n# breaks: a failure beats a usable result\n# test: -p dispatcher-core good_wins\n\
                         diff --git a/x b/x\n# rule: not this\n";

    #[test]
    fn the_opening_lines_of_a_patch_say_what_it_breaks_and_who_catches_it() {
        let mutant = parse("failure-wins", PATCH).unwrap();
        assert_eq!(mutant.rule, "C5");
        assert_eq!(mutant.breaks, "a failure beats a usable result");
        assert_eq!(mutant.test, ["-p", "dispatcher-core", "good_wins"]);
        assert_eq!(path_of(&mutant), Path::new("mutants/failure-wins.patch"));
    }

    #[test]
    fn a_patch_without_a_rule_or_a_named_test_is_refused() {
        assert!(parse("x", &PATCH.replace("# rule: C5\n", "")).is_err());
        assert!(parse("x", &PATCH.replace(" good_wins", "")).is_err());
        assert!(parse("x", "diff --git a/x b/x\n").is_err());
    }
}
