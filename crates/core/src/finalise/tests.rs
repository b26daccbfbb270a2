//! Each rule that a record is decided by, one task at a time.

mod histories;

use super::*;
use crate::id::LeaseId;
use crate::report::{Origin, Status};
use crate::retry::{FREE_ENDINGS, delay};

const POLICY: Policy = Policy { budget: 3, retry_delay_ms: SpanMs::ZERO };
const HERE: DispatcherId = DispatcherId(1);
const TASK: TaskId = TaskId(7);

/// One task with its attempts, fed with records like a store's row.
#[derive(Clone, Debug)]
struct Bench {
    task: TaskFacts,
    attempts: Vec<AttemptFacts>,
    moves: Vec<Move>,
    policy: Policy,
    now: TimeMs,
}

fn message(category: &str, what: &str) -> Message {
    Message { severity: Severity::Info, category: category.into(), what: what.into(), details: String::new() }
}

fn worker() -> WorkerKey {
    WorkerKey { name: "w".into(), incarnation: "1".into() }
}

fn standing(epoch: u64, status: Status, origin: Origin) -> Standing {
    Standing { epoch: Epoch(epoch), status, origin }
}

impl Bench {
    fn new() -> Self {
        let task = TaskFacts {
            state: TaskState::Ready,
            run: Run(1),
            epoch: Epoch(0),
            owner: None,
            charged: 0,
            freed: 0,
            timeout_ms: Some(SpanMs::seconds(60)),
            limit_until: None,
            not_before: AT_ONCE,
            standing: None,
            last_cause: None,
            last_reason: None,
        };
        Self { task, attempts: Vec::new(), moves: Vec::new(), policy: POLICY, now: TimeMs(1_000) }
    }

    /// What a store's claim does to the row.
    fn claim(&mut self) -> LeaseId {
        assert_eq!(self.task.state, TaskState::Ready, "only a ready task is claimed");
        self.task.state = TaskState::Leased;
        self.task.epoch = Epoch(self.task.epoch.0 + 1);
        self.task.owner = Some(HERE);
        self.task.not_before = AT_ONCE;
        LeaseId { task: TASK, run: self.task.run, epoch: self.task.epoch }
    }

    /// A claim that was handed out and begun.
    fn lease(&mut self) -> LeaseId {
        let lease = self.claim();
        self.tell(&Record::HandedOut { lease, worker: worker(), at: self.now, began: false });
        self.tell(&Record::Began { lease, at: self.now });
        lease
    }

    fn take(&mut self, decision: Decision<'_>, epoch: Epoch) -> Answer {
        self.task = decision.task;
        if let Some(attempt) = decision.attempt {
            self.attempts.retain(|a| a.epoch != epoch);
            self.attempts.push(attempt);
        }
        self.moves.extend(decision.moves);
        decision.answer
    }

