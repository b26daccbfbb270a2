//! Summaries, pages and publications.

use crate::kit::{Kit, NOW, STORED, ended, entry, handed_out, lease, part, result};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::{Ending, Message, Severity, Status};
use dispatcher_core::time::SpanMs;
use dispatcher_store::{Answer, Entry, Record, ServiceSettings, TaskFilter, TaskState};

// Rule A5.
async fn a_summary_counts_states_statuses_and_causes(kit: Kit) {
    kit.settings(|s| s.budget = 1).await;
    kit.import(6).await;
    let claimed = kit.claim(5).await;
    let grave = |severity, category: &str| Message {
        severity,
        category: category.into(),
        what: "x".into(),
        details: String::new(),
    };
    let failed = |n: usize, messages: Vec<Message>| Record::Result {
        lease: claimed[n].lease,
        worker: crate::kit::worker("w"),
        status: Status::Fatal,
        messages,
        parts: vec![],
        at: NOW,
    };
    kit.tell_all(&[
        failed(0, vec![grave(Severity::Info, "i"), grave(Severity::Fatal, "f"), grave(Severity::Fatal, "later")]),
        failed(1, vec![grave(Severity::Fatal, "f"), grave(Severity::Error, "e")]),
        failed(2, vec![]),
        ended(claimed[3].lease, Ending::WorkerLost),
        result(claimed[4].lease, Status::Warning),
    ])
    .await;
    let summary = kit.store.summary(&TaskFilter::default()).await.expect("counts");
    assert_eq!(summary.total, 6);
    assert_eq!(summary.by_state, [(TaskState::Ready, 1), (TaskState::Done, 4), (TaskState::Dead, 1)]);
    assert_eq!(summary.by_status, [(Status::Warning, 1), (Status::Fatal, 4)]);
    assert_eq!(summary.causes, [("f".into(), "x".into(), 2), ("why".into(), "worker_lost".into(), 1)]);
    assert_eq!(summary.unpublished, 1, "only what has files waits for its files");
    assert_eq!((summary.handed_out, summary.running), (0, 0));
    let other = kit.store.put_service("other", &ServiceSettings::default()).await.expect("makes").id;
    let none = kit.store.summary(&TaskFilter { service: Some(other), ..Default::default() }).await.expect("counts");
    assert_eq!((none.total, none.by_state.len(), none.unpublished), (0, 0, 0));
}

// Rules L1, A5.
async fn a_summary_tells_leased_tasks_apart_by_where_they_are(kit: Kit) {
    kit.import(6).await;
    let claimed = kit.claim(5).await;
    let began = |n: usize| Record::Began { lease: claimed[n].lease, at: NOW };
    let out: Vec<_> = (0..4).map(|n| handed_out(claimed[n].lease)).chain([began(0), began(1), began(2)]).collect();
    kit.tell_all(&out).await;
    kit.tell(result(claimed[0].lease, Status::Warning)).await;
    let at = |summary: dispatcher_store::Summary| (summary.total, summary.handed_out, summary.running);
    assert_eq!(at(kit.store.summary(&TaskFilter::default()).await.expect("counts")), (6, 3, 2));
    let some = TaskFilter { ids: vec![claimed[1].lease.task, claimed[4].lease.task], ..Default::default() };
    assert_eq!(at(kit.store.summary(&some).await.expect("counts")), (2, 1, 1));
    // What a rerun has taken from its worker is with nobody.
    kit.store.rerun(&some, TaskId(0), 9, NOW).await.expect("reruns");
    assert_eq!(at(kit.store.summary(&TaskFilter::default()).await.expect("counts")), (6, 2, 1));
}

