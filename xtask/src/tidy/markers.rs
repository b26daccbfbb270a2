//! Nothing is left for later: no markers, no stubs, no ignored tests.

use super::Finding;
use super::rust::TokenKind;
use super::tree::Tree;

const MARKERS: [&str; 3] = ["TODO", "FIXME", "XXX"];
const STUBS: [&str; 2] = ["todo", "unimplemented"];

/// Markers in any text, stubs and `#[ignore]` in Rust.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files_but_checks().filter(|file| !file.path.ends_with(".lock")) {
        for (index, line) in file.text.lines().enumerate() {
            for marker in line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| MARKERS.contains(word)) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("`{marker}`: do it, or put it on record elsewhere"),
                ));
            }
        }
    }
    for (file, rust) in tree.rust() {
        for (index, token) in rust.tokens.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Word) {
            let next = rust.tokens.get(index + 1).map(|next| next.text.as_str());
            if next == Some("!") && STUBS.contains(&token.text.as_str()) {
                findings.push(Finding::new(&file.path, token.line, format!("`{}!`: a stub must not stay", token.text)));
            }
        }
        for at in rust.find(&["#", "[", "ignore"]) {
            let what = "an ignored test proves nothing: make it short, or run it whole under DISPATCHER_FULL";
            findings.push(Finding::new(&file.path, rust.tokens[at].line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_stubs_and_ignored_tests_are_found() {
        let text = "// TODO later\nfn f() { todo!() }\n#[ignore]\nfn t() {}\n#[ignore = \"slow\"]\nfn u() {}\n";
        let lines: Vec<_> = check(&Tree::of(&[("crates/core/src/a.rs", text)])).iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 2, 3, 5]);
    }

    #[test]
    fn a_word_that_only_contains_a_marker_is_fine() {
        assert_eq!(check(&Tree::of(&[("docs/a.md", "mktemp XXXXXX, TODOs\n")])), []);
    }
}
