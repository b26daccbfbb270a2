//! The arrows between the crates of the product: who may depend on whom.

use super::Finding;
use super::tree::Tree;

/// Each crate of the product and the crates of the product it may name. Store and transport never see each other.
const ALLOWED: [(&str, &[&str]); 6] = [
    ("dispatcher-core", &[]),
    ("dispatcher-store", &["dispatcher-core"]),
    ("dispatcher-transport", &["dispatcher-core"]),
    ("dispatcher-worker", &["dispatcher-transport", "dispatcher-core"]),
    ("dispatcher-server", &["dispatcher-transport", "dispatcher-store", "dispatcher-core"]),
    (
        "dispatcher-bin",
        &["dispatcher-server", "dispatcher-worker", "dispatcher-transport", "dispatcher-store", "dispatcher-core"],
    ),
];

/// What a crate may name in its tests alone: the stages of a server are tested with real workers.
const ALLOWED_IN_TESTS: [(&str, &str); 1] = [("dispatcher-server", "dispatcher-worker")];

/// A dependency that goes against the arrows, and a crate nobody has drawn arrows for.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| package.name.starts_with("dispatcher-")) {
        let manifest = &package.manifest_path;
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            findings.push(Finding::new(manifest, 1, format!("{} has no arrows: add it to ALLOWED", package.name)));
            continue;
        };
        for dependency in &package.dependencies {
            let arrow = (package.name.as_str(), dependency.name.as_str());
            let ours = dependency.name.starts_with("dispatcher-") && dependency.name != package.name;
            let in_tests = dependency.kind.as_deref() == Some("dev") && ALLOWED_IN_TESTS.contains(&arrow);
            if ours && !in_tests && !allowed.contains(&arrow.1) {
                let what = format!("{} must not depend on {}", package.name, dependency.name);
                findings.push(Finding::new(manifest, 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn tree(name: &str, on: &str) -> Tree {
        let mut tree = Tree::default();
        tree.packages.push(Package::of(name, &[on]));
        tree
    }

    #[test]
    fn the_store_may_not_see_the_transport() {
        assert_eq!(check(&tree("dispatcher-store", "dispatcher-transport")).len(), 1);
        assert_eq!(check(&tree("dispatcher-transport", "dispatcher-store")).len(), 1);
        assert_eq!(check(&tree("dispatcher-core", "dispatcher-store")).len(), 1);
    }

    #[test]
    fn an_allowed_arrow_and_a_crate_from_outside_are_fine() {
        assert_eq!(check(&tree("dispatcher-server", "dispatcher-store")), []);
        assert_eq!(check(&tree("dispatcher-core", "serde")), []);
    }

    #[test]
    fn the_server_may_see_the_worker_in_its_tests_alone() {
        let mut tree = tree("dispatcher-server", "dispatcher-worker");
        assert_eq!(check(&tree).len(), 1);
        tree.packages[0].dependencies[0].kind = Some("dev".to_owned());
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_new_crate_without_arrows_is_found() {
        assert_eq!(check(&tree("dispatcher-extra", "serde")).len(), 1);
    }
}
