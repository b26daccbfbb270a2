//! What is remembered of look-ups: services by name (rule G7) and kinds of corpora (rule G8).
//!
//! Owns what may be remembered and for how long. Asks nobody itself: it says that somebody has to be asked, and is told
//! what came of it.
//!
//! **Invariants**: a look-up that failed leaves no trace (rule G4); names that do not exist take bounded room for a bounded
//! time; what is known of a corpus never changes.

use crate::id::{CorpusId, EntryName};
use crate::text;
use crate::time::{SpanMs, TimeMs};
use std::collections::BTreeMap;

/// What came of asking the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<T> {
    /// It is there.
    Found(T),
    /// The store says that it is not there.
    NoSuch,
    /// The store could not be asked. Never remembered (rule G4).
    Failed,
}

/// What is remembered of a service's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceLookup<'a, S> {
    /// This service.
    Known(&'a S),
    /// There was none by that name a short while ago.
    NoSuch,
    /// Ask the store, then call [`ServiceNames::learn`].
    Ask,
}

/// Services by name: looked up once each, and names without a service remembered for a while.
///
/// ```
/// use dispatcher_core::lookup::{Asked, ServiceLookup, ServiceNames};
/// use dispatcher_core::time::{SpanMs, TimeMs};
///
/// let mut services = ServiceNames::new(SpanMs::seconds(5), 1000);
/// assert_eq!(services.look_up("ocr", TimeMs(0)), ServiceLookup::Ask);
/// services.learn("ocr", Asked::Found(7), TimeMs(0));
/// assert_eq!(services.look_up("ocr", TimeMs(1_000_000)), ServiceLookup::Known(&7));
/// ```
#[derive(Clone, Debug)]
pub struct ServiceNames<S> {
    known: BTreeMap<String, S>,
    /// Names without a service, and until when that is believed.
    missing: BTreeMap<String, TimeMs>,
    believe_for: SpanMs,
    most_missing: usize,
}

impl<S> ServiceNames<S> {
    /// Remembers "no such service" for `believe_for`, and for at most `most_missing` names.
    #[must_use]
    pub const fn new(believe_for: SpanMs, most_missing: usize) -> Self {
        Self { known: BTreeMap::new(), missing: BTreeMap::new(), believe_for, most_missing }
    }

    /// What is remembered of `name`.
    #[must_use]
    pub fn look_up(&self, name: &str, now: TimeMs) -> ServiceLookup<'_, S> {
        if let Some(service) = self.known.get(name) {
            return ServiceLookup::Known(service);
        }
        match self.missing.get(name) {
            Some(until) if self.is_believed(*until, now) => ServiceLookup::NoSuch,
            _ => ServiceLookup::Ask,
        }
    }

    /// The service of that name, where it was looked up before: for the result path, which never asks.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<&S> {
        self.known.get(name)
    }

    /// Every service known by now, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &S)> {
        self.known.iter().map(|(name, service)| (name.as_str(), service))
    }

    /// Notes what came of asking for `name`.
    pub fn learn(&mut self, name: &str, asked: Asked<S>, now: TimeMs) {
        match asked {
            Asked::Found(service) => {
                self.missing.remove(name);
                self.known.insert(name.to_owned(), service);
            }
            Asked::NoSuch => {
                self.known.remove(name);
                self.remember_missing(name, now);
            }
            Asked::Failed => {}
        }
    }

    /// Forgets what is known of `name`, because it was made, changed or deleted.
    pub fn forget(&mut self, name: &str) {
        self.known.remove(name);
        self.missing.remove(name);
    }

    fn remember_missing(&mut self, name: &str, now: TimeMs) {
        // No service has a longer name, and the room for names is counted in names.
        if name.len() > text::NAME_MAX || self.most_missing == 0 {
            return;
        }
        if self.missing.len() >= self.most_missing && !self.missing.contains_key(name) {
            let believe_for = self.believe_for;
            self.missing.retain(|_, until| is_believed(*until, now, believe_for));
        }
        if self.missing.len() >= self.most_missing && !self.missing.contains_key(name) {
            let oldest = self.missing.iter().min_by_key(|(_, until)| **until).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.missing.remove(&name));
        }
        self.missing.insert(name.to_owned(), now.after(self.believe_for));
    }

    fn is_believed(&self, until: TimeMs, now: TimeMs) -> bool {
        is_believed(until, now, self.believe_for)
    }
}

