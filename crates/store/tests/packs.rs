//! The archive of packs: what is appended, what survives a crash, and what is done about a disk that refuses.
//!
//! A crash is what a kill leaves: a copy of the folder at the moment in question, in which nobody holds a lock.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{EntryName, Epoch, LeaseId, Run, TaskId, WorkerKey};
use dispatcher_core::report::Status;
use dispatcher_core::time::TimeMs;
use dispatcher_store::archive::packs::member::unescape;
use dispatcher_store::archive::{Archive, ArchiveError, NewPart, PackArchive, PackOptions, Source};
use dispatcher_store::upkeep::{Compacted, Compacting, Swept, UpkeepError, compact, missing, sweep};
use dispatcher_store::{
    Claim, DispatcherId, DispatcherInfo, Durability, Entry, PartRef, Publication, Record, ServiceSettings,
    SqliteOptions, SqliteStore, Store, TaskFilter,
};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOW: TimeMs = TimeMs(1_000);

thread_local! {
    /// What the next passes of a place that can be refused are to do.
    static REFUSED: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
}

/// Lets the next `times` tries of `what` fail.
fn refuse(what: &'static str, times: u32) {
    REFUSED.set(Some((what, times)));
}

fn fails(place: &'static str) -> bool {
    match REFUSED.get() {
        Some((what, times)) if what == place && times > 0 => {
            REFUSED.set(Some((what, times - 1)));
            true
        }
        _ => false,
    }
}

fn options() -> PackOptions {
    PackOptions { fails, ..PackOptions::default() }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn state(&self) -> &Path {
        self.folder.path()
    }

    fn open(&self) -> PackArchive {
        PackArchive::open(self.state(), options()).expect("opens")
    }

    fn open_sealing_at(&self, seal_at: u64) -> PackArchive {
        PackArchive::open(self.state(), PackOptions { seal_at, ..options() }).expect("opens")
    }

    /// The packs that are there, by name.
    fn packs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.state().join("packs")).expect("lists");
        let mut packs: Vec<_> = found.map(|found| found.expect("lists").path()).collect();
        packs.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
        packs.sort();
        packs
    }

    fn suspects(&self) -> usize {
        let found = fs::read_dir(self.state().join("packs")).expect("lists");
        found.filter(|found| found.as_ref().expect("lists").path().extension().is_some_and(|e| e == "suspect")).count()
    }

    /// A spool file with these bytes.
    fn spool(&self, archive: &PackArchive, name: &str, bytes: &[u8]) -> PathBuf {
        let path = archive.spool().join(name);
        fs::write(&path, bytes).expect("spools");
        path
    }

    /// The folder as a kill would leave it now.
    fn crashed(&self) -> Self {
        let copy = Self::new();
        let status = Command::new("cp").arg("-a").arg(self.state().join(".")).arg(copy.state()).status();
        assert!(status.expect("copies").success());
        copy
    }
}

const fn lease(task: i64, epoch: u64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(epoch) }
}

fn name(name: impl AsRef<[u8]>) -> EntryName {
    EntryName(name.as_ref().to_vec())
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stage(archive: &PackArchive, lease: LeaseId, entry: &str, part: &str, bytes: &[u8]) -> PartRef {
    stage_from(archive, lease, entry, part, bytes, Source::Bytes(bytes)).expect("stages")
}

fn stage_from(
    archive: &PackArchive,
    lease: LeaseId,
    entry: &str,
    part: &str,
    bytes: &[u8],
    source: Source<'_>,
) -> Result<PartRef, ArchiveError> {
    archive.stage(lease, &name(entry), NewPart { name: part, sha256: &sum(bytes), source })
}

fn publication(lease: LeaseId, parts: Vec<PartRef>) -> Publication {
    Publication { lease, entry: name("e"), status: Status::NoProblem, parts, published: true }
}

fn read(archive: &dyn Archive, lease: LeaseId, part: &PartRef) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    archive.read(&publication(lease, vec![part.clone()]), part)?.read_to_end(&mut bytes).expect("reads");
    Ok(bytes)
}

fn faults(archive: &dyn Archive, lease: LeaseId, part: &PartRef) -> Vec<String> {
    archive.check(&publication(lease, vec![part.clone()]), true).expect("looks")
}

