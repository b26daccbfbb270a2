//! The worker's side of the conversation, pure: (event, now) → effects.
//!
//! **Owns** what this worker holds and how far each task is, which slot works on what, the credit of the connection, its
//! beats, and when a connection is given up and built anew. **Refuses to know** sockets, files, threads, clocks and
//! randomness: bytes pass through it unread, and the jitter comes from a seed.
//!
//! **Invariants**
//! - `begun` is an effect before the `Start` of its task, and no task starts while there is no connection to say so.
//! - Open credit and what waits or runs together are never more than slots and prefetch.
//! - What is finished is held, and sent again on each new connection, until an answer says what became of it (D7).
//! - A slot works on one task; it is free again only once its work has ended, whatever the dispatcher said meanwhile.
//!
//! Read [`Event`] and [`Effect`] first, then [`Session::handle`].

mod connection;
mod held;
mod turns;
mod values;

pub use values::{
    AnswerCounts, Effect, EndReason, Ended, Event, Note, SessionConfig, SessionCounts, StopLevel, TaskInput, TaskOrder,
};

use crate::backoff::Backoff;
use crate::cancel::CancelReason;
use connection::{Connection, Link};
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_core::wire::{ErrorCode, FromWorker, Hold, HoldState, PROTO, ToWorker, TokenText};
use held::{Held, Holdings, Stage};
use turns::Turns;

/// How long a connection may take to come up, and a `hello` to be answered.
const PATIENCE: SpanMs = SpanMs(10_000);
/// How long a connection may take to come up where there is another dispatcher to turn to.
const PATIENCE_OF_SEVERAL: SpanMs = SpanMs(2_000);
/// For how long answers are waited for at most where they are not worth a longer wait.
const FAREWELL: SpanMs = SpanMs(5_000);
/// For how long nothing new is asked for after an input could not be written down here.
const BREATHER: SpanMs = SpanMs(5_000);
/// How many pieces of inputs may be asked for at once (design.md, "two outstanding per connection").
const FETCHES: usize = 2;

/// One worker's conversation with its dispatcher.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    link: Link,
    turns: Turns,
    backoff: Backoff,
    holdings: Holdings,
    slots: Vec<Slot>,
    stop: Option<StopLevel>,
    /// Since when every slot is free, once stopping has begun.
    free_since: Option<TimeMs>,
    /// Until when nothing new is asked for.
    breather: Option<TimeMs>,
    ended: bool,
    counts: SessionCounts,
}

/// What a slot is at.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    /// It works, and its time limit is over at this time.
    Busy {
        until: TimeMs,
    },
    /// It was told to stop, and has not yet.
    Stopping,
}

impl Session {
    /// A session that holds the `finished` results of an earlier life, each with its size in bytes. It asks for its first
    /// connection at its first event.
    #[must_use]
    pub fn new(config: SessionConfig, finished: Vec<(TokenText, u64)>, now: TimeMs) -> Self {
        let mut holdings = Holdings::default();
        for (token, bytes) in finished {
            holdings.insert(token, Held { stage: Stage::Finished { bytes }, order: None });
        }
        Self {
            link: Link::Waiting { until: now },
            turns: Turns::new(config.endpoints),
            backoff: Backoff::new(config.seed),
            holdings,
            slots: (0..config.slots).map(|_| Slot::Free).collect(),
            stop: None,
            free_since: None,
            breather: None,
            ended: false,
            counts: SessionCounts::default(),
            config,
        }
    }

    /// Takes one event and appends what is to be done about it to `effects`, in order.
    pub fn handle(&mut self, event: Event, now: TimeMs, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        match event {
            Event::Tick => {}
            Event::Up => self.greet(now, effects),
            Event::Down => self.link_broke(now, effects),
            Event::Received { message, body } => self.received(message, body, now, effects),
            Event::Ended { slot, token, how } => self.work_ended(slot, &token, how, effects),
            Event::Written { token, upto } => self.holdings.written(&token, upto),
            Event::InputFailed { token, why } => self.input_failed(&token, why, now, effects),
            Event::Stop(level) => self.stop(level, effects),
        }
        self.keep_time(now, effects);
        self.fetch(effects);
        self.fill_slots(now, effects);
        self.ask(now, effects);
        self.leave_if_through(now, effects);
    }

