//! `dispatcher serve` with workers that only answer, beside the bare sockets with as many bytes.
//!
//! **Owns** the grid of sizes, workers, backends and archives, and how a server is started, fed and read. A server's own
//! histograms say how long a result waits for its commit. **Refuses to know** what is fast enough.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::histogram::quantiles;
use super::{Figure, spread};
use crate::workspace::Workspace;

/// Bytes of each input and of each result.
const SIZES: [u64; 3] = [0, 8 * 1024, 256 * 1024];
/// Workers, one connection each.
const WORKERS: [u32; 4] = [1, 4, 16, 64];
const BACKENDS: [&str; 2] = ["omq", "zeromq"];
const ARCHIVES: [&str; 2] = ["none", "files"];
/// Tasks that each worker asks for at once.
const CREDIT: &str = "100";
/// The largest piece of a file that travels in one message.
const PIECE: u64 = 128 * 1024;
/// Bytes that one measurement moves at most, so that large inputs do not fill the disk.
const BYTES_MOST: u64 = 128 * 1024 * 1024;

/// The programs, built once.
pub(super) struct Programs {
    dispatcher: PathBuf,
    echo: PathBuf,
    raw_router: PathBuf,
    raw_client: PathBuf,
}

/// What a fleet of echoing workers says at its end.
#[derive(Deserialize)]
struct Echoed {
    tasks_per_s: f64,
}

impl Programs {
    /// Builds them.
    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        workspace.cargo().args(["build", "--release", "-p", "dispatcher-bin", "--locked"]).onto_stderr().run()?;
        workspace
            .cargo()
            .args([
                "build",
                "--release",
                "-p",
                "dispatcher-transport",
                "-p",
                "dispatcher-store",
                "--examples",
                "--locked",
            ])
            .onto_stderr()
            .run()?;
        Ok(Self::in_target(&workspace.target()?.join("release")))
    }

    /// One of the programs that only measuring needs.
    pub(super) fn example(&self, name: &str) -> PathBuf {
        self.echo.with_file_name(name)
    }

    /// The program itself.
    pub(super) fn dispatcher(&self) -> &Path {
        &self.dispatcher
    }

    /// Those that were built in this folder.
    pub(super) fn in_target(release: &Path) -> Self {
        let example = |name| release.join("examples").join(name);
        Self {
            dispatcher: release.join("dispatcher"),
            echo: example("echo_workers"),
            raw_router: example("raw_router"),
            raw_client: example("raw_client"),
        }
    }
}

/// Measures the grid, the times to durable, and the memory.
pub(super) fn measure(workspace: &Workspace, quick: bool) -> Result<Vec<Figure>> {
    let programs = Programs::build(workspace)?;
    let mut figures = Vec::new();
    let (sizes, workers): (&[u64], &[u32]) = if quick { (&SIZES[..2], &WORKERS[1..2]) } else { (&SIZES, &WORKERS) };
    for size in sizes {
        for backend in BACKENDS {
            for n in workers {
                let ceiling = raw(&programs, backend, *n, *size, quick)?;
                let name = format!("sockets alone: {backend}, {} KB, {n} workers", size / 1024);
                figures.extend(spread(&name, "tasks/s", &[ceiling]));
                for archive in ARCHIVES {
                    let place = Place::new(&programs, *size, tasks(*size, quick))?;
                    let (rate, peak_mb) = place.rate(backend, archive, *n)?;
                    let name = format!("serve: {backend}, {} KB, {n} workers, archive {archive}", size / 1024);
                    eprintln!(
                        "{name}: {rate:.0} tasks/s, {:.0} % of the sockets alone, {peak_mb:.0} MB",
                        rate / ceiling * 100.0
                    );
                    figures.extend(spread(&name, "tasks/s", &[rate]));
                    figures.extend(spread(&format!("{name}: of the sockets alone"), "%", &[rate / ceiling * 100.0]));
                    figures.extend(spread(&format!("{name}: peak memory"), "MB", &[peak_mb]));
                }
            }
        }
    }
    figures.extend(times(&programs, quick)?);
    Ok(figures)
}