/// Whether something believed until `until` is believed at `now`; a clock that was set back does not lengthen it.
fn is_believed(until: TimeMs, now: TimeMs, believe_for: SpanMs) -> bool {
    now < until && until.since(now) <= believe_for
}

/// What a corpus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CorpusKind {
    /// Inputs imported together.
    Ordinary,
    /// Carved out of a parent, to try part of it again without touching what the parent has published.
    Sandbox(CorpusId),
}

/// What came of telling what a corpus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorpusLearned {
    /// It is known now, or was already known to be just that.
    Known(CorpusKind),
    /// It was known to be something else, and stays that: worth a warning.
    Kept(CorpusKind),
    /// It is not known: write nothing for it, warn, and ask again at the next dispatch.
    NotKnown,
}

/// The kinds of corpora. Ordinary and sandbox never change; what is not known is asked again.
#[derive(Clone, Debug, Default)]
pub struct CorpusKinds {
    known: BTreeMap<CorpusId, CorpusKind>,
}

impl CorpusKinds {
    /// None known.
    #[must_use]
    pub const fn new() -> Self {
        Self { known: BTreeMap::new() }
    }

    /// What `corpus` is. None: not known, so that nothing may be written for it; ask at the next dispatch.
    #[must_use]
    pub fn kind(&self, corpus: CorpusId) -> Option<CorpusKind> {
        self.known.get(&corpus).copied()
    }

    /// Notes what came of asking for `corpus`. That the store has no such corpus is no answer either: a guess would put
    /// a sandbox's result over its parent's.
    pub fn learn(&mut self, corpus: CorpusId, asked: Asked<CorpusKind>) -> CorpusLearned {
        match (self.known.get(&corpus).copied(), asked) {
            (Some(known), Asked::Found(kind)) if known != kind => CorpusLearned::Kept(known),
            (Some(known), _) => CorpusLearned::Known(known),
            (None, Asked::Found(kind)) => {
                self.known.insert(corpus, kind);
                CorpusLearned::Known(kind)
            }
            (None, Asked::NoSuch | Asked::Failed) => CorpusLearned::NotKnown,
        }
    }

    /// Forgets a corpus that was deleted.
    pub fn forget(&mut self, corpus: CorpusId) {
        self.known.remove(&corpus);
    }
}

/// What stands between a name and the id of a sandbox in the names of its result files.
const MARK: &[u8] = b".sandbox-";

impl CorpusKind {
    /// A word in the names of a corpus's result files: a service, a corpus, a folder. A sandbox's has its own id behind it;
    /// an ordinary corpus's is `word` itself, but for one that reads like a sandbox's, which is told apart by a `_`. So no
    /// two kinds or words lead to one name, whatever their bytes are.
    ///
    /// ```
    /// use dispatcher_core::id::CorpusId;
    /// use dispatcher_core::lookup::CorpusKind;
    /// assert_eq!(CorpusKind::Ordinary.result_stem("tex_to_html"), "tex_to_html");
    /// assert_eq!(CorpusKind::Sandbox(CorpusId(9)).result_stem("tex_to_html"), "tex_to_html.sandbox-9");
    /// assert_eq!(CorpusKind::Ordinary.result_stem("tex_to_html.sandbox-9"), "tex_to_html.sandbox-9_");
    /// ```
    #[must_use]
    pub fn result_stem(self, word: &str) -> String {
        match self {
            Self::Ordinary if reads_like_a_sandbox(word.as_bytes()) => format!("{word}_"),
            Self::Ordinary => word.to_owned(),
            Self::Sandbox(id) => format!("{word}.sandbox-{}", id.0),
        }
    }

