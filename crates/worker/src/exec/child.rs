//! One program, from its start until nothing of it is left.
//!
//! **Owns** the process group of a program: waiting for it, reading its pipes, and its end by force. **Refuses to know**
//! what its output or exit means.
//!
//! **Invariants**: one thread does it all by polling; memory does not depend on what the program writes; when
//! [`run`] returns, no process of the group is left, and nothing that still holds a pipe is waited for (case F74).

use super::capture::Capture;
use super::group;
use crate::cancel::{Cancel, CancelReason};
use dispatcher_core::report::{Log, LogReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often the size of the result is looked at while the program runs.
const LOOK: Duration = Duration::from_millis(250);
/// How much of a pipe is read at once, in bytes: all that a pipe holds by default.
const READ: usize = 64 * 1024;
/// How much is still read of a pipe after the end of the program, in bytes: whatever the largest pipe holds.
const REST_MAX: usize = 1024 * 1024;
/// How long the killed group may take to be gone before its folder is given up.
const GONE: Duration = Duration::from_secs(2);

/// What a program may use.
pub(super) struct Bounds<'a> {
    /// How long it may run.
    pub(super) limit: Duration,
    /// How long it may take to end once it was told to.
    pub(super) grace: Duration,
    /// The signal to stop.
    pub(super) cancel: &'a Cancel,
    /// Whether its result is too large by now. Asked four times a second.
    pub(super) is_too_large: &'a dyn Fn() -> bool,
    /// How many bytes of each end of its output are kept.
    pub(super) keep: usize,
}

/// Why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Its time was over.
    TimeLimit,
    /// Its result was too large.
    TooLarge,
    /// Somebody said so.
    Cancelled,
}

/// How a program ended.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    pub(super) stopped: Option<Stopped>,
    /// What it wrote to its standard output, where that is not the result.
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    /// What the log lines in its standard error say.
    pub(super) log: Log,
    /// Whether something of it may still be alive.
    pub(super) is_left: bool,
}

/// A pipe that is read, until it ends.
struct Pipe {
    reader: Option<PipeReader>,
    kept: Capture,
    log: Option<LogReader>,
}

/// Runs `command` in a process group of its own, with its standard output going to `stdout` or, without one, kept.
///
/// # Errors
/// Where it cannot be started, or the system refuses to tell about it.
pub(super) fn run(mut command: Command, stdout: Option<Stdio>, bounds: &Bounds<'_>) -> io::Result<Ran> {
    let (err_reader, err_writer) = io::pipe()?;
    let mut pipes = [
        Pipe { reader: None, kept: Capture::new(bounds.keep), log: None },
        Pipe { reader: Some(err_reader), kept: Capture::new(bounds.keep), log: Some(LogReader::default()) },
    ];
    let stdout = match stdout {
        Some(stdout) => stdout,
        None => {
            let (reader, writer) = io::pipe()?;
            pipes[0].reader = Some(reader);
            writer.into()
        }
    };
    command.stdin(Stdio::null()).stdout(stdout).stderr(err_writer).process_group(0);
    let child = command.spawn()?;
    // Our ends of the pipes go with it: they end when the last process that has them does.
    drop(command);
    let group = Group::new(child)?;
    let stopped = group.watch(&mut pipes, bounds)?;
    let (status, is_left) = group.end()?;
    let [out, err] = &mut pipes;
    out.read_rest()?;
    err.read_rest()?;
    let [out, err] = pipes;
    let log = err.log.unwrap_or_default().finish();
    Ok(Ran { status, stopped, stdout: out.kept, stderr: err.kept, log, is_left })
}

