//! What results are called in the archive.
//!
//! Owns the way from a task's row to that name. Knows no archive.

use super::Finaliser;
use crate::stage::StageFailure;
use dispatcher_core::id::{CorpusId, EntryName, ServiceId, TaskId};
use dispatcher_core::lookup::CorpusKind;

/// How results are named in the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultNames {
    /// Like their inputs: there is one service and one corpus.
    #[default]
    ByEntry,
    /// `service/corpus/entry`.
    ByServiceAndCorpus,
    /// `corpus/folder/service.zip`, beside the entry `folder/name.zip` where the corpus's folder lies below the results
    /// folder under its own name: what CorTeX looks for. One entry of a folder has a result.
    Cortex,
}

impl ResultNames {
    /// The name of the result of `entry`, an input of `corpus`, which is of this kind. A sandbox's has its own id in it, and
    /// no name of another corpus can read like it; no two services, corpora or kinds lead to one name (rule G8), nor two
    /// entries but as `Cortex` says.
    #[must_use]
    pub fn name(self, service: &str, corpus: &str, kind: CorpusKind, entry: &EntryName) -> EntryName {
        match self {
            Self::ByEntry => kind.beside_inputs(entry),
            Self::ByServiceAndCorpus => {
                let mut name = format!("{service}/{}/", kind.result_stem(corpus)).into_bytes();
                name.extend_from_slice(&entry.0);
                EntryName(name)
            }
            Self::Cortex => {
                let folder = entry.0.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
                let mut name = format!("{}/", kind.result_stem(corpus)).into_bytes();
                name.extend_from_slice(entry.0.get(..folder).unwrap_or_default());
                name.extend_from_slice(format!("{service}.zip").as_bytes());
                EntryName(name)
            }
        }
    }
}

/// Where the result of a task goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultPlace {
    /// Here.
    Named(EntryName),
    /// There is no such task.
    NoTask,
    /// Its service or corpus is not known (rule G8): a guess could put its result over another's.
    NotKnown,
}

impl Finaliser {
    /// Where the result of a task goes, from memory or else from its row.
    pub(super) fn place_of(&mut self, task: TaskId) -> Result<ResultPlace, StageFailure> {
        if let Some(name) = self.names.get(&task) {
            return Ok(ResultPlace::Named(name.clone()));
        }
        let Some(row) = self.rows_of(vec![task])?.remove(&task) else { return Ok(ResultPlace::NoTask) };
        if self.result_name(row.service, row.corpus, &row.entry).is_none() {
            self.learn_names()?;
        }
        Ok(self.result_name(row.service, row.corpus, &row.entry).map_or_else(
            || {
                self.corpora.miss(row.corpus, self.now());
                ResultPlace::NotKnown
            },
            ResultPlace::Named,
        ))
    }

    /// What the result of an entry is called, where its service and corpus are known.
    fn result_name(&self, service: ServiceId, corpus: CorpusId, entry: &EntryName) -> Option<EntryName> {
        let service = self.services.iter().find(|known| known.id == service)?;
        let (corpus, kind) = self.corpora.get(corpus)?;
        Some(self.parts.naming.name(&service.name, &corpus.name, kind, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: CorpusKind = CorpusKind::Ordinary;

    // Rule G8.
    #[test]
    fn results_of_different_services_and_corpora_never_share_a_name() {
        let entry = EntryName(b"a/b.tex".to_vec());
        let name = |service, corpus, kind| ResultNames::ByServiceAndCorpus.name(service, corpus, kind, &entry);
        assert_eq!(name("html", "papers", PLAIN), EntryName(b"html/papers/a/b.tex".to_vec()));
        assert_ne!(name("html", "papers", PLAIN), name("text", "papers", PLAIN));
        assert_ne!(name("html", "papers", PLAIN), name("html", "scans", PLAIN));
        assert_eq!(ResultNames::ByEntry.name("html", "papers", PLAIN, &entry), entry);
        let sandbox = CorpusKind::Sandbox(CorpusId(7));
        assert_eq!(name("html", "try", sandbox), EntryName(b"html/try.sandbox-7/a/b.tex".to_vec()));
        assert_ne!(name("html", "papers", sandbox), name("html", "papers", PLAIN), "not even under its parent's name");
    }

    /// Names as the store lets them be: without a slash.
    fn names() -> impl Strategy<Value = String> {
        prop_oneof!["(a|_|\\.sandbox-|1|2){1,5}", "[^/\\x00]{1,8}"]
    }

    /// Service, corpus, what that is, entry.
    type Called = (String, String, CorpusKind, EntryName);

    fn corpora() -> impl Strategy<Value = Called> {
        let kind = prop_oneof![Just(PLAIN), (1..3_i64).prop_map(|id| CorpusKind::Sandbox(CorpusId(id)))];
        let entry = "(a|_|/|\\.sandbox-|1|2){1,8}".prop_map(|name| EntryName(name.into_bytes()));
        let bytes = proptest::collection::vec(any::<u8>(), 1..9).prop_map(EntryName);
        (names(), names(), kind, prop_oneof![entry, bytes])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        // Rule G8.
        #[test]
        fn whatever_things_are_called_no_two_results_share_a_name(one in corpora(), far in corpora()) {
            let name = |of: &Called| ResultNames::ByServiceAndCorpus.name(&of.0, &of.1, of.2, &of.3);
            let beside = |of: &Called| ResultNames::ByEntry.name("s", "c", of.2, &of.3);
            let cortex = |of: &Called| ResultNames::Cortex.name(&of.0, &of.1, of.2, &of.3);
            // Beside any other, what differs in its kind alone, and what is called like a sandbox.
            let (service, corpus, kind, entry) = one.clone();
            let near = [
                (service.clone(), corpus.clone(), far.2, entry.clone()),
                (service.clone(), kind.result_stem(&corpus), far.2, entry.clone()),
                (service, corpus, far.2, beside(&one)),
            ];
            for other in near.into_iter().chain([far]) {
                prop_assert_eq!(name(&one) == name(&other), one == other, "{:?} and {:?}", one, other);
                if (&one.0, &one.1, one.2) != (&other.0, &other.1, other.2) {
                    prop_assert_ne!(cortex(&one), cortex(&other), "{:?} and {:?}", one, other);
                }
                let same = (one.2, &one.3) == (other.2, &other.3);
                prop_assert_eq!(beside(&one) == beside(&other), same, "{:?} and {:?}", one, other);
            }
        }
    }

    #[test]
    fn in_the_cortex_layout_a_result_lies_beside_its_entry_under_its_services_name() {
        let name = |entry: &[u8]| ResultNames::Cortex.name("tex_to_html", "arxmliv", PLAIN, &EntryName(entry.to_vec()));
        assert_eq!(name(b"1105/1105.0001/1105.0001.zip").0, b"arxmliv/1105/1105.0001/tex_to_html.zip");
        assert_eq!(name(b"paper.zip").0, b"arxmliv/tex_to_html.zip");
    }
}
