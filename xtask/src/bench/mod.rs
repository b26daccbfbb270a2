//! Figures from one run on this machine: core and store by criterion, `dispatcher run` beside `xargs -P2`, `dispatcher serve`
//! beside the bare sockets, on both wires; or this tree beside another commit.
//!
//! **Owns** what is measured and the one table. `criterion` reads what the benches left, `processes`, `pipeline` and `legacy` run
//! programs, `compare` two builds in turns. **Refuses to know** what is fast enough: figures are for people.

mod compare;
mod criterion;
mod histogram;
mod legacy;
mod pipeline;
mod processes;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::workspace::Workspace;

/// The packages that have criterion benches.
const BENCHED: [&str; 2] = ["dispatcher-core", "dispatcher-store"];

/// What `--only` calls the comparison with xargs.
const COMPARISON: &str = "run";

/// What `--only` calls the server with echoing workers.
const PIPELINE: &str = "serve";

/// What `--only` calls the server with workers of the legacy wire.
const LEGACY: &str = "legacy";

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter measuring: seconds a bench, one round of the runs, 1,000 inputs. Shows that it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Prints the figures as JSON on standard output, everything else on standard error.
    #[arg(long)]
    json: bool,
    /// Only the benches whose name contains this; `run` is the comparison with xargs alone, `serve` the server alone,
    /// `legacy` the server with workers of the legacy wire.
    #[arg(long)]
    only: Option<String>,
    /// Compares this tree with another commit instead: both are built, and measured in turns.
    #[arg(long, value_name = "REF")]
    compare: Option<String>,
}

/// One figure, with the least and the most that were seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    name: String,
    median: f64,
    least: f64,
    most: f64,
    unit: &'static str,
}

/// Measures and prints.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let only = options.only.as_deref();
    let mut figures = Vec::new();
    if let Some(reference) = &options.compare {
        return print(&compare::measure(workspace, reference, options.quick)?, options.json);
    }
    if only.is_none_or(|only| ![COMPARISON, PIPELINE, LEGACY].contains(&only)) {
        figures.extend(criterion::measure(workspace, &BENCHED, options.quick, only)?);
    }
    if only.is_none_or(|only| only == PIPELINE) {
        figures.extend(pipeline::measure(workspace, options.quick)?);
    }
    if only.is_none_or(|only| only == LEGACY) {
        figures.extend(legacy::measure(workspace, options.quick)?);
    }
    if only.is_none_or(|only| only == COMPARISON) {
        figures.extend(processes::measure(workspace, options.quick)?);
    }
    print(&figures, options.json)
}

fn print(figures: &[Figure], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(figures)?);
    } else {
        println!("\n{}", table(figures));
    }
    Ok(())
}

fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0).max(6);
    let mut out = format!("{:<width$} {:>14} {:>14} {:>14}  unit\n", "figure", "median", "least", "most");
    for Figure { name, median, least, most, unit } in figures {
        let (median, least, most) = (number(*median), number(*least), number(*most));
        out.push_str(&format!("{name:<width$} {median:>14} {least:>14} {most:>14}  {unit}\n"));
    }
    out
}

/// A number that a person can read: thousands apart, decimals only where they tell something.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The median, the least and the most of some measurements.
fn spread(name: &str, unit: &'static str, values: &[f64]) -> Option<Figure> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Figure { name: name.to_owned(), median, least, most, unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_of_measurements_are_told() {
        let figure = spread("x", "/s", &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((figure.least, figure.median, figure.most), (1.0, 2.0, 3.0));
        assert_eq!(spread("x", "/s", &[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(spread("x", "/s", &[]), None);
    }

    #[test]
    fn numbers_are_grouped_and_small_ones_keep_decimals() {
        assert_eq!(number(1_234_567.4), "1,234,567");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(0.854), "0.85");
    }
}
