//! What is asked again and again finds its rows by an index, however many tasks and attempts there have been.
//!
//! The statements are those that the store really sends: they are overheard, and their plans are asked for.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Carve, Claim, Command, DispatcherId, DispatcherInfo, Durability, Entry, Named, PartMove, PartRef, Record,
    ServiceSettings, SqliteOptions, SqliteStore, Store, TaskFilter, WorkerNote,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as Fields};
use tracing::{Event, Metadata, Subscriber};

static OVERHEARD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Keeps the statements that sqlx logs.
struct Listener;

/// The statement in one event; a short one is its own summary.
#[derive(Default)]
struct Statement {
    summary: String,
    whole: String,
}

impl Visit for Statement {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => self.summary = value.to_owned(),
            "db.statement" => self.whole = value.trim().to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, event: &Event<'_>) {
        let mut statement = Statement::default();
        event.record(&mut statement);
        let sql = if statement.whole.is_empty() { statement.summary } else { statement.whole };
        OVERHEARD.lock().expect("nobody panicked").insert(sql);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Fields<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fixture {
    store: SqliteStore,
    file: PathBuf,
    service: ServiceId,
    corpus: CorpusId,
    dispatcher: DispatcherId,
    _folder: tempfile::TempDir,
}

const NOW: TimeMs = TimeMs(1);

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.db");
    let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
    let store = SqliteStore::open(&file, options).await.expect("opens");
    let service = store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
    let corpus = store.put_corpus("c", b"/c").await.expect("makes").id;
    let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let dispatcher = store.register(&info, NOW).await.expect("registers");
    Fixture { store, file, service, corpus, dispatcher, _folder: folder }
}

/// A statement and the lines of its plan.
type Plan = (String, Vec<String>);

impl Fixture {
    async fn import(&self, count: usize) {
        let entry = |n: usize| Entry { name: EntryName(vec![n as u8]), size: 1, mtime_ns: 1, priority: 0 };
        let entries: Vec<_> = (0..count).map(entry).collect();
        self.store.import(self.service, self.corpus, &entries).await.expect("imports");
    }

    async fn claim(&self) -> Vec<LeaseId> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max: 3 };
        self.store.claim(&ask, NOW).await.expect("claims").iter().map(|t| t.lease).collect()
    }

    async fn carry_out(&self, command: Command) {
        let id = self.store.submit(&command, "a", NOW).await.expect("writes down");
        while self.store.step(id, 2, NOW).await.expect("steps").outcome.is_none() {}
    }

    /// The plans of the statements that were sent since the last call.
    async fn plans(&self) -> Vec<Plan> {
        let heard = std::mem::take(&mut *OVERHEARD.lock().expect("nobody panicked"));
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&self.file).disable_statement_logging();
        let mut connection = options.connect().await.expect("connects");
        let mut plans = Vec::new();
        for sql in heard.into_iter().filter(|sql| !sql.starts_with("BEGIN") && !sql.starts_with("COMMIT")) {
            let ask = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let rows = sqlx::query(ask).fetch_all(&mut connection).await.expect("has a plan");
            plans.push((sql, rows.iter().map(|row| row.get::<String, _>("detail")).collect()));
        }
        plans
    }
}

/// Tables that grow with the tasks, by the names they have in statements.
const GROWING: [&str; 11] = ["t", "p", "tasks", "a", "attempts", "r", "results", "m", "messages", "parts", "q"];

fn assert_by_index(plans: &[Plan]) {
    assert!(plans.len() > 2, "statements are overheard");
    for (sql, plan) in plans {
        let scans = plan.iter().filter_map(|line| line.strip_prefix("SCAN ")).filter_map(|line| line.split(' ').next());
        let scanned: Vec<_> = scans.filter(|table| GROWING.contains(table)).collect();
        assert!(scanned.is_empty(), "{scanned:?} is read whole by {sql}\n{plan:#?}");
    }
}

