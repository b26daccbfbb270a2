//! The books balance after everything that can happen (rules A1, A5).

use crate::kit::{Kit, NOW, ended, handed_out, result, worker};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::{Ending, Status};
use dispatcher_store::Record;

// Rules A1, A5.
async fn every_ending_is_counted_once_for_its_worker(kit: Kit) {
    let endings = [
        Ending::Expired,
        Ending::WorkerLost,
        Ending::TimeLimit,
        Ending::Unusable,
        Ending::RetryableCause,
        Ending::Undeliverable,
        Ending::HandedBack,
    ];
    kit.import(endings.len() + 2).await;
    let claimed = kit.claim(endings.len() + 2).await;
    let mut batch: Vec<_> = claimed.iter().map(|t| handed_out(t.lease)).collect();
    batch.extend(claimed.iter().zip(endings).map(|(t, ending)| ended(t.lease, ending)));
    batch.push(result(claimed[7].lease, Status::Error));
    kit.tell_all(&batch).await;
    let audit = kit.store.audit().await.expect("audits");
    assert_eq!((audit.dispatched, audit.out), (9, 1));
    let counted: Vec<_> = audit.endings.iter().map(|(ending, n)| (*ending, *n)).collect();
    let mut expected: Vec<_> = endings.iter().map(|e| (*e, 1)).chain([(Ending::Accepted, 1)]).collect();
    expected.sort_unstable();
    assert_eq!(counted, expected);
    kit.assert_balanced().await;
}

// Rule A1.
async fn a_late_decision_moves_an_attempt_from_one_ending_to_another(kit: Kit) {
    let first = kit.one_lease().await;
    kit.tell(ended(first, Ending::WorkerLost)).await;
    let second = kit.lease().await;
    kit.tell(result(second, Status::NoProblem)).await;
    kit.tell(result(first, Status::NoProblem)).await;
    let audit = kit.store.audit().await.expect("audits");
    assert_eq!(audit.endings, [(Ending::Accepted, 1), (Ending::Superseded, 1)]);
    kit.assert_balanced().await;
}

// Rule A1.
async fn an_attempt_counts_for_the_worker_that_had_it(kit: Kit) {
    kit.import(1).await;
    let lease = kit.claim(1).await[0].lease;
    kit.tell(Record::HandedOut { lease, worker: worker("one"), at: NOW, began: false }).await;
    let other = Record::Result {
        lease,
        worker: worker("another name for the same lease"),
        status: Status::NoProblem,
        messages: vec![],
        parts: vec![],
        at: NOW,
    };
    kit.tell(other).await;
    assert_eq!(kit.story(lease.task).await.attempts[0].worker, Some(worker("one")));
    kit.assert_balanced().await;
}

// Rules A1, C6.
async fn a_rerun_of_everything_at_any_moment_keeps_the_books(kit: Kit) {
    kit.import(6).await;
    let claimed = kit.claim(5).await;
    kit.tell_all(&[
        handed_out(claimed[0].lease),
        handed_out(claimed[1].lease),
        result(claimed[1].lease, Status::Fatal),
        ended(claimed[2].lease, Ending::Expired),
    ])
    .await;
    let done = kit.store.rerun(&Default::default(), TaskId(0), 100, NOW).await.expect("reruns");
    assert_eq!((done.changed, done.next), (6, None));
    kit.assert_balanced().await;
    // Hand-outs and results of the earlier run, some written only now.
    kit.tell_all(&[
        handed_out(claimed[3].lease),
        result(claimed[4].lease, Status::NoProblem),
        result(claimed[0].lease, Status::NoProblem),
        ended(claimed[3].lease, Ending::WorkerLost),
    ])
    .await;
    let audit = kit.store.audit().await.expect("audits");
    assert_eq!(audit.endings, [(Ending::Accepted, 1), (Ending::Stale, 3), (Ending::Expired, 1)]);
    kit.assert_balanced().await;
}

both_stores!(
    every_ending_is_counted_once_for_its_worker,
    a_late_decision_moves_an_attempt_from_one_ending_to_another,
    an_attempt_counts_for_the_worker_that_had_it,
    a_rerun_of_everything_at_any_moment_keeps_the_books,
);
