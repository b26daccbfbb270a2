//! Sandboxes: carved in pieces, compared with their parent, dropped, and never in its way.

use crate::kit::{Kind, Kit, NOW, ended, entry, handed_out, message, part, result, worker};
use dispatcher_core::id::{CorpusId, LeaseId, ServiceId, TaskId};
use dispatcher_core::lookup::CorpusKind;
use dispatcher_core::report::{Ending, Status};
use dispatcher_store::{
    Carve, Claim, Command, CommandId, CommandOutcome, Corpus, ErrorClass, Named, Pair, Record, ServiceSettings, Step,
    TaskEnd, TaskFilter, TaskRow, TaskState,
};

/// Those of the kit's tasks that `filter` means, to be carved into `name`.
fn carve(kit: &Kit, name: &str, filter: TaskFilter) -> Carve {
    let filter = TaskFilter { corpus: Some(kit.corpus), service: Some(kit.service), ..filter };
    Carve { name: name.into(), filter, service: None, most: None }
}

async fn step(kit: &Kit, id: CommandId, max: usize) -> Step {
    let step = kit.store.step(id, max, NOW).await.expect("steps");
    kit.assert_balanced().await;
    step
}

async fn give(kit: &Kit, command: Command) -> CommandId {
    kit.store.submit(&command, "ada@here", NOW).await.expect("writes down")
}

/// Carries a command out in pieces of two.
async fn finish(kit: &Kit, command: Command) -> CommandOutcome {
    let id = give(kit, command).await;
    loop {
        if let Some(outcome) = step(kit, id, 2).await.outcome {
            return outcome;
        }
    }
}

async fn refused(kit: &Kit, command: Command, why: &str) {
    let outcome = finish(kit, command).await;
    assert_eq!(outcome.changed, 0);
    assert!(outcome.error.as_ref().is_some_and(|error| error.contains(why)), "{outcome:?} says {why}");
}

fn done(changed: u64) -> CommandOutcome {
    CommandOutcome { changed, error: None }
}

async fn named(kit: &Kit, name: &str) -> Option<Corpus> {
    kit.store.corpora().await.expect("lists").into_iter().find(|corpus| corpus.name == name)
}

async fn of(kit: &Kit, corpus: CorpusId) -> Vec<TaskRow> {
    let filter = TaskFilter { corpus: Some(corpus), ..TaskFilter::default() };
    kit.store.tasks(&filter, TaskId(0), 99).await.expect("lists")
}

/// Claims every ready task of a service.
async fn claim_all(kit: &Kit, service: ServiceId) -> Vec<LeaseId> {
    let ask = Claim { dispatcher: kit.dispatcher, service, max: 99 };
    kit.store.claim(&ask, NOW).await.expect("claims").iter().map(|task| task.lease).collect()
}

fn entries(rows: &[TaskRow]) -> Vec<String> {
    rows.iter().map(|row| row.entry.to_string()).collect()
}

/// Six tasks of the kit's corpus: three without a problem, two that failed, one that waits.
async fn six(kit: &Kit) -> Vec<LeaseId> {
    kit.import(6).await;
    let leases: Vec<_> = kit.claim(5).await.iter().map(|task| task.lease).collect();
    for (n, lease) in leases.iter().enumerate() {
        let status = if n % 2 == 0 { Status::NoProblem } else { Status::Fatal };
        kit.tell_all(&[handed_out(*lease), result(*lease, status)]).await;
    }
    leases
}

fn failed() -> TaskFilter {
    TaskFilter { statuses: vec![Status::Fatal], ..TaskFilter::default() }
}

// Rule G8.
async fn a_sandbox_has_inputs_of_its_parent_as_tasks_of_its_own_and_its_parent_does_not_change(kit: Kit) {
    six(&kit).await;
    let before = (of(&kit, kit.corpus).await, kit.story(TaskId(2)).await);
    assert_eq!(finish(&kit, Command::Carve(carve(&kit, "try", failed()))).await, done(2));
    let sandbox = named(&kit, "try").await.expect("made");
    let root = named(&kit, "papers").await.expect("there").root;
    let expected = Corpus {
        id: sandbox.id,
        name: "try".into(),
        root,
        kind: Some(CorpusKind::Sandbox(sandbox.id)),
        parent: Some(kit.corpus),
        parent_service: Some(kit.service),
    };
    assert_eq!(sandbox, expected);
    let tasks = of(&kit, sandbox.id).await;
    assert_eq!(entries(&tasks), ["000001", "000003"]);
    for task in &tasks {
        assert_eq!((task.run.0, task.epoch.0, task.state, task.input_size), (1, 0, TaskState::Ready, 10));
        assert_eq!((task.service, task.standing), (kit.service, None));
    }
    assert_eq!((of(&kit, kit.corpus).await, kit.story(TaskId(2)).await), before);
    // They are claimed like any others, and what becomes of them is theirs alone.
    let leases = claim_all(&kit, kit.service).await;
    assert_eq!(leases.len(), 3, "and the one that waited");
    for lease in leases.iter().filter(|lease| lease.task > TaskId(6)) {
        kit.tell_all(&[handed_out(*lease), result(*lease, Status::Warning)]).await;
    }
    assert_eq!(kit.story(TaskId(2)).await, before.1);
    assert_eq!(named(&kit, "papers").await.and_then(|corpus| corpus.kind), Some(CorpusKind::Ordinary));
}

