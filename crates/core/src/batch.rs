//! When a batch closes (rule D2).
//!
//! Owns the items that wait and the rule that says they have waited enough. Knows neither what the items are nor how they
//! are written.
//!
//! **Invariants**: items leave in the order in which they came, each once, never more than N that somebody waits for in one
//! batch and never more than 4 N in all; the first item of a batch waits at most T.

use crate::time::{SpanMs, TimeMs};
use std::collections::VecDeque;

/// Whether somebody waits for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A worker waits for the answer: written as soon as the writer is free.
    Prompt,
    /// Nobody waits (hand-outs, begins): alone it is written at T, or with the next prompt item.
    Relaxed,
}

/// Collects items into batches: closed at N items that somebody waits for, or T after the first, or at once when the writer
/// is idle and somebody waits. Each result comes with its hand-out and its begin; those do not count, so that N results
/// share a commit, but there is an end to them too.
///
/// ```
/// use dispatcher_core::batch::{Batcher, Urgency};
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let mut batch = Batcher::new(1024, SpanMs(300));
/// batch.push("began", Urgency::Relaxed, TimeMs(0));
/// assert!(!batch.is_due(TimeMs(100), true));
/// batch.push("result", Urgency::Prompt, TimeMs(100));
/// assert!(batch.is_due(TimeMs(100), true));
/// assert_eq!(batch.take(), ["began", "result"]);
/// ```
#[derive(Clone, Debug)]
pub struct Batcher<T> {
    most: usize,
    wait: SpanMs,
    items: VecDeque<Waiting<T>>,
    prompt: usize,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    item: T,
    urgency: Urgency,
    since: TimeMs,
}

impl<T> Batcher<T> {
    /// How many items that somebody waits for close a batch, unless the configuration says otherwise.
    pub const MOST: usize = 1024;
    /// A batch has so many times more items in all at most.
    const IN_ALL: usize = 4;
    /// How long the first item of a batch waits, unless the configuration says otherwise.
    pub const WAIT: SpanMs = SpanMs(300);

    /// A batcher that closes at `most` items that somebody waits for (at least one) or `wait` after the first.
    #[must_use]
    pub fn new(most: usize, wait: SpanMs) -> Self {
        Self { most: most.max(1), wait, items: VecDeque::new(), prompt: 0 }
    }

    /// Adds an item that came at `now`.
    pub fn push(&mut self, item: T, urgency: Urgency, now: TimeMs) {
        if urgency == Urgency::Prompt {
            self.prompt += 1;
        }
        self.items.push_back(Waiting { item, urgency, since: now });
    }

    /// Whether a batch is to be written now. `idle` says that the writer has nothing else to do.
    #[must_use]
    pub fn is_due(&self, now: TimeMs, idle: bool) -> bool {
        let Some(first) = self.items.front() else {
            return false;
        };
        // A first item from after `now` means that the clock was set back: it may have waited for any time.
        let waited = now < first.since || now.since(first.since) >= self.wait;
        self.is_full() || waited || (idle && self.prompt > 0)
    }

    /// How many items somebody waits for.
    #[must_use]
    pub const fn awaited(&self) -> usize {
        self.prompt
    }

