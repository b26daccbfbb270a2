//! Random conversations, hostile ones among them, against what must always hold.

use super::support::{fatal, hello, key, lease, part, token};
use dispatcher_core::fleet::{Answer, AnswerBytes, Effect, Fleet, FleetLimits, Kept, Piece};
use dispatcher_core::id::{LeaseId, WorkerKey};
use dispatcher_core::session::PeerId;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, PartSpec, ToWorker, TokenText};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const TASKS: i64 = 12;
const LIMITS: fn() -> FleetLimits = || FleetLimits {
    inline_max: 64,
    chunk_max: 50,
    max_holds: 8,
    max_credit: 5,
    task_window: 3,
    max_waiting: 6,
    wanted_total: 170,
    inline_budget: 100,
    dead_after: SpanMs(5000),
    stuck_after: SpanMs(5000),
    ..FleetLimits::default()
};

/// One step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    Hello {
        peer: u64,
        name: u8,
        incarnation: u8,
        holds: Vec<(i64, HoldState)>,
    },
    Ready(u64, u64),
    Begun(u64, i64),
    Beat(u64, u64, Vec<(i64, HoldState)>),
    Fetch(u64, i64, u64, u64),
    Result(u64, i64, Vec<u64>, bool),
    Retryable(u64, i64),
    Release(u64, i64),
    /// Sends a wanted piece, or one that nobody wants.
    Part(u64, i64, bool),
    Bye(u64),
    Malformed(u64),
    Forged(u64),
    Departed(u64),
    HandOut(i64, bool),
    /// The oldest answer in the driver's hands is acknowledged, wanted or deferred.
    Decide(u8),
    Take,
    Settle(bool),
    Resume,
    Cancel(i64),
    Full(u64),
    Flush,
    ChunkDone(u64),
    Tick(i64),
}

fn any_hold() -> impl Strategy<Value = (i64, HoldState)> {
    (1..TASKS, prop_oneof![Just(HoldState::Queued), Just(HoldState::Running), Just(HoldState::Finished)])
}

fn any_step() -> impl Strategy<Value = Step> {
    let holds = || proptest::collection::vec(any_hold(), 0..10);
    let peer = || 1..5_u64;
    let task = || 1..TASKS;
    prop_oneof![
        4 => (peer(), 0..2_u8, 0..2_u8, holds())
            .prop_map(|(peer, name, incarnation, holds)| Step::Hello { peer, name, incarnation, holds }),
        5 => (peer(), 0..40_u64).prop_map(|(p, granted)| Step::Ready(p, granted)),
        4 => (peer(), task()).prop_map(|(p, t)| Step::Begun(p, t)),
        4 => (peer(), 0..9_u64, holds()).prop_map(|(p, received, holds)| Step::Beat(p, received, holds)),
        2 => (peer(), task(), 0..200_u64, 0..60_u64).prop_map(|(p, t, o, l)| Step::Fetch(p, t, o, l)),
        6 => (peer(), task(), proptest::collection::vec(0..150_u64, 0..3), any::<bool>())
            .prop_map(|(p, t, sizes, inline)| Step::Result(p, t, sizes, inline)),
        2 => (peer(), task()).prop_map(|(p, t)| Step::Retryable(p, t)),
        2 => (peer(), task()).prop_map(|(p, t)| Step::Release(p, t)),
        6 => (peer(), task(), any::<bool>()).prop_map(|(p, t, wanted)| Step::Part(p, t, wanted)),
        1 => peer().prop_map(Step::Bye),
        1 => peer().prop_map(Step::Malformed),
        1 => peer().prop_map(Step::Forged),
        2 => peer().prop_map(Step::Departed),
        10 => (task(), prop::bool::weighted(0.9)).prop_map(|(t, takes)| Step::HandOut(t, takes)),
        8 => (0..4_u8).prop_map(Step::Decide),
        6 => Just(Step::Take),
        3 => any::<bool>().prop_map(Step::Settle),
        2 => Just(Step::Resume),
        1 => task().prop_map(Step::Cancel),
        1 => peer().prop_map(Step::Full),
        2 => Just(Step::Flush),
        2 => peer().prop_map(Step::ChunkDone),
        4 => (0..3000_i64).prop_map(Step::Tick),
    ]
}

