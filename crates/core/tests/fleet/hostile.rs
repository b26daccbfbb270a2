//! What broken and hostile workers say to the fleet.

use super::support::{Talk, fatal, hello, hold, lease, part, result, token, worker};
use dispatcher_core::fleet::FleetLimits;
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::session::PeerId;
use dispatcher_core::wire::{AckWord, FromWorker, Hold, HoldState, PartSpec, TokenText};

fn forged() -> TokenText {
    let mut text = token(1).0;
    text.replace_range(10..12, "zz");
    TokenText(text)
}

// Case F22.
#[test]
fn junk_between_good_messages_harms_none_of_them() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 100).quietly();
    for task in 1..=100 {
        let now = talk.now;
        talk.call(|fleet, effects| fleet.malformed(PeerId(1), now, effects))
            .call(|fleet, effects| fleet.malformed(PeerId(66), now, effects))
            .hand_out(task)
            .say(66, result(task, vec![]))
            .say(1, result(task, vec![]))
            .call(|fleet, effects| fleet.ack(lease(task), AckWord::Stored, None, effects));
    }
    let told = talk.told();
    let count = |start: &str| told.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("answer"), 100);
    assert_eq!(count("> 1 ack"), 100);
    assert_eq!(count("noise 1 Malformed") + count("noise 66 Malformed"), 200);
    assert_eq!(count("noise 66 NoHello"), 100);
    assert_eq!(count("> 66 error Malformed"), 100);
}

// Rule C13.
#[test]
fn a_forged_token_costs_no_look_up_whatever_it_comes_with() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).quietly();
    for token in [forged(), TokenText("ö".repeat(25)), TokenText(String::new())] {
        talk.say(1, FromWorker::Begun { token: token.clone() })
            .say(1, FromWorker::Fetch { token: token.clone(), offset: 0, length: 1 })
            .say_with(1, FromWorker::Part { token: token.clone(), name: "result".into(), offset: 0 }, 1)
            .say(1, FromWorker::Release { token: token.clone() })
            .say(1, FromWorker::Beat { n: 1, received: 0, holds: vec![Hold { token, state: HoldState::Running }] });
        let told = talk.told();
        assert!(told.iter().all(|line| !line.contains("claims") && !line.contains("answer")), "{told:?}");
        assert_eq!(told.iter().filter(|line| *line == "noise 1 BadToken").count(), 5);
        assert!(told.contains(&"> 1 ack forged Refused (the token was not signed here)".to_owned()));
        assert_eq!(told.last().map(String::as_str), Some("> 1 beat 1 unknown [forged]"));
    }
    // What is too long to be a token is not sent back.
    talk.say(1, FromWorker::Release { token: TokenText("x".repeat(100_000)) });
    assert_eq!(talk.told(), ["noise 1 BadToken", "> 1 error BadToken: that is no token"]);
    assert_eq!(talk.fleet.lease_count(), 0);
}

#[test]
fn a_hello_beyond_a_limit_is_told_so_and_cut() {
    let of = |change: &dyn Fn(&mut FromWorker)| {
        let mut message = hello("w", "a", 1, vec![]);
        change(&mut message);
        let mut talk = Talk::new();
        talk.say(1, message);
        assert_eq!(talk.fleet.workers().count(), 0);
        talk.told()
    };
    let too_many_services = of(&|message| {
        if let FromWorker::Hello { services, .. } = message {
            *services = (0..65).map(|i| i.to_string()).collect();
        }
    });
    assert_eq!(
        too_many_services,
        [
            "noise 1 OverLimit",
            "> 1 error Limit: hello may have 64 services and 1400 holds, and names of 128 bytes",
            "cut 1 Offence",
        ]
    );
    let long_name = of(&|message| {
        if let FromWorker::Hello { name, .. } = message {
            *name = "x".repeat(129);
        }
    });
    assert_eq!(long_name[0], "noise 1 OverLimit");
    let many_holds = of(&|message| {
        if let FromWorker::Hello { holds, .. } = message {
            *holds = vec![hold(1, HoldState::Queued); 1401];
        }
    });
    assert_eq!(many_holds[0], "noise 1 OverLimit");
    let other_version = of(&|message| {
        if let FromWorker::Hello { proto, .. } = message {
            *proto = 2;
        }
    });
    assert_eq!(other_version[1], "> 1 error Version: protocol version 2 is not spoken here, 1 is");
    let no_slots = of(&|message| {
        if let FromWorker::Hello { slots, .. } = message {
            *slots = 0;
        }
    });
    assert_eq!(no_slots[0], "noise 1 Malformed");
}

