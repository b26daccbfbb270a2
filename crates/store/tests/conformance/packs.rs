//! Parts in packs.

use crate::kit::{Kit, NOW, STORED, message, part, result, worker};
use dispatcher_core::id::{EntryName, LeaseId, TaskId};
use dispatcher_core::report::Status;
use dispatcher_store::{Answer, Command, Named, PackRow, PackedPart, PartMove, PartRef, Record};

both_stores!(
    a_packed_result_is_published_by_its_commit,
    a_pack_ends_behind_the_last_part_that_a_row_names,
    a_result_that_was_replaced_is_not_wanted_and_kept_output_is,
    the_result_of_an_earlier_run_is_wanted_until_the_new_run_has_one,
    what_stands_is_told_apart_from_what_is_only_wanted,
    parts_move_and_the_pack_they_leave_is_named_by_none,
    a_part_that_was_replaced_meanwhile_stays_where_it_is,
    what_is_deleted_is_named_by_no_row,
    a_store_has_worked_from_its_first_claim_on_whatever_is_deleted_later,
);

fn packed(name: &str, pack: &str, offset: u64, length: u64) -> PartRef {
    PartRef { place: place(pack), offset, length, ..part(name) }
}

fn place(pack: &str) -> EntryName {
    EntryName(format!("packs/{pack}").into_bytes())
}

fn filed(lease: LeaseId, status: Status, parts: Vec<PartRef>) -> Record {
    let messages = vec![message("said", status.as_str())];
    Record::Result { lease, worker: worker("w"), status, messages, parts, at: NOW }
}

async fn live(kit: &Kit, pack: &str) -> Vec<(u64, bool)> {
    let parts: Vec<PackedPart> = kit.store.packed(&place(pack), 0, 99).await.expect("lists");
    parts.into_iter().map(|part| (part.offset, part.live)).collect()
}

// Rules C5, S4.
async fn a_store_has_worked_from_its_first_claim_on_whatever_is_deleted_later(kit: Kit) {
    let has_worked = async || kit.store.has_worked().await.expect("says");
    kit.import(1).await;
    assert!(!has_worked().await, "tasks alone have no results");
    let lease = kit.lease().await;
    assert!(has_worked().await, "what was handed out may have one on the disk already");
    kit.tell(filed(lease, Status::NoProblem, vec![packed("result", "1.tar", 512, 4)])).await;
    let what = Named::Service("first".to_owned());
    let id = kit.store.submit(&Command::Delete { what }, "a", NOW).await.expect("writes down");
    while kit.store.step(id, 9, NOW).await.expect("steps").outcome.is_none() {}
    assert_eq!(kit.store.packs().await.expect("lists"), []);
    assert!(has_worked().await, "what was deleted is known to be so");
}

// Rule D7.
async fn a_packed_result_is_published_by_its_commit(kit: Kit) {
    let lease = kit.one_lease().await;
    let parts = vec![packed("result", "1.tar", 512, 4), packed("stderr", "1.tar", 1536, 9)];
    assert_eq!(kit.tell(filed(lease, Status::NoProblem, parts.clone())).await, STORED);
    assert_eq!(kit.store.unpublished(None, 9).await.expect("lists"), []);
    let story = kit.story(lease.task).await;
    assert!(story.results[0].published);
    assert_eq!(story.results[0].parts, parts);
    let standing = kit.store.standing_parts(TaskId(0), 9).await.expect("lists");
    assert_eq!(standing[0].parts, parts);
    assert!(standing[0].published);
    kit.assert_balanced().await;
}

async fn a_pack_ends_behind_the_last_part_that_a_row_names(kit: Kit) {
    kit.import(3).await;
    for (offset, pack) in [(512, "1.tar"), (5000, "1.tar"), (1024, "2.tar")] {
        let lease = kit.lease().await;
        kit.tell(filed(lease, Status::NoProblem, vec![packed("result", pack, offset, 100)])).await;
    }
    let rows = kit.store.packs().await.expect("lists");
    let row = |pack, end| PackRow { place: place(pack), end };
    assert_eq!(rows, [row("1.tar", 5100), row("2.tar", 1124)]);
    let first = kit.store.packed(&place("1.tar"), 0, 1).await.expect("lists");
    let second = kit.store.packed(&place("1.tar"), first[0].offset, 1).await.expect("lists");
    assert_eq!((first[0].offset, second[0].offset), (512, 5000), "pages follow each other");
    assert_eq!(live(&kit, "none.tar").await, []);
}

// Rule C5.
async fn a_result_that_was_replaced_is_not_wanted_and_kept_output_is(kit: Kit) {
    let lease = kit.one_lease().await;
    kit.tell(filed(lease, Status::NoProblem, vec![packed("result", "1.tar", 512, 4)])).await;
    kit.store.rerun(&Default::default(), TaskId(0), 9, NOW).await.expect("reruns");
    let lease = kit.lease().await;
    let parts = vec![packed("result", "1.tar", 2048, 4), packed("stdout", "1.tar", 4096, 4)];
    kit.tell(filed(lease, Status::Fatal, parts)).await;
    assert_eq!(live(&kit, "1.tar").await, [(512, false), (2048, true), (4096, true)]);
    kit.tell(filed(lease, Status::Warning, vec![packed("result", "1.tar", 8192, 4)])).await;
    assert_eq!(live(&kit, "1.tar").await, [(512, false), (8192, true)], "what one claim filed first is gone");
}

