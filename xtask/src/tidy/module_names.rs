//! A module is named for what it owns, never for being useful.

use super::Finding;
use super::tree::Tree;

const BANNED: [&str; 8] = ["manager", "managers", "helper", "helpers", "util", "utils", "misc", "stuff"];

/// A Rust file, folder or inline module with a name that says nothing.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let path = file.path.trim_end_matches(".rs");
        for name in path.split(['/', '_']).filter(|name| BANNED.contains(name)) {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("`{name}` says nothing: name the file for what it owns"),
            ));
        }
        for at in rust.find(&["mod"]) {
            let Some(name) = rust.tokens.get(at + 1) else { continue };
            if name.text.split('_').any(|part| BANNED.contains(&part)) {
                let what = format!("`mod {}` says nothing: name the module for what it owns", name.text);
                findings.push(Finding::new(&file.path, name.line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_nothing_are_found_in_paths_and_modules() {
        let tree = Tree::of(&[
            ("crates/core/src/utils.rs", ""),
            ("crates/core/src/lib.rs", "mod slot;\nmod test_helpers {}\n"),
            ("crates/core/src/slot.rs", "fn manager() {}\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("crates/core/src/utils.rs".into(), 1), ("crates/core/src/lib.rs".into(), 2)]);
    }
}