async fn a_listing_says_the_gravest_of_what_stands(kit: Kit) {
    kit.import(5).await;
    let claimed = kit.claim(4).await;
    let say = |severity, what: &str| Message {
        severity,
        category: "c".into(),
        what: what.into(),
        details: format!("{what} at length"),
    };
    let said = |n: usize, messages: Vec<Message>| Record::Result {
        lease: claimed[n].lease,
        worker: crate::kit::worker("w"),
        status: Status::Error,
        messages,
        parts: vec![],
        at: NOW,
    };
    let (info, error, later) = (say(Severity::Info, "i"), say(Severity::Error, "e"), say(Severity::Error, "later"));
    kit.tell_all(&[
        said(0, vec![info.clone(), error.clone(), later]),
        said(1, vec![info.clone()]),
        said(2, vec![]),
        ended(claimed[3].lease, Ending::RetryableCause),
    ])
    .await;
    let rows = kit.all().await;
    let worst: Vec<_> = rows.iter().map(|row| row.worst.as_ref()).collect();
    assert_eq!(worst, [Some(&error), Some(&info), None, None, None]);
    for row in &rows {
        assert_eq!(&kit.story(row.id).await.task, row);
    }
    kit.store.rerun(&TaskFilter::default(), TaskId(0), 99, NOW).await.expect("reruns");
    assert!(kit.all().await.iter().all(|row| row.worst.is_none()), "nothing stands in the new run");
}

// Rule C8.
async fn results_wait_to_be_published_in_the_order_of_their_commits(kit: Kit) {
    kit.import(3).await;
    let c = kit.claim(3).await;
    for n in [2, 0, 1] {
        kit.tell(result(c[n].lease, Status::NoProblem)).await;
    }
    let page = kit.store.unpublished(None, 2).await.expect("lists");
    assert_eq!(page.iter().map(|p| p.lease).collect::<Vec<_>>(), [c[2].lease, c[0].lease]);
    assert_eq!((&page[0].entry, page[0].status), (&entry("000002").name, Status::NoProblem));
    assert_eq!((page[0].parts.clone(), page[0].published), (vec![part("result")], false));
    let rest = kit.store.unpublished(Some(c[0].lease), 2).await.expect("lists");
    assert_eq!(rest.iter().map(|p| p.lease).collect::<Vec<_>>(), [c[1].lease]);
    let done: Vec<_> = c.iter().map(|t| Record::Published { lease: t.lease }).collect();
    assert_eq!(kit.tell_all(&done).await, [Answer::Noted, Answer::Noted, Answer::Noted]);
    assert_eq!(kit.store.unpublished(None, 9).await.expect("lists"), []);
    assert!(kit.story(c[0].lease.task).await.results[0].published);
}

// Rules C5, C8.
async fn only_the_winner_of_a_task_waits_to_be_published(kit: Kit) {
    let first = kit.one_lease().await;
    kit.tell(ended(first, Ending::Expired)).await;
    let second = kit.lease().await;
    kit.tell(result(second, Status::Fatal)).await;
    kit.tell(result(first, Status::NoProblem)).await;
    let waiting = kit.store.unpublished(None, 9).await.expect("lists");
    assert_eq!(waiting.iter().map(|p| p.lease).collect::<Vec<_>>(), [first]);
    let together = [result(second, Status::Warning), Record::Published { lease: first }];
    kit.tell_all(&together).await;
    let waiting = kit.store.unpublished(None, 9).await.expect("lists");
    assert_eq!(waiting.iter().map(|p| p.lease).collect::<Vec<_>>(), [second]);
}

// Rules C8, C6.
async fn an_accepted_result_is_published_though_a_new_run_began_until_that_brings_one(kit: Kit) {
    let old = kit.one_lease().await;
    kit.tell(result(old, Status::NoProblem)).await;
    kit.store.rerun(&TaskFilter::default(), TaskId(0), 9, NOW).await.expect("reruns");
    let waiting = kit.store.unpublished(None, 9).await.expect("lists");
    assert_eq!(waiting.iter().map(|p| p.lease).collect::<Vec<_>>(), [old]);
    let new = kit.lease().await;
    assert_eq!(kit.tell(result(new, Status::NoProblem)).await, STORED);
    let waiting = kit.store.unpublished(None, 9).await.expect("lists");
    assert_eq!(waiting.iter().map(|p| p.lease).collect::<Vec<_>>(), [new], "the older one would come over it");
}