async fn the_result_of_an_earlier_run_is_wanted_until_the_new_run_has_one(kit: Kit) {
    let lease = kit.one_lease().await;
    kit.tell(filed(lease, Status::NoProblem, vec![packed("result", "1.tar", 512, 4)])).await;
    kit.store.rerun(&Default::default(), TaskId(0), 9, NOW).await.expect("reruns");
    assert_eq!(live(&kit, "1.tar").await, [(512, true)]);
    let lease = kit.lease().await;
    assert_eq!(live(&kit, "1.tar").await, [(512, true)]);
    kit.tell(filed(lease, Status::NoProblem, vec![packed("result", "2.tar", 512, 4)])).await;
    assert_eq!((live(&kit, "1.tar").await, live(&kit, "2.tar").await), (vec![(512, false)], vec![(512, true)]));
}

// Rules C5, L14: of a new run nothing stands before it has a result.
async fn what_stands_is_told_apart_from_what_is_only_wanted(kit: Kit) {
    let stands = || async {
        let parts = kit.store.packed(&place("1.tar"), 0, 99).await.expect("lists");
        parts.into_iter().map(|part| (part.offset, part.stands)).collect::<Vec<_>>()
    };
    let lease = kit.one_lease().await;
    let parts = vec![packed("result", "1.tar", 512, 4), packed("stderr", "1.tar", 1536, 4)];
    kit.tell(filed(lease, Status::NoProblem, parts)).await;
    assert_eq!(stands().await, [(512, true), (1536, true)]);
    kit.store.rerun(&Default::default(), TaskId(0), 9, NOW).await.expect("reruns");
    assert_eq!(stands().await, [(512, false), (1536, false)]);
    kit.tell(filed(kit.lease().await, Status::Fatal, vec![packed("result", "1.tar", 4096, 4)])).await;
    assert_eq!(stands().await, [(512, false), (1536, false), (4096, true)]);
}

async fn parts_move_and_the_pack_they_leave_is_named_by_none(kit: Kit) {
    kit.import(2).await;
    let (one, two) = (kit.lease().await, kit.lease().await);
    for (lease, offset) in [(one, 512), (two, 1536)] {
        kit.tell(filed(lease, Status::NoProblem, vec![packed("result", "1.tar", offset, 4)])).await;
    }
    let (from, to) = (place("1.tar"), place("2.tar"));
    let moves = [PartMove { from: 512, to: Some(9216) }];
    assert!(kit.store.move_parts(&from, &to, &moves).await.expect("moves"), "one part is still there");
    assert!(kit.store.move_parts(&from, &to, &[]).await.expect("moves"));
    let moves = [PartMove { from: 1536, to: None }, PartMove { from: 77, to: Some(1) }];
    assert!(!kit.store.move_parts(&from, &to, &moves).await.expect("moves"));
    assert!(!kit.store.move_parts(&from, &to, &moves).await.expect("once more"), "a repeat changes nothing");
    assert_eq!(kit.store.packs().await.expect("lists"), [PackRow { place: to.clone(), end: 9220 }]);
    let stories = [kit.story(one.task).await, kit.story(two.task).await];
    assert_eq!(stories[0].results[0].parts, [packed("result", "2.tar", 9216, 4)]);
    let nowhere = PartRef { place: EntryName(Vec::new()), offset: 0, ..part("result") };
    assert_eq!(stories[1].results[0].parts, [nowhere], "its bytes are not kept, its row is");
    kit.assert_balanced().await;
}

// Rule D5.
async fn a_part_that_was_replaced_meanwhile_stays_where_it_is(kit: Kit) {
    let lease = kit.one_lease().await;
    kit.tell(filed(lease, Status::Fatal, vec![packed("result", "1.tar", 512, 4)])).await;
    let seen = kit.store.packed(&place("1.tar"), 0, 9).await.expect("lists");
    // The bytes are copied; before their rows move, a better result comes.
    let better = vec![packed("result", "9.tar", 512, 4)];
    kit.tell(filed(lease, Status::NoProblem, better.clone())).await;
    let moves = [PartMove { from: seen[0].offset, to: Some(2048) }];
    assert!(!kit.store.move_parts(&place("1.tar"), &place("2.tar"), &moves).await.expect("moves"));
    assert_eq!(kit.story(lease.task).await.results[0].parts, better);
    assert_eq!(kit.store.packs().await.expect("lists").len(), 1);
}

async fn what_is_deleted_is_named_by_no_row(kit: Kit) {
    let lease = kit.one_lease().await;
    let done = filed(lease, Status::NoProblem, vec![packed("result", "1.tar", 512, 4)]);
    assert!(matches!(kit.tell(done).await, Answer::Stored { .. }));
    assert_eq!(kit.store.packs().await.expect("lists").len(), 1);
    let what = Named::Corpus("papers".into());
    let id = kit.store.submit(&Command::Delete { what }, "a", NOW).await.expect("writes down");
    while kit.store.step(id, 9, NOW).await.expect("steps").outcome.is_none() {}
    assert_eq!(kit.store.packs().await.expect("lists"), []);
    assert!(!kit.store.move_parts(&place("1.tar"), &place("2.tar"), &[]).await.expect("moves"));
    assert_eq!(kit.tell(result(lease, Status::NoProblem)).await, Answer::Unknown);
}
