//! The answer for every state a task can be in.

use super::answer::{Answer, Facts, InFlight, why};
use super::holds::Bounds;
use dispatcher_core::claim::Standing;
use dispatcher_core::id::{CorpusId, EntryName, Epoch, Run, ServiceId, TaskId, WorkerKey};
use dispatcher_core::report::{Ending, Message, Origin, Severity, Status};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{
    AttemptRow, Command, CommandId, CommandRow, Outlook, PartRef, ResultRow, Service, ServiceSettings, Story,
    TaskFilter, TaskRow, TaskState, WorkerRow,
};
use std::collections::HashMap;

const NOW: TimeMs = TimeMs(1_000_000);

fn message(category: &str, what: &str) -> Message {
    Message { severity: Severity::Fatal, category: category.into(), what: what.into(), details: String::new() }
}

fn worker(name: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: "1".into() }
}

/// A task in its first run at a dispatcher with one connected worker.
fn facts(state: TaskState) -> Facts {
    let task = TaskRow {
        id: TaskId(5),
        service: ServiceId(1),
        corpus: CorpusId(1),
        entry: EntryName(b"a/b".to_vec()),
        input_size: 1,
        state,
        run: Run(1),
        epoch: Epoch(0),
        charged: 0,
        standing: None,
        not_before: TimeMs(0),
        last_cause: None,
        last_reason: None,
        worst: None,
    };
    let connected = WorkerRow {
        worker: worker("w"),
        services: vec!["html".into()],
        slots: 1,
        connected: true,
        first_at: TimeMs(0),
        heard_at: TimeMs(998_000),
        counts: vec![],
        current: vec![],
    };
    Facts {
        now: NOW,
        at_work: true,
        start: "start one".into(),
        of_a_run: false,
        state_flag: String::new(),
        connect_flag: String::new(),
        story: Story { task, attempts: vec![], results: vec![] },
        outlook: Some(Outlook { priority: 0, ahead: 6, queued: 9, timeout_ms: None, limit_until: None }),
        service: Some(Service { id: ServiceId(1), name: "html".into(), settings: ServiceSettings::default() }),
        in_flight: Some(InFlight { of_service: 2, of_all: 2 }),
        waits_for: None,
        bounds: Bounds {
            max_in_flight: 100,
            dead_after: SpanMs::seconds(30),
            late_window: SpanMs::seconds(100),
            legacy_max: 1000,
            legacy_unread: 4000,
            legacy_window: 2,
        },
        unread: HashMap::new(),
        workers: vec![connected],
        commands: vec![],
    }
}

/// Attempt `n` of run 1, by worker `w`, handed out at 900 s and begun at 940 s.
fn attempt(n: u64, ending: Option<Ending>) -> AttemptRow {
    AttemptRow {
        run: Run(1),
        epoch: Epoch(n + 1),
        worker: Some(worker("w")),
        handed_at: Some(TimeMs(900_000)),
        began_at: Some(TimeMs(940_000)),
        ended_at: ending.map(|_| TimeMs(950_000)),
        ending,
        charged: true,
        why: None,
        messages: vec![],
        parts: vec![],
    }
}

fn with_attempts(state: TaskState, attempts: Vec<AttemptRow>) -> Facts {
    let mut facts = facts(state);
    facts.story.task.epoch = attempts.iter().map(|a| a.epoch).max().unwrap_or(Epoch(0));
    facts.story.task.charged = attempts.iter().filter(|a| a.charged && a.ending.is_some()).count() as u32;
    facts.story.attempts = attempts;
    facts
}

fn result(n: u64, status: Status, origin: Origin) -> ResultRow {
    let (run, epoch) = (Run(1), Epoch(n + 1));
    ResultRow { run, epoch, status, origin, published: false, messages: vec![], parts: vec![] }
}

/// A task over which this result stands.
fn stands(state: TaskState, standing: &ResultRow, attempts: Vec<AttemptRow>, others: Vec<ResultRow>) -> Facts {
    let mut facts = with_attempts(state, attempts);
    let ResultRow { epoch, status, origin, .. } = *standing;
    facts.story.task.standing = Some(Standing { epoch, status, origin });
    facts.story.results = others;
    facts.story.results.push(standing.clone());
    facts.outlook = None;
    facts
}

fn command(id: i64, at: i64, command: Command) -> CommandRow {
    let (id, at) = (CommandId(id), TimeMs(at));
    CommandRow { id, at, actor: "ann@host".into(), command: Some(command), outcome: None, done_at: Some(at) }
}

