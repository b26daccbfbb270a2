//! How long one piece of a command holds the writer, with a million tasks on disk that have results, messages and parts;
//! and beside them what must not grow with them: a claim, the list of workers, the books.
//!
//! Run by hand: `cargo run --release -p dispatcher-store --example control`; `TASKS` sets another number.
//! [`limits::PIECE`] is chosen by its longest times.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a measurement prints, and stops where it cannot go on")]

use dispatcher_core::id::{CorpusId, EntryName, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Carve, Claim, ClaimedTask, Command, DispatcherId, DispatcherInfo, Durability, Entry, Named, PartRef, Record,
    ServiceSettings, SqliteOptions, SqliteStore, Store, TaskFilter, WorkerNote, limits,
};
use std::time::{Duration, Instant};

const BATCH: usize = 1_024;
const NOW: TimeMs = TimeMs(1);

/// Tasks that are ready beside the finished ones while claims are measured.
const READY: usize = 1_000;

struct Measured {
    store: SqliteStore,
    service: ServiceId,
    corpus: CorpusId,
    dispatcher: DispatcherId,
}

impl Measured {
    async fn import(&self, range: std::ops::Range<usize>) {
        let name = |n: usize| EntryName(format!("2024/{:04}/paper-{n:08}.tex", n / 1_000).into_bytes());
        let entry = |n| Entry { name: name(n), size: 8_192, mtime_ns: 1, priority: 0 };
        let entries: Vec<_> = range.map(entry).collect();
        self.store.import(self.service, self.corpus, &entries).await.expect("imports");
    }

    async fn claim(&self, max: usize) -> Vec<ClaimedTask> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max };
        self.store.claim(&ask, NOW).await.expect("claims")
    }

    async fn mark_done(&self, batch: &[Record]) {
        self.store.mark_done(batch, NOW).await.expect("writes");
    }

    async fn finish_all(&self) {
        loop {
            let claimed = self.claim(BATCH).await;
            if claimed.is_empty() {
                return;
            }
            self.mark_done(&claimed.iter().map(result).collect::<Vec<_>>()).await;
        }
    }

    /// Carries a command out with pieces of each size in turn, and prints how long they took.
    async fn pieces(&self, what: &str, command: Command, sizes: &[usize]) {
        let id = self.store.submit(&command, "measurement", NOW).await.expect("writes down");
        let mut taken: Vec<Vec<Duration>> = vec![Vec::new(); sizes.len()];
        for turn in (0..sizes.len()).cycle() {
            let begun = Instant::now();
            let step = self.store.step(id, sizes[turn], NOW).await.expect("steps");
            taken[turn].push(begun.elapsed());
            if let Some(outcome) = step.outcome {
                println!("{what}: {outcome:?}");
                break;
            }
        }
        sizes.iter().zip(taken).for_each(|(size, taken)| print(&format!("  {size} tasks a piece"), taken));
    }
}

fn worker(n: usize) -> WorkerKey {
    WorkerKey { name: format!("host-{n}/slot"), incarnation: "0123456789abcdef".into() }
}

fn result(task: &ClaimedTask) -> Record {
    let said = |n: usize| Message {
        severity: Severity::Warning,
        category: "latex".into(),
        what: format!("missing_file_{n}"),
        details: "the file amsmath.sty was not found, its commands are undefined".into(),
    };
    Record::Result {
        lease: task.lease,
        worker: worker(task.lease.task.0.unsigned_abs() as usize % 200),
        status: Status::Warning,
        messages: (0..3).map(said).collect(),
        parts: vec![PartRef {
            name: "result".into(),
            place: task.entry.clone(),
            offset: 0,
            length: 8_192,
            sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
        }],
        at: NOW,
    }
}

fn print(what: &str, mut taken: Vec<Duration>) {
    taken.sort_unstable();
    let at = |percent: usize| taken.get(taken.len() * percent / 100).or(taken.last()).copied().unwrap_or_default();
    println!(
        "{what}: {} times, half within {:.1?}, 95 % within {:.1?}, longest {:.1?}",
        taken.len(),
        at(50),
        at(95),
        at(100)
    );
}

