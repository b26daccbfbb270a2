//! What one bad row does to its batch: nothing (rule D4).

use crate::kit::{Kind, Kit, NOW, STORED, message, part, result, run};
use dispatcher_core::id::TaskId;
use dispatcher_core::report::{Ending, Status};
use dispatcher_store::{Answer, ErrorClass, PartRef, Record, TaskFilter, TaskState};

fn sqlite(test: impl AsyncFnOnce(Kit) + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { test(Kit::new(Kind::Sqlite).await).await });
}

// Rule D4.
async fn a_record_that_cannot_be_stored_ends_its_task_and_the_others_land(kit: Kit) {
    kit.import(3).await;
    let claimed = kit.claim(3).await;
    let mut batch: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
    let endless = PartRef { length: u64::MAX, ..part("result") };
    if let Record::Result { parts, .. } = &mut batch[1] {
        parts.push(endless);
    }
    let answers = kit.tell_all(&batch).await;
    assert_eq!((&answers[0], &answers[2]), (&STORED, &STORED));
    assert!(matches!(&answers[1], Answer::Refused { why } if why.contains("length")), "{answers:?}");
    let story = kit.story(claimed[1].lease.task).await;
    assert_eq!(story.task.state, TaskState::Dead);
    assert_eq!(story.attempts[0].ending, Some(Ending::Unusable));
    assert_eq!(story.results[0].messages[0].what, "refused");
    kit.assert_balanced().await;
}

// Rule D4.
#[test]
fn a_row_that_the_database_refuses_ends_as_failed_with_the_refusal_and_the_others_land() {
    sqlite(async |kit| {
        kit.meddle(
            "CREATE TRIGGER picky BEFORE INSERT ON messages WHEN new.details = 'poison'
             BEGIN SELECT RAISE(ABORT, 'no poison here'); END",
        )
        .await;
        kit.import(100).await;
        let claimed = kit.claim(100).await;
        let mut batch: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::Warning)).collect();
        for bad in [0, 41, 42, 99] {
            if let Record::Result { messages, .. } = &mut batch[bad] {
                messages[0].details = "poison".into();
            }
        }
        let answers = kit.tell_all(&batch).await;
        for (n, answer) in answers.iter().enumerate() {
            if [0, 41, 42, 99].contains(&n) {
                assert!(matches!(answer, Answer::Refused { why } if why.contains("no poison here")), "{answer:?}");
            } else {
                assert_eq!(answer, &STORED, "record {n}");
            }
        }
        let story = kit.story(claimed[42].lease.task).await;
        assert_eq!(story.task.state, TaskState::Dead);
        assert!(story.task.last_reason.expect("a reason").details.contains("no poison here"));
        kit.assert_balanced().await;
    });
}

// Rule D4. Case F49.
#[test]
fn a_task_that_vanished_is_skipped_and_counted_and_the_others_land() {
    sqlite(async |kit| {
        kit.import(100).await;
        let claimed = kit.claim(100).await;
        kit.meddle("DELETE FROM tasks WHERE id = 50").await;
        let batch: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
        let answers = kit.tell_all(&batch).await;
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(answer, if n == 49 { &Answer::Unknown } else { &STORED }, "record {n}");
        }
        assert_eq!(counter(&kit, "message_unknown").await, 1);
        kit.assert_balanced().await;
    });
}

// Rule D4. Case F49.
#[test]
fn a_service_that_vanished_takes_nothing_else_along() {
    sqlite(async |kit| {
        kit.import(10).await;
        let claimed = kit.claim(10).await;
        let other = kit.store.put_service("other", &Default::default()).await.expect("makes").id;
        kit.store.import(other, kit.corpus, &[crate::kit::entry("x")]).await.expect("imports");
        kit.meddle("DELETE FROM services WHERE name = 'first'").await;
        let batch: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
        let answers = kit.tell_all(&batch).await;
        assert!(answers.iter().all(|a| matches!(a, Answer::Refused { why } if why.contains("service"))), "{answers:?}");
        let ask = dispatcher_store::Claim { dispatcher: kit.dispatcher, service: other, max: 5 };
        assert_eq!(kit.store.claim(&ask, NOW).await.expect("claims").len(), 1);
    });
}

