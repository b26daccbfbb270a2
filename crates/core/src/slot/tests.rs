use super::table::{Row, SlotEvent, SlotState, TABLE};
use super::*;
use crate::id::ServiceId;
use crate::lease::Terms;
use crate::report::{Message, Severity};
use crate::time::SpanMs;
use std::fmt::Write as _;

const NOW: TimeMs = TimeMs(100_000);
const TASK: TaskId = TaskId(7);
const RUN: Run = Run(2);
const OLDER: Epoch = Epoch(3);
const NEWEST: Epoch = Epoch(4);

fn moment() -> Moment {
    Moment { now: NOW, until: NOW.after(SpanMs(1000)) }
}

fn said(what: &str) -> Message {
    Message { severity: Severity::Error, category: "test".into(), what: what.into(), details: String::new() }
}

fn worker(name: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: String::new() }
}

fn lease_id(run: Run, epoch: Epoch) -> LeaseId {
    LeaseId { task: TASK, run, epoch }
}

fn by_worker(epoch: Epoch, status: Status) -> Standing {
    Standing { epoch, status, origin: Origin::Worker }
}

/// Two attempts of run 2 after one of run 1, the newer one with its clock not started, and one attempt charged.
fn in_flight() -> Slot {
    let terms = Terms { start: LeaseStart::AtBegun, ..Terms::new(ServiceId(1), SpanMs(1000)) };
    let grant = |run, epoch, name| Grant::new(lease_id(run, epoch), worker(name), terms);
    let (slot, _) = lease(None, grant(Run(1), Epoch(2), "old"), Epoch::NONE, None, NOW);
    let (slot, _) = lease(Some(slot), grant(RUN, OLDER, "older"), Epoch::NONE, Some(TimeMs(0)), TimeMs(0));
    let (slot, taken) = expire(slot.due(), moment());
    assert!(taken.is_some());
    let retry = Grant { retries: 1, ..grant(RUN, NEWEST, "newest") };
    lease(slot, retry, Epoch::NONE, None, NOW).0
}

impl Slot {
    fn due(mut self) -> Self {
        if let Place::InFlight(lease) = &mut self.place {
            lease.deadline = Some(TimeMs(0));
        }
        self
    }

    fn with_standing(mut self, stands: Standing) -> Self {
        let Place::InFlight(lease) = self.place else { panic!("made in flight") };
        self.landed = vec![stands];
        self.place = Place::Held(Hold { until: NOW, base: Base::Flight(lease), told: false });
        self
    }
}

fn in_state(state: SlotState) -> Option<Slot> {
    let slot = match state {
        SlotState::Absent => return None,
        SlotState::InFlight => in_flight(),
        SlotState::Answered => no_result(in_flight(), NEWEST, NoResult::Unusable(said("empty")), true, moment()).0?,
        SlotState::Requeued => expire(in_flight().due(), moment()).0?,
        SlotState::Dead => {
            let mut slot = in_flight().due();
            slot.run.charged = 2;
            expire(slot, moment()).0?
        }
        SlotState::StandIn => {
            let mut slot = in_flight();
            slot.run.charged = 2;
            no_result(slot, NEWEST, NoResult::Cause(said("oom")), true, moment()).0?
        }
        SlotState::Failure => in_flight().with_standing(by_worker(OLDER, Status::Fatal)),
        SlotState::Usable => in_flight().with_standing(by_worker(OLDER, Status::Warning)),
    };
    Some(slot)
}

fn leased(slot: Option<Slot>, run: Run, epoch: Epoch) -> (Option<Slot>, String) {
    match admit(slot.as_ref(), run, epoch, None) {
        Ok(()) => {
            let grant = Grant::new(lease_id(run, epoch), worker("next"), Terms::new(ServiceId(1), SpanMs(1000)));
            (Some(lease(slot, grant, Epoch::NONE, Some(NOW), NOW).0), "leased".into())
        }
        Err(LeaseRefusal::Finished { .. }) => (slot, "refused: finished".into()),
        Err(LeaseRefusal::OlderRun { .. }) => (slot, "refused: older run".into()),
        Err(other) => (slot, format!("{other:?}")),
    }
}

