//! What every test of the suite starts from.

use dispatcher_core::claim::Standing;
use dispatcher_core::id::{CorpusId, EntryName, Epoch, LeaseId, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Answer, Claim, ClaimedTask, DispatcherId, DispatcherInfo, Durability, Entry, MemoryStore, PartRef, Record,
    ServiceSettings, SqliteOptions, SqliteStore, Store, Story, TaskFilter, TaskRow, TaskState,
};
use futures_util::future::BoxFuture;
use std::path::PathBuf;
use std::sync::Arc;

/// Which store a test runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
}

/// A store with one service, one corpus and one dispatcher.
pub(crate) struct Kit {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) service: ServiceId,
    pub(crate) corpus: CorpusId,
    pub(crate) dispatcher: DispatcherId,
    /// The database's file, where there is one.
    pub(crate) file: Option<PathBuf>,
    folder: Option<tempfile::TempDir>,
}

pub(crate) const NOW: TimeMs = TimeMs(1_000_000);

pub(crate) fn run(kind: Kind, test: impl FnOnce(Kit) -> BoxFuture<'static, ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { test(Kit::new(kind).await).await });
}

impl Kit {
    pub(crate) async fn new(kind: Kind) -> Self {
        let (store, file, folder): (Arc<dyn Store>, _, _) = match kind {
            Kind::Memory => (Arc::new(MemoryStore::new()), None, None),
            Kind::Sqlite => {
                let folder = tempfile::tempdir().expect("a folder");
                let file = folder.path().join("tasks.db");
                let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
                let store = SqliteStore::open(&file, options).await.expect("opens");
                (Arc::new(store), Some(file), Some(folder))
            }
        };
        let service = store.put_service("first", &ServiceSettings::default()).await.expect("a service").id;
        let corpus = store.put_corpus("papers", b"/papers").await.expect("a corpus").id;
        let here = DispatcherInfo { id: None, host: "here".into(), endpoint: "ipc://x".into() };
        let dispatcher = store.register(&here, NOW).await.expect("a dispatcher");
        Self { store, service, corpus, dispatcher, file, folder }
    }

    /// The same database, opened once more; the suite's own store where it is in memory.
    pub(crate) async fn reopened(&self) -> Arc<dyn Store> {
        match &self.file {
            Some(file) => {
                let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
                Arc::new(SqliteStore::open(file, options).await.expect("opens again"))
            }
            None => Arc::clone(&self.store),
        }
    }

    /// Whether a folder is kept for it.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.folder.is_some()
    }

    /// The service with other settings.
    pub(crate) async fn settings(&self, change: impl FnOnce(&mut ServiceSettings)) {
        let mut settings = ServiceSettings::default();
        change(&mut settings);
        self.store.put_service("first", &settings).await.expect("settings");
    }

    pub(crate) async fn import(&self, count: usize) {
        let entries: Vec<_> = (0..count).map(|n| entry(&format!("{n:06}"))).collect();
        let done = self.store.import(self.service, self.corpus, &entries).await.expect("imports");
        assert_eq!(done.added, count as u64);
    }

    pub(crate) async fn claim(&self, max: usize) -> Vec<ClaimedTask> {
        self.claim_at(max, NOW).await
    }

    pub(crate) async fn claim_at(&self, max: usize, now: TimeMs) -> Vec<ClaimedTask> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max };
        self.store.claim(&ask, now).await.expect("claims")
    }

    /// One task, imported, claimed, handed out and begun.
    pub(crate) async fn one_lease(&self) -> LeaseId {
        self.import(1).await;
        self.lease().await
    }

    /// The next ready task, handed out and begun.
    pub(crate) async fn lease(&self) -> LeaseId {
        let claimed = self.claim(1).await;
        let lease = claimed.first().expect("a ready task").lease;
        let notes = [handed_out(lease), Record::Began { lease, at: NOW }];
        assert_eq!(self.tell_all(&notes).await, [Answer::Noted, Answer::Noted]);
        lease
    }

    pub(crate) async fn tell(&self, record: Record) -> Answer {
        self.tell_all(&[record]).await.pop().expect("an answer")
    }

    pub(crate) async fn tell_all(&self, records: &[Record]) -> Vec<Answer> {
        let answers = self.store.mark_done(records, NOW).await.expect("writes");
        assert_eq!(answers.len(), records.len(), "one answer for each record");
        answers
    }

    pub(crate) async fn story(&self, task: TaskId) -> Story {
        self.store.story(task).await.expect("reads").expect("there is such a task")
    }

    pub(crate) async fn all(&self) -> Vec<TaskRow> {
        self.store.tasks(&TaskFilter::default(), TaskId(0), 1_000).await.expect("lists")
    }

    pub(crate) async fn state(&self, task: TaskId) -> TaskState {
        self.story(task).await.task.state
    }

    pub(crate) async fn assert_balanced(&self) {
        let audit = self.store.audit().await.expect("audits");
        assert_eq!(audit.differences, [], "the books balance");
        assert_eq!(audit.dispatched, audit.out + audit.endings.iter().map(|(_, n)| n).sum::<u64>());
    }

    /// A connection of our own to the database, to do what no store would.
    pub(crate) async fn meddle(&self, sql: &'static str) {
        use sqlx::ConnectOptions;
        let file = self.file.as_ref().expect("a database on disk");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let mut connection = options.connect().await.expect("connects");
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("meddles");
    }
}

pub(crate) fn entry(name: &str) -> Entry {
    Entry { name: EntryName(name.as_bytes().to_vec()), size: 10, mtime_ns: 20, priority: 0 }
}

pub(crate) fn worker(name: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: "1".into() }
}

pub(crate) fn message(category: &str, what: &str) -> Message {
    Message { severity: Severity::Error, category: category.into(), what: what.into(), details: "details".into() }
}

pub(crate) fn part(name: &str) -> PartRef {
    PartRef { name: name.into(), place: EntryName(b"some/place".to_vec()), offset: 0, length: 4, sha256: "abcd".into() }
}

pub(crate) fn handed_out(lease: LeaseId) -> Record {
    Record::HandedOut { lease, worker: worker("w"), at: NOW, began: false }
}

pub(crate) fn result(lease: LeaseId, status: Status) -> Record {
    let messages = vec![message("said", status.as_str())];
    Record::Result { lease, worker: worker("w"), status, messages, parts: vec![part("result")], at: NOW }
}

pub(crate) fn ended(lease: LeaseId, ending: Ending) -> Record {
    let (worker, why) = (Some(worker("w")), message("why", ending.as_str()));
    Record::Ended { lease, worker, ending, began: true, why, messages: vec![], parts: vec![], at: NOW }
}

pub(crate) const STORED: Answer = Answer::Stored { replaced: None, repeat: false };
pub(crate) const REPEATED: Answer = Answer::Stored { replaced: None, repeat: true };

pub(crate) const fn standing(epoch: u64, status: Status, origin: Origin) -> Standing {
    Standing { epoch: Epoch(epoch), status, origin }
}

pub(crate) const fn lease(task: i64, run: u32, epoch: u64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(run), epoch: Epoch(epoch) }
}