fn assert_right(archive: &dyn Archive, lease: LeaseId, part: &PartRef, bytes: &[u8]) {
    assert_eq!(faults(archive, lease, part), Vec::<String>::new());
    assert!(read(archive, lease, part).expect("opens") == bytes, "other bytes come back");
}

/// What the system's `tar` finds in a pack: members and their bytes.
fn extracted(pack: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("into");
    fs::create_dir(&into).expect("makes");
    let done = Command::new("tar").arg("xf").arg(pack).arg("-C").arg(&into).output().expect("tar runs");
    assert!(done.status.success(), "{}: {}", pack.display(), String::from_utf8_lossy(&done.stderr));
    let listed = Command::new("tar").arg("tf").arg(pack).output().expect("tar runs");
    assert!(listed.status.success());
    let mut found = BTreeMap::new();
    let mut folders = vec![into.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("lists") {
            let path = entry.expect("lists").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let member = path.strip_prefix(&into).expect("below").to_string_lossy().into_owned();
                found.insert(member, fs::read(&path).expect("reads"));
            }
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1, "nothing was extracted beside the folder");
    found
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ (n / 251) as u8).collect()
}

const SIZES: [usize; 13] =
    [0, 1, 255, 256, 511, 512, 513, 65_535, 65_536, 131_071, 131_072, 131_073, 8 * 1024 * 1024 + 1];

// Rule D2. Case F53.
#[test]
fn results_of_every_size_come_back_byte_for_byte_and_so_they_do_by_tar() {
    let place = Place::new();
    let archive = place.open();
    let mut sizes = SIZES.to_vec();
    sizes.push(if std::env::var_os("DISPATCHER_FULL").is_some() { 64_000_000 } else { 9_000_000 });
    let mut staged = Vec::new();
    for (n, size) in (1..).zip(sizes) {
        let bytes = pattern(size);
        let by_memory = stage(&archive, lease(n, 1), &format!("s/c/memory/{n}"), "result", &bytes);
        let spool = place.spool(&archive, &format!("{n}"), &bytes);
        let source = Source::Spool(&spool);
        let by_spool =
            stage_from(&archive, lease(n, 2), &format!("s/c/spool/{n}"), "result", &bytes, source).expect("stages");
        staged.push((lease(n, 1), format!("s/c/memory/{n}/1.1/result"), by_memory, bytes.clone()));
        staged.push((lease(n, 2), format!("s/c/spool/{n}/1.2/result"), by_spool, bytes));
    }
    archive.sync().expect("syncs");
    assert_eq!(fs::read_dir(archive.spool()).expect("lists").count(), 0, "nothing stays in the spool");
    drop(archive);
    let again = place.open();
    let by_tar: BTreeMap<_, _> = place.packs().iter().flat_map(|pack| extracted(pack)).collect();
    assert_eq!(by_tar.len(), staged.len());
    for (lease, member, part, bytes) in staged {
        assert!(part.is_packed() && !part.is_to_be_placed());
        assert_right(&again, lease, &part, &bytes);
        assert!(by_tar[&member] == bytes, "{member} comes out of tar otherwise");
    }
}

#[test]
fn whatever_an_entry_is_called_tar_extracts_it_inside_and_its_name_can_be_read_back() {
    let place = Place::new();
    let archive = place.open();
    let long = "x".repeat(300);
    let names: [&[u8]; 8] = [
        b"s/c/../../../up",
        b"s/c//etc/passwd",
        b"/absolute",
        b"s/c/-rf *",
        b"s/c/new\nline\0nul",
        b"s/c/caf\xe9",
        b"s/c/%2E%2E/x",
        long.as_bytes(),
    ];
    for (n, entry) in (1..).zip(names) {
        let part = NewPart { name: "result", sha256: &sum(b"x"), source: Source::Bytes(b"x") };
        archive.stage(lease(n, 1), &name(entry), part).expect("stages");
    }
    archive.sync().expect("syncs");
    drop(archive);
    let packs = place.packs();
    assert_eq!(extracted(&packs[0]).len(), names.len());
    let mut pack = tar::Archive::new(fs::File::open(&packs[0]).expect("opens"));
    let found = pack.entries().expect("reads").map(|member| {
        let path = member.expect("a member").path_bytes().into_owned();
        unescape(path.strip_suffix(b"/1.1/result").expect("run, epoch and part")).expect("ours").0
    });
    assert_eq!(found.collect::<Vec<_>>(), names.map(<[u8]>::to_vec));
}

