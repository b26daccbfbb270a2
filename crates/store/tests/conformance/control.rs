//! The control list: commands written down, carried out piece by piece, and what became of them.

use crate::kit::{Kind, Kit, NOW, STORED, ended, entry, handed_out, message, part, result, run, worker};
use dispatcher_core::id::{CorpusId, LeaseId, ServiceId, TaskId};
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{
    Answer, Claim, Command, CommandId, CommandOutcome, CommandPage, CommandRow, ErrorClass, Named, Record,
    ServiceChange, ServiceSettings, Step, TaskFilter, TaskState, limits,
};

async fn give(kit: &Kit, command: &Command) -> CommandId {
    kit.store.submit(command, "ada@here", NOW).await.expect("writes down")
}

async fn step(kit: &Kit, id: CommandId, max: usize) -> Step {
    kit.store.step(id, max, NOW).await.expect("steps")
}

/// Steps to the end; all leases that were revoked, and what became of it. The books balance after every piece.
async fn finish(kit: &Kit, command: &Command, max: usize) -> (CommandOutcome, Vec<LeaseId>) {
    let id = give(kit, command).await;
    let (mut revoked, mut changed) = (Vec::new(), 0);
    loop {
        let piece = step(kit, id, max).await;
        kit.assert_balanced().await;
        changed += piece.changed;
        revoked.extend(piece.revoked);
        if let Some(outcome) = piece.outcome {
            assert_eq!(outcome.changed, changed, "the pieces add up");
            return (outcome, revoked);
        }
    }
}

async fn listed(kit: &Kit, page: CommandPage) -> Vec<CommandRow> {
    kit.store.commands(&page).await.expect("lists")
}

fn rerun_all() -> Command {
    Command::Rerun { filter: TaskFilter::default() }
}

fn changed(changed: u64) -> CommandOutcome {
    CommandOutcome { changed, error: None }
}

