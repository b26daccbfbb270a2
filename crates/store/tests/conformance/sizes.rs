//! Lists of any length.

use crate::kit::{Kit, NOW, STORED, entry, lease, result};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::Status;
use dispatcher_store::limits::{BATCH, CHUNK, PAGE};
use dispatcher_store::{Answer, DispatcherId, Entry, Record, TaskFilter};

/// Lengths around the limits of databases (a bind each for 1, 4, 6 and 12 columns) and of our own pieces.
fn lengths() -> Vec<usize> {
    let around = |n: usize| [n - 1, n, n + 1];
    let mut lengths: Vec<_> = [32_766, 65_535, 65_535 / 6, 32_766 / 12, 32_766 / 4, CHUNK, BATCH, PAGE]
        .into_iter()
        .flat_map(around)
        .collect();
    lengths.extend([0, 1]);
    lengths.sort_unstable();
    lengths
}

/// A million only with `cargo xtask test --full`.
fn huge() -> usize {
    if std::env::var_os("DISPATCHER_FULL").is_some() { 1_000_000 } else { 100_000 }
}

fn entries(range: std::ops::Range<usize>) -> Vec<Entry> {
    range.map(|n| entry(&format!("{n:07}"))).collect()
}

// Case F42.
async fn an_import_takes_any_number_of_entries(kit: Kit) {
    for length in lengths() {
        let known = kit.store.summary(&TaskFilter::default()).await.expect("counts").total;
        let done = kit.store.import(kit.service, kit.corpus, &entries(0..length)).await.expect("imports");
        assert_eq!((done.added + done.known, done.added), (length as u64, (length as u64).saturating_sub(known)));
    }
    let length = huge();
    kit.store.import(kit.service, kit.corpus, &entries(0..length)).await.expect("imports");
    assert_eq!(kit.store.summary(&TaskFilter::default()).await.expect("counts").total, length as u64);
    let seen: Vec<_> = entries(0..length).into_iter().map(|e| Entry { size: 11, ..e }).collect();
    assert_eq!(kit.store.accept_change(kit.service, kit.corpus, &seen, NOW).await.expect("accepts"), length as u64);
}

// Case F42. Rule D2.
async fn a_batch_takes_any_number_of_records(kit: Kit) {
    kit.import(BATCH + 1).await;
    let mut claimed = Vec::new();
    while claimed.len() <= BATCH {
        claimed.extend(kit.claim(usize::MAX).await);
    }
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, BATCH - 1, BATCH, BATCH + 1] {
        let batch: Vec<_> = claimed.iter().take(length).map(|t| result(t.lease, Status::Fatal)).collect();
        let answers = kit.tell_all(&batch).await;
        assert!(answers.iter().all(|a| matches!(a, Answer::Stored { replaced: None, .. })), "{length} records");
    }
    let strangers: Vec<_> = (0..huge()).map(|n| result(lease(1_000_000 + n as i64, 1, 1), Status::Fatal)).collect();
    assert!(kit.tell_all(&strangers).await.iter().all(|a| *a == Answer::Unknown));
    let one = kit.story(claimed[0].lease.task).await;
    assert_eq!(one.results.len(), 1);
    kit.assert_balanced().await;
}

// Case F42.
async fn a_filter_takes_any_number_of_ids(kit: Kit) {
    kit.import(10).await;
    for length in lengths().into_iter().chain([huge()]) {
        let ids: Vec<_> = (1..=length as i64).map(TaskId).collect();
        let filter = TaskFilter { ids, ..Default::default() };
        let expected = if length == 0 { 10 } else { length.min(10) };
        assert_eq!(kit.store.tasks(&filter, TaskId(0), 99).await.expect("lists").len(), expected, "{length} ids");
        assert_eq!(kit.store.summary(&filter).await.expect("counts").total, expected as u64);
    }
    let ids: Vec<_> = (1..=huge() as i64).map(TaskId).collect();
    let filter = TaskFilter { ids, ..Default::default() };
    assert_eq!(kit.store.cancel(&filter, TaskId(0), usize::MAX, NOW).await.expect("cancels").changed, 10);
    assert_eq!(kit.store.rerun(&filter, TaskId(0), usize::MAX, NOW).await.expect("reruns").changed, 10);
}

// Case F42.
async fn a_takeover_takes_any_number_of_dispatchers(kit: Kit) {
    kit.import(3).await;
    let claimed = kit.claim(3).await;
    for length in lengths() {
        let gone: Vec<_> = (0..length as i64).map(|n| DispatcherId(1_000 + n)).collect();
        assert_eq!(kit.store.adopt(DispatcherId(999), Some(&gone), NOW).await.expect("adopts"), []);
    }
    let gone: Vec<_> = (0..huge() as i64).map(DispatcherId).collect();
    assert_eq!(kit.store.adopt(DispatcherId(999_999), Some(&gone), NOW).await.expect("adopts").len(), 3);
    let back: Vec<_> = claimed.iter().map(|t| Record::Returned { lease: t.lease }).collect();
    kit.tell_all(&back).await;
    assert_eq!(kit.claim(9).await.len(), 3);
}

// Case F42.
async fn a_result_takes_any_number_of_messages(kit: Kit) {
    let lease = kit.one_lease().await;
    let mut record = result(lease, Status::Warning);
    if let Record::Result { messages, .. } = &mut record {
        *messages = (0..70_000).map(|n| crate::kit::message("n", &n.to_string())).collect();
    }
    assert_eq!(kit.tell(record).await, STORED);
    let story = kit.story(lease.task).await;
    assert_eq!(story.results[0].messages.len(), 70_000);
    assert_eq!(story.results[0].messages[69_999].what, "69999");
}

both_stores!(
    an_import_takes_any_number_of_entries,
    a_batch_takes_any_number_of_records,
    a_filter_takes_any_number_of_ids,
    a_takeover_takes_any_number_of_dispatchers,
    a_result_takes_any_number_of_messages,
);