    fn decide<'r>(&self, record: &'r Record) -> Decision<'r> {
        let epoch = record.lease().epoch;
        let attempt = self.attempts.iter().find(|a| a.epoch == epoch).cloned();
        finalise(self.task.clone(), attempt, self.policy, record, self.now)
    }

    fn tell(&mut self, record: &Record) -> Answer {
        let decision = self.decide(record);
        self.take(decision, record.lease().epoch)
    }

    fn result(&mut self, lease: LeaseId, status: Status) -> Answer {
        self.tell(&result(lease, status))
    }

    fn end(&mut self, lease: LeaseId, ending: Ending, began: bool) -> Answer {
        self.tell(&ended(lease, ending, began, "why"))
    }

    fn newest(&self) -> Option<AttemptFacts> {
        self.attempts.iter().find(|a| a.epoch == self.task.epoch).cloned()
    }

    fn rerun(&mut self) {
        let decision = begin_run(self.task.clone(), self.newest(), TASK, self.now);
        let epoch = self.task.epoch;
        self.take(decision, epoch);
    }

    fn cancel(&mut self) {
        let decision = cancel(self.task.clone(), self.newest(), TASK, self.now);
        let epoch = self.task.epoch;
        self.take(decision, epoch);
    }

    fn ending(&self, lease: LeaseId) -> Option<Ending> {
        self.attempts.iter().find(|a| a.epoch == lease.epoch).expect("there is such an attempt").ending
    }

    fn counted(&self, tally: Tally) -> i64 {
        self.moves.iter().filter(|m| m.tally == tally).map(|m| m.by).sum()
    }

    /// Rule A1 and the invariants of the module.
    fn assert_balanced(&self) {
        assert_eq!(self.counted(Tally::Dispatched), self.attempts.len() as i64, "every attempt was dispatched once");
        for ending in Ending::ALL {
            let found = self.attempts.iter().filter(|a| a.ending == Some(ending)).count() as i64;
            assert_eq!(self.counted(Tally::Ending(ending)), found, "{ending:?}");
        }
        let task = &self.task;
        match task.state {
            TaskState::Ready | TaskState::Leased | TaskState::Cancelled => assert_eq!(task.standing, None),
            TaskState::Done => assert_eq!(task.standing.expect("stands").origin, Origin::Worker),
            TaskState::Dead => assert_ne!(task.standing.expect("stands").origin, Origin::Worker),
        }
        if task.state == TaskState::Leased {
            assert!(task.owner.is_some(), "a lease has an owner");
        }
        for open in self.attempts.iter().filter(|a| a.ending.is_none()) {
            assert!(task.owner.is_some() && open.epoch == task.epoch, "an attempt that is out is the newest: {open:?}");
        }
    }
}

fn result(lease: LeaseId, status: Status) -> Record {
    Record::Result { lease, worker: worker(), status, messages: vec![], parts: vec![], at: TimeMs(2_000) }
}

fn ended(lease: LeaseId, ending: Ending, began: bool, why: &str) -> Record {
    let (worker, why) = (Some(worker()), message(why, "seen"));
    Record::Ended { lease, worker, ending, began, why, messages: vec![], parts: vec![], at: TimeMs(2_000) }
}

const fn requeued(charged: u32) -> Answer {
    Answer::Requeued { charged, not_before: AT_ONCE }
}

// Rules A1, A5, D5.
#[test]
fn a_result_of_the_current_lease_stands_and_closes_its_attempt() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    assert_eq!(bench.result(lease, Status::Warning), Answer::Stored { replaced: None, repeat: false });
    assert_eq!(bench.task.state, TaskState::Done);
    assert_eq!(bench.task.standing, Some(standing(1, Status::Warning, Origin::Worker)));
    assert_eq!((bench.task.owner, bench.ending(lease)), (None, Some(Ending::Accepted)));
    bench.assert_balanced();
}

// Rule D5.
#[test]
fn a_failing_result_stands_as_well_and_is_done_not_dead() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    assert_eq!(bench.result(lease, Status::Fatal), Answer::Stored { replaced: None, repeat: false });
    assert_eq!(bench.task.state, TaskState::Done);
}

// Rule D6.
#[test]
fn a_repeat_of_what_stands_is_told_stored_and_changes_nothing() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.result(lease, Status::Error);
    let begun = Record::Began { lease, at: TimeMs(9) };
    let again = bench.decide(&begun);
    assert!(!again.task_changed && !again.attempt_changed);
    let record = result(lease, Status::Error);
    let again = bench.decide(&record);
    assert!(!again.task_changed && !again.attempt_changed && again.filed.is_none() && again.papers.is_none());
    assert_eq!(again.answer, Answer::Stored { replaced: None, repeat: true });
}

// Rule D6.
#[test]
fn an_ending_told_twice_answers_twice_the_same() {
    for (ending, budget) in [(Ending::RetryableCause, 3), (Ending::WorkerLost, 3), (Ending::RetryableCause, 1)] {
        let mut bench = Bench::new();
        bench.policy.budget = budget;
        let lease = bench.lease();
        let first = bench.end(lease, ending, true);
        let (task, attempts) = (bench.task.clone(), bench.attempts.clone());
        assert_eq!(bench.end(lease, ending, true), first);
        assert_eq!((bench.task, bench.attempts), (task, attempts));
    }
}