/// Tasks of one measurement.
pub(super) fn tasks(size: u64, quick: bool) -> u32 {
    let most = if quick { 2_000 } else { 10_000 };
    u32::try_from(BYTES_MOST / size.max(1)).unwrap_or(u32::MAX).clamp(1, most)
}

/// Tasks a second of the same sockets without a dispatcher. What is larger than a message may be goes in pieces.
fn raw(programs: &Programs, backend: &str, workers: u32, size: u64, quick: bool) -> Result<f64> {
    let folder = socket_folder()?;
    let endpoint = endpoint(folder.path());
    let pieces = u32::try_from(size.div_ceil(PIECE).max(1))?;
    let (bytes, tasks) = ((size / u64::from(pieces)).to_string(), (tasks(size, quick) * pieces).to_string());
    let mut router = Command::new(&programs.raw_router)
        .args([&endpoint, backend, &bytes, &tasks])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start raw_router")?;
    let mut clients = Command::new(&programs.raw_client)
        .args([&endpoint, backend, &workers.to_string(), CREDIT, &bytes])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start raw_client")?;
    let mut said = String::new();
    router.stdout.take().context("raw_router has an output")?.read_to_string(&mut said)?;
    router.wait()?;
    // It has no end of its own.
    let _ = clients.kill();
    clients.wait()?;
    let messages = said_rate(&said).with_context(|| format!("raw_router said {said:?}"))?;
    Ok(messages / f64::from(pieces))
}

/// The rate in what a program says of itself.
pub(super) fn said_rate(text: &str) -> Option<f64> {
    text.rsplit_once(" tasks/s")?.0.rsplit(' ').next()?.parse().ok()
}

/// From a result's last byte to its commit: one task after the other, and at half of what 16 workers can do.
fn times(programs: &Programs, quick: bool) -> Result<Vec<Figure>> {
    // One task at a time, far enough apart that each finds the writer idle.
    let idle = Place::new(programs, 8 * 1024, 200)?.durable("omq", "none", 1, Some(20.0))?;
    let busy = Place::new(programs, 8 * 1024, tasks(8 * 1024, quick))?;
    let (full, _) = busy.rate("omq", "none", 16)?;
    let half = Place::new(programs, 8 * 1024, tasks(8 * 1024, quick))?.durable("omq", "none", 16, Some(full / 2.0))?;
    let rows = [
        spread("serve: received to durable, idle, p50", "ms", &[idle.0]),
        spread("serve: received to durable, idle, p99", "ms", &[idle.1]),
        spread("serve: received to durable, half load, p50", "ms", &[half.0]),
        spread("serve: received to durable, half load, p99", "ms", &[half.1]),
    ];
    Ok(rows.into_iter().flatten().collect())
}

/// A folder with inputs that are imported, for one measurement.
pub(super) struct Place<'p> {
    programs: &'p Programs,
    dir: tempfile::TempDir,
    sockets: tempfile::TempDir,
    tasks: u32,
}

/// A running server; killed when it goes.
pub(super) struct Server {
    child: Child,
    http: String,
    _stderr: BufReader<ChildStderr>,
}

impl<'p> Place<'p> {
    /// Inputs of `size` bytes each, imported for the service `echo`.
    pub(super) fn new(programs: &'p Programs, size: u64, tasks: u32) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let inputs = dir.path().join("in");
        let bytes = vec![b'i'; usize::try_from(size)?];
        for index in 0..tasks {
            let file = inputs.join(format!("{:03}", index / 1000)).join(format!("{index:06}"));
            if index % 1000 == 0 {
                fs::create_dir_all(file.parent().context("a file has a folder")?)?;
            }
            fs::write(file, &bytes)?;
        }
        let place = Self { programs, dir, sockets: socket_folder()?, tasks };
        let mut import = place.command();
        import.args(["import", "in", "--service", "echo"]).stdout(Stdio::null()).stderr(Stdio::null());
        let status = import.status()?;
        if !status.success() {
            bail!("`dispatcher import` ended with {status}");
        }
        Ok(place)
    }

