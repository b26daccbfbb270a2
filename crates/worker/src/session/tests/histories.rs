//! Random histories against a model that only counts.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// One thing that may happen. Numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Down,
    Up,
    Hand { is_large: bool },
    Serve,
    Write,
    Finish(usize),
    GiveBack(usize),
    Ack(usize),
    Unknown(usize),
    Cancel(usize),
    AnswerBeat,
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0..64_usize;
    let step = prop_oneof![
        2 => (0..3_000_u64).prop_map(Step::Wait),
        1 => Just(Step::Down),
        4 => Just(Step::Up),
        8 => any::<bool>().prop_map(|is_large| Step::Hand { is_large }),
        4 => Just(Step::Serve),
        4 => Just(Step::Write),
        6 => n.clone().prop_map(Step::Finish),
        1 => n.clone().prop_map(Step::GiveBack),
        4 => n.clone().prop_map(Step::Ack),
        1 => n.clone().prop_map(Step::Unknown),
        1 => n.prop_map(Step::Cancel),
        2 => Just(Step::AnswerBeat),
        1 => Just(Step::Drain),
    ];
    prop::collection::vec(step, 1..200)
}

/// What an observer of the conversation knows.
struct Model {
    talk: Talk,
    target: u64,
    /// Connected and welcomed.
    open: bool,
    connecting: bool,
    granted: u64,
    handed: u64,
    names: u64,
    beat: u64,
    /// What each slot works on.
    slots: Vec<Option<String>>,
    held: BTreeSet<String>,
    finished: BTreeSet<String>,
    begun: BTreeSet<String>,
    fetches: Vec<(String, u64, u64)>,
    writes: Vec<(String, u64)>,
}

impl Model {
    fn new(slots: u32, prefetch: u32) -> Self {
        Self {
            talk: Talk::new(config(slots, prefetch)),
            target: u64::from(slots + prefetch),
            open: false,
            connecting: false,
            granted: 0,
            handed: 0,
            names: 0,
            beat: 0,
            slots: vec![None; slots as usize],
            held: BTreeSet::new(),
            finished: BTreeSet::new(),
            begun: BTreeSet::new(),
            fetches: Vec::new(),
            writes: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => {
                self.talk.now = self.talk.now.after(SpanMs(*ms));
                self.event(Event::Tick);
            }
            Step::Down => self.event(Event::Down),
            Step::Up if self.connecting => {
                self.connecting = false;
                self.event(Event::Up);
                self.open = true;
                let welcome = ToWorker::Welcome {
                    beat_ms: 2_000,
                    dead_after_ms: 30_000,
                    inline_max: 10,
                    chunk_max: 1_024,
                    keep: Vec::new(),
                    drop: Vec::new(),
                };
                self.hear(welcome, Bytes::new());
            }
            Step::Hand { is_large } if self.open && self.handed < self.granted => {
                self.handed += 1;
                self.names += 1;
                let name = self.names.to_string();
                self.held.insert(name.clone());
                let (size, body) = if *is_large { (3_000, Bytes::new()) } else { (2, Bytes::from_static(b"hi")) };
                self.hear(task(&name, size), body);
            }
            Step::Serve if self.open && !self.fetches.is_empty() => {
                let (name, offset, length) = self.fetches.remove(0);
                let body = vec![0; usize::try_from(length).unwrap()].into();
                self.hear(ToWorker::Chunk { token: token(&name), offset }, body);
            }
            Step::Write if !self.writes.is_empty() => {
                let (name, upto) = self.writes.remove(0);
                self.event(Event::Written { token: token(&name), upto });
            }
            Step::Finish(n) => self.end(*n, Ended::Finished { bytes: 5 }),
            Step::GiveBack(n) => self.end(*n, Ended::GivenBack),
            Step::Ack(n) if self.open && !self.finished.is_empty() => {
                let name = self.finished.iter().nth(n % self.finished.len()).unwrap().clone();
                self.gone(&name);
                self.hear(ack(&name, AckWord::Stored), Bytes::new());
            }
            Step::Unknown(n) if self.open && !self.held.is_empty() => {
                let name = self.held.iter().nth(n % self.held.len()).unwrap().clone();
                self.gone(&name);
                self.hear(ToWorker::Beat { n: 0, unknown: vec![token(&name)] }, Bytes::new());
            }
            Step::Cancel(n) if self.open && !self.held.is_empty() => {
                let name = self.held.iter().nth(n % self.held.len()).unwrap().clone();
                self.gone(&name);
                self.hear(ToWorker::Cancel { token: token(&name), why: String::new() }, Bytes::new());
            }
            Step::AnswerBeat if self.open => {
                let n = self.beat;
                self.hear(ToWorker::Beat { n, unknown: Vec::new() }, Bytes::new());
            }
            Step::Drain if self.open => self.hear(ToWorker::Drain, Bytes::new()),
            _ => {}
        }
        self.check();
    }

