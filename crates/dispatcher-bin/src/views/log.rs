//! `log`: who commanded what, and what became of it.

use super::{event_loop, open, print_json, told, words};
use crate::cli::StateArgs;
use crate::exit;
use crate::settings::exact_size;
use clap::Args;
use dispatcher_store::{Carve, Command, CommandId, CommandPage, CommandRow, Named, ServiceChange, Store, TaskFilter};

/// Commands in one read.
const PAGE: usize = 1000;

/// `log`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher log
  dispatcher log --after 120 --limit 0")]
pub struct LogArgs {
    /// Where.
    #[command(flatten)]
    pub at: StateArgs,
    /// Only commands with a higher number, the oldest of them first; the newest ones unless said.
    #[arg(long, value_name = "ID")]
    pub after: Option<i64>,
    /// How many at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// Lists commands, the newest last.
pub fn log(args: &LogArgs) -> anyhow::Result<u8> {
    let rows = event_loop()?.block_on(async {
        let (_, store) = open(&args.at.state).await?;
        if args.after.is_none() && args.limit != 0 {
            let page = CommandPage { newest: true, max: args.limit, ..CommandPage::default() };
            return store.commands(&page).await.map_err(told);
        }
        let most = if args.limit == 0 { usize::MAX } else { args.limit };
        let mut rows: Vec<CommandRow> = Vec::new();
        while rows.len() < most {
            let after = rows.last().map(|row| row.id).or(args.after.map(CommandId));
            let page = CommandPage { after, max: PAGE.min(most - rows.len()), ..CommandPage::default() };
            let page = store.commands(&page).await.map_err(told)?;
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        Ok(rows)
    })?;
    if args.at.json {
        print_json(&rows)?;
    } else {
        for row in &rows {
            crate::tell(&line(row));
        }
    }
    Ok(exit::ALL_USABLE)
}

/// A command in one line.
pub fn line(row: &CommandRow) -> String {
    let said = row.command.as_ref().map_or("a command of another version".to_owned(), in_words);
    let became = match &row.outcome {
        None => "not through".to_owned(),
        Some(outcome) => {
            let error = outcome.error.as_ref().map_or(String::new(), |error| format!("; {error}"));
            format!("{}{error}", did(row.command.as_ref(), outcome.changed))
        }
    };
    format!("{:>5}  {}  {}  {said}: {became}", row.id.0, words::time(row.at), row.actor)
}

/// What it did; an import adds tasks, and takes anew what has changed.
fn did(command: Option<&Command>, changed: u64) -> String {
    match command {
        Some(Command::Import { added, .. }) if changed > *added => {
            format!("{added} added, {} taken anew", changed - added)
        }
        Some(Command::Import { added, .. }) => format!("{added} added"),
        _ => format!("{changed} changed"),
    }
}

/// A command as it might be typed.
pub fn in_words(command: &Command) -> String {
    let of = |service: &Option<String>| service.as_ref().map_or(String::new(), |name| format!(" {name}"));
    match command {
        Command::Rerun { filter } => format!("rerun {}", filter_in_words(filter)),
        Command::Cancel { filter } => format!("cancel {}", filter_in_words(filter)),
        Command::Delete { what: Named::Corpus(name) } => format!("delete corpus {name}"),
        Command::Delete { what: Named::Sandbox(name) } => format!("sandbox drop {name}"),
        Command::Delete { what: Named::Service(name) } => format!("delete service {name}"),
        Command::Carve(Carve { name, filter, service, most }) => {
            let by = service.map_or(String::new(), |id| format!(" --service {}", id.0));
            let most = most.map_or(String::new(), |most| format!(" --limit {most}"));
            format!("sandbox carve {name} {}{by}{most}", filter_in_words(filter))
        }
        Command::PutService { name, change } => format!("services set {name}{}", change_in_words(change)),
        Command::Pause { service } => format!("pause{}", of(service)),
        Command::Resume { service } => format!("resume{}", of(service)),
        Command::Drain { wait } => format!("drain{}", if *wait { " --wait" } else { "" }),
        Command::Import { service, corpus, .. } => {
            format!("import --service {service} --corpus {corpus}")
        }
    }
}

fn change_in_words(change: &ServiceChange) -> String {
    let said = [
        change.timeout_ms.map(|span| format!(" --limit {}", words::span(span).replace(' ', ""))),
        change.budget.map(|n| format!(" --budget {n}")),
        change.result_cap.map(|n| format!(" --result-cap {}", exact_size(n))),
        change.retry_delay_ms.map(|span| format!(" --retry-delay {}", words::span(span).replace(' ', ""))),
        change.max_in_flight.map(|n| format!(" --max-in-flight {n}")),
        change.priority.map(|n| format!(" --priority {n}")),
    ];
    said.into_iter().flatten().collect()
}

/// A filter as it might be typed; services and corpora by their numbers, since their names may be gone.
fn filter_in_words(filter: &TaskFilter) -> String {
    let mut said: Vec<String> = filter.ids.iter().map(ToString::to_string).collect();
    if said.len() > 5 {
        said = vec![format!("{} ids", said.len())];
    }
    let list = |words: Vec<&str>| words.join(",");
    if !filter.states.is_empty() {
        said.push(format!("--in {}", list(filter.states.iter().map(|s| s.as_str()).collect())));
    }
    if !filter.statuses.is_empty() {
        said.push(format!("--status {}", list(filter.statuses.iter().map(|s| s.as_str()).collect())));
    }
    said.extend(filter.category.as_ref().map(|word| format!("--category {word}")));
    said.extend(filter.what.as_ref().map(|word| format!("--what {word}")));
    said.extend(filter.entry_prefix.as_ref().map(|prefix| format!("--entry {prefix}")));
    said.extend(filter.entries.iter().map(ToString::to_string));
    said.extend(filter.service.map(|id| format!("service {}", id.0)));
    said.extend(filter.corpus.map(|id| format!("corpus {}", id.0)));
    if said.is_empty() { "--all".to_owned() } else { said.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::{CorpusId, ServiceId, TaskId};
    use dispatcher_core::report::Status;
    use dispatcher_core::time::{SpanMs, TimeMs};
    use dispatcher_store::CommandOutcome;

    #[test]
    fn every_command_reads_as_it_might_be_typed() {
        let failed = TaskFilter { statuses: vec![Status::Fatal, Status::Invalid], ..TaskFilter::default() };
        let two = TaskFilter { ids: vec![TaskId(1), TaskId(2)], ..TaskFilter::default() };
        let of = TaskFilter {
            statuses: vec![Status::Fatal],
            service: Some(ServiceId(1)),
            corpus: Some(CorpusId(2)),
            ..TaskFilter::default()
        };
        let carve = Carve { name: "x".into(), filter: of, service: Some(ServiceId(3)), most: Some(9) };
        let change = ServiceChange { timeout_ms: Some(SpanMs(90_000)), priority: Some(-1), ..ServiceChange::default() };
        let said = [
            (Command::Rerun { filter: failed }, "rerun --status fatal,invalid"),
            (Command::Cancel { filter: two }, "cancel 1 2"),
            (Command::Cancel { filter: TaskFilter::default() }, "cancel --all"),
            (Command::Delete { what: Named::Corpus("c".into()) }, "delete corpus c"),
            (Command::Delete { what: Named::Sandbox("x".into()) }, "sandbox drop x"),
            (Command::Carve(carve), "sandbox carve x --status fatal service 1 corpus 2 --service 3 --limit 9"),
            (Command::PutService { name: "s".into(), change }, "services set s --limit 1m30s --priority -1"),
            (Command::Pause { service: None }, "pause"),
            (Command::Resume { service: Some("s".into()) }, "resume s"),
            (Command::Drain { wait: true }, "drain --wait"),
        ];
        for (command, words) in said {
            assert_eq!(in_words(&command), words);
        }
    }

    #[test]
    fn a_line_says_who_what_and_what_became_of_it() {
        let row = CommandRow {
            id: CommandId(7),
            at: TimeMs(0),
            actor: "ann@host".into(),
            command: Some(Command::Pause { service: None }),
            outcome: None,
            done_at: None,
        };
        assert_eq!(line(&row), "    7  1970-01-01T00:00:00.000Z  ann@host  pause: not through");
        let import = Command::Import { service: "s".into(), corpus: "c".into(), added: 3 };
        let imported = |changed| CommandRow {
            command: Some(import.clone()),
            outcome: Some(CommandOutcome { changed, error: None }),
            ..row.clone()
        };
        assert!(line(&imported(3)).ends_with("import --service s --corpus c: 3 added"));
        assert!(line(&imported(5)).ends_with(": 3 added, 2 taken anew"));
        let outcome = CommandOutcome { changed: 2, error: Some("no such thing".into()) };
        let through = CommandRow { outcome: Some(outcome), command: None, ..row };
        assert!(line(&through).ends_with("a command of another version: 2 changed; no such thing"));
    }
}