// Rules C6, D5.
#[test]
fn a_record_of_an_earlier_run_is_stale_and_the_new_run_feels_nothing() {
    let mut bench = Bench::new();
    let old = bench.lease();
    bench.rerun();
    assert_eq!(bench.ending(old), Some(Ending::Stale));
    let new = bench.lease();
    let task = bench.task.clone();
    assert_eq!(bench.result(old, Status::NoProblem), Answer::Stale);
    assert_eq!(bench.end(old, Ending::WorkerLost, true), Answer::Stale);
    assert_eq!((&bench.task, bench.counted(Tally::StaleMessage)), (&task, 2));
    assert_eq!(bench.result(new, Status::NoProblem), Answer::Stored { replaced: None, repeat: false });
    bench.assert_balanced();
}

// Rules C7, D5.
#[test]
fn a_claim_that_was_never_made_is_unknown() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    for (run, epoch) in [(2, 1), (1, 2), (0, 1), (1, 0)] {
        let lease = LeaseId { task: TASK, run: Run(run), epoch: Epoch(epoch) };
        let before = bench.task.clone();
        assert_eq!(bench.result(lease, Status::NoProblem), Answer::Unknown, "run {run}, epoch {epoch}");
        assert_eq!(bench.task, before);
    }
    bench.rerun();
    let mixed = LeaseId { run: Run(2), ..lease };
    assert_eq!(bench.result(mixed, Status::NoProblem), Answer::Unknown, "a claim of run 1 is not one of run 2");
    assert_eq!(bench.counted(Tally::UnknownMessage), 5);
}

// Rules C5, A1, A5.
#[test]
fn a_late_good_result_replaces_a_failure_and_each_attempt_keeps_one_ending() {
    let mut bench = Bench::new();
    let first = bench.lease();
    assert_eq!(bench.end(first, Ending::Expired, true), requeued(1));
    let second = bench.lease();
    bench.result(second, Status::Fatal);
    let failure = standing(2, Status::Fatal, Origin::Worker);
    assert_eq!(bench.result(first, Status::Warning), Answer::Stored { replaced: Some(failure), repeat: false });
    assert_eq!(bench.ending(first), Some(Ending::Accepted), "moved from expired");
    assert_eq!(bench.ending(second), Some(Ending::Accepted), "it stood until then");
    assert_eq!(bench.counted(Tally::Ending(Ending::Expired)), 0);
    bench.assert_balanced();
}

// Rules C2, A5.
#[test]
fn an_older_attempts_result_ends_the_task_and_the_newer_one_may_still_bring_something_better() {
    for (newer, answer, ending) in [
        (
            Status::NoProblem,
            Answer::Stored { replaced: Some(standing(1, Status::Fatal, Origin::Worker)), repeat: false },
            Ending::Accepted,
        ),
        (
            Status::Invalid,
            Answer::Stored { replaced: Some(standing(1, Status::Fatal, Origin::Worker)), repeat: false },
            Ending::Accepted,
        ),
    ] {
        let mut bench = Bench::new();
        let old = bench.lease();
        bench.end(old, Ending::Expired, true);
        let new = bench.lease();
        assert_eq!(bench.result(old, Status::Fatal), Answer::Stored { replaced: None, repeat: false });
        assert_eq!((bench.task.state, bench.task.owner), (TaskState::Done, Some(HERE)), "the newer one is still out");
        bench.assert_balanced();
        assert_eq!(bench.result(new, newer), answer);
        assert_eq!((bench.ending(new), bench.task.owner), (Some(ending), None));
        bench.assert_balanced();
    }
}