    /// When [`Event::Tick`] is due at the latest; `None` where only events count.
    #[must_use]
    pub fn wake_at(&self) -> Option<TimeMs> {
        let limits =
            self.slots.iter().filter_map(|slot| if let Slot::Busy { until } = slot { Some(*until) } else { None });
        limits.chain(self.link.wake_at()).chain(self.leave_at()).chain(self.breather).min()
    }

    /// What happened so far, in numbers.
    #[must_use]
    pub fn counts(&self) -> SessionCounts {
        SessionCounts {
            unanswered: self.holdings.finished_count() as u64,
            unconfirmed: self.holdings.releasing().count() as u64,
            ..self.counts.clone()
        }
    }

    /// Up to how many bytes travel inside a message, as the dispatcher of this connection said; 0 without one.
    #[must_use]
    pub fn inline_max(&self) -> u64 {
        self.link.open().map_or(0, |open| open.inline_max)
    }

    /// Whether the result of `token` waits for an answer.
    #[must_use]
    pub fn is_finished(&self, token: &TokenText) -> bool {
        self.holdings.get(token).is_some_and(|held| matches!(held.stage, Stage::Finished { .. }))
    }

    // --- connection ---

    fn greet(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        if !matches!(self.link, Link::Connecting { .. }) {
            return;
        }
        self.link = Link::Greeting { until: now.after(PATIENCE) };
        self.counts.connections += 1;
        effects.push(Effect::Send(FromWorker::Hello {
            proto: PROTO,
            name: self.config.name.clone(),
            incarnation: self.config.incarnation.clone(),
            services: self.config.services.clone(),
            slots: u32::try_from(self.slots.len()).unwrap_or(u32::MAX),
            holds: self.holdings.list(),
        }));
    }

    /// The connection is gone. One that worked is built anew to the same dispatcher first, which is the one that knows
    /// this worker's tasks.
    fn link_broke(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        match self.link {
            Link::Waiting { .. } => {}
            Link::Open(_) => self.wait_for_link(true, now, effects),
            Link::Connecting { .. } | Link::Greeting { .. } => self.move_on(now, effects),
        }
    }

    /// Gives up a connection that is of no use: it is the next dispatcher's turn.
    fn move_on(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        if !matches!(self.link, Link::Waiting { .. }) {
            let is_round_over = self.turns.failed();
            self.wait_for_link(is_round_over, now, effects);
        }
    }

    /// Gives the connection up. The next one is built after a jittered wait, which gets longer only once every dispatcher
    /// had its turn.
    fn wait_for_link(&mut self, is_round_over: bool, now: TimeMs, effects: &mut Vec<Effect>) {
        let wait = if is_round_over { self.backoff.next() } else { self.backoff.short() };
        self.link = Link::Waiting { until: now.after(wait) };
        self.holdings.forget_fetches();
        effects.push(Effect::Disconnect);
    }

    /// Whatever is due by the clock: connections to build or give up, beats, time limits.
    fn keep_time(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        self.breather = self.breather.filter(|until| *until > now);
        for (slot, place) in self.slots.iter_mut().enumerate() {
            if matches!(place, Slot::Busy { until } if *until <= now) {
                *place = Slot::Stopping;
                effects.push(Effect::Abort { slot, why: CancelReason::TimeLimit });
            }
        }
        match &mut self.link {
            Link::Waiting { until } if *until <= now => {
                let patience = if self.turns.has_others() { PATIENCE_OF_SEVERAL } else { PATIENCE };
                self.link = Link::Connecting { until: now.after(patience) };
                effects.push(Effect::Connect { endpoint: self.turns.at() });
            }
            Link::Connecting { until } | Link::Greeting { until } if *until <= now => {
                effects.push(Effect::Note(Note::NoAnswer));
                self.move_on(now, effects);
            }
            Link::Open(open) if open.next_beat <= now => match open.beat(now) {
                Some((n, received)) => {
                    effects.push(Effect::Send(FromWorker::Beat { n, received, holds: self.holdings.list() }));
                }
                None => {
                    effects.push(Effect::Note(Note::BeatsUnanswered));
                    self.move_on(now, effects);
                }
            },
            _ => {}
        }
    }

