//! `compact`: gets back the space of results that were replaced.
//!
//! Owns the words around it. What is copied, moved and removed in which order is [`dispatcher_store::upkeep`]'s; it is safe
//! beside a dispatcher at work, so nobody has to be told to do it.

use crate::archive::{self, Opened};
use crate::cli::StateArgs;
use crate::exit::{self, Exit};
use crate::state::{lost, store_error};
use crate::views::{event_loop, open, print_json};
use clap::Args;
use dispatcher_server::hooks;
use dispatcher_store::archive::ArchiveError;
use dispatcher_store::archive::packs::SEAL_AT;
use dispatcher_store::upkeep::{self, Compacted, Compacting, UpkeepError};

/// `compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher compact
  dispatcher compact --live-under 90%

A result that was replaced by a better one or by a new run, and what belonged to a deleted corpus, stays in
its pack until that is rewritten: what is wanted of it is copied to another pack, its rows move, and the old
pack is removed. It may be done while a dispatcher is at work, and be killed at any moment. It needs
room for what is copied, at most one pack at a time.")]
pub struct CompactArgs {
    /// Rewrite packs of which less than this is wanted.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share)]
    pub live_under: f64,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// A share, as `50%` or `0.5`.
fn share(text: &str) -> Result<f64, String> {
    let (digits, of) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share = digits.trim().parse::<f64>().ok().map(|n| n / of).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "that is no share (write it like 50% or 0.5)".to_owned())
}

/// Rewrites packs.
pub fn compact(args: &CompactArgs) -> anyhow::Result<u8> {
    let report = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        lost::check_rows(&state, &store).await?;
        let Opened::Packs(packs) = archive::open(&state)? else {
            return Err(Exit::usage("this state has no packs: a result file that is replaced leaves nothing behind"));
        };
        let options = Compacting { live_under: args.live_under, seal_at: SEAL_AT, pass: hooks::pass };
        upkeep::compact(&packs, &store, options).await.map_err(|e| told(&e))
    })?;
    if args.at.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(if report.faults.is_empty() { exit::ALL_USABLE } else { exit::SOME_NOT })
}

fn told(error: &UpkeepError) -> anyhow::Error {
    match error {
        UpkeepError::Busy => Exit::with(exit::LOCKED, error.to_string()),
        UpkeepError::Store(e) => store_error(e),
        UpkeepError::Archive(ArchiveError::Full { place }) => Exit::with(
            exit::SOME_NOT,
            format!("no space is left in {place}: free as much as one pack is long, and give the command again"),
        ),
        UpkeepError::Archive(e) => Exit::with(exit::SOME_NOT, format!("{e}; nothing is lost: give the command again")),
    }
}

/// For a person.
fn print(report: &Compacted) {
    for fault in &report.faults {
        crate::tell(fault);
    }
    let size = |bytes| bytesize::ByteSize::b(bytes).to_string();
    let (before, after) = (size(report.bytes_before), size(report.bytes_after));
    crate::tell(&format!(
        "{} of {} packs rewritten or removed: {} parts moved, {} replaced ones forgotten, {before} before, {after} now",
        report.removed, report.packs, report.moved, report.forgotten
    ));
    if report.in_use > 0 {
        crate::tell(&format!("{} in use by a dispatcher and left alone", report.in_use));
    }
    if !report.faults.is_empty() {
        crate::tell(
            "what is wrong stays where it is: `dispatcher doctor --deep` names the tasks, `rerun` computes them anew",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_is_written_in_percent_or_as_a_part_of_one() {
        assert_eq!((share("50%"), share("0.25"), share("100 %")), (Ok(0.5), Ok(0.25), Ok(1.0)));
        assert!(["101%", "-1", "half", ""].iter().all(|text| share(text).is_err()));
    }
}
