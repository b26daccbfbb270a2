//! The transitions of a slot as data: for each event and each state, the next state and the outcome.
//!
//! A test builds a slot in each state, lets each event happen to it, and compares; another compares `docs/states.md`. The
//! table is of a run with two attempts, in the set without limits: where there is no window, or no room to hold, what
//! would be held leaves the set instead (rule X4).

use super::{Place, Slot};
use crate::report::Origin;
use SlotState::{Absent, Answered, Dead, Failure, InFlight, Requeued, StandIn, Usable};

/// Where a task is, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotState {
    /// Memory has nothing of it.
    Absent,
    /// In flight, and its worker has not said that no result will come.
    InFlight,
    /// In flight, and its worker has said so.
    Answered,
    /// Held, waiting for its retry.
    Requeued,
    /// Held, and the run ended in a dead letter.
    Dead,
    /// Held, and a last-attempt stand-in stands.
    StandIn,
    /// Held, and a worker's failure stands.
    Failure,
    /// Held, and a usable result stands.
    Usable,
}

impl SlotState {
    /// All states, in the order of the table's columns.
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::InFlight,
        Self::Answered,
        Self::Requeued,
        Self::Dead,
        Self::StandIn,
        Self::Failure,
        Self::Usable,
    ];

    /// The word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::InFlight => "in flight",
            Self::Answered => "answered",
            Self::Requeued => "held: requeued",
            Self::Dead => "held: dead letter",
            Self::StandIn => "held: last-attempt stand-in",
            Self::Failure => "held: failure",
            Self::Usable => "held: usable",
        }
    }

    /// The state of a slot.
    pub(crate) fn of(slot: Option<&Slot>) -> Self {
        let Some(slot) = slot else { return Self::Absent };
        if let Place::InFlight(lease) = &slot.place {
            return if lease.answered { Self::Answered } else { Self::InFlight };
        }
        match slot.standing() {
            None => Self::Requeued,
            Some(stands) => match stands.origin {
                Origin::ReaperStandIn => Self::Dead,
                Origin::LastAttemptStandIn => Self::StandIn,
                Origin::Worker if stands.status.is_usable() => Self::Usable,
                Origin::Worker => Self::Failure,
            },
        }
    }
}

/// What may happen to a task. "Newest" and "older" are attempts of the current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotEvent {
    /// A lease that begins a later run (L4).
    FirstAttempt,
    /// A lease of a newer attempt of this run (L5, L12).
    Retry,
    /// A lease of an earlier run (L6).
    RetryOfEarlierRun,
    /// The newest lease is undone, because its task could not be sent (L9).
    Undo,
    /// The newest attempt has begun (L1).
    Begun,
    /// A usable result of the newest attempt (C1, C4, C5).
    UsableOfNewest,
    /// A failure of the newest attempt (C1, C3–C5).
    FailureOfNewest,
    /// A usable result of an older attempt (C2, C4, C5).
    UsableOfOlder,
    /// A failure of an older attempt (C2, C4, C5).
    FailureOfOlder,
    /// A result of an earlier run (C6).
    ResultOfEarlierRun,
    /// A retryable cause of the newest attempt, with budget left (R4, R6).
    Cause,
    /// A retryable cause of the last attempt that the budget allows (R5).
    LastCause,
    /// A retryable cause of an older attempt (R2, R6).
    CauseOfOlder,
    /// An unusable reply of the newest attempt, with a token (R1, R8).
    UnusableWithToken,
    /// An unusable reply of the newest attempt, by the worker's name (R1, R8).
    UnusableByName,
    /// An unusable reply of an older attempt (R2).
    UnusableOfOlder,
    /// The worker of the newest attempt is gone (A3).
    WorkerLost,
    /// The worker of the newest attempt gives the task back (A2).
    HandedBack,
    /// A sweep after the deadline, with budget left (X1, X2).
    DueWithBudget,
    /// A sweep after the deadline, with the budget spent (X2, X3).
    DueBudgetSpent,
    /// A sweep after the deadline, with an open receipt (R3).
    DueWithReceipt,
    /// A sweep at the end of the window (X5).
    WindowOver,
    /// The task is removed from flight (X6).
    Remove,
    /// An accepted result could not be published (C8).
    TakeBack,
    /// The store: the newest attempt's usable result stands.
    StoreStands,
    /// The store: the newest attempt's result lost against an older one's usable result.
    StoreSuperseded,
    /// The store has a later run.
    StoreStale,
    /// The store: an operator ended the task.
    StoreCancelled,
    /// The store does not know the newest claim.
    StoreUnknown,
    /// The store: the task is ready again.
    StoreRequeued,
    /// The store: the run ended in a dead letter.
    StoreDeadLettered,
    /// The store: the newest claim went back unsent.
    StoreReturned,
}