// Rule G8.
async fn a_carve_goes_on_where_its_last_piece_ended(kit: Kit) {
    kit.import(7).await;
    let id = give(&kit, Command::Carve(carve(&kit, "try", TaskFilter::default()))).await;
    assert_eq!(step(&kit, id, 3).await, Step { changed: 3, ..Step::default() });
    let sandbox = named(&kit, "try").await.expect("made with the first piece").id;
    assert_eq!(of(&kit, sandbox).await.len(), 3);
    // Whoever goes on after a kill goes on there.
    let other = kit.reopened().await;
    assert_eq!(other.step(id, 3, NOW).await.expect("steps").changed, 3);
    let last = step(&kit, id, 3).await;
    assert_eq!((last.changed, last.outcome), (1, Some(done(7))));
    assert_eq!(step(&kit, id, 3).await.outcome, Some(done(7)), "it is through");
    let tasks = of(&kit, sandbox).await;
    assert_eq!(entries(&tasks), entries(&of(&kit, kit.corpus).await), "each once");
}

async fn a_carve_takes_no_more_than_it_is_told_to(kit: Kit) {
    six(&kit).await;
    let most = |name, most, filter| Command::Carve(Carve { most: Some(most), ..carve(&kit, name, filter) });
    assert_eq!(finish(&kit, most("three", 3, TaskFilter::default())).await, done(3));
    let three = named(&kit, "three").await.expect("made").id;
    assert_eq!(entries(&of(&kit, three).await), ["000000", "000001", "000002"]);
    assert_eq!(finish(&kit, most("four", 4, TaskFilter::default())).await, done(4), "whole pieces");
    assert_eq!(finish(&kit, most("all", 99, failed())).await, done(2));
    let ids = TaskFilter { ids: vec![TaskId(6), TaskId(2)], ..TaskFilter::default() };
    assert_eq!(finish(&kit, most("one", 1, ids)).await, done(1));
    let one = named(&kit, "one").await.expect("made").id;
    assert_eq!(entries(&of(&kit, one).await), ["000001"]);
}

// Rule G8.
async fn what_cannot_be_carved_is_refused_and_leaves_nothing(kit: Kit) {
    six(&kit).await;
    let all = TaskFilter::default;
    assert_eq!(finish(&kit, Command::Carve(carve(&kit, "try", failed()))).await, done(2));
    let before = (kit.store.corpora().await.expect("lists"), kit.all().await);
    let sandbox = named(&kit, "try").await.expect("made").id;
    let nobody = ServiceId(77);
    let nothing = TaskFilter { what: Some("never said".into()), ..all() };
    let good = |name: &str| carve(&kit, name, all());
    let with = |filter: TaskFilter| Carve { filter, ..good("new") };
    let place = |corpus, service| TaskFilter { corpus, service, ..all() };
    let (here, ours) = (Some(kit.corpus), Some(kit.service));
    for (what, why) in [
        (good("papers"), "there is a corpus \"papers\" already"),
        (good("try"), "there is a corpus \"try\" already"),
        (good("a/b"), "allowed are"),
        (with(place(None, ours)), "one corpus and one service"),
        (with(place(here, None)), "one corpus and one service"),
        (with(place(Some(CorpusId(78)), ours)), "the corpus to carve it out of is gone"),
        (with(place(Some(sandbox), ours)), "\"try\" is a sandbox itself"),
        (with(place(here, Some(nobody))), "the service is gone"),
        (Carve { service: Some(nobody), ..good("new") }, "the service is gone"),
        (carve(&kit, "new", nothing), "nothing matches"),
        (Carve { most: Some(0), ..good("new") }, "nothing matches"),
    ] {
        refused(&kit, Command::Carve(what), why).await;
    }
    assert_eq!((kit.store.corpora().await.expect("lists"), kit.all().await), before);
}