    /// Tasks a second until every task has ended, and the server's peak memory in MB.
    pub(super) fn rate(&self, backend: &str, archive: &str, workers: u32) -> Result<(f64, f64)> {
        let server = self.serve_on(backend, archive)?;
        let rate = self.echo(backend, workers, None)?;
        Ok((rate, server.peak_mb()))
    }

    /// Half of the results, and 99 of 100, are durable within so many milliseconds.
    fn durable(&self, backend: &str, archive: &str, workers: u32, rate: Option<f64>) -> Result<(f64, f64)> {
        let server = self.serve_on(backend, archive)?;
        self.echo(backend, workers, rate)?;
        let page = server.page("/metrics")?;
        let [p50, p99] =
            quantiles(&page, "dispatcher_durable_seconds", [0.5, 0.99]).context("no times were recorded")?;
        Ok((p50 * 1000.0, p99 * 1000.0))
    }

    fn echo(&self, backend: &str, workers: u32, rate: Option<f64>) -> Result<f64> {
        let mut command = Command::new(&self.programs.echo);
        command.args([&endpoint(self.sockets.path()), backend, "echo", &workers.to_string(), CREDIT]);
        command.args([self.size()?.to_string(), self.tasks.to_string()]);
        command.args(rate.map(|rate| rate.to_string())).stderr(Stdio::inherit());
        let output = command.output().context("cannot start echo_workers")?;
        if !output.status.success() {
            bail!("echo_workers ended with {}", output.status);
        }
        Ok(serde_json::from_slice::<Echoed>(&output.stdout)?.tasks_per_s)
    }

    pub(super) const fn tasks(&self) -> u32 {
        self.tasks
    }

    pub(super) fn size(&self) -> Result<u64> {
        Ok(fs::metadata(self.dir.path().join("in/000/000000"))?.len())
    }

    fn serve_on(&self, backend: &str, archive: &str) -> Result<Server> {
        let endpoint = endpoint(self.sockets.path());
        self.serve(&["--listen", &endpoint, "--backend", backend, "--archive", archive])
    }

    /// Starts a server with these arguments.
    pub(super) fn serve(&self, args: &[&str]) -> Result<Server> {
        let mut command = self.command();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(args).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the dispatcher")?;
        let mut stderr = BufReader::new(child.stderr.take().context("it has a standard error")?);
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            if stderr.read_line(&mut line)? == 0 {
                bail!("`dispatcher serve` ended before it served");
            }
        }
        let http = line.split("http://").nth(1).and_then(|rest| rest.split(['"', ' ']).next());
        let http = http.with_context(|| format!("no address in {line:?}"))?.to_owned();
        Ok(Server { child, http, _stderr: stderr })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.programs.dispatcher);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).env_remove("RUST_LOG");
        command
    }
}

impl Server {
    pub(super) fn peak_mb(&self) -> f64 {
        f64::from(super::processes::peak_memory_kb(&self.child)) / 1024.0
    }

    pub(super) fn page(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.http)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing of it is needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that only this user can enter, with a short name: a socket's path ends at 108 bytes.
fn socket_folder() -> Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    Ok(tempfile::Builder::new().prefix("b-").permissions(fs::Permissions::from_mode(0o700)).tempdir_in("/tmp")?)
}

fn endpoint(folder: &Path) -> String {
    format!("ipc://{}", folder.join("s").display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_whatever_else_is_said() {
        assert_eq!(
            said_rate("omq listens at ipc:///b-5/s\n9 tasks of 7 bytes in 1.60 s: 12345 tasks/s; 0 lost"),
            Some(12345.0)
        );
        assert_eq!(said_rate("nothing"), None);
    }

    #[test]
    fn large_inputs_are_fewer() {
        assert_eq!((tasks(0, false), tasks(256 * 1024, false)), (10_000, 512));
    }
}
