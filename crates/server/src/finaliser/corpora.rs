//! The corpora that are known, and what each of them is.
//!
//! Owns that a kind never changes once it is known, that a look-up which failed is not taken for an answer and is made
//! again, and that missing ones are told now and then (rules G3, G4, G8). Knows no names of results.

use dispatcher_core::id::CorpusId;
use dispatcher_core::lookup::{Asked, CorpusKind, CorpusKinds, CorpusLearned};
use dispatcher_core::noise::NoiseMeter;
use dispatcher_core::time::{SpanMs, TimeMs};
use dispatcher_store::{Corpus, StoreError};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Lines about one kind of failed look-up come at most so often (rule G3).
const LINE_EVERY: SpanMs = SpanMs(5_000);

/// The corpora that are known.
#[derive(Debug)]
pub(super) struct Corpora {
    known: HashMap<CorpusId, Corpus>,
    kinds: CorpusKinds,
    noise: RefCell<NoiseMeter<Flaw>>,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flaw {
    /// The corpora could not be read.
    Unread,
    /// A row says another kind than it did.
    Changed,
    /// A task's corpus is not known.
    Missed,
}

impl Corpora {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), kinds: CorpusKinds::new(), noise: RefCell::new(NoiseMeter::new(LINE_EVERY)) }
    }

    /// A corpus and what it is; `None` where it is not known, so that nothing may be written for it.
    pub(super) fn get(&self, id: CorpusId) -> Option<(&Corpus, CorpusKind)> {
        Some((self.known.get(&id)?, self.kinds.kind(id)?))
    }

    /// Takes in what came of reading every corpus.
    pub(super) fn learn(&mut self, read: Result<Vec<Corpus>, StoreError>, now: TimeMs) {
        let listed = match read {
            Ok(listed) => listed,
            Err(e) => {
                self.tell(Flaw::Unread, now, |count| tracing::warn!(count, "the corpora could not be read: {e}"));
                return;
            }
        };
        let there: HashSet<CorpusId> = listed.iter().map(|corpus| corpus.id).collect();
        let gone: Vec<_> = self.known.keys().filter(|id| !there.contains(id)).copied().collect();
        for id in gone {
            self.known.remove(&id);
            self.kinds.forget(id);
        }
        for corpus in listed {
            self.learn_one(corpus, now);
        }
    }

    fn learn_one(&mut self, corpus: Corpus, now: TimeMs) {
        let id = corpus.id;
        match self.kinds.learn(id, corpus.kind.map_or(Asked::Failed, Asked::Found)) {
            // A row that cannot be read now leaves what was read before.
            CorpusLearned::Known(_) if corpus.kind.is_some() => {
                self.known.insert(id, corpus);
            }
            CorpusLearned::Known(_) | CorpusLearned::NotKnown => {}
            CorpusLearned::Kept(kind) => self.tell(Flaw::Changed, now, |count| {
                tracing::warn!(
                    count,
                    corpus = id.0,
                    ?kind,
                    "a corpus never changes what it is: its row is not believed"
                );
            }),
        }
    }

    /// Somebody asked for a corpus that is not known.
    pub(super) fn miss(&self, id: CorpusId, now: TimeMs) {
        self.tell(Flaw::Missed, now, |count| {
            tracing::warn!(
                count,
                corpus = id.0,
                "what the corpus of a task is, is not known: it is asked again, and nothing is written for it till then"
            );
        });
    }

    fn tell(&self, flaw: Flaw, now: TimeMs, line: impl FnOnce(u64)) {
        if let Some(due) = self.noise.borrow_mut().count(flaw, now) {
            line(due.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::id::EntryName;
    use dispatcher_store::ErrorClass;

    fn corpus(id: i64, kind: Option<CorpusKind>) -> Corpus {
        let (id, root) = (CorpusId(id), EntryName(b"/in".to_vec()));
        Corpus { id, name: format!("c{}", id.0), root, kind, parent: None, parent_service: None }
    }

    const PLAIN: Option<CorpusKind> = Some(CorpusKind::Ordinary);
    const NOW: TimeMs = TimeMs(0);

    fn kind(corpora: &Corpora, id: i64) -> Option<CorpusKind> {
        corpora.get(CorpusId(id)).map(|(_, kind)| kind)
    }

    // Rules G4, G8.
    #[test]
    fn a_corpus_that_could_not_be_read_is_not_known_until_it_can_be() {
        let mut corpora = Corpora::new();
        corpora.learn(Ok(vec![corpus(1, None), corpus(2, PLAIN)]), NOW);
        assert_eq!((kind(&corpora, 1), kind(&corpora, 2), kind(&corpora, 3)), (None, PLAIN, None));
        let failed = || Err(StoreError { class: ErrorClass::Corrupt, doing: "listing corpora", why: "so".into() });
        corpora.learn(failed(), NOW);
        assert_eq!((kind(&corpora, 1), kind(&corpora, 2)), (None, PLAIN), "a failure is no answer");
        corpora.learn(Ok(vec![corpus(1, PLAIN), corpus(2, None)]), NOW);
        assert_eq!((kind(&corpora, 1), kind(&corpora, 2)), (PLAIN, PLAIN));
    }

    // Rule G8.
    #[test]
    fn what_a_corpus_is_stays_whatever_its_row_says_later() {
        let mut corpora = Corpora::new();
        let sandbox = Some(CorpusKind::Sandbox(CorpusId(1)));
        corpora.learn(Ok(vec![corpus(1, sandbox)]), NOW);
        corpora.learn(Ok(vec![corpus(1, PLAIN)]), NOW);
        assert_eq!(kind(&corpora, 1), sandbox);
        corpora.learn(Ok(Vec::new()), NOW);
        assert_eq!(kind(&corpora, 1), None, "it was deleted");
    }
}