// Rule D2.
#[test]
fn a_batch_is_in_one_pack_and_a_pack_that_has_its_size_is_closed_before_the_next_batch() {
    let place = Place::new();
    let archive = place.open_sealing_at(4_000);
    for batch in 0..6 {
        for n in 0..3 {
            stage(&archive, lease(batch * 3 + n + 1, 1), "s/c/e", "result", &[1; 700]);
        }
        archive.sync().expect("syncs");
        let open = place.packs().pop().expect("a pack");
        // A second handle cannot lock what may still be named by rows on their way.
        assert!(fs::File::open(open).expect("opens").try_lock().is_err());
    }
    assert_eq!(place.packs().len(), 6);
    for pack in &place.packs()[..5] {
        let bytes = fs::read(pack).expect("reads");
        assert!(bytes.ends_with(&[0; 1024]) && bytes.len() == 3 * 1536 + 1024, "{}", bytes.len());
    }
}

// Rules C8, D7.
#[test]
fn after_a_sync_that_failed_a_pack_is_suspect_and_the_batch_goes_to_another_one() {
    let place = Place::new();
    let archive = place.open();
    let before = stage(&archive, lease(1, 1), "s/c/a", "result", b"before");
    archive.sync().expect("syncs");
    let bytes = [b"small".to_vec(), pattern(100_000), pattern(8_500_000)];
    let spools = [place.spool(&archive, "1", &bytes[1]), place.spool(&archive, "2", &bytes[2])];
    let batch = || {
        vec![
            stage(&archive, lease(2, 1), "s/c/b", "result", &bytes[0]),
            stage_from(&archive, lease(3, 1), "s/c/c", "result", &bytes[1], Source::Spool(&spools[0])).expect("stages"),
            stage_from(&archive, lease(4, 1), "s/c/d", "result", &bytes[2], Source::Spool(&spools[1])).expect("stages"),
        ]
    };
    for times in 1..4 {
        batch();
        refuse("sync", 1);
        assert!(archive.sync().is_err(), "try {times}");
    }
    batch();
    refuse("write", 1);
    assert!(archive.sync().is_err());
    let parts = batch();
    archive.sync().expect("syncs at last");
    for (n, part) in (2..).zip(&parts) {
        assert_right(&archive, lease(n, 1), part, &bytes[n as usize - 2]);
        assert_ne!(part.place, before.place, "what was suspect is not written again");
    }
    assert_right(&archive, lease(1, 1), &before, b"before");
    assert!(fs::read_dir(archive.spool()).expect("lists").next().is_none());
    drop(archive);
    place.packs().iter().for_each(|pack| drop(extracted(pack)));
    assert_eq!((place.packs().len(), place.suspects()), (3, usize::from(place.suspects() > 0)));
}

// Rule D7.
#[test]
fn a_file_whose_sync_failed_is_believed_only_by_its_checksum() {
    let place = Place::new();
    let archive = place.open();
    let bytes = pattern(8_500_000);
    let spool = place.spool(&archive, "1", &bytes);
    let stage = || stage_from(&archive, lease(1, 1), "s/c/a", "result", &bytes, Source::Spool(&spool));
    let part = stage().expect("stages");
    refuse("sync", 1);
    archive.sync().expect_err("refused");
    let taken = place.packs();
    if taken.is_empty() {
        // This file system cannot insert: the spool file is where it was.
        assert!(spool.exists());
        return;
    }
    // The system has dropped a page of it.
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(&taken[0]).expect("opens");
    file.write_all_at(&[0; 4096], part.offset + 8192).expect("damages");
    let refused = stage().expect_err("other bytes are no result").to_string();
    assert!(refused.contains("no longer those"), "{refused}");
}

