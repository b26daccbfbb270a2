use super::*;
use crate::id::{Epoch, Run, TaskId};
use proptest::prelude::*;

const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);

fn desk() -> LegacyDesk {
    LegacyDesk::new(LegacyLimits { window: 2, unread_each: 100, unread_all: 150, asks: 3, ..LegacyLimits::default() })
}

const fn lease(task: i64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(1) }
}

fn ask(desk: &mut LegacyDesk, peer: PeerId, name: &str, now: i64) -> Vec<LegacyEffect> {
    let mut effects = Vec::new();
    desk.asked(peer, name.as_bytes(), "html", TimeMs(now), &mut effects);
    effects
}

fn tick(desk: &mut LegacyDesk, now: i64) -> Vec<LegacyEffect> {
    let mut effects = Vec::new();
    desk.tick(TimeMs(now), &mut effects);
    effects
}

// Rule W1.
#[test]
fn who_asked_first_is_served_first_and_each_request_once() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    ask(&mut desk, B, "b", 1);
    assert_eq!(desk.next_taker("html", 10), Some(A));
    desk.sent(A, "html", lease(1), 10, TimeMs(2));
    assert_eq!(desk.next_taker("html", 10), Some(B));
    desk.sent(B, "html", lease(2), 10, TimeMs(2));
    assert_eq!(desk.next_taker("html", 10), None);
    assert_eq!(desk.next_taker("other", 10), None);
}

// Rule W1.
#[test]
fn a_request_that_waited_long_enough_is_told_that_there_is_nothing() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    assert_eq!(tick(&mut desk, 999), []);
    assert_eq!(tick(&mut desk, 1000), [LegacyEffect::SayNothingNow { peer: A }]);
    assert_eq!(tick(&mut desk, 9000), [], "once");
    assert!(!desk.is_asked_for("html"));
}

// Rule W1. Case F56.
#[test]
fn a_clock_set_back_answers_instead_of_waiting_for_it() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 3_600_000);
    assert_eq!(tick(&mut desk, 0), [LegacyEffect::SayNothingNow { peer: A }]);
}

// Rule W1. Cases F22, F31.
#[test]
fn who_never_reads_is_tried_again_a_few_times_a_tick_and_one_who_reads_again_has_every_answer() {
    let mut desk = desk();
    (0..10_003).for_each(|_| {
        ask(&mut desk, A, "a", 0).iter().for_each(|_| desk.not_told(A));
    });
    for now in 0..100 {
        let tried = tick(&mut desk, now).len();
        assert!((1..=OWED_A_TICK).contains(&tried), "{tried} at once");
        (0..tried).for_each(|_| desk.not_told(A));
    }
    let told: usize = (100..400).map(|now| tick(&mut desk, now).len()).sum();
    assert_eq!(told, 10_000);
}

// Rules W1, W5.
#[test]
fn too_many_requests_of_one_connection_are_answered_at_once() {
    let mut desk = desk();
    for _ in 0..3 {
        assert_eq!(ask(&mut desk, A, "a", 0), []);
    }
    assert_eq!(ask(&mut desk, A, "a", 0), [LegacyEffect::SayNothingNow { peer: A }]);
    assert_eq!(tick(&mut desk, 1000).len(), 3);
    assert_eq!(ask(&mut desk, A, "a", 1000), [], "there is room again");
}

#[test]
fn a_connection_has_no_more_leases_than_its_window_and_one_that_ends_makes_room() {
    let mut desk = desk();
    for task in 1..=3 {
        ask(&mut desk, A, "a", 0);
        if let Some(peer) = desk.next_taker("html", 1) {
            desk.sent(peer, "html", lease(task), 1, TimeMs(0));
        }
    }
    assert_eq!((desk.awaited(), desk.next_taker("html", 1)), (2, None));
    desk.over(lease(1));
    assert_eq!((desk.awaited(), desk.next_taker("html", 1)), (1, Some(A)));
}

// Rule L9.
#[test]
fn who_does_not_read_keeps_its_place_and_is_answered_when_it_does() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    ask(&mut desk, B, "b", 0);
    desk.full(A);
    assert_eq!(desk.next_taker("html", 1), Some(B));
    assert_eq!(tick(&mut desk, 1), []);
    assert_eq!(desk.next_taker("html", 1), Some(A), "and it was first");
    desk.gone(A, "html");
    assert_eq!(desk.next_taker("html", 1), Some(B));
    desk.not_told(B);
    assert_eq!(tick(&mut desk, 2), [LegacyEffect::SayNothingNow { peer: B }]);
    assert_eq!(tick(&mut desk, 3), []);
}

