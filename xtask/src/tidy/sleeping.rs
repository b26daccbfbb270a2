//! Tests never sleep: they wait for a signal, a join, a channel, or move a clock of their own.

use super::Finding;
use super::rust::TokenKind;
use super::tree::Tree;

const CALLS: [&str; 4] = ["sleep", "sleep_ms", "sleep_until", "park_timeout"];

/// A call that waits for time to pass, in test code.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (index, token) in rust.tokens.iter().enumerate() {
            let called = rust.tokens.get(index + 1).is_some_and(|next| next.text == "(");
            let defined = index > 0 && rust.tokens[index - 1].text == "fn";
            let sleeps = token.kind == TokenKind::Word && CALLS.contains(&token.text.as_str());
            if sleeps && called && !defined && rust.is_test(token.line) {
                let what = format!("`{}` in a test: wait for the event itself, or for virtual time", token.text);
                findings.push(Finding::new(&file.path, token.line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_sleeps_is_found_and_product_code_that_waits_is_not() {
        let text = "fn f() {\n    std::thread::sleep(d);\n}\n#[cfg(test)]\nmod tests {\n    fn t() {\n        std::thread::sleep(d);\n    }\n}\n";
        let lines: Vec<_> = check(&Tree::of(&[("crates/core/src/a.rs", text)])).iter().map(|f| f.line).collect();
        assert_eq!(lines, [7]);
        let text = "async fn t() {\n    tokio::time::sleep(d).await;\n    run(\"sleep 5\");\n}\n";
        assert_eq!(check(&Tree::of(&[("crates/store/tests/a.rs", text)])).len(), 1);
    }
}
