//! Services, corpora, entries.

use crate::kit::{Kind, Kit, NOW, STORED, entry, lease, result};
use dispatcher_core::id::EntryName;
use dispatcher_core::report::Status;
use dispatcher_core::time::SpanMs;
use dispatcher_store::{Entry, ErrorClass, Imported, ServiceSettings, TaskState};

// Rule G7.
async fn a_service_is_made_once_and_its_settings_change(kit: Kit) {
    let settings = ServiceSettings {
        budget: 7,
        paused: true,
        retry_delay_ms: SpanMs(5),
        max_in_flight: Some(9),
        priority: -4,
        ..Default::default()
    };
    let changed = kit.store.put_service("first", &settings).await.expect("changes");
    assert_eq!((changed.id, &changed.settings), (kit.service, &settings));
    let second = kit.store.put_service("second", &ServiceSettings::default()).await.expect("makes");
    assert_ne!(second.id, kit.service);
    assert_eq!(kit.store.services().await.expect("lists"), [changed, second]);
}

// Case F53.
async fn settings_that_cannot_be_stored_are_refused(kit: Kit) {
    let endless = ServiceSettings { result_cap: u64::MAX, ..Default::default() };
    let nothing = ServiceSettings { max_in_flight: Some(0), ..Default::default() };
    for settings in [endless, nothing] {
        let refused = kit.store.put_service("first", &settings).await.expect_err("refuses");
        assert_eq!(refused.class, ErrorClass::BadRow);
    }
}

// Rule G8.
async fn a_corpus_keeps_its_root(kit: Kit) {
    let again = kit.store.put_corpus("papers", b"/papers").await.expect("finds");
    assert_eq!(again.id, kit.corpus);
    let other = kit.store.put_corpus("papers", b"/elsewhere").await.expect_err("another root");
    assert_eq!(other.class, ErrorClass::Conflict);
    assert!(other.why.contains("/papers") && other.why.contains("/elsewhere"), "{other}");
    let bytes = kit.store.put_corpus("odd", b"/\xff\0").await.expect("bytes");
    assert_eq!(kit.store.corpora().await.expect("lists"), [again, bytes]);
}

// Case F49.
async fn an_import_for_what_was_deleted_is_refused(kit: Kit) {
    let (nobody, nowhere) = (dispatcher_core::id::ServiceId(77), dispatcher_core::id::CorpusId(78));
    for (service, corpus, why) in [(nobody, kit.corpus, "no service 77"), (kit.service, nowhere, "no corpus 78")] {
        let refused = kit.store.import(service, corpus, &[entry("a")]).await.expect_err("refuses");
        assert_eq!(refused.class, ErrorClass::Conflict);
        assert!(refused.why.contains(why), "{refused}");
    }
    assert_eq!(kit.all().await, []);
}

// Rule D6.
async fn a_repeated_import_adds_only_what_is_new(kit: Kit) {
    let first = [entry("a"), entry("b")];
    let import = |entries: Vec<Entry>| {
        let (store, service, corpus) = (kit.store.clone(), kit.service, kit.corpus);
        async move { store.import(service, corpus, &entries).await.expect("imports") }
    };
    assert_eq!(import(first.to_vec()).await, Imported { added: 2, known: 0, changed: vec![] });
    let more = vec![entry("b"), entry("c"), entry("c"), entry("a")];
    assert_eq!(import(more).await, Imported { added: 1, known: 3, changed: vec![] });
    let ids: Vec<_> = kit.all().await.iter().map(|t| t.id.0).collect();
    assert_eq!(ids, [1, 2, 3], "what is known uses up no id");
}

// Rule L11.
async fn an_entry_that_changed_is_named_and_left_alone(kit: Kit) {
    kit.store.import(kit.service, kit.corpus, &[entry("a"), entry("b")]).await.expect("imports");
    let changed = [Entry { size: 11, ..entry("a") }, Entry { mtime_ns: -1, ..entry("b") }, entry("c")];
    let done = kit.store.import(kit.service, kit.corpus, &changed).await.expect("imports");
    assert_eq!(done, Imported { added: 1, known: 0, changed: vec![entry("a").name, entry("b").name] });
    assert_eq!(kit.claim(9).await[0].input_size, 10, "its row is as it was");
    let twice = [entry("d"), Entry { size: 99, ..entry("d") }];
    let done = kit.store.import(kit.service, kit.corpus, &twice).await.expect("imports");
    assert_eq!(done, Imported { added: 1, known: 0, changed: vec![entry("d").name] });
}

// Case F53.
async fn an_entry_has_a_name_that_fits(kit: Kit) {
    let named = |length: usize| Entry { name: EntryName(vec![0xff; length]), ..entry("") };
    for length in [0, dispatcher_store::limits::MAX_ENTRY + 1, 10_000] {
        let refused = kit.store.import(kit.service, kit.corpus, &[named(length)]).await.expect_err("refuses");
        assert_eq!(refused.class, ErrorClass::BadRow, "{length} bytes");
    }
    for length in [1, 255, 256, 2_705, dispatcher_store::limits::MAX_ENTRY] {
        kit.store.import(kit.service, kit.corpus, &[named(length)]).await.expect("fits");
    }
    let large = Entry { size: u64::MAX, ..entry("large") };
    assert_eq!(
        kit.store.import(kit.service, kit.corpus, &[large]).await.expect_err("refuses").class,
        ErrorClass::BadRow
    );
    assert_eq!(kit.all().await.iter().map(|t| t.entry.0.len()).collect::<Vec<_>>(), [1, 255, 256, 2_705, 4_096]);
}

// Rules L14, C6.
async fn an_accepted_change_begins_a_new_run_of_what_differs(kit: Kit) {
    kit.import(3).await;
    let claimed = kit.claim(3).await;
    assert_eq!(kit.tell(result(claimed[0].lease, Status::NoProblem)).await, STORED);
    let seen = [Entry { size: 77, ..entry("000000") }, entry("000001"), entry("unheard of")];
    let changed = kit.store.accept_change(kit.service, kit.corpus, &seen, NOW).await.expect("accepts");
    assert_eq!(changed, 1);
    let story = kit.story(claimed[0].lease.task).await;
    assert_eq!((story.task.state, story.task.run.0, story.task.input_size), (TaskState::Ready, 2, 77));
    assert_eq!(story.results.len(), 1, "what the first run brought is kept");
    let again = kit.store.accept_change(kit.service, kit.corpus, &seen, NOW).await.expect("accepts");
    assert_eq!(again, 0, "told twice, changed once");
    assert_eq!(kit.claim(9).await[0].lease, lease(1, 2, 2));
}

// Rule D6.
#[test]
fn the_token_key_is_made_with_the_database_and_stays() {
    crate::kit::run(Kind::Sqlite, |kit| {
        Box::pin(async move {
            let key = kit.store.token_key().await.expect("a key");
            assert_ne!(key, [0; 32]);
            assert_eq!(kit.reopened().await.token_key().await.expect("a key"), key);
            let other = Kit::new(Kind::Sqlite).await.store.token_key().await.expect("a key");
            assert_ne!(key, other);
        })
    });
}

both_stores!(
    a_service_is_made_once_and_its_settings_change,
    settings_that_cannot_be_stored_are_refused,
    a_corpus_keeps_its_root,
    an_import_for_what_was_deleted_is_refused,
    a_repeated_import_adds_only_what_is_new,
    an_entry_that_changed_is_named_and_left_alone,
    an_entry_has_a_name_that_fits,
    an_accepted_change_begins_a_new_run_of_what_differs,
);