    /// Whether a whole batch waits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.prompt >= self.most || self.items.len() >= self.most * Self::IN_ALL
    }

    /// When the batch is due even if nothing more comes and the writer stays busy; none where nothing waits.
    #[must_use]
    pub fn deadline(&self) -> Option<TimeMs> {
        self.items.front().map(|first| first.since.after(self.wait))
    }

    /// Closes the batch: the items that waited longest, in the order in which they came. Empty where nothing waits
    /// (rule D6).
    pub fn take(&mut self) -> Vec<T> {
        let mut taken = Vec::with_capacity(self.items.len().min(self.most * Self::IN_ALL));
        let mut prompt = 0;
        while prompt < self.most && taken.len() < self.most * Self::IN_ALL {
            let Some(waiting) = self.items.pop_front() else { break };
            prompt += usize::from(waiting.urgency == Urgency::Prompt);
            taken.push(waiting.item);
        }
        self.prompt -= prompt;
        taken
    }

    /// How many items wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch() -> Batcher<u32> {
        Batcher::new(4, SpanMs(300))
    }

    // Rule D2.
    #[test]
    fn a_busy_writer_gets_a_batch_at_the_nth_item_or_at_t() {
        let mut batch = batch();
        for i in 0..3 {
            batch.push(i, Urgency::Prompt, TimeMs(1000 + i64::from(i)));
        }
        assert_eq!(batch.deadline(), Some(TimeMs(1300)));
        assert!(!batch.is_due(TimeMs(1299), false));
        assert!(batch.is_due(TimeMs(1300), false));
        batch.push(3, Urgency::Prompt, TimeMs(1004));
        assert!(batch.is_due(TimeMs(1004), false));
    }

    // Rule D2.
    #[test]
    fn what_nobody_waits_for_does_not_count_up_to_an_end() {
        let mut batch = batch();
        (0..15).for_each(|i| batch.push(i, Urgency::Relaxed, TimeMs(0)));
        assert!(!batch.is_full());
        batch.push(15, Urgency::Relaxed, TimeMs(0));
        batch.push(16, Urgency::Prompt, TimeMs(0));
        assert!(batch.is_due(TimeMs(0), false));
        assert_eq!((batch.take().len(), batch.len()), (16, 1));
    }

    // Rule D2.
    #[test]
    fn an_idle_writer_gets_what_somebody_waits_for_at_once() {
        let mut batch = batch();
        batch.push(1, Urgency::Prompt, TimeMs(0));
        assert!(batch.is_due(TimeMs(0), true));
    }

    // Rule D2.
    #[test]
    fn hand_outs_and_begins_alone_wait_for_t_even_when_idle() {
        let mut batch = batch();
        batch.push(1, Urgency::Relaxed, TimeMs(0));
        assert!(!batch.is_due(TimeMs(299), true));
        assert!(batch.is_due(TimeMs(300), false));
    }

    // Rules D2, D6.
    #[test]
    fn nothing_is_never_due() {
        let mut batch = batch();
        assert!(!batch.is_due(TimeMs(i64::MAX), true));
        assert_eq!(batch.deadline(), None);
        assert!(batch.take().is_empty());
    }

    // Rule D2. Case F56.
    #[test]
    fn a_clock_set_back_closes_the_batch_instead_of_keeping_it() {
        let mut batch = batch();
        batch.push(1, Urgency::Relaxed, TimeMs(3_600_000));
        assert!(batch.is_due(TimeMs(0), false));
    }

    proptest! {
        // Rule D2.
        #[test]
        fn every_item_leaves_once_in_order_within_n_and_t(
            steps in proptest::collection::vec((0..3_u8, any::<bool>(), 0..200_i64), 1..200),
        ) {
            let mut batch = Batcher::new(5, SpanMs(300));
            let (mut now, mut pushed, mut taken) = (0_i64, Vec::new(), Vec::new());
            for (pushes, urgent, step) in steps {
                // Whoever drives it wakes at the deadline at the latest.
                let next = now + step;
                while let Some(deadline) = batch.deadline().filter(|deadline| deadline.0 <= next) {
                    prop_assert!(batch.is_due(deadline, false));
                    let out = batch.take();
                    prop_assert!((1..=20).contains(&out.len()));
                    for (_, since) in &out {
                        prop_assert!(deadline.0 - since <= 300);
                    }
                    taken.extend(out);
                }
                now = next;
                for _ in 0..pushes {
                    let urgency = if urgent { Urgency::Prompt } else { Urgency::Relaxed };
                    batch.push((pushed.len(), now), urgency, TimeMs(now));
                    pushed.push((pushed.len(), now));
                }
                prop_assert!(!(urgent && pushes > 0) || batch.is_due(TimeMs(now), true));
            }
            while !batch.is_empty() {
                taken.extend(batch.take());
            }
            prop_assert_eq!(taken, pushed);
        }
    }
}
