//! Comments speak of what is: no ticket numbers, no dates.

use regex_lite::Regex;

use super::Finding;
use super::tree::Tree;

/// A ticket number or a date in a comment of a Rust, TOML, YAML, SQL or shell file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Ok(ticket) = Regex::new(r"(?i)(^|[\s(])#[0-9]+\b|\b(issue|ticket|pull request|PR)s? #?[0-9]+\b") else {
        return Vec::new();
    };
    let Ok(date) = Regex::new(r"\b(19|20)[0-9]{2}-[01][0-9](-[0-3][0-9])?\b") else { return Vec::new() };
    let mut findings = Vec::new();
    let mut look = |path: &str, line: usize, text: &str| {
        for found in [ticket.find(text), date.find(text)].into_iter().flatten() {
            let what =
                format!("`{}` in a comment: say why, in the present tense, without history", found.as_str().trim());
            findings.push(Finding::new(path, line, what));
        }
    };
    for (file, rust) in tree.rust() {
        for comment in &rust.comments {
            look(&file.path, comment.line, &comment.text);
        }
    }
    for file in tree.files_but_checks() {
        let Some(opening) = comment_opening(&file.path) else { continue };
        for (index, line) in file.text.lines().enumerate() {
            if let Some(comment) = line.trim_start().strip_prefix(opening) {
                look(&file.path, index + 1, comment);
            }
        }
    }
    findings
}

fn comment_opening(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "toml" | "yml" | "yaml" | "sh" => Some("#"),
        "sql" => Some("--"),
        _ if path == ".ci/run" => Some("#"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_and_dates_in_comments_are_found() {
        let text =
            "// Fixes #12.\n// See issue 7.\n// Since 2024-05-01.\nfn f() { g(\"#12, 2024-05-01\"); } // plain\n";
        let tree =
            Tree::of(&[("crates/core/src/a.rs", text), ("deny.toml", "# broken since 2023-01\nx = \"2023-01\"\n")]);
        let lines: Vec<_> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 1]);
    }

    #[test]
    fn attributes_and_numbers_in_prose_are_fine() {
        assert_eq!(
            check(&Tree::of(&[("crates/core/src/a.rs", "// `#[test]` has 3 forms, rule C4, 10-20 items\n")])),
            []
        );
    }
}