fn late_word(late: Lateness) -> &'static str {
    match late {
        Lateness::OnTime => "accepted",
        Lateness::OlderAttempt => "accepted, older attempt",
        Lateness::AfterRequeue => "accepted after requeue",
        Lateness::AfterDeadLetter => "accepted after dead letter",
        Lateness::NewerAttempt => "accepted, newer attempt",
        Lateness::ReplacesFailure => "accepted, replaces failure",
    }
}

fn claimed(slot: Option<Slot>, run: Run, epoch: Epoch, status: Status) -> (Option<Slot>, String) {
    let Some(slot) = slot else { return (None, "unknown".into()) };
    match slot.find(Attribution::Token { run, epoch }) {
        Found::Attempt(epoch) => match result(slot, epoch, status, moment()) {
            (next, Landing::Accepted(accepted)) => (next, late_word(accepted.facts.late).into()),
            (next, Landing::Superseded { .. }) => (next, "superseded".into()),
        },
        Found::Stale => (Some(slot), "stale".into()),
        Found::Unknown => (Some(slot), "unknown".into()),
    }
}

fn ended(slot: Option<Slot>, epoch: Epoch, word: NoResult, by_token: bool) -> (Option<Slot>, String) {
    let Some(slot) = slot else { return (None, "dropped: unknown".into()) };
    let (next, answered) = no_result(slot, epoch, word, by_token, moment());
    let word = match answered {
        Answered::DueAtOnce(_) => "due at once",
        Answered::Waits(_) => "waits for its deadline",
        Answered::Repeated(_) => "repeated",
        Answered::StandIn(_) => "stand-in",
        Answered::RidesAlong(_) => "rides along",
        Answered::Dropped(Dropped::OlderAttempt) => "dropped: older attempt",
        Answered::Dropped(Dropped::Finished) => "dropped: finished",
        Answered::Dropped(Dropped::DeadLettered) => "dropped: dead letter",
        Answered::Dropped(Dropped::NotInFlight) => "dropped: not in flight",
        Answered::Dropped(Dropped::Stale) => "stale",
        Answered::Dropped(Dropped::Unknown) => "dropped: unknown",
        Answered::Dropped(Dropped::WrongService) => "wrong service",
    };
    (next, word.into())
}

fn swept(slot: Option<Slot>, charged: u32, receipts: usize) -> (Option<Slot>, String) {
    let Some(slot) = slot else { return (None, "–".into()) };
    let mut slot = slot.due();
    slot.run.charged = charged;
    if let Place::InFlight(lease) = &mut slot.place {
        lease.receipts = Some(Arc::new(AtomicUsize::new(receipts)));
    }
    let (next, taken) = expire(slot, moment());
    let word = match taken {
        None => "–",
        Some(taken) if taken.dead.is_some() => "dead letter",
        Some(_) => "requeued",
    };
    (next, word.into())
}

fn settled(slot: Option<Slot>, settlement: Settlement) -> (Option<Slot>, String) {
    let Some(slot) = slot else { return (None, "–".into()) };
    let (next, settled) = settle(slot, lease_id(RUN, NEWEST), settlement, moment());
    let word = match settled {
        Settled::Landed(late) => late_word(late),
        Settled::Followed => "follows",
        Settled::Unchanged => "–",
    };
    (next, word.into())
}

fn taken_back(slot: Option<Slot>) -> (Option<Slot>, String) {
    let epoch = if slot.is_some() { OLDER } else { NEWEST };
    let status = slot.as_ref().and_then(Slot::standing).map_or(Status::Warning, |stands| stands.status);
    let before = Box::new(in_flight());
    let (lease, service) = (lease_id(RUN, epoch), ServiceId(1));
    let (attempts, late) = (2, Lateness::OnTime);
    let facts = Acceptance { lease, service, status, origin: Origin::Worker, attempts, replaced: None, late };
    let (next, taken_back) = take_back(slot, Accepted { facts, before }, said("disk full"), moment());
    let word = match taken_back {
        TakenBack::DueAtOnce(_) | TakenBack::Requeued(_) => "open again",
        TakenBack::AlreadyOpen => "open already",
        TakenBack::Kept(_) => "kept",
        TakenBack::Stands(_) => "stands again",
        TakenBack::LaterRun => "later run",
    };
    (next, word.into())
}