// Rule C6.
async fn a_rerun_goes_on_where_its_last_piece_ended(kit: Kit) {
    kit.import(10).await;
    let id = give(&kit, &rerun_all()).await;
    assert_eq!(step(&kit, id, 4).await, Step { changed: 4, ..Step::default() });
    let runs: Vec<_> = kit.all().await.iter().map(|t| t.run.0).collect();
    assert_eq!(runs, [2, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
    // Whoever goes on after a kill goes on there.
    let other = kit.reopened().await;
    assert_eq!(other.step(id, 4, NOW).await.expect("steps").changed, 4);
    let last = step(&kit, id, 4).await;
    assert_eq!(last, Step { changed: 2, revoked: vec![], outcome: Some(changed(10)) });
    assert!(kit.all().await.iter().all(|t| t.run.0 == 2), "no task got two runs");
    assert_eq!(step(&kit, id, 4).await, Step { outcome: Some(changed(10)), ..Step::default() }, "it is through");
    assert!(kit.all().await.iter().all(|t| t.run.0 == 2));
    assert_eq!(step(&kit, give(&kit, &rerun_all()).await, 0).await.changed, 1, "a piece is never empty");
}

// Rule C6. Case F10.
async fn a_rerun_tells_which_leases_it_ended(kit: Kit) {
    kit.import(5).await;
    let claimed = kit.claim(4).await;
    let [out, done, twice, unsent] = [0, 1, 2, 3].map(|n: usize| claimed[n].lease);
    kit.tell_all(&[handed_out(out), result(done, Status::Fatal), handed_out(twice)]).await;
    // A result of the first attempt stands while the second one is still out.
    kit.tell(ended(twice, Ending::Expired)).await;
    let second = kit.claim(1).await[0].lease;
    assert_eq!(second.task, twice.task);
    kit.tell_all(&[handed_out(second), result(twice, Status::Fatal)]).await;
    let (outcome, revoked) = finish(&kit, &rerun_all(), 2).await;
    assert_eq!((outcome, revoked), (changed(5), vec![out, second, unsent]));
    assert!(matches!(kit.tell(result(out, Status::NoProblem)).await, Answer::Stale));
    kit.assert_balanced().await;
}

// Rule A5. Case F63.
async fn a_cancellation_counts_what_it_cancelled_and_tells_which_leases_it_ended(kit: Kit) {
    kit.import(5).await;
    let claimed = kit.claim(3).await;
    let [out, done, unsent] = [0, 1, 2].map(|n: usize| claimed[n].lease);
    kit.tell_all(&[handed_out(out), result(done, Status::Warning)]).await;
    let cancel = Command::Cancel { filter: TaskFilter::default() };
    assert_eq!(finish(&kit, &cancel, 2).await, (changed(4), vec![out, unsent]));
    assert_eq!(finish(&kit, &cancel, 2).await, (changed(0), vec![]), "nothing is cancelled twice");
    assert_eq!(kit.state(done.task).await, TaskState::Done);
    assert_eq!(kit.tell(result(out, Status::NoProblem)).await, Answer::Cancelled);
    kit.assert_balanced().await;
}

/// A second service and a second corpus with a task of each pair: 1 to 4.
async fn two_by_two(kit: &Kit) -> (ServiceId, CorpusId) {
    let service = kit.store.put_service("second", &ServiceSettings::default()).await.expect("makes").id;
    let corpus = kit.store.put_corpus("books", b"/books").await.expect("makes").id;
    for s in [kit.service, service] {
        for c in [kit.corpus, corpus] {
            kit.store.import(s, c, &[entry("a"), entry("b")]).await.expect("imports");
        }
    }
    (service, corpus)
}

/// Every kind of row that there is about a task.
async fn live(kit: &Kit, service: ServiceId) -> Vec<LeaseId> {
    let ask = Claim { dispatcher: kit.dispatcher, service, max: 4 };
    let claimed = kit.store.claim(&ask, NOW).await.expect("claims");
    for task in &claimed {
        kit.tell_all(&[handed_out(task.lease), Record::Began { lease: task.lease, at: NOW }]).await;
    }
    let first = &claimed[0];
    let failed = Record::Ended {
        lease: first.lease,
        worker: Some(worker("w")),
        ending: Ending::RetryableCause,
        began: true,
        why: message("why", "so"),
        messages: vec![message("kept", "words")],
        parts: vec![part("stdout")],
        at: NOW,
    };
    kit.tell_all(&[failed, result(claimed[1].lease, Status::Warning)]).await;
    claimed.iter().map(|t| t.lease).collect()
}

// Rules A1, A5.
async fn a_deleted_corpus_is_gone_with_all_that_was_stored_of_it(kit: Kit) {
    let (second, books) = two_by_two(&kit).await;
    let (of_first, of_second) = (live(&kit, kit.service).await, live(&kit, second).await);
    let delete = Command::Delete { what: Named::Corpus("papers".into()) };
    let (outcome, revoked) = finish(&kit, &delete, 1).await;
    assert_eq!((outcome, revoked), (changed(4), vec![]), "nothing of it was out");
    let left = kit.all().await;
    assert_eq!(left.iter().map(|t| t.corpus).collect::<Vec<_>>(), [books; 4]);
    assert_eq!(kit.store.corpora().await.expect("lists").len(), 1);
    assert_eq!(kit.store.services().await.expect("lists").len(), 2);
    let (outcome, revoked) = finish(&kit, &Command::Delete { what: Named::Corpus("books".into()) }, 3).await;
    assert_eq!((outcome.changed, revoked), (4, vec![of_first[2], of_first[3], of_second[2], of_second[3]]));
    assert_eq!(kit.all().await, []);
    assert_eq!(kit.store.story(TaskId(1)).await.expect("reads"), None);
    assert_eq!(kit.store.unpublished(None, 9).await.expect("lists"), []);
    assert_eq!(kit.store.books().await.expect("reads"), []);
    // Neither the tasks nor the corpus come back under their old numbers.
    let again = kit.store.put_corpus("papers", b"/papers").await.expect("makes").id;
    assert!(again > books, "{again:?}");
    kit.store.import(kit.service, again, &[entry("a")]).await.expect("imports");
    assert_eq!(kit.all().await.iter().map(|t| t.id.0).collect::<Vec<_>>(), [9]);
}

// Rules A1, D4. Case F49.
async fn a_deleted_service_is_gone_and_what_comes_late_for_it_is_unknown(kit: Kit) {
    let (second, _) = two_by_two(&kit).await;
    let (of_first, of_second) = (live(&kit, kit.service).await, live(&kit, second).await);
    let (outcome, revoked) = finish(&kit, &Command::Delete { what: Named::Service("first".into()) }, 3).await;
    assert_eq!((outcome, revoked), (changed(4), of_first[2..].to_vec()));
    let services = kit.store.services().await.expect("lists");
    assert_eq!(services.iter().map(|s| s.id).collect::<Vec<_>>(), [second]);
    let batch = [result(of_first[2], Status::NoProblem), result(of_second[2], Status::NoProblem)];
    assert_eq!(kit.tell_all(&batch).await, [Answer::Unknown, STORED]);
    let books = kit.store.books().await.expect("reads");
    let unknown: Vec<_> = books.iter().filter(|l| l.service.is_empty()).map(|l| (l.kind.as_str(), l.n)).collect();
    assert_eq!(unknown, [("message_unknown", 1)]);
    kit.assert_balanced().await;
    let again = kit.store.put_service("first", &ServiceSettings::default()).await.expect("makes").id;
    assert!(again > second, "its number is not given again");
}

// Rule D4. Case F49.
async fn a_task_that_was_deleted_in_flight_costs_its_batch_nothing(kit: Kit) {
    let books = kit.store.put_corpus("books", b"/books").await.expect("makes").id;
    kit.import(50).await;
    kit.store.import(kit.service, books, &[entry("x")]).await.expect("imports");
    kit.store.import(kit.service, kit.corpus, &[entry("y")]).await.expect("imports");
    let claimed = kit.claim(100).await;
    let (_, revoked) = finish(&kit, &Command::Delete { what: Named::Corpus("books".into()) }, 100).await;
    assert_eq!(revoked, [claimed[50].lease]);
    let mut batch: Vec<_> = claimed.iter().map(|t| handed_out(t.lease)).collect();
    batch.extend(claimed.iter().map(|t| result(t.lease, Status::NoProblem)));
    let answers = kit.tell_all(&batch).await;
    for (n, answer) in answers.iter().enumerate() {
        let expected = match n {
            50 | 102 => &Answer::Unknown,
            0..52 => &Answer::Noted,
            _ => &STORED,
        };
        assert_eq!(answer, expected, "record {n}");
    }
    kit.assert_balanced().await;
    assert_eq!(kit.claim(9).await, [], "nothing runs again");
}

async fn what_is_named_and_is_not_there_is_an_outcome(kit: Kit) {
    let service = || Some("x".to_owned());
    let commands = [
        (Command::Delete { what: Named::Corpus("x".into()) }, r#"there is no corpus "x""#),
        (Command::Delete { what: Named::Service("x".into()) }, r#"there is no service "x""#),
        (Command::Pause { service: service() }, r#"there is no service "x""#),
        (Command::Resume { service: service() }, r#"there is no service "x""#),
    ];
    for (command, why) in commands {
        let (outcome, _) = finish(&kit, &command, 5).await;
        assert_eq!(outcome, CommandOutcome { changed: 0, error: Some(why.into()) });
    }
    let nobody = kit.store.step(CommandId(99), 5, NOW).await.expect_err("no such command");
    assert_eq!(nobody.class, ErrorClass::Conflict);
    let nobody = kit.store.conclude(CommandId(99), &changed(0), NOW).await.expect_err("no such command");
    assert_eq!(nobody.class, ErrorClass::Conflict);
}

// Rule G7.
async fn a_service_is_made_and_changed_by_command(kit: Kit) {
    let put = |name: &str, change| Command::PutService { name: name.into(), change };
    let cap = ServiceChange { max_in_flight: Some(7), priority: Some(-2), ..Default::default() };
    assert_eq!(finish(&kit, &put("new", cap.clone()), 1).await.0, changed(1));
    assert_eq!(finish(&kit, &put("new", cap), 1).await.0, changed(0), "nothing was changed");
    let made = ServiceSettings { max_in_flight: Some(7), priority: -2, ..Default::default() };
    assert_eq!(kit.store.services().await.expect("lists")[1].settings, made);
    let change = ServiceChange {
        timeout_ms: Some(SpanMs(5)),
        budget: Some(1),
        result_cap: Some(2),
        retry_delay_ms: Some(SpanMs(3)),
        max_in_flight: Some(0),
        priority: None,
    };
    assert_eq!(finish(&kit, &put("new", change), 1).await.0, changed(1));
    let now = ServiceSettings {
        timeout_ms: SpanMs(5),
        budget: 1,
        result_cap: 2,
        retry_delay_ms: SpanMs(3),
        paused: false,
        max_in_flight: None,
        priority: -2,
    };
    assert_eq!(kit.store.services().await.expect("lists")[1].settings, now);
    let endless = ServiceChange { result_cap: Some(u64::MAX), ..Default::default() };
    let refused = finish(&kit, &put("new", endless), 1).await.0;
    assert!(refused.error.is_some_and(|why| why.contains("the result cap")));
    let refused = finish(&kit, &put("a/b", ServiceChange::default()), 1).await.0;
    assert!(refused.error.is_some_and(|why| why.contains("allowed are")));
    assert_eq!(kit.store.services().await.expect("lists").len(), 2);
}

// Rule L10.
async fn services_are_paused_and_resumed_by_command(kit: Kit) {
    kit.import(3).await;
    kit.store.put_service("second", &ServiceSettings::default()).await.expect("makes");
    let one = || Some("first".to_owned());
    assert_eq!(finish(&kit, &Command::Pause { service: one() }, 1).await.0, changed(1));
    assert_eq!(kit.claim(1).await, []);
    assert_eq!(finish(&kit, &Command::Pause { service: None }, 1).await.0, changed(1), "the other one");
    assert_eq!(finish(&kit, &Command::Resume { service: one() }, 1).await.0, changed(1));
    assert_eq!(kit.claim(1).await.len(), 1);
    assert_eq!(finish(&kit, &Command::Resume { service: None }, 1).await.0, changed(1));
    assert!(kit.store.services().await.expect("lists").iter().all(|s| !s.settings.paused));
}

async fn what_the_store_does_not_do_is_left_open_until_somebody_says_what_became_of_it(kit: Kit) {
    let drain = Command::Drain { wait: true };
    let import = Command::Import { service: "first".into(), corpus: "papers".into(), added: 5 };
    let ids = [give(&kit, &drain).await, give(&kit, &import).await];
    for id in ids {
        assert_eq!(step(&kit, id, 5).await, Step::default());
    }
    kit.store.conclude(ids[1], &changed(5), TimeMs(7)).await.expect("concludes");
    assert_eq!(step(&kit, ids[1], 5).await, Step { outcome: Some(changed(5)), ..Step::default() });
    kit.store.conclude(ids[1], &changed(6), TimeMs(8)).await.expect("concludes again");
    let open = CommandPage { open: true, max: 9, ..Default::default() };
    assert_eq!(listed(&kit, open).await.iter().map(|c| c.id).collect::<Vec<_>>(), [ids[0]]);
    let row = CommandRow {
        id: ids[1],
        at: NOW,
        actor: "ada@here".into(),
        command: Some(import),
        outcome: Some(changed(5)),
        done_at: Some(TimeMs(7)),
    };
    assert_eq!(listed(&kit, CommandPage { id: Some(ids[1]), max: 9, ..Default::default() }).await, [row]);
}

async fn commands_are_listed_in_pages_from_either_end(kit: Kit) {
    for n in 0..6 {
        let id = give(&kit, &Command::Pause { service: None }).await;
        if n % 2 == 0 {
            step(&kit, id, 1).await;
        }
    }
    let ids = |page| {
        let kit = &kit;
        async move { listed(kit, page).await.into_iter().map(|c| c.id.0).collect::<Vec<_>>() }
    };
    let page = |max| CommandPage { max, ..Default::default() };
    assert_eq!(ids(page(4)).await, [1, 2, 3, 4]);
    assert_eq!(ids(CommandPage { after: Some(CommandId(4)), ..page(4) }).await, [5, 6]);
    assert_eq!(ids(CommandPage { newest: true, ..page(4) }).await, [3, 4, 5, 6]);
    assert_eq!(ids(CommandPage { newest: true, open: true, ..page(2) }).await, [4, 6]);
    assert_eq!(ids(CommandPage { open: true, after: Some(CommandId(2)), ..page(9) }).await, [4, 6]);
    assert_eq!(ids(CommandPage { id: Some(CommandId(3)), open: true, ..page(9) }).await, Vec::<i64>::new());
    assert_eq!(ids(page(0)).await, Vec::<i64>::new());
}

async fn every_command_comes_back_as_it_was_given(kit: Kit) {
    let filter = TaskFilter {
        ids: vec![TaskId(3)],
        service: Some(kit.service),
        corpus: Some(kit.corpus),
        states: vec![TaskState::Dead],
        statuses: vec![Status::Fatal],
        category: Some("c".into()),
        what: Some("nul\0".into()),
        entry_prefix: Some(dispatcher_core::id::EntryName(b"\xff\0".to_vec())),
        entries: vec![dispatcher_core::id::EntryName(b"\xfe,".to_vec())],
    };
    let commands = [
        Command::Rerun { filter: filter.clone() },
        Command::Cancel { filter },
        Command::Delete { what: Named::Service("s".into()) },
        Command::PutService { name: "n".into(), change: ServiceChange { budget: Some(1), ..Default::default() } },
        Command::Pause { service: None },
        Command::Resume { service: Some("x".into()) },
        Command::Drain { wait: false },
        Command::Import { service: "s".into(), corpus: "c".into(), added: u64::MAX },
    ];
    for command in &commands {
        give(&kit, command).await;
        let json = serde_json::to_value(command).expect("has a form in JSON");
        assert_eq!(json["kind"], command.kind());
    }
    let rows = listed(&kit, CommandPage { max: 99, ..Default::default() }).await;
    assert_eq!(rows.into_iter().filter_map(|row| row.command).collect::<Vec<_>>(), commands);
}

// Case F45.
async fn one_task_among_many_is_found_in_few_pieces(kit: Kit) {
    let names: Vec<_> = (0..3 * limits::WINDOW / 2).map(|n| entry(&format!("{n}"))).collect();
    kit.store.import(kit.service, kit.corpus, &names).await.expect("imports");
    let last = names.len() as i64;
    let one = TaskFilter { ids: vec![TaskId(last)], ..Default::default() };
    let (outcome, _) = finish(&kit, &Command::Rerun { filter: one }, 100).await;
    assert_eq!(outcome, changed(1));
    let named = TaskFilter { entry_prefix: Some(names[names.len() - 1].name.clone()), ..Default::default() };
    let (outcome, _) = finish(&kit, &Command::Rerun { filter: named }, 100).await;
    assert_eq!(outcome, changed(1));
    assert_eq!(kit.story(TaskId(last)).await.task.run.0, 3);
}

// Case F38.
async fn a_piece_is_never_larger_than_its_cap(kit: Kit) {
    let names: Vec<_> = (0..limits::PIECE + 1).map(|n| entry(&format!("{n}"))).collect();
    kit.store.import(kit.service, kit.corpus, &names).await.expect("imports");
    let id = give(&kit, &rerun_all()).await;
    assert_eq!(step(&kit, id, usize::MAX).await.changed, limits::PIECE as u64);
    assert_eq!(
        step(&kit, id, usize::MAX).await,
        Step { changed: 1, revoked: vec![], outcome: Some(changed(names.len() as u64)) }
    );
}

// Case F50.
#[test]
fn a_command_that_cannot_be_read_is_through_with_the_reason() {
    run(Kind::Sqlite, |kit| {
        Box::pin(async move {
            kit.meddle(
                "INSERT INTO control (at_ms, actor, kind, args) VALUES (1, 'a', 'sing', '{\"kind\":\"sing\"}');
                 INSERT INTO control (at_ms, actor, kind, args, done_ms, answer) VALUES (1, 'a', 'pause', '{', 5, 'x')",
            )
            .await;
            let rows = listed(&kit, CommandPage { max: 9, ..Default::default() }).await;
            assert_eq!((rows[0].command.as_ref(), rows[0].outcome.as_ref(), rows[0].done_at), (None, None, None));
            assert_eq!((rows[1].command.as_ref(), rows[1].done_at), (None, Some(TimeMs(5))));
            let outcome = step(&kit, CommandId(1), 5).await.outcome.expect("through");
            assert!(outcome.error.is_some_and(|why| why.contains("cannot read")));
            let outcome = step(&kit, CommandId(2), 5).await.outcome.expect("through");
            assert!(outcome.error.is_some_and(|why| why.contains("cannot be read")));
        })
    });
}

both_stores!(
    a_rerun_goes_on_where_its_last_piece_ended,
    a_rerun_tells_which_leases_it_ended,
    a_cancellation_counts_what_it_cancelled_and_tells_which_leases_it_ended,
    a_deleted_corpus_is_gone_with_all_that_was_stored_of_it,
    a_deleted_service_is_gone_and_what_comes_late_for_it_is_unknown,
    a_task_that_was_deleted_in_flight_costs_its_batch_nothing,
    what_is_named_and_is_not_there_is_an_outcome,
    a_service_is_made_and_changed_by_command,
    services_are_paused_and_resumed_by_command,
    what_the_store_does_not_do_is_left_open_until_somebody_says_what_became_of_it,
    commands_are_listed_in_pages_from_either_end,
    every_command_comes_back_as_it_was_given,
    one_task_among_many_is_found_in_few_pieces,
    a_piece_is_never_larger_than_its_cap,
);
