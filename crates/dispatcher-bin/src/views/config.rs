//! `config`: every setting, its value, and who said so.

use super::{event_loop, print_json};
use crate::archive::{self, Choice};
use crate::cli::StateArgs;
use crate::exit;
use crate::serve::{self, ServeFlags};
use crate::settings::{self, Said, Settings, Source};
use crate::state::StateDir;
use clap::Args;
use dispatcher_store::sqlite::SqliteOptions;
use figment::Figment;
use std::path::PathBuf;

/// `config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher config
  dispatcher config --config /etc/dispatcher.toml --json

Give it the flags that `serve` would get, to see what it would do with them. What the state folder keeps since its first
start is in force too.")]
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
    let mut said = settings.said_by(&layers)?;
    results_in_force(args, &settings, &layers, &mut said)?;
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

/// Where results go as `serve` would have it: a state folder keeps what its first start had, and who says where files go
/// wants them.
fn results_in_force(args: &ConfigArgs, settings: &Settings, layers: &Figment, said: &mut [Said]) -> anyhow::Result<()> {
    let state = StateDir::find(&args.at.state).ok();
    let had = state.as_ref().map_or(Ok(None), kept)?;
    let path =
        state.as_ref().map_or_else(|| std::path::absolute(&args.at.state), |state| Ok(state.path().to_owned()))?;
    let wanted = serve::wanted(settings, layers, &path, had.as_ref());
    let by = said.iter().find(|said| ["results", "layout"].contains(&said.name.as_str()) && said.is_said());
    let by = by.map(|said| said.source.clone());
    let note = state.filter(|_| had.is_some()).map(|state| Source::State(state.archive_note()));
    for said in said.iter_mut() {
        let (value, because) = match said.name.as_str() {
            "archive" => {
                (serde_json::to_value(wanted.kind)?, if wanted.kind == settings.archive { None } else { by.clone() })
            }
            "results" => (serde_json::to_value(&wanted.results)?, None),
            "layout" => (serde_json::to_value(wanted.layout)?, None),
            _ => continue,
        };
        said.value = value;
        if let Some(source) = note.clone().or(because).filter(|_| !said.is_said()) {
            said.source = source;
        }
    }
    if let Some(had) = had.filter(|had| !had.agrees_with(&wanted)) {
        crate::say(&format!("`serve` would refuse: {}", archive::disagreement(&had)));
    }
    Ok(())
}

fn kept(state: &StateDir) -> anyhow::Result<Option<Choice>> {
    if archive::read(state)?.is_none() {
        return Ok(None);
    }
    event_loop()?.block_on(async {
        let store = state.store(SqliteOptions::default()).await?;
        archive::kept(state, &store).await
    })
}
