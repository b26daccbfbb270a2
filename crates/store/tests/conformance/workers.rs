//! Workers as they are shown, and that nothing hangs on their rows.

use crate::kit::{Kind, Kit, NOW, STORED, ended, handed_out, result, run, worker};
use dispatcher_core::id::WorkerKey;
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_store::{
    Answer, BookLine, Claim, DispatcherId, DispatcherInfo, Record, ServiceSettings, TaskState, WorkerNote, WorkerRow,
    limits,
};

fn note(name: &str, incarnation: &str, heard: i64) -> WorkerNote {
    WorkerNote {
        worker: WorkerKey { name: name.into(), incarnation: incarnation.into() },
        services: vec!["first".into(), "nul\0".into()],
        slots: 4,
        connected: true,
        heard_at: TimeMs(heard),
    }
}

async fn listed(kit: &Kit, max: usize) -> Vec<WorkerRow> {
    kit.store.workers(max).await.expect("lists")
}

/// Name, incarnation and whether it is connected, the one heard last first.
async fn shown(kit: &Kit) -> Vec<(String, String, bool)> {
    let rows = listed(kit, 99).await.into_iter();
    rows.map(|row| (row.worker.name, row.worker.incarnation, row.connected)).collect()
}

fn is(name: &str, incarnation: &str, connected: bool) -> (String, String, bool) {
    (name.into(), incarnation.into(), connected)
}

// Case F27.
async fn each_life_of_a_worker_has_one_row(kit: Kit) {
    for heard in 1..=50 {
        kit.store.note_workers(kit.dispatcher, &[note("a", "1", heard), note("b", "1", 9)]).await.expect("notes");
    }
    assert_eq!(shown(&kit).await, [is("a", "1", true), is("b", "1", true)]);
    let row = listed(&kit, 1).await.remove(0);
    assert_eq!((row.first_at, row.heard_at, row.slots), (TimeMs(1), TimeMs(50), 4));
    assert_eq!(row.services, ["first", "nul\0"]);
    let silent = WorkerNote { connected: false, ..note("b", "1", 60) };
    kit.store.note_workers(kit.dispatcher, &[silent, note("a", "2", 70)]).await.expect("notes");
    assert_eq!(shown(&kit).await, [is("a", "2", true), is("b", "1", false), is("a", "1", false)]);
    kit.store.note_workers(kit.dispatcher, &[]).await.expect("notes");
    assert!(shown(&kit).await.iter().all(|(.., connected)| !connected), "who is not noted is not connected");
}

async fn a_dispatcher_speaks_of_its_own_workers_only(kit: Kit) {
    kit.store.note_workers(DispatcherId(7), &[note("far", "1", 5)]).await.expect("notes");
    kit.store.note_workers(kit.dispatcher, &[note("near", "1", 9)]).await.expect("notes");
    kit.store.note_workers(kit.dispatcher, &[]).await.expect("notes");
    assert_eq!(shown(&kit).await, [is("near", "1", false), is("far", "1", true)]);
    kit.store.adopt(kit.dispatcher, Some(&[DispatcherId(8)]), NOW).await.expect("adopts");
    assert_eq!(shown(&kit).await[1], is("far", "1", true));
    kit.store.adopt(kit.dispatcher, Some(&[DispatcherId(7)]), NOW).await.expect("adopts");
    assert_eq!(shown(&kit).await[1], is("far", "1", false), "its dispatcher is gone");
}

// Rule A1. Case F36.
async fn a_worker_is_shown_with_what_it_did_and_what_it_has(kit: Kit) {
    kit.import(5).await;
    kit.store
        .note_workers(kit.dispatcher, &[note("w", "0", 1), note("w", "1", 2), note("idle", "1", 3)])
        .await
        .expect("notes");
    let claimed = kit.claim(5).await;
    let [done, failed, begun, sent, unsent] = [0, 1, 2, 3, 4].map(|n: usize| claimed[n].lease);
    kit.tell_all(&[
        result(done, Status::NoProblem),
        ended(failed, Ending::Expired),
        handed_out(begun),
        Record::Began { lease: begun, at: TimeMs(77) },
        handed_out(sent),
        // Said twice, and changing nothing.
        result(done, Status::NoProblem),
    ])
    .await;
    let rows = listed(&kit, 99).await;
    assert_eq!((&rows[0].counts, &rows[0].current), (&vec![], &vec![]));
    let counts = [("accepted", 1), ("dispatched", 4), ("expired", 1)].map(|(kind, n)| (kind.to_owned(), n));
    assert_eq!(rows[1].counts, counts);
    assert_eq!(rows[1].current, [(begun.task, Some(TimeMs(77))), (sent.task, None)]);
    assert_eq!((&rows[2].counts, &rows[2].current), (&counts.to_vec(), &vec![]), "its earlier life has nothing now");
    assert_eq!(kit.state(unsent.task).await, TaskState::Leased);
    assert_eq!(listed(&kit, 2).await, rows[..2]);
}