// Rules C2, C5, R6.
#[test]
fn a_newer_attempt_that_brings_nothing_better_only_closes_its_own_record() {
    let mut bench = Bench::new();
    let old = bench.lease();
    bench.end(old, Ending::Expired, true);
    let new = bench.lease();
    bench.result(old, Status::Warning);
    let by = standing(1, Status::Warning, Origin::Worker);
    let mut other = bench.clone();
    assert_eq!(bench.result(new, Status::Fatal), Answer::Superseded { by });
    assert_eq!((bench.ending(new), bench.task.owner), (Some(Ending::Superseded), None));
    assert_eq!(other.end(new, Ending::RetryableCause, true), Answer::Noted);
    assert_eq!((other.task.state, other.task.standing), (TaskState::Done, Some(by)), "a cause is no reason to go on");
    assert_eq!((other.ending(new), other.task.owner), (Some(Ending::RetryableCause), None));
    bench.assert_balanced();
    other.assert_balanced();
}

// Rules L5, C4.
#[test]
fn a_late_result_ends_a_task_that_waits_for_its_retry_or_was_claimed_for_it() {
    let mut bench = Bench::new();
    let old = bench.lease();
    bench.end(old, Ending::WorkerLost, true);
    let mut claimed = bench.clone();
    assert_eq!(bench.result(old, Status::Fatal), Answer::Stored { replaced: None, repeat: false });
    assert_eq!(bench.task.state, TaskState::Done);
    let new = claimed.claim();
    claimed.result(old, Status::NoProblem);
    assert_eq!(claimed.tell(&Record::Returned { lease: new }), Answer::Noted);
    assert_eq!((claimed.task.state, claimed.task.owner), (TaskState::Done, None), "the retry is dropped, not run");
    claimed.assert_balanced();
}

// Rules C4, D5, X3.
#[test]
fn any_result_of_the_run_lands_over_the_reapers_stand_in() {
    for status in Status::ALL {
        let mut bench = Bench::new();
        bench.policy.budget = 1;
        let lease = bench.lease();
        bench.end(lease, Ending::Expired, true);
        let reaper = standing(1, Status::Fatal, Origin::ReaperStandIn);
        assert_eq!((bench.task.state, bench.task.standing), (TaskState::Dead, Some(reaper)));
        assert_eq!(bench.result(lease, status), Answer::Stored { replaced: Some(reaper), repeat: false });
        assert_eq!(bench.task.state, TaskState::Done);
        bench.assert_balanced();
    }
}

// Rule D5.
#[test]
fn the_reapers_stand_in_does_not_land_where_the_run_has_a_result() {
    let mut bench = Bench::new();
    bench.policy.budget = 2;
    let old = bench.lease();
    bench.end(old, Ending::Expired, true);
    let new = bench.lease();
    bench.result(old, Status::Invalid);
    assert_eq!(bench.end(new, Ending::Expired, true), Answer::Noted);
    assert_eq!(bench.task.standing, Some(standing(1, Status::Invalid, Origin::Worker)));
}

// Rule R5.
#[test]
fn a_cause_from_the_last_attempt_of_the_budget_stands_until_something_usable_comes() {
    let mut bench = Bench::new();
    bench.policy.budget = 2;
    let first = bench.lease();
    assert_eq!(bench.end(first, Ending::RetryableCause, true), requeued(1));
    let last = bench.lease();
    let reason = Message { severity: Severity::Fatal, ..message("oom", "seen") };
    let told = bench.tell(&ended(last, Ending::RetryableCause, true, "oom"));
    assert_eq!(told, Answer::DeadLettered { origin: Origin::LastAttemptStandIn, reason });
    let stand_in = standing(2, Status::Fatal, Origin::LastAttemptStandIn);
    assert_eq!((bench.task.state, bench.task.standing), (TaskState::Dead, Some(stand_in)));
    assert_eq!(bench.result(first, Status::Invalid), Answer::Superseded { by: stand_in }, "a failure does not");
    assert_eq!(bench.task.state, TaskState::Dead);
    assert_eq!(bench.result(first, Status::Error), Answer::Stored { replaced: Some(stand_in), repeat: false });
    assert_eq!(bench.task.state, TaskState::Done);
    bench.assert_balanced();
}

