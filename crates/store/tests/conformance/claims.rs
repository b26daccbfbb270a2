//! Who gets what, and who had it.

use crate::kit::{Kit, NOW, REPEATED, STORED, ended, entry, handed_out, lease, result, worker};
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{Answer, Claim, DispatcherId, DispatcherInfo, Entry, Record, ServiceSettings, Store, TaskState};
use std::collections::BTreeSet;
use std::sync::Arc;

// Rule L3.
async fn a_claim_takes_the_best_priority_first_and_then_the_lowest_id(kit: Kit) {
    let with = |name: &str, priority| Entry { priority, ..entry(name) };
    let entries = [with("a", 0), with("b", 5), with("c", -3), with("d", 5), with("e", 0)];
    kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    let names: Vec<_> = kit.claim(4).await.iter().map(|t| t.entry.to_string()).collect();
    assert_eq!(names, ["b", "d", "a", "e"]);
    assert_eq!(kit.claim(4).await.len(), 1);
    assert_eq!(kit.claim(4).await, []);
}

// Case F65.
async fn one_claimed_task_in_eight_is_of_the_lowest_priority(kit: Kit) {
    let with = |name: &str, priority| Entry { priority, ..entry(name) };
    let old: Vec<_> = (0..5).map(|n| with(&format!("old {n}"), -1)).collect();
    let middle: Vec<_> = (0..5).map(|n| with(&format!("middle {n}"), 0)).collect();
    let new: Vec<_> = (0..100).map(|n| with(&format!("new {n}"), 5)).collect();
    for entries in [old, middle, new] {
        kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    }
    let names = |claimed: Vec<dispatcher_store::ClaimedTask>| {
        claimed.iter().map(|t| t.entry.to_string()).filter(|name| !name.starts_with("new")).collect::<Vec<_>>()
    };
    let mut one_by_one = Vec::new();
    for _ in 0..16 {
        one_by_one.extend(names(kit.claim(1).await));
    }
    assert_eq!(one_by_one, ["old 0", "old 1"], "claims of one take turns with each other");
    assert_eq!(names(kit.claim(7).await), Vec::<String>::new());
    assert_eq!(names(kit.claim(17).await), ["old 2", "old 3", "old 4"], "seven before it and seventeen make three");
    assert_eq!(names(kit.claim(16).await), ["middle 0", "middle 1"], "then those are the lowest");
    let rest = kit.claim(1_000).await;
    assert_eq!((rest.len(), names(rest.clone()).len()), (54, 3), "nothing is left out and nothing comes twice");
    assert!(names(rest.clone()).iter().all(|name| name.starts_with("middle")));
    assert!(rest.iter().map(|t| t.lease.task).collect::<BTreeSet<_>>().len() == 54);
}

// Rules L3, L4.
async fn a_claim_carries_all_that_its_lease_needs(kit: Kit) {
    kit.settings(|s| s.timeout_ms = SpanMs(1_500)).await;
    kit.store.import(kit.service, kit.corpus, &[Entry { size: 9, mtime_ns: -9, ..entry("x") }]).await.expect("imports");
    let claimed = kit.claim(1).await.remove(0);
    assert_eq!(claimed.lease, lease(1, 1, 1));
    assert_eq!((claimed.service, claimed.corpus), (kit.service, kit.corpus));
    assert_eq!((claimed.input_size, claimed.input_mtime_ns, claimed.charged), (9, -9, 0));
    assert_eq!((claimed.timeout_ms, claimed.last_cause), (SpanMs(1_500), None));
}

