//! `config`: every setting, its value, and who said so.

use super::print_json;
use crate::cli::StateArgs;
use crate::exit;
use crate::serve::ServeFlags;
use crate::settings::{self, Said, Settings};
use clap::Args;
use std::path::PathBuf;

/// `config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher config
  dispatcher config --config /etc/dispatcher.toml --json

Give it the flags that `serve` would get, to see what it would do with them.")]
pub struct ConfigArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// A TOML file with settings [default: STATE/dispatcher.toml].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What stands in the settings too.
    #[command(flatten)]
    pub flags: ServeFlags,
}

/// Shows what is in force.
pub fn config(args: &ConfigArgs) -> anyhow::Result<u8> {
    let layers = settings::layers(&args.at.state, args.config.as_deref(), &args.flags)?;
    let settings = Settings::of(&layers)?;
    let said = settings.said_by(&layers)?;
    if args.at.json {
        print_json(&said)?;
        return Ok(exit::ALL_USABLE);
    }
    let width = said.iter().map(|said| said.name.len()).max().unwrap_or(0);
    for Said { name, value, source } in &said {
        crate::tell(&format!("{name:width$} = {value}  ({source})"));
    }
    Ok(exit::ALL_USABLE)
}
