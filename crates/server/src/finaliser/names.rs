//! What results are called in the archive.
//!
//! Owns the way from a task's row to that name. Knows no archive.

use super::Finaliser;
use crate::stage::StageFailure;
use dispatcher_core::id::{CorpusId, EntryName, ServiceId, TaskId};

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
    /// The name of the result of `entry`.
    #[must_use]
    pub fn name(self, service: &str, corpus: &str, entry: &EntryName) -> EntryName {
        match self {
            Self::ByEntry => entry.clone(),
            Self::ByServiceAndCorpus => {
                let mut name = format!("{service}/{corpus}/").into_bytes();
                name.extend_from_slice(&entry.0);
                EntryName(name)
            }
            Self::Cortex => {
                let folder = entry.0.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
                let mut name = format!("{corpus}/").into_bytes();
                name.extend_from_slice(entry.0.get(..folder).unwrap_or_default());
                name.extend_from_slice(format!("{service}.zip").as_bytes());
                EntryName(name)
            }
        }
    }
}

impl Finaliser {
    /// What the result of a task is called, from memory or else from its row. `None` where there is no such task, or its
    /// service or corpus is not known: a guess could put its result over another's (rule G8).
    pub(super) fn name_of(&mut self, task: TaskId) -> Result<Option<EntryName>, StageFailure> {
        if let Some(name) = self.names.get(&task) {
            return Ok(Some(name.clone()));
        }
        let Some(row) = self.rows_of(vec![task])?.remove(&task) else { return Ok(None) };
        if self.result_name(row.service, row.corpus, &row.entry).is_none() {
            self.learn_names()?;
        }
        Ok(self.result_name(row.service, row.corpus, &row.entry))
    }

    /// What the result of an entry is called, where its service and corpus are known.
    pub(super) fn result_name(&self, service: ServiceId, corpus: CorpusId, entry: &EntryName) -> Option<EntryName> {
        let service = self.services.iter().find(|known| known.id == service)?;
        let corpus = self.corpora.get(&corpus)?;
        Some(self.parts.naming.name(&service.name, &corpus.name, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule G8.
    #[test]
    fn results_of_different_services_and_corpora_never_share_a_name() {
        let entry = EntryName(b"a/b.tex".to_vec());
        let name = |service, corpus| ResultNames::ByServiceAndCorpus.name(service, corpus, &entry);
        assert_eq!(name("html", "papers"), EntryName(b"html/papers/a/b.tex".to_vec()));
        assert_ne!(name("html", "papers"), name("text", "papers"));
        assert_ne!(name("html", "papers"), name("html", "scans"));
        assert_eq!(ResultNames::ByEntry.name("html", "papers", &entry), entry);
    }

    #[test]
    fn in_the_cortex_layout_a_result_lies_beside_its_entry_under_its_services_name() {
        let name = |entry: &[u8]| ResultNames::Cortex.name("tex_to_html", "arxmliv", &EntryName(entry.to_vec()));
        assert_eq!(name(b"1105/1105.0001/1105.0001.zip").0, b"arxmliv/1105/1105.0001/tex_to_html.zip");
        assert_eq!(name(b"paper.zip").0, b"arxmliv/tex_to_html.zip");
    }
}