async fn run(tasks: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteOptions { durability: Durability::Full, readers: 1 };
    let store = SqliteStore::open(&folder.path().join("tasks.db"), options).await.expect("opens");
    let service = store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
    let corpus = store.put_corpus("c", b"/c").await.expect("makes").id;
    let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let dispatcher = store.register(&info, NOW).await.expect("registers");
    let measured = Measured { store, service, corpus, dispatcher };
    let begun = Instant::now();
    measured.import(0..tasks).await;
    measured.finish_all().await;
    println!("{tasks} tasks done in {:.1?}", begun.elapsed());

    measured.import(tasks..tasks + READY).await;
    let mut taken = Vec::new();
    for _ in 0..READY / 10 {
        let begun = Instant::now();
        let claimed = measured.claim(8).await;
        taken.push(begun.elapsed());
        measured.mark_done(&claimed.iter().map(result).collect::<Vec<_>>()).await;
    }
    print("claims of 8 among 1,000 ready tasks", taken);
    let note = |n| WorkerNote {
        worker: worker(n),
        services: vec!["s".into()],
        slots: 4,
        connected: true,
        heard_at: TimeMs(n as i64),
    };
    let notes: Vec<_> = (0..200).map(note).collect();
    let (mut noted, mut listed, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let begun = Instant::now();
        measured.store.note_workers(measured.dispatcher, &notes).await.expect("notes");
        noted.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(measured.store.workers(200).await.expect("lists").len(), 200);
        listed.push(begun.elapsed());
        let begun = Instant::now();
        measured.store.books().await.expect("reads");
        read.push(begun.elapsed());
    }
    print("notes of 200 workers", noted);
    print("lists of 200 workers", listed);
    print("the books", read);

    let sizes = [limits::PIECE / 4, limits::PIECE / 2, limits::PIECE];
    let none = TaskFilter { category: Some("nothing".into()), ..TaskFilter::default() };
    measured.pieces("rerun of what nothing matches", Command::Rerun { filter: none }, &sizes).await;
    measured.pieces("rerun", Command::Rerun { filter: TaskFilter::default() }, &sizes).await;
    let filter = TaskFilter {
        service: Some(measured.service),
        corpus: Some(measured.corpus),
        entry_prefix: Some(EntryName(b"2024/".to_vec())),
        ..TaskFilter::default()
    };
    let carve = Carve { name: "try".into(), filter, service: None, most: None };
    measured.pieces("carve of everything", Command::Carve(carve), &sizes).await;
    let (mut compared, mut after) = (Vec::new(), TaskId(0));
    let sandbox = measured.store.corpora().await.expect("lists").last().expect("it was made").id;
    loop {
        let begun = Instant::now();
        let page = measured.store.pairs(sandbox, after, limits::PAGE).await.expect("compares");
        compared.push(begun.elapsed());
        let Some(last) = page.last() else { break };
        after = last.task;
    }
    print("pages of a comparison", compared);
    measured.pieces("drop", Command::Delete { what: Named::Sandbox("try".into()) }, &sizes).await;
    for _ in 0..tasks / 10 / BATCH {
        let out =
            |task: &ClaimedTask| Record::HandedOut { lease: task.lease, worker: worker(1), at: NOW, began: false };
        let claimed = measured.claim(BATCH).await;
        measured.mark_done(&claimed.iter().map(out).collect::<Vec<_>>()).await;
    }
    measured.pieces("cancel", Command::Cancel { filter: TaskFilter::default() }, &sizes).await;
    measured.pieces("delete", Command::Delete { what: Named::Corpus("c".into()) }, &sizes).await;
    assert_eq!(measured.store.audit().await.expect("audits").differences, []);
}

fn main() {
    let asked = std::env::var("TASKS").ok().and_then(|n| n.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(asked.unwrap_or(1_000_000)));
}