    fn gone(&mut self, name: &str) {
        self.held.remove(name);
        self.finished.remove(name);
    }

    fn end(&mut self, n: usize, how: Ended) {
        let busy: Vec<usize> = (0..self.slots.len()).filter(|slot| self.slots[*slot].is_some()).collect();
        let Some(slot) = busy.get(n % busy.len().max(1)).copied() else { return };
        let name = self.slots[slot].take().unwrap();
        if matches!(how, Ended::Finished { .. }) && self.held.contains(&name) {
            self.finished.insert(name.clone());
        }
        self.event(Event::Ended { slot, token: token(&name), how });
    }

    fn hear(&mut self, message: ToWorker, body: Bytes) {
        self.event(Event::Received { message, body });
    }

    fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.talk.session.handle(event, self.talk.now, &mut effects);
        for effect in effects {
            self.observe(effect);
        }
    }

    fn observe(&mut self, effect: Effect) {
        match effect {
            Effect::Connect { .. } => self.connecting = true,
            Effect::Disconnect => {
                (self.open, self.connecting, self.granted, self.handed, self.beat) = (false, false, 0, 0, 0);
                self.fetches.clear();
            }
            Effect::Send(FromWorker::Hello { holds, .. }) => {
                assert!(!self.open, "hello comes once");
                self.is_what_is_held(&holds);
            }
            Effect::Send(message) => {
                assert!(self.open, "nothing is said before welcome");
                self.heard(message);
            }
            Effect::SendFinished { token } => {
                assert!(self.open && self.finished.contains(&token.0));
            }
            Effect::Start { slot, token, .. } => {
                assert!(self.begun.contains(&token.0), "begun comes first");
                assert!(self.slots[slot].replace(token.0).is_none(), "a slot works on one task");
            }
            Effect::Abort { slot, .. } => assert!(self.slots[slot].is_some(), "only work under way is told to stop"),
            Effect::Write { token, offset, bytes } => self.writes.push((token.0, offset + bytes.len() as u64)),
            Effect::Forget { token } => {
                assert!(!self.finished.contains(&token.0), "a result is kept until it is answered for");
                self.writes.retain(|(name, _)| *name != token.0);
                // Neither side goes on with the pieces of a task that is over.
                self.fetches.retain(|(name, ..)| *name != token.0);
            }
            Effect::SendPart { .. } | Effect::Note(_) | Effect::End(_) => {}
        }
    }

    fn heard(&mut self, message: FromWorker) {
        match message {
            FromWorker::Ready { granted } => {
                assert!(granted > self.granted, "credit only grows");
                self.granted = granted;
            }
            FromWorker::Begun { token } => assert!(self.begun.insert(token.0), "a task begins once"),
            FromWorker::Beat { n, received, holds } => {
                assert_eq!((n, received), (self.beat + 1, self.handed));
                self.beat = n;
                self.is_what_is_held(&holds);
            }
            FromWorker::Fetch { token, offset, length } => {
                self.fetches.push((token.0, offset, length));
                assert!(self.fetches.len() <= 2, "two pieces are under way at most");
            }
            _ => {}
        }
    }

    fn is_what_is_held(&self, holds: &[Hold]) {
        let told: BTreeSet<String> = holds.iter().map(|hold| hold.token.0.clone()).collect();
        assert_eq!(told, self.held, "holds are what was handed and not answered");
        let finished = holds.iter().filter(|hold| hold.state == HoldState::Finished).count();
        assert_eq!(finished, self.finished.len());
    }

    fn check(&self) {
        let busy = self.slots.iter().flatten().count() as u64;
        let waiting = self.talk.session.holdings.waiting_count() as u64;
        assert!(self.granted - self.handed + busy + waiting <= self.target, "never more than it has room for");
        assert_eq!(self.talk.session.holdings.finished_count(), self.finished.len());
        assert!(self.talk.session.wake_at().is_some(), "there is always something to wake for");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    // Rules D7, A2.
    #[test]
    fn whatever_happens_the_conversation_keeps_its_rules(slots in 1..4_u32, prefetch in 0..4_u32, steps in steps()) {
        let mut model = Model::new(slots, prefetch);
        for step in &steps {
            model.step(step);
        }
    }

    // Rule S1.
    #[test]
    fn whatever_happened_before_a_worker_that_is_told_to_stop_ends(slots in 1..4_u32, steps in steps()) {
        let mut model = Model::new(slots, 1);
        for step in &steps {
            model.step(step);
        }
        model.event(Event::Stop(StopLevel::Now));
        while model.slots.iter().any(Option::is_some) {
            model.end(0, Ended::GivenBack);
        }
        model.step(&Step::Wait(5_000));
        prop_assert!(model.talk.session.ended);
    }
}