// Rule D2. Cases F45, F65.
#[tokio::test]
async fn claims_batches_commands_and_lists_of_workers_never_read_a_table_of_tasks_whole() {
    tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
    let fixture = fixture().await;
    fixture.import(9).await;
    OVERHEARD.lock().expect("nobody panicked").clear();

    let leases = fixture.claim().await;
    let plans = fixture.plans().await;
    assert_by_index(&plans);
    let ready = plans.iter().find(|(sql, _)| sql.starts_with("WITH lowest")).expect("the claim");
    let sorted = ready.1.iter().filter(|line| line.contains("TEMP B-TREE")).count();
    assert_eq!(sorted, 1, "only what was picked is sorted: {:#?}", ready.1);
    let picked = ready.1.iter().filter(|line| line.starts_with("SEARCH") && line.contains("tasks_ready")).count();
    assert_eq!(picked, 3, "{:#?}", ready.1);

    let worker = || WorkerKey { name: "w".into(), incarnation: "1".into() };
    let lease = leases[0];
    let packed = PartRef {
        name: "result".into(),
        place: EntryName(b"packs/1.tar".to_vec()),
        offset: 512,
        length: 1,
        sha256: "ab".into(),
    };
    let parts = vec![packed.clone()];
    let done = Record::Result { lease, worker: worker(), status: Status::Fatal, messages: vec![], parts, at: NOW };
    let batch = [Record::HandedOut { lease: leases[1], worker: worker(), at: NOW, began: false }, done];
    fixture.store.mark_done(&batch, NOW).await.expect("writes");
    assert_by_index(&fixture.plans().await);

    assert_eq!(fixture.store.packs().await.expect("lists").len(), 1);
    assert_eq!(fixture.store.packed(&packed.place, 0, 9).await.expect("lists").len(), 1);
    let (to, moves) = (EntryName(b"packs/2.tar".to_vec()), [PartMove { from: 512, to: Some(1024) }]);
    assert!(!fixture.store.move_parts(&packed.place, &to, &moves).await.expect("moves"));
    assert_by_index(&fixture.plans().await);

    let note = WorkerNote { worker: worker(), services: vec![], slots: 1, connected: true, heard_at: NOW };
    fixture.store.note_workers(fixture.dispatcher, &[note]).await.expect("notes");
    assert_eq!(fixture.store.workers(9).await.expect("lists").len(), 1);
    assert!(fixture.store.adopt(DispatcherId(9), None, NOW).await.expect("adopts").len() > 1);
    let plans = fixture.plans().await;
    assert_by_index(&plans);
    let sorted =
        |plan: &Plan| plan.0.contains("FROM workers") && plan.1.iter().any(|line| line.contains("TEMP B-TREE"));
    assert!(!plans.iter().any(sorted), "workers lie in their order already: {plans:#?}");

    fixture.store.outlook(TaskId(9)).await.expect("looks ahead");
    fixture.store.services().await.expect("lists");
    fixture.store.corpora().await.expect("lists");
    let plans = fixture.plans().await;
    assert_by_index(&plans);
    assert!(plans.iter().any(|(_, plan)| plan.iter().any(|line| line.contains("COVERING INDEX tasks_ready"))));

    let ids = TaskFilter { ids: vec![TaskId(2), TaskId(7)], ..Default::default() };
    let wide = TaskFilter {
        service: Some(fixture.service),
        corpus: Some(fixture.corpus),
        category: Some("c".into()),
        ..Default::default()
    };
    for filter in [ids, wide, TaskFilter::default()] {
        fixture.carry_out(Command::Rerun { filter: filter.clone() }).await;
        fixture.carry_out(Command::Cancel { filter }).await;
    }
    let of = TaskFilter { service: Some(fixture.service), corpus: Some(fixture.corpus), ..Default::default() };
    fixture.carry_out(Command::Carve(Carve { name: "x".into(), filter: of, service: None, most: None })).await;
    let sandbox = fixture.store.corpora().await.expect("lists")[1].id;
    assert_eq!(fixture.store.pairs(sandbox, TaskId(0), 99).await.expect("compares").len(), 9);
    let drop = Command::Delete { what: Named::Sandbox("x".into()) };
    let id = fixture.store.submit(&drop, "a", NOW).await.expect("writes down");
    fixture.store.doomed(id, 9).await.expect("lists");
    fixture.carry_out(drop).await;
    fixture.carry_out(Command::Delete { what: Named::Corpus("c".into()) }).await;
    fixture.carry_out(Command::Delete { what: Named::Service("s".into()) }).await;
    assert_by_index(&fixture.plans().await);
}
