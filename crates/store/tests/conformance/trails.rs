//! Who worked on a task, for replies that name their worker and nothing else.

use crate::kit::{Kit, NOW, ended, lease, message, worker};
use dispatcher_core::finalise::Record;
use dispatcher_core::id::{LeaseId, TaskId, WorkerKey};
use dispatcher_core::report::{Ending, Status};
use dispatcher_store::{TaskFilter, Trail};

impl Kit {
    async fn trail(&self, task: TaskId) -> Trail {
        self.store.trails(&[task]).await.expect("reads").pop().expect("there is such a task")
    }

    /// The next ready task, handed out to a worker of the legacy wire.
    async fn lease_legacy(&self, name: &str) -> LeaseId {
        let lease = self.claim(1).await.first().expect("a ready task").lease;
        self.tell(Record::HandedOut { lease, worker: WorkerKey::legacy(name), at: NOW, began: true }).await;
        lease
    }

    async fn rerun_all(&self) {
        self.store.rerun(&TaskFilter::default(), TaskId(0), 100, NOW).await.expect("begins a run");
    }
}

// Rules C11, C13.
async fn a_reply_belongs_to_the_newest_attempt_of_its_worker_or_else_to_the_newest(kit: Kit) {
    kit.settings(|settings| settings.budget = 9).await;
    kit.import(1).await;
    let first = kit.lease_legacy("a").await;
    kit.tell(ended(first, Ending::Expired)).await;
    let second = kit.lease_legacy("b").await;
    kit.tell(ended(second, Ending::Expired)).await;
    let third = kit.lease_legacy("a").await;
    kit.tell(ended(third, Ending::Expired)).await;
    // The hand-out of the fourth is not written yet.
    let fourth = kit.claim(1).await.first().expect("ready again").lease;
    let trail = kit.trail(first.task).await;
    assert_eq!((trail.newest, trail.service), (fourth, kit.service));
    let found = ["a", "b", "c"].map(|name| trail.attempt_of(name));
    assert_eq!(found, [third, second, fourth].map(Some));
}

// Rules C6, C11, L8.
async fn a_worker_of_an_earlier_run_is_known_however_long_ago_it_was_forgotten_in_memory(kit: Kit) {
    kit.import(1).await;
    let first = kit.lease_legacy("a").await;
    kit.rerun_all().await;
    let again = kit.lease_legacy("b").await;
    let trail = kit.trail(first.task).await;
    assert_eq!((trail.attempt_of("a"), trail.attempt_of("b")), (Some(first), Some(again)));
    assert_eq!(trail.attempt_of("c"), None, "it may be of the run before");
    assert_eq!(trail.worked_earlier(), [("a".to_owned(), NOW)]);
}

// Rule L8.
async fn who_has_answered_in_an_earlier_run_or_has_tokens_may_have_the_task_again(kit: Kit) {
    kit.import(1).await;
    let first = kit.lease_legacy("a").await;
    let (worker_of_v1, worker) = (worker("v"), WorkerKey::legacy("a"));
    let said =
        Record::Result { lease: first, worker, status: Status::NoProblem, messages: vec![], parts: vec![], at: NOW };
    kit.tell(said).await;
    kit.rerun_all().await;
    let second = kit.claim(1).await.first().expect("a ready task").lease;
    kit.tell(Record::HandedOut { lease: second, worker: worker_of_v1, at: NOW, began: false }).await;
    kit.rerun_all().await;
    let trail = kit.trail(first.task).await;
    assert_eq!((trail.attempts.len(), trail.worked_earlier()), (2, vec![]));
}

// Rules C7, C13.
async fn trails_come_in_id_order_and_of_no_task_there_is_none(kit: Kit) {
    kit.import(3).await;
    let asked = [TaskId(3), TaskId(99), TaskId(1), TaskId(-1), TaskId(3)];
    let trails = kit.store.trails(&asked).await.expect("reads");
    let mut tasks: Vec<_> = trails.iter().map(|trail| trail.newest).collect();
    tasks.dedup();
    assert_eq!(tasks, [lease(1, 1, 0), lease(3, 1, 0)]);
    assert!(trails.iter().all(|trail| trail.attempts.is_empty()));
    assert!(kit.store.trails(&[]).await.expect("reads").is_empty());
}

// Rules A2, L3.
async fn where_delivery_is_the_start_the_limit_runs_from_the_hand_out(kit: Kit) {
    kit.import(1).await;
    let lease = kit.lease_legacy("a").await;
    let outlook = kit.store.outlook(lease.task).await.expect("reads").expect("it is not over");
    assert_eq!(outlook.limit_until, outlook.timeout_ms.map(|timeout| NOW.after(timeout)));
    let gone = Record::Ended {
        lease,
        worker: Some(WorkerKey::legacy("a")),
        ending: Ending::WorkerLost,
        began: true,
        why: message("dispatcher", "worker_lost"),
        messages: vec![],
        parts: vec![],
        at: NOW,
    };
    kit.tell(gone).await;
    assert_eq!(kit.story(lease.task).await.task.charged, 1);
    kit.assert_balanced().await;
}

both_stores! {
    a_reply_belongs_to_the_newest_attempt_of_its_worker_or_else_to_the_newest,
    a_worker_of_an_earlier_run_is_known_however_long_ago_it_was_forgotten_in_memory,
    who_has_answered_in_an_earlier_run_or_has_tokens_may_have_the_task_again,
    trails_come_in_id_order_and_of_no_task_there_is_none,
    where_delivery_is_the_start_the_limit_runs_from_the_hand_out,
}
