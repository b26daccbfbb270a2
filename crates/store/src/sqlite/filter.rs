//! A [`TaskFilter`] as conditions on `tasks t`.

use super::bulk::Bulk;
use crate::model::TaskFilter;
use dispatcher_core::report::Status;
use sqlx::{QueryBuilder, Sqlite};

/// Adds ` AND …` for each field that is set.
pub(super) fn push(query: &mut QueryBuilder<Sqlite>, filter: &TaskFilter) {
    if !filter.ids.is_empty() {
        let ids = Bulk::numbers(filter.ids.iter().map(|id| id.0)).into_json();
        query.push(" AND t.id IN (SELECT value FROM json_each(").push_bind(ids).push("))");
    }
    if let Some(service) = filter.service {
        query.push(" AND t.service = ").push_bind(service.0);
    }
    if let Some(corpus) = filter.corpus {
        query.push(" AND t.corpus = ").push_bind(corpus.0);
    }
    push_words(query, "state", filter.states.iter().map(|s| s.as_str()));
    push_words(query, "status", filter.statuses.iter().map(|s| Status::as_str(*s)));
    if filter.category.is_some() || filter.what.is_some() {
        push_message(query, filter.category.as_deref(), filter.what.as_deref());
    }
    if !filter.entries.is_empty() {
        let mut names = Bulk::new();
        for name in &filter.entries {
            names.row().bytes(&name.0).end();
        }
        let (list, bytes) = names.into_parts();
        query.push(" AND t.entry IN (SELECT substr(b.bytes, value ->> 0, value ->> 1) FROM (SELECT ");
        query.push_bind(bytes).push(" AS bytes) b, jsonb_each(").push_bind(list).push("))");
    }
    if let Some(prefix) = &filter.entry_prefix {
        let length = i64::try_from(prefix.0.len()).unwrap_or(i64::MAX);
        query.push(" AND substr(t.entry, 1, ").push_bind(length);
        // An empty text is no blob: the empty prefix matches by its length.
        query.push(") = ").push_bind(prefix.0.clone());
    }
}

/// One of these words in a column; no word: no condition.
fn push_words(query: &mut QueryBuilder<Sqlite>, column: &'static str, words: impl Iterator<Item = &'static str>) {
    let words: Vec<&str> = words.collect();
    if words.is_empty() {
        return;
    }
    query.push(" AND t.").push(column).push(" IN (");
    let mut list = query.separated(", ");
    for word in words {
        list.push_bind(word);
    }
    query.push(")");
}

/// One message of what stands has both words.
fn push_message(query: &mut QueryBuilder<Sqlite>, category: Option<&str>, what: Option<&str>) {
    query.push(" AND EXISTS (SELECT 1 FROM messages m WHERE m.task = t.id AND m.epoch = t.accepted_epoch");
    if let Some(category) = category {
        query.push(" AND m.category = ").push_bind(category.to_owned());
    }
    if let Some(what) = what {
        query.push(" AND m.what = ").push_bind(what.to_owned());
    }
    query.push(")");
}
