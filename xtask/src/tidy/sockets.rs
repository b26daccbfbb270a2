//! The one place that sends: the socket crates are named below `crates/transport/src/socket` and nowhere else, and what
//! lets a socket of zeromq send is named in one file of it.

use super::Finding;
use super::rust::TokenKind;
use super::tree::Tree;

const BOUNDARY: [&str; 2] = ["crates/transport/src/socket/", "crates/transport/src/socket.rs"];
const CRATES: [&str; 3] = ["omq_tokio", "omq_proto", "zeromq"];
/// Without one of these in scope no socket of zeromq can send: its sending functions belong to a trait.
const SENDING: [&str; 3] = ["SocketSend", "CaptureSocket", "prelude"];
const MAY_SEND: &str = "crates/transport/src/socket/zeromq/send.rs";

/// Who may depend on a socket crate: the boundary, and the tool that plays raw peers as tests do.
const MAY_DEPEND: [&str; 2] = ["dispatcher-transport", "xtask"];

/// A socket crate named by the product outside its boundary, in code or as a dependency. Tests and examples may play raw peers.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let outside =
        tree.rust_in("crates/").filter(|(file, _)| !BOUNDARY.iter().any(|place| file.path.starts_with(place)));
    let outside = outside.filter(|(file, _)| !file.path.contains("/examples/"));
    for (file, rust) in outside {
        for (index, token) in rust.tokens.iter().enumerate() {
            let path = rust.tokens.get(index + 1).is_some_and(|next| next.text == ":" || next.text == ";");
            let named = token.kind == TokenKind::Word && path && CRATES.contains(&token.text.as_str());
            if named && !rust.is_test(token.line) {
                let what = format!("`{}` is used outside {}: go through the socket boundary", token.text, BOUNDARY[0]);
                findings.push(Finding::new(&file.path, token.line, what));
            }
        }
    }
    let silent = tree.rust_in(BOUNDARY[0]).filter(|(file, _)| file.path != MAY_SEND);
    for (file, rust) in silent {
        for token in rust.tokens.iter().filter(|token| token.kind == TokenKind::Word) {
            if SENDING.contains(&token.text.as_str()) && !rust.is_test(token.line) {
                let what = format!("`{}` lets a socket send and wait for its peer: only {MAY_SEND} may", token.text);
                findings.push(Finding::new(&file.path, token.line, what));
            }
        }
    }
    for package in tree.packages.iter().filter(|package| !MAY_DEPEND.contains(&package.name.as_str())) {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev")) {
            if CRATES.contains(&dependency.name.replace('-', "_").as_str()) {
                let what = format!("only dispatcher-transport may depend on `{}`", dependency.name);
                findings.push(Finding::new(&package.manifest_path, 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn a_socket_crate_outside_the_boundary_is_found() {
        let text = "use omq_tokio::Router;\n";
        assert_eq!(check(&Tree::of(&[("crates/server/src/router.rs", text)])).len(), 1);
        assert_eq!(check(&Tree::of(&[("crates/transport/src/router.rs", text)])).len(), 1);
        assert_eq!(check(&Tree::of(&[("crates/transport/src/socket/omq.rs", text)])), []);
        assert_eq!(check(&Tree::of(&[("crates/transport/tests/raw.rs", text)])), []);
        assert_eq!(check(&Tree::of(&[("crates/transport/examples/raw.rs", text)])), []);
    }

    #[test]
    fn a_second_file_that_could_send_over_zeromq_is_found() {
        let text = "use ::zeromq::{Socket, SocketSend};\n";
        assert_eq!(check(&Tree::of(&[("crates/transport/src/socket/zeromq/router.rs", text)])).len(), 1);
        assert_eq!(check(&Tree::of(&[(MAY_SEND, text)])), []);
        let text = "use ::zeromq::{Socket, SocketRecv};\n";
        assert_eq!(check(&Tree::of(&[("crates/transport/src/socket/zeromq/router.rs", text)])), []);
    }

    #[test]
    fn a_backend_that_is_named_like_its_crate_is_no_use_of_it() {
        let text = "enum Backend { zeromq }\nfn f() { let zeromq = 1; g(zeromq) }\n";
        assert_eq!(check(&Tree::of(&[("crates/server/src/config.rs", text)])), []);
    }

    #[test]
    fn a_dependency_outside_the_transport_is_found() {
        let mut tree = Tree::default();
        tree.packages.push(Package::of("dispatcher-server", &["omq-tokio"]));
        tree.packages.push(Package::of("dispatcher-transport", &["omq-tokio"]));
        tree.packages.push(Package::of("xtask", &["omq-tokio"]));
        assert_eq!(check(&tree).len(), 1);
    }
}
