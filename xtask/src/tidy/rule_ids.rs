//! Every rule of `docs/rules.md` is proved by a test that cites it.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;

const RULES: &str = "docs/rules.md";

/// Rules nobody cites, and citations of rules that do not exist.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(RULES) else { return Vec::new() };
    let rules: BTreeMap<String, usize> = listed(text).collect();
    let mut cited: BTreeSet<String> = BTreeSet::new();
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_in("crates/") {
        for comment in rust.comments.iter().filter(|comment| rust.is_test(comment.line)) {
            for id in citations(&comment.text) {
                if !rules.contains_key(&id) {
                    findings.push(Finding::new(&file.path, comment.line, format!("{RULES} has no rule {id}")));
                }
                cited.insert(id);
            }
        }
    }
    for (id, line) in &rules {
        if !cited.contains(id) {
            let what = format!("no test cites rule {id}: `// Rule {id}.` belongs above the one that proves it");
            findings.push(Finding::new(RULES, *line, what));
        }
    }
    findings
}

/// The ids of the list, with their lines: an entry starts with `- **L1**`.
fn listed(text: &str) -> impl Iterator<Item = (String, usize)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let id = line.strip_prefix("- **")?.split("**").next()?;
        is_id(id).then(|| (id.to_owned(), index + 1))
    })
}

/// The ids in a comment after `Rule` or `Rules`.
fn citations(comment: &str) -> Vec<String> {
    let mut words = comment.split(|c: char| !c.is_alphanumeric());
    if words.by_ref().any(|word| word == "Rule" || word == "Rules") {
        words.filter(|word| is_id(word)).map(str::to_owned).collect()
    } else {
        Vec::new()
    }
}

fn is_id(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|letter| "LCRXDSAGW".contains(letter))
        && chars.as_str().parse::<u8>().is_ok_and(|number| number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "## L\n- **L1** The clock.\n- **L2** On record.\n";

    fn found(test: &str) -> Vec<String> {
        let tree = Tree::of(&[(RULES, LIST), ("crates/core/tests/it.rs", test)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_rule_that_no_test_cites_is_found() {
        let found = found("// Rules L1, F14.\nfn a() {}\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("no test cites rule L2"));
    }

    #[test]
    fn a_citation_outside_a_test_does_not_count() {
        let tree =
            Tree::of(&[(RULES, "- **L1** The clock.\n"), ("crates/core/src/slot.rs", "// Rule L1.\nfn a() {}\n")]);
        assert!(check(&tree).iter().any(|finding| finding.what.contains("no test cites rule L1")));
    }

    #[test]
    fn a_citation_of_a_rule_that_does_not_exist_is_found() {
        let found = found("// Rules L1, L2, C99.\nfn a() {}\n");
        assert_eq!(found, ["docs/rules.md has no rule C99"]);
    }
}