// Rule L3.
async fn retries_keep_the_runs_time_out_and_a_rerun_reads_it_afresh(kit: Kit) {
    kit.settings(|s| s.timeout_ms = SpanMs(100)).await;
    let mut lease = kit.one_lease().await;
    kit.settings(|s| s.timeout_ms = SpanMs(200)).await;
    // The first retry reads what the first claim wrote, the second what the claim of a retry wrote.
    for retries in 1..=2 {
        kit.tell(ended(lease, Ending::RetryableCause)).await;
        let retry = kit.claim(1).await.remove(0);
        assert_eq!((retry.timeout_ms, retry.charged), (SpanMs(100), retries));
        assert_eq!(retry.last_cause.map(|m| m.what), Some("retryable_cause".into()));
        lease = retry.lease;
    }
    kit.store.rerun(&Default::default(), dispatcher_core::id::TaskId(0), 9, NOW).await.expect("reruns");
    let rerun = kit.claim(1).await.remove(0);
    assert_eq!((rerun.timeout_ms, rerun.charged, rerun.last_cause), (SpanMs(200), 0, None));
}

// Rule L10.
async fn a_paused_or_unknown_service_gives_nothing_out(kit: Kit) {
    kit.import(1).await;
    kit.settings(|s| s.paused = true).await;
    assert_eq!(kit.claim(1).await, []);
    kit.settings(|s| s.paused = false).await;
    let ask = Claim { dispatcher: kit.dispatcher, service: dispatcher_core::id::ServiceId(99), max: 5 };
    assert_eq!(kit.store.claim(&ask, NOW).await.expect("claims"), []);
    assert_eq!(kit.claim(1).await.len(), 1);
}

// Rule X2.
async fn each_service_has_its_own_queue(kit: Kit) {
    let other = kit.store.put_service("other", &ServiceSettings::default()).await.expect("makes").id;
    kit.store.import(other, kit.corpus, &[entry("x")]).await.expect("imports");
    assert_eq!(kit.claim(5).await, []);
    let ask = Claim { dispatcher: kit.dispatcher, service: other, max: 5 };
    let claimed = kit.store.claim(&ask, NOW).await.expect("claims").remove(0);
    kit.tell(ended(claimed.lease, Ending::Expired)).await;
    assert_eq!(kit.claim(5).await, [], "a requeue goes back to its own service");
    assert_eq!(kit.store.claim(&ask, NOW).await.expect("claims").len(), 1);
}

// Rule R4. Case F09.
async fn a_delayed_retry_is_not_handed_out_early(kit: Kit) {
    kit.settings(|s| s.retry_delay_ms = SpanMs::seconds(60)).await;
    let first = kit.one_lease().await;
    let Answer::Requeued { not_before, .. } = kit.tell(ended(first, Ending::RetryableCause)).await else {
        panic!("requeued")
    };
    assert!(not_before > NOW);
    assert_eq!(kit.claim_at(1, TimeMs(not_before.0 - 1)).await, []);
    assert_eq!(kit.story(first.task).await.task.not_before, not_before);
    assert_eq!(kit.claim_at(1, not_before).await.len(), 1);
}

// Rule S4. Case F56.
async fn a_clock_that_was_set_back_does_not_hide_a_delayed_retry(kit: Kit) {
    kit.settings(|s| s.retry_delay_ms = SpanMs::seconds(60)).await;
    let first = kit.one_lease().await;
    kit.tell(ended(first, Ending::RetryableCause)).await;
    let long_ago = TimeMs(NOW.0 - 4 * 3_600_000);
    assert_eq!(kit.claim_at(1, long_ago).await.len(), 1, "it waits longer than any delay could be");
}

