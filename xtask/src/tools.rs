//! Tools that are not part of a toolchain: found, or installed by cargo, once.
//!
//! **Owns** their versions and how they are built. A tool is built for its build time, not for its speed: it runs for
//! seconds and would be optimised for minutes.

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// A cargo subcommand that comes as a crate of its own.
pub(crate) struct Tool {
    /// The name after `cargo`, also that of the program.
    subcommand: &'static str,
    package: &'static str,
    version: &'static str,
    flags: &'static [&'static str],
}

/// Runs tests: a process a test, a time limit each.
pub(crate) const NEXTEST: Tool = Tool {
    subcommand: "nextest",
    package: "cargo-nextest",
    version: "0.9.151",
    // Without the part that updates itself, and its TLS.
    flags: &["--no-default-features"],
};

/// Licences, bans, sources and advisories of dependencies.
pub(crate) const DENY: Tool = Tool { subcommand: "deny", package: "cargo-deny", version: "0.20.2", flags: &[] };

/// What cargo is told so that a tool is there in a minute or two.
const FAST_BUILD: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
];

impl Tool {
    /// Installs the tool where cargo puts such things, unless some version of it is there.
    ///
    /// # Errors
    /// Fails with the command that a person would run instead.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<()> {
        let there = workspace.cargo().args([self.subcommand, "--version"]).capture()?;
        if there.status.success() {
            return Ok(());
        }
        println!("cargo {} is missing: installing {} {} (once)", self.subcommand, self.package, self.version);
        let mut install = workspace
            .cargo()
            .args(["install", "--locked", "--version", self.version])
            .args(self.flags)
            .args([self.package])
            .env_remove("CARGO_TARGET_DIR");
        for (key, value) in FAST_BUILD {
            install = install.env(key, value);
        }
        install.run().with_context(|| {
            format!("{0} could not be installed; try `cargo install --locked {0}` by hand", self.package)
        })
    }
}