/// One case: what is the case, the facts, and what the answer must hold: headline, reasons in order, next.
type Case<'a> = (&'a str, Facts, &'a str, &'a [&'a str], &'a str);

fn check(cases: Vec<Case<'_>>) {
    for (case, facts, headline, because, next) in cases {
        let Answer { headline: said, because: reasons, next: then } = why(&facts);
        assert!(said.contains(headline), "{case}: {said}");
        assert!(then.contains(next), "{case}: {then}");
        let mut at = 0;
        for part in because {
            let found = reasons[at..].iter().position(|reason| reason.contains(part));
            at += found.unwrap_or_else(|| panic!("{case}: {part:?} is not said, or too early, in {reasons:#?}"));
        }
    }
}

fn change(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Facts {
    change(&mut facts);
    facts
}

// Case F65: the wait is visible as a number.
#[test]
fn a_task_that_waits_for_its_first_attempt_says_what_holds_it_up() {
    use TaskState::Ready;
    let in_flight = |of_service, of_all| Some(InFlight { of_service, of_all });
    let settings = |facts: &mut Facts, change: fn(&mut ServiceSettings)| {
        facts.service.as_mut().map(|service| change(&mut service.settings)).unwrap();
    };
    check(vec![
        (
            "its turn",
            facts(Ready),
            "task 5 waits for its first attempt",
            &["6 of 9 tasks in the queue of html"],
            "when its turn",
        ),
        (
            "with a priority",
            change(facts(Ready), |f| f.outlook.as_mut().unwrap().priority = -2),
            "first attempt",
            &["with priority -2"],
            "when its turn",
        ),
        (
            "nobody at work, and paused",
            change(facts(Ready), |f| {
                f.at_work = false;
                settings(f, |s| s.paused = true);
            }),
            "waits",
            &["no dispatcher is at work", "html is paused", "6 of 9"],
            "start one",
        ),
        (
            "paused",
            change(facts(Ready), |f| settings(f, |s| s.paused = true)),
            "waits",
            &["the service html is paused"],
            "dispatcher resume html",
        ),
        (
            "no worker for it",
            change(facts(Ready), |f| f.workers[0].services = vec!["pdf".into()]),
            "waits",
            &["no worker that is connected offers the service html"],
            "dispatcher worker --service html",
        ),
        (
            "no worker, and a dispatcher that listens elsewhere",
            change(facts(Ready), |f| {
                f.workers.clear();
                f.connect_flag = " --connect tcp://127.0.0.1:6000".into();
            }),
            "waits",
            &["no worker"],
            "dispatcher worker --service html --exec CMD --connect tcp://127.0.0.1:6000`",
        ),
        (
            "the only worker has gone",
            change(facts(Ready), |f| f.workers[0].connected = false),
            "waits",
            &["no worker that is connected"],
            "dispatcher worker",
        ),
        (
            "the service is full",
            change(facts(Ready), |f| settings(f, |s| s.max_in_flight = Some(2))),
            "waits",
            &["2 tasks of the service html are in flight, and 2 may be"],
            "when one of them ends",
        ),
        (
            "the process is full",
            change(facts(Ready), |f| f.in_flight = in_flight(2, 100)),
            "waits",
            &["100 tasks are in flight, and 100 may be"],
            "when one of them ends",
        ),
    ]);
}

// Rules R4, R6, X2.
#[test]
fn a_task_that_waits_for_a_retry_says_what_ended_the_last_attempt_and_what_is_left() {
    let retry = with_attempts(TaskState::Ready, vec![attempt(0, Some(Ending::RetryableCause))]);
    let retry = change(retry, |f| {
        f.story.task.last_cause = Some(message("timeout", "wallclock"));
        f.story.task.not_before = TimeMs(1_030_000);
    });
    let free =
        with_attempts(TaskState::Ready, vec![AttemptRow { charged: false, ..attempt(0, Some(Ending::HandedBack)) }]);
    let rerun = || Command::Rerun { filter: TaskFilter { ids: vec![TaskId(5)], ..TaskFilter::default() } };
    let other = || Command::Rerun { filter: TaskFilter { corpus: Some(CorpusId(9)), ..TaskFilter::default() } };
    let new_run = change(with_attempts(TaskState::Ready, vec![attempt(0, Some(Ending::Accepted))]), |f| {
        f.story.task.run = Run(2);
    });
    check(vec![
        (
            "after a cause",
            retry,
            "its run has spent 1 of 3",
            &[
                "attempt 0 by w ended as retryable_cause",
                "timeout:wallclock",
                "not tried again before 1970-01-01T00:17:10.000Z (in 30s)",
            ],
            "after that time",
        ),
        ("given back", free, "spent 0 of 3", &["ended as handed_back", "not charged", "6 of 9"], "when its turn comes"),
        (
            "a new run by a command of the log",
            change(new_run.clone(), |f| f.commands = vec![command(3, 960_000, rerun()), command(4, 970_000, other())]),
            "first attempt of its run 2",
            &["run 2 was begun by `rerun 5` (command 3 of ann@host at 1970-01-01T00:16:00.000Z)"],
            "when its turn comes",
        ),
        ("a new run that the log does not have", new_run, "its run 2", &["its input changed, or by `--again`"], "turn"),
    ]);
}

// Rules L3, S4.
#[test]
fn a_leased_task_says_with_whom_it_is_and_until_when() {
    use TaskState::Leased;
    let out = |change: fn(&mut AttemptRow)| {
        let mut out = attempt(1, None);
        change(&mut out);
        let mut facts = with_attempts(Leased, vec![attempt(0, Some(Ending::WorkerLost)), out]);
        facts.outlook.as_mut().unwrap().limit_until = Some(TimeMs(1_060_000));
        facts
    };
    let claimed = || change(facts(Leased), |f| f.story.task.epoch = Epoch(1));
    let gone = |facts: Facts| change(facts, |f| f.at_work = false);
    check(vec![
        (
            "claimed",
            claimed(),
            "claimed by the dispatcher and not handed out",
            &["have enough for now"],
            "the next worker that asks",
        ),
        (
            "claimed, and its service is paused",
            change(claimed(), |f| f.service.as_mut().unwrap().settings.paused = true),
            "not handed out",
            &["is paused"],
            "dispatcher resume",
        ),
        (
            "claimed, and nobody is there",
            change(claimed(), |f| f.workers.clear()),
            "not handed out",
            &["no worker that is connected offers"],
            "dispatcher worker --service html",
        ),
        (
            "not begun",
            out(|a| a.began_at = None),
            "is with worker w, which has not begun it",
            &[
                "attempt 1 by w went out at 1970-01-01T00:15:00.000Z (1m 40s ago)",
                "worker w is connected, and was heard 2s ago",
                "spent 1 of 3",
            ],
            "neither is charged",
        ),
        (
            "not begun, and the worker is silent",
            change(out(|a| a.began_at = None), |f| f.workers[0].connected = false),
            "has not begun it",
            &["worker w is not connected; it was heard 2s ago"],
            "given up at",
        ),
        (
            "worked on",
            out(|_| ()),
            "task 5 is worked on by w",
            &[
                "attempt 1 by w began at",
                "its time limit is 1970-01-01T00:17:40.000Z (in 1m)",
                "worker w is connected",
                "spent 1 of 3",
            ],
            "awaited until then",
        ),
        (
            "worked on for too long",
            change(out(|_| ()), |f| f.outlook.as_mut().unwrap().limit_until = Some(TimeMs(990_000))),
            "is worked on",
            &["its time limit passed", "(10s ago)"],
            "the dispatcher gives it up",
        ),
        (
            "by a worker of which nothing is known",
            change(out(|_| ()), |f| f.workers.clear()),
            "is worked on",
            &["nothing more is known of worker w"],
            "awaited",
        ),
        (
            "the dispatcher is gone",
            gone(out(|_| ())),
            "was leased when its dispatcher ended",
            &["no dispatcher is at work", "attempt 1 by w began at"],
            "start one: what its worker has finished is taken then",
        ),
        ("gone before it began", gone(out(|a| a.began_at = None)), "was leased", &["and had not begun"], "start one"),
        ("gone before it went out", gone(claimed()), "was leased", &["no worker had it"], "nothing is charged"),
    ]);
}

/// A task of run 2 that no worker has, whose attempt of run 1 worker `w` of the legacy wire never answered, at 950 s; with
/// that worker connected.
fn run_again(state: TaskState) -> Facts {
    let legacy = || WorkerKey { name: "w".into(), incarnation: String::new() };
    let silent = AttemptRow { worker: Some(legacy()), ..attempt(0, Some(Ending::TimeLimit)) };
    change(with_attempts(state, vec![silent]), |f| {
        f.story.task.run = Run(2);
        f.story.task.epoch = Epoch(2);
        f.workers[0].worker = legacy();
    })
}

// Rule L8.
#[test]
fn a_task_that_is_kept_from_the_workers_of_an_earlier_run_says_so_and_until_when() {
    let another = |f: &mut Facts, key: WorkerKey| f.workers.push(WorkerRow { worker: key, ..f.workers[0].clone() });
    for (state, free) in [(TaskState::Ready, "when its turn comes"), (TaskState::Leased, "the next worker that asks")] {
        let kept: &[&str] =
            &["(w) had it in an earlier run and may still bring that result, which their wire could not tell"];
        let until = "start another worker; or one of them is given it after 1970-01-01T00:17:30.000Z";
        let again = || run_again(state);
        let other = WorkerKey { name: "x".into(), incarnation: String::new() };
        check(vec![
            ("only that worker", again(), "task 5", kept, until),
            ("never ended", change(again(), |f| f.story.attempts[0].ended_at = None), "task 5", kept, "another worker"),
            ("another of its wire", change(again(), |f| another(f, other.clone())), "task 5", &[], free),
            ("one of the other wire", change(again(), |f| another(f, worker("x"))), "task 5", &[], free),
            ("forgotten", change(again(), |f| f.now = TimeMs(1_050_000)), "task 5", &[], free),
            ("it has replied", change(again(), |f| f.story.attempts[0].ending = Some(Ending::Accepted)), "", &[], free),
        ]);
    }
}

// Rules L10, W1.
#[test]
fn a_task_that_is_too_large_for_its_workers_or_finds_them_full_says_so() {
    let legacy = |change_more: fn(&mut Facts)| {
        let legacy = WorkerKey { name: "w".into(), incarnation: String::new() };
        change(change(facts(TaskState::Leased), |f| f.workers[0].worker = legacy), change_more)
    };
    let has = |f: &mut Facts, tasks: &[(i64, u64)]| {
        f.workers[0].current = tasks.iter().map(|(id, _)| (TaskId(*id), None)).collect();
        f.unread = tasks.iter().map(|(id, size)| (TaskId(*id), *size)).collect();
    };
    check(vec![
        (
            "too large",
            legacy(|f| f.story.task.input_size = 1001),
            "not handed out",
            &["its input has 1001 bytes, and the workers connected for it are of the legacy wire, which takes 1000"],
            "dispatcher worker --service html",
        ),
        (
            "too large for some",
            change(legacy(|f| f.story.task.input_size = 1001), |f| {
                f.workers.push(WorkerRow { worker: worker("x"), ..f.workers[0].clone() });
            }),
            "not handed out",
            &["have enough for now"],
            "the next worker that asks",
        ),
        (
            "their windows are full",
            change(legacy(|_| ()), |f| has(f, &[(7, 1), (8, 1)])),
            "not handed out",
            &["have as many tasks as they may (legacy_window)"],
            "brings a result",
        ),
        (
            "too many bytes are with them",
            change(legacy(|f| f.story.task.input_size = 500), |f| has(f, &[(7, 501)])),
            "not handed out",
            &["leave no room for its 500 bytes"],
            "brings a result",
        ),
        (
            "there is room",
            change(legacy(|f| f.story.task.input_size = 500), |f| has(f, &[(7, 500)])),
            "not handed out",
            &["have enough for now"],
            "the next worker that asks",
        ),
        (
            "the service is full",
            legacy(|f| f.service.as_mut().unwrap().settings.max_in_flight = Some(2)),
            "not handed out",
            &["2 tasks of the service html are in flight, and 2 may be"],
            "when one of them ends",
        ),
    ]);
}

// Rule D3.
#[test]
fn a_task_that_waits_because_the_disk_is_full_says_that_and_nothing_of_workers() {
    for state in [TaskState::Ready, TaskState::Leased] {
        let full = change(facts(state), |f| {
            f.waits_for = Some("space for results in packs: free some".into());
            f.workers.clear();
        });
        let reasons = why(&full).because.join("; ");
        assert!(!reasons.contains("worker"), "{reasons}");
        let told = "the dispatcher waits for space for results in packs";
        check(vec![("full", full, "task 5", &[told], "work goes on by itself")]);
    }
}

// Rules C2, C4, C5, X3.
#[test]
fn a_done_task_says_what_stands_and_what_it_stood_against() {
    use Ending::{Accepted, Superseded};
    use Origin::{ReaperStandIn, Worker};
    let done = |standing: ResultRow, attempts, others| stands(TaskState::Done, &standing, attempts, others);
    let part =
        PartRef { name: "result".into(), place: EntryName(b"x".to_vec()), offset: 0, length: 1, sha256: "0".into() };
    let good = |n, published| ResultRow { published, parts: vec![part.clone()], ..result(n, Status::Warning, Worker) };
    let packed = ResultRow { parts: vec![PartRef { offset: 512, ..part.clone() }], ..good(0, true) };
    let bad = |n| result(n, Status::Fatal, Worker);
    let says = |mut facts: Facts| {
        facts.story.task.worst = Some(message("exit", "7"));
        facts
    };
    check(vec![
        (
            "in place",
            says(done(good(0, true), vec![attempt(0, Some(Accepted))], vec![])),
            "task 5 is done: warning, by attempt 0 by w",
            &["its result came at 1970-01-01T00:15:50.000Z (50s ago)", "exit:7", "files are in place"],
            "nothing more",
        ),
        (
            "in a pack",
            done(packed, vec![attempt(0, Some(Accepted))], vec![]),
            "done",
            &["in a pack: `dispatcher export`"],
            "nothing more",
        ),
        (
            "not in place",
            done(good(0, false), vec![attempt(0, Some(Accepted))], vec![]),
            "done",
            &["not in place yet"],
            "nothing more",
        ),
        (
            "a failure",
            done(bad(0), vec![attempt(0, Some(Accepted))], vec![]),
            "done: fatal",
            &["no files"],
            "dispatcher rerun 5",
        ),
        (
            "better than what stood",
            done(good(1, true), vec![attempt(0, Some(Superseded)), attempt(1, Some(Accepted))], vec![]),
            "by attempt 1",
            &["the result of attempt 0 by w was no better"],
            "nothing more",
        ),
        (
            "in place of a failure",
            done(good(1, true), vec![attempt(0, Some(Accepted)), attempt(1, Some(Accepted))], vec![bad(0)]),
            "by attempt 1",
            &["it replaced the fatal of attempt 0"],
            "nothing more",
        ),
        (
            "after the budget was spent",
            done(good(0, true), vec![attempt(0, Some(Accepted))], vec![result(1, Status::Fatal, ReaperStandIn)]),
            "by attempt 0",
            &["it replaced the stand-in"],
            "nothing more",
        ),
        (
            "late, with a newer attempt out",
            done(bad(0), vec![attempt(0, Some(Accepted)), attempt(1, None)], vec![]),
            "by attempt 0",
            &["it came late: attempt 1 had been leased meanwhile", "attempt 1 by w is still out"],
            "a usable result of what is still out takes its place",
        ),
        (
            "good and late, with a newer attempt out",
            done(good(0, true), vec![attempt(0, Some(Accepted)), attempt(1, None)], vec![]),
            "by attempt 0",
            &["still out"],
            "only if it is usable and of a later attempt",
        ),
        ("nothing stands", facts(TaskState::Done), "nothing stands", &["somebody else"], "dispatcher rerun 5"),
    ]);
}

// Rules X3, D4. Case F50.
#[test]
fn a_dead_task_says_what_it_died_of() {
    let dead = |reason: Message, attempts| {
        let mut facts = stands(TaskState::Dead, &result(0, Status::Fatal, Origin::ReaperStandIn), attempts, vec![]);
        facts.story.task.worst = Some(reason);
        facts
    };
    let own = |what: &str| dead(message("dispatcher", what), vec![]);
    let tried = || vec![attempt(0, Some(Ending::WorkerLost)), attempt(1, Some(Ending::TimeLimit))];
    check(vec![
        (
            "spent",
            dead(message("crash", "SIGKILL"), vec![attempt(0, Some(Ending::WorkerLost))]),
            "its run has spent 1 attempt without a result",
            &["the reason: fatal crash:SIGKILL", "attempt 0 by w ended as worker_lost"],
            "dispatcher rerun 5",
        ),
        (
            "too slow",
            dead(message("timeout", "wallclock"), tried()),
            "spent 2 attempts",
            &["attempt 0", "attempt 1 by w ended as time_limit"],
            "dispatcher services set html --limit",
        ),
        ("changed", own("input_changed"), "another than was imported", &["input_changed"], "--take-changed"),
        ("missing", own("input_missing"), "gone when its turn came", &["input_missing"], "dispatcher rerun 5"),
        ("unreadable", own("input_timeout"), "could not be read", &["input_timeout"], "dispatcher rerun 5"),
        ("set aside", own("unreadable_row"), "set aside", &["unreadable_row"], "dispatcher doctor"),
        ("refused", own("refused"), "the database refused", &["refused"], "dispatcher rerun 5"),
    ]);
}

// Case F63.
#[test]
fn a_cancelled_task_says_who_cancelled_it() {
    let all = || Command::Cancel { filter: TaskFilter::default() };
    let of_failed = Command::Rerun { filter: TaskFilter { statuses: vec![Status::Fatal], ..TaskFilter::default() } };
    let cancelled = with_attempts(TaskState::Cancelled, vec![attempt(0, Some(Ending::Cancelled))]);
    let log = vec![
        command(1, 100, all()),
        command(2, 950_000, all()),
        command(3, 960_000, of_failed),
        command(4, 970_000, all()),
    ];
    check(vec![
        (
            "by a command of the log",
            change(cancelled.clone(), |f| f.commands = log),
            "task 5 was cancelled",
            &["by `cancel --all` (command 2 of ann@host", "attempt 0 by w ended as cancelled"],
            "dispatcher rerun 5",
        ),
        ("by nobody known", cancelled, "cancelled", &["does not say"], "dispatcher rerun 5"),
    ]);
}

#[test]
fn a_task_whose_service_was_deleted_still_has_an_answer() {
    let gone = |state| change(with_attempts(state, vec![attempt(0, None)]), |f| f.service = None);
    for state in [TaskState::Ready, TaskState::Leased, TaskState::Done, TaskState::Dead, TaskState::Cancelled] {
        assert!(why(&gone(state)).headline.contains("task 5"));
    }
}

// Rules A1, R3.
#[test]
fn a_task_whose_worker_is_gone_says_by_when_it_is_given_up_where_that_is_sooner_than_its_limit() {
    let out = |began: bool| {
        let attempt = attempt(0, None);
        let attempt = if began { attempt } else { AttemptRow { began_at: None, ..attempt } };
        change(with_attempts(TaskState::Leased, vec![attempt]), |f| {
            f.workers[0].connected = false;
            f.outlook.as_mut().unwrap().limit_until = Some(TimeMs(1_060_000));
        })
    };
    let until = "given up at 1970-01-01T00:17:08.000Z (in 28s, dead_after) unless its worker is back";
    check(vec![
        ("gone", out(true), "is worked on by w", &["not connected"], until),
        ("gone before it began", out(false), "has not begun it", &["not connected"], until),
        (
            "its limit is sooner",
            change(out(true), |f| f.outlook.as_mut().unwrap().limit_until = Some(TimeMs(1_010_000))),
            "is worked on",
            &["its time limit is"],
            "awaited until then",
        ),
        (
            "for long",
            change(out(true), |f| f.workers[0].heard_at = TimeMs(960_000)),
            "is worked on",
            &["not connected"],
            "silent for longer than dead_after",
        ),
        (
            "of the legacy wire, which has another clock",
            change(out(true), |f| {
                let legacy = WorkerKey { name: "w".into(), incarnation: String::new() };
                f.workers[0].worker = legacy.clone();
                f.story.attempts[0].worker = Some(legacy);
            }),
            "is worked on",
            &["its time limit is"],
            "awaited until then",
        ),
    ]);
}

#[test]
fn a_task_of_a_run_is_told_what_can_be_done_to_a_run() {
    let of_a_run = |f: Facts| change(f, |f| f.of_a_run = true);
    let dead = |what: Message, ending| {
        let standing = result(0, Status::Fatal, Origin::ReaperStandIn);
        of_a_run(change(stands(TaskState::Dead, &standing, vec![attempt(0, Some(ending))], vec![]), |f| {
            f.story.task.worst = Some(what);
        }))
    };
    let failed = result(0, Status::Fatal, Origin::Worker);
    let failed = stands(TaskState::Done, &failed, vec![attempt(0, Some(Ending::Accepted))], vec![]);
    check(vec![
        (
            "too slow",
            dead(message("timeout", "wallclock"), Ending::TimeLimit),
            "spent 1 attempt without",
            &[],
            "the same `dispatcher run` again with `--limit TIME --again failed`",
        ),
        ("failed", of_a_run(failed), "done: fatal", &[], "with `--again failed`"),
        (
            "changed",
            dead(message("dispatcher", "input_changed"), Ending::Undeliverable),
            "another than was imported",
            &[],
            "with `--again changed`",
        ),
        (
            "cancelled",
            of_a_run(facts(TaskState::Cancelled)),
            "cancelled",
            &[],
            "then give the same `dispatcher run` again",
        ),
    ]);
}
