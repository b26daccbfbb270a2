//! One program, from its start until nothing of it is left.
//!
//! **Owns** the process group of a program: waiting for it, reading its pipes, and its end by force. **Refuses to know**
//! what its output or exit means.
//!
//! **Invariants**: one thread does it all by polling; memory does not depend on what the program writes; when
//! [`run`] returns, no process of the group is left, and nothing that still holds a pipe is waited for (case F74).

use super::capture::Capture;
use super::group;
use super::pipe::{Pipe, Sink};
use super::spool::Spool;
use crate::cancel::{Cancel, CancelReason};
use crate::leftover::{GroupNotes, Ticks};
use dispatcher_core::report::{Log, LogReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often the size of the result is looked at while the program runs.
const LOOK: Duration = Duration::from_millis(250);
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
    /// Whether the file that it writes is too large by now; asked four times a second. `None` where it writes none.
    pub(super) is_too_large: Option<&'a dyn Fn() -> bool>,
    /// How many bytes of each end of its output are kept.
    pub(super) keep: usize,
    /// Where its group is noted for whoever comes after a worker that was killed.
    pub(super) notes: &'a GroupNotes,
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

/// Why a program did not run to its end.
pub(super) enum RunError {
    /// It could not be started.
    Start(io::Error),
    /// The system refused to tell about it, or what it printed could not be written down. Nothing of it is left running.
    Files(io::Error),
}

/// How a program ended.
pub(super) struct Ran<'a> {
    pub(super) status: ExitStatus,
    pub(super) stopped: Option<Stopped>,
    /// What it wrote to its standard output, where that is not the result.
    pub(super) stdout: Capture,
    /// What it wrote to its standard output, where that is the result.
    pub(super) printed: Option<Spool<'a>>,
    pub(super) stderr: Capture,
    /// What the log lines in its standard error say.
    pub(super) log: Log,
    /// Whether something of it may still be alive.
    pub(super) is_left: bool,
}

/// Runs `command` in a process group of its own, with its standard output going to `printed` or, without one, kept.
///
/// # Errors
/// [`RunError`].
pub(super) fn run<'a>(command: Command, printed: Option<Spool<'a>>, bounds: &Bounds<'_>) -> Result<Ran<'a>, RunError> {
    let (group, pipes) = start(command, printed, bounds).map_err(RunError::Start)?;
    attend(group, pipes, bounds).map_err(RunError::Files)
}

/// Starts the program, with a pipe for either of its streams.
fn start<'a>(
    mut command: Command,
    printed: Option<Spool<'a>>,
    bounds: &Bounds<'_>,
) -> io::Result<(Group, [Pipe<'a>; 2])> {
    let kept = || Capture::new(bounds.keep);
    let (out, stdout) = Pipe::new(printed.map_or_else(|| Sink::Kept(kept()), Sink::Result))?;
    let (err, stderr) = Pipe::new(Sink::Logged(kept(), LogReader::default()))?;
    // Neither a change of user nor anything else that needs a fork: so the program is started by `posix_spawn`.
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    let before = Ticks::now();
    let child = command.spawn()?;
    // Our ends of the pipes go with it: they end when the last process that has them does.
    drop(command);
    let group = Group::new(child)?;
    bounds.notes.note(group.pid, before);
    Ok((group, [out, err]))
}

/// Stays with a program to its end.
fn attend<'a>(group: Group, mut pipes: [Pipe<'a>; 2], bounds: &Bounds<'_>) -> io::Result<Ran<'a>> {
    let mut buffer = Vec::new();
    let stopped = group.watch(&mut pipes, bounds, &mut buffer)?;
    let (status, is_left) = group.end()?;
    for pipe in &mut pipes {
        pipe.read_rest(&mut buffer)?;
    }
    let [out, err] = pipes.map(|pipe| pipe.sink);
    let (stdout, _, printed) = out.finish(bounds.keep);
    let (stderr, log, _) = err.finish(bounds.keep);
    Ok(Ran { status, stopped, stdout, printed, stderr, log, is_left })
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
    fn watch(
        &self,
        pipes: &mut [Pipe<'_>; 2],
        bounds: &Bounds<'_>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Stopped>> {
        let until = Instant::now().checked_add(bounds.limit);
        let mut next_look = bounds.is_too_large.map(|_| Instant::now() + LOOK);
        let mut stopped: Option<(Stopped, Option<Instant>)> = None;
        loop {
            let now = Instant::now();
            let wake = match &mut stopped {
                None => match reason_to_stop(bounds, pipes, now, until, &mut next_look) {
                    Some(why) => {
                        self.signal(Signal::TERM);
                        let kill_at = now + bounds.grace;
                        stopped = Some((why, Some(kill_at)));
                        Some(kill_at)
                    }
                    None => until.into_iter().chain(next_look).min(),
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
            if self.poll(pipes, cancel, wake, buffer)? {
                return Ok(stopped.map(|(why, _)| why));
            }
        }
    }

    /// Waits until something happens, and reads what there is. Whether the program has ended.
    fn poll(
        &self,
        pipes: &mut [Pipe<'_>; 2],
        cancel: Option<&Cancel>,
        wake: Option<Instant>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let wait = wake.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        let mut fds = Vec::with_capacity(4);
        fds.push(PollFd::new(&self.pidfd, PollFlags::IN));
        fds.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN)));
        let before_pipes = fds.len();
        fds.extend(pipes.iter().filter_map(Pipe::reader).map(|reader| PollFd::new(reader, PollFlags::IN)));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        let ended = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        let ready: Vec<PollFlags> = fds.iter().skip(before_pipes).map(PollFd::revents).collect();
        drop(fds);
        for (pipe, flags) in pipes.iter_mut().filter(|pipe| pipe.reader().is_some()).zip(ready) {
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

/// Why the program is to be ended now, if it is.
fn reason_to_stop(
    bounds: &Bounds<'_>,
    pipes: &[Pipe<'_>; 2],
    now: Instant,
    until: Option<Instant>,
    next_look: &mut Option<Instant>,
) -> Option<Stopped> {
    match bounds.cancel.reason() {
        Some(CancelReason::TimeLimit) => return Some(Stopped::TimeLimit),
        Some(_) => return Some(Stopped::Cancelled),
        None => {}
    }
    if until.is_some_and(|until| until <= now) {
        return Some(Stopped::TimeLimit);
    }
    let mut is_too_large = pipes.iter().any(Pipe::is_too_large);
    if next_look.is_some_and(|at| at <= now) {
        *next_look = Some(now + LOOK);
        is_too_large |= bounds.is_too_large.is_some_and(|look| look());
    }
    is_too_large.then_some(Stopped::TooLarge)
}

fn timespec(span: Duration) -> Timespec {
    // Far-off times are as good as the end of time; a poll that returns early does no harm.
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX).min(1_000_000_000);
    Timespec { tv_sec: seconds, tv_nsec: span.subsec_nanos().into() }
}