// Rule A1.
async fn the_parts_of_what_stands_are_listed_by_task(kit: Kit) {
    kit.import(5).await;
    let c = kit.claim(5).await;
    let batch: Vec<_> = [4, 1, 2].map(|n: usize| result(c[n].lease, Status::Error)).to_vec();
    kit.tell_all(&batch).await;
    kit.tell(Record::Published { lease: c[1].lease }).await;
    let first = kit.store.standing_parts(TaskId(0), 2).await.expect("lists");
    assert_eq!(
        first.iter().map(|p| (p.lease, p.published)).collect::<Vec<_>>(),
        [(c[1].lease, true), (c[2].lease, false)]
    );
    let rest = kit.store.standing_parts(c[2].lease.task, 2).await.expect("lists");
    assert_eq!(rest.iter().map(|p| p.lease).collect::<Vec<_>>(), [c[4].lease]);
}

// Case F41.
async fn tasks_come_in_pages(kit: Kit) {
    kit.import(5).await;
    let page = |after, max| {
        let store = kit.store.clone();
        async move {
            let rows = store.tasks(&TaskFilter::default(), TaskId(after), max).await.expect("lists");
            rows.iter().map(|t| t.id.0).collect::<Vec<_>>()
        }
    };
    assert_eq!(page(0, 2).await, [1, 2]);
    assert_eq!(page(2, 2).await, [3, 4]);
    assert_eq!(page(4, 2).await, [5]);
    assert_eq!(page(5, usize::MAX).await, Vec::<i64>::new());
    assert_eq!(kit.store.story(lease(99, 1, 1).task).await.expect("reads"), None);
}

// Case F65: the wait is visible as a number.
async fn the_place_of_a_task_in_its_queue_counts_what_is_claimed_before_it(kit: Kit) {
    kit.settings(|s| s.timeout_ms = SpanMs(500)).await;
    let with = |name: &str, priority| Entry { priority, ..entry(name) };
    let entries = [with("a", 0), with("b", 0), with("c", 5), with("d", -1)];
    kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    let outlook = |task| {
        let store = kit.store.clone();
        async move { store.outlook(TaskId(task)).await.expect("looks ahead") }
    };
    let mut places = Vec::new();
    for task in 1..=4 {
        let ahead = outlook(task).await.expect("is not over");
        places.push((ahead.priority, ahead.ahead, ahead.queued, ahead.timeout_ms));
    }
    assert_eq!(places, [(0, 1, 4, None), (0, 2, 4, None), (5, 0, 4, None), (-1, 3, 4, None)]);

    let lease = kit.claim(1).await.remove(0).lease;
    assert_eq!(lease.task, TaskId(3));
    kit.tell_all(&[handed_out(lease), Record::Began { lease, at: NOW }]).await;
    let leased = outlook(3).await.expect("is not over");
    assert_eq!(
        (leased.queued, leased.timeout_ms, leased.limit_until),
        (3, Some(SpanMs(500)), Some(NOW.after(SpanMs(500))))
    );
    kit.tell(result(lease, Status::Warning)).await;
    assert_eq!((outlook(3).await, outlook(99).await), (None, None));
}

both_stores!(
    the_place_of_a_task_in_its_queue_counts_what_is_claimed_before_it,
    a_listing_says_the_gravest_of_what_stands,
    a_summary_tells_leased_tasks_apart_by_where_they_are,
    a_summary_counts_states_statuses_and_causes,
    results_wait_to_be_published_in_the_order_of_their_commits,
    only_the_winner_of_a_task_waits_to_be_published,
    an_accepted_result_is_published_though_a_new_run_began_until_that_brings_one,
    the_parts_of_what_stands_are_listed_by_task,
    tasks_come_in_pages,
);
