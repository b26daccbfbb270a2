//! The archive of one file for each result, with its crash windows.
//!
//! A crash is what a kill leaves: the archive and the store are dropped at the moment in question and opened again.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{EntryName, Epoch, LeaseId, Run, TaskId, WorkerKey};
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::archive::{Archive, ArchiveError, FileArchive, FileArchiveOptions, Layout, NewPart, Source};
use dispatcher_store::{
    Claim, DispatcherInfo, Entry, PartRef, Publication, Record, ServiceSettings, SqliteOptions, SqliteStore, Store,
    TaskFilter, TaskState,
};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn state(&self) -> PathBuf {
        self.out().join(".dispatcher")
    }

    fn open(&self) -> FileArchive {
        self.open_with(Layout::same_names())
    }

    fn open_with(&self, layout: Layout) -> FileArchive {
        FileArchive::open(FileArchiveOptions { out: self.out(), state: self.state(), layout }).expect("opens")
    }

    fn staged(&self) -> usize {
        fs::read_dir(self.state().join("staging")).expect("lists").count()
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read(self.out().join(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

const fn lease(task: i64, epoch: u64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(epoch) }
}

fn entry(name: impl AsRef<[u8]>) -> EntryName {
    EntryName(name.as_ref().to_vec())
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stage(archive: &FileArchive, lease: LeaseId, name: &str, part: &str, bytes: &[u8]) -> PartRef {
    try_stage(archive, lease, &entry(name), part, bytes).expect("stages")
}

fn try_stage(
    archive: &FileArchive,
    lease: LeaseId,
    entry: &EntryName,
    part: &str,
    bytes: &[u8],
) -> Result<PartRef, ArchiveError> {
    archive.stage(lease, entry, NewPart { name: part, sha256: &sum(bytes), source: Source::Bytes(bytes) })
}

fn publication(lease: LeaseId, name: &str, parts: Vec<PartRef>) -> Publication {
    Publication { lease, entry: entry(name), status: Status::NoProblem, parts, published: false }
}

// Rule D2.
#[test]
fn a_result_is_staged_synced_and_then_published_under_its_entrys_name() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "a/b/c.txt", "result", b"bytes");
    assert_eq!((part.place.clone(), part.length, part.offset), (entry("a/b/c.txt"), 5, 0));
    assert_eq!(place.read("a/b/c.txt"), None, "nobody sees it before it is committed");
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "a/b/c.txt", vec![part])).expect("publishes");
    assert_eq!(place.read("a/b/c.txt").as_deref(), Some("bytes"));
    assert_eq!(place.staged(), 0);
    archive.sync().expect("syncs the rename");
}

// Rule C8.
#[test]
fn publishing_twice_is_the_same_as_once() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    archive.sync().expect("syncs");
    let publication = publication(lease(1, 1), "a", vec![part]);
    for _ in 0..3 {
        archive.publish(&publication).expect("publishes");
    }
    assert_eq!(place.open().publish(&publication).map(|()| place.read("a")).expect("again"), Some("bytes".into()));
}

// Rule D6.
#[test]
fn the_same_bytes_sent_again_never_replace_what_is_staged() {
    let place = Place::new();
    let archive = place.open();
    let first = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    archive.sync().expect("syncs");
    let file = fs::read_dir(place.state().join("staging")).expect("lists").next().expect("one").expect("one").path();
    let before = fs::metadata(&file).expect("there").modified().expect("a time");
    assert_eq!(stage(&archive, lease(1, 1), "a", "result", b"bytes"), first);
    assert_eq!(fs::metadata(&file).expect("there").modified().expect("a time"), before, "not written again");
    let other = stage(&archive, lease(1, 1), "a", "result", b"other");
    assert_ne!(other.sha256, first.sha256);
    assert_eq!(place.staged(), 2, "other bytes of the same lease lie beside it");
    archive.publish(&publication(lease(1, 1), "a", vec![first])).expect("publishes");
    assert_eq!(place.read("a").as_deref(), Some("bytes"));
}