    /// Asks for as many tasks as there are slots, and a few that wait beside them.
    ///
    /// Open credit is not topped up for each single task where a few are prefetched: half of them may be used up first,
    /// which never leaves a slot idle and saves the messages.
    fn ask(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        let may_ask = self.stop.is_none()
            && self.breather.is_none_or(|until| until <= now)
            && self.holdings.finished_count() < self.config.outbox_max_results
            && self.holdings.finished_bytes() < self.config.outbox_max_bytes;
        let (Link::Open(open), true) = (&mut self.link, may_ask) else { return };
        let busy = self.slots.iter().filter(|slot| !slot.is_free()).count() as u64;
        let target = u64::from(self.config.slots) + u64::from(self.config.prefetch);
        let wanted = target.saturating_sub(busy + self.holdings.waiting_count() as u64);
        let granted = open.received.saturating_add(wanted);
        let step = u64::from(self.config.prefetch / 2) + 1;
        if !open.draining && granted >= open.granted.saturating_add(step) {
            open.granted = granted;
            effects.push(Effect::Send(FromWorker::Ready { granted }));
        }
    }

    // --- what the dispatcher says ---

    fn received(&mut self, message: ToWorker, body: bytes::Bytes, now: TimeMs, effects: &mut Vec<Effect>) {
        match message {
            ToWorker::Welcome { beat_ms, inline_max, chunk_max, drop, .. } => {
                self.welcomed(Connection::new(beat_ms, inline_max, chunk_max, now), &drop, effects);
            }
            ToWorker::Task { token, task, service, corpus, entry, size, limit_ms, attempt } => {
                let order = TaskOrder { task, service, corpus, entry, size, limit_ms: SpanMs(limit_ms), attempt };
                self.task_came(token, order, body, effects);
            }
            ToWorker::Chunk { token, offset } => {
                if self.holdings.chunk_came(&token, offset, body.len() as u64) {
                    effects.push(Effect::Write { token, offset, bytes: body });
                }
            }
            ToWorker::Want { token, name, offset, length } => {
                let chunk_max = self.link.open().map_or(0, |open| open.chunk_max);
                if self.is_finished(&token) {
                    effects.push(Effect::SendPart { token, name, offset, length: length.min(chunk_max) });
                }
            }
            ToWorker::Ack { token, answer, why } => {
                if self.holdings.get(&token).is_some_and(|held| held.stage.awaits_answer()) {
                    self.counts.answers.count(answer);
                    if let Some(why) = why {
                        effects.push(Effect::Note(Note::Answered { token: token.clone(), answer, why }));
                    }
                    self.forget(&token, CancelReason::Unknown, effects);
                }
            }
            ToWorker::Beat { n, unknown } => {
                if let Link::Open(open) = &mut self.link {
                    open.answered(n);
                }
                unknown.iter().for_each(|token| self.forget(token, CancelReason::Unknown, effects));
            }
            ToWorker::Cancel { token, why: _ } => {
                self.counts.cancelled += u64::from(self.holdings.get(&token).is_some());
                self.forget(&token, CancelReason::Cancelled, effects);
            }
            ToWorker::Drain => {
                if let Link::Open(open) = &mut self.link {
                    open.draining = true;
                }
                self.release_waiting(effects);
            }
            ToWorker::Error { code, message } => self.refused(code, message, now, effects),
        }
    }

