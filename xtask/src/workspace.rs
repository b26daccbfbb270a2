//! The workspace: its root, its files, its packages.
//!
//! **Owns** the questions to git and cargo about what is there. **Refuses to know** what the answers are for.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::Cmd;

/// The checked-out tree this tool was built from.
pub(crate) struct Workspace {
    root: PathBuf,
}

/// A package of the workspace and what it depends on.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a dependency table.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

impl Workspace {
    /// The folder above this package: of the tree cargo runs it in, or, run by hand, of the one it was built from.
    pub(crate) fn find() -> Result<Self> {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&package).parent().context("xtask lies in the root of a workspace")?;
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A program, to be run in the root.
    pub(crate) fn cmd(&self, program: &str) -> Cmd {
        Cmd::new(program, &self.root)
    }

    /// Cargo, to be run in the root.
    pub(crate) fn cargo(&self) -> Cmd {
        Cmd::cargo(&self.root)
    }

    /// Tracked files and new ones that are not ignored, sorted; what was deleted and not yet staged is left out.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let listed = self.cmd("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).read()?;
        let mut files: Vec<String> = listed
            .split('\0')
            .filter(|path| !path.is_empty() && self.root.join(path).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    fn metadata(&self) -> Result<Metadata> {
        let text = self.cargo().args(["metadata", "--no-deps", "--format-version", "1"]).read()?;
        serde_json::from_str(&text).context("cargo metadata answered something else than its own format 1")
    }

    /// The packages of the workspace.
    pub(crate) fn packages(&self) -> Result<Vec<Package>> {
        Ok(self.metadata()?.packages)
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target(&self) -> Result<PathBuf> {
        Ok(self.metadata()?.target_directory)
    }
}

#[cfg(test)]
impl Package {
    /// A package with these normal dependencies.
    pub(crate) fn of(name: &str, dependencies: &[&str]) -> Self {
        let dependencies =
            dependencies.iter().map(|name| Dependency { name: (*name).to_owned(), kind: None }).collect();
        Self {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: format!("{name}/Cargo.toml"),
            dependencies,
        }
    }
}
