//! No map guard lives across an await: a file that touches a concurrent map does not await.
//!
//! Clippy knows the guard types by name (`clippy.toml`) and finds a guard that is alive at an await. This check is coarser
//! and cannot be got round by a type it does not know: whoever owns the map offers functions that return values, and the
//! async code lives elsewhere.

use super::Finding;
use super::tree::Tree;

const MAPS: [&str; 2] = ["DashMap", "DashSet"];

/// An `.await` in product code of a file that names a concurrent map.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        if !rust.tokens.iter().any(|token| MAPS.contains(&token.text.as_str())) {
            continue;
        }
        let lines = rust.find(&[".", "await"]).map(|at| rust.tokens[at].line);
        for line in lines.filter(|line| !rust.is_test(*line)) {
            let what =
                "await in a file that holds a concurrent map: a guard alive here blocks its shard; move one of the two";
            findings.push(Finding::new(&file.path, line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // Case F67: the source is checked for guards that live across an await.
    fn a_guard_that_lives_across_an_await_is_found() {
        let text =
            "use dashmap::DashMap;\nasync fn f(m: &DashMap<u8, u8>) {\n    let g = m.get(&1);\n    h().await;\n}\n";
        let found = check(&Tree::of(&[("crates/server/src/a.rs", text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn an_await_away_from_the_map_is_fine() {
        let text = "async fn f() {\n    h().await;\n}\n";
        assert_eq!(check(&Tree::of(&[("crates/server/src/a.rs", text)])), []);
    }
}
