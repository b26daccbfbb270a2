//! Memory and SQLite, driven with the same random history, cannot be told apart.

use crate::kit::{Kind, Kit, entry, message, part, worker};
use dispatcher_core::id::{CorpusId, EntryName, LeaseId, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{
    Carve, Claim, Command, CommandPage, DispatcherId, DispatcherInfo, Entry, Named, PackedPart, PartMove, PartRef,
    Record, ServiceChange, ServiceSettings, Store, TaskFilter, TaskState, WorkerNote,
};
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
enum Step {
    Import { first: u8, count: u8, size: u64, priority: i32 },
    AcceptChange { first: u8, count: u8, size: u64 },
    Settings { budget: u32, delay: u64, paused: bool, timeout: u64 },
    Claim { service: bool, by: u8, max: usize },
    Batch(Vec<Told>),
    Rerun { which: u8, max: usize },
    Cancel { which: u8, max: usize },
    Adopt { by: u8, all: bool },
    Command { command: Box<Command>, piece: usize, pieces: u8 },
    GoOn { piece: usize },
    MoveParts { from: u8, to: u8, gone: Vec<(u64, Option<u64>)> },
    Workers(Vec<(u8, u8, bool)>),
    Wait { ms: i64 },
}

/// A record about one of the leases so far, counted from the newest.
#[derive(Clone, Debug)]
struct Told {
    back: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    HandedOut,
    Began,
    Result(Status, u8),
    Packed(Status, u8, u64),
    Ended(Ending, bool, u8),
    InputFailed(bool),
    Returned,
    Published,
    TooLarge,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let told = (0..12_usize, whats()).prop_map(|(back, what)| Told { back, what });
    let small = 1..6_usize;
    let step = prop_oneof![
        3 => (0..12_u8, 0..6_u8, 0..3_u64, -1..2_i32)
            .prop_map(|(first, count, size, priority)| Step::Import { first, count, size, priority }),
        1 => (0..12_u8, 0..6_u8, 0..3_u64).prop_map(|(first, count, size)| Step::AcceptChange { first, count, size }),
        1 => (0..4_u32, select(vec![0, 0, 5_000]), prop::bool::weighted(0.1), 1..5_u64)
            .prop_map(|(budget, delay, paused, timeout)| Step::Settings { budget, delay, paused, timeout }),
        6 => (prop::bool::weighted(0.9), 0..2_u8, small.clone())
            .prop_map(|(service, by, max)| Step::Claim { service, by, max }),
        10 => prop::collection::vec(told, 1..8).prop_map(Step::Batch),
        1 => (0..8_u8, small.clone()).prop_map(|(which, max)| Step::Rerun { which, max }),
        1 => (0..8_u8, small).prop_map(|(which, max)| Step::Cancel { which, max }),
        1 => (0..2_u8, any::<bool>()).prop_map(|(by, all)| Step::Adopt { by, all }),
        2 => (commands(), 1..6_usize, 0..4_u8)
            .prop_map(|(command, piece, pieces)| Step::Command { command: Box::new(command), piece, pieces }),
        1 => (1..6_usize).prop_map(|piece| Step::GoOn { piece }),
        1 => prop::collection::vec((0..3_u8, 0..2_u8, any::<bool>()), 0..4).prop_map(Step::Workers),
        2 => (-3_000..9_000_i64).prop_map(|ms| Step::Wait { ms }),
        1 => (0..3_u8, 0..3_u8, prop::collection::vec((1..9_u64, prop::option::of(1..9_u64)), 0..5))
            .prop_map(|(from, to, gone)| Step::MoveParts { from, to, gone }),
    ];
    prop::collection::vec(step, 1..50)
}

fn commands() -> impl Strategy<Value = Command> {
    let name = || select(vec!["first".to_owned(), "second".to_owned(), "no such".to_owned()]);
    let corpus = || select(vec!["papers".to_owned(), "try".to_owned(), "no such".to_owned()]);
    let carve = (corpus(), 0..8_u8, 1..4_i64, prop::option::of(1..3_i64), prop::option::of(0..5_u64)).prop_map(
        |(name, which, from, service, most)| {
            let (corpus, of) = (Some(CorpusId(from)), Some(ServiceId(1)));
            let filter = TaskFilter { corpus, service: of, ..filter(which) };
            Command::Carve(Carve { name, filter, service: service.map(ServiceId), most })
        },
    );
    let change = (prop::option::of(0..3_u32), prop::option::of(-1..2_i32), prop::option::of(1..4_u32)).prop_map(
        |(max_in_flight, priority, budget)| ServiceChange { max_in_flight, priority, budget, ..Default::default() },
    );
    prop_oneof![
        3 => (0..8_u8).prop_map(|which| Command::Rerun { filter: filter(which) }),
        3 => (0..8_u8).prop_map(|which| Command::Cancel { filter: filter(which) }),
        1 => corpus().prop_map(|name| Command::Delete { what: Named::Corpus(name) }),
        1 => corpus().prop_map(|name| Command::Delete { what: Named::Sandbox(name) }),
        3 => carve,
        1 => name().prop_map(|name| Command::Delete { what: Named::Service(name) }),
        1 => (name(), change).prop_map(|(name, change)| Command::PutService { name, change }),
        1 => prop::option::of(name()).prop_map(|service| Command::Pause { service }),
        2 => prop::option::of(name()).prop_map(|service| Command::Resume { service }),
        1 => any::<bool>().prop_map(|wait| Command::Drain { wait }),
    ]
}

fn whats() -> impl Strategy<Value = What> {
    let status = select(Status::ALL.to_vec());
    let packed = (select(Status::ALL.to_vec()), 0..3_u8, 1..9_u64);
    let ending = select(vec![
        Ending::Expired,
        Ending::WorkerLost,
        Ending::TimeLimit,
        Ending::Unusable,
        Ending::RetryableCause,
        Ending::Undeliverable,
        Ending::HandedBack,
    ]);
    prop_oneof![
        5 => Just(What::HandedOut),
        3 => Just(What::Began),
        6 => (status, 0..3_u8).prop_map(|(status, papers)| What::Result(status, papers)),
        3 => packed.prop_map(|(status, pack, offset)| What::Packed(status, pack, offset)),
        6 => (ending, any::<bool>(), 0..3_u8).prop_map(|(e, began, papers)| What::Ended(e, began, papers)),
        1 => any::<bool>().prop_map(What::InputFailed),
        1 => Just(What::Returned),
        2 => Just(What::Published),
        1 => Just(What::TooLarge),
    ]
}

/// The two stores and what both have given out.
struct Twins {
    memory: Kit,
    sqlite: Kit,
    leases: Vec<LeaseId>,
    now: TimeMs,
}

impl Twins {
    async fn new() -> Self {
        let (memory, sqlite) = (Kit::new(Kind::Memory).await, Kit::new(Kind::Sqlite).await);
        for kit in [&memory, &sqlite] {
            let other = DispatcherInfo { id: Some(DispatcherId(2)), host: "other".into(), endpoint: "e".into() };
            kit.store.register(&other, TimeMs(0)).await.expect("registers");
            kit.store.put_service("second", &ServiceSettings::default()).await.expect("makes");
        }
        Self { memory, sqlite, leases: Vec::new(), now: TimeMs(1_000) }
    }

    async fn take(&mut self, step: &Step) {
        if let Step::Wait { ms } = step {
            self.now = TimeMs(self.now.0 + ms);
            return;
        }
        let batch = if let Step::Batch(told) = step { self.records(told) } else { Vec::new() };
        let one = say(&*self.memory.store, &self.memory, step, &batch, self.now).await;
        let two = say(&*self.sqlite.store, &self.sqlite, step, &batch, self.now).await;
        assert_eq!(one.0, two.0, "the answers to {step:?}");
        self.leases.extend(one.1);
    }

    fn records(&self, told: &[Told]) -> Vec<Record> {
        let lease = |back: usize| self.leases.iter().rev().nth(back).copied();
        told.iter().filter_map(|t| lease(t.back).map(|lease| record(lease, &t.what, self.now))).collect()
    }

    async fn compare(&self, step: &Step) {
        let (one, two) = (&*self.memory.store, &*self.sqlite.store);
        let (all, start) = (TaskFilter::default(), TaskId(0));
        let rows = one.tasks(&all, start, 1_000).await.expect("lists");
        assert_eq!(rows, two.tasks(&all, start, 1_000).await.expect("lists"), "rows after {step:?}");
        for row in &rows {
            let story = one.story(row.id).await.expect("reads");
            assert_eq!(story, two.story(row.id).await.expect("reads"), "a story after {step:?}");
        }
        for which in 0..8 {
            let filter = filter(which);
            assert_eq!(one.summary(&filter).await.expect("counts"), two.summary(&filter).await.expect("counts"));
            assert_eq!(
                one.tasks(&filter, TaskId(2), 3).await.expect("lists"),
                two.tasks(&filter, TaskId(2), 3).await.expect("lists")
            );
        }
        let waiting = one.unpublished(None, 99).await.expect("lists");
        assert_eq!(waiting, two.unpublished(None, 99).await.expect("lists"), "after {step:?}");
        let after = waiting.first().map(|p| p.lease);
        assert_eq!(one.unpublished(after, 2).await.expect("lists"), two.unpublished(after, 2).await.expect("lists"));
        assert_eq!(
            one.standing_parts(start, 99).await.expect("lists"),
            two.standing_parts(start, 99).await.expect("lists")
        );
        let packs = one.packs().await.expect("lists");
        assert_eq!(packs, two.packs().await.expect("lists"), "packs after {step:?}");
        for pack in packs {
            let parts = one.packed(&pack.place, 0, 99).await.expect("lists");
            assert_eq!(offsets(&parts), offsets(&two.packed(&pack.place, 0, 99).await.expect("lists")), "{step:?}");
        }
        assert_eq!(one.services().await.expect("lists"), two.services().await.expect("lists"), "after {step:?}");
        assert_eq!(one.corpora().await.expect("lists"), two.corpora().await.expect("lists"), "after {step:?}");
        for sandbox in 1..5 {
            let pairs = one.pairs(CorpusId(sandbox), TaskId(1), 9).await.expect("compares");
            assert_eq!(pairs, two.pairs(CorpusId(sandbox), TaskId(1), 9).await.expect("compares"), "after {step:?}");
        }
        let page = CommandPage { newest: true, max: 9, ..Default::default() };
        assert_eq!(one.commands(&page).await.expect("lists"), two.commands(&page).await.expect("lists"));
        let workers = one.workers(9).await.expect("lists");
        assert_eq!(workers, two.workers(9).await.expect("lists"), "workers after {step:?}");
        assert_eq!(one.books().await.expect("reads"), two.books().await.expect("reads"), "books after {step:?}");
        let audit = one.audit().await.expect("audits");
        assert_eq!(audit.differences, [], "the books balance after {step:?}");
        assert_eq!(audit, two.audit().await.expect("audits"), "the books after {step:?}");
    }
}

/// Does one step at one store; gives what it answered, in words, and the leases it gave out.
async fn say(store: &dyn Store, kit: &Kit, step: &Step, batch: &[Record], now: TimeMs) -> (String, Vec<LeaseId>) {
    let mut leases = Vec::new();
    let said = match step {
        Step::Import { first, count, size, priority } => {
            let done = store.import(kit.service, kit.corpus, &entries(*first, *count, *size, *priority)).await;
            format!("{:?}", done.map_err(|e| (e.class, e.why)))
        }
        Step::AcceptChange { first, count, size } => {
            let entries = entries(*first, *count, *size, 0);
            format!("{:?}", store.accept_change(kit.service, kit.corpus, &entries, now).await.expect("accepts"))
        }
        Step::Settings { budget, delay, paused, timeout } => {
            let settings = ServiceSettings {
                budget: *budget,
                retry_delay_ms: SpanMs(*delay),
                paused: *paused,
                timeout_ms: SpanMs(*timeout),
                ..Default::default()
            };
            format!("{:?}", store.put_service("first", &settings).await.expect("settings"))
        }
        Step::Claim { service, by, max } => {
            let service = if *service { kit.service } else { ServiceId(2) };
            let ask = Claim { dispatcher: DispatcherId(i64::from(*by) + 1), service, max: *max };
            let claimed = store.claim(&ask, now).await.expect("claims");
            leases.extend(claimed.iter().map(|t| t.lease));
            format!("{claimed:?}")
        }
        Step::Batch(_) => format!("{:?}", store.mark_done(batch, now).await.expect("writes")),
        Step::Rerun { which, max } => {
            format!("{:?}", store.rerun(&filter(*which), TaskId(0), *max, now).await.expect("reruns"))
        }
        Step::Cancel { which, max } => {
            format!("{:?}", store.cancel(&filter(*which), TaskId(0), *max, now).await.expect("cancels"))
        }
        Step::Adopt { by, all } => {
            let (by, other) = (DispatcherId(i64::from(*by) + 1), [DispatcherId(2 - i64::from(*by))]);
            let gone = (!all).then_some(&other[..]);
            format!("{:?}", store.adopt(by, gone, now).await.expect("adopts"))
        }
        Step::Command { command, piece, pieces } => {
            let id = store.submit(command, "somebody", now).await.expect("writes down");
            let mut said = format!("{id:?}");
            for _ in 0..*pieces {
                said += &format!("{:?}", store.doomed(id, *piece).await.expect("lists"));
                said += &format!("{:?}", store.step(id, *piece, now).await.expect("steps"));
            }
            said
        }
        Step::GoOn { piece } => {
            let open = CommandPage { open: true, max: 99, ..Default::default() };
            let mut said = String::new();
            for command in store.commands(&open).await.expect("lists") {
                said += &format!("{:?}", store.step(command.id, *piece, now).await.expect("steps"));
            }
            said
        }
        Step::Workers(seen) => {
            let note = |(n, (which, incarnation, connected)): (i64, &(u8, u8, bool))| WorkerNote {
                worker: WorkerKey {
                    name: ["even", "odd", "idle"][usize::from(*which)].into(),
                    incarnation: incarnation.to_string(),
                },
                services: vec!["first".into()],
                slots: u32::from(*which),
                connected: *connected,
                heard_at: TimeMs(now.0 + n),
            };
            let notes: Vec<_> = (0..).zip(seen).map(note).collect();
            store.note_workers(kit.dispatcher, &notes).await.expect("notes");
            String::new()
        }
        Step::MoveParts { from, to, gone } => {
            // Each offset leaves once, as in a pack.
            let moves: std::collections::BTreeMap<u64, Option<u64>> = gone.iter().copied().collect();
            let moves: Vec<_> = moves.into_iter().map(|(from, to)| PartMove { from, to }).collect();
            let (from, to) = (pack(*from), pack(to + 3));
            format!("{:?}", store.move_parts(&from, &to, &moves).await.expect("moves"))
        }
        Step::Wait { .. } => String::new(),
    };
    (said, leases)
}

fn pack(n: u8) -> EntryName {
    EntryName(format!("packs/{n}.tar").into_bytes())
}

/// Parts as random histories make them may lie at one place: then their order says nothing.
fn offsets(parts: &[PackedPart]) -> Vec<(u64, bool)> {
    let mut offsets: Vec<_> = parts.iter().map(|part| (part.offset, part.live)).collect();
    offsets.sort_unstable();
    offsets
}

fn entries(first: u8, count: u8, size: u64, priority: i32) -> Vec<Entry> {
    // Every third name comes twice.
    let names = (first..first + count).flat_map(|n| std::iter::repeat_n(n, if n % 3 == 0 { 2 } else { 1 }));
    names.map(|n| Entry { size, priority, ..entry(&format!("{}/{n}", n % 2)) }).collect()
}

fn filter(which: u8) -> TaskFilter {
    let all = TaskFilter::default();
    match which {
        0 => all,
        1 => TaskFilter { states: vec![TaskState::Done, TaskState::Dead], ..all },
        2 => TaskFilter { statuses: vec![Status::Fatal, Status::Invalid], ..all },
        3 => TaskFilter { entry_prefix: Some(EntryName(b"1/".to_vec())), ..all },
        4 => TaskFilter { ids: vec![TaskId(1), TaskId(3), TaskId(4)], ..all },
        5 => TaskFilter { category: Some("papers".into()), ..all },
        6 => TaskFilter { what: Some("1".into()), ..all },
        _ => TaskFilter { states: vec![TaskState::Ready, TaskState::Leased], ..all },
    }
}

fn record(lease: LeaseId, what: &What, at: TimeMs) -> Record {
    let worker = worker(if lease.epoch.0.is_multiple_of(2) { "even" } else { "odd" });
    let papers = |n: u8| {
        let messages: Vec<_> = (0..n).map(|n| message("papers", &n.to_string())).collect();
        let parts: Vec<_> = (0..n).map(|n| part(["result", "stdout", "stderr"][usize::from(n)])).collect();
        (messages, parts)
    };
    match what {
        What::HandedOut => Record::HandedOut { lease, worker, at, began: false },
        What::Began => Record::Began { lease, at },
        What::Result(status, n) => {
            let (messages, parts) = papers(*n);
            Record::Result { lease, worker, status: *status, messages, parts, at }
        }
        What::Packed(status, n, offset) => {
            let parts = ["result", "stderr"].map(|name| PartRef { place: pack(*n), offset: *offset, ..part(name) });
            let parts = parts.into_iter().take(1 + usize::from(offset.is_multiple_of(2))).collect();
            Record::Result { lease, worker, status: *status, messages: vec![], parts, at }
        }
        What::Ended(ending, began, n) => {
            let (messages, parts) = papers(*n);
            let (worker, why) = ((*n < 2).then_some(worker), message("why", ending.as_str()));
            Record::Ended { lease, worker, ending: *ending, began: *began, why, messages, parts, at }
        }
        What::InputFailed(retry) => {
            Record::InputFailed { lease, why: message("dispatcher", "input_missing"), retry: *retry, at }
        }
        What::Returned => Record::Returned { lease },
        What::Published => Record::Published { lease },
        What::TooLarge => {
            let mut large = part("result");
            large.length = u64::MAX;
            Record::Result { lease, worker, status: Status::Error, messages: vec![], parts: vec![large], at }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    // Rules A1, A5, C5, D5, D6.
    #[test]
    fn memory_and_sqlite_cannot_be_told_apart(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut twins = Twins::new().await;
            for step in &steps {
                twins.take(step).await;
                twins.compare(step).await;
            }
        });
    }
}

fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let full = std::env::var_os("DISPATCHER_FULL").is_some();
    asked.unwrap_or(if full { 2_000 } else { 40 })
}
