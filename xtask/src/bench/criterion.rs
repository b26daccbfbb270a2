//! Runs the criterion benches and reads the estimates they leave under the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Figure;
use crate::workspace::Workspace;

#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
    /// `{"Elements": 1024}`, `{"ElementsAndBytes": {"elements": 1024, "bytes": …}}`, or of bytes alone.
    #[serde(default)]
    throughput: serde_json::Value,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Runs the benches of these packages and answers a figure for each.
pub(super) fn measure(
    workspace: &Workspace,
    packages: &[&str],
    quick: bool,
    only: Option<&str>,
) -> Result<Vec<Figure>> {
    let started = SystemTime::now();
    let mut bench = workspace.cargo().args(["bench", "--locked", "--bench", "*"]);
    for package in packages {
        bench = bench.args(["-p", package]);
    }
    let folder = workspace.target()?.join("criterion");
    bench = bench.env("CRITERION_HOME", &folder).args(["--", "--noplot"]);
    if quick {
        bench = bench.args(["--warm-up-time", "0.5", "--measurement-time", "1", "--sample-size", "10"]);
    }
    bench = bench.args(only);
    bench.onto_stderr().run()?;
    let mut found = Vec::new();
    collect(&folder, started, &mut found)?;
    let mut figures = found.iter().map(|folder| figure(folder)).collect::<Result<Vec<_>>>()?;
    figures.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(figures)
}

/// Every folder `new` with estimates written since `started`.
fn collect(folder: &Path, started: SystemTime, found: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let fresh = fs::metadata(path.join("estimates.json")).and_then(|file| file.modified());
        if path.ends_with("new") && fresh.is_ok_and(|at| at >= started) {
            found.push(path);
        } else if path.is_dir() {
            collect(&path, started, found)?;
        }
    }
    Ok(())
}

fn figure(folder: &Path) -> Result<Figure> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("{}", folder.display()));
    from_json(&read("benchmark.json")?, &read("estimates.json")?)
        .with_context(|| format!("{} holds something else than criterion's files", folder.display()))
}

/// Elements a second where the bench says how many it works on, else the time of one turn.
fn from_json(benchmark: &str, estimates: &str) -> Result<Figure> {
    let Benchmark { full_id: name, throughput } = serde_json::from_str(benchmark)?;
    let Estimate { point_estimate, confidence_interval: interval } =
        serde_json::from_str::<Estimates>(estimates)?.median;
    let elements = throughput["Elements"].as_u64().or_else(|| throughput["ElementsAndBytes"]["elements"].as_u64());
    Ok(match elements {
        Some(elements) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a count of elements is far below what a float holds exactly"
            )]
            let per_s = |ns: f64| elements as f64 / ns * 1e9;
            Figure {
                name,
                median: per_s(point_estimate),
                least: per_s(interval.upper_bound),
                most: per_s(interval.lower_bound),
                unit: "/s",
            }
        }
        None => Figure {
            name,
            median: point_estimate / 1e3,
            least: interval.lower_bound / 1e3,
            most: interval.upper_bound / 1e3,
            unit: "µs",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATES: &str = r#"{"mean":{"point_estimate":1.0},"median":{"confidence_interval":{"confidence_level":0.95,
        "lower_bound":500000.0,"upper_bound":2000000.0},"point_estimate":1000000.0,"standard_error":1.0}}"#;

    #[test]
    fn a_bench_of_many_elements_is_told_per_second() {
        let benchmark = r#"{"group_id":"set","full_id":"set/lease_claim","throughput":{"Elements":1024}}"#;
        let figure = from_json(benchmark, ESTIMATES).unwrap();
        assert_eq!((figure.name.as_str(), figure.unit), ("set/lease_claim", "/s"));
        assert!((figure.median - 1_024_000.0).abs() < 1e-6);
        let both = benchmark.replace(r#"{"Elements":1024}"#, r#"{"ElementsAndBytes":{"elements":1024,"bytes":1}}"#);
        assert_eq!(from_json(&both, ESTIMATES).unwrap(), figure);
        assert!(figure.least < figure.median && figure.median < figure.most);
    }

    #[test]
    fn a_bench_of_one_turn_is_told_in_microseconds() {
        let figure = from_json(r#"{"full_id":"sweep/1000","throughput":null}"#, ESTIMATES).unwrap();
        assert_eq!((figure.median, figure.unit), (1000.0, "µs"));
    }
}