// Rules S1, D1.
#[test]
fn whose_result_is_here_has_room_for_another_task_before_it_is_decided() {
    let mut desk = desk();
    for task in 1..=2 {
        ask(&mut desk, A, "a", 0);
        desk.sent(A, "html", lease(task), 50, TimeMs(0));
    }
    ask(&mut desk, A, "a", 0);
    assert_eq!(desk.next_taker("html", 1), None);
    desk.brought(lease(1));
    assert_eq!(desk.next_taker("html", 1), Some(A));
    desk.departed(A, TimeMs(10));
    assert_eq!((desk.awaited(), desk.unread), (1, 0), "what was brought is still to be decided");
    assert!(tick(&mut desk, 90_000).len() == 1, "and is not lost with its worker");
    desk.over(lease(1));
    assert_eq!(desk.awaited(), 0);
}

// Case F31.
#[test]
fn bytes_on_their_way_are_bounded_and_a_single_task_always_fits() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    ask(&mut desk, A, "a", 0);
    ask(&mut desk, B, "b", 0);
    assert_eq!(desk.next_taker("html", 120), Some(A), "larger than the bound, and alone");
    desk.sent(A, "html", lease(1), 120, TimeMs(0));
    assert_eq!(desk.next_taker("html", 1), Some(B), "the first has not read yet");
    assert_eq!(desk.next_taker("html", 40), None, "all together have too much");
    desk.over(lease(1));
    assert_eq!(desk.next_taker("html", 40), Some(A));
}

// Case F31.
#[test]
fn who_may_be_stuck_with_a_large_task_that_was_taken_away_is_cut() {
    let mut desk = LegacyDesk::new(LegacyLimits::default());
    ask(&mut desk, A, "a", 0);
    desk.sent(A, "html", lease(1), LARGE, TimeMs(0));
    ask(&mut desk, A, "a", 0);
    desk.sent(A, "html", lease(2), 8, TimeMs(0));
    assert_eq!((desk.cut(lease(1)), desk.cut(lease(2)), desk.cut(lease(3))), (Some(A), None, None));
}

// Rule A3.
#[test]
fn who_does_not_come_back_in_time_loses_what_it_had() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    desk.sent(A, "html", lease(1), 1, TimeMs(0));
    desk.departed(A, TimeMs(60_000));
    assert_eq!(tick(&mut desk, 64_999), []);
    let worker = Arc::new(WorkerKey::legacy("a"));
    assert_eq!(tick(&mut desk, 65_000), [LegacyEffect::Lost { worker, lease: lease(1), delivered: true }]);
    assert_eq!(tick(&mut desk, 99_000), [], "once");
}

// Rules A2, A3. Case F02.
#[test]
fn who_goes_within_a_moment_of_its_task_may_not_have_got_it() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    desk.sent(A, "html", lease(1), 1, TimeMs(0));
    desk.departed(A, TimeMs(999));
    let lost = tick(&mut desk, 5_999);
    assert!(matches!(lost[..], [LegacyEffect::Lost { delivered: false, .. }]), "{lost:?}");
}

// Rules A3, S4.
#[test]
fn who_comes_back_under_its_name_goes_on_with_what_it_had_and_with_a_window_of_its_own() {
    let mut desk = desk();
    for task in 1..=2 {
        ask(&mut desk, A, "a", 0);
        desk.sent(A, "html", lease(task), 1, TimeMs(0));
    }
    desk.departed(A, TimeMs(60_000));
    ask(&mut desk, B, "a", 60_100);
    assert_eq!(desk.next_taker("html", 1), Some(B));
    assert_eq!(tick(&mut desk, 60_200), []);
    desk.sent(B, "html", lease(3), 1, TimeMs(60_300));
    assert_eq!(tick(&mut desk, 999_000), [], "they wait for their time limit");
    assert_eq!(desk.awaited(), 3);
}