    /// The name of an entry's result where results lie like their inputs: a sandbox's below a folder of its own, which no
    /// entry of an ordinary corpus leads to.
    ///
    /// ```
    /// use dispatcher_core::id::{CorpusId, EntryName};
    /// use dispatcher_core::lookup::CorpusKind;
    /// let entry = |name: &str| EntryName(name.as_bytes().to_vec());
    /// assert_eq!(CorpusKind::Ordinary.beside_inputs(&entry("a/b.tex")), entry("a/b.tex"));
    /// assert_eq!(CorpusKind::Sandbox(CorpusId(9)).beside_inputs(&entry("a/b.tex")), entry(".sandbox-9/a/b.tex"));
    /// assert_eq!(CorpusKind::Ordinary.beside_inputs(&entry(".sandbox-9/b.tex")), entry(".sandbox-9_/b.tex"));
    /// ```
    #[must_use]
    pub fn beside_inputs(self, entry: &EntryName) -> EntryName {
        let name = &entry.0;
        EntryName(match self {
            Self::Sandbox(_) => [self.result_stem("").as_bytes(), b"/", name].concat(),
            Self::Ordinary => {
                let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
                let (folder, rest) = name.split_at(end);
                let is_one = folder.starts_with(MARK) && reads_like_a_sandbox(folder);
                [folder, if is_one { b"_" } else { b"" }, rest].concat()
            }
        })
    }
}

