//! The names of services and corpora, which rows of tasks have as numbers.
//!
//! Owns how a task's row reads with them. Knows nothing of which tasks are meant.

use crate::views::told;
use dispatcher_core::id::{CorpusId, ServiceId};
use dispatcher_store::{Store, TaskRow};
use serde::Serialize;
use std::collections::HashMap;

/// Every name, by number.
#[derive(Clone, Debug, Default)]
pub struct Places {
    services: HashMap<ServiceId, String>,
    corpora: HashMap<CorpusId, String>,
}

/// A task's row with the names of its service and corpus; none of one that was deleted meanwhile.
#[derive(Debug, Serialize)]
pub struct Placed<'a> {
    #[serde(flatten)]
    row: &'a TaskRow,
    service_name: Option<&'a str>,
    corpus_name: Option<&'a str>,
}

impl Places {
    /// Reads them; they are few.
    pub async fn read(store: &dyn Store) -> anyhow::Result<Self> {
        let services = store.services().await.map_err(told)?.into_iter().map(|service| (service.id, service.name));
        let corpora = store.corpora().await.map_err(told)?.into_iter().map(|corpus| (corpus.id, corpus.name));
        Ok(Self { services: services.collect(), corpora: corpora.collect() })
    }

    /// The name of a service.
    pub fn service(&self, id: ServiceId) -> Option<&str> {
        self.services.get(&id).map(String::as_str)
    }

    /// The name of a corpus.
    pub fn corpus(&self, id: CorpusId) -> Option<&str> {
        self.corpora.get(&id).map(String::as_str)
    }

    /// Every service.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &str)> {
        self.services.iter().map(|(id, name)| (*id, name.as_str()))
    }

    /// Every corpus.
    pub fn corpora(&self) -> impl Iterator<Item = (CorpusId, &str)> {
        self.corpora.iter().map(|(id, name)| (*id, name.as_str()))
    }

    /// A row with its names.
    pub fn placed<'a>(&'a self, row: &'a TaskRow) -> Placed<'a> {
        Placed { row, service_name: self.service(row.service), corpus_name: self.corpus(row.corpus) }
    }
}