/// What the driver knows: its own books beside the fleet's.
struct Model {
    fleet: Fleet,
    now: TimeMs,
    granted: BTreeMap<PeerId, u64>,
    sent: BTreeMap<PeerId, u64>,
    gone: BTreeSet<PeerId>,
    /// Leases that went into the fleet and did not come out yet.
    inside: BTreeSet<LeaseId>,
    answers: VecDeque<Box<Answer>>,
    answered: BTreeMap<LeaseId, u64>,
    acks: BTreeMap<LeaseId, u64>,
    wanted: Vec<(PeerId, LeaseId, String, u64, u64)>,
    untaken: Vec<Piece>,
    /// Answers whose bytes are all in the driver's hands.
    whole: Vec<LeaseId>,
    claims: Vec<(Arc<WorkerKey>, Vec<LeaseId>)>,
    joined: BTreeSet<Arc<WorkerKey>>,
}

impl Model {
    fn new() -> Self {
        Self {
            fleet: Fleet::new(LIMITS(), key()),
            now: TimeMs(0),
            granted: BTreeMap::new(),
            sent: BTreeMap::new(),
            gone: BTreeSet::new(),
            inside: BTreeSet::new(),
            answers: VecDeque::new(),
            answered: BTreeMap::new(),
            acks: BTreeMap::new(),
            wanted: vec![],
            untaken: vec![],
            whole: vec![],
            claims: vec![],
            joined: BTreeSet::new(),
        }
    }

    fn heard(&mut self, peer: u64, message: FromWorker, body: u64) {
        let mut effects = vec![];
        self.gone.remove(&PeerId(peer));
        self.fleet.heard(PeerId(peer), message, body, self.now, &mut effects);
        self.note(effects);
    }

    fn call(&mut self, call: impl FnOnce(&mut Fleet, TimeMs, &mut Vec<Effect>)) {
        let mut effects = vec![];
        call(&mut self.fleet, self.now, &mut effects);
        self.note(effects);
    }

