use super::*;
use crate::work::{OutPart, Outcome};
use dispatcher_core::report::Status;
use tempfile::TempDir;

/// A result with a small part and a large one, whose file lies in `dir`.
fn delivery(token: &TokenText, dir: &Path, large: &[u8]) -> Delivery {
    let file = dir.join("output");
    fs::write(&file, large).unwrap();
    let stderr = OutPart { name: "stderr".to_owned(), ..OutPart::result("a line\n") };
    let parts = vec![OutPart::result_file(file), stderr];
    let outcome = Outcome::Done { status: Status::Warning, messages: Vec::new(), parts };
    Delivery::new(token.clone(), outcome, 0).unwrap().unwrap()
}

fn token(n: u32) -> TokenText {
    TokenText(format!("token-{n}"))
}

fn large() -> Vec<u8> {
    (0..300_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

fn open(kind: &OutboxKind, dir: &TempDir) -> (Outbox, Vec<(TokenText, u64)>) {
    let kept = dir.path().join("kept");
    fs::create_dir_all(&kept).unwrap();
    Outbox::open(kind, kept).unwrap()
}

fn files_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn pieces_come_from_memory_and_files_alike_and_end_with_their_part() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [OutboxKind::Memory, OutboxKind::Disk(dir.path().join("outbox"))] {
        let (outbox, _) = open(&kind, &dir);
        assert_eq!(outbox.put(&token(1), delivery(&token(1), dir.path(), &large())).unwrap(), 300_007);
        let waiting = outbox.get(&token(1)).unwrap();
        assert!(waiting.bodies_here().is_none(), "large parts stay files");
        assert_eq!(waiting.piece("result", 299_990, 100).unwrap().unwrap(), large()[299_990..]);
        assert_eq!(waiting.piece("result", 1_000, 3).unwrap().unwrap(), large()[1_000..1_003]);
        assert_eq!(waiting.piece("stderr", 2, 4).unwrap().unwrap(), "line");
        assert_eq!(waiting.piece("result", 300_000, 1).unwrap(), None);
        assert_eq!(waiting.piece("other", 0, 1).unwrap(), None);
    }
}

#[test]
fn what_is_answered_leaves_no_file_behind() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("outbox");
    for (kind, place) in [(OutboxKind::Memory, dir.path().join("kept")), (OutboxKind::Disk(folder.clone()), folder)] {
        let (outbox, _) = open(&kind, &dir);
        outbox.put(&token(1), delivery(&token(1), dir.path(), &large())).unwrap();
        assert!(files_in(&place).len() > usize::from(kind != OutboxKind::Memory));
        outbox.forget(&token(1));
        assert!(outbox.get(&token(1)).is_none());
        assert_eq!(files_in(&place), if kind == OutboxKind::Memory { vec![] } else { vec!["lock"] });
    }
}

// Rule D7; case F05.
#[test]
fn a_result_on_disk_survives_its_worker() {
    let dir = tempfile::tempdir().unwrap();
    let kind = OutboxKind::Disk(dir.path().join("outbox"));
    let (outbox, found) = open(&kind, &dir);
    assert!(found.is_empty());
    outbox.put(&token(1), delivery(&token(1), dir.path(), &large())).unwrap();
    outbox.put(&token(2), delivery(&token(2), dir.path(), b"small")).unwrap();
    let before = outbox.get(&token(1)).unwrap().message.clone();
    drop(outbox);

    let (outbox, mut found) = open(&kind, &dir);
    found.sort();
    assert_eq!(found, [(token(1), 300_007), (token(2), 12)]);
    let waiting = outbox.get(&token(1)).unwrap();
    assert_eq!(waiting.message, before);
    assert_eq!(waiting.piece("result", 0, u64::MAX).unwrap().unwrap(), large());
    let small = outbox.get(&token(2)).unwrap();
    assert_eq!(small.read_bodies().unwrap(), [Bytes::from_static(b"small"), Bytes::from_static(b"a line\n")]);
    outbox.put(&token(3), delivery(&token(3), dir.path(), b"next")).unwrap();
    assert_eq!(outbox.get(&token(2)).unwrap().read_bodies().unwrap()[0], "small", "numbers are not used twice");
}

// Rule D7.
#[test]
fn a_crash_in_mid_write_leaves_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("outbox");
    let kind = OutboxKind::Disk(folder.clone());
    let (outbox, _) = open(&kind, &dir);
    outbox.put(&token(1), delivery(&token(1), dir.path(), &large())).unwrap();
    outbox.put(&token(2), delivery(&token(2), dir.path(), b"small")).unwrap();
    // A record that needs no other file, so that only its own end can be missing.
    let record = fs::read(folder.join("0000000000000001.result")).unwrap();
    outbox.forget(&token(2));
    drop(outbox);

    // Killed after a large part was moved; after a piece of the record was written; by a file system that lost the end.
    fs::write(folder.join("0000000000000007.part0"), "half").unwrap();
    fs::write(folder.join("0000000000000008.draft"), &record[..record.len() / 2]).unwrap();
    for (n, cut) in [(1, 0), (2, 5), (3, 12), (4, record.len() - 1)] {
        fs::write(folder.join(format!("{n:016x}.result")), &record[..cut]).unwrap();
    }
    let (_outbox, found) = open(&kind, &dir);
    assert_eq!(found, [(token(1), 300_007)]);
    assert_eq!(files_in(&folder), ["0000000000000000.part0", "0000000000000000.result", "lock"]);
}

#[test]
fn two_workers_never_share_an_outbox() {
    let dir = tempfile::tempdir().unwrap();
    let kind = OutboxKind::Disk(dir.path().join("outbox"));
    let (_outbox, _) = open(&kind, &dir);
    assert_eq!(Outbox::open(&kind, dir.path().to_owned()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("outbox");
    let (outbox, _) = open(&OutboxKind::Disk(folder.clone()), &dir);
    let lost = delivery(&token(1), dir.path(), &large());
    fs::remove_file(dir.path().join("output")).unwrap();
    assert!(outbox.put(&token(1), lost).is_err());
    assert!(outbox.get(&token(1)).is_none());
    assert_eq!(files_in(&folder), ["lock"]);
}
