//! Corpora of which it is not known what they are: nothing is written for them, and they are asked about again.

use crate::kit::{Echo, Place, Puppet, SERVICE, Setup, start_worker, wait_until};
use bytes::Bytes;
use dispatcher_core::id::TaskId;
use dispatcher_core::report::{Ending, Status};
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, PartSpec, ToWorker, TokenText};
use dispatcher_server::DrainMode;
use dispatcher_store::{SqliteOptions, SqliteStore, Store, TaskFilter, TaskState};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, ConnectOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// A database whose rows a test changes behind the dispatcher's back.
struct Meddled {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Meddled {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), runtime }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.runtime.block_on(SqliteStore::open(&self.file(), SqliteOptions::default())).unwrap())
    }

    fn meddle(&self, sql: &str) {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.file());
        self.runtime.block_on(async {
            let mut connection = options.connect().await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        });
    }
}

/// Of these tasks, those that are where they are said to be.
fn all_are(place: &Place, tasks: std::ops::RangeInclusive<i64>, state: TaskState) -> bool {
    tasks.clone().all(|task| place.story(task).task.state == state)
}

/// Says that a task is done, with this result.
fn bring(puppet: &Puppet, token: &TokenText, bytes: &'static [u8]) -> AckWord {
    let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = vec![PartSpec { name: "result".to_owned(), size: bytes.len() as u64, sha256 }];
    let result = FromWorker::Result { token: token.clone(), status: Status::NoProblem, messages: Vec::new(), parts };
    puppet.say_with(&result, &[Bytes::from_static(bytes)]);
    let meant = |said: &ToWorker| matches!(said, ToWorker::Ack { token: of, .. } if of == token);
    let (ToWorker::Ack { answer, .. }, _) = puppet.hear_until("the word about a result", meant) else { unreachable!() };
    answer
}

// Rules G4, G8.
#[test]
fn tasks_of_a_corpus_that_is_not_known_wait_until_it_is_and_hold_up_no_other() {
    let meddled = Meddled::new();
    let place = Place::start(Setup { store: meddled.store(), ..Setup::serving(2) });
    // Two corpora that say both that they are sandboxes and that they are none.
    meddled.meddle(
        "BEGIN;
         INSERT INTO corpora (name, root, kind) SELECT 'odd', root, 'sandbox' FROM corpora;
         INSERT INTO tasks (service, corpus, entry, input_size, input_mtime_ns, state, run, epoch, charged, freed, priority,
           not_before_ms)
         SELECT service, 2, entry, input_size, input_mtime_ns, 'ready', 1, 0, 0, 0, 9, 0 FROM tasks;
         COMMIT",
    );
    let worker = start_worker(&place, "good", 2, Arc::new(Echo));
    wait_until("the others are done", || all_are(&place, 1..=2, TaskState::Done));
    wait_until("it was asked again and again", || (3..=4).all(|task| place.story(task).task.epoch.0 >= 3));
    for task in 3..=4 {
        let story = place.story(task);
        assert_eq!((story.attempts.len(), story.results.len(), story.task.charged), (0, 0, 0), "{story:?}");
    }
    // What they are is written down properly: a sandbox of the first one.
    let published = std::fs::read(place.out().join("000000")).unwrap();
    meddled.meddle("UPDATE corpora SET parent = 1 WHERE name = 'odd'");
    wait_until("they are done", || all_are(&place, 3..=4, TaskState::Done));
    wait_until("they are in their places", || place.summary().unpublished == 0);
    assert_eq!(std::fs::read(place.out().join(".sandbox-2/000000")).unwrap(), published);
    // What is known stays known, whatever its row says.
    meddled.meddle("UPDATE corpora SET kind = 'ordinary', parent = NULL WHERE name = 'odd'");
    place.ask(place.store.rerun(&TaskFilter::default(), TaskId(2), 9, dispatcher_core::time::TimeMs(0)));
    place.dispatcher().nudge();
    wait_until("the second run is done", || {
        (3..=4).all(|task| place.story(task).results.iter().any(|result| result.run.0 == 2 && result.published))
    });
    let places = |task: i64| place.story(task).results.last().unwrap().parts[0].place.to_string();
    assert_eq!(places(3), ".sandbox-2/000000");
    place.assert_balance();
    worker.stop.drain();
    worker.thread.join().unwrap();
    place.drain(DrainMode::Received);
}