// Case F53.
#[test]
fn what_a_crash_left_half_written_is_written_again() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    let file = fs::read_dir(place.state().join("staging")).expect("lists").next().expect("one").expect("one").path();
    fs::write(&file, b"by").expect("cuts");
    let archive = place.open();
    assert_eq!(stage(&archive, lease(1, 1), "a", "result", b"bytes"), part);
    assert_eq!(fs::read(&file).expect("reads"), b"bytes");
    fs::write(&file, b"BYTES").expect("spoils");
    stage(&archive, lease(1, 1), "a", "result", b"bytes");
    assert_eq!(fs::read(&file).expect("reads"), b"bytes", "the same length is not enough");
}

// Rules C5, D5.
#[test]
fn a_better_result_takes_the_place_and_a_loser_is_discarded() {
    let place = Place::new();
    let archive = place.open();
    let first = stage(&archive, lease(1, 1), "a", "result", b"first");
    let second = stage(&archive, lease(1, 2), "a", "result", b"second");
    let loser = stage(&archive, lease(1, 3), "a", "result", b"loser");
    let log = stage(&archive, lease(1, 3), "a", "stderr", b"why");
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "a", vec![first])).expect("publishes");
    archive.publish(&publication(lease(1, 2), "a", vec![second])).expect("publishes");
    archive.discard(lease(1, 3), &[loser.clone(), log.clone()]).expect("discards");
    archive.discard(lease(1, 3), &[loser, log.clone()]).expect("twice");
    assert_eq!((place.read("a").as_deref(), place.staged()), (Some("second"), 0));
    assert!(!place.state().join(Path::new(std::str::from_utf8(&log.place.0).expect("text"))).exists());
}

// Rule L14.
#[test]
fn a_failure_without_a_file_leaves_the_earlier_runs_output_in_place() {
    let place = Place::new();
    let archive = place.open();
    let old = stage(&archive, lease(1, 1), "a", "result", b"old");
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "a", vec![old])).expect("publishes");
    let failed = Publication { status: Status::Fatal, ..publication(lease(1, 2), "a", vec![]) };
    archive.publish(&failed).expect("nothing to do");
    assert_eq!(place.read("a").as_deref(), Some("old"));
}

// Rule A5.
#[test]
fn kept_output_goes_below_state_and_nothing_is_written_for_silence() {
    let place = Place::new();
    let archive = place.open();
    let loud = stage(&archive, lease(12_345, 2), "a", "stderr", b"warning: x");
    let silent = stage(&archive, lease(12_345, 2), "a", "stdout", b"");
    let empty = stage(&archive, lease(12_345, 2), "a", "result", b"");
    archive.sync().expect("syncs");
    let file = place.state().join(std::str::from_utf8(&loud.place.0).expect("text"));
    assert!(loud.place.0.starts_with(b"attempts/12/12345.1.2.stderr."), "{}", loud.place);
    assert_eq!(fs::read(file).expect("kept"), b"warning: x");
    assert_eq!((silent.length, silent.place.0.len()), (0, 0));
    let publication = publication(lease(12_345, 2), "a", vec![empty, loud, silent]);
    archive.publish(&publication).expect("publishes");
    assert_eq!(place.read("a").as_deref(), Some(""), "an empty result is a result");
    assert_eq!(archive.check(&publication, true).expect("checks"), Vec::<String>::new());
    assert!(place.read("stderr").is_none());
}

