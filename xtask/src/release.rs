//! A release: the binary, checked and packed, and the tag that names it.
//!
//! **Owns** what is packed and what must hold before. **Invariant**: a dry run changes nothing outside the target folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::Cmd;
use crate::workspace::Workspace;

const PACKAGE: &str = "dispatcher-bin";
const BINARY: &str = "dispatcher";

/// The feature that lets a test stop and kill the product from outside; no release may have it.
const TEST_HOOKS: &str = "test-hooks";

/// What is packed beside the binary.
const BESIDE: [&str; 6] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "docs", "examples"];

/// Builds, checks and packs under `target/dist`; without `dry_run` also tags HEAD.
///
/// # Errors
/// Fails when the release build has test hooks, the changelog lacks the version, or HEAD is not what would be tagged.
pub(crate) fn run(workspace: &Workspace, dry_run: bool) -> Result<()> {
    let version = version(workspace)?;
    let tag = format!("v{version}");
    let changes = fs::read_to_string(workspace.root().join("CHANGELOG.md"))?;
    if !has_section(&changes, &version) {
        bail!("CHANGELOG.md has no `## [{version}]`: write what is new for the people who use it");
    }
    without_test_hooks(workspace)?;
    workspace.cargo().args(["build", "--release", "-p", PACKAGE, "--locked"]).run()?;
    let archive = pack(workspace, &version)?;
    println!("\npacked and summed: {archive}, SHA256SUMS");
    let dirty = workspace.cmd("git").args(["status", "--porcelain"]).read()?;
    let head = workspace.cmd("git").args(["rev-parse", "--short", "HEAD"]).read()?;
    if !dirty.is_empty() {
        println!("the working folder has changes that are not committed; a release is refused until they are");
    }
    if dry_run {
        println!("dry run: would tag {} as {tag}; nothing was tagged, nothing leaves this machine", head.trim());
        return Ok(());
    }
    if !dirty.is_empty() {
        bail!("commit first: what is packed must be what is tagged");
    }
    workspace.cmd("git").args(["tag", "--annotate", &tag, "--message", &format!("Release {version}")]).run()?;
    println!("tagged {tag}; pushing it and publishing the archive is up to you");
    Ok(())
}

fn version(workspace: &Workspace) -> Result<String> {
    let packages = workspace.packages()?;
    let package = packages.into_iter().find(|package| package.name == PACKAGE);
    Ok(package.with_context(|| format!("the workspace has no {PACKAGE}"))?.version)
}

fn has_section(changes: &str, version: &str) -> bool {
    changes.lines().any(|line| line.starts_with(&format!("## [{version}]")) || line == format!("## {version}"))
}

/// Asks cargo which features the release build has.
fn without_test_hooks(workspace: &Workspace) -> Result<()> {
    let tree = workspace.cargo().args(["tree", "--locked", "-e", "normal,build,features", "-p", PACKAGE]).read()?;
    let hooks: Vec<&str> = tree.lines().filter(|line| line.contains(&format!("feature \"{TEST_HOOKS}\""))).collect();
    if !hooks.is_empty() {
        bail!("the release build has test hooks:\n{}", hooks.join("\n"));
    }
    println!("the release build is without `{TEST_HOOKS}`");
    Ok(())
}

/// Writes the archive and its checksums; answers the archive's path.
fn pack(workspace: &Workspace, version: &str) -> Result<String> {
    let target = workspace.target()?;
    let dist = target.join("dist");
    let host = workspace.cmd("rustc").args(["-vV"]).read()?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    let name = format!("{BINARY}-{version}-{host}");
    let folder = dist.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fs::copy(target.join("release").join(BINARY), folder.join(BINARY))?;
    for file in workspace.files()?.iter().filter(|file| is_packed(file)) {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::copy(workspace.root().join(file), to)?;
    }
    let archive = format!("{name}.tar.gz");
    // The same tree packs to the same bytes: names in order, no owner, no time.
    let stable =
        ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--use-compress-program=gzip -9n"];
    in_dist(&dist, "tar").args(stable).args(["-cf", &archive, &name]).run()?;
    let listed = in_dist(&dist, "tar").args(["-tf", &archive]).read()?;
    print!("{listed}");
    let sums = in_dist(&dist, "sha256sum").args([&archive]).read()?;
    print!("{sums}");
    fs::write(dist.join("SHA256SUMS"), sums)?;
    Ok(dist.join(archive).display().to_string())
}

fn in_dist(dist: &Path, program: &str) -> Cmd {
    Cmd::new(program, dist)
}

fn is_packed(file: &str) -> bool {
    BESIDE.iter().any(|name| file == *name || file.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_without_a_section_in_the_changelog_is_seen() {
        assert!(has_section("# Changelog\n\n## [0.1.0] - unreleased\n", "0.1.0"));
        assert!(!has_section("# Changelog\n\n## [0.1.0]\n", "0.2.0"));
    }

    #[test]
    fn documents_and_examples_are_packed_and_sources_are_not() {
        assert!(
            is_packed("README.md")
                && is_packed("docs/adr/0001-layers-and-pure-core.md")
                && is_packed("examples/papers/a.txt")
        );
        assert!(!is_packed("crates/core/src/lib.rs") && !is_packed("docsx/a.md"));
    }
}