#[test]
fn more_large_results_than_files_may_be_open_share_a_pack() {
    let place = Place::new();
    let archive = place.open();
    let bytes = pattern(8 * 1024 * 1024 + 7);
    let mut staged = Vec::new();
    for n in 1..=67 {
        // Sparse files: only their number matters.
        let spool = archive.spool().join(format!("{n}"));
        let file = fs::File::create(&spool).expect("spools");
        let last = if n > 63 { bytes.clone() } else { vec![0; bytes.len()] };
        match n > 63 {
            true => fs::write(&spool, &last).expect("spools"),
            false => file.set_len(last.len() as u64).expect("spools"),
        }
        let part = NewPart { name: "result", sha256: &sum(&last), source: Source::Spool(&spool) };
        staged.push((lease(n, 1), archive.stage(lease(n, 1), &name(format!("s/c/{n}")), part).expect("stages"), last));
    }
    let small = stage(&archive, lease(99, 1), "s/c/small", "result", b"small");
    archive.sync().expect("syncs");
    assert_eq!(place.packs().len(), 65);
    for (lease, part, bytes) in &staged[62..] {
        assert_right(&archive, *lease, part, bytes);
    }
    assert_right(&archive, lease(99, 1), &small, b"small");
    drop(archive);
    assert_eq!(extracted(&place.state().join(String::from_utf8_lossy(&small.place.0).as_ref())).len(), 4);
}

#[test]
fn a_result_whose_spool_file_is_gone_costs_its_batch_nothing() {
    let place = Place::new();
    let archive = place.open();
    let good = stage(&archive, lease(1, 1), "s/c/a", "result", b"good");
    let nowhere = archive.spool().join("nowhere");
    assert!(stage_from(&archive, lease(2, 1), "s/c/b", "result", b"", Source::Spool(&nowhere)).is_err());
    let also = stage(&archive, lease(3, 1), "s/c/c", "result", b"also");
    archive.sync().expect("syncs");
    assert_right(&archive, lease(1, 1), &good, b"good");
    assert_right(&archive, lease(3, 1), &also, b"also");
}

#[test]
fn a_large_result_that_did_not_win_is_removed_at_once() {
    let place = Place::new();
    let archive = place.open();
    let bytes = pattern(8_500_000);
    let spool = place.spool(&archive, "1", &bytes);
    let lost = stage_from(&archive, lease(1, 1), "s/c/a", "result", &bytes, Source::Spool(&spool)).expect("stages");
    let small = stage(&archive, lease(2, 1), "s/c/b", "result", b"small");
    archive.sync().expect("syncs");
    assert_eq!(place.packs().len(), 2);
    archive.discard(lease(1, 1), &[lost]).expect("discards");
    archive.discard(lease(2, 1), std::slice::from_ref(&small)).expect("garbage until it is compacted");
    assert_eq!(place.packs().len(), 1);
    assert_right(&archive, lease(2, 1), &small, b"small");
}

#[test]
fn what_is_wrong_with_a_packed_result_is_told() {
    let place = Place::new();
    let archive = place.open();
    let part = stage(&archive, lease(1, 1), "s/c/a", "result", b"the bytes");
    let quiet = stage(&archive, lease(1, 1), "s/c/a", "stderr", b"");
    archive.sync().expect("syncs");
    assert_right(&archive, lease(1, 1), &quiet, b"");
    let told = |lease, part: &PartRef| faults(&archive, lease, part).join("; ");
    assert_eq!(told(lease(1, 1), &part), "");
    assert!(told(lease(1, 2), &part).contains("belongs to 1.1.1"));
    assert!(told(lease(1, 1), &PartRef { length: 8, ..part.clone() }).contains("has 9 bytes, not 8"));
    assert!(told(lease(1, 1), &PartRef { offset: part.offset - 1, ..part.clone() }).contains("no member begins there"));
    assert!(told(lease(1, 1), &PartRef { offset: 1, ..part.clone() }).contains("no member begins there"));
    assert!(told(lease(1, 1), &PartRef { sha256: sum(b"x"), ..part.clone() }).contains("checksum"));
    assert!(told(lease(1, 1), &PartRef { length: 1 << 40, ..part.clone() }).contains("ends at"));
    for hostile in ["packs/../spool/x.tar", "/etc/passwd", "packs/x", "packs/.tar", "spool/1", "packs/a/b.tar"] {
        let part = PartRef { place: name(hostile), ..part.clone() };
        assert!(archive.check(&publication(lease(1, 1), vec![part.clone()]), false).is_err(), "{hostile}");
        assert!(archive.read(&publication(lease(1, 1), vec![part.clone()]), &part).is_err(), "{hostile}");
    }
    fs::remove_file(&place.packs()[0]).expect("removes");
    assert!(told(lease(1, 1), &part).contains("is missing"));
    assert!(matches!(read(&archive, lease(1, 1), &part), Err(ArchiveError::Gone { .. })));
}

