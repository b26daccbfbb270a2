//! Lint, test, bench and release of this workspace: `cargo xtask help`.
//!
//! **Owns** what "checked" means here: `ci` is the list that a change has to pass, and the hosted checks only call it.
//! **Refuses to know** anything of the product but its crates' names and its command line.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks on its standard streams")]

mod bench;
mod checks;
mod conformance;
mod mutants;
mod plan;
mod process;
mod release;
mod tidy;
mod tools;
mod tour;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use workspace::Workspace;

/// Everything that is done to this workspace besides `cargo build`.
///
/// Start with `cargo xtask lint` while you write, `cargo xtask test` when it compiles, and `cargo xtask ci` before you
/// hand it over. Tools that are missing are installed by cargo, once.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All that a change has to pass, cheapest first; exactly what the hosted checks run.
    ///
    /// fmt, tidy, patches, deny, clippy, build, nextest, conformance, doctests, docs, tour. The first step that fails ends the run; a
    /// closing table names each step with its time. About a quarter of an hour on two cores from nothing, tools
    /// included, and a few minutes the second time.
    Ci,
    /// The checks that run no product code: fmt, tidy, clippy, deny.
    ///
    /// `tidy` holds what no other tool can see: the arrows between crates, the purity of core, the one place that
    /// sends, links in documents, a test for every rule of docs/rules.md, and more; `xtask/src/tidy` has a file per
    /// check. A finding is printed as `path:line: [check] what to do`.
    Lint,
    /// The tidy checks alone: seconds, no compiling of the product.
    Tidy,
    /// All tests: nextest, then doctests.
    Test {
        /// Runs what is heavy whole (a million entries, hundreds of kills, 100,000 histories) instead of short.
        #[arg(long)]
        full: bool,
        /// Passed to nextest as they are: `cargo xtask test -- -p dispatcher-core claim`. Leaves out the doctests.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Figures of this machine, from one run: core, store, and `dispatcher run` beside `xargs -P2`.
    Bench(bench::Options),
    /// Drives a worker program, in any language, through the conversation of docs/protocol.md.
    ///
    /// It plays the dispatcher: hands out tasks, asks for pieces, cancels, goes away and comes back, and tells for each
    /// promise of the document whether the program keeps it. `clients/README.md` says what the program has to do with the
    /// tasks, which takes a few lines. Exit code 0: everything passed; 1: something did not.
    Conformance(conformance::Options),
    /// Executes the README's console blocks and compares what they print.
    ///
    /// Every ```console block is run in order in a scratch folder that has the examples, with the built `dispatcher` in
    /// PATH. Times and rates are compared as such, `[..]` stands for anything within a line, and `...` alone on a line
    /// for any number of lines. A command that fails fails the tour.
    Tour {
        /// Writes what the commands really print into the README; read the difference before you commit it.
        #[arg(long)]
        bless: bool,
    },
    /// Breaks the product on purpose, one patch of `mutants/` at a time, and demands that the named test fails.
    ///
    /// A patch opens with `# rule: C5`, `# breaks: what it does` and `# test: -p dispatcher-core some_filter`. It must
    /// apply to HEAD and compile; the test must pass without it and fail with it.
    Mutants {
        /// Only patches whose file name contains this.
        name: Option<String>,
    },
    /// Builds and packs a release under `target/dist`, and checks that it is without test hooks.
    Release {
        /// Says what would be tagged, and tags nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Ci => checks::ci(&workspace),
        Command::Lint => checks::lint(&workspace),
        Command::Tidy => tidy::run(&workspace),
        Command::Test { full, filter } => checks::test(&workspace, full, &filter),
        Command::Bench(options) => bench::run(&workspace, &options),
        Command::Conformance(options) => conformance::run(&workspace, &options),
        Command::Tour { bless } => tour::run(&workspace, bless),
        Command::Mutants { name } => mutants::run(&workspace, name.as_deref()),
        Command::Release { dry_run } => release::run(&workspace, dry_run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_subcommand_explains_itself() {
        let cli = Cli::command();
        cli.clone().debug_assert();
        for command in cli.get_subcommands() {
            assert!(command.get_about().is_some_and(|about| about.to_string().len() > 20), "{}", command.get_name());
        }
    }
}
