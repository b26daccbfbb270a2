//! Reruns and cancellations.

use crate::kit::{Kit, NOW, entry, result};
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::Status;
use dispatcher_store::{Progress, TaskFilter, TaskState};

// Rule C6.
async fn a_rerun_goes_piece_by_piece_to_its_end(kit: Kit) {
    kit.import(10).await;
    let all = TaskFilter::default();
    let first = kit.store.rerun(&all, TaskId(0), 4, NOW).await.expect("reruns");
    assert_eq!(first, Progress { changed: 4, next: Some(TaskId(4)) });
    let second = kit.store.rerun(&all, TaskId(4), 4, NOW).await.expect("reruns");
    assert_eq!(second, Progress { changed: 4, next: Some(TaskId(8)) });
    let last = kit.store.rerun(&all, TaskId(8), 4, NOW).await.expect("reruns");
    assert_eq!(last, Progress { changed: 2, next: None });
    assert!(kit.all().await.iter().all(|t| t.run.0 == 2));
}

// Rule L14.
async fn a_rerun_takes_only_what_matches(kit: Kit) {
    kit.import(4).await;
    let claimed = kit.claim(3).await;
    let statuses = [Status::NoProblem, Status::Fatal, Status::Invalid];
    let batch: Vec<_> = claimed.iter().zip(statuses).map(|(t, s)| result(t.lease, s)).collect();
    kit.tell_all(&batch).await;
    let failed = TaskFilter { statuses: vec![Status::Fatal, Status::Invalid], ..Default::default() };
    let done = kit.store.rerun(&failed, TaskId(0), 100, NOW).await.expect("reruns");
    assert_eq!(done, Progress { changed: 2, next: None });
    let runs: Vec<_> = kit.all().await.iter().map(|t| (t.run.0, t.state)).collect();
    assert_eq!(runs, [(1, TaskState::Done), (2, TaskState::Ready), (2, TaskState::Ready), (1, TaskState::Ready)]);
    assert_eq!(kit.story(claimed[1].lease.task).await.results.len(), 1, "what was is kept");
    kit.assert_balanced().await;
}

// Rule A5. Case F63.
async fn a_cancellation_ends_what_is_not_over(kit: Kit) {
    kit.import(4).await;
    let claimed = kit.claim(2).await;
    kit.tell(result(claimed[0].lease, Status::Fatal)).await;
    let done = kit.store.cancel(&TaskFilter::default(), TaskId(0), 100, NOW).await.expect("cancels");
    assert_eq!(done, Progress { changed: 3, next: None });
    let again = kit.store.cancel(&TaskFilter::default(), TaskId(0), 100, NOW).await.expect("cancels");
    assert_eq!(again, Progress { changed: 0, next: None });
    let states: Vec<_> = kit.all().await.iter().map(|t| t.state).collect();
    assert_eq!(states, [TaskState::Done, TaskState::Cancelled, TaskState::Cancelled, TaskState::Cancelled]);
    let one = TaskFilter { ids: vec![TaskId(3)], ..Default::default() };
    kit.store.rerun(&one, TaskId(0), 100, NOW).await.expect("reruns");
    assert_eq!(kit.claim(9).await.len(), 1, "a rerun brings it back");
    kit.assert_balanced().await;
}

// Case F52.
async fn a_filter_matches_bytes_and_words_exactly(kit: Kit) {
    let names: [&[u8]; 5] = [b"a/1", b"a/2", b"b\0/1", b"b\0/2", b"\xff"];
    let entries: Vec<_> = names.map(|n| dispatcher_store::Entry { name: EntryName(n.to_vec()), ..entry("") }).to_vec();
    kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    let claimed = kit.claim(5).await;
    let mut record = result(claimed[0].lease, Status::Error);
    if let dispatcher_store::Record::Result { messages, .. } = &mut record {
        messages[0].category = "nul\0inside".into();
    }
    kit.tell_all(&[record, result(claimed[1].lease, Status::Error)]).await;
    let found = |filter: TaskFilter| {
        let store = kit.store.clone();
        async move { store.tasks(&filter, TaskId(0), 99).await.expect("lists").iter().map(|t| t.id.0).collect::<Vec<_>>() }
    };
    let prefix = |bytes: &[u8]| TaskFilter { entry_prefix: Some(EntryName(bytes.to_vec())), ..Default::default() };
    assert_eq!(found(prefix(b"")).await, [1, 2, 3, 4, 5]);
    assert_eq!(found(prefix(b"a/")).await, [1, 2]);
    assert_eq!(found(prefix(b"b\0")).await, [3, 4]);
    assert_eq!(found(prefix(b"\xff")).await, [5]);
    let named = |names: &[&[u8]]| TaskFilter {
        entries: names.iter().map(|name| EntryName(name.to_vec())).collect(),
        ..Default::default()
    };
    assert_eq!(found(named(&[b"\xff", b"b\0/1", b"a/", b"a/2", b""])).await, [2, 3, 5]);
    assert_eq!(found(TaskFilter { ids: vec![TaskId(1)], ..named(&[b"a/2"]) }).await, Vec::<i64>::new());
    let category = |c: &str| TaskFilter { category: Some(c.into()), ..Default::default() };
    assert_eq!(found(category("nul\0inside")).await, [1]);
    assert_eq!(found(category("nul")).await, Vec::<i64>::new());
    assert_eq!(found(category("said")).await, [2]);
    let both = TaskFilter { category: Some("said".into()), what: Some("error".into()), ..Default::default() };
    assert_eq!(found(both).await, [2]);
    let what = TaskFilter { what: Some("error".into()), states: vec![TaskState::Done], ..Default::default() };
    assert_eq!(found(what).await, [1, 2]);
    let ids = TaskFilter { ids: vec![TaskId(5), TaskId(2), TaskId(77)], ..Default::default() };
    assert_eq!(found(ids).await, [2, 5]);
    let elsewhere = TaskFilter { corpus: Some(dispatcher_core::id::CorpusId(9)), ..Default::default() };
    assert_eq!(found(elsewhere).await, Vec::<i64>::new());
}

both_stores!(
    a_rerun_goes_piece_by_piece_to_its_end,
    a_rerun_takes_only_what_matches,
    a_cancellation_ends_what_is_not_over,
    a_filter_matches_bytes_and_words_exactly,
);
