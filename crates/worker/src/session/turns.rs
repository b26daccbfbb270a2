//! Whose turn it is where a worker knows several dispatchers.
//!
//! Owns the order: after a link that worked the same one is tried first, and after one that brought nothing the next.
//! Knows nothing of connections and times.

/// The dispatchers of a worker, by their place in its list.
#[derive(Debug)]
pub(super) struct Turns {
    at: usize,
    /// Tries since the last one that brought a link.
    tries: usize,
    /// Which of them will not have this worker.
    refused: Vec<bool>,
}

impl Turns {
    /// The first of `count` dispatchers has its turn.
    pub(super) fn new(count: usize) -> Self {
        Self { at: 0, tries: 0, refused: vec![false; count.max(1)] }
    }

    /// The place of the one that has its turn.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Whether there is another one to turn to.
    pub(super) fn has_others(&self) -> bool {
        self.refused.len() > 1
    }

    /// It said welcome.
    pub(super) fn welcomed(&mut self) {
        self.tries = 0;
        self.refused.fill(false);
    }

    /// It brought nothing: the next one has its turn. Whether all had theirs since the last link.
    pub(super) fn failed(&mut self) -> bool {
        self.at = (self.at + 1) % self.refused.len();
        self.tries += 1;
        self.tries.is_multiple_of(self.refused.len())
    }

    /// It will not have this worker. Whether that holds for all of them.
    pub(super) fn refused(&mut self) -> bool {
        if let Some(refused) = self.refused.get_mut(self.at) {
            *refused = true;
        }
        self.refused.iter().all(|refused| *refused)
    }
}