impl SlotEvent {
    /// The words for people, with the rules.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstAttempt => "lease of a later run (L4)",
            Self::Retry => "lease of a newer attempt (L5, L12)",
            Self::RetryOfEarlierRun => "lease of an earlier run (L6)",
            Self::Undo => "newest lease undone (L9)",
            Self::Begun => "newest begun (L1)",
            Self::UsableOfNewest => "usable result, newest (C1, C4, C5)",
            Self::FailureOfNewest => "failure, newest (C1, C3–C5)",
            Self::UsableOfOlder => "usable result, older (C2, C4, C5)",
            Self::FailureOfOlder => "failure, older (C2, C4, C5)",
            Self::ResultOfEarlierRun => "result of an earlier run (C6)",
            Self::Cause => "cause, newest (R4, R6)",
            Self::LastCause => "cause, last of the budget (R5)",
            Self::CauseOfOlder => "cause, older (R2, R6)",
            Self::UnusableWithToken => "unusable, newest, token (R1, R8)",
            Self::UnusableByName => "unusable, newest, name (R1, R8)",
            Self::UnusableOfOlder => "unusable, older (R2)",
            Self::WorkerLost => "worker lost (A3)",
            Self::HandedBack => "handed back (A2)",
            Self::DueWithBudget => "due, budget left (X1, X2)",
            Self::DueBudgetSpent => "due, budget spent (X2, X3)",
            Self::DueWithReceipt => "due, open receipt (R3)",
            Self::WindowOver => "window over (X5)",
            Self::Remove => "removed from flight (X6)",
            Self::TakeBack => "taken back (C8)",
            Self::StoreStands => "store: stands, newest",
            Self::StoreSuperseded => "store: superseded, newest",
            Self::StoreStale => "store: stale",
            Self::StoreCancelled => "store: cancelled",
            Self::StoreUnknown => "store: unknown, newest",
            Self::StoreRequeued => "store: requeued, newest",
            Self::StoreDeadLettered => "store: dead letter, newest",
            Self::StoreReturned => "store: returned, newest",
        }
    }
}

/// The next state, and the outcome in words.
pub type Cell = (SlotState, &'static str);

/// One event in each state, in the order of [`SlotState::ALL`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What happens.
    pub event: SlotEvent,
    /// What comes of it.
    pub cells: [Cell; 8],
}

const LEASED: Cell = (InFlight, "leased");
const ON_TIME: Cell = (Absent, "accepted");
const UNKNOWN: Cell = (Absent, "unknown");
const NONE: Cell = (Absent, "–");
const GONE: Cell = (Absent, "follows");

const fn same(state: SlotState) -> Cell {
    (state, "–")
}

const fn finished(state: SlotState) -> Cell {
    (state, "refused: finished")
}

const fn dropped_finished(state: SlotState) -> Cell {
    (state, "dropped: finished")
}

const fn lost(state: SlotState) -> Cell {
    (state, "superseded")
}

const fn held(state: SlotState) -> Cell {
    (state, "dropped: not in flight")
}