// Case F52.
#[test]
fn names_may_be_any_bytes_and_never_lead_out_of_the_folder() {
    let place = Place::new();
    let archive = place.open();
    for (n, name) in [&b"\xff\xfe"[..], b"a b/'\"\n", b"..a/b..", "é/漢".as_bytes(), b"-rf"].into_iter().enumerate() {
        let lease = lease(n as i64 + 1, 1);
        let part = try_stage(&archive, lease, &EntryName(name.to_vec()), "result", b"x").expect("stages");
        archive.sync().expect("syncs");
        let publication = Publication { entry: EntryName(name.to_vec()), ..publication(lease, "", vec![part]) };
        archive.publish(&publication).expect("publishes");
        assert_eq!(archive.check(&publication, true).expect("checks"), Vec::<String>::new());
    }
    let long = [b'n'; 256];
    let deep = "d/".repeat(2_000) + "x";
    for name in [
        &b""[..],
        b"/etc/passwd",
        b"../x",
        b"a/../../x",
        b"a//b",
        b"./a",
        b"a/",
        b"a\0b",
        b".dispatcher/tasks.db",
        b".dispatcher",
        &long,
        deep.as_bytes(),
    ] {
        let refused = try_stage(&archive, lease(9, 1), &EntryName(name.to_vec()), "result", b"x").expect_err("refuses");
        assert!(matches!(refused, ArchiveError::Io { .. }), "{refused}");
        let forged =
            PartRef { name: "result".into(), place: EntryName(name.to_vec()), offset: 0, length: 1, sha256: sum(b"x") };
        let forged = Publication { entry: EntryName(name.to_vec()), ..publication(lease(9, 1), "", vec![forged]) };
        assert!(archive.publish(&forged).is_err());
    }
    assert!(!place.folder.path().join("x").exists());
    assert_eq!(place.staged(), 0);
}

#[test]
fn results_are_named_by_the_layout() {
    let html = Layout::with_extension(".html");
    for (from, to) in
        [("a/b.tex", "a/b.html"), ("b", "b.html"), ("a.tar.gz", "a.tar.html"), ("d.x/.rc", "d.x/.rc.html")]
    {
        assert_eq!(html.result_name(&entry(from)), entry(to));
    }
    assert_eq!(html.result_name(&entry(b"\xff.tex")), entry(b"\xff.html"));
    let place = Place::new();
    let archive = place.open_with(html);
    assert_eq!(archive.result_name(&entry("x.tex")), entry("x.html"));
    let part = stage(&archive, lease(1, 1), "x.tex", "result", b"<p>");
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "x.tex", vec![part])).expect("publishes");
    assert_eq!(place.read("x.html").as_deref(), Some("<p>"));
}

#[test]
fn a_folder_or_file_in_the_way_is_named_with_what_to_do() {
    let place = Place::new();
    let archive = place.open();
    let [a, b] = [("a", 1), ("f/b", 2)].map(|(name, n)| {
        let part = stage(&archive, lease(n, 1), name, "result", b"x");
        publication(lease(n, 1), name, vec![part])
    });
    archive.sync().expect("syncs");
    fs::create_dir_all(place.out().join("a/full")).expect("a folder");
    fs::write(place.out().join("f"), b"a file").expect("a file");
    for (publication, path) in [(&a, "out/a"), (&b, "out/f")] {
        let text = archive.publish(publication).expect_err("in the way").to_string();
        assert!(text.contains(path) && text.contains("move it away"), "{text}");
    }
    fs::remove_dir_all(place.out().join("a")).expect("moved away");
    fs::remove_file(place.out().join("f")).expect("moved away");
    archive.publish(&a).expect("goes on by itself");
    archive.publish(&b).expect("goes on by itself");
    assert_eq!((place.read("a").as_deref(), place.read("f/b").as_deref()), (Some("x"), Some("x")));
}

#[test]
fn large_results_come_from_the_spool_folder() {
    let place = Place::new();
    let archive = place.open();
    let spooled = archive.spool().join("incoming");
    fs::write(&spooled, b"large").expect("spools");
    let part = NewPart { name: "result", sha256: &sum(b"large"), source: Source::Spool(&spooled) };
    let part = archive.stage(lease(1, 1), &entry("a"), part).expect("stages");
    assert!(!spooled.exists(), "taken over");
    fs::write(&spooled, b"large").expect("sent again");
    let again = NewPart { name: "result", sha256: &sum(b"large"), source: Source::Spool(&spooled) };
    assert_eq!(archive.stage(lease(1, 1), &entry("a"), again).expect("stages"), part);
    assert!(!spooled.exists(), "and the second copy is gone");
    // A batch that met a full disk is staged anew as a whole, when what was spooled has moved already.
    let moved = NewPart { name: "result", sha256: &sum(b"large"), source: Source::Spool(&spooled) };
    assert_eq!(archive.stage(lease(1, 1), &entry("a"), moved).expect("stages"), part);
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "a", vec![part])).expect("publishes");
    assert_eq!(place.read("a").as_deref(), Some("large"));
}