/// A store with some tasks beside the packs.
struct Desk {
    store: SqliteStore,
    dispatcher: DispatcherId,
    service: dispatcher_core::id::ServiceId,
}

impl Desk {
    async fn open(place: &Place) -> Self {
        let options = SqliteOptions { durability: Durability::Normal, readers: 1 };
        let store = SqliteStore::open(&place.state().join("tasks.db"), options).await.expect("opens");
        let service = store.put_service("s", &ServiceSettings::default()).await.expect("a service").id;
        let corpus = store.put_corpus("c", b"/c").await.expect("a corpus").id;
        let info = DispatcherInfo { id: None, host: "h".into(), endpoint: "e".into() };
        let dispatcher = store.register(&info, NOW).await.expect("registers");
        let entry = |n: usize| Entry { name: name(format!("{n}")), size: 1, mtime_ns: 1, priority: 0 };
        let entries: Vec<_> = (0..60).map(entry).collect();
        store.import(service, corpus, &entries).await.expect("imports");
        Self { store, dispatcher, service }
    }

    async fn claim(&self, max: usize) -> Vec<LeaseId> {
        let ask = Claim { dispatcher: self.dispatcher, service: self.service, max };
        self.store.claim(&ask, NOW).await.expect("claims").into_iter().map(|task| task.lease).collect()
    }

    /// Stages, syncs and commits a result for each lease.
    async fn finish(&self, archive: &PackArchive, leases: &[LeaseId], said: &str) {
        let mut records = Vec::new();
        for lease in leases {
            let part = stage(archive, *lease, &format!("s/c/{}", lease.task), "result", &bytes_of(*lease, said));
            records.push(filed(*lease, part));
        }
        archive.sync().expect("syncs");
        self.store.mark_done(&records, NOW).await.expect("writes");
    }

    /// Every result that stands is there and right.
    async fn assert_right(&self, archive: &PackArchive, count: usize) {
        let standing = self.store.standing_parts(TaskId(0), 999).await.expect("lists");
        assert_eq!(standing.len(), count);
        for publication in standing {
            assert_eq!(archive.check(&publication, true).expect("looks"), Vec::<String>::new());
        }
    }

    async fn rerun(&self, ids: impl IntoIterator<Item = i64>) {
        let filter = TaskFilter { ids: ids.into_iter().map(TaskId).collect(), ..Default::default() };
        self.store.rerun(&filter, TaskId(0), 999, NOW).await.expect("reruns");
    }
}

fn bytes_of(lease: LeaseId, said: &str) -> Vec<u8> {
    format!("{said} {lease} ").repeat(20 + lease.task.0 as usize).into_bytes()
}

fn filed(lease: LeaseId, part: PartRef) -> Record {
    let worker = WorkerKey { name: "w".into(), incarnation: "1".into() };
    Record::Result { lease, worker, status: Status::NoProblem, messages: vec![], parts: vec![part], at: NOW }
}

fn compacting(live_under: f64) -> Compacting {
    Compacting { live_under, seal_at: 1 << 30, pass: |_| {} }
}

// Rules S4, D7.
#[tokio::test]
async fn after_a_crash_what_no_row_names_is_cut_off_and_every_pack_is_a_whole_tar_file() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let leases = desk.claim(20).await;
    desk.finish(&archive, &leases[..10], "stored").await;
    // Synced and never committed: its worker was told nothing and sends it again.
    let lost = stage(&archive, leases[10], "s/c/x", "result", &[7; 5_000]);
    archive.sync().expect("syncs");
    let mut crashed = vec![place.crashed()];
    // Torn in the middle of the last write.
    for torn in [1, 511, 513, 3_000] {
        let copy = place.crashed();
        let pack = &copy.packs()[0];
        let file = fs::File::options().write(true).open(pack).expect("opens");
        file.set_len(fs::metadata(pack).expect("there").len() - torn).expect("tears");
        crashed.push(copy);
    }
    for copy in crashed {
        let desk = Desk::open(&copy).await;
        // A pack that was begun and never named.
        fs::write(copy.state().join("packs/00000099-00000000.tar"), [1; 700]).expect("writes");
        let archive = copy.open();
        let swept = sweep(&archive, &desk.store).await.expect("sweeps").expect("nobody else does");
        assert_eq!(swept, Swept { removed: 1, ended: 1 });
        assert_eq!(sweep(&archive, &desk.store).await.expect("sweeps"), Some(Swept::default()));
        desk.assert_right(&archive, 10).await;
        assert_eq!(extracted(&copy.packs()[0]).len(), 10);
        assert!(!faults(&archive, leases[10], &lost).is_empty());
        // The next process begins another pack.
        desk.finish(&archive, &leases[10..12], "again").await;
        assert_eq!(copy.packs().len(), 2);
        desk.assert_right(&archive, 12).await;
    }
}