// Case F52.
#[test]
fn names_are_cleaned_before_anybody_sees_them() {
    let mut talk = Talk::new();
    talk.say(1, hello("w\0\u{202e}x\n", "a", 1, vec![]));
    assert_eq!(talk.told()[0], "joined w\u{2400}⟨U+202E⟩x\u{240a}#a on 1 slots 1");
}

#[test]
fn a_second_hello_on_one_connection_is_an_offence() {
    let mut talk = Talk::new();
    talk.join(1, "w", 1, 1).quietly().say(1, hello("v", "a", 1, vec![]));
    assert_eq!(
        talk.told(),
        ["noise 1 Malformed", "> 1 error Malformed: hello is said once", "cut 1 Offence", "left w#a"]
    );
}

#[test]
fn what_was_not_wanted_is_counted_and_dropped() {
    let mut talk = Talk::with(FleetLimits { chunk_max: 100, ..FleetLimits::default() });
    let now = talk.now;
    let piece = |name: &str, offset| FromWorker::Part { token: token(1), name: name.into(), offset };
    talk.join(1, "w", 1, 1).hand_out(1);
    talk.say_with(1, piece("result", 0), 100);
    talk.say(1, result(1, vec![part("result", 150)]))
        .call(|fleet, effects| fleet.want(lease(1), now, effects))
        .quietly();
    // Another name, place or length; too early; twice.
    talk.say_with(1, piece("stdout", 0), 100)
        .say_with(1, piece("result", 1), 100)
        .say_with(1, piece("result", 0), 99)
        .say_with(1, piece("result", 150), 100)
        .say_with(1, piece("result", 0), 100)
        .say_with(1, piece("result", 0), 100);
    let told = talk.told();
    assert_eq!(told.iter().filter(|line| *line == "noise 1 UnwantedPiece").count(), 5);
    assert_eq!(told.iter().filter(|line| line.starts_with("piece")).count(), 1);
}

// Rule R1.
#[test]
fn an_answer_whose_parts_do_not_fit_is_unusable_and_says_why() {
    let bad_digest = PartSpec { sha256: "A".repeat(64), ..part("result", 1) };
    let cases: Vec<(Vec<PartSpec>, u64, &str)> = vec![
        (vec![part("result", 5)], 4, "its parts declare 5 bytes, and 4 came"),
        (vec![], 4, "its parts declare 0 bytes, and 4 came"),
        (vec![part("result", 1), part("result", 1)], 2, "it has two parts named result"),
        (vec![part("../x", 1)], 1, "a part's name is up to 64 letters, digits, `_`, `-` and `.`, not \"../x\""),
        (vec![part(".x", 1)], 1, "a part's name is up to 64 letters, digits, `_`, `-` and `.`, not \".x\""),
        (vec![bad_digest], 1, "the digest of its part result is not 64 hexadecimal digits"),
        (vec![part("a", u64::MAX), part("b", 1)], 0, "its sizes add up to more than can be counted"),
        ((0..9).map(|i| part(&i.to_string(), 0)).collect(), 0, "it has 9 parts, and 8 are allowed"),
    ];
    for (parts, body, why) in cases {
        let mut talk = Talk::new();
        talk.join(1, "w", 1, 1).hand_out(1).quietly().say_with(1, result(1, parts), body);
        assert_eq!(
            talk.told(),
            ["begun 1 at w#a", "noise 1 UnusableAnswer", &format!("answer 1 of w#a: unusable: {why}")]
        );
        talk.call(|fleet, effects| fleet.ack(lease(1), AckWord::Refused, Some(why.to_owned()), effects));
        assert_eq!(talk.told(), [format!("> 1 ack 1 Refused ({why})")]);
    }
}

