//! `dispatcher`: hands heavy file-in, file-out work to unreliable workers and loses nothing.
//!
//! Owns the command line, the wiring of stages for each command, signals and exit codes. Decides nothing about tasks.

#![expect(unreachable_pub, reason = "a program has no callers; `pub` says what other modules of it use")]

mod cli;
mod exit;
mod run;
mod signals;
mod state;
mod views;
mod worker;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command_line = cli::CommandLine::parse();
    start_log();
    let outcome = match command_line.command {
        cli::Command::Run(args) => run::run(&args),
        cli::Command::Worker(args) => worker::worker(&args),
        cli::Command::Status(args) => views::status::status(&args),
        cli::Command::Tasks(args) => views::tasks::tasks(&args),
        cli::Command::Show(args) => views::show::show(&args),
        cli::Command::Doctor(args) => views::doctor::doctor(&args),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let code = error.downcast_ref::<exit::Exit>().map_or(exit::USAGE, |exit| exit.code);
            say(&format!("error: {error:#}"));
            ExitCode::from(code)
        }
    }
}

/// Prints a line for a person. A closed standard error is no reason to die.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints a line of what was asked for; `false` where nobody reads any more.
pub(crate) fn tell(line: &str) -> bool {
    use std::io::Write;
    writeln!(std::io::stdout().lock(), "{line}").is_ok()
}

/// Logs to standard error what `RUST_LOG` asks for; warnings by default.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
