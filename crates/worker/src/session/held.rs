//! What a worker holds: each task from its arrival until it is answered or forgotten, and how far it is.
//!
//! Owns the order of the tasks that wait, and the counts that credit depends on. Knows nothing of connections.

use super::values::{TaskInput, TaskOrder};
use dispatcher_core::wire::TokenText;
use std::collections::{BTreeMap, VecDeque};

/// One task.
#[derive(Debug)]
pub(super) struct Held {
    /// How far it is.
    pub(super) stage: Stage,
    /// What is to be done, until it has begun.
    pub(super) order: Option<TaskOrder>,
}

/// How far a task is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its input is being fetched: all before `asked` was asked for, all before `came` came, all before `written` is
    /// written down, in `requests` pieces that are under way.
    Fetching { size: u64, asked: u64, came: u64, written: u64, requests: VecDeque<u64> },
    /// It waits for a slot.
    Queued { input: TaskInput },
    /// A slot works on it.
    Running { slot: usize },
    /// Its result or cause waits for an answer.
    Finished { bytes: u64 },
    /// It was given back and waits for an answer.
    Releasing { began: bool },
}

/// All tasks. Waiting is what has not begun and was not given back.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    by_token: BTreeMap<TokenText, Held>,
    /// The tokens of all that wait, oldest first; may also name some that wait no longer.
    queue: VecDeque<TokenText>,
    waiting: usize,
    finished: usize,
    finished_bytes: u64,
}

impl Stage {
    /// The input of `size` bytes has to be fetched from its beginning.
    pub(super) const fn fetching(size: u64) -> Self {
        Self::Fetching { size, asked: 0, came: 0, written: 0, requests: VecDeque::new() }
    }

    /// Whether an `ack` may come for it.
    pub(super) const fn awaits_answer(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Releasing { .. })
    }

    /// Whether it has not begun and was not given back.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Fetching { .. } | Self::Queued { .. })
    }
}

impl Holdings {
    pub(super) fn get(&self, token: &TokenText) -> Option<&Held> {
        self.by_token.get(token)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TokenText, &Held)> {
        self.by_token.iter()
    }

    /// The tokens of all that was given back and not answered.
    pub(super) fn releasing(&self) -> impl Iterator<Item = &TokenText> {
        self.iter().filter(|(_, held)| matches!(held.stage, Stage::Releasing { .. })).map(|(token, _)| token)
    }

    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    /// How many wait.
    pub(super) const fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// How many are finished.
    pub(super) const fn finished_count(&self) -> usize {
        self.finished
    }

    /// How many bytes those that are finished have.
    pub(super) const fn finished_bytes(&self) -> u64 {
        self.finished_bytes
    }

    /// The tokens of all that wait, oldest first.
    pub(super) fn waiting(&self) -> Vec<TokenText> {
        self.queue.iter().filter(|token| self.get(token).is_some_and(|held| held.stage.is_waiting())).cloned().collect()
    }

    /// Takes a task in, in place of what was known of it.
    pub(super) fn insert(&mut self, token: TokenText, held: Held) {
        self.remove(&token);
        if held.stage.is_waiting() {
            self.queue.push_back(token.clone());
        }
        self.count(&held.stage, true);
        self.by_token.insert(token, held);
    }

    /// Moves a task to another stage.
    pub(super) fn set(&mut self, token: &TokenText, stage: Stage) {
        if let Some(held) = self.remove(token) {
            self.insert(token.clone(), Held { stage, order: held.order });
        }
    }

    pub(super) fn remove(&mut self, token: &TokenText) -> Option<Held> {
        let held = self.by_token.remove(token)?;
        self.count(&held.stage, false);
        if held.stage.is_waiting() {
            self.queue.retain(|other| other != token);
        }
        Some(held)
    }

    fn count(&mut self, stage: &Stage, comes: bool) {
        let add = |n: &mut usize| *n = if comes { *n + 1 } else { n.saturating_sub(1) };
        match stage {
            Stage::Fetching { .. } | Stage::Queued { .. } => add(&mut self.waiting),
            Stage::Finished { bytes } => {
                add(&mut self.finished);
                self.finished_bytes = if comes {
                    self.finished_bytes.saturating_add(*bytes)
                } else {
                    self.finished_bytes.saturating_sub(*bytes)
                };
            }
            Stage::Running { .. } | Stage::Releasing { .. } => {}
        }
    }

    /// Lets `slot` begin the oldest task whose input is here.
    pub(super) fn begin_next(&mut self, slot: usize) -> Option<(TokenText, TaskOrder, TaskInput)> {
        let ready = |token: &&TokenText| matches!(self.get(token), Some(Held { stage: Stage::Queued { .. }, .. }));
        let token = self.queue.iter().find(ready)?.clone();
        let Held { stage: Stage::Queued { input }, order: Some(order) } = self.remove(&token)? else { return None };
        self.insert(token.clone(), Held { stage: Stage::Running { slot }, order: None });
        Some((token, order, input))
    }

    // --- inputs that are fetched ---

    /// How many pieces are asked for and have not come.
    pub(super) fn fetches(&self) -> usize {
        let requests = |token| match self.get(token).map(|held| &held.stage) {
            Some(Stage::Fetching { requests, .. }) => requests.len(),
            _ => 0,
        };
        self.queue.iter().map(requests).sum()
    }

    /// The next piece to ask for: of the oldest task that is not asked for to its end. What came and is not written down
    /// yet holds the next piece back, so that a slow disk bounds the memory too.
    pub(super) fn next_fetch(&mut self, chunk_max: u64) -> Option<(TokenText, u64, u64)> {
        for token in &self.queue {
            let Some(Held { stage: Stage::Fetching { size, asked, written, requests, .. }, .. }) =
                self.by_token.get_mut(token)
            else {
                continue;
            };
            let length = chunk_max.min(*size - *asked);
            if length > 0 && *asked - *written <= chunk_max.saturating_mul(2) {
                let offset = *asked;
                *asked += length;
                requests.push_back(offset);
                return Some((token.clone(), offset, length));
            }
        }
        None
    }

    /// Whether a piece that came is the next one and is to be written down. A shorter piece than was asked for makes the
    /// rest be asked for again.
    pub(super) fn chunk_came(&mut self, token: &TokenText, offset: u64, length: u64) -> bool {
        let Some(Held { stage: Stage::Fetching { size, asked, came, requests, .. }, .. }) =
            self.by_token.get_mut(token)
        else {
            return false;
        };
        if requests.front() != Some(&offset) {
            return false;
        }
        requests.pop_front();
        let fits = offset == *came && length > 0 && length <= *size - *came;
        if fits {
            *came += length;
        }
        if requests.is_empty() {
            *asked = *came;
        }
        fits
    }

    /// Everything before `upto` is written down. With its last byte the task waits for a slot.
    pub(super) fn written(&mut self, token: &TokenText, upto: u64) {
        let Some(Held { stage, .. }) = self.by_token.get_mut(token) else { return };
        if let Stage::Fetching { size, came, written, .. } = stage {
            *written = upto.clamp(*written, *came);
            if *written == *size {
                *stage = Stage::Queued { input: TaskInput::Fetched };
            }
        }
    }

    /// The connection is gone, and what was asked for with it.
    pub(super) fn forget_fetches(&mut self) {
        for held in self.by_token.values_mut() {
            if let Stage::Fetching { asked, came, requests, .. } = &mut held.stage {
                requests.clear();
                *asked = *came;
            }
        }
    }
}