// Rule A1.
#[test]
fn a_check_finds_what_is_missing_cut_or_changed() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    archive.sync().expect("syncs");
    let mut publication = publication(lease(1, 1), "a", vec![part]);
    assert_eq!(archive.check(&publication, true).expect("checks"), Vec::<String>::new(), "staged is as good");
    archive.publish(&publication).expect("publishes");
    publication.published = true;
    assert_eq!(archive.check(&publication, true).expect("checks"), Vec::<String>::new());
    fs::write(place.out().join("a"), b"BYTES").expect("changes");
    assert_eq!(archive.check(&publication, false).expect("checks"), Vec::<String>::new(), "only a deep check reads");
    let complaint = |deep| archive.check(&publication, deep).expect("checks").remove(0);
    assert!(complaint(true).contains("checksum"), "{}", complaint(true));
    fs::write(place.out().join("a"), b"by").expect("cuts");
    assert!(complaint(false).contains("2 bytes, not 5"), "{}", complaint(false));
    fs::remove_file(place.out().join("a")).expect("removes");
    assert!(complaint(false).contains("missing"), "{}", complaint(false));
    fs::create_dir(place.out().join("a")).expect("a folder");
    assert!(complaint(false).contains("no file"), "{}", complaint(false));
}

#[test]
fn a_published_result_that_is_gone_is_told_and_not_invented() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    archive.sync().expect("syncs");
    let publication = publication(lease(1, 1), "a", vec![part]);
    archive.publish(&publication).expect("publishes");
    fs::write(place.out().join("a"), b"by").expect("cuts");
    let gone = archive.publish(&publication).expect_err("gone");
    assert!(matches!(&gone, ArchiveError::Gone { place } if place.ends_with("/a")), "{gone}");
}

#[test]
fn a_folder_that_may_not_be_written_is_an_error_and_nothing_is_lost() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "locked/a", "result", b"bytes");
    archive.sync().expect("syncs");
    fs::create_dir(place.out().join("locked")).expect("a folder");
    let publication = publication(lease(1, 1), "locked/a", vec![part]);
    let set = |mode| fs::set_permissions(place.out().join("locked"), fs::Permissions::from_mode(mode)).expect("sets");
    set(0o500);
    let told = archive.publish(&publication);
    set(0o700);
    // Root may write anywhere; then there is nothing to refuse.
    if told.is_err() {
        assert_eq!(place.staged(), 1);
        archive.publish(&publication).expect("publishes");
    }
    assert_eq!(place.read("locked/a").as_deref(), Some("bytes"));
}

#[test]
fn many_results_are_synced_at_once_and_few_one_by_one() {
    let place = Place::new();
    let archive = place.open();
    for (round, many) in [1, 8, 9, 100].into_iter().enumerate() {
        let leases = (0..many).map(|n| lease(n + 1, round as u64 + 1));
        let staged: Vec<_> = leases
            .map(|l| publication(l, &format!("d/{l}"), vec![stage(&archive, l, &format!("d/{l}"), "result", b"x")]))
            .collect();
        archive.sync().expect("syncs");
        staged.iter().for_each(|p| archive.publish(p).expect("publishes"));
        archive.sync().expect("syncs the renames");
    }
    assert_eq!(fs::read_dir(place.out().join("d")).expect("lists").count(), 118);
}

// The crash windows of docs/states.md, with the store beside the archive.

struct Pair {
    place: Place,
    store: SqliteStore,
    archive: FileArchive,
}