// Rules C5, S4.
#[tokio::test]
async fn a_database_that_never_stored_a_result_takes_none_away() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let leases = desk.claim(3).await;
    desk.finish(&archive, &leases, "stored").await;
    drop(archive);
    let packs = place.packs();
    let members = extracted(&packs[0]);
    fs::write(place.state().join("packs/00000099-00000000.tar"), [0; 1024]).expect("writes");
    let other = Place::new();
    let stranger = Desk::open(&other).await;
    let archive = place.open();
    let swept = sweep(&archive, &stranger.store).await.expect("sweeps");
    assert_eq!(swept, Some(Swept { removed: 1, ended: 0 }), "what has nothing in it goes");
    let report = compact(&archive, &stranger.store, compacting(1.0)).await.expect("compacts");
    assert_eq!((report.removed, report.packs), (0, 0));
    assert_eq!((place.packs(), extracted(&packs[0])), (packs.clone(), members));
    desk.assert_right(&archive, 3).await;
}

#[tokio::test]
async fn a_pack_with_much_garbage_is_rewritten_and_every_result_that_stands_stays() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let leases = desk.claim(40).await;
    desk.finish(&archive, &leases, "first").await;
    drop(archive);
    let archive = place.open();
    desk.rerun(1..=30).await;
    let again = desk.claim(30).await;
    assert!(again.iter().all(|lease| lease.task.0 <= 30));
    desk.finish(&archive, &again, "second").await;
    let before = place.packs();
    assert_eq!(before.len(), 2);
    let report = compact(&archive, &desk.store, compacting(0.5)).await.expect("compacts");
    let expected = Compacted { packs: 2, in_use: 1, removed: 1, moved: 10, forgotten: 30, ..report.clone() };
    assert_eq!(report, expected);
    assert!(report.bytes_after < report.bytes_before && report.faults.is_empty());
    assert!(!before[0].exists() && before[1].exists());
    desk.assert_right(&archive, 40).await;
    place.packs()[..1].iter().chain(&place.packs()[2..]).for_each(|pack| drop(extracted(pack)));
    let nothing = compact(&archive, &desk.store, compacting(0.5)).await.expect("compacts");
    assert_eq!((nothing.removed, nothing.moved), (0, 0), "what is mostly wanted is left alone");
    // What is written meanwhile goes on into the open pack.
    let more = desk.claim(3).await;
    desk.finish(&archive, &more, "more").await;
    desk.assert_right(&archive, 43).await;
}

// Rules S4, D7.
#[tokio::test]
async fn a_compaction_killed_between_any_two_steps_loses_nothing_and_the_next_one_finishes() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let leases = desk.claim(40).await;
    desk.finish(&archive, &leases, "first").await;
    drop(archive);
    thread_local! {
        static AT: Cell<(&'static str, u32)> = const { Cell::new(("", 0)) };
    }
    // A panic unwinds where a kill stops; what is on the disk is the same.
    let pass = |at: &'static str| {
        let (armed, nth) = AT.get();
        if armed == at {
            AT.set((armed, nth - 1));
            assert!(nth > 1, "killed at {at}");
        }
    };
    for step in ["compact_copied", "compact_moved", "compact_removing"] {
        let copy = place.crashed();
        let desk = Desk::open(&copy).await;
        let archive = copy.open();
        desk.rerun([1, 2]).await;
        AT.set((step, 1));
        let options = Compacting { live_under: 1.0, seal_at: 3_000, pass };
        let killed = std::panic::AssertUnwindSafe(async { compact(&archive, &desk.store, options).await });
        let killed = futures_util::FutureExt::catch_unwind(killed).await;
        assert!(killed.is_err(), "{step} is reached");
        desk.assert_right(&archive, 38).await;
        let crashed = copy.crashed();
        let desk = Desk::open(&crashed).await;
        let archive = crashed.open();
        sweep(&archive, &desk.store).await.expect("sweeps");
        desk.assert_right(&archive, 38).await;
        AT.set(("", 0));
        compact(&archive, &desk.store, Compacting { live_under: 1.0, seal_at: 3_000, pass: |_| {} })
            .await
            .expect("again");
        desk.assert_right(&archive, 38).await;
        crashed.packs().iter().for_each(|pack| drop(extracted(pack)));
    }
}