// Rules R4, L7.
#[test]
fn a_cause_with_budget_left_requeues_at_once_and_is_remembered() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    let told = bench.tell(&ended(lease, Ending::RetryableCause, true, "timeout"));
    assert_eq!(told, requeued(1));
    assert_eq!((bench.task.state, bench.task.not_before), (TaskState::Ready, AT_ONCE));
    assert_eq!(bench.task.last_cause, Some(message("timeout", "seen")));
}

// Rules R6, L7.
#[test]
fn a_cause_of_the_newest_attempt_rides_along_to_a_retry_that_waits() {
    let mut bench = Bench::new();
    bench.policy.retry_delay_ms = SpanMs::seconds(60);
    let lease = bench.lease();
    bench.end(lease, Ending::Expired, true);
    let waits = bench.task.not_before;
    let told = bench.tell(&ended(lease, Ending::RetryableCause, true, "crash"));
    assert_eq!(told, Answer::Requeued { charged: 1, not_before: waits }, "charged once, and the wait does not move");
    assert_eq!(bench.task.last_cause, Some(message("crash", "seen")));
    assert_eq!(bench.ending(lease), Some(Ending::RetryableCause));
    bench.assert_balanced();
}

// Rules R6, R2.
#[test]
fn a_cause_of_an_older_attempt_is_dropped() {
    let mut bench = Bench::new();
    let old = bench.lease();
    bench.end(old, Ending::Expired, true);
    let new = bench.lease();
    let before = bench.task.clone();
    assert_eq!(bench.tell(&ended(old, Ending::RetryableCause, true, "late")), Answer::Noted);
    assert_eq!((&bench.task, bench.ending(old)), (&before, Some(Ending::Expired)));
    assert_eq!(bench.ending(new), None);
}

// Rule X3.
#[test]
fn a_dead_letter_gives_the_last_cause_else_what_was_seen_else_that_it_never_completed() {
    let reason = |ends: &[(Ending, &str)]| {
        let mut bench = Bench::new();
        bench.policy.budget = ends.len() as u32;
        let mut answer = Answer::Noted;
        for (ending, why) in ends {
            let lease = bench.lease();
            answer = bench.tell(&ended(lease, *ending, true, why));
        }
        match answer {
            Answer::DeadLettered { origin, reason } => (origin, reason.category, reason.what, reason.severity),
            other => panic!("{other:?}"),
        }
    };
    let (fatal, reaper) = (Severity::Fatal, Origin::ReaperStandIn);
    let own = |category: &str, what: &str| (reaper, category.to_owned(), what.to_owned(), fatal);
    let cause = (Ending::RetryableCause, "oom");
    assert_eq!(reason(&[cause, (Ending::WorkerLost, "gone")]), own("oom", "seen"));
    assert_eq!(reason(&[(Ending::WorkerLost, "gone"), (Ending::Expired, "late")]), own("gone", "seen"));
    assert_eq!(reason(&[(Ending::TimeLimit, "slow")]), own("slow", "seen"));
    assert_eq!(reason(&[(Ending::Unusable, "half")]), own("half", "seen"));
    assert_eq!(reason(&[(Ending::Expired, "late")]), own("dispatcher", "never_completed_with_retries"));
}

// Rules X2, A4.
#[test]
fn each_begun_attempt_is_charged_and_the_budget_ends_the_run() {
    for ending in [Ending::Expired, Ending::WorkerLost, Ending::TimeLimit, Ending::Unusable, Ending::RetryableCause] {
        let mut bench = Bench::new();
        for charged in 1..3 {
            let lease = bench.lease();
            assert_eq!(bench.end(lease, ending, true), requeued(charged));
            assert_eq!(bench.task.timeout_ms, Some(SpanMs::seconds(60)), "a retry keeps the run's time-out");
        }
        let lease = bench.lease();
        assert!(matches!(bench.end(lease, ending, true), Answer::DeadLettered { .. }), "{ending:?}");
        assert_eq!(bench.task.charged, 3);
        bench.assert_balanced();
    }
}

