//! `dispatcher`: hands heavy file-in, file-out work to unreliable workers and loses nothing.
//!
//! Owns the command line, the wiring of stages for each command, signals and exit codes. Decides nothing about tasks.

#![expect(unreachable_pub, reason = "a program has no callers; `pub` says what other modules of it use")]

mod allocator;
mod archive;
mod cli;
mod commands;
mod control;
mod exit;
mod export;
mod filter;
mod inputs;
mod log;
mod named;
mod places;
mod run;
mod serve;
mod settings;
mod signals;
mod state;
mod views;
mod waiting;
mod worker;

use dispatcher_core::text::printed;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> ExitCode {
    let command_line = cli::CommandLine::read();
    let command = command_line.command.unwrap_or_else(|| cli::Command::Serve(Box::new(serve::ServeArgs::by_default())));
    if !matches!(command, cli::Command::Serve(_)) {
        start_log();
    }
    match carry_out(&command) {
        Ok(exit::ALL_USABLE) if UNTOLD.load(Ordering::Relaxed) => {
            say_at_the_end("error: what was asked for could not be written to standard output".to_owned());
            ExitCode::from(exit::SOME_NOT)
        }
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say_at_the_end(format!("error: {error:#}"));
            ExitCode::from(exit::of_error(&error))
        }
    }
}

fn carry_out(command: &cli::Command) -> anyhow::Result<u8> {
    match command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Serve(args) => serve::serve(args),
        cli::Command::Worker(args) => worker::worker(args),
        cli::Command::Import(args) => commands::import::import(args),
        cli::Command::Status(args) => views::status::status(args),
        cli::Command::Tasks(args) => views::tasks::tasks(args),
        cli::Command::Why(args) => views::why::why(args),
        cli::Command::Show(args) => views::show::show(args),
        cli::Command::Services(args) => commands::services::services(args),
        cli::Command::Corpora(args) => views::corpora::corpora(args),
        cli::Command::Workers(args) => views::workers::workers(args),
        cli::Command::Rerun(args) => commands::change::rerun(args),
        cli::Command::Cancel(args) => commands::change::cancel(args),
        cli::Command::Pause(args) => commands::pause::pause(args),
        cli::Command::Resume(args) => commands::pause::resume(args),
        cli::Command::Drain(args) => commands::drain::drain(args),
        cli::Command::Sandbox(args) => commands::sandbox::sandbox(args),
        cli::Command::Delete(args) => commands::delete::delete(args),
        cli::Command::Log(args) => views::log::log(args),
        cli::Command::Config(args) => views::config::config(args),
        cli::Command::Export(args) => export::export(args),
        cli::Command::Compact(args) => commands::compact::compact(args),
        cli::Command::Doctor(args) => views::doctor::doctor(args),
    }
}

/// Prints the last line of a process, and waits for nobody who does not read it.
fn say_at_the_end(line: String) {
    let (said, heard) = crossbeam_channel::bounded(1);
    let spoken = std::thread::Builder::new().spawn(move || {
        say(&line);
        // Where nobody waits any more the process ends anyway.
        let _ = said.send(());
    });
    if spoken.is_ok() {
        // Either it was said or its time is up.
        let _ = heard.recv_timeout(std::time::Duration::from_secs(1));
    }
}

/// Prints lines for a person. Names in them are anybody's: what would move the cursor or turn the reading direction shows
/// as an escape. A closed standard error is no reason to die.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    for line in text.split('\n') {
        let _ = writeln!(std::io::stderr().lock(), "{}", printed(line));
    }
}

/// Set where a line of what was asked for could not be written, to a full disk say.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// Prints a line of what was asked for; `false` where nobody reads any more. Who has read enough is no fault; a line that
/// could not be written is, and the program ends with it. Names in it are anybody's, and so it stays one line.
pub(crate) fn tell(line: &str) -> bool {
    tell_as_it_is(&printed(line))
}

/// The same of a text that is safe as it is.
pub(crate) fn tell_as_it_is(text: &str) -> bool {
    use std::io::{ErrorKind, Write};
    let told = writeln!(std::io::stdout().lock(), "{text}");
    if told.as_ref().is_err_and(|e| e.kind() != ErrorKind::BrokenPipe) {
        UNTOLD.store(true, Ordering::Relaxed);
    }
    told.is_ok()
}

/// Logs to standard error what `RUST_LOG` asks for; warnings by default.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
