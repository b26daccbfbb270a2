//! Clocks before 1970, past 2038, and at their ends.

use crate::kit::{Kit, STORED, worker};
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{Answer, Entry, Record};

/// Moments that have hurt others, in milliseconds.
const MOMENTS: [i64; 9] =
    [i64::MIN, -62_135_596_800_000, -1, 0, 1, 2_147_483_647_000, 2_147_483_648_000, 253_402_300_800_000, i64::MAX];

// Cases F55, F56.
async fn every_moment_is_stored_as_it_is(kit: Kit) {
    let entries: Vec<_> =
        MOMENTS.iter().map(|ns| Entry { mtime_ns: *ns, ..crate::kit::entry(&ns.to_string()) }).collect();
    kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    for ns in MOMENTS {
        let task = kit.claim_at(1, TimeMs(ns)).await.remove(0);
        assert_eq!(task.input_mtime_ns, ns);
        let (lease, at) = (task.lease, TimeMs(ns));
        let batch = [Record::HandedOut { lease, worker: worker("w"), at, began: false }, Record::Began { lease, at }];
        kit.store.mark_done(&batch, at).await.expect("writes");
        let (messages, parts, status) = (vec![], vec![], Status::Error);
        let result = Record::Result { lease, worker: worker("w"), status, messages, parts, at };
        assert_eq!(kit.store.mark_done(&[result], at).await.expect("writes"), [STORED]);
        let attempt = kit.story(lease.task).await.attempts.remove(0);
        assert_eq!((attempt.handed_at, attempt.began_at, attempt.ended_at), (Some(at), Some(at), Some(at)));
    }
    kit.assert_balanced().await;
}

// Cases F55, F56.
async fn a_retry_at_once_is_due_whatever_the_clock_says(kit: Kit) {
    kit.import(MOMENTS.len()).await;
    for ms in MOMENTS {
        let task = kit.claim_at(1, TimeMs(ms)).await.remove(0);
        let ended = crate::kit::ended(task.lease, Ending::RetryableCause);
        kit.store.mark_done(&[ended], TimeMs(ms)).await.expect("writes");
        let again = kit.claim_at(1, TimeMs(i64::MIN)).await.remove(0);
        assert_eq!(again.lease.task, task.lease.task);
        kit.tell(crate::kit::result(again.lease, Status::NoProblem)).await;
    }
}

// Cases F55, F56.
async fn a_delay_before_1970_or_past_2038_is_as_long_as_any(kit: Kit) {
    kit.settings(|s| s.retry_delay_ms = SpanMs::seconds(10)).await;
    for ms in [-5_000_000_000_000, -10_000, 2_147_483_640_000, 4_000_000_000_000] {
        let (service, corpus) = (kit.service, kit.corpus);
        kit.store.import(service, corpus, &[crate::kit::entry(&ms.to_string())]).await.expect("imports");
        let task = kit.claim_at(1, TimeMs(ms)).await.remove(0);
        let ended = crate::kit::ended(task.lease, Ending::RetryableCause);
        let answers = kit.store.mark_done(&[ended], TimeMs(ms)).await.expect("writes");
        let [Answer::Requeued { not_before, .. }] = answers.as_slice() else { panic!("{answers:?}") };
        let waits = not_before.since(TimeMs(ms));
        assert!(waits >= SpanMs::seconds(5) && waits <= SpanMs::seconds(10), "{waits:?} at {ms}");
        assert_eq!(kit.claim_at(1, TimeMs(not_before.0 - 1)).await, []);
        let again = kit.claim_at(1, *not_before).await.remove(0);
        kit.tell(crate::kit::result(again.lease, Status::NoProblem)).await;
    }
}

both_stores!(
    every_moment_is_stored_as_it_is,
    a_retry_at_once_is_due_whatever_the_clock_says,
    a_delay_before_1970_or_past_2038_is_as_long_as_any,
);