// Rule G8.
async fn nothing_is_imported_into_a_sandbox(kit: Kit) {
    six(&kit).await;
    finish(&kit, Command::Carve(carve(&kit, "try", failed()))).await;
    let sandbox = named(&kit, "try").await.expect("made");
    let refused = kit.store.put_corpus("try", &sandbox.root.0).await.expect_err("refuses");
    assert_eq!(refused.class, ErrorClass::Conflict);
    assert!(refused.why.contains("is a sandbox"), "{refused}");
    let refused = kit.store.import(kit.service, sandbox.id, &[entry("new")]).await.expect_err("refuses");
    assert_eq!(refused.class, ErrorClass::Conflict);
    assert_eq!(of(&kit, sandbox.id).await.len(), 2);
}

// Rules A1, G8.
async fn another_service_can_try_and_every_way_to_end_is_told_beside_the_parents(kit: Kit) {
    let leases = six(&kit).await;
    let other = kit.store.put_service("other", &ServiceSettings::default()).await.expect("makes").id;
    let what = Carve { service: Some(other), ..carve(&kit, "try", TaskFilter::default()) };
    assert_eq!(finish(&kit, Command::Carve(what)).await, done(6));
    let sandbox = named(&kit, "try").await.expect("made").id;
    let tasks = of(&kit, sandbox).await;
    assert!(tasks.iter().all(|task| task.service == other));
    let tried = claim_all(&kit, other).await;
    for lease in &tried[..4] {
        kit.tell(handed_out(*lease)).await;
    }
    kit.tell_all(&[
        result(tried[0], Status::Error),
        result(tried[1], Status::NoProblem),
        Record::InputFailed { lease: tried[2], why: message("dispatcher", "input_missing"), retry: false, at: NOW },
    ])
    .await;
    kit.store
        .cancel(&TaskFilter { ids: vec![tried[3].task], ..TaskFilter::default() }, TaskId(0), 9, NOW)
        .await
        .expect("cancels");
    // The parent goes on meanwhile.
    kit.store
        .rerun(&TaskFilter { ids: vec![leases[4].task], ..TaskFilter::default() }, TaskId(0), 9, NOW)
        .await
        .expect("reruns");

    let pairs = kit.store.pairs(sandbox, TaskId(0), 99).await.expect("compares");
    let said = |what: &str| Some(("said".to_owned(), what.to_owned()));
    let with = TaskEnd::With;
    let is = [
        (with(Status::NoProblem), None, with(Status::Error), said("error")),
        (with(Status::Fatal), said("fatal"), with(Status::NoProblem), None),
        (
            with(Status::NoProblem),
            None,
            with(Status::Fatal),
            Some(("dispatcher".to_owned(), "input_missing".to_owned())),
        ),
        (with(Status::Fatal), said("fatal"), TaskEnd::Cancelled, None),
        (TaskEnd::Open, None, TaskEnd::Open, None),
        (TaskEnd::Open, None, TaskEnd::Open, None),
    ];
    let parents = of(&kit, kit.corpus).await;
    let expected: Vec<_> = tasks
        .iter()
        .zip(&parents)
        .zip(is)
        .map(|((task, parent), (was, was_cause, is, is_cause))| Pair {
            task: task.id,
            parent: Some(parent.id),
            entry: task.entry.clone(),
            was,
            was_cause,
            is,
            is_cause,
        })
        .collect();
    assert_eq!(pairs, expected);
    assert_eq!(kit.store.pairs(sandbox, tasks[1].id, 2).await.expect("compares"), expected[2..4]);
    assert_eq!(kit.store.pairs(kit.corpus, TaskId(0), 9).await.expect("compares"), [], "no sandbox");
    assert_eq!(kit.store.pairs(CorpusId(99), TaskId(0), 9).await.expect("compares"), [], "no corpus");

    // Without the parent's tasks there is nothing to compare with.
    finish(&kit, Command::Delete { what: Named::Service("first".into()) }).await;
    let pairs = kit.store.pairs(sandbox, TaskId(0), 99).await.expect("compares");
    assert!(pairs.iter().all(|pair| pair.was == TaskEnd::Gone && pair.parent.is_none()), "{pairs:?}");
}

