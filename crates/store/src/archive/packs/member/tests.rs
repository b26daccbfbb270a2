use super::*;
use dispatcher_core::id::{Epoch, Run, TaskId};
use proptest::prelude::*;
use std::io::Read;

const LEASE: LeaseId = LeaseId { task: TaskId(17), run: Run(2), epoch: Epoch(5) };

fn name(bytes: &[u8]) -> EntryName {
    EntryName(bytes.to_vec())
}

fn escaped(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&escape(&name(bytes))).into_owned()
}

#[test]
fn names_as_people_give_them_stay_as_they_are() {
    for plain in ["html/papers/1105/1105.0001.zip", "a b/ü/.hidden/..x", "-rf/*", "x"] {
        assert_eq!(escaped(plain.as_bytes()), plain);
    }
}

#[test]
fn what_could_lead_elsewhere_is_written_otherwise() {
    assert_eq!(escaped(b"/etc/passwd"), "%e/etc/passwd");
    assert_eq!(escaped(b"s/c/../../x"), "s/c/%2E%2E/%2E%2E/x");
    assert_eq!(escaped(b"./a//b/"), "%2E/a/%e/b/%e");
    assert_eq!(escaped(b"a\0b\n%41"), "a%00b%0A%2541");
    let long = escaped(&[b'.'; 700]);
    assert!(long.split('/').all(|part| part.len() <= 255 && part != ".." && part != "."), "{long}");
}

/// Bytes that are hard on names more often than others.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => prop::sample::select(b"/.%+e0a\0\n\x7f\xff".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![
        prop::collection::vec(byte.clone(), 1..40),
        prop::collection::vec(prop::sample::select(b".a%".to_vec()), 200..600),
        prop::collection::vec(byte, 80..700),
    ]
}

proptest! {
    #[test]
    fn every_name_can_be_read_back_and_leads_nowhere(bytes in hostile()) {
        let path = escape(&name(&bytes));
        for component in path.split(|byte| *byte == b'/') {
            prop_assert!(!component.is_empty() && component.len() <= 255);
            prop_assert!(component != b"." && component != b"..");
            prop_assert!(!component.iter().any(|byte| matches!(byte, 0..=31 | 127)));
        }
        prop_assert_eq!(unescape(&path), Some(name(&bytes)));
    }

    #[test]
    fn what_is_read_back_was_made_of_nothing_else(path in hostile()) {
        if let Some(name) = unescape(&path) {
            // A name has one path; another spelling of it is not believed to be ours, or is at least harmless.
            let again = unescape(&escape(&name));
            prop_assert_eq!(again, Some(name));
        }
    }

    #[test]
    fn a_tar_reader_finds_every_member_under_its_path(
        entries in prop::collection::vec((hostile(), 0..1500_usize, any::<bool>()), 1..6),
    ) {
        let mut file = Vec::new();
        let mut expected = Vec::new();
        for (n, (entry, length, paged)) in entries.into_iter().enumerate() {
            let path = path(&name(&entry), LEASE, "result");
            let bytes = vec![n as u8; length];
            let front = if paged { front_in_pages(&path, LEASE, length as u64) } else { front(&path, LEASE, length as u64) };
            let front = front.expect("a front");
            prop_assert_eq!(front.len() as u64 % if paged { PAGE } else { BLOCK }, 0);
            file.extend_from_slice(&front);
            let block = file[file.len() - 512..].try_into().expect("a block");
            prop_assert_eq!(fault_of(&block, LEASE, length as u64), None);
            prop_assert!(fault_of(&block, LEASE, length as u64 + 1).is_some());
            let other = LeaseId { epoch: Epoch(6), ..LEASE };
            prop_assert!(fault_of(&block, other, length as u64).is_some());
            let data = file.len() as u64;
            file.extend_from_slice(&bytes);
            file.resize(file.len().next_multiple_of(512), 0);
            expected.push((path, data, bytes));
        }
        file.extend_from_slice(&END);
        let mut archive = tar::Archive::new(file.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().expect("a tar file") {
            let mut entry = entry.expect("a member");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            found.push((entry.path_bytes().into_owned(), entry.raw_file_position(), bytes));
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_block_makes_the_check_panic(block in prop::collection::vec(any::<u8>(), 512)) {
        let block: [u8; 512] = block.try_into().expect("512 bytes");
        prop_assert!(fault_of(&block, LEASE, 1).is_some());
    }
}
