//! The tree does not know the machine it was written on.

use super::Finding;
use super::tree::Tree;

const PLACES: [&str; 3] = ["/home/", "/root/", "/Users/"];

/// An absolute path of somebody's machine in any text of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files_but_checks() {
        for (index, line) in file.text.lines().enumerate() {
            for place in PLACES.iter().filter(|place| stands_at_a_start(line, place)) {
                findings.push(Finding::new(&file.path, index + 1, format!("`{place}` is a place on one machine only")));
            }
        }
    }
    findings
}

/// True where the place starts a path, and is not a part of a longer one.
fn stands_at_a_start(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(|before| before.is_alphanumeric() || "_-.}/".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found() {
        let tree = Tree::of(&[("docs/a.md", "cd /home/me\n"), ("crates/a/src/b.rs", "const P: &str = \"/root/x\";\n")]);
        assert_eq!(check(&tree).len(), 2);
    }

    #[test]
    fn a_folder_of_that_name_within_a_path_is_fine() {
        assert_eq!(check(&Tree::of(&[("docs/a.md", "out/work/a.txt, {dir}/home/b\n")])), []);
    }
}
