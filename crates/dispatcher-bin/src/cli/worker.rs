//! What can be said to `worker`.

use super::{size, span};
use clap::Args;
use dispatcher_transport::socket::{BackendKind, Endpoint};
use std::path::PathBuf;
use std::time::Duration;

/// `worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dispatcher worker --service html --exec './convert {input}'
  dispatcher worker --service html --ext html \\
    --exec 'pandoc {input} -o {output}'
  dispatcher worker --service thumbs --slots 8 --prefetch 8 \\
    --exec 'convert {input} -resize 200 {output}'
  dispatcher worker --connect tcp://127.0.0.1:51695 --service ocr \\
    --exec 'tesseract {input} stdout'

Placeholders in CMD: {input} {output} {stem} {ext} {task} {attempt}. Without {output}, what the
command prints is the result. --ext names {output} for CMD and nothing else: a stored result keeps its
input's name. Time limits, retries and the names of stored results are the dispatcher's.

A dispatcher that is away is waited for. Results wait on disk, in the worker's folder, until the
dispatcher has stored them; whatever ends the worker, the next one in that folder sends them again.
Start several workers in one place without more ado: each takes a folder of its own.

Exit codes: 0 everything was handed over, given back, or is kept on disk; 2 usage; 3 ended by a
second signal; 12 the drain was over before everything was; 13 a part died; 14 the folder is locked.")]
pub struct WorkerArgs {
    /// Where the dispatcher is; several are tried in turn.
    #[arg(
        long,
        value_name = "ENDPOINT",
        value_delimiter = ',',
        default_value = "tcp://127.0.0.1:51695",
        env = "DISPATCHER_CONNECT"
    )]
    pub connect: Vec<Endpoint>,
    /// The services that CMD does.
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true, env = "DISPATCHER_SERVICE")]
    pub service: Vec<String>,
    /// The command for each task.
    #[arg(long, short = 'e', value_name = "CMD")]
    pub exec: String,
    /// Give {output} this extension in place of the input's; what `export` writes keeps the input's name.
    #[arg(long, value_name = "EXT")]
    pub ext: Option<String>,
    /// Run CMD with `sh -c`; placeholders are quoted for it.
    #[arg(long)]
    pub shell: bool,
    /// How many commands run at once [default: the number of cores].
    #[arg(long, short, value_name = "N", env = "DISPATCHER_SLOTS", value_parser = clap::value_parser!(u32).range(1..=400))]
    pub slots: Option<u32>,
    /// How many tasks more to ask for, which wait here: for short tasks as many as slots.
    #[arg(long, value_name = "N", default_value_t = 0, env = "DISPATCHER_PREFETCH", value_parser = clap::value_parser!(u32).range(0..=399))]
    pub prefetch: u32,
    /// Which implementation of the sockets: omq or zeromq.
    #[arg(long, value_name = "NAME", default_value_t, env = "DISPATCHER_BACKEND")]
    pub backend: BackendKind,
    /// The worker's name, a label for people [default: the host's name and the folder's number].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where results wait and commands have their files [default: .dispatcher-worker, or the first
    /// of .dispatcher-worker-2, … that no other worker has].
    #[arg(long, value_name = "DIR", env = "DISPATCHER_WORKER_DIR")]
    pub dir: Option<PathBuf>,
    /// How long to go on after SIGTERM or Ctrl-C with what runs and what waits for its answer.
    #[arg(long, value_name = "TIME", default_value = "30s", env = "DISPATCHER_DRAIN", value_parser = span)]
    pub drain: Duration,
    /// How long a command may take to end after SIGTERM, before it is killed.
    #[arg(long, value_name = "TIME", default_value = "5s", env = "DISPATCHER_KILL_GRACE", value_parser = span)]
    pub kill_grace: Duration,
    /// The largest result; a larger one makes its input invalid.
    #[arg(long, value_name = "SIZE", default_value = "4GB", env = "DISPATCHER_RESULT_CAP", value_parser = size)]
    pub result_cap: bytesize::ByteSize,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
}