#[tokio::test]
async fn a_suspect_pack_is_brought_to_safety_and_a_damaged_part_stays_and_is_told() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let leases = desk.claim(10).await;
    desk.finish(&archive, &leases[..5], "first").await;
    stage(&archive, leases[5], "s/c/x", "result", b"refused");
    refuse("sync", 1);
    archive.sync().expect_err("refused");
    assert_eq!(place.suspects(), 1);
    desk.finish(&archive, &leases[5..], "second").await;
    desk.assert_right(&archive, 10).await;
    let report = compact(&archive, &desk.store, compacting(0.0)).await.expect("compacts");
    assert_eq!((report.removed, report.moved, place.suspects()), (1, 5, 0));
    desk.assert_right(&archive, 10).await;
    drop(archive);
    // A byte of one result turns over.
    let archive = place.open();
    let standing = desk.store.standing_parts(TaskId(0), 99).await.expect("lists");
    let part = &standing[7].parts[0];
    use std::os::unix::fs::FileExt;
    let path = place.state().join(String::from_utf8_lossy(&part.place.0).into_owned());
    fs::File::options().write(true).open(path).expect("opens").write_all_at(b"!", part.offset + 3).expect("damages");
    let report = compact(&archive, &desk.store, compacting(1.0)).await.expect("compacts");
    assert_eq!(report.faults.len(), 1, "{report:?}");
    assert!(report.faults[0].contains("checksum"), "{report:?}");
    for (n, publication) in desk.store.standing_parts(TaskId(0), 99).await.expect("lists").iter().enumerate() {
        assert_eq!(archive.check(publication, true).expect("looks").len(), usize::from(n == 7), "{publication:?}");
    }
}

// Rule C5: what a start and `doctor` say of a lost pack is one judgement.
#[tokio::test]
async fn a_pack_that_is_missing_is_a_loss_as_long_as_a_result_that_stands_was_in_it() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    desk.finish(&archive, &desk.claim(3).await, "first").await;
    drop(archive);
    let archive = place.open();
    assert_eq!(missing(&archive, &desk.store).await.expect("reads"), []);
    let pack = place.packs().remove(0);
    fs::remove_file(&pack).expect("removes");
    let found = missing(&archive, &desk.store).await.expect("reads").remove(0);
    assert_eq!((found.standing, found.others, found.is_loss()), (3, 0, true));
    assert!(found.to_string().contains("3 parts of results that stand"), "{found}");
    desk.rerun(1..=3).await;
    let found = missing(&archive, &desk.store).await.expect("reads").remove(0);
    assert_eq!((found.standing, found.others, found.is_loss()), (0, 3, false));
    desk.finish(&archive, &desk.claim(3).await, "second").await;
    assert_eq!(missing(&archive, &desk.store).await.expect("reads"), [found]);
    desk.assert_right(&archive, 3).await;
}

#[tokio::test]
async fn one_process_at_a_time_keeps_packs_in_order() {
    let place = Place::new();
    let desk = Desk::open(&place).await;
    let archive = place.open();
    let keeper = archive.keeper().expect("locks").expect("nobody else does");
    let other = place.open();
    assert!(matches!(compact(&other, &desk.store, compacting(0.5)).await, Err(UpkeepError::Busy)));
    assert_eq!(sweep(&other, &desk.store).await.expect("looks"), None);
    drop(keeper);
    assert!(compact(&other, &desk.store, compacting(0.5)).await.is_ok());
}
