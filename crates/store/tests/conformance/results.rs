//! What a result or an ending does to its row (rules C and R as the store carries them).

use crate::kit::{Kit, NOW, REPEATED, STORED, ended, handed_out, lease, message, part, result, standing, worker};
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_store::{Answer, Record, TaskState};

// Rules C1, A5, D7.
async fn a_result_is_stored_with_its_messages_and_parts(kit: Kit) {
    let lease = kit.one_lease().await;
    assert_eq!(kit.tell(result(lease, Status::Warning)).await, STORED);
    let story = kit.story(lease.task).await;
    assert_eq!(story.task.state, TaskState::Done);
    assert_eq!(story.task.standing, Some(standing(1, Status::Warning, Origin::Worker)));
    let [stored] = story.results.as_slice() else { panic!("one result") };
    assert_eq!((&stored.messages[..], &stored.parts[..]), (&[message("said", "warning")][..], &[part("result")][..]));
    assert_eq!((stored.run, stored.epoch, stored.published), (lease.run, lease.epoch, false));
    let [attempt] = story.attempts.as_slice() else { panic!("one attempt") };
    assert_eq!((attempt.ending, attempt.charged, &attempt.worker), (Some(Ending::Accepted), true, &Some(worker("w"))));
    assert_eq!((attempt.handed_at, attempt.began_at, attempt.ended_at), (Some(NOW), Some(NOW), Some(NOW)));
    kit.assert_balanced().await;
}

// Rules C5, C4.
async fn good_result_wins_from_any_attempt_of_the_run(kit: Kit) {
    let first = kit.one_lease().await;
    kit.tell(ended(first, Ending::Expired)).await;
    let second = kit.lease().await;
    let fatal = standing(2, Status::Fatal, Origin::Worker);
    assert_eq!(kit.tell(result(second, Status::Fatal)).await, STORED);
    assert_eq!(kit.tell(result(first, Status::Invalid)).await, Answer::Superseded { by: fatal });
    let good = standing(1, Status::Error, Origin::Worker);
    assert_eq!(kit.tell(result(first, Status::Error)).await, Answer::Stored { replaced: Some(fatal), repeat: false });
    assert_eq!(kit.tell(result(second, Status::Fatal)).await, Answer::Superseded { by: good });
    let better = Answer::Stored { replaced: Some(good), repeat: false };
    assert_eq!(kit.tell(result(second, Status::NoProblem)).await, better, "like against like, the newer one");
    let story = kit.story(first.task).await;
    assert_eq!(story.task.standing, Some(standing(2, Status::NoProblem, Origin::Worker)));
    let stored: Vec<_> = story.results.iter().map(|r| (r.epoch.0, r.status)).collect();
    assert_eq!(stored, [(1, Status::Error), (2, Status::NoProblem)], "in the order of their commits");
    assert_eq!(story.results[1].messages, [message("said", "no_problem")], "and nothing is left of what was replaced");
    kit.assert_balanced().await;
}

// Rules C6, D5.
async fn an_earlier_runs_result_is_stale_for_ever(kit: Kit) {
    let old = kit.one_lease().await;
    kit.store.rerun(&Default::default(), dispatcher_core::id::TaskId(0), 9, NOW).await.expect("reruns");
    assert_eq!(kit.story(old.task).await.attempts[0].ending, Some(Ending::Stale));
    assert_eq!(kit.tell(result(old, Status::NoProblem)).await, Answer::Stale);
    let new = kit.lease().await;
    assert_eq!(kit.tell(result(old, Status::NoProblem)).await, Answer::Stale);
    assert_eq!(kit.tell(ended(old, Ending::WorkerLost)).await, Answer::Stale);
    assert_eq!(kit.state(old.task).await, TaskState::Leased);
    assert_eq!(kit.tell(result(new, Status::NoProblem)).await, STORED);
    assert_eq!(kit.tell(result(old, Status::NoProblem)).await, Answer::Stale);
    kit.assert_balanced().await;
}

// Rules C7, L11.
async fn what_there_is_not_is_unknown_and_counted(kit: Kit) {
    let real = kit.one_lease().await;
    for unreal in
        [lease(99, 1, 1), lease(0, 1, 1), lease(-1, 1, 1), lease(1, 2, 1), lease(1, 1, 2), lease(1, 1, u64::MAX)]
    {
        assert_eq!(kit.tell(result(unreal, Status::NoProblem)).await, Answer::Unknown, "{unreal}");
        assert_eq!(kit.tell(ended(unreal, Ending::Expired)).await, Answer::Unknown, "{unreal}");
        assert_eq!(kit.tell(handed_out(unreal)).await, Answer::Unknown, "{unreal}");
    }
    assert_eq!(kit.state(real.task).await, TaskState::Leased);
    kit.assert_balanced().await;
}

