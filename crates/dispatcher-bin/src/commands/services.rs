//! `services`: how each kind of work is treated, and how far it is.

use super::{Given, open_or_make};
use crate::cli::{self, StateArgs};
use crate::exit::{self, Exit};
use crate::settings::{exact_size, millis};
use crate::views::{event_loop, open, print_json, told, words};
use clap::{Args, Subcommand};
use dispatcher_store::sqlite::SqliteOptions;
use dispatcher_store::{Command, Service, ServiceChange, ServiceSettings, Store, Summary, TaskFilter, TaskState};
use serde::Serialize;
use std::time::Duration;

/// What to do to the one service of a `run`.
const OF_A_RUN: &str = "its one service is set by the flags of `run` (--limit, --budget, --result-cap, --retry-delay), given with \
                        the same command";

/// `services`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher services
  dispatcher services set html --limit 10m --budget 5

Each has its settings, and how far it is.")]
pub struct ServicesArgs {
    /// What to do; without it they are listed.
    #[command(subcommand)]
    pub action: Option<ServicesAction>,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// What can be done to services.
#[derive(Debug, Subcommand)]
pub enum ServicesAction {
    /// Make a service, or change what is said of its settings.
    Set(SetArgs),
}

/// `services set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher services set html --limit 10m --budget 5
  dispatcher services set html --max-in-flight 20 --priority 1

What is not said stays as it is, or takes the value in brackets where the service is new. A name has no '/', no comma and no
control character.")]
pub struct SetArgs {
    /// Its name.
    pub name: String,
    /// What a new one takes too.
    #[command(flatten)]
    pub common: ServiceArgs,
    /// The first delay before a retry; each further one is twice as long, up to 1h [new: none].
    #[arg(long, value_name = "TIME", value_parser = cli::span)]
    pub retry_delay: Option<Duration>,
    /// How many of its tasks may be in flight at once; 0: as many as the process may [new: 0].
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<u32>,
    /// Services with a higher one are claimed for first; equal ones take turns [new: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
}

/// The settings that `import` takes for a new service, too.
#[derive(Clone, Debug, Default, Args)]
pub struct ServiceArgs {
    /// How long one input may take; attempt n gets n times as much. Holds for runs that begin from now on [new: 1h].
    #[arg(long, value_name = "TIME", value_parser = cli::time_limit)]
    pub limit: Option<Duration>,
    /// How many attempts one input may cost [new: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub budget: Option<u32>,
    /// The largest result; a larger one makes its input invalid [new: 4GB].
    #[arg(long, value_name = "SIZE", value_parser = cli::size)]
    pub result_cap: Option<bytesize::ByteSize>,
}

impl ServiceArgs {
    /// What is said.
    pub fn change(&self) -> ServiceChange {
        ServiceChange {
            timeout_ms: self.limit.map(millis),
            budget: self.budget,
            result_cap: self.result_cap.map(|size| size.as_u64()),
            ..ServiceChange::default()
        }
    }
}

/// A service in `services --json`.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    service: Service,
    /// Its tasks that are leased.
    in_flight: u64,
    /// Its tasks.
    tasks: Summary,
}

/// Lists services, or sets one up.
pub fn services(args: &ServicesArgs) -> anyhow::Result<u8> {
    match &args.action {
        None => list(args),
        Some(ServicesAction::Set(what)) => set(args, what),
    }
}

fn list(args: &ServicesArgs) -> anyhow::Result<u8> {
    let lines = event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        let mut lines = Vec::new();
        for service in store.services().await.map_err(told)? {
            let filter = TaskFilter { service: Some(service.id), ..TaskFilter::default() };
            let tasks = store.summary(&filter).await.map_err(told)?;
            let leased = tasks.by_state.iter().find(|(state, _)| *state == TaskState::Leased).map_or(0, |(_, n)| *n);
            lines.push(Line { service, in_flight: leased, tasks });
        }
        anyhow::Ok(lines)
    })?;
    if args.at.json {
        print_json(&lines)?;
        return Ok(exit::ALL_USABLE);
    }
    for line in &lines {
        crate::tell(&format!("{}: {}", line.service.name, in_words(&line.service.settings)));
        crate::tell(&format!("  {}", words::counts(&line.tasks)));
    }
    if lines.is_empty() {
        crate::say("there are no services: `dispatcher import DIR --service NAME` makes one");
    }
    Ok(exit::ALL_USABLE)
}

/// A service's settings for a person.
fn in_words(settings: &ServiceSettings) -> String {
    let mut said = vec![
        format!("limit {}", words::span(settings.timeout_ms)),
        format!("budget {}", settings.budget),
        format!("result cap {}", exact_size(settings.result_cap)),
    ];
    if settings.retry_delay_ms.0 > 0 {
        said.push(format!("retry delay {}", words::span(settings.retry_delay_ms)));
    }
    said.extend(settings.max_in_flight.map(|most| format!("at most {most} in flight")));
    if settings.priority != 0 {
        said.push(format!("priority {}", settings.priority));
    }
    if settings.paused {
        said.push("paused".to_owned());
    }
    said.join(", ")
}

fn set(args: &ServicesArgs, what: &SetArgs) -> anyhow::Result<u8> {
    let change = ServiceChange {
        retry_delay_ms: what.retry_delay.map(millis),
        max_in_flight: what.max_in_flight,
        priority: what.priority,
        ..what.common.change()
    };
    let (given, service) = event_loop()?.block_on(async {
        let (state, store) = open_or_make(&args.at.state, SqliteOptions::default(), OF_A_RUN).await?;
        let command = Command::PutService { name: what.name.clone(), change };
        let given = Given::give(&state, &store, &command).await?;
        let known = store.services().await.map_err(told)?;
        anyhow::Ok((given, known.into_iter().find(|service| service.name == what.name)))
    })?;
    // What a service cannot be is a slip of whoever wrote the command.
    if let Some(error) = &given.error {
        return Err(Exit::usage(error.clone()));
    }
    let stands = service.map_or(String::new(), |service| in_words(&service.settings));
    given.report(args.at.json, &format!("{}: {stands}", what.name))
}
