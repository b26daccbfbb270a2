//! Links between documents lead somewhere: relative links in Markdown, their anchors, and `docs/….md` in code.

use std::collections::BTreeSet;

use regex_lite::Regex;

use super::Finding;
use super::tree::{File, Tree};

/// A link to a file that is not there, or to a heading that its document does not have.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        if file.path.ends_with(".md") {
            markdown(tree, file, &mut findings);
        } else if file.path.ends_with(".rs") || file.path.ends_with(".toml") || file.path.ends_with(".yml") {
            mentions(tree, file, &mut findings);
        }
    }
    findings
}

fn markdown(tree: &Tree, file: &File, findings: &mut Vec<Finding>) {
    let link = regex(r"\]\(([^()\s]+)\)");
    for (line, text) in prose(&file.text) {
        for target in link.captures_iter(&text).filter_map(|found| found.get(1)).map(|found| found.as_str()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            if !tree.exists(&path) {
                findings.push(Finding::new(&file.path, line, format!("link to `{target}` leads nowhere")));
            } else if !anchor.is_empty() && !has_anchor(tree, &path, anchor) {
                findings.push(Finding::new(&file.path, line, format!("`{path}` has no heading for `#{anchor}`")));
            }
        }
    }
}

fn mentions(tree: &Tree, file: &File, findings: &mut Vec<Finding>) {
    if file.path.starts_with("xtask/src/tidy/") {
        return;
    }
    let mention = regex(r"\bdocs/[A-Za-z0-9_./-]+\.md\b");
    for (index, text) in file.text.lines().enumerate() {
        for found in mention.find_iter(text).filter(|found| !tree.exists(found.as_str())) {
            findings.push(Finding::new(&file.path, index + 1, format!("`{}` does not exist", found.as_str())));
        }
    }
}

/// The lines of a document outside its code blocks, with code spans blanked, numbered from 1.
fn prose(text: &str) -> Vec<(usize, String)> {
    let span = regex(r"`[^`]*`");
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // A link text may be code: only the span goes, the brackets around it stay.
            lines.push((index + 1, span.replace_all(line, "").into_owned()));
        }
    }
    lines
}

/// A relative target as a path from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn has_anchor(tree: &Tree, path: &str, anchor: &str) -> bool {
    let Some(text) = tree.text(path) else { return true };
    let slugs: BTreeSet<String> = headings(text).map(|heading| slug(&heading)).collect();
    !path.ends_with(".md") || slugs.contains(anchor) || text.contains(&format!("id=\"{anchor}\""))
}

fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with('#') {
            found.push(line.trim_start_matches('#').trim().to_owned());
        }
    }
    found.into_iter()
}

/// A heading as the anchor that code hosts make of it.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[expect(clippy::expect_used, reason = "the patterns are constants of this file and its tests run them")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_found() {
        let tree = Tree::of(&[
            ("README.md", "See [a](docs/a.md), [b](docs/b.md), [c](docs/a.md#two-words) and [d](docs/a.md#three).\n"),
            ("docs/a.md", "# A\n## Two words\n[up](../README.md) [gone](../GONE.md)\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("docs/b.md") && found[1].contains("#three") && found[2].contains("GONE.md"));
    }

    #[test]
    fn addresses_code_blocks_and_folders_are_left_alone() {
        let tree = Tree::of(&[
            ("README.md", "[a](https://example.org/x) [adr](docs/adr)\n```\n[b](nowhere.md)\n```\n`[c](nowhere.md)`\n"),
            ("docs/adr/0001-a.md", "# A\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_document_named_in_code_must_exist() {
        let tree = Tree::of(&[("crates/core/src/lib.rs", "//! Read `docs/states.md`.\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
