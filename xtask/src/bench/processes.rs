//! `dispatcher run` and `xargs -P2` over the same inputs, in turns, so that a slow minute of the machine hits both.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Figure, spread};
use crate::workspace::Workspace;

/// Slots of one and processes of the other.
const AT_ONCE: &str = "2";

/// How often the peak memory of the running dispatcher is read; the kernel keeps the peak, so only the last look counts.
const LOOK: Duration = Duration::from_millis(5);

/// Runs both in turns and answers tasks a second of each, their ratio, and the dispatcher's peak memory.
pub(super) fn measure(workspace: &Workspace, quick: bool) -> Result<Vec<Figure>> {
    workspace.cargo().args(["build", "--release", "-p", "dispatcher-bin", "--locked"]).run()?;
    let binary = workspace.target()?.join("release/dispatcher");
    let (inputs, rounds) = if quick { (1_000_u32, 1) } else { (5_000, 5) };
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let folder = scratch.path().join("in");
    generate(&folder, inputs)?;
    let (mut ours, mut theirs, mut ratios, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let out = scratch.path().join(format!("out-{round}"));
        let (dispatcher_s, peak_mb) = dispatcher(&binary, &folder, &out)?;
        let xargs_s = xargs(&folder)?;
        ours.push(f64::from(inputs) / dispatcher_s);
        theirs.push(f64::from(inputs) / xargs_s);
        ratios.push(xargs_s / dispatcher_s * 100.0);
        memory.push(peak_mb);
        eprintln!("round {}: dispatcher {dispatcher_s:.2} s, {peak_mb:.0} MB; xargs {xargs_s:.2} s", round + 1);
    }
    let rows = [
        spread("run: dispatcher run --exec true", "tasks/s", &ours),
        spread("run: xargs -P2 true", "tasks/s", &theirs),
        spread("run: dispatcher / xargs", "%", &ratios),
        spread("run: peak memory of the dispatcher", "MB", &memory),
    ];
    Ok(rows.into_iter().flatten().collect())
}

pub(super) fn generate(folder: &Path, inputs: u32) -> Result<()> {
    for index in 0..inputs {
        let file = folder.join(format!("{:02}", index % 50)).join(format!("{index:05}.txt"));
        fs::create_dir_all(file.parent().context("a file has a folder")?)?;
        fs::write(file, format!("input {index}\n"))?;
    }
    Ok(())
}

/// Seconds and peak memory in MB of one run from an empty output folder.
pub(super) fn dispatcher(binary: &Path, folder: &Path, out: &Path) -> Result<(f64, f64)> {
    let mut command = Command::new(binary);
    command.arg("run").arg(folder).arg("--out").arg(out).args(["--exec", "true", "--slots", AT_ONCE]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().context("cannot start the dispatcher")?;
    let mut peak_kb = 0;
    let status = loop {
        peak_kb = peak_kb.max(peak_memory_kb(&child));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(LOOK);
    };
    let took = started.elapsed().as_secs_f64();
    if !status.success() {
        bail!("`dispatcher run --exec true` ended with {status}");
    }
    Ok((took, f64::from(peak_kb) / 1024.0))
}

/// The most memory a process has held so far, in KB; 0 when it is gone.
pub(super) fn peak_memory_kb(child: &Child) -> u32 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    parse_peak_kb(&status).unwrap_or(0)
}

fn parse_peak_kb(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

fn xargs(folder: &Path) -> Result<f64> {
    let started = Instant::now();
    let script = format!("find . -type f -print0 | xargs -0 -n 1 -P {AT_ONCE} true");
    let status = Command::new("sh").args(["-c", &script]).current_dir(folder).stdin(Stdio::null()).status()?;
    if !status.success() {
        bail!("`{script}` ended with {status}");
    }
    Ok(started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_memory_of_a_process_is_read_from_its_status() {
        assert_eq!(parse_peak_kb("Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t   51200 kB\n"), Some(51_200));
        assert_eq!(parse_peak_kb("Name:\tx\n"), None);
    }
}
