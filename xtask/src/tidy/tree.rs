//! The tree as the checks see it: text files, lexed Rust, packages and their dependencies.
//!
//! **Owns** reading and lexing, once for all checks. **Invariant**: paths are relative to the root, with forward slashes.

use std::collections::BTreeSet;

use anyhow::Result;

use super::rust::Rust;
use crate::workspace::{Package, Workspace};

/// One text file of the tree.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Everything that a check may look at.
#[derive(Default)]
pub(crate) struct Tree {
    files: Vec<File>,
    rust: Vec<(usize, Rust)>,
    unreadable: Vec<(usize, String)>,
    paths: BTreeSet<String>,
    pub(crate) packages: Vec<Package>,
}

impl Tree {
    /// Reads what git knows of the working folder, new files that are not ignored included.
    pub(crate) fn load(workspace: &Workspace) -> Result<Self> {
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        for path in workspace.files()? {
            // What is no text (an image, an archive) has no lines to check; it still exists for links.
            if let Ok(text) = std::fs::read_to_string(workspace.root().join(&path)) {
                files.push(File { path: path.clone(), text });
            }
            paths.insert(path);
        }
        let mut tree = Self::lex(files, paths);
        tree.packages = workspace.packages()?;
        Ok(tree)
    }

    fn lex(files: Vec<File>, paths: BTreeSet<String>) -> Self {
        let mut tree = Self { files, paths, ..Self::default() };
        for (index, file) in tree.files.iter().enumerate().filter(|(_, file)| file.path.ends_with(".rs")) {
            match Rust::parse(&file.path, &file.text) {
                Ok(rust) => tree.rust.push((index, rust)),
                Err(error) => tree.unreadable.push((index, error)),
            }
        }
        tree
    }

    /// A tree made of these files alone.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let files =
            files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        Self::lex(files, paths)
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Every text file.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Every text file, except the checks themselves, which have to spell out what they look for.
    pub(crate) fn files_but_checks(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| !is_check(&file.path))
    }

    /// Every Rust file with its tokens.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.rust.iter().map(|(index, rust)| (&self.files[*index], rust))
    }

    /// Every Rust file below `folder`, which ends with a slash.
    pub(crate) fn rust_in<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a File, &'a Rust)> {
        self.rust().filter(move |(file, _)| file.path.starts_with(folder))
    }

    /// The files that could not be lexed, with the reason.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unreadable.iter().map(|(index, error)| (self.files[*index].path.as_str(), error.as_str()))
    }

    /// True for a file of the tree and for a folder that has one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    }

    /// The text of a file of the tree.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}

fn is_check(path: &str) -> bool {
    path.starts_with("xtask/src/tidy/")
}