    fn welcomed(&mut self, connection: Connection, drop: &[TokenText], effects: &mut Vec<Effect>) {
        if !matches!(self.link, Link::Greeting { .. }) {
            return;
        }
        self.link = Link::Open(connection);
        self.backoff.reset();
        self.turns.welcomed();
        drop.iter().for_each(|token| self.forget(token, CancelReason::Unknown, effects));
        for hold in self.holdings.list() {
            match self.holdings.get(&hold.token).map(|held| &held.stage) {
                Some(Stage::Finished { .. }) => effects.push(Effect::SendFinished { token: hold.token }),
                Some(Stage::Releasing { .. }) => effects.push(Effect::Send(FromWorker::Release { token: hold.token })),
                _ => {}
            }
        }
    }

    fn task_came(&mut self, token: TokenText, order: TaskOrder, body: bytes::Bytes, effects: &mut Vec<Effect>) {
        let Link::Open(open) = &mut self.link else { return };
        open.received = open.received.saturating_add(1);
        if self.holdings.get(&token).is_some() {
            return;
        }
        self.counts.received += 1;
        if self.stop.is_some() || open.draining {
            self.release(token, false, effects);
            return;
        }
        let stage = if body.len() as u64 == order.size {
            Stage::Queued { input: TaskInput::Inline(body) }
        } else {
            Stage::fetching(order.size)
        };
        self.holdings.insert(token, Held { stage, order: Some(order) });
    }

    fn refused(&mut self, code: ErrorCode, message: String, now: TimeMs, effects: &mut Vec<Effect>) {
        effects.push(Effect::Note(Note::Error { code, message: message.clone() }));
        match code {
            ErrorCode::Version if !self.turns.refused() => self.move_on(now, effects),
            ErrorCode::Version => {
                self.ended = true;
                effects.push(Effect::End(EndReason::Refused { message }));
            }
            ErrorCode::NoHello | ErrorCode::Limit => self.move_on(now, effects),
            ErrorCode::Malformed | ErrorCode::BadToken | ErrorCode::NoService => {}
        }
    }

    // --- tasks ---

    /// Asks for the pieces of inputs that did not come with their task, oldest task first.
    fn fetch(&mut self, effects: &mut Vec<Effect>) {
        let Link::Open(open) = &self.link else { return };
        let chunk_max = open.chunk_max;
        while self.holdings.fetches() < FETCHES
            && let Some((token, offset, length)) = self.holdings.next_fetch(chunk_max)
        {
            effects.push(Effect::Send(FromWorker::Fetch { token, offset, length }));
        }
    }

    /// Gives the oldest tasks whose input is here to the free slots. `begun` goes first, so that a task that kills this
    /// process at once has been told of (rules A2, A4; case F19).
    fn fill_slots(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        if self.stop.is_some() || !matches!(&self.link, Link::Open(open) if !open.draining) {
            return;
        }
        for (slot, place) in self.slots.iter_mut().enumerate().filter(|(_, place)| place.is_free()) {
            let Some((token, order, input)) = self.holdings.begin_next(slot) else { return };
            *place = Slot::Busy { until: now.after(order.limit_ms) };
            effects.push(Effect::Send(FromWorker::Begun { token: token.clone() }));
            effects.push(Effect::Start { slot, token, order: Box::new(order), input });
        }
    }