// Rule A2.
#[test]
fn free_endings_cost_nothing_ten_times_in_a_run_and_then_are_charged() {
    for (ending, began) in [(Ending::Undeliverable, false), (Ending::HandedBack, true), (Ending::WorkerLost, false)] {
        let mut bench = Bench::new();
        for _ in 0..FREE_ENDINGS {
            let lease = bench.lease();
            assert_eq!(bench.end(lease, ending, began), requeued(0), "{ending:?}");
        }
        for charged in 1..3 {
            let lease = bench.lease();
            assert_eq!(bench.end(lease, ending, began), requeued(charged), "{ending:?}");
        }
        let lease = bench.lease();
        assert!(matches!(bench.end(lease, ending, began), Answer::DeadLettered { .. }));
        bench.rerun();
        let lease = bench.lease();
        assert_eq!(bench.end(lease, ending, began), requeued(0), "a new run has its own ten");
        bench.assert_balanced();
    }
}

// Rules A2, R6.
#[test]
fn a_cause_that_shows_that_a_free_ending_had_begun_is_charged() {
    let mut bench = Bench::new();
    bench.policy.budget = 1;
    let lease = bench.lease();
    assert_eq!(bench.end(lease, Ending::WorkerLost, false), requeued(0));
    let told = bench.end(lease, Ending::RetryableCause, true);
    assert!(matches!(told, Answer::DeadLettered { origin: Origin::LastAttemptStandIn, .. }), "{told:?}");
    assert_eq!(bench.task.charged, 1);
    bench.assert_balanced();
}

// Rule R4. Case F21.
#[test]
fn a_row_waits_as_long_as_the_back_off_says() {
    let mut bench = Bench::new();
    bench.policy = Policy { budget: 9, retry_delay_ms: SpanMs::seconds(10) };
    for charged in 1..9 {
        let lease = bench.lease();
        let Answer::Requeued { not_before, .. } = bench.end(lease, Ending::TimeLimit, true) else { panic!("requeued") };
        assert_eq!(not_before, bench.now.after(delay(charged, SpanMs::seconds(10), TASK)), "after {charged}");
        bench.now = not_before;
    }
}

// Rules R4, L3.
#[test]
fn a_services_delay_counts_from_now_and_begun_starts_the_limit() {
    let mut bench = Bench::new();
    bench.policy.retry_delay_ms = SpanMs::seconds(10);
    let lease = bench.lease();
    assert_eq!(bench.task.limit_until, Some(TimeMs(61_000)), "one time-out for the first attempt");
    let Answer::Requeued { not_before, .. } = bench.end(lease, Ending::TimeLimit, true) else { panic!("requeued") };
    assert!(not_before > bench.now && not_before <= TimeMs(11_000));
    bench.lease();
    assert_eq!(bench.task.limit_until, Some(TimeMs(121_000)), "twice as long for the second");
}

// Rule L9.
#[test]
fn a_returned_claim_costs_nothing_and_leaves_no_attempt() {
    let mut bench = Bench::new();
    let lease = bench.claim();
    assert_eq!(bench.tell(&Record::Returned { lease }), Answer::Noted);
    assert_eq!((bench.task.state, bench.task.charged, bench.task.freed), (TaskState::Ready, 0, 0));
    assert!(bench.attempts.is_empty() && bench.moves.is_empty());
    let next = bench.claim();
    assert_eq!(bench.tell(&Record::Returned { lease }), Answer::Noted, "an old return does not touch a new claim");
    assert_eq!((bench.task.state, next.epoch), (TaskState::Leased, Epoch(2)));
}

// Rules L9, A5.
#[test]
fn a_hand_out_that_is_written_after_its_claim_was_taken_away_is_closed_at_once() {
    let mut gone = Bench::new();
    let lease = gone.claim();
    gone.tell(&Record::Returned { lease });
    gone.tell(&Record::HandedOut { lease, worker: worker(), at: TimeMs(1), began: false });
    assert_eq!(gone.ending(lease), Some(Ending::Expired));
    gone.assert_balanced();
    assert_eq!(gone.result(lease, Status::NoProblem), Answer::Stored { replaced: None, repeat: false });
    gone.assert_balanced();

    let mut rerun = Bench::new();
    let lease = rerun.claim();
    rerun.rerun();
    rerun.tell(&Record::HandedOut { lease, worker: worker(), at: TimeMs(1), began: false });
    assert_eq!(rerun.ending(lease), Some(Ending::Stale));
    rerun.assert_balanced();
}

