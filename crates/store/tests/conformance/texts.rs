//! What came from outside is stored byte for byte, whatever is in it.

use crate::kit::{Kit, NOW, STORED};
use dispatcher_core::id::{EntryName, WorkerKey};
use dispatcher_core::report::{Ending, Message, Severity, Status};
use dispatcher_core::text::is_plain;
use dispatcher_store::{DispatcherInfo, Entry, ErrorClass, PartRef, Record, ServiceSettings, TaskFilter};

/// Texts that have hurt others: NUL, what JSON and SQL escape, control characters, marks of direction, non-characters.
const TEXTS: [&str; 12] = [
    "",
    "\0",
    "a\0b",
    "\\u0000",
    "\"quoted\" \\ back 'single' -- ;",
    "line\nbreak\r\t\u{1b}[31m",
    "\u{202e}right to left",
    "\u{fffd}",
    "\u{ffff}\u{10ffff}",
    "é 漢字 🦀",
    "null",
    "[1,2]",
];

// Case F52.
async fn every_text_comes_back_as_it_went_in(kit: Kit) {
    kit.import(TEXTS.len()).await;
    let claimed = kit.claim(TEXTS.len()).await;
    let said = |t: &str| Message { severity: Severity::Info, category: t.into(), what: t.into(), details: t.into() };
    let key = |t: &str| WorkerKey { name: t.into(), incarnation: t.into() };
    let kept = |t: &str| PartRef {
        name: t.into(),
        place: EntryName(t.as_bytes().to_vec()),
        offset: 1,
        length: 2,
        sha256: t.into(),
    };
    for (task, text) in claimed.iter().zip(TEXTS) {
        let (lease, at) = (task.lease, NOW);
        let (worker, messages, parts) = (key(text), vec![said(text)], vec![kept(text)]);
        kit.tell(Record::HandedOut { lease, worker: worker.clone(), at, began: false }).await;
        let ended = Record::Ended {
            lease,
            worker: Some(worker.clone()),
            ending: Ending::RetryableCause,
            began: true,
            why: said(text),
            messages: messages.clone(),
            parts: parts.clone(),
            at,
        };
        kit.tell(ended).await;
        let story = kit.story(lease.task).await;
        assert_eq!(story.task.last_cause, Some(said(text)));
        assert_eq!((&story.attempts[0].worker, &story.attempts[0].why), (&Some(worker.clone()), &Some(said(text))));
        assert_eq!((&story.attempts[0].messages, &story.attempts[0].parts), (&messages, &parts));
        let result = Record::Result { lease, worker, status: Status::Fatal, messages, parts: parts.clone(), at };
        assert_eq!(kit.tell(result).await, STORED);
        let story = kit.story(lease.task).await;
        assert_eq!((&story.results[0].messages[0], &story.results[0].parts), (&said(text), &parts));
    }
    let causes = kit.store.summary(&TaskFilter::default()).await.expect("counts").causes;
    assert_eq!(causes.len(), TEXTS.len());
    assert!(TEXTS.iter().all(|t| causes.contains(&((*t).into(), (*t).into(), 1))));
    kit.assert_balanced().await;
}

// Case F52.
async fn names_of_entries_services_and_hosts_come_back_as_they_went_in(kit: Kit) {
    let bytes: Vec<Vec<u8>> =
        (0..=255).map(|b| vec![b]).chain([vec![0, 0xff, 0], b"\xc3\x28 \xe2\x82".to_vec()]).collect();
    let entries: Vec<_> =
        bytes.iter().map(|b| Entry { name: EntryName(b.clone()), size: 0, mtime_ns: 0, priority: 0 }).collect();
    let done = kit.store.import(kit.service, kit.corpus, &entries).await.expect("imports");
    assert_eq!(done.added, bytes.len() as u64);
    let claimed: Vec<_> = kit.claim(1_000).await.into_iter().map(|t| t.entry.0).collect();
    assert_eq!(claimed, bytes);
    for text in TEXTS {
        let host = DispatcherInfo { id: None, host: text.into(), endpoint: text.into() };
        kit.store.register(&host, NOW).await.expect("registers");
        let service = kit.store.put_service(text, &ServiceSettings::default()).await;
        if text.is_empty() || text.contains(|c: char| matches!(c, '/' | ',') || !is_plain(c)) {
            assert_eq!(service.expect_err("no name for a folder or in a list").class, ErrorClass::BadRow, "{text:?}");
            continue;
        }
        let service = service.expect("makes");
        assert_eq!(service.name, text);
        let again = kit.store.put_service(text, &ServiceSettings::default()).await.expect("finds");
        assert_eq!(service.id, again.id);
    }
}

// Case F53; rule W1.
async fn a_name_that_cannot_be_a_folder_is_refused_and_told_what_is_allowed(kit: Kit) {
    let long = "x".repeat(201);
    for name in ["", ".", "..", "a/b", "/", "nul\0", "new\nline", "del\u{7f}", "\u{85}", "\u{202e}", &long] {
        let service = kit.store.put_service(name, &ServiceSettings::default()).await.expect_err("refuses");
        let corpus = kit.store.put_corpus(name, b"/x").await.expect_err("refuses");
        for (refused, allowed) in [(service, "allowed are 1 to 128 bytes"), (corpus, "allowed are 1 to 200 bytes")] {
            assert_eq!(refused.class, ErrorClass::BadRow, "{name:?}");
            assert!(refused.why.contains(allowed), "{refused}");
        }
    }
    let too_long_to_be_offered = &long[..129];
    let refused = kit.store.put_service(too_long_to_be_offered, &ServiceSettings::default()).await;
    assert!(refused.expect_err("refuses").why.contains("allowed are 1 to 128 bytes"));
    assert_eq!(kit.store.put_corpus(&long[1..], b"/x").await.expect("makes").name, &long[1..]);
    for name in ["x", "...", ".hidden", "tex to html", "漢字", &long[..128]] {
        assert_eq!(kit.store.put_service(name, &ServiceSettings::default()).await.expect("makes").name, name);
        assert_eq!(kit.store.put_corpus(name, b"/x").await.expect("makes").name, name);
    }
    // Workers say in a list with commas what they offer.
    let refused = kit.store.put_service("a,b", &ServiceSettings::default()).await.expect_err("refuses");
    assert!(refused.class == ErrorClass::BadRow && refused.why.contains("leave the comma out"), "{refused}");
    assert_eq!(kit.store.put_corpus("a,b", b"/x").await.expect("makes").name, "a,b");
}

both_stores!(
    every_text_comes_back_as_it_went_in,
    names_of_entries_services_and_hosts_come_back_as_they_went_in,
    a_name_that_cannot_be_a_folder_is_refused_and_told_what_is_allowed,
);