fn known(slot: Option<Slot>, word: &str, step: impl FnOnce(Slot) -> (Option<Slot>, bool)) -> (Option<Slot>, String) {
    match slot.map(step) {
        None => (None, "–".into()),
        Some((next, true)) => (next, word.into()),
        Some((next, false)) => (next, "–".into()),
    }
}

fn happen(event: SlotEvent, mut slot: Option<Slot>) -> (Option<Slot>, String) {
    let newest = lease_id(RUN, NEWEST);
    match event {
        SlotEvent::FirstAttempt => leased(slot, Run(3), Epoch(5)),
        SlotEvent::Retry => leased(slot, RUN, Epoch(5)),
        SlotEvent::RetryOfEarlierRun => leased(slot, Run(1), Epoch(5)),
        SlotEvent::Undo => known(slot, "undone", |slot| {
            let (next, undone) = undo(slot, newest);
            (next, undone.is_some())
        }),
        SlotEvent::Begun => known(slot, "clock started", |slot| begun(slot, newest, NOW)),
        SlotEvent::UsableOfNewest => claimed(slot, RUN, NEWEST, Status::Error),
        SlotEvent::FailureOfNewest => claimed(slot, RUN, NEWEST, Status::Invalid),
        SlotEvent::UsableOfOlder => claimed(slot, RUN, OLDER, Status::NoProblem),
        SlotEvent::FailureOfOlder => claimed(slot, RUN, OLDER, Status::Fatal),
        SlotEvent::ResultOfEarlierRun => claimed(slot, Run(1), Epoch(2), Status::NoProblem),
        SlotEvent::Cause => ended(slot, NEWEST, NoResult::Cause(said("oom")), true),
        SlotEvent::LastCause => {
            if let Some(slot) = &mut slot {
                slot.run.charged = 2;
            }
            ended(slot, NEWEST, NoResult::Cause(said("oom")), true)
        }
        SlotEvent::CauseOfOlder => ended(slot, OLDER, NoResult::Cause(said("oom")), true),
        SlotEvent::UnusableWithToken => ended(slot, NEWEST, NoResult::Unusable(said("empty")), true),
        SlotEvent::UnusableByName => {
            if let Some(Place::InFlight(lease)) = slot.as_mut().map(|slot| &mut slot.place) {
                lease.deadline = Some(NOW.after(SpanMs(1)));
            }
            ended(slot, NEWEST, NoResult::Unusable(said("empty")), false)
        }
        SlotEvent::UnusableOfOlder => ended(slot, OLDER, NoResult::Unusable(said("empty")), true),
        SlotEvent::WorkerLost => ended(slot, NEWEST, NoResult::WorkerLost { began: true, why: said("lost") }, true),
        SlotEvent::HandedBack => ended(slot, NEWEST, NoResult::HandedBack, true),
        SlotEvent::DueWithBudget => swept(slot, 1, 0),
        SlotEvent::DueBudgetSpent => swept(slot, 2, 0),
        SlotEvent::DueWithReceipt => swept(slot, 1, 1),
        SlotEvent::WindowOver => known(slot, "forgotten", |mut slot| {
            if let Place::Held(hold) = &mut slot.place {
                hold.until = NOW;
            }
            let (next, forgotten) = forget(slot, NOW);
            (next, forgotten.is_some())
        }),
        SlotEvent::Remove => known(slot, "removed", remove),
        SlotEvent::TakeBack => taken_back(slot),
        SlotEvent::StoreStands => settled(slot, Settlement::Stands(by_worker(NEWEST, Status::NoProblem))),
        SlotEvent::StoreSuperseded => settled(slot, Settlement::Superseded { by: by_worker(OLDER, Status::Warning) }),
        SlotEvent::StoreStale => settled(slot, Settlement::Stale),
        SlotEvent::StoreCancelled => settled(slot, Settlement::Cancelled),
        SlotEvent::StoreUnknown => settled(slot, Settlement::Unknown),
        SlotEvent::StoreRequeued => {
            let charged = slot.as_ref().map_or(2, |slot| slot.run.charged);
            settled(slot, Settlement::Requeued { charged })
        }
        SlotEvent::StoreDeadLettered => {
            let stands = Standing { epoch: NEWEST, status: Status::Fatal, origin: Origin::ReaperStandIn };
            settled(slot, Settlement::DeadLettered(stands))
        }
        SlotEvent::StoreReturned => settled(slot, Settlement::Returned),
    }
}