// Rules X2, X3, D5, C4.
async fn a_spent_budget_leaves_the_reapers_stand_in_until_any_result_comes(kit: Kit) {
    kit.settings(|s| s.budget = 2).await;
    let first = kit.one_lease().await;
    let requeued = Answer::Requeued { charged: 1, not_before: dispatcher_core::finalise::AT_ONCE };
    assert_eq!(kit.tell(ended(first, Ending::WorkerLost)).await, requeued);
    let second = kit.lease().await;
    let reason = Message { severity: Severity::Fatal, ..message("why", "time_limit") };
    let dead = Answer::DeadLettered { origin: Origin::ReaperStandIn, reason: reason.clone() };
    assert_eq!(kit.tell(ended(second, Ending::TimeLimit)).await, dead);
    let story = kit.story(first.task).await;
    assert_eq!((story.task.state, story.task.charged), (TaskState::Dead, 2));
    assert_eq!((&story.results[0].messages[..], story.results[0].published), (&[reason][..], true));
    let replaced = Some(standing(2, Status::Fatal, Origin::ReaperStandIn));
    assert_eq!(kit.tell(result(first, Status::Fatal)).await, Answer::Stored { replaced, repeat: false });
    assert_eq!(kit.state(first.task).await, TaskState::Done);
    kit.assert_balanced().await;
}

// Rules R5, R6.
async fn a_last_causes_stand_in_gives_way_to_a_usable_result_only(kit: Kit) {
    kit.settings(|s| s.budget = 1).await;
    let lease = kit.one_lease().await;
    let told = kit.tell(ended(lease, Ending::RetryableCause)).await;
    assert!(matches!(told, Answer::DeadLettered { origin: Origin::LastAttemptStandIn, .. }), "{told:?}");
    let by = standing(1, Status::Fatal, Origin::LastAttemptStandIn);
    assert_eq!(kit.tell(result(lease, Status::Invalid)).await, Answer::Superseded { by });
    assert_eq!(kit.state(lease.task).await, TaskState::Dead);
    let stored = Answer::Stored { replaced: Some(by), repeat: false };
    assert_eq!(kit.tell(result(lease, Status::Warning)).await, stored);
    let story = kit.story(lease.task).await;
    assert_eq!((story.task.state, story.results.len()), (TaskState::Done, 1), "it took the stand-in's place");
    assert_eq!(story.results[0].parts, [part("result")]);
    kit.assert_balanced().await;
}

// Rules R1, R8, A5.
async fn what_an_attempt_without_a_result_left_is_kept_with_it(kit: Kit) {
    let lease = kit.one_lease().await;
    let (why, messages, parts) = (message("crash", "SIGSEGV"), vec![message("a", "b")], vec![part("stderr")]);
    let (worker, ending) = (Some(worker("w")), Ending::RetryableCause);
    let kept = (messages.clone(), parts.clone());
    kit.tell(Record::Ended { lease, worker, ending, began: true, why: why.clone(), messages, parts, at: NOW }).await;
    let story = kit.story(lease.task).await;
    let [attempt] = story.attempts.as_slice() else { panic!("one attempt") };
    assert_eq!((&attempt.why, attempt.ending), (&Some(why.clone()), Some(ending)));
    assert_eq!((attempt.messages.clone(), attempt.parts.clone()), kept);
    assert_eq!((story.results.len(), story.task.last_cause), (0, Some(why)));
}

// Rule A2.
async fn ten_free_endings_are_free_across_claims(kit: Kit) {
    kit.settings(|s| s.budget = 1).await;
    let mut lease = kit.one_lease().await;
    for _ in 0..10 {
        let told = kit.tell(ended(lease, Ending::HandedBack)).await;
        assert!(matches!(told, Answer::Requeued { charged: 0, .. }), "{told:?}");
        lease = kit.lease().await;
    }
    let told = kit.tell(ended(lease, Ending::HandedBack)).await;
    assert!(matches!(told, Answer::DeadLettered { .. }), "{told:?}");
    kit.assert_balanced().await;
}

