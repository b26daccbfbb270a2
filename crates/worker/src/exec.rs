//! A command per task.
//!
//! **Owns** everything around one run of a user's program: its arguments, its files, its end from outside when its time is
//! over, and what its exit, output and log lines mean. **Refuses to know** the wire and the dispatcher: it is one
//! [`Worker`] among others.
//!
//! **Invariants**: a value from outside is an argument or a variable, never program text; a slot is never lost to a
//! program, whatever it does with its output or its children (case F74); memory and disk are bounded whatever it writes.

mod capture;
mod child;
pub(crate) mod group;
mod naming;
mod pipe;
mod shell;
mod space;
mod spool;
mod template;
mod verdict;

pub use naming::{ExtensionError, ResultNaming};
pub use template::{CommandTemplate, Placeholder, ProgramMissing, TemplateError};
pub use verdict::{ExitMap, ExitMapError, ExitMeaning};

use crate::cancel::Cancel;
use crate::delivery::SMALL;
use crate::scratch::base_name;
use crate::work::{Assignment, Input, OutPart, Outcome, PartBody, Worker, message};
use child::{Bounds, Ran, RunError, Stopped};
use dispatcher_core::report::{Severity, Status};
use dispatcher_core::wire::{PART_RESULT, PART_STDERR, PART_STDOUT};
use naming::split_extension;
use rustix::fs::OFlags;
use spool::Spool;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use template::Values;
use verdict::signal_name;

/// How much of a program's last line is told as the reason of its failure, in bytes.
const REASON_MAX: usize = 300;

/// How a service's command is run.
#[derive(Clone, Debug)]
pub struct ExecConfig {
    /// The command.
    pub command: CommandTemplate,
    /// What results are called.
    pub naming: ResultNaming,
    /// What exit codes mean.
    pub exits: ExitMap,
    /// How long a program may take to end after SIGTERM, before SIGKILL.
    pub grace: Duration,
    /// The largest result, in bytes; the dispatcher's cap (rule R7), so that the disk is not filled for nothing.
    pub result_cap: u64,
    /// How many bytes of the beginning and of the end of stdout and stderr are kept.
    pub keep: usize,
    /// Where programs are started: in the task's own folder, or where this process is.
    pub in_folder: bool,
}

/// Runs a command per task.
#[derive(Debug)]
pub struct ExecWorker {
    config: ExecConfig,
    /// Where the program is, looked for once.
    program: Option<PathBuf>,
}

/// Where the result is to be found after the command.
enum Made<'a> {
    /// In this file.
    At(PathBuf),
    /// It was printed.
    Printed(Spool<'a>),
}

/// What became of the result.
enum Found {
    Part(OutPart),
    Missing(String),
    TooLarge,
}

impl ExecConfig {
    /// Runs `command` with the defaults: results called like their inputs, 2 s of grace, 4 GB of result, 64 KB kept of
    /// either end of its output, started where this process is.
    #[must_use]
    pub fn new(command: CommandTemplate) -> Self {
        Self {
            command,
            naming: ResultNaming::same(),
            exits: ExitMap::default(),
            grace: Duration::from_secs(2),
            result_cap: 4_000_000_000,
            keep: 64 * 1024,
            in_folder: false,
        }
    }
}

impl ExecWorker {
    /// A worker that runs commands as `config` says. Whether the program is there is not asked here; see
    /// [`CommandTemplate::find_program`].
    #[must_use]
    pub fn new(config: ExecConfig) -> Self {
        let program = config.command.find_program().ok().flatten();
        Self { config, program }
    }

    fn run(&self, task: &Assignment, cancel: &Cancel) -> io::Result<Outcome> {
        let command = &self.config.command;
        let result_name = base_name(&self.config.naming.result_name(&task.entry));
        let place = || task.folder.output_path(&result_name);
        // A folder is made for what needs one: most of a short task would be spent on it.
        let written = command.uses(Placeholder::Output).then(place).transpose()?;
        let values = self.values(task, written.clone().unwrap_or_default())?;
        let mut program = command.command(&values, self.program.as_deref());
        if self.config.in_folder {
            program.current_dir(task.folder.path()?);
        }
        let cap = self.config.result_cap;
        let look = || {
            let file = written.as_ref().map(fs::symlink_metadata);
            file.is_some_and(|file| file.is_ok_and(|file| file.len() > cap))
        };
        let bounds = Bounds {
            limit: task.limit,
            grace: self.config.grace,
            cancel,
            is_too_large: written.is_some().then_some(&look),
            keep: self.config.keep,
            notes: task.folder.group_notes(),
        };
        let printed = written.is_none().then(|| Spool::new(&place, cap));
        let mut ran = match child::run(program, printed, &bounds) {
            Ok(ran) => ran,
            Err(RunError::Start(e)) => return Ok(not_started(command, &e)),
            Err(RunError::Files(e)) => return Err(e),
        };
        if ran.is_left || ran.stopped.is_some() {
            task.folder.taint();
        }
        let made = ran.printed.take().map_or_else(|| Made::At(written.clone().unwrap_or_default()), Made::Printed);
        self.judge(task, ran, made)
    }