// Rules L4, L5, L6, L9, L12, C1, C2, C3, C4, C5, C6, C7, C8, R1, R2, R3, R4, R5, R6, R8, X1, X2, X5, X6.
#[test]
fn every_event_in_every_state_does_what_the_table_says() {
    let mut wrong = String::new();
    for Row { event, cells } in TABLE {
        for (state, (next, word)) in SlotState::ALL.into_iter().zip(cells) {
            let slot = in_state(state);
            assert_eq!(SlotState::of(slot.as_ref()), state);
            let (came, said) = happen(event, slot);
            let came = SlotState::of(came.as_ref());
            if (came, said.as_str()) != (next, word) {
                let _ = writeln!(wrong, "{event:?} in {state:?}: {came:?}, {said}; the table has {next:?}, {word}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn printed_table() -> String {
    let mut page = String::from("| event |");
    for state in SlotState::ALL {
        let _ = write!(page, " {} |", state.as_str());
    }
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(SlotState::ALL.len()));
    page.push('\n');
    for Row { event, cells } in TABLE {
        let _ = write!(page, "| {} |", event.as_str());
        for (state, (next, word)) in SlotState::ALL.into_iter().zip(cells) {
            match (next == state, word) {
                (true, word) => write!(page, " {word} |"),
                (false, word) => write!(page, " {word} → {} |", next.as_str()),
            }
            .expect("a string takes everything");
        }
        page.push('\n');
    }
    page
}

// Rule G6.
#[test]
fn the_page_of_states_prints_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
    let page = std::fs::read_to_string(path).expect("docs/states.md");
    let table = page
        .split_once("<!-- slot table: begin -->\n")
        .and_then(|(_, rest)| rest.split_once("<!-- slot table: end -->"))
        .map(|(table, _)| table.trim());
    let printed = printed_table();
    assert_eq!(table, Some(printed.trim()), "put this between the marks of docs/states.md:\n{printed}");
}

// Rules L10, C8, C11.
#[test]
fn what_is_remembered_of_one_task_is_bounded_however_often_it_is_leased() {
    let mut slot = Some(in_flight());
    for epoch in 5..500 {
        let mut grant = Grant::new(lease_id(RUN, Epoch(epoch)), worker("next"), Terms::new(ServiceId(1), SpanMs(1000)));
        grant.retries = 1;
        let (leased, _) = lease(slot, grant, Epoch::NONE, Some(NOW), NOW);
        let Place::InFlight(Lease { undo: Undo::Slot(before), .. }) = &leased.place else { panic!("{leased:?}") };
        let (Place::InFlight(Lease { undo, .. }) | Place::Held(Hold { base: Base::Flight(Lease { undo, .. }), .. })) =
            &before.place
        else {
            panic!("{before:?}")
        };
        assert!(matches!(undo, Undo::Spent), "memory goes one lease back");
        // The store ends the run and opens it again, so that every lease replaces a dead letter over a lease.
        let dead = Settlement::DeadLettered(Standing {
            epoch: Epoch(epoch),
            status: Status::Fatal,
            origin: Origin::ReaperStandIn,
        });
        slot = settle(leased, lease_id(RUN, Epoch(epoch)), dead, moment()).0;
    }
    let mut slot = slot.expect("held");
    assert_eq!(slot.attempts.len(), MAX_ATTEMPTS);
    for epoch in 5..100 {
        let landed = result(slot, Epoch(epoch), Status::Fatal, moment());
        slot = landed.0.expect("held");
    }
    assert_eq!(slot.landed.len(), MAX_LANDED);
    assert_eq!(slot.standing(), Some(by_worker(Epoch(99), Status::Fatal)), "the newest ones are kept");
}
