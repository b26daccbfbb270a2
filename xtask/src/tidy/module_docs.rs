//! Every module opens with what it owns, in `//!` lines before its first code.

use super::Finding;
use super::tree::Tree;

/// A Rust file without an opening. A `tests.rs` beside its module is told by the module.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(file, _)| !file.path.ends_with("/tests.rs"))
        .filter(|(_, rust)| !rust.comments.iter().any(|comment| comment.inner_doc && !comment.text.is_empty()))
        .map(|(file, _)| {
            Finding::new(&file.path, 1, "opens without `//!`: say what the module owns and refuses to know")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_an_opening_is_found() {
        let tree = Tree::of(&[
            ("crates/core/src/a.rs", "// not a doc\n/// Doc of f.\nfn f() {}\n"),
            ("crates/core/src/b.rs", "//! Owns b.\nfn f() {}\n"),
            ("crates/core/src/b/tests.rs", "fn f() {}\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/core/src/a.rs"]);
    }
}