// Rules S4, L9.
async fn leases_are_taken_over_with_what_is_known_of_them(kit: Kit) {
    kit.import(4).await;
    let claimed = kit.claim(4).await;
    let [sent, begun, done, claimed_only] = [0, 1, 2, 3].map(|n: usize| claimed[n].lease);
    kit.tell_all(&[handed_out(sent), handed_out(begun), Record::Began { lease: begun, at: TimeMs(5) }]).await;
    kit.tell(result(done, Status::NoProblem)).await;
    let next = kit.store.register(&info(None), NOW).await.expect("registers");
    assert_ne!(next, kit.dispatcher);
    let nobody = kit.store.adopt(next, Some(&[DispatcherId(77)]), NOW).await.expect("adopts");
    assert_eq!(nobody, []);
    let adopted = kit.store.adopt(next, Some(&[kit.dispatcher]), NOW).await.expect("adopts");
    let leases: Vec<_> = adopted.iter().map(|l| l.task.lease).collect();
    assert_eq!(leases, [sent, begun, claimed_only], "in id order, without what is over");
    assert_eq!(adopted[1].began_at, Some(TimeMs(5)));
    assert_eq!((&adopted[1].worker, adopted[1].handed_at), (&Some(worker("w")), Some(NOW)));
    assert_eq!((&adopted[2].worker, adopted[2].handed_at), (&None, None));
    assert_eq!(kit.store.adopt(next, None, NOW).await.expect("adopts"), [], "its own are not taken over");
    let all = kit.store.adopt(kit.dispatcher, None, NOW).await.expect("adopts");
    assert_eq!(all.len(), 3, "all but its own");
    assert_eq!(kit.tell(result(begun, Status::Warning)).await, STORED);
    assert_eq!(kit.tell(Record::Returned { lease: claimed_only }).await, Answer::Noted);
    assert_eq!(kit.state(claimed_only.task).await, TaskState::Ready);
    kit.assert_balanced().await;
}

// Rules L3, S4. Case F56.
async fn a_lease_that_is_taken_over_keeps_its_limit_and_gets_no_longer_one(kit: Kit) {
    kit.settings(|s| s.timeout_ms = SpanMs(100)).await;
    kit.import(2).await;
    let claimed = kit.claim(2).await;
    kit.tell(ended(claimed[1].lease, Ending::RetryableCause)).await;
    let retry = kit.claim(1).await[0].lease;
    let begun = |lease| [handed_out(lease), Record::Began { lease, at: TimeMs(1_000) }];
    kit.tell_all(&[begun(claimed[0].lease), begun(retry)].concat()).await;
    // Taken over 50 ms later, then by a process whose clock was set back by a day, then late.
    for (by, now, limits) in
        [(7, 1_050, [1_100, 1_200]), (8, -86_400_000, [-86_399_900, -86_399_800]), (9, 9_000, [1_100, 1_200])]
    {
        let adopted = kit.store.adopt(DispatcherId(by), None, TimeMs(now)).await.expect("adopts");
        let found: Vec<_> = adopted.iter().map(|lease| lease.limit_until).collect();
        assert_eq!(found, limits.map(|limit| Some(TimeMs(limit))), "at {now}");
    }
    kit.tell(Record::Returned { lease: retry }).await;
    let unsent = kit.claim(1).await[0].lease;
    assert_eq!(unsent.task, retry.task);
    let adopted = kit.store.adopt(DispatcherId(10), None, NOW).await.expect("adopts");
    assert_eq!(adopted[1].limit_until, None, "nothing has begun");
}

// Rules A5, S4.
async fn a_worker_that_comes_back_is_noted_once(kit: Kit) {
    let lease = kit.one_lease().await;
    let next = kit.store.register(&info(None), NOW).await.expect("registers");
    kit.store.adopt(next, None, NOW).await.expect("adopts");
    let before = kit.story(lease.task).await;
    let again = Record::HandedOut { lease, worker: worker("another"), at: TimeMs(NOW.0 + 5), began: false };
    assert_eq!(kit.tell_all(&[again.clone(), again]).await, [Answer::Noted, Answer::Noted]);
    assert_eq!(kit.tell(Record::Began { lease, at: TimeMs(NOW.0 + 6) }).await, Answer::Noted);
    assert_eq!(kit.story(lease.task).await, before);
    assert_eq!(kit.store.audit().await.expect("audits").dispatched, 1);
    kit.assert_balanced().await;
}