    fn values(&self, task: &Assignment, output: PathBuf) -> io::Result<Values> {
        let command = &self.config.command;
        let base = base_name(&task.entry);
        let (stem, ext) = split_extension(base.as_bytes());
        let input = match &task.input {
            Input::File(path) => path.clone(),
            Input::Bytes(bytes) if command.uses(Placeholder::Input) => {
                let path = task.folder.input_path(&base)?;
                fs::write(&path, bytes)?;
                path
            }
            Input::Bytes(_) => PathBuf::new(),
        };
        Ok(Values {
            input,
            output,
            stem: OsStr::from_bytes(stem).to_owned(),
            ext: OsStr::from_bytes(ext).to_owned(),
            task: task.task.to_string(),
            attempt: task.attempt.to_string(),
        })
    }

    fn judge(&self, task: &Assignment, ran: Ran<'_>, made: Made<'_>) -> io::Result<Outcome> {
        match ran.stopped {
            Some(Stopped::Cancelled) => return Ok(Outcome::Release),
            Some(Stopped::TooLarge) => return Ok(self.too_large()),
            Some(Stopped::TimeLimit) => {
                let details = format!("ended after its time limit of {:?}", task.limit);
                return Ok(self.retryable(task, ran, "timeout", "wallclock", &details));
            }
            None => {}
        }
        if let Some(signal) = ran.status.signal() {
            let details = ran.stderr.last_line(REASON_MAX);
            return Ok(self.retryable(task, ran, "crash", &signal_name(signal), &details));
        }
        if let Some(cause) = ran.log.retryable.clone() {
            return Ok(self.retryable(task, ran, &cause.category, &cause.what, &cause.details));
        }
        let code = ran.status.code().unwrap_or_default();
        let last_line = ran.stderr.last_line(REASON_MAX);
        if code != 0 && last_line.contains(space::NO_SPACE) {
            return Ok(self.retryable(task, ran, "disk", "full", &last_line));
        }
        match self.config.exits.meaning(code) {
            ExitMeaning::Retryable => Ok(self.retryable(task, ran, "exit", &code.to_string(), &last_line)),
            ExitMeaning::Status(status) => self.done(ran, status, code, made),
        }
    }

    /// A verdict: the worst of what the exit code and the log lines say. Only usable results have a result.
    fn done(&self, ran: Ran<'_>, by_exit: Status, code: i32, made: Made<'_>) -> io::Result<Outcome> {
        let reason = if by_exit.is_usable() { String::new() } else { ran.stderr.last_line(REASON_MAX) };
        let (mut messages, mut status) = (ran.log.messages, by_exit.max(ran.log.status));
        let mut parts = Vec::new();
        if !by_exit.is_usable() {
            let severity = if by_exit == Status::Invalid { Severity::Invalid } else { Severity::Fatal };
            messages.insert(0, message(severity, "exit", &code.to_string(), &reason));
        }
        if status.is_usable() {
            match self.find(made)? {
                Found::Part(part) => parts.push(part),
                Found::TooLarge => return Ok(self.too_large()),
                Found::Missing(why) => {
                    status = Status::Fatal;
                    messages.insert(0, message(Severity::Fatal, "exec", "no_output", &why));
                }
            }
        }
        parts.extend(kept(PART_STDOUT, &ran.stdout, self.config.keep));
        parts.extend(kept(PART_STDERR, &ran.stderr, self.config.keep));
        Ok(Outcome::Done { status, messages, parts })
    }

    fn find(&self, made: Made<'_>) -> io::Result<Found> {
        match made {
            Made::Printed(spool) => Ok(spool
                .finish()
                .map_or(Found::TooLarge, |body| Found::Part(OutPart { name: PART_RESULT.to_owned(), body }))),
            Made::At(path) => self.find_file(&path),
        }
    }

