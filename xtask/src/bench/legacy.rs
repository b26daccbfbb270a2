//! `dispatcher serve` with workers of the legacy wire that only answer, beside the same sockets alone, and beside what it costs
//! to hash and write as many bytes.
//!
//! **Owns** the grid of sizes, workers and archives, and how the two ports of that wire are found. **Refuses to know** what is
//! fast enough.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::histogram::quantiles;
use super::pipeline::{Place, Programs, Server, said_rate, tasks};
use super::{Figure, spread};
use crate::workspace::Workspace;

/// Bytes of each input and of each result.
const SIZES: [u64; 2] = [8 * 1024, 256 * 1024];
/// Workers, each with its two connections and one task at a time.
const WORKERS: [u32; 4] = [4, 16, 64, 200];
const ARCHIVES: [&str; 2] = ["packs", "files"];
/// How often it is looked whether all results are stored.
const LOOK: Duration = Duration::from_millis(20);
/// Beyond this it is stuck.
const TOO_LONG: Duration = Duration::from_secs(600);

/// The two ports of the wire.
struct Ports {
    requests: String,
    results: String,
}

/// Measures the grid, the times to durable and the export.
pub(super) fn measure(workspace: &Workspace, quick: bool) -> Result<Vec<Figure>> {
    let programs = Programs::build(workspace)?;
    let mut figures = Vec::new();
    let (sizes, workers): (&[u64], &[u32]) = if quick { (&SIZES[..1], &WORKERS[..1]) } else { (&SIZES, &WORKERS) };
    for size in sizes {
        let kb = size / 1024;
        let written = hash_and_write(&programs, *size, quick)?;
        figures.extend(spread(&format!("hash and write alone: {kb} KB"), "tasks/s", &[written]));
        for n in workers {
            let ceiling = raw(&programs, *n, *size, quick)?;
            figures.extend(spread(&format!("legacy sockets alone: {kb} KB, {n} workers"), "tasks/s", &[ceiling]));
            for archive in ARCHIVES {
                let place = Place::new(&programs, *size, tasks(*size, quick))?;
                let (rate, peak_mb) = rate(&programs, &place, archive, *n, None)?.0;
                let name = format!("legacy: {kb} KB, {n} workers, archive {archive}");
                let share = rate / ceiling * 100.0;
                eprintln!("{name}: {rate:.0} tasks/s, {share:.0} % of the sockets alone, {peak_mb:.0} MB");
                figures.extend(spread(&name, "tasks/s", &[rate]));
                figures.extend(spread(&format!("{name}: of the sockets alone"), "%", &[share]));
                figures.extend(spread(&format!("{name}: peak memory"), "MB", &[peak_mb]));
            }
        }
    }
    figures.extend(times(&programs, quick)?);
    figures.extend(export(&programs, quick)?);
    Ok(figures)
}

/// Tasks a second from the first look at which some are stored to the last result, as the sockets alone are measured from result
/// to result; with the server's peak memory in MB; and its page of metrics then.
fn rate(
    programs: &Programs,
    place: &Place<'_>,
    archive: &str,
    workers: u32,
    pace: Option<f64>,
) -> Result<((f64, f64), String)> {
    let ports = Ports::free()?;
    let server =
        place.serve(&["--listen", &ports.requests, "--legacy-results", &ports.results, "--archive", archive])?;
    let mut echo = Command::new(programs.example("legacy_echo"));
    echo.args([&ports.requests, &ports.results, "echo", &workers.to_string()]);
    echo.args([place.size()?.to_string(), place.tasks().to_string()]).args(pace.map(|pace| pace.to_string()));
    let mut echo = echo.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().context("cannot start legacy_echo")?;
    let (rate, page) = wait_until_stored(&server, place.tasks())?;
    // Its workers may still be asking for more.
    let _ = echo.kill();
    echo.wait()?;
    Ok(((rate, server.peak_mb()), page))
}