// Rules C2, S4, A1.
async fn an_attempt_that_outlives_its_tasks_end_is_taken_over_too(kit: Kit) {
    let old = kit.one_lease().await;
    kit.tell(ended(old, Ending::Expired)).await;
    let new = kit.lease().await;
    assert_eq!(kit.tell(result(old, Status::Fatal)).await, STORED);
    let next = kit.store.register(&info(None), NOW).await.expect("registers");
    let adopted = kit.store.adopt(next, None, NOW).await.expect("adopts");
    assert_eq!(adopted.iter().map(|l| l.task.lease).collect::<Vec<_>>(), [new]);
    assert_eq!(kit.tell(ended(new, Ending::WorkerLost)).await, Answer::Noted);
    assert_eq!(kit.state(new.task).await, TaskState::Done);
    kit.assert_balanced().await;
}

// Case F30.
async fn a_dispatcher_beats_under_its_own_number(kit: Kit) {
    let beat = kit.store.register(&info(Some(kit.dispatcher)), TimeMs(9)).await.expect("beats");
    assert_eq!(beat, kit.dispatcher);
    let second = kit.store.register(&info(None), TimeMs(9)).await.expect("registers");
    assert_ne!(second, kit.dispatcher);
    let pruned = kit.store.register(&info(Some(DispatcherId(50))), TimeMs(9)).await.expect("comes back");
    assert_eq!(pruned, DispatcherId(50), "one whose row was pruned comes back under its number");
}

// Case F11.
async fn many_claimers_share_the_tasks_without_overlap(kit: Kit) {
    for (round, size) in [1, 7, 50].into_iter().enumerate() {
        let names: Vec<_> = (0..200).map(|n| entry(&format!("{round}/{n}"))).collect();
        kit.store.import(kit.service, kit.corpus, &names).await.expect("imports");
        let mut stores: Vec<Arc<dyn Store>> = vec![Arc::clone(&kit.store)];
        if kit.is_on_disk() {
            stores.push(kit.reopened().await);
        }
        let ask = Claim { dispatcher: kit.dispatcher, service: kit.service, max: size };
        let claimers = (0..8).map(|n| {
            let (store, ask) = (Arc::clone(&stores[n % stores.len()]), ask.clone());
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let claimed = store.claim(&ask, NOW).await.expect("claims");
                    if claimed.is_empty() {
                        return mine;
                    }
                    mine.extend(claimed.into_iter().map(|t| t.lease));
                }
            })
        });
        let mut all = Vec::new();
        for claimer in claimers.collect::<Vec<_>>() {
            all.extend(claimer.await.expect("joins"));
        }
        assert_eq!(all.len(), 200);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 200, "no task went to two");
    }
}

// Rule D6.
async fn a_result_survives_its_dispatcher(kit: Kit) {
    let lease = kit.one_lease().await;
    kit.tell(result(lease, Status::NoProblem)).await;
    let again = kit.reopened().await;
    assert_eq!(again.mark_done(&[result(lease, Status::NoProblem)], NOW).await.expect("writes"), [REPEATED]);
}

fn info(id: Option<DispatcherId>) -> DispatcherInfo {
    DispatcherInfo { id, host: "there".into(), endpoint: "ipc://y".into() }
}

both_stores!(
    a_claim_takes_the_best_priority_first_and_then_the_lowest_id,
    one_claimed_task_in_eight_is_of_the_lowest_priority,
    a_claim_carries_all_that_its_lease_needs,
    retries_keep_the_runs_time_out_and_a_rerun_reads_it_afresh,
    a_paused_or_unknown_service_gives_nothing_out,
    each_service_has_its_own_queue,
    a_delayed_retry_is_not_handed_out_early,
    a_clock_that_was_set_back_does_not_hide_a_delayed_retry,
    leases_are_taken_over_with_what_is_known_of_them,
    a_lease_that_is_taken_over_keeps_its_limit_and_gets_no_longer_one,
    a_worker_that_comes_back_is_noted_once,
    an_attempt_that_outlives_its_tasks_end_is_taken_over_too,
    a_dispatcher_beats_under_its_own_number,
    many_claimers_share_the_tasks_without_overlap,
    a_result_survives_its_dispatcher,
);