/// A worker with 10 finished tasks and 3 that it works on.
async fn at_work(kit: &Kit) {
    kit.import(13).await;
    let claimed = kit.claim(13).await;
    for (n, task) in claimed.iter().enumerate() {
        let told = if n < 10 { result(task.lease, Status::NoProblem) } else { handed_out(task.lease) };
        kit.tell(told).await;
    }
}

// Cases F06, F30.
async fn no_note_about_a_worker_touches_its_tasks(kit: Kit) {
    at_work(&kit).await;
    let before = kit.all().await;
    for round in 0..50 {
        kit.store.note_workers(kit.dispatcher, &[note("w", "1", round)]).await.expect("notes");
        kit.store.note_workers(kit.dispatcher, &[note("w", "2", round)]).await.expect("notes");
        kit.store.note_workers(kit.dispatcher, &[]).await.expect("notes");
    }
    assert_eq!(kit.all().await, before);
    assert_eq!(kit.claim(99).await, [], "nothing came back");
    for task in before.iter().filter(|t| t.state == TaskState::Leased) {
        let story = kit.story(task.id).await;
        assert_eq!(story.attempts[0].ending, None);
        let lease = dispatcher_core::id::LeaseId { task: task.id, run: task.run, epoch: task.epoch };
        assert_eq!(kit.tell(result(lease, Status::NoProblem)).await, STORED, "its lease lived on");
    }
    kit.assert_balanced().await;
}

// Cases F06, F30.
#[test]
fn a_workers_row_that_is_deleted_takes_nothing_along() {
    run(Kind::Sqlite, |kit| {
        Box::pin(async move {
            at_work(&kit).await;
            kit.store.note_workers(kit.dispatcher, &[note("w", "1", 1)]).await.expect("notes");
            let before = kit.all().await;
            kit.meddle("DELETE FROM workers").await;
            assert_eq!(kit.all().await, before);
            let next = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
            let next = kit.store.register(&next, NOW).await.expect("registers");
            let adopted = kit.store.adopt(next, None, NOW).await.expect("adopts");
            assert_eq!(adopted.len(), 3, "its leases are found without it");
            assert!(adopted.iter().all(|lease| lease.worker == Some(worker("w"))));
            kit.assert_balanced().await;
        })
    });
}

// Case F36.
async fn of_workers_that_come_and_go_the_newest_are_kept(kit: Kit) {
    let many: Vec<_> = (0..limits::WORKERS + 5).map(|n| note("w", &n.to_string(), n as i64)).collect();
    for chunk in many.chunks(4_000) {
        kit.store.note_workers(kit.dispatcher, chunk).await.expect("notes");
    }
    let rows = listed(&kit, usize::MAX).await;
    assert_eq!(rows.len(), limits::WORKERS);
    assert_eq!(rows.last().map(|row| row.heard_at), Some(TimeMs(5)));
    kit.store.note_workers(kit.dispatcher, &[note("w", "0", 99_999), note("w", "6", 99_998)]).await.expect("notes");
    let first: Vec<_> = listed(&kit, 2).await.iter().map(|row| row.first_at).collect();
    assert_eq!(first, [TimeMs(99_999), TimeMs(6)], "the oldest one had been forgotten");
}

// Rule A1.
async fn the_books_are_told_by_service_and_kind(kit: Kit) {
    assert_eq!(kit.store.books().await.expect("reads"), []);
    let other = kit.store.put_service("another", &ServiceSettings::default()).await.expect("makes").id;
    kit.import(2).await;
    kit.store.import(other, kit.corpus, &[crate::kit::entry("x")]).await.expect("imports");
    let claimed = kit.claim(2).await;
    let ask = Claim { dispatcher: kit.dispatcher, service: other, max: 1 };
    let far = kit.store.claim(&ask, NOW).await.expect("claims")[0].lease;
    let nowhere = crate::kit::lease(99, 1, 1);
    let answers = kit
        .tell_all(&[
            result(claimed[0].lease, Status::NoProblem),
            result(claimed[0].lease, Status::NoProblem),
            handed_out(claimed[1].lease),
            ended(far, Ending::WorkerLost),
            result(nowhere, Status::NoProblem),
        ])
        .await;
    assert_eq!(answers[4], Answer::Unknown);
    // Another worker of another dispatcher adds to the same lines.
    let again = kit.store.claim(&ask, NOW).await.expect("claims")[0].lease;
    kit.tell(Record::HandedOut { lease: again, worker: worker("other"), at: NOW, began: false }).await;
    let line = |service: &str, kind: &str, n| BookLine { service: service.into(), kind: kind.into(), n };
    let expected = [
        line("", "message_unknown", 1),
        line("another", "dispatched", 2),
        line("another", "worker_lost", 1),
        line("first", "accepted", 1),
        line("first", "dispatched", 2),
        line("first", "message_repeated", 1),
    ];
    assert_eq!(kit.store.books().await.expect("reads"), expected);
}

both_stores!(
    each_life_of_a_worker_has_one_row,
    a_dispatcher_speaks_of_its_own_workers_only,
    a_worker_is_shown_with_what_it_did_and_what_it_has,
    no_note_about_a_worker_touches_its_tasks,
    of_workers_that_come_and_go_the_newest_are_kept,
    the_books_are_told_by_service_and_kind,
);
