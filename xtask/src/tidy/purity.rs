//! Core is pure: no IO, no clock, no randomness, no logging, no threads.

use super::Finding;
use super::rust::{Rust, TokenKind};
use super::tree::Tree;

const CORE: &str = "crates/core/src/";

/// The one module of core that may wait.
const MAY_WAIT: &str = "crates/core/src/hold.rs";

/// Modules of `std` that reach outside.
const STD_MODULES: [&str; 6] = ["fs", "net", "io", "process", "env", "os"];

/// Names that mean a clock, a runtime, randomness or output wherever they stand.
const NAMES: [&str; 14] = [
    "SystemTime",
    "Instant",
    "tokio",
    "rand",
    "getrandom",
    "tracing",
    "log",
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "RandomState",
    "async_std",
];

/// Crates that core may be built on; each is pure itself.
const DEPENDENCIES: [&str; 8] = ["base64", "dashmap", "hmac", "serde", "serde_json", "sha2", "subtle", "thiserror"];

/// Whatever makes core depend on more than its arguments.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_in(CORE) {
        let mut report = |line: usize, name: &str| {
            if !rust.is_test(line) {
                let what =
                    format!("core is pure and must not use `{name}`: take it as an argument, or return what to do");
                findings.push(Finding::new(&file.path, line, what));
            }
        };
        for (line, module) in std_modules(rust) {
            let waits = module == "thread" && file.path != MAY_WAIT;
            if waits || STD_MODULES.contains(&module.as_str()) {
                report(line, &format!("std::{module}"));
            }
        }
        for (index, token) in rust.tokens.iter().enumerate() {
            let name = token.text.as_str();
            let word = token.kind == TokenKind::Word && NAMES.contains(&name);
            if word && (!is_common_word(name) || is_call_or_path(rust, index)) {
                report(token.line, name);
            }
        }
    }
    for package in tree.packages.iter().filter(|package| package.name == "dispatcher-core") {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev")) {
            if !DEPENDENCIES.contains(&dependency.name.as_str()) {
                let what = format!("core must stay pure: `{}` is not among the crates it may use", dependency.name);
                findings.push(Finding::new(&package.manifest_path, 1, what));
            }
        }
    }
    findings
}

/// Names that are also ordinary ones count only where they are a crate or a macro.
fn is_common_word(name: &str) -> bool {
    matches!(name, "log" | "print" | "rand")
}

fn is_call_or_path(rust: &Rust, index: usize) -> bool {
    let text = |at: usize| rust.tokens.get(at).map(|token| token.text.as_str());
    text(index + 1) == Some("!") || (text(index + 1) == Some(":") && text(index + 2) == Some(":"))
}

/// The modules of `std` that a file names, in paths and in grouped imports, with their lines.
fn std_modules(rust: &Rust) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in rust.find(&["std", ":", ":"]) {
        let first = at + 3;
        let Some(token) = rust.tokens.get(first) else { continue };
        if token.text != "{" {
            found.push((token.line, token.text.clone()));
            continue;
        }
        let Some(close) = rust.matching_brace(first) else { continue };
        let mut depth = 0_usize;
        for index in first..close {
            let token = &rust.tokens[index];
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                // Only the first word after the brace or a comma is a module of std itself.
                name if depth == 1 && matches!(rust.tokens[index - 1].text.as_str(), "{" | ",") => {
                    found.push((token.line, name.to_owned()));
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn files_clocks_runtimes_and_output_are_found_in_core() {
        let text = "use std::fs;\nuse std::{\n    collections::BTreeMap,\n    net::TcpStream,\n};\n\
                    fn f() { std::time::Instant::now(); }\nfn g() { println!(\"x\"); }\nuse tokio::sync;\n";
        let mut found = lines("crates/core/src/slot.rs", text);
        found.sort_unstable();
        assert_eq!(found, [1, 4, 6, 7, 8]);
    }

    #[test]
    fn threads_are_allowed_in_hold_and_in_tests_alone() {
        let text = "fn f() { std::thread::yield_now(); }\n";
        assert_eq!(lines("crates/core/src/guard.rs", text), [1]);
        assert_eq!(lines("crates/core/src/hold.rs", text), [0; 0]);
        let text = "#[cfg(test)]\nmod tests {\n    fn f() { std::thread::yield_now(); }\n}\n";
        assert_eq!(lines("crates/core/src/guard.rs", text), [0; 0]);
        assert_eq!(lines("crates/core/tests/it.rs", "fn f() { std::fs::read(1); }"), [0; 0]);
    }

    #[test]
    fn an_inner_name_of_a_group_and_a_field_called_log_are_fine() {
        let text = "use std::{sync::atomic, collections::{hash_map, fs}};\nfn f(log: u8) -> u8 { log }\n";
        assert_eq!(lines("crates/core/src/slot.rs", text), [0; 0]);
    }

    #[test]
    fn a_dependency_that_is_not_pure_is_found() {
        let mut tree = Tree::default();
        tree.packages.push(Package::of("dispatcher-core", &["tokio", "serde"]));
        assert_eq!(check(&tree).len(), 1);
    }
}