// Rules C12, G8, R1.
#[test]
fn a_result_whose_corpus_is_not_known_is_unusable_and_nothing_of_it_is_written() {
    let meddled = Meddled::new();
    let place = Place::start(Setup { store: meddled.store(), ..Setup::serving(1) });
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    let holds = || vec![Hold { token: token.clone(), state: HoldState::Running }];
    puppet.beat(1, 1, holds());
    place.drain(DrainMode::Received);
    puppet.vanish();

    meddled.meddle("UPDATE corpora SET kind = 'sandbox'");
    let place = place.start_again();
    wait_until("what is out is in flight", || place.dispatcher().in_flight() == 1);
    let (puppet, keep, _) = Puppet::join_with(&place, "steady", 1, &[SERVICE], holds());
    assert_eq!(keep, std::slice::from_ref(&token), "it may become known before the result is there");
    assert_eq!(bring(&puppet, &token, b"guessed"), AckWord::Stored, "the attempt is written down, and over");
    let story = place.story(1);
    assert_eq!((story.attempts[0].ending, story.results.len()), (Some(Ending::Unusable), 0), "{story:?}");
    assert_eq!(story.attempts[0].why.as_ref().unwrap().what, "place_not_known");
    // Memory has forgotten the attempt; the store says who may write, and there is no place for it all the same.
    let (again, ..) = Puppet::join_with(&place, "again", 1, &[SERVICE], Vec::new());
    bring(&again, &token, b"guessed");
    assert!(place.story(1).results.is_empty(), "{:?}", place.story(1));
    assert!(!place.out().join("000000").exists() && !place.out().join(".sandbox-1").exists());

    meddled.meddle("UPDATE corpora SET kind = 'ordinary'");
    puppet.say(&FromWorker::Ready { granted: 2 });
    let next = puppet.hear_task();
    assert_eq!(bring(&puppet, &next, b"right"), AckWord::Stored);
    wait_until("it is in its place", || place.summary().unpublished == 0);
    assert_eq!(std::fs::read(place.out().join("000000")).unwrap(), b"right");
    place.assert_balance();
    again.leave();
    puppet.leave();
    place.drain(DrainMode::Received);
}

// Rules C12, G8.
#[test]
fn what_is_taken_over_before_its_corpus_is_known_has_a_place_as_soon_as_it_is() {
    let meddled = Meddled::new();
    let place = Place::start(Setup { store: meddled.store(), ..Setup::serving(1) });
    let puppet = Puppet::join(&place, "steady", 1);
    puppet.say(&FromWorker::Ready { granted: 1 });
    let token = puppet.hear_task();
    puppet.say(&FromWorker::Begun { token: token.clone() });
    let holds = || vec![Hold { token: token.clone(), state: HoldState::Running }];
    puppet.beat(1, 1, holds());
    place.drain(DrainMode::Received);
    puppet.vanish();
    meddled.meddle("UPDATE corpora SET kind = 'sandbox'");
    let place = place.start_again();
    wait_until("what is out is in flight", || place.dispatcher().in_flight() == 1);
    meddled.meddle("UPDATE corpora SET kind = 'ordinary'");
    // A corpus that is imported into now is seen by the dispatcher only after it has read all corpora anew.
    place.import("later", 10..11, 0);
    let (later, ..) = Puppet::join_with(&place, "later", 1, &["later"], Vec::new());
    later.say(&FromWorker::Ready { granted: 1 });
    assert_eq!(later.finish(&later.hear_task()), AckWord::Stored);
    let (puppet, ..) = Puppet::join_with(&place, "steady", 1, &[SERVICE], holds());
    assert_eq!(bring(&puppet, &token, b"bytes"), AckWord::Stored);
    assert_eq!(place.story(1).attempts[0].ending, Some(Ending::Accepted));
    wait_until("it is in its place", || place.summary().unpublished == 0);
    assert_eq!(std::fs::read(place.out().join("000000")).unwrap(), b"bytes");
    later.leave();
    puppet.leave();
    place.drain(DrainMode::Received);
}