// Rules A2, L9. Case F02.
#[test]
fn what_a_worker_may_never_have_got_is_not_waited_for_though_it_comes_back() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    desk.sent(A, "html", lease(1), 1, TimeMs(0));
    desk.departed(A, TimeMs(10));
    ask(&mut desk, B, "a", 20);
    desk.sent(B, "html", lease(2), 1, TimeMs(30));
    let worker = Arc::new(WorkerKey::legacy("a"));
    assert_eq!(tick(&mut desk, 5_010), [LegacyEffect::Lost { worker, lease: lease(1), delivered: false }]);
    assert_eq!(desk.awaited(), 1);
}

// Rule S1.
#[test]
fn at_a_drain_whoever_waits_or_asks_is_told_that_there_is_nothing() {
    let mut desk = desk();
    ask(&mut desk, A, "a", 0);
    let mut effects = Vec::new();
    desk.drain(&mut effects);
    assert_eq!(effects, [LegacyEffect::SayNothingNow { peer: A }]);
    assert_eq!(ask(&mut desk, B, "b", 1), [LegacyEffect::SayNothingNow { peer: B }]);
}

// Rule S1.
#[test]
fn adopted_leases_are_waited_for_while_a_worker_of_that_name_is_here() {
    let mut desk = desk();
    desk.adopted(lease(1), WorkerKey::legacy("a"), TimeMs(0));
    assert_eq!(desk.awaited(), 0);
    ask(&mut desk, A, "a", 0);
    assert_eq!(desk.awaited(), 1);
}

// Rule W5.
#[test]
fn names_are_cleaned_and_a_worker_without_one_gets_one() {
    let mut desk = desk();
    for (peer, identity) in [(A, &b"w\n\xff1"[..]), (B, &b"\0\x01\x02"[..]), (PeerId(3), &b""[..])] {
        desk.asked(peer, identity, "html", TimeMs(0), &mut Vec::new());
    }
    let names: Vec<_> = desk.workers().map(|w| w.worker.name.clone()).collect();
    assert!(!names[0].contains('\n') && names[0].starts_with('w'), "{names:?}");
    assert_eq!(names[1..], ["anonymous-2", "anonymous-3"]);
    assert!(desk.workers().all(|w| w.worker.is_legacy()));
}

proptest! {
    // Rules W1, W5.
    #[test]
    fn every_request_is_answered_once_and_nothing_stays_when_all_have_left(
        steps in proptest::collection::vec((0..6_u8, 1..4_u64, 0..400_i64), 1..300),
    ) {
        let mut desk = desk();
        let (mut now, mut next, mut asked, mut answered) = (0_i64, 1_i64, [0_i64; 4], [0_i64; 4]);
        let count = |effects: Vec<LegacyEffect>, answered: &mut [i64; 4]| {
            for effect in effects {
                if let LegacyEffect::SayNothingNow { peer } = effect {
                    answered[usize::try_from(peer.0).unwrap()] += 1;
                }
            }
        };
        for (step, who, span) in steps {
            now += span;
            let (peer, at) = (PeerId(who), usize::try_from(who).unwrap());
            match step {
                0..=2 => {
                    asked[at] += 1;
                    count(ask(&mut desk, peer, &format!("w{who}"), now), &mut answered);
                }
                3 => if let Some(taker) = desk.next_taker("html", 60) {
                    desk.sent(taker, "html", lease(next), 60, TimeMs(now));
                    answered[usize::try_from(taker.0).unwrap()] += 1;
                    next += 1;
                },
                4 => desk.over(lease(next - 1)),
                _ => {
                    desk.departed(peer, TimeMs(now));
                    (asked[at], answered[at]) = (0, 0);
                }
            }
            count(tick(&mut desk, now), &mut answered);
            for (peer, caller) in &desk.callers {
                prop_assert!(caller.leases.len() <= 2);
                let at = usize::try_from(peer.0).unwrap();
                prop_assert_eq!(i64::try_from(caller.asks).unwrap(), asked[at] - answered[at]);
            }
        }
        for who in 1..4 {
            desk.departed(PeerId(who), TimeMs(now));
        }
        tick(&mut desk, now + 10_000);
        prop_assert_eq!(desk.unread, 0);
        prop_assert!(desk.callers.is_empty() && desk.asks.is_empty());
        for task in 1..next {
            desk.over(lease(task));
        }
        prop_assert!(desk.out.is_empty());
    }
}