fn wait_until_stored(server: &Server, tasks: u32) -> Result<(f64, String)> {
    let began = Instant::now();
    let mut first = None;
    loop {
        let page = server.page("/metrics")?;
        // Counts of the database are some seconds old there; this one is counted at each commit.
        let stored = page.lines().find_map(|line| line.strip_prefix("dispatcher_durable_seconds_count "));
        let stored: u32 = stored.and_then(|stored| stored.parse().ok()).unwrap_or(0);
        let (since, before) = if stored == 0 { (began, 0) } else { *first.get_or_insert((Instant::now(), stored)) };
        if stored >= tasks {
            // All at once: there is nothing else to measure from.
            let (since, before) = if before == stored { (began, 0) } else { (since, before) };
            return Ok((f64::from(stored - before) / since.elapsed().as_secs_f64(), page));
        }
        if began.elapsed() > TOO_LONG {
            bail!("not every result was stored within {TOO_LONG:?}");
        }
        sleep(LOOK);
    }
}

/// Tasks a second of the same sockets without a dispatcher.
fn raw(programs: &Programs, workers: u32, size: u64, quick: bool) -> Result<f64> {
    let (ports, tasks) = (Ports::free()?, tasks(size, quick).to_string());
    let mut raw = Command::new(programs.example("legacy_raw"))
        .args([&ports.requests, &ports.results, "omq", &size.to_string(), &tasks])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start legacy_raw")?;
    let mut echo = Command::new(programs.example("legacy_echo"))
        .args([&ports.requests, &ports.results, "echo", &workers.to_string(), &size.to_string(), &tasks])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start legacy_echo")?;
    let mut said = String::new();
    raw.stdout.take().context("legacy_raw has an output")?.read_to_string(&mut said)?;
    raw.wait()?;
    let _ = echo.kill();
    echo.wait()?;
    said_rate(&said).with_context(|| format!("legacy_raw said {said:?}"))
}

/// Tasks a second whose results are only hashed and written.
fn hash_and_write(programs: &Programs, size: u64, quick: bool) -> Result<f64> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let output = Command::new(programs.example("hash_and_write"))
        .arg(folder.path().join("pack"))
        .args([size.to_string(), tasks(size, quick).to_string()])
        .output()
        .context("cannot start hash_and_write")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said_rate(&said).with_context(|| format!("hash_and_write said {said:?}"))
}

/// From a result's arrival to its commit, at half of what 16 workers can do.
fn times(programs: &Programs, quick: bool) -> Result<Vec<Figure>> {
    let size = 8 * 1024;
    let ((full, _), _) = rate(programs, &Place::new(programs, size, tasks(size, quick))?, "packs", 16, None)?;
    let place = Place::new(programs, size, tasks(size, quick))?;
    let (_, page) = rate(programs, &place, "packs", 16, Some(full / 2.0))?;
    let [p50, p99] = quantiles(&page, "dispatcher_durable_seconds", [0.5, 0.99]).context("no times were recorded")?;
    let rows = [
        spread("legacy: received to durable, half load, p50", "ms", &[p50 * 1000.0]),
        spread("legacy: received to durable, half load, p99", "ms", &[p99 * 1000.0]),
    ];
    Ok(rows.into_iter().flatten().collect())
}

/// Results a second that `export` writes out of packs, as a tree and as a tar.
fn export(programs: &Programs, quick: bool) -> Result<Vec<Figure>> {
    let size = 8 * 1024;
    let place = Place::new(programs, size, tasks(size, quick))?;
    rate(programs, &place, "packs", 16, None)?;
    let mut figures = Vec::new();
    for (name, args) in [("a tree", ["export", "--out", "exported"]), ("a tar", ["export", "--tar", "exported.tar"])] {
        let began = Instant::now();
        let status = place.command().args(args).stdout(Stdio::null()).status()?;
        if !status.success() {
            bail!("`dispatcher {}` ended with {status}", args.join(" "));
        }
        let rate = f64::from(place.tasks()) / began.elapsed().as_secs_f64();
        figures.extend(spread(&format!("export: 8 KB, {name}"), "results/s", &[rate]));
    }
    Ok(figures)
}

impl Ports {
    /// Two that are free now.
    fn free() -> Result<Self> {
        let (one, two) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let address = |listener: &TcpListener| anyhow::Ok(format!("tcp://{}", listener.local_addr()?));
        Ok(Self { requests: address(&one)?, results: address(&two)? })
    }
}