// Rules D5, D6.
async fn several_records_of_one_task_are_folded_in_order(kit: Kit) {
    kit.import(2).await;
    let claimed = kit.claim(2).await;
    let [a, b] = [claimed[0].lease, claimed[1].lease];
    let batch = [
        handed_out(a),
        Record::Began { lease: a, at: NOW },
        result(b, Status::Fatal),
        ended(a, Ending::RetryableCause),
        result(a, Status::Fatal),
        result(a, Status::Warning),
        result(a, Status::Warning),
        result(a, Status::Fatal),
        ended(a, Ending::WorkerLost),
        Record::Published { lease: b },
    ];
    let fatal = standing(1, Status::Fatal, Origin::Worker);
    let warning = standing(1, Status::Warning, Origin::Worker);
    let requeued = Answer::Requeued { charged: 1, not_before: dispatcher_core::finalise::AT_ONCE };
    let replaces = Answer::Stored { replaced: Some(fatal), repeat: false };
    let superseded = Answer::Superseded { by: warning };
    assert_eq!(
        kit.tell_all(&batch).await,
        [
            Answer::Noted,
            Answer::Noted,
            STORED,
            requeued,
            STORED,
            replaces,
            REPEATED,
            superseded,
            Answer::Noted,
            Answer::Noted
        ]
    );
    let story = kit.story(a.task).await;
    assert_eq!((story.results.len(), story.attempts.len()), (1, 1));
    assert_eq!(story.results[0].messages, [message("said", "warning")]);
    assert!(kit.story(b.task).await.results[0].published);
    kit.assert_balanced().await;
}

// Rule D6.
async fn the_same_batch_twice_changes_nothing_the_second_time(kit: Kit) {
    kit.import(5).await;
    let c = kit.claim(5).await;
    let batch = [
        handed_out(c[0].lease),
        result(c[0].lease, Status::NoProblem),
        ended(c[1].lease, Ending::WorkerLost),
        ended(c[2].lease, Ending::RetryableCause),
        handed_out(c[3].lease),
        Record::Returned { lease: c[4].lease },
        Record::Published { lease: c[0].lease },
    ];
    let first = kit.tell_all(&batch).await;
    let rows = kit.all().await;
    let mut stories = Vec::new();
    for row in &rows {
        stories.push(kit.story(row.id).await);
    }
    let mut again = kit.tell_all(&batch).await;
    assert_eq!(again[1], REPEATED);
    again[1] = first[1].clone();
    assert_eq!(again, first);
    for story in stories {
        assert_eq!(kit.story(story.task.id).await, story);
    }
    assert_eq!(kit.all().await, rows);
    kit.assert_balanced().await;
}

// Rule D6.
async fn an_empty_batch_is_no_work(kit: Kit) {
    assert_eq!(kit.tell_all(&[]).await, []);
    assert_eq!(kit.claim(0).await, []);
}

// Rule A5.
async fn a_cancelled_tasks_result_is_answered_so(kit: Kit) {
    let lease = kit.one_lease().await;
    kit.store.cancel(&Default::default(), dispatcher_core::id::TaskId(0), 9, NOW).await.expect("cancels");
    assert_eq!(kit.tell(result(lease, Status::NoProblem)).await, Answer::Cancelled);
    assert_eq!(kit.tell(ended(lease, Ending::Expired)).await, Answer::Cancelled);
    let story = kit.story(lease.task).await;
    assert_eq!((story.task.state, story.attempts[0].ending), (TaskState::Cancelled, Some(Ending::Cancelled)));
    assert_eq!(kit.claim(1).await, []);
    kit.assert_balanced().await;
}

both_stores!(
    a_result_is_stored_with_its_messages_and_parts,
    good_result_wins_from_any_attempt_of_the_run,
    an_earlier_runs_result_is_stale_for_ever,
    what_there_is_not_is_unknown_and_counted,
    a_spent_budget_leaves_the_reapers_stand_in_until_any_result_comes,
    a_last_causes_stand_in_gives_way_to_a_usable_result_only,
    what_an_attempt_without_a_result_left_is_kept_with_it,
    ten_free_endings_are_free_across_claims,
    several_records_of_one_task_are_folded_in_order,
    the_same_batch_twice_changes_nothing_the_second_time,
    an_empty_batch_is_no_work,
    a_cancelled_tasks_result_is_answered_so,
);
