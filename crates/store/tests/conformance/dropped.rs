//! Calls that are dropped half-way (a caller with a time limit, a cancelled task).

use crate::kit::{Kit, NOW, entry, handed_out, result};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::Status;
use dispatcher_store::{Answer, Claim, DispatcherInfo, Record, ServiceSettings, Store, TaskFilter, TaskState};
use futures_util::future::BoxFuture;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Polls `call` at most `polls` times and then drops it; its answer, where it was done by then.
async fn drop_after<T>(polls: usize, mut call: BoxFuture<'_, T>) -> Option<T> {
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

// Case F39.
async fn a_dropped_call_leaves_no_open_transaction_and_loses_nothing(kit: Kit) {
    let names: Vec<_> = (0..500).map(|n| entry(&format!("{n}"))).collect();
    kit.store.import(kit.service, kit.corpus, &names).await.expect("imports");
    let all = TaskFilter::default();
    let ask = Claim { dispatcher: kit.dispatcher, service: kit.service, max: 3 };
    let mut held = kit.claim(1).await;
    let batch = [handed_out(held[0].lease), result(held[0].lease, Status::NoProblem)];
    let here = DispatcherInfo { id: Some(kit.dispatcher), host: "h".into(), endpoint: "e".into() };
    for round in 0..2_000_usize {
        let (store, polls): (&Arc<dyn Store>, _) = (&kit.store, round / 14 % 3);
        match round % 14 {
            0 => held.extend(drop_after(polls, store.claim(&ask, NOW)).await.into_iter().flatten().flatten()),
            1 => drop(drop_after(polls, store.mark_done(&batch, NOW)).await),
            2 => drop(drop_after(polls, store.import(kit.service, kit.corpus, &names)).await),
            3 => drop(drop_after(polls, store.register(&here, NOW)).await),
            4 => drop(drop_after(polls, store.adopt(kit.dispatcher, None, NOW)).await),
            5 => drop(drop_after(polls, store.unpublished(None, 9)).await),
            6 => drop(drop_after(polls, store.rerun(&all, TaskId(1), 2, NOW)).await),
            7 => drop(drop_after(polls, store.accept_change(kit.service, kit.corpus, &names, NOW)).await),
            8 => drop(drop_after(polls, store.summary(&all)).await),
            9 => drop(drop_after(polls, store.tasks(&all, TaskId(0), 9)).await),
            10 => drop(drop_after(polls, store.story(TaskId(1))).await),
            11 => drop(drop_after(polls, store.audit()).await),
            12 => drop(drop_after(polls, store.put_service("first", &ServiceSettings::default())).await),
            _ => drop(drop_after(polls, store.put_corpus("papers", b"/papers")).await),
        }
    }
    let results: Vec<_> = held.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
    let landed = kit.tell_all(&results).await.into_iter().filter(|a| matches!(a, Answer::Stored { .. })).count();
    // Another connection could not write if a transaction were still open.
    let other = kit.reopened().await;
    other.register(&here, NOW).await.expect("no lock is left");
    let mut done = landed;
    loop {
        let claimed = kit.claim(64).await;
        if claimed.is_empty() {
            break;
        }
        done += claimed.len();
        let results: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
        kit.tell_all(&results).await;
    }
    assert_eq!(done, 500, "claims that never reached their caller are given out again");
    let summary = kit.store.summary(&all).await.expect("counts");
    assert_eq!(summary.by_state, [(TaskState::Done, 500)]);
    kit.assert_balanced().await;
}

// Case F13. Rules D6, A1.
async fn what_was_committed_and_whose_answer_was_lost_is_asked_for_again_and_done_once(kit: Kit) {
    let names: Vec<_> = (0..110).map(|n| entry(&format!("{n}"))).collect();
    let import = || kit.store.import(kit.service, kit.corpus, &names);
    assert_eq!(import().await.expect("imports").added, 110);
    assert_eq!(import().await.expect("imports").added, 0, "the same again");
    let claimed = kit.claim(100).await;
    let batch: Vec<_> =
        claimed.iter().flat_map(|task| [handed_out(task.lease), result(task.lease, Status::Warning)]).collect();
    kit.tell_all(&batch).await;
    let again = kit.tell_all(&batch).await;
    let repeats = again.iter().filter(|answer| matches!(answer, Answer::Stored { repeat: true, .. })).count();
    assert_eq!(repeats, 100, "each is answered stored, and nothing is new");
    // Ten more are claimed, and nobody learns of it: whoever takes the process over has them back.
    kit.claim(10).await;
    let here = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
    let next = kit.store.register(&here, NOW).await.expect("registers");
    let back = kit.store.adopt(next, None, NOW).await.expect("adopts");
    assert_eq!((back.len(), back.iter().filter(|open| open.worker.is_none()).count()), (10, 10));
    let returned: Vec<_> = back.iter().map(|open| Record::Returned { lease: open.task.lease }).collect();
    kit.tell_all(&returned).await;
    let summary = kit.store.summary(&TaskFilter::default()).await.expect("counts");
    assert_eq!(summary.by_state, [(TaskState::Ready, 10), (TaskState::Done, 100)]);
    let dispatched = kit.store.audit().await.expect("audits").dispatched;
    assert_eq!(dispatched, 100, "each attempt is counted once");
    kit.assert_balanced().await;
}

// Cases F38, F39.
async fn many_callers_at_once_all_come_through(kit: Kit) {
    kit.import(200).await;
    let callers = (0..16).map(|n| {
        let (store, service, corpus, dispatcher) = (Arc::clone(&kit.store), kit.service, kit.corpus, kit.dispatcher);
        tokio::spawn(async move {
            for round in 0..10 {
                let ask = Claim { dispatcher, service, max: 2 };
                let claimed = store.claim(&ask, NOW).await.expect("claims");
                let results: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::Warning)).collect();
                store.mark_done(&results, NOW).await.expect("writes");
                store.import(service, corpus, &[entry(&format!("{n}/{round}"))]).await.expect("imports");
                store.summary(&TaskFilter::default()).await.expect("counts");
                store.unpublished(None, 5).await.expect("lists");
                store.audit().await.expect("audits");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("comes through");
    }
    let summary = kit.store.summary(&TaskFilter::default()).await.expect("counts");
    assert_eq!((summary.total, summary.by_status), (360, vec![(Status::Warning, 320)]));
    kit.assert_balanced().await;
}

both_stores! {
    a_dropped_call_leaves_no_open_transaction_and_loses_nothing,
    what_was_committed_and_whose_answer_was_lost_is_asked_for_again_and_done_once,
    many_callers_at_once_all_come_through,
}