    /// The result's file: small ones are read, large ones stay.
    fn find_file(&self, result: &Path) -> io::Result<Found> {
        // Neither a link out of the folder is followed nor a named pipe waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open =
            File::options().read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default()).open(result);
        let file = match open {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Found::Missing("the command succeeded and wrote nothing to {output}".to_owned()));
            }
            Err(e) => return Ok(Found::Missing(format!("what the command left at {{output}} cannot be read: {e}"))),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Found::Missing("what the command left at {output} is no regular file".to_owned()));
        }
        if metadata.len() > self.config.result_cap {
            return Ok(Found::TooLarge);
        }
        if metadata.len() > SMALL {
            return Ok(Found::Part(OutPart::result_file(result)));
        }
        let mut bytes = vec![0; usize::try_from(metadata.len()).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Found::Part(OutPart::result(bytes)))
    }

    /// A result above the cap is a verdict (rule R7). Its file goes with the task's folder.
    fn too_large(&self) -> Outcome {
        let details = format!("the result is larger than {} bytes, the cap of this service", self.config.result_cap);
        let messages = vec![message(Severity::Invalid, "result", "too_large", &details)];
        Outcome::Done { status: Status::Invalid, messages, parts: Vec::new() }
    }

    /// A cause, with as much of the output as may travel with it: half of the room for either stream.
    fn retryable(&self, task: &Assignment, ran: Ran<'_>, category: &str, what: &str, details: &str) -> Outcome {
        let each = usize::try_from(task.inline_max / 4).unwrap_or(0).saturating_sub(64).min(self.config.keep);
        let parts = [kept(PART_STDOUT, &ran.stdout, each), kept(PART_STDERR, &ran.stderr, each)];
        let cause = message(Severity::Fatal, category, what, details);
        Outcome::Retryable { cause, messages: ran.log.messages, parts: parts.into_iter().flatten().collect() }
    }
}

impl Worker for ExecWorker {
    fn work(&self, task: &Assignment, cancel: &Cancel) -> Outcome {
        loop {
            // What begins on a full disk fails, and its failure would say nothing about the input.
            if !space::wait_for_room(task.folder.disk(), cancel) {
                return Outcome::Release;
            }
            let outcome = self.run(task, cancel).unwrap_or_else(|e| {
                task.folder.taint();
                files_failed(&e)
            });
            if !(is_failure(&outcome) && space::is_scarce(task.folder.disk())) {
                return outcome;
            }
        }
    }
}

/// Whether the command did not do it.
const fn is_failure(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done { status, .. } => !status.is_usable(),
        Outcome::Retryable { .. } => true,
        Outcome::Release => false,
    }
}

/// The part with what was kept of a stream; none where nothing was written.
fn kept(name: &str, capture: &capture::Capture, each: usize) -> Option<OutPart> {
    (!capture.is_empty()).then(|| OutPart { name: name.to_owned(), body: PartBody::Bytes(capture.render(each)) })
}

/// A cause for files of this machine that could not be handled.
fn files_failed(e: &io::Error) -> Outcome {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Outcome::retryable("disk", "full", &format!("the result cannot be written down: {e}"))
        }
        _ => Outcome::retryable("exec", "files", &format!("the task's files cannot be handled: {e}")),
    }
}

/// What it means that a program could not be started: a verdict where it is the program's fault, and a cause where this
/// machine is short of something.
fn not_started(command: &CommandTemplate, e: &io::Error) -> Outcome {
    let program = command.program().unwrap_or("the program");
    match e.kind() {
        io::ErrorKind::NotFound => {
            let details = format!("there is no program `{program}` here: install it, or write its path ({e})");
            Outcome::fatal("exec", "not_found", &details)
        }
        io::ErrorKind::PermissionDenied => {
            Outcome::fatal("exec", "not_allowed", &format!("`{program}` may not be executed: {e}"))
        }
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput | io::ErrorKind::ExecutableFileBusy => {
            Outcome::fatal("exec", "not_started", &format!("`{program}` cannot be started: {e}"))
        }
        _ if e.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            Outcome::fatal("exec", "not_started", &format!("`{program}` is no program for this machine: {e}"))
        }
        _ => Outcome::retryable("exec", "not_started", &format!("`{program}` cannot be started now: {e}")),
    }
}

#[cfg(test)]
mod tests;