    /// Checks each effect against the books, and writes it into them.
    fn note(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { peer, message } => self.note_sent(peer, message),
                Effect::Disconnect { peer, .. } => self.forget(peer),
                Effect::Joined { worker, .. } => {
                    self.joined.insert(worker);
                }
                Effect::HoldsClaimed { worker, holds } => {
                    self.claims.push((worker, holds.into_iter().map(|(lease, _)| lease).collect()));
                }
                Effect::Answered(answer) => {
                    *self.answered.entry(answer.lease).or_default() += 1;
                    self.inside.insert(answer.lease);
                    self.answers.push_back(answer);
                }
                Effect::PieceArrived(piece) => self.untaken.push(piece),
                Effect::TransferEnded { lease, .. } => self.wanted.retain(|w| w.1 != lease),
                Effect::NotHeld { leases, .. } => {
                    for lost in leases {
                        self.inside.remove(&lost.lease);
                        assert_eq!(self.fleet.worker_of(lost.lease), None, "reported and kept");
                    }
                }
                Effect::WorkerLost { worker, leases } => {
                    assert!(self.joined.remove(&worker), "a worker is lost once");
                    for lost in &leases {
                        assert!(self.inside.remove(&lost.lease), "{} is reported twice", lost.lease);
                    }
                }
                Effect::WorkerLeft { worker } => assert!(self.joined.remove(&worker), "a worker leaves once"),
                Effect::FetchAsked { offset, length, .. } => {
                    assert!(offset + length <= 150 && (1..=50).contains(&length));
                }
                Effect::AllTaken { lease } => self.whole.push(lease),
                Effect::Begun { .. } | Effect::Noise { .. } | Effect::Warn(_) => {}
            }
        }
        self.check();
    }

    fn note_sent(&mut self, peer: PeerId, message: ToWorker) {
        match message {
            ToWorker::Want { token, name, offset, length } => {
                assert!(!self.gone.contains(&peer));
                self.wanted.push((peer, key().read(&token).unwrap(), name, offset, length));
                let wanted: u64 = self.wanted.iter().map(|w| w.4).sum();
                let untaken: u64 = self.untaken.iter().map(|p| p.length).sum();
                assert!(wanted + untaken <= 170, "{wanted} wanted and {untaken} untaken");
                assert!(self.wanted.iter().filter(|w| w.0 == peer).count() <= 2);
            }
            ToWorker::Ack { token, answer, .. } if answer != AckWord::Refused => {
                *self.acks.entry(key().read(&token).unwrap()).or_default() += 1;
            }
            // An error may be the last word before a cut, or go to somebody who never said hello.
            ToWorker::Error { .. } | ToWorker::Ack { .. } => {}
            _ => assert!(!self.gone.contains(&peer), "{message:?} to one who is gone"),
        }
    }

    fn forget(&mut self, peer: PeerId) {
        self.gone.insert(peer);
        self.granted.remove(&peer);
        self.sent.remove(&peer);
        self.wanted.retain(|w| w.0 != peer);
    }

    fn check(&self) {
        let per_worker: usize = self.fleet.workers().map(|w| w.leases).sum();
        assert_eq!(per_worker, self.fleet.lease_count(), "a lease is with one worker");
        for (peer, sent) in &self.sent {
            assert!(*sent <= self.granted.get(peer).copied().unwrap_or(0), "more sent than granted");
        }
        for (lease, acks) in &self.acks {
            assert!(*acks <= self.answered.get(lease).copied().unwrap_or(0), "more acknowledged than answered");
        }
        let (inline, wanted) = self.fleet.bytes_held();
        assert!(inline <= 100 && wanted <= 170);
        assert!(self.fleet.workers().all(|w| w.leases <= 2 * 8));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Hello { peer, name, incarnation, holds } => {
                if self.fleet.worker_at(PeerId(peer)).is_none() {
                    self.granted.remove(&PeerId(peer));
                    self.sent.remove(&PeerId(peer));
                }
                let holds = holds_of(&holds);
                self.heard(peer, hello(&format!("w{name}"), &format!("i{incarnation}"), 2, holds), 0);
            }
            Step::Ready(peer, granted) => {
                if self.fleet.worker_at(PeerId(peer)).is_some() {
                    let before = self.granted.entry(PeerId(peer)).or_default();
                    *before = granted.max(*before);
                }
                self.heard(peer, FromWorker::Ready { granted }, 0);
            }
            Step::Begun(peer, task) => self.heard(peer, FromWorker::Begun { token: token(task) }, 0),
            Step::Beat(peer, received, holds) => {
                self.heard(peer, FromWorker::Beat { n: 1, received, holds: holds_of(&holds) }, 0);
            }
            Step::Fetch(peer, task, offset, length) => {
                self.heard(peer, FromWorker::Fetch { token: token(task), offset, length }, 0);
            }
            Step::Result(peer, task, sizes, inline) => {
                let parts: Vec<PartSpec> = sizes.iter().enumerate().map(|(i, s)| part(&format!("p{i}"), *s)).collect();
                let body = if inline { sizes.iter().sum() } else { 0 };
                self.heard(peer, super::support::result(task, parts), body);
            }
            Step::Retryable(peer, task) => {
                let cause = fatal("crash", "SIGKILL");
                self.heard(
                    peer,
                    FromWorker::Retryable { token: token(task), cause, messages: vec![], parts: vec![] },
                    0,
                );
            }
            Step::Release(peer, task) => self.heard(peer, FromWorker::Release { token: token(task) }, 0),
            Step::Part(peer, task, wanted) => self.send_part(peer, task, wanted),
            Step::Bye(peer) => self.heard(peer, FromWorker::Bye, 0),
            Step::Malformed(peer) => self.call(|fleet, now, effects| fleet.malformed(PeerId(peer), now, effects)),
            Step::Forged(peer) => {
                self.heard(peer, FromWorker::Release { token: TokenText("A".repeat(50)) }, 0);
            }
            Step::Departed(peer) => self.depart(peer),
            Step::HandOut(task, takes) => self.hand_out(task, takes),
            Step::Decide(how) => self.decide(how),
            Step::Take => self.take_one(),
            Step::Settle(keeps) => self.settle(keeps),
            Step::Resume => self.call(|fleet, _, effects| fleet.resume(2, effects)),
            Step::Cancel(task) => {
                self.inside.remove(&lease(task));
                self.wanted.retain(|w| w.1 != lease(task));
                self.call(|fleet, _, effects| fleet.cancel(lease(task), "test".into(), effects));
            }
            Step::Full(peer) => {
                let message = ToWorker::Drain;
                self.call(|fleet, now, effects| fleet.full(PeerId(peer), message, now, effects));
            }
            Step::Flush => self.call(|fleet, now, effects| fleet.flush(now, effects)),
            Step::ChunkDone(peer) => self.call(|fleet, now, effects| fleet.chunk_done(PeerId(peer), now, effects)),
            Step::Tick(ms) => {
                self.now.0 += ms;
                self.call(|fleet, now, effects| fleet.tick(now, effects));
            }
        }
    }

    fn depart(&mut self, peer: u64) {
        self.forget(PeerId(peer));
        self.call(|fleet, now, effects| fleet.departed(PeerId(peer), now, effects));
    }

    fn hand_out(&mut self, task: i64, takes: bool) {
        let Some(peer) = self.fleet.next_taker("ocr") else {
            return;
        };
        if !takes {
            return self.call(|fleet, now, effects| fleet.unsent(peer, now, effects));
        }
        if self.fleet.worker_of(lease(task)).is_some() {
            return;
        }
        assert!(self.fleet.sent(peer, lease(task), 150, self.now));
        *self.sent.entry(peer).or_default() += 1;
        self.inside.insert(lease(task));
        self.check();
    }

    fn send_part(&mut self, peer: u64, task: i64, wanted: bool) {
        let is_it = |w: &(PeerId, LeaseId, String, u64, u64)| w.0 == PeerId(peer) && wanted;
        if let Some(at) = self.wanted.iter().position(is_it) {
            let (_, lease, name, offset, length) = self.wanted.remove(at);
            let before = self.untaken.len();
            self.heard(peer, FromWorker::Part { token: key().sign(lease), name, offset }, length);
            assert_eq!(self.untaken.len(), before + 1, "what was wanted arrives");
        } else {
            let before = self.untaken.len();
            let name = "result".to_owned();
            self.heard(peer, FromWorker::Part { token: token(task), name, offset: 0 }, 1000);
            assert_eq!(self.untaken.len(), before, "what was not wanted does not");
        }
    }

    fn decide(&mut self, how: u8) {
        if let Some(lease) = self.whole.pop() {
            return self.ack(lease);
        }
        let Some(answer) = self.answers.pop_front() else {
            return;
        };
        match how {
            0 => {
                // It will be pushed again, and is acknowledged then.
                *self.answered.get_mut(&answer.lease).unwrap() -= 1;
                self.fleet.defer(answer);
                self.check();
            }
            1 if answer.bytes == AnswerBytes::Wanted => {
                self.call(|fleet, now, effects| fleet.want(answer.lease, now, effects));
            }
            _ => self.ack(answer.lease),
        }
    }

    fn ack(&mut self, lease: LeaseId) {
        self.inside.remove(&lease);
        self.wanted.retain(|w| w.1 != lease);
        self.call(|fleet, _, effects| fleet.ack(lease, AckWord::Stored, None, effects));
    }

    fn take_one(&mut self) {
        if !self.untaken.is_empty() {
            let piece = self.untaken.remove(0);
            self.call(|fleet, now, effects| fleet.taken(&piece, now, effects));
        }
    }

    fn settle(&mut self, keeps: bool) {
        let Some((worker, leases)) = self.claims.pop() else {
            return;
        };
        let kept: Vec<_> = leases.iter().map(|lease| Kept { lease: *lease, size: 150 }).collect();
        if keeps {
            self.inside.extend(&leases);
            self.call(|fleet, _, effects| fleet.settle(&worker, &kept, &[], effects));
        } else {
            self.call(|fleet, _, effects| fleet.settle(&worker, &[], &leases, effects));
        }
    }

    /// Everybody leaves, the driver does what it still has to do, and time passes.
    fn end(mut self) {
        for peer in 1..5 {
            self.depart(peer);
        }
        while !self.claims.is_empty() {
            self.settle(false);
        }
        while !self.untaken.is_empty() {
            self.take_one();
        }
        for answer in std::mem::take(&mut self.answers) {
            self.ack(answer.lease);
        }
        for lease in std::mem::take(&mut self.whole) {
            self.ack(lease);
        }
        for _ in 0..40 {
            self.now.0 += 250;
            self.call(|fleet, now, effects| fleet.tick(now, effects));
        }
        assert_eq!(self.fleet.workers().count(), 0, "nobody stays");
        assert_eq!(self.fleet.lease_count(), 0, "no lease stays");
        assert_eq!(self.fleet.bytes_held().1, 0, "nothing is wanted of nobody");
        assert_eq!(self.fleet.deferred(), 0);
        assert_eq!(self.fleet.wanted_services().count(), 0);
        assert_eq!(self.joined.len(), 0, "everybody was lost or left");
        assert_eq!(self.inside, BTreeSet::new(), "every lease was settled or reported");
    }
}

fn holds_of(holds: &[(i64, HoldState)]) -> Vec<Hold> {
    holds.iter().take(8).map(|(task, state)| super::support::hold(*task, *state)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // Rules A2, D1, L9. Case F22.
    #[test]
    fn no_conversation_breaks_what_must_always_hold(steps in proptest::collection::vec(any_step(), 1..250)) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        model.end();
    }
}