impl Pair {
    async fn open(place: Place) -> Self {
        fs::create_dir_all(place.state()).expect("a folder");
        let store = SqliteStore::open(&place.state().join("tasks.db"), SqliteOptions::default()).await.expect("opens");
        let archive = place.open();
        Self { place, store, archive }
    }

    async fn with_one_lease() -> (Self, LeaseId) {
        let pair = Self::open(Place::new()).await;
        let service = pair.store.put_service("s", &ServiceSettings::default()).await.expect("makes").id;
        let corpus = pair.store.put_corpus("c", b"/c").await.expect("makes").id;
        let input = Entry { name: entry("in.txt"), size: 1, mtime_ns: 1, priority: 0 };
        pair.store.import(service, corpus, &[input]).await.expect("imports");
        let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
        let dispatcher = pair.store.register(&info, TimeMs(0)).await.expect("registers");
        let claimed = pair.store.claim(&Claim { dispatcher, service, max: 1 }, TimeMs(0)).await.expect("claims");
        (pair, claimed[0].lease)
    }

    /// Everything in memory is gone; what is on disk is found again.
    async fn crash(self) -> Self {
        let Self { place, store, archive } = self;
        drop((store, archive));
        Self::open(place).await
    }

    fn stage(&self, lease: LeaseId) -> PartRef {
        stage(&self.archive, lease, "in.txt", "result", b"output")
    }

    async fn commit(&self, lease: LeaseId, part: PartRef) {
        let worker = WorkerKey { name: "w".into(), incarnation: "1".into() };
        let (status, messages, parts, at) = (Status::NoProblem, vec![], vec![part], TimeMs(1));
        let record = Record::Result { lease, worker, status, messages, parts, at };
        self.store.mark_done(&[record], TimeMs(1)).await.expect("writes");
    }

    /// What a start does: publishes what was committed, and sweeps the rest away.
    async fn recover(&self) -> (usize, u64) {
        let waiting = self.store.unpublished(None, 100).await.expect("lists");
        let keep: Vec<_> = waiting.iter().map(|p| p.lease).collect();
        let swept = self.archive.sweep(&|lease| keep.contains(&lease)).expect("sweeps");
        for publication in &waiting {
            self.archive.publish(publication).expect("publishes");
            self.store.mark_done(&[Record::Published { lease: publication.lease }], TimeMs(2)).await.expect("marks");
        }
        assert_eq!(self.store.unpublished(None, 100).await.expect("lists"), []);
        (waiting.len(), swept)
    }

    async fn assert_in_place_once(&self) {
        assert_eq!(self.place.read("in.txt").as_deref(), Some("output"));
        assert_eq!(self.place.staged(), 0);
        let parts = self.store.standing_parts(TaskId(0), 10).await.expect("lists");
        assert_eq!(self.archive.check(&parts[0], true).expect("checks"), Vec::<String>::new());
        assert_eq!(self.store.audit().await.expect("audits").differences, []);
    }
}

// Rules D7, S4.
#[tokio::test]
async fn killed_before_the_commit_the_stray_file_is_swept_and_the_result_can_come_again() {
    let (pair, lease) = Pair::with_one_lease().await;
    pair.stage(lease);
    pair.archive.sync().expect("syncs");
    fs::write(pair.archive.spool().join("half"), b"ha").expect("spools");
    let pair = pair.crash().await;
    assert_eq!(pair.recover().await, (0, 2));
    assert_eq!((pair.place.staged(), pair.place.read("in.txt")), (0, None));
    let leased = TaskFilter { states: vec![TaskState::Leased], ..Default::default() };
    assert_eq!(pair.store.tasks(&leased, TaskId(0), 9).await.expect("lists").len(), 1);
    let part = pair.stage(lease);
    pair.archive.sync().expect("syncs");
    pair.commit(lease, part).await;
    assert_eq!(pair.recover().await, (1, 0));
    pair.assert_in_place_once().await;
}