/// The process group of a program that was started. Dropping it ends the group by force.
struct Group {
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Group {
    fn new(mut child: Child) -> io::Result<Self> {
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return Err(io::Error::other("a process without a number"));
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child, pid, pidfd, reaped: false }),
            Err(e) => {
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
                Err(e.into())
            }
        }
    }

    /// Waits for the program's end, and brings it about where it has to be. Reads the pipes meanwhile.
    fn watch(&self, pipes: &mut [Pipe; 2], bounds: &Bounds<'_>) -> io::Result<Option<Stopped>> {
        let until = Instant::now().checked_add(bounds.limit);
        let mut next_look = Instant::now() + LOOK;
        let mut stopped: Option<(Stopped, Option<Instant>)> = None;
        let mut buffer = vec![0; READ];
        loop {
            let now = Instant::now();
            let wake = match &mut stopped {
                None => match self.reason_to_stop(bounds, now, until, &mut next_look) {
                    Some(why) => {
                        self.signal(Signal::TERM);
                        let kill_at = now + bounds.grace;
                        stopped = Some((why, Some(kill_at)));
                        Some(kill_at)
                    }
                    None => Some(until.map_or(next_look, |until| until.min(next_look))),
                },
                Some((_, kill_at)) => {
                    if kill_at.is_some_and(|at| at <= now) {
                        self.signal(Signal::KILL);
                        *kill_at = None;
                    }
                    *kill_at
                }
            };
            let cancel = stopped.is_none().then_some(bounds.cancel);
            if self.poll(pipes, cancel, wake, &mut buffer)? {
                return Ok(stopped.map(|(why, _)| why));
            }
        }
    }

    fn reason_to_stop(
        &self,
        bounds: &Bounds<'_>,
        now: Instant,
        until: Option<Instant>,
        next_look: &mut Instant,
    ) -> Option<Stopped> {
        match bounds.cancel.reason() {
            Some(CancelReason::TimeLimit) => return Some(Stopped::TimeLimit),
            Some(_) => return Some(Stopped::Cancelled),
            None => {}
        }
        if until.is_some_and(|until| until <= now) {
            return Some(Stopped::TimeLimit);
        }
        if *next_look <= now {
            *next_look = now + LOOK;
            return (bounds.is_too_large)().then_some(Stopped::TooLarge);
        }
        None
    }

    /// Waits until something happens, and reads what there is. Whether the program has ended.
    fn poll(
        &self,
        pipes: &mut [Pipe; 2],
        cancel: Option<&Cancel>,
        wake: Option<Instant>,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        let wait = wake.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        let mut fds = Vec::with_capacity(4);
        fds.push(PollFd::new(&self.pidfd, PollFlags::IN));
        fds.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN)));
        let before_pipes = fds.len();
        fds.extend(pipes.iter().filter_map(|p| p.reader.as_ref()).map(|reader| PollFd::new(reader, PollFlags::IN)));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        let ended = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        let ready: Vec<PollFlags> = fds.iter().skip(before_pipes).map(PollFd::revents).collect();
        drop(fds);
        for (pipe, flags) in pipes.iter_mut().filter(|pipe| pipe.reader.is_some()).zip(ready) {
            if !flags.is_empty() {
                pipe.read(buffer)?;
            }
        }
        Ok(ended)
    }

    fn signal(&self, signal: Signal) {
        // The group has at least its leader, which was not waited for yet: its number cannot be another group's.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Ends whatever is left of the group and takes the exit status of its leader, which has ended. Also tells whether
    /// something is left all the same.
    fn end(mut self) -> io::Result<(ExitStatus, bool)> {
        self.signal(Signal::KILL);
        self.reaped = true;
        let status = self.child.wait()?;
        Ok((status, !group::is_gone_within(self.pid, GONE)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Pipe {
    /// Reads once; there is something to read, or the pipe has ended. Whether there may be more.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(reader) = &mut self.reader else { return Ok(0) };
        let n = match reader.read(buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(1),
            Err(e) => return Err(e),
        };
        if n == 0 {
            self.reader = None;
        }
        let bytes = buffer.get(..n).unwrap_or_default();
        self.kept.push(bytes);
        if let Some(log) = &mut self.log {
            log.push(bytes);
        }
        Ok(n)
    }

    /// Reads what is in the pipe now, without waiting for whoever may still have its other end.
    fn read_rest(&mut self) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut left = REST_MAX;
        while let Some(reader) = &self.reader {
            let mut fds = [PollFd::new(reader, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&timespec(Duration::ZERO)));
            let is_ready = matches!(ready, Ok(1)) && fds[0].revents().contains(PollFlags::IN);
            if !is_ready || left == 0 {
                return Ok(());
            }
            buffer.resize(READ, 0);
            left = left.saturating_sub(self.read(&mut buffer)?);
        }
        Ok(())
    }
}

fn timespec(span: Duration) -> Timespec {
    // Far-off times are as good as the end of time; a poll that returns early does no harm.
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX).min(1_000_000_000);
    Timespec { tv_sec: seconds, tv_nsec: span.subsec_nanos().into() }
}
