//! `delete`: a corpus or a service with everything that is stored of its tasks.
//!
//! Owns that nobody deletes tasks without having been told how many. Result files stay where they are.

use super::Given;
use crate::archive::Choice;
use crate::cli::StateArgs;
use crate::exit::Exit;
use crate::filter::{corpus_of, service_of};
use crate::settings::{ArchiveKind, LayoutKind};
use crate::views::{event_loop, open, told, words};
use clap::{Args, ValueEnum};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_store::{Command, Named, Store, TaskFilter, TaskState};

/// `delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher delete corpus papers --yes
  dispatcher delete service html --yes

A corpus that has sandboxes stays until they are dropped (`dispatcher sandbox drop NAME`).
Result files that are in place stay where they are. What workers still bring of deleted tasks is
counted and dropped.")]
pub struct DeleteArgs {
    /// Of what kind it is.
    #[arg(value_enum)]
    pub kind: KindWord,
    /// Its name.
    pub name: String,
    /// Delete its tasks too.
    #[arg(long)]
    pub yes: bool,
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
}

/// What can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindWord {
    /// A corpus.
    Corpus,
    /// A service.
    Service,
}

impl DeleteArgs {
    async fn filter(&self, store: &dyn Store) -> anyhow::Result<TaskFilter> {
        Ok(match self.kind {
            KindWord::Corpus => {
                TaskFilter { corpus: Some(corpus_of(store, &self.name).await?), ..TaskFilter::default() }
            }
            KindWord::Service => {
                TaskFilter { service: Some(service_of(store, &self.name).await?), ..TaskFilter::default() }
            }
        })
    }

    const fn kind(&self) -> &'static str {
        match self.kind {
            KindWord::Corpus => "corpus",
            KindWord::Service => "service",
        }
    }

    fn command(&self) -> Command {
        let name = self.name.clone();
        let what = match self.kind {
            KindWord::Corpus => Named::Corpus(name),
            KindWord::Service => Named::Service(name),
        };
        Command::Delete { what }
    }
}

/// Deletes a corpus or a service.
pub fn delete(args: &DeleteArgs) -> anyhow::Result<u8> {
    let (given, choice) = event_loop()?.block_on(async {
        let (state, store) = open(&args.at.state).await?;
        let tasks = store.summary(&args.filter(&store).await?).await.map_err(told)?;
        if tasks.total > 0 && !args.yes {
            let open = |state: &TaskState| matches!(state, TaskState::Ready | TaskState::Leased);
            let open: u64 = tasks.by_state.iter().filter(|(state, _)| open(state)).map(|(_, n)| n).sum();
            return Err(Exit::usage(format!(
                "the {} {:?} has {}, {open} of them not over: they would be deleted with all that is stored of them; say \
                 --yes",
                args.kind(),
                args.name,
                words::tasks(tasks.total)
            )));
        }
        let given = Given::give(&state, &store, &args.command()).await?;
        anyhow::Ok((given, crate::archive::read(&state)?))
    })?;
    let done = format!("deleted the {} {:?} and {}", args.kind(), args.name, words::tasks(given.changed));
    let code = given.report(args.at.json, &done)?;
    if !args.at.json
        && let Some(choice) = choice
    {
        left_behind(args, &choice);
    }
    Ok(code)
}

/// Says where the bytes of its results are still.
fn left_behind(args: &DeleteArgs, choice: &Choice) {
    let corpus = CorpusKind::Ordinary.result_stem(&args.name);
    let below = match (choice.kind, choice.layout, args.kind) {
        (ArchiveKind::None, ..) => return,
        (ArchiveKind::Packs, ..) => {
            crate::tell("`dispatcher compact` gets the space of their results back");
            return;
        }
        (ArchiveKind::Files, LayoutKind::Mirror, KindWord::Corpus) => choice.results.join("*").join(corpus),
        (ArchiveKind::Files, LayoutKind::Mirror, KindWord::Service) => choice.results.join(&args.name),
        (ArchiveKind::Files, LayoutKind::Cortex, KindWord::Corpus) => choice.results.join(corpus),
        (ArchiveKind::Files, LayoutKind::Cortex, KindWord::Service) => choice.results.clone(),
    };
    crate::tell(&format!("result files that were in place stay in {}", below.display()));
}
