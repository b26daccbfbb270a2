//! One suite for every archive: what the finaliser, `doctor` and `export` may rely on, whatever keeps the bytes.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and stops")]

use dispatcher_core::id::{EntryName, Epoch, LeaseId, Run, TaskId};
use dispatcher_core::report::Status;
use dispatcher_store::archive::{
    Archive, ArchiveError, Checked, FileArchive, FileArchiveOptions, Layout, NewPart, NoArchive, PackArchive,
    PackOptions, Source,
};
use dispatcher_store::{PartRef, Publication};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::Path;

/// Which archive a test runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Packs,
    Files,
    None,
}

impl Kind {
    fn open(self, folder: &Path) -> Box<dyn Archive> {
        let state = folder.join("state");
        match self {
            Self::Packs => Box::new(PackArchive::open(&state, PackOptions::default()).expect("opens")),
            Self::Files => {
                let options = FileArchiveOptions { out: folder.join("out"), state, layout: Layout::same_names() };
                Box::new(FileArchive::open(options).expect("opens"))
            }
            Self::None => Box::new(NoArchive::open(&state).expect("opens")),
        }
    }

    fn keeps_bytes(self) -> bool {
        self != Self::None
    }
}

/// Makes a test for each archive out of each function named.
macro_rules! every_archive {
    ($($name:ident),* $(,)?) => {
        mod in_packs { $(#[test] fn $name() { super::$name(super::Kind::Packs, &super::folder()); })* }
        mod in_files { $(#[test] fn $name() { super::$name(super::Kind::Files, &super::folder()); })* }
        mod in_none { $(#[test] fn $name() { super::$name(super::Kind::None, &super::folder()); })* }
    };
}

every_archive!(
    what_is_committed_can_be_read_before_and_after_its_publication_and_after_a_restart,
    the_same_part_again_is_the_same_as_once,
    a_spooled_part_is_taken_over,
    kept_output_is_read_like_a_result,
    a_loser_leaves_the_winner_alone,
    what_a_crash_left_in_the_spool_goes_with_the_next_start,
    a_part_without_bytes_is_read_as_such,
);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

const fn lease(task: i64, epoch: u64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(epoch) }
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stage(archive: &dyn Archive, lease: LeaseId, part: &str, bytes: &[u8]) -> PartRef {
    stage_from(archive, lease, part, bytes, Source::Bytes(bytes))
}

fn stage_from(archive: &dyn Archive, lease: LeaseId, part: &str, bytes: &[u8], source: Source<'_>) -> PartRef {
    let entry = EntryName(format!("s/c/{}", lease.task).into_bytes());
    archive.stage(lease, &entry, NewPart { name: part, sha256: &sum(bytes), source }).expect("stages")
}

fn publication(lease: LeaseId, parts: &[PartRef], published: bool) -> Publication {
    let entry = EntryName(b"e".to_vec());
    Publication { lease, entry, status: Status::NoProblem, parts: parts.to_vec(), published }
}

fn assert_reads(kind: Kind, archive: &dyn Archive, of: &Publication, part: &PartRef, bytes: &[u8]) {
    assert_eq!(archive.check(of, true).expect("looks"), Vec::<String>::new());
    match archive.read(of, part) {
        Ok(from) if kind.keeps_bytes() || bytes.is_empty() => {
            let mut from = Checked::new(from);
            let mut found = Vec::new();
            from.read_to_end(&mut found).expect("reads");
            assert_eq!((found.as_slice(), from.fault(part)), (bytes, None));
        }
        Err(ArchiveError::Gone { .. }) if !kind.keeps_bytes() => {}
        Ok(_) => unreachable!("nothing is kept"),
        Err(e) => unreachable!("{e}"),
    }
}

fn what_is_committed_can_be_read_before_and_after_its_publication_and_after_a_restart(
    kind: Kind,
    folder: &tempfile::TempDir,
) {
    let archive = kind.open(folder.path());
    let part = stage(&*archive, lease(1, 1), "result", b"bytes");
    assert_eq!((part.length, part.sha256.clone()), (5, sum(b"bytes")));
    archive.sync().expect("syncs");
    let committed = publication(lease(1, 1), std::slice::from_ref(&part), false);
    assert_reads(kind, &*archive, &committed, &part, b"bytes");
    for _ in 0..2 {
        archive.publish(&committed).expect("publishes");
    }
    let published = publication(lease(1, 1), std::slice::from_ref(&part), true);
    assert_reads(kind, &*archive, &published, &part, b"bytes");
    // Whoever read the row before the publication finds it as well.
    assert_reads(kind, &*archive, &committed, &part, b"bytes");
    drop(archive);
    assert_reads(kind, &*kind.open(folder.path()), &published, &part, b"bytes");
}

fn the_same_part_again_is_the_same_as_once(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    stage(&*archive, lease(1, 1), "result", b"bytes");
    let part = stage(&*archive, lease(1, 1), "result", b"bytes");
    archive.sync().expect("syncs");
    let committed = publication(lease(1, 1), std::slice::from_ref(&part), false);
    assert_reads(kind, &*archive, &committed, &part, b"bytes");
    // As when its worker did not hear the answer: what stands is not touched.
    stage(&*archive, lease(1, 1), "result", b"bytes");
    archive.sync().expect("syncs");
    archive.publish(&committed).expect("publishes");
    assert_reads(kind, &*archive, &publication(lease(1, 1), std::slice::from_ref(&part), true), &part, b"bytes");
}

fn a_spooled_part_is_taken_over(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    for (n, length) in (1..).zip([0, 1, 100_000, 9_000_000]) {
        let bytes = vec![n as u8; length];
        let spool = archive.spool().join(format!("{n}"));
        fs::write(&spool, &bytes).expect("spools");
        let part = stage_from(&*archive, lease(n, 1), "result", &bytes, Source::Spool(&spool));
        archive.sync().expect("syncs");
        assert!(!spool.exists());
        let committed = publication(lease(n, 1), std::slice::from_ref(&part), false);
        assert_reads(kind, &*archive, &committed, &part, &bytes);
    }
}

fn kept_output_is_read_like_a_result(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    let parts = [stage(&*archive, lease(1, 1), "stdout", b"said"), stage(&*archive, lease(1, 1), "stderr", b"")];
    archive.sync().expect("syncs");
    assert!(parts.iter().all(|part| !part.is_to_be_placed()));
    let ended = publication(lease(1, 1), &parts, true);
    assert_reads(kind, &*archive, &ended, &parts[0], b"said");
    assert_reads(kind, &*archive, &ended, &parts[1], b"");
}

fn a_loser_leaves_the_winner_alone(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    let winner = stage(&*archive, lease(1, 2), "result", b"winner");
    let loser = stage(&*archive, lease(1, 1), "result", b"loser");
    archive.sync().expect("syncs");
    archive.discard(lease(1, 1), &[loser]).expect("discards");
    let committed = publication(lease(1, 2), std::slice::from_ref(&winner), false);
    archive.publish(&committed).expect("publishes");
    assert_reads(kind, &*archive, &committed, &winner, b"winner");
}

fn what_a_crash_left_in_the_spool_goes_with_the_next_start(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    let part = stage(&*archive, lease(1, 1), "result", b"bytes");
    archive.sync().expect("syncs");
    fs::write(archive.spool().join("2.1.1.0"), b"half").expect("spools");
    drop(archive);
    let archive = kind.open(folder.path());
    assert_eq!(archive.sweep(&|kept| kept == lease(1, 1)).expect("sweeps"), 1);
    assert_eq!(fs::read_dir(archive.spool()).expect("lists").count(), 0);
    assert_reads(kind, &*archive, &publication(lease(1, 1), std::slice::from_ref(&part), false), &part, b"bytes");
}

fn a_part_without_bytes_is_read_as_such(kind: Kind, folder: &tempfile::TempDir) {
    let archive = kind.open(folder.path());
    let part =
        |length| PartRef { name: "result".into(), place: EntryName(Vec::new()), offset: 0, length, sha256: sum(b"") };
    let of = |part: &PartRef| publication(lease(1, 1), std::slice::from_ref(part), true);
    assert!(archive.read(&of(&part(0)), &part(0)).is_ok());
    assert!(matches!(archive.read(&of(&part(1)), &part(1)), Err(ArchiveError::Gone { .. })));
}