/// Whether a word ends as those of sandboxes do, or as those that were told apart from them.
fn reads_like_a_sandbox(word: &[u8]) -> bool {
    let told_apart = word.iter().rev().take_while(|byte| **byte == b'_').count();
    let word = &word[..word.len() - told_apart];
    let digits = word.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    // An id may be any number, so a sign may stand before its digits, as it does at the end of the mark.
    (1..=digits).any(|id| word[..word.len() - id].ends_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHILE: SpanMs = SpanMs(5000);

    fn services() -> ServiceNames<u32> {
        ServiceNames::new(WHILE, 3)
    }

    // Rule G7.
    #[test]
    fn a_service_is_asked_for_once_and_known_to_the_result_path() {
        let mut services = services();
        assert_eq!(services.known("ocr"), None);
        assert_eq!(services.look_up("ocr", TimeMs(0)), ServiceLookup::Ask);
        services.learn("ocr", Asked::Found(7), TimeMs(0));
        assert_eq!(services.look_up("ocr", TimeMs(i64::MAX)), ServiceLookup::Known(&7));
        assert_eq!(services.known("ocr"), Some(&7));
        services.forget("ocr");
        assert_eq!(services.look_up("ocr", TimeMs(0)), ServiceLookup::Ask);
    }

    // Rule G4.
    #[test]
    fn a_look_up_that_failed_leaves_no_trace() {
        let mut services = services();
        services.learn("ocr", Asked::Failed, TimeMs(0));
        assert_eq!(services.look_up("ocr", TimeMs(0)), ServiceLookup::Ask);
        services.learn("ocr", Asked::Found(7), TimeMs(0));
        services.learn("ocr", Asked::Failed, TimeMs(0));
        assert_eq!(services.known("ocr"), Some(&7));
    }

    // Rule G7.
    #[test]
    fn no_such_service_is_believed_for_a_while_only() {
        let mut services = services();
        services.learn("none", Asked::NoSuch, TimeMs(0));
        assert_eq!(services.look_up("none", TimeMs(4999)), ServiceLookup::NoSuch);
        assert_eq!(services.look_up("none", TimeMs(5000)), ServiceLookup::Ask);
        services.learn("none", Asked::Found(1), TimeMs(5000));
        assert_eq!(services.look_up("none", TimeMs(5000)), ServiceLookup::Known(&1));
    }

    // Rule G7. Case F56.
    #[test]
    fn a_clock_set_back_does_not_lengthen_the_belief() {
        let mut services = services();
        services.learn("none", Asked::NoSuch, TimeMs(3_600_000));
        assert_eq!(services.look_up("none", TimeMs(0)), ServiceLookup::Ask);
    }

    // Rule G7.
    #[test]
    fn names_without_a_service_take_bounded_room() {
        let mut services = services();
        for i in 0..1000_i64 {
            services.learn(&format!("none{i}"), Asked::NoSuch, TimeMs(i));
        }
        services.learn(&"x".repeat(1 << 20), Asked::NoSuch, TimeMs(1000));
        assert_eq!(services.missing.len(), 3);
        assert_eq!(services.look_up("none999", TimeMs(1000)), ServiceLookup::NoSuch);
        assert_eq!(services.look_up("none0", TimeMs(1000)), ServiceLookup::Ask);
    }

    // Rule G8.
    #[test]
    fn what_a_corpus_is_never_changes_once_known() {
        let mut corpora = CorpusKinds::new();
        let (plain, sandbox) = (CorpusId(1), CorpusId(2));
        let kind = CorpusKind::Sandbox(sandbox);
        assert_eq!(
            corpora.learn(plain, Asked::Found(CorpusKind::Ordinary)),
            CorpusLearned::Known(CorpusKind::Ordinary)
        );
        assert_eq!(corpora.learn(sandbox, Asked::Found(kind)), CorpusLearned::Known(kind));
        assert_eq!(corpora.learn(sandbox, Asked::Found(CorpusKind::Ordinary)), CorpusLearned::Kept(kind));
        assert_eq!(corpora.learn(sandbox, Asked::NoSuch), CorpusLearned::Known(kind));
        assert_eq!(corpora.kind(sandbox), Some(kind));
        assert_eq!(corpora.kind(plain), Some(CorpusKind::Ordinary));
    }

    // Rules G4, G8.
    #[test]
    fn a_corpus_that_is_not_known_is_asked_for_again() {
        let mut corpora = CorpusKinds::new();
        assert_eq!(corpora.learn(CorpusId(1), Asked::Failed), CorpusLearned::NotKnown);
        assert_eq!(corpora.learn(CorpusId(1), Asked::NoSuch), CorpusLearned::NotKnown);
        assert_eq!(corpora.kind(CorpusId(1)), None);
        corpora.learn(CorpusId(1), Asked::Found(CorpusKind::Ordinary));
        assert_eq!(corpora.kind(CorpusId(1)), Some(CorpusKind::Ordinary));
    }

    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = CorpusKind> {
        let id = prop_oneof![0..3_i64, any::<i64>()];
        prop_oneof![Just(CorpusKind::Ordinary), id.prop_map(|id| CorpusKind::Sandbox(CorpusId(id)))]
    }

    /// Words made of what could lead one name astray into another.
    fn words() -> impl Strategy<Value = String> {
        prop_oneof!["(a|_|-|\\.|\\.sandbox-|0|1|12){0,6}", any::<String>()]
    }

    fn entries() -> impl Strategy<Value = EntryName> {
        let near = "(a|_|-|/|\\.|\\.sandbox-|0|1|12){0,8}".prop_map(String::into_bytes);
        prop_oneof![near, proptest::collection::vec(any::<u8>(), 0..12)].prop_map(EntryName)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        // Rule G8.
        #[test]
        fn words_of_different_kinds_never_lead_to_one_name(
            one in (kinds(), words()), far in (kinds(), words()),
        ) {
            let name = |(kind, word): &(CorpusKind, String)| kind.result_stem(word);
            // Beside any other, those that are called like this one's result, or like this one.
            let near = [name(&one), format!("{}_", name(&one)), one.1.clone(), format!("{}_", one.1)];
            let near = near.into_iter().map(|word| (far.0, word));
            for other in near.chain([far.clone()]) {
                prop_assert_eq!(name(&one) == name(&other), one == other, "{:?} and {:?}", one, other);
            }
        }

        // Rule G8.
        #[test]
        fn entries_of_different_kinds_never_lead_to_one_name(
            one in (kinds(), entries()), far in (kinds(), entries()),
        ) {
            let name = |(kind, entry): &(CorpusKind, EntryName)| kind.beside_inputs(entry);
            let like = |entry: EntryName| [entry.clone(), EntryName([&entry.0[..], b"_"].concat())];
            let near = like(name(&one)).into_iter().chain(like(one.1.clone())).map(|entry| (far.0, entry));
            for other in near.chain([far.clone()]) {
                prop_assert_eq!(name(&one) == name(&other), one == other, "{:?} and {:?}", one, other);
            }
        }
    }
}