// Case F52.
#[test]
fn messages_are_cleaned_and_capped() {
    let mut talk = Talk::with(FleetLimits { max_messages: 2, ..FleetLimits::default() });
    let message = |severity, details: &str| Message { severity, details: details.into(), ..fatal("c", "w") };
    talk.join(1, "w", 1, 1).hand_out(1).say(
        1,
        FromWorker::Result {
            token: token(1),
            status: Status::Error,
            messages: vec![
                message(Severity::Info, "1"),
                message(Severity::Error, "a\0b"),
                message(Severity::Warning, "3"),
            ],
            parts: vec![],
        },
    );
    let answer = talk.effects.iter().find_map(|effect| match effect {
        dispatcher_core::fleet::Effect::Answered(answer) => Some(answer.clone()),
        _ => None,
    });
    let details: Vec<_> = answer.unwrap().messages.into_iter().map(|m| m.details).collect();
    assert_eq!(details, ["a\u{2400}b", "3", "1 NULs replaced, 1 messages left out"]);
}

#[test]
fn results_beyond_the_budget_of_memory_stay_with_their_workers() {
    let mut talk = Talk::with(FleetLimits { inline_budget: 250, ..FleetLimits::default() });
    talk.join(1, "w", 9, 9);
    for task in 1..=3 {
        talk.hand_out(task);
    }
    talk.quietly();
    for task in 1..=3 {
        talk.say_with(1, result(task, vec![part("result", 100)]), 100);
    }
    let told = talk.told();
    assert_eq!(told[1], "answer 1 of w#a: NoProblem with bytes");
    assert_eq!(told[3], "answer 2 of w#a: NoProblem with bytes");
    assert_eq!(told[5], "answer 3 of w#a: NoProblem bytes wanted");
    assert_eq!(talk.fleet.bytes_held().0, 200);
    talk.call(|fleet, effects| fleet.ack(lease(1), AckWord::Stored, None, effects));
    assert_eq!(talk.fleet.bytes_held().0, 100);
}

#[test]
fn what_one_worker_may_make_grow_ends_at_its_cap() {
    let limits =
        FleetLimits { max_holds: 10, max_credit: 1000, task_window: 1000, max_fetches: 5, ..FleetLimits::default() };
    let mut talk = Talk::with(limits);
    talk.join(1, "w", 1, u64::MAX);
    for task in 1..=20 {
        talk.hand_out(task);
    }
    assert_eq!(talk.fleet.lease_count(), 10);
    for task in 21..=50 {
        talk.say(1, result(task, vec![])).say(1, FromWorker::Begun { token: token(task) });
    }
    assert_eq!(talk.fleet.lease_count(), 10);
    let claimed: usize = talk
        .effects
        .iter()
        .map(|effect| match effect {
            dispatcher_core::fleet::Effect::HoldsClaimed { holds, .. } => holds.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(claimed, 10);
    talk.quietly();
    for _ in 0..20 {
        talk.say(1, FromWorker::Fetch { token: token(1), offset: 0, length: 1 });
    }
    let told = talk.told();
    assert_eq!(told.iter().filter(|line| line.starts_with("read")).count(), 2);
    assert_eq!(told.iter().filter(|line| *line == "noise 1 OverLimit").count(), 20 - 2 - 5);
}

#[test]
fn messages_for_a_worker_that_does_not_read_are_kept_up_to_a_cap() {
    let mut talk = Talk::with(FleetLimits { max_waiting: 3, ..FleetLimits::default() });
    talk.join(1, "w", 1, 1).hand_out(1).quietly();
    let now = talk.now;
    for n in 0..4 {
        let beat = dispatcher_core::wire::ToWorker::Beat { n, unknown: vec![] };
        talk.call(|fleet, effects| fleet.full(PeerId(1), beat, now, effects));
    }
    let told = talk.told();
    assert_eq!(
        told[3..],
        ["noise 1 QueueFull", "warn w#a does not read", "not held by w#a [1] Stuck", "cut 1 Stuck", "left w#a"]
    );
}

#[test]
fn the_stores_answer_for_a_worker_that_left_meanwhile_leaves_no_lease_behind() {
    let mut talk = Talk::new();
    talk.say(1, hello("w", "a", 1, vec![hold(1, HoldState::Running)])).quietly();
    let now = talk.now;
    talk.call(|fleet, effects| fleet.departed(PeerId(1), now, effects)).pass(31);
    assert_eq!(talk.told(), ["lost w#a []"]);
    let kept = [dispatcher_core::fleet::Kept { lease: lease(1), size: 1 }];
    talk.call(|fleet, effects| fleet.settle(&worker("w", "a"), &kept, &[], effects));
    assert_eq!(talk.told(), ["not held by w#a [1] Gone"]);
    assert_eq!(talk.fleet.lease_count(), 0);
}