// Case F50.
#[test]
fn rows_that_cannot_be_read_are_set_aside_with_a_reason_and_fail_nothing() {
    sqlite(async |kit| {
        kit.import(1_000).await;
        let leased = kit.claim(50).await;
        kit.meddle(
            "PRAGMA ignore_check_constraints = on;
             UPDATE tasks SET last_cause = '{half' WHERE id IN (1, 101);
             UPDATE tasks SET charged = -1 WHERE id IN (2, 102);
             UPDATE tasks SET last_cause = CAST(x'22ff22' AS TEXT) WHERE id IN (3, 103);
             UPDATE tasks SET epoch = -7 WHERE id = 104;
             UPDATE tasks SET run = 0 WHERE id = 105;
             UPDATE tasks SET state = 'dreaming' WHERE id = 106;
             UPDATE tasks SET service = 99 WHERE id = 107",
        )
        .await;
        let again = kit.reopened().await;
        let there = dispatcher_store::DispatcherInfo { id: None, host: "b".into(), endpoint: "e".into() };
        let next = again.register(&there, NOW).await.expect("registers");
        let adopted = again.adopt(next, None, NOW).await.expect("adopts");
        assert_eq!(adopted.len(), 47, "the good leases are taken over");
        let mut claimed = 0;
        loop {
            let got = kit.claim(200).await.len();
            // A claim whose rows are all bad sets them aside and gives none; the next one goes on.
            if got == 0 {
                break;
            }
            claimed += got;
        }
        assert_eq!(claimed, 950 - 7, "the good tasks are claimed");
        let dead = kit.all().await.into_iter().filter(|t| t.state == TaskState::Dead && t.standing.is_some());
        let dead: Vec<_> = dead.map(|t| (t.id.0, t.last_reason.map(|m| m.what))).collect();
        assert_eq!(dead.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 101, 102, 103, 104, 105]);
        assert!(dead.iter().all(|(_, what)| what.as_deref() == Some("unreadable_row")));
        assert_eq!(counter(&kit, "set_aside").await, 8);
        let answers =
            kit.tell_all(&leased.iter().map(|t| result(t.lease, Status::NoProblem)).collect::<Vec<_>>()).await;
        assert_eq!(answers.iter().filter(|a| **a == STORED).count(), 47);
        let over_the_reason = |a: &&Answer| matches!(a, Answer::Stored { replaced: Some(_), .. });
        assert_eq!(answers.iter().filter(over_the_reason).count(), 3, "what was set aside still takes a result");
        let audit = kit.store.audit().await.expect("audits");
        let what: Vec<_> = audit.differences.iter().map(|d| d.what.as_str()).collect();
        assert_eq!(what, ["tasks in a state that there is not", "tasks whose service is missing"]);
    });
}

// Rule A1.
#[test]
fn the_audit_finds_a_counter_that_was_changed_and_a_result_that_is_gone() {
    sqlite(async |kit| {
        let lease = kit.one_lease().await;
        kit.tell(result(lease, Status::NoProblem)).await;
        kit.assert_balanced().await;
        kit.meddle("UPDATE counters SET n = n + 2 WHERE kind = 'accepted'; DELETE FROM results").await;
        let differences = kit.store.audit().await.expect("audits").differences;
        let [counter, gone] = differences.as_slice() else { panic!("{differences:?}") };
        assert!(counter.what.contains("accepted") && counter.what.contains("worker w"), "{counter:?}");
        assert_eq!((counter.counted, counter.found), (3, 1));
        assert_eq!((gone.what.as_str(), gone.found), ("tasks whose result is missing or another", 1));
    });
}

// Rules D3, D4.
#[test]
fn a_database_that_is_taken_away_is_an_error_and_never_an_empty_queue() {
    sqlite(async |kit| {
        kit.import(3).await;
        let file = kit.file.clone().expect("on disk");
        std::fs::rename(&file, file.with_extension("away")).expect("moves");
        let ask = dispatcher_store::Claim { dispatcher: kit.dispatcher, service: kit.service, max: 5 };
        let error = kit.store.claim(&ask, NOW).await.expect_err("no empty answer");
        assert_eq!(error.class, ErrorClass::Misconfigured);
        assert!(error.why.contains("removed or replaced"), "{error}");
        assert!(kit.store.tasks(&TaskFilter::default(), TaskId(0), 9).await.is_err());
        std::fs::rename(file.with_extension("away"), &file).expect("moves back");
        assert_eq!(kit.store.claim(&ask, NOW).await.expect("claims").len(), 3);
    });
}

// Rule D4.
#[test]
fn what_fails_for_another_reason_fails_as_a_whole_and_can_be_repeated() {
    sqlite(async |kit| {
        kit.import(2).await;
        let claimed = kit.claim(2).await;
        let batch: Vec<_> = claimed.iter().map(|t| result(t.lease, Status::NoProblem)).collect();
        kit.meddle("ALTER TABLE messages RENAME TO hidden").await;
        let error = kit.store.mark_done(&batch, NOW).await.expect_err("no such table");
        assert_eq!(error.class, ErrorClass::Misconfigured, "{error}");
        kit.meddle("ALTER TABLE hidden RENAME TO messages").await;
        assert!(kit.all().await.iter().all(|t| t.state == TaskState::Leased), "nothing of it was written");
        assert_eq!(kit.store.mark_done(&batch, NOW).await.expect("writes"), [STORED, STORED]);
        kit.assert_balanced().await;
    });
}

// Rule A5.
#[test]
fn an_ending_for_no_worker_leaves_no_record_of_an_attempt() {
    run(Kind::Sqlite, |kit| {
        Box::pin(async move {
            kit.import(1).await;
            let lease = kit.claim(1).await[0].lease;
            let (ending, why) = (Ending::Undeliverable, message("no", "worker"));
            let ended = Record::Ended {
                lease,
                worker: None,
                ending,
                began: false,
                why,
                messages: vec![],
                parts: vec![],
                at: NOW,
            };
            assert!(matches!(kit.tell(ended).await, Answer::Requeued { charged: 0, .. }));
            assert_eq!(kit.story(lease.task).await.attempts, []);
        })
    });
}

async fn counter(kit: &Kit, kind: &'static str) -> i64 {
    use sqlx::ConnectOptions;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(kit.file.as_ref().expect("on disk"));
    let mut connection = options.connect().await.expect("connects");
    let sum = sqlx::query_scalar("SELECT coalesce(sum(n), 0) FROM counters WHERE kind = ?1").bind(kind);
    sum.fetch_one(&mut connection).await.expect("counts")
}

both_stores!(a_record_that_cannot_be_stored_ends_its_task_and_the_others_land);
