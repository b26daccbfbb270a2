//! What the tree must look like: checks that the compiler and clippy cannot make.
//!
//! **Owns** the tree as the checks see it, and the list of checks; each check is a file of its own here. **Refuses to
//! know** how the tree came to be: a check takes a [`Tree`] and answers findings, so that its test can plant one.

mod arrows;
mod comments;
mod doc_links;
mod guards_across_await;
mod length;
mod machine_paths;
mod markers;
mod module_docs;
mod module_names;
mod purity;
mod rule_ids;
mod rust;
mod sleeping;
mod sockets;
mod tree;

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use tree::Tree;

/// One thing that is wrong in the tree, and what would mend it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [(&str, Check); 14] = [
    ("arrows", arrows::check),
    ("purity", purity::check),
    ("sockets", sockets::check),
    ("doc-links", doc_links::check),
    ("rule-ids", rule_ids::check),
    ("markers", markers::check),
    ("sleeping", sleeping::check),
    ("comments", comments::check),
    ("machine-paths", machine_paths::check),
    ("module-names", module_names::check),
    ("module-docs", module_docs::check),
    ("length", length::check),
    ("guards-across-await", guards_across_await::check),
    ("lexed", lexed),
];

/// Runs every check on the tree in the working folder.
///
/// # Errors
/// Fails when a check found something; each finding is printed as `path:line: [check] what`.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tree = Tree::load(workspace)?;
    let mut count = 0_usize;
    for (name, check) in CHECKS {
        let mut findings = check(&tree);
        findings.sort();
        for Finding { path, line, what } in &findings {
            println!("{path}:{line}: [{name}] {what}");
        }
        count += findings.len();
    }
    if count > 0 {
        bail!("{count} finding(s); each line above says where and what to do");
    }
    println!("tidy: {} checks over {} files found nothing", CHECKS.len(), tree.len());
    Ok(())
}

/// A Rust file that cannot be lexed would be invisible to every other check.
fn lexed(tree: &Tree) -> Vec<Finding> {
    tree.unreadable().map(|(path, error)| Finding::new(path, 1, format!("cannot be read as Rust: {error}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_rust_is_a_finding_of_its_own() {
        let tree = Tree::of(&[("crates/core/src/lib.rs", "fn f( {")]);
        assert_eq!(lexed(&tree).len(), 1);
    }
}