// Rule S4.
#[test]
fn a_result_whose_hand_out_was_never_written_makes_its_own_record() {
    let mut bench = Bench::new();
    let lease = bench.claim();
    bench.result(lease, Status::NoProblem);
    assert_eq!(bench.attempts.len(), 1);
    assert_eq!(bench.attempts[0].worker, Some(worker()));
    bench.assert_balanced();
}

// Rule A5.
#[test]
fn everything_about_a_cancelled_task_is_answered_so() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.cancel();
    assert_eq!((bench.task.state, bench.ending(lease)), (TaskState::Cancelled, Some(Ending::Cancelled)));
    assert_eq!(bench.result(lease, Status::NoProblem), Answer::Cancelled);
    assert_eq!(bench.end(lease, Ending::RetryableCause, true), Answer::Cancelled);
    assert_eq!(bench.tell(&Record::Returned { lease }), Answer::Noted);
    assert_eq!(bench.task.state, TaskState::Cancelled);
    bench.assert_balanced();
    bench.rerun();
    let lease = bench.lease();
    assert_eq!(bench.result(lease, Status::NoProblem), Answer::Stored { replaced: None, repeat: false });
}

// Rule C6.
#[test]
fn a_task_that_is_over_cannot_be_cancelled() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.result(lease, Status::Fatal);
    bench.cancel();
    assert_eq!(bench.task.state, TaskState::Done);
}

// Rule L14.
#[test]
fn a_new_run_starts_with_a_full_budget_and_no_cause() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.tell(&ended(lease, Ending::RetryableCause, true, "oom"));
    bench.rerun();
    let task = &bench.task;
    assert_eq!((task.run, task.epoch, task.charged, task.freed), (Run(2), Epoch(1), 0, 0));
    assert_eq!((&task.last_cause, &task.last_reason, task.standing, task.timeout_ms), (&None, &None, None, None));
}

// Rule R7.
#[test]
fn an_input_that_cannot_be_read_ends_the_task_or_is_charged_like_an_attempt() {
    let why = message("dispatcher", "input_changed");
    let failed = |lease, retry| Record::InputFailed { lease, why: why.clone(), retry, at: TimeMs(1) };
    let reason = Message { severity: Severity::Fatal, ..why.clone() };
    let dead = Answer::DeadLettered { origin: Origin::ReaperStandIn, reason };
    let mut bench = Bench::new();
    let lease = bench.claim();
    assert_eq!(bench.tell(&failed(lease, false)), dead);
    assert_eq!(bench.tell(&failed(lease, false)), dead, "told again, answered again");
    assert!(bench.attempts.is_empty(), "no attempt was made");
    let mut bench = Bench::new();
    for charged in 1..3 {
        let lease = bench.claim();
        assert_eq!(bench.tell(&failed(lease, true)), requeued(charged));
    }
    let lease = bench.claim();
    assert_eq!(bench.tell(&failed(lease, true)), dead);
    bench.assert_balanced();
}

// Rule D4.
#[test]
fn a_refused_record_ends_its_task_with_the_refusal_as_the_reason() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    let record = result(lease, Status::NoProblem);
    let decision = refuse(bench.task.clone(), bench.newest(), POLICY, &record, "too big", TimeMs(5));
    assert_eq!(bench.take(decision, lease.epoch), Answer::Refused { why: "too big".into() });
    assert_eq!((bench.task.state, bench.ending(lease)), (TaskState::Dead, Some(Ending::Unusable)));
    assert_eq!(bench.task.last_reason.as_ref().map(|m| m.details.as_str()), Some("too big"));
    bench.assert_balanced();
}