// Rules A1, G8.
async fn a_dropped_sandbox_tells_its_files_first_and_takes_nothing_of_its_parent(kit: Kit) {
    six(&kit).await;
    finish(&kit, Command::Carve(carve(&kit, "try", failed()))).await;
    let sandbox = named(&kit, "try").await.expect("made");
    let leases = claim_all(&kit, kit.service).await;
    let tried: Vec<_> = leases.into_iter().filter(|lease| lease.task > TaskId(6)).collect();
    let kept = Record::Ended {
        lease: tried[0],
        worker: Some(worker("w")),
        ending: Ending::RetryableCause,
        began: true,
        why: message("why", "so"),
        messages: vec![],
        parts: vec![part("stdout")],
        at: NOW,
    };
    kit.tell_all(&[handed_out(tried[0]), kept, handed_out(tried[1])]).await;
    let again = claim_all(&kit, kit.service).await[0];
    kit.tell_all(&[handed_out(again), result(again, Status::Warning)]).await;
    let before = of(&kit, kit.corpus).await;

    let sandboxed = Command::Delete { what: Named::Corpus("papers".into()) };
    refused(&kit, sandboxed, "`dispatcher sandbox drop try` before it").await;
    refused(&kit, Command::Delete { what: Named::Corpus("try".into()) }, "`dispatcher sandbox drop try`").await;
    refused(&kit, Command::Delete { what: Named::Sandbox("papers".into()) }, "is no sandbox").await;
    refused(&kit, Command::Delete { what: Named::Sandbox("none".into()) }, "there is no sandbox \"none\"").await;

    let parent = give(&kit, Command::Delete { what: Named::Sandbox("papers".into()) }).await;
    assert_eq!(kit.store.doomed(parent, 9).await.expect("lists"), [], "nothing of a parent");
    let id = give(&kit, Command::Delete { what: Named::Sandbox("try".into()) }).await;
    step(&kit, parent, 9).await;
    let doomed = kit.store.doomed(id, 1).await.expect("lists");
    let told: Vec<_> = doomed.iter().map(|gone| (gone.lease, gone.parts.clone())).collect();
    assert_eq!(told, [(tried[0], vec![part("stdout")]), (again, vec![part("result")])]);
    let told = |gone: &dispatcher_store::Doomed| (gone.corpus.clone(), gone.service.clone(), gone.entry.to_string());
    assert!(doomed.iter().all(|gone| told(gone) == (sandbox.clone(), "first".into(), "000001".into())));
    assert_eq!(step(&kit, id, 1).await.changed, 1);
    assert_eq!(kit.store.doomed(id, 1).await.expect("lists"), [], "the second one has nothing yet");
    let last = step(&kit, id, 1).await;
    assert_eq!((last.changed, &last.revoked), (1, &vec![tried[1]]), "who works on it is told");
    while step(&kit, id, 1).await.outcome.is_none() {}
    assert_eq!(kit.store.doomed(id, 1).await.expect("lists"), [], "it is through");
    assert_eq!((named(&kit, "try").await, of(&kit, kit.corpus).await), (None, before));
    kit.tell(ended(tried[1], Ending::Expired)).await;
    assert_eq!(finish(&kit, Command::Delete { what: Named::Corpus("papers".into()) }).await, done(6));
    // A number is never given twice: what is on disk under it is nobody else's.
    let later = kit.store.put_corpus("try", b"/elsewhere").await.expect("makes");
    assert!(later.id > sandbox.id && later.parent_service.is_none());
}

both_stores!(
    a_sandbox_has_inputs_of_its_parent_as_tasks_of_its_own_and_its_parent_does_not_change,
    a_carve_goes_on_where_its_last_piece_ended,
    a_carve_takes_no_more_than_it_is_told_to,
    what_cannot_be_carved_is_refused_and_leaves_nothing,
    nothing_is_imported_into_a_sandbox,
    another_service_can_try_and_every_way_to_end_is_told_beside_the_parents,
    a_dropped_sandbox_tells_its_files_first_and_takes_nothing_of_its_parent,
);

// Rules G4, G8.
#[test]
fn a_corpus_whose_row_cannot_be_read_is_listed_as_not_known_and_hides_no_other() {
    crate::kit::run(Kind::Sqlite, |kit| {
        Box::pin(async move {
            kit.store.put_corpus("second", b"/second").await.expect("makes");
            kit.store.put_corpus("third", b"/third").await.expect("makes");
            kit.import(2).await;
            kit.meddle("UPDATE corpora SET kind = 'sandbox' WHERE name = 'papers'").await;
            kit.meddle("UPDATE corpora SET parent = 1 WHERE name = 'second'").await;
            let kinds: Vec<_> = kit.store.corpora().await.expect("lists").iter().map(|corpus| corpus.kind).collect();
            assert_eq!(kinds, [None, None, Some(CorpusKind::Ordinary)]);
            let not_known = kit.store.put_corpus("papers", b"/papers").await.expect_err("refuses");
            assert_eq!(not_known.class, ErrorClass::Conflict);
            kit.store.import(kit.service, kit.corpus, &[entry("new")]).await.expect_err("refuses");
            let why = "cannot be read from its row";
            refused(&kit, Command::Carve(carve(&kit, "try", TaskFilter::default())), why).await;
            refused(&kit, Command::Delete { what: Named::Sandbox("papers".into()) }, why).await;
            kit.meddle("UPDATE corpora SET kind = 'ordinary', parent = NULL").await;
            assert_eq!(kit.store.put_corpus("papers", b"/papers").await.expect("finds").id, kit.corpus);
        })
    });
}