const fn older(state: SlotState) -> Cell {
    (state, "dropped: older attempt")
}

const fn row(event: SlotEvent, cells: [Cell; 8]) -> Row {
    Row { event, cells }
}

const DEAD_LETTERED: Cell = (Dead, "dropped: dead letter");
const REPEATED: Cell = (Answered, "repeated");

/// Every event in every state.
#[rustfmt::skip]
pub const TABLE: [Row; 32] = [
    row(SlotEvent::FirstAttempt, [LEASED; 8]),
    row(SlotEvent::Retry, [LEASED, LEASED, LEASED, LEASED, LEASED, finished(StandIn), finished(Failure), finished(Usable)]),
    row(SlotEvent::RetryOfEarlierRun, [LEASED, (InFlight, "refused: older run"), (Answered, "refused: older run"),
        (Requeued, "refused: older run"), (Dead, "refused: older run"), (StandIn, "refused: older run"),
        (Failure, "refused: older run"), (Usable, "refused: older run")]),
    row(SlotEvent::Undo, [NONE, (Requeued, "undone"), same(Answered), same(Requeued), same(Dead), same(StandIn),
        (Failure, "undone"), (Usable, "undone")]),
    row(SlotEvent::Begun, [NONE, (InFlight, "clock started"), same(Answered), same(Requeued), same(Dead), same(StandIn),
        same(Failure), same(Usable)]),
    row(SlotEvent::UsableOfNewest, [UNKNOWN, ON_TIME, ON_TIME, (Usable, "accepted after requeue"),
        (Usable, "accepted after dead letter"), (Usable, "accepted, replaces failure"), (Usable, "accepted, newer attempt"),
        (Usable, "accepted, newer attempt")]),
    row(SlotEvent::FailureOfNewest, [UNKNOWN, (Failure, "accepted"), (Failure, "accepted"), (Failure, "accepted after requeue"),
        (Failure, "accepted after dead letter"), lost(StandIn), (Failure, "accepted, newer attempt"), lost(Usable)]),
    row(SlotEvent::UsableOfOlder, [UNKNOWN, (Usable, "accepted, older attempt"), (Usable, "accepted, older attempt"),
        (Usable, "accepted after requeue"), (Usable, "accepted after dead letter"), (Usable, "accepted, replaces failure"),
        (Usable, "accepted, replaces failure"), lost(Usable)]),
    row(SlotEvent::FailureOfOlder, [UNKNOWN, (Failure, "accepted, older attempt"), (Failure, "accepted, older attempt"),
        (Failure, "accepted after requeue"), (Failure, "accepted after dead letter"), lost(StandIn), lost(Failure), lost(Usable)]),
    row(SlotEvent::ResultOfEarlierRun, [UNKNOWN, (InFlight, "stale"), (Answered, "stale"), (Requeued, "stale"), (Dead, "stale"),
        (StandIn, "stale"), (Failure, "stale"), (Usable, "stale")]),
    row(SlotEvent::Cause, [(Absent, "dropped: unknown"), (Answered, "due at once"), (Answered, "due at once"),
        (Requeued, "rides along"), DEAD_LETTERED, dropped_finished(StandIn), dropped_finished(Failure), dropped_finished(Usable)]),
    row(SlotEvent::LastCause, [(Absent, "dropped: unknown"), (StandIn, "stand-in"), (StandIn, "stand-in"),
        (Requeued, "rides along"), DEAD_LETTERED, dropped_finished(StandIn), dropped_finished(Failure), dropped_finished(Usable)]),
    row(SlotEvent::CauseOfOlder, [(Absent, "dropped: unknown"), older(InFlight), older(Answered), older(Requeued), DEAD_LETTERED,
        dropped_finished(StandIn), dropped_finished(Failure), dropped_finished(Usable)]),
    row(SlotEvent::UnusableWithToken, [(Absent, "dropped: unknown"), (Answered, "due at once"), REPEATED, held(Requeued),
        held(Dead), held(StandIn), held(Failure), held(Usable)]),
    row(SlotEvent::UnusableByName, [(Absent, "dropped: unknown"), (Answered, "waits for its deadline"), REPEATED, held(Requeued),
        held(Dead), held(StandIn), held(Failure), held(Usable)]),
    row(SlotEvent::UnusableOfOlder, [(Absent, "dropped: unknown"), older(InFlight), older(Answered), held(Requeued), held(Dead),
        held(StandIn), held(Failure), held(Usable)]),
    row(SlotEvent::WorkerLost, [(Absent, "dropped: unknown"), (InFlight, "due at once"), REPEATED, held(Requeued), held(Dead),
        held(StandIn), held(Failure), held(Usable)]),
    row(SlotEvent::HandedBack, [(Absent, "dropped: unknown"), (Answered, "due at once"), REPEATED, held(Requeued), held(Dead),
        held(StandIn), held(Failure), held(Usable)]),
    row(SlotEvent::DueWithBudget, [NONE, (Requeued, "requeued"), (Requeued, "requeued"), same(Requeued), same(Dead),
        same(StandIn), same(Failure), same(Usable)]),
    row(SlotEvent::DueBudgetSpent, [NONE, (Dead, "dead letter"), (Dead, "dead letter"), same(Requeued), same(Dead),
        same(StandIn), same(Failure), same(Usable)]),
    row(SlotEvent::DueWithReceipt, [NONE, same(InFlight), same(Answered), same(Requeued), same(Dead), same(StandIn),
        same(Failure), same(Usable)]),
    row(SlotEvent::WindowOver, [NONE, same(InFlight), same(Answered), (Absent, "forgotten"), (Absent, "forgotten"),
        (Absent, "forgotten"), (Absent, "forgotten"), (Absent, "forgotten")]),
    row(SlotEvent::Remove, [NONE, (Absent, "removed"), (Absent, "removed"), same(Requeued), same(Dead), same(StandIn),
        same(Failure), same(Usable)]),
    row(SlotEvent::TakeBack, [(Answered, "open again"), (InFlight, "open already"), (Answered, "open already"),
        (Requeued, "open already"), (Dead, "kept"), (StandIn, "kept"), (InFlight, "open again"), (InFlight, "open again")]),
    row(SlotEvent::StoreStands, [NONE, ON_TIME, ON_TIME, (Usable, "accepted after requeue"),
        (Usable, "accepted after dead letter"), (Usable, "accepted, replaces failure"), (Usable, "accepted, newer attempt"),
        (Usable, "accepted, newer attempt")]),
    row(SlotEvent::StoreSuperseded, [NONE, (Absent, "follows"), (Absent, "follows"), (Usable, "follows"), (Usable, "follows"),
        (Usable, "follows"), (Usable, "follows"), same(Usable)]),
    row(SlotEvent::StoreStale, [NONE, GONE, GONE, GONE, GONE, GONE, GONE, GONE]),
    row(SlotEvent::StoreCancelled, [NONE, GONE, GONE, GONE, GONE, GONE, GONE, GONE]),
    row(SlotEvent::StoreUnknown, [NONE, GONE, GONE, GONE, GONE, GONE, GONE, GONE]),
    row(SlotEvent::StoreRequeued, [NONE, (Requeued, "follows"), (Requeued, "follows"), same(Requeued), (Requeued, "follows"),
        (Requeued, "follows"), (Requeued, "follows"), (Requeued, "follows")]),
    row(SlotEvent::StoreDeadLettered, [NONE, (Dead, "follows"), (Dead, "follows"), (Dead, "follows"), same(Dead),
        (Dead, "follows"), (Dead, "follows"), (Dead, "follows")]),
    row(SlotEvent::StoreReturned, [NONE, (Requeued, "follows"), same(Answered), same(Requeued), same(Dead), same(StandIn),
        (Failure, "follows"), (Usable, "follows")]),
];