    fn work_ended(&mut self, slot: usize, token: &TokenText, how: Ended, effects: &mut Vec<Effect>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Slot::Free;
        }
        let ours =
            matches!(self.holdings.get(token), Some(Held { stage: Stage::Running { slot: at }, .. }) if *at == slot);
        match how {
            Ended::Finished { bytes } if ours => {
                self.counts.finished += 1;
                self.holdings.set(token, Stage::Finished { bytes });
                if self.link.open().is_some() {
                    effects.push(Effect::SendFinished { token: token.clone() });
                }
            }
            Ended::Finished { .. } => effects.push(Effect::Forget { token: token.clone() }),
            Ended::GivenBack if ours => self.release(token.clone(), true, effects),
            Ended::GivenBack => {}
        }
    }

    /// The input could not be written down here: the task goes back, and others are left alone for a moment.
    fn input_failed(&mut self, token: &TokenText, why: String, now: TimeMs, effects: &mut Vec<Effect>) {
        if self.holdings.get(token).is_some_and(|held| held.stage.is_waiting()) {
            effects.push(Effect::Note(Note::InputFailed { token: token.clone(), why }));
            self.breather = Some(now.after(BREATHER));
            effects.push(Effect::Forget { token: token.clone() });
            self.release(token.clone(), false, effects);
        }
    }

    /// Gives a task back. It stays among the holds until that is answered, so that it is told again where the
    /// connection is lost meanwhile.
    fn release(&mut self, token: TokenText, began: bool, effects: &mut Vec<Effect>) {
        self.counts.released += 1;
        if self.link.open().is_some() {
            effects.push(Effect::Send(FromWorker::Release { token: token.clone() }));
        }
        self.holdings.insert(token, Held { stage: Stage::Releasing { began }, order: None });
    }

    fn release_waiting(&mut self, effects: &mut Vec<Effect>) {
        for token in self.holdings.waiting() {
            effects.push(Effect::Forget { token: token.clone() });
            self.release(token, false, effects);
        }
    }

    /// Stops work on the task, if any, and forgets it.
    fn forget(&mut self, token: &TokenText, why: CancelReason, effects: &mut Vec<Effect>) {
        let Some(held) = self.holdings.remove(token) else { return };
        if let Stage::Running { slot } = held.stage {
            if let Some(place) = self.slots.get_mut(slot) {
                *place = Slot::Stopping;
            }
            effects.push(Effect::Abort { slot, why });
        }
        effects.push(Effect::Forget { token: token.clone() });
    }

    // --- the end ---

    fn stop(&mut self, level: StopLevel, effects: &mut Vec<Effect>) {
        if self.stop >= Some(level) {
            return;
        }
        self.stop = Some(level);
        self.release_waiting(effects);
        if level == StopLevel::Now {
            for (slot, place) in self.slots.iter_mut().enumerate() {
                if !place.is_free() {
                    *place = Slot::Stopping;
                    effects.push(Effect::Abort { slot, why: CancelReason::Stopping });
                }
            }
        }
    }

    /// When nothing is waited for any more. A worker that ends at once does not wait for long, and neither does one whose
    /// dispatcher is away where all that is left survives it.
    fn leave_at(&self) -> Option<TimeMs> {
        let is_safe = self.config.keeps_results && self.holdings.len() == self.holdings.finished_count();
        let is_short = self.stop == Some(StopLevel::Now) || (is_safe && self.link.open().is_none());
        let linger = if is_short { self.config.linger_ms.min(FAREWELL) } else { self.config.linger_ms };
        self.free_since.map(|since| since.after(linger))
    }

    /// Leaves once every slot is free and everything was answered, or has been waited for long enough.
    fn leave_if_through(&mut self, now: TimeMs, effects: &mut Vec<Effect>) {
        if self.stop.is_none() || self.ended || !self.slots.iter().all(Slot::is_free) {
            return;
        }
        self.free_since.get_or_insert(now);
        if self.holdings.is_empty() || self.leave_at().is_some_and(|at| at <= now) {
            self.ended = true;
            if self.link.open().is_some() {
                effects.push(Effect::Send(FromWorker::Bye));
            }
            effects.push(Effect::End(EndReason::Stopped));
        }
    }
}

impl Slot {
    const fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

impl Stage {
    /// The word for this stage in a list of holds.
    const fn state(&self) -> HoldState {
        match self {
            Self::Fetching { .. } | Self::Queued { .. } | Self::Releasing { began: false } => HoldState::Queued,
            Self::Running { .. } | Self::Releasing { began: true } => HoldState::Running,
            Self::Finished { .. } => HoldState::Finished,
        }
    }
}

impl Holdings {
    /// Every task that is held, as `hello` and the beats tell it.
    fn list(&self) -> Vec<Hold> {
        self.iter().map(|(token, held)| Hold { token: token.clone(), state: held.stage.state() }).collect()
    }
}

#[cfg(test)]
mod tests;