// Rules D7, S4, C8.
#[tokio::test]
async fn killed_after_the_commit_the_next_start_publishes() {
    let (pair, lease) = Pair::with_one_lease().await;
    let part = pair.stage(lease);
    pair.archive.sync().expect("syncs");
    pair.commit(lease, part).await;
    let pair = pair.crash().await;
    assert_eq!(pair.place.read("in.txt"), None);
    assert_eq!(pair.recover().await, (1, 0), "what is committed is not swept");
    pair.assert_in_place_once().await;
}

// Rules D7, S4, D6.
#[tokio::test]
async fn killed_after_the_rename_the_next_start_finds_it_in_place() {
    let (pair, lease) = Pair::with_one_lease().await;
    let part = pair.stage(lease);
    pair.archive.sync().expect("syncs");
    pair.commit(lease, part).await;
    let waiting = pair.store.unpublished(None, 9).await.expect("lists");
    pair.archive.publish(&waiting[0]).expect("publishes");
    let pair = pair.crash().await;
    assert_eq!(pair.recover().await, (1, 0));
    pair.assert_in_place_once().await;
}

// Rules D6, D7.
#[tokio::test]
async fn a_result_sent_again_after_the_crash_is_told_stored_and_spoils_nothing() {
    let (pair, lease) = Pair::with_one_lease().await;
    let part = pair.stage(lease);
    pair.archive.sync().expect("syncs");
    pair.commit(lease, part).await;
    let pair = pair.crash().await;
    let part = pair.stage(lease);
    pair.archive.sync().expect("syncs");
    pair.commit(lease, part).await;
    assert_eq!(pair.recover().await, (1, 0));
    pair.assert_in_place_once().await;
}

// Case F53.
#[test]
fn a_stray_link_in_the_staging_folder_is_replaced_and_not_written_through() {
    let place = Place::new();
    let archive = place.open();
    let outside = place.folder.path().join("precious");
    fs::write(&outside, b"precious").expect("writes");
    let name = format!("1.1.1.result.{}", &sum(b"bytes")[..16]);
    std::os::unix::fs::symlink(&outside, place.state().join("staging").join(name)).expect("links");
    let part = stage(&archive, lease(1, 1), "a", "result", b"bytes");
    archive.sync().expect("syncs");
    archive.publish(&publication(lease(1, 1), "a", vec![part])).expect("publishes");
    assert_eq!(place.read("a").as_deref(), Some("bytes"));
    assert_eq!(fs::read(outside).expect("reads"), b"precious");
}

// Rule G8.
#[test]
fn what_is_removed_is_only_what_lies_in_the_entrys_own_place_and_folders_that_are_empty_then() {
    let place = Place::new();
    let archive = place.open();
    let (own, other) = ("s/try.sandbox-2/a/b", "s/papers/a/b");
    let mut parts = Vec::new();
    for (n, name) in [own, other].into_iter().enumerate() {
        let lease = lease(n as i64 + 1, 1);
        let part = stage(&archive, lease, name, "result", name.as_bytes());
        archive.sync().expect("syncs");
        archive.publish(&publication(lease, name, vec![part.clone()])).expect("publishes");
        parts.push(part);
    }
    let log = stage(&archive, lease(1, 1), own, "stdout", b"said");
    // A row that names another's file is not believed.
    archive.remove(lease(1, 1), &entry(own), &parts[1..]).expect("does nothing");
    assert_eq!(place.read(other).as_deref(), Some(other));
    for _ in 0..2 {
        archive.remove(lease(1, 1), &entry(own), &[parts[0].clone(), log.clone()]).expect("removes");
    }
    assert!(!place.out().join("s/try.sandbox-2").exists(), "nor the folders it lay in");
    assert!(!place.state().join(String::from_utf8_lossy(&log.place.0).as_ref()).exists());
    assert_eq!(place.read(other).as_deref(), Some(other));
    // One that is staged and not in place yet goes as well.
    let part = stage(&archive, lease(3, 1), own, "result", b"new");
    archive.remove(lease(3, 1), &entry(own), std::slice::from_ref(&part)).expect("removes");
    assert_eq!(place.staged(), 0);
}
