//! A file is short enough to be read in one go.

use super::Finding;
use super::tree::Tree;

/// The longest a Rust file may be, in lines.
const LONGEST: usize = 700;

/// A Rust file with more lines than anybody reads.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .map(|(file, _)| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(file, lines)| {
            let what = format!("{lines} lines, more than {LONGEST}: split it by what it owns, or move its tests out");
            Finding::new(&file.path, lines, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_bound_is_found_and_one_at_it_is_not() {
        let at = "// line\n".repeat(LONGEST);
        let above = "// line\n".repeat(LONGEST + 1);
        let tree = Tree::of(&[("crates/a/src/at.rs", &at), ("crates/a/src/above.rs", &above)]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/a/src/above.rs"]);
    }
}
