use super::*;
use crate::limits::{MAX_HOLDS, MAX_PARTS};
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::token::TOKEN_TEXT_LEN;
use dispatcher_core::wire::{AckWord, ErrorCode, Hold, HoldState, PartSpec, TokenText};
use proptest::collection::vec;
use proptest::prelude::*;

const KIB_64: usize = 64 * 1024;

/// Runs `check` over `cases` inputs of `strategy`. Files of failing seeds are not kept: a found case becomes a test.
fn for_many<S: Strategy>(cases: u32, strategy: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(found) = proptest::test_runner::TestRunner::new(config).run(strategy, check) {
        panic!("{found}");
    }
}

fn token() -> impl Strategy<Value = TokenText> {
    "[A-Za-z0-9_-]{0,60}".prop_map(TokenText)
}

fn tokens() -> impl Strategy<Value = Vec<TokenText>> {
    vec(token(), 0..5)
}

fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn holds() -> impl Strategy<Value = Vec<Hold>> {
    let state = prop_oneof![Just(HoldState::Queued), Just(HoldState::Running), Just(HoldState::Finished)];
    vec((token(), state).prop_map(|(token, state)| Hold { token, state }), 0..5)
}

fn told() -> impl Strategy<Value = Message> {
    let severity = prop_oneof![
        Just(Severity::Info),
        Just(Severity::Warning),
        Just(Severity::Error),
        Just(Severity::Fatal),
        Just(Severity::Invalid)
    ];
    (severity, text(), text(), text()).prop_map(|(severity, category, what, details)| Message {
        severity,
        category,
        what,
        details,
    })
}

fn bytes(length: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), length).prop_map(Bytes::from)
}

/// Parts with their bytes.
fn parts() -> impl Strategy<Value = (Vec<PartSpec>, Vec<Bytes>)> {
    vec((text(), text(), bytes(0..200)), 0..=MAX_PARTS).prop_map(|parts| {
        let spec = |(name, sha256, body): &(String, String, Bytes)| PartSpec {
            name: name.clone(),
            size: body.len() as u64,
            sha256: sha256.clone(),
        };
        (parts.iter().map(spec).collect(), parts.into_iter().map(|(_, _, body)| body).collect())
    })
}

fn bare<M: Clone + std::fmt::Debug + 'static>(
    message: impl Strategy<Value = M> + 'static,
) -> BoxedStrategy<(M, Vec<Bytes>)> {
    message.prop_map(|message| (message, Vec::new())).boxed()
}

fn from_worker() -> impl Strategy<Value = (FromWorker, Vec<Bytes>)> {
    let hello = (any::<u32>(), text(), text(), vec(text(), 0..4), any::<u32>(), holds()).prop_map(
        |(proto, name, incarnation, services, slots, holds)| FromWorker::Hello {
            proto,
            name,
            incarnation,
            services,
            slots,
            holds,
        },
    );
    let result = (token(), proptest::sample::select(Status::ALL.to_vec()), vec(told(), 0..4), parts(), any::<bool>())
        .prop_map(|(token, status, messages, (parts, bodies), inline)| {
            let bodies = if inline { bodies } else { Vec::new() };
            (FromWorker::Result { token, status, messages, parts }, bodies)
        });
    let retryable =
        (token(), told(), vec(told(), 0..4), parts()).prop_map(|(token, cause, messages, (parts, bodies))| {
            (FromWorker::Retryable { token, cause, messages, parts }, bodies)
        });
    let part = (token(), text(), any::<u64>(), bytes(1..300))
        .prop_map(|(token, name, offset, body)| (FromWorker::Part { token, name, offset }, vec![body]));
    let beat = (any::<u64>(), any::<u64>(), holds());
    let fetch = (token(), any::<u64>(), any::<u64>());
    prop_oneof![
        bare(hello),
        bare(any::<u64>().prop_map(|granted| FromWorker::Ready { granted })),
        bare(token().prop_map(|token| FromWorker::Begun { token })),
        bare(beat.prop_map(|(n, received, holds)| FromWorker::Beat { n, received, holds })),
        bare(fetch.prop_map(|(token, offset, length)| FromWorker::Fetch { token, offset, length })),
        result.boxed(),
        part.boxed(),
        retryable.boxed(),
        bare(token().prop_map(|token| FromWorker::Release { token })),
        bare(Just(FromWorker::Bye)),
    ]
}

fn to_worker() -> impl Strategy<Value = (ToWorker, Vec<Bytes>)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let welcome =
        (numbers, tokens(), tokens()).prop_map(|((beat_ms, dead_after_ms, inline_max, chunk_max), keep, drop)| {
            ToWorker::Welcome { beat_ms, dead_after_ms, inline_max, chunk_max, keep, drop }
        });
    let task = (token(), (text(), text()), vec(any::<u8>(), 0..40), bytes(0..300), any::<(i64, u64, u64, bool)>())
        .prop_map(|(token, (service, corpus), entry, body, (task, limit_ms, attempt, inline))| {
            let (size, entry) = (body.len() as u64, EntryName(entry));
            let bodies = if inline { vec![body] } else { Vec::new() };
            let task = TaskId(task);
            (ToWorker::Task { token, task, service, corpus, entry, size, limit_ms, attempt }, bodies)
        });
    let chunk = (token(), any::<u64>(), bytes(1..300))
        .prop_map(|(token, offset, body)| (ToWorker::Chunk { token, offset }, vec![body]));
    let want = (token(), text(), any::<u64>(), any::<u64>());
    let answer = prop_oneof![
        Just(AckWord::Stored),
        Just(AckWord::Superseded),
        Just(AckWord::Stale),
        Just(AckWord::Cancelled),
        Just(AckWord::Unknown),
        Just(AckWord::Refused)
    ];
    let ack = (token(), answer, proptest::option::of(text()));
    let code = prop_oneof![
        Just(ErrorCode::Malformed),
        Just(ErrorCode::NoHello),
        Just(ErrorCode::Version),
        Just(ErrorCode::BadToken),
        Just(ErrorCode::Limit),
        Just(ErrorCode::NoService)
    ];
    prop_oneof![
        bare(welcome),
        task.boxed(),
        chunk.boxed(),
        bare(want.prop_map(|(token, name, offset, length)| ToWorker::Want { token, name, offset, length })),
        bare(ack.prop_map(|(token, answer, why)| ToWorker::Ack { token, answer, why })),
        bare((any::<u64>(), tokens()).prop_map(|(n, unknown)| ToWorker::Beat { n, unknown })),
        bare((token(), text()).prop_map(|(token, why)| ToWorker::Cancel { token, why })),
        bare(Just(ToWorker::Drain)),
        bare((code, text()).prop_map(|(code, message)| ToWorker::Error { code, message })),
    ]
}

#[test]
fn whatever_is_encoded_decodes_to_the_same_message_with_the_same_bytes() {
    for_many(2_000, &from_worker(), |(message, bodies)| {
        let frames = encode_from_worker(&message, &bodies);
        prop_assert!(is_v1(&frames));
        prop_assert_eq!(decode_from_worker(&frames), Ok((message, bodies)));
        Ok(())
    });
    for_many(2_000, &to_worker(), |(message, bodies)| {
        let frames = encode_to_worker(&message, &bodies);
        prop_assert!(is_v1(&frames));
        prop_assert_eq!(decode_to_worker(&frames), Ok((message, bodies)));
        Ok(())
    });
}

/// One thing that can happen to a message on its way from a broken peer.
#[derive(Clone, Debug)]
enum Harm {
    Flip { frame: usize, byte: usize, with: u8 },
    Cut { frame: usize, at: usize },
    Drop { frame: usize },
    Repeat { frame: usize, times: usize },
    Insert { frame: usize, bytes: Bytes },
    Swap { one: usize, other: usize },
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = || any::<usize>();
    prop_oneof![
        6 => (0..3_usize, at(), 1..=u8::MAX).prop_map(|(frame, byte, with)| Harm::Flip { frame, byte, with }),
        2 => (at(), at()).prop_map(|(frame, at)| Harm::Cut { frame, at }),
        1 => at().prop_map(|frame| Harm::Drop { frame }),
        1 => (at(), 1..20_usize).prop_map(|(frame, times)| Harm::Repeat { frame, times }),
        1 => (at(), bytes(0..50)).prop_map(|(frame, bytes)| Harm::Insert { frame, bytes }),
        1 => (at(), at()).prop_map(|(one, other)| Harm::Swap { one, other }),
    ]
}

fn do_harm(frames: &mut Vec<Bytes>, harm: Harm) {
    let count = frames.len();
    if count == 0 {
        return;
    }
    match harm {
        Harm::Flip { frame, byte, with } => {
            let mut bytes = frames[frame % count].to_vec();
            if !bytes.is_empty() {
                let at = byte % bytes.len();
                bytes[at] ^= with;
            }
            frames[frame % count] = Bytes::from(bytes);
        }
        Harm::Cut { frame, at } => {
            let length = frames[frame % count].len();
            frames[frame % count].truncate(at % (length + 1));
        }
        Harm::Drop { frame } => drop(frames.remove(frame % count)),
        Harm::Repeat { frame, times } => {
            let again = frames[frame % count].clone();
            frames.extend(std::iter::repeat_n(again, times));
        }
        Harm::Insert { frame, bytes } => frames.insert(frame % (count + 1), bytes),
        Harm::Swap { one, other } => frames.swap(one % count, other % count),
    }
}

// Case F22.
#[test]
fn harmed_messages_and_plain_noise_are_refused_or_read_but_never_panic() {
    // What is read in spite of the harm is a message like any other: it goes out and comes in again as the same.
    let read = |frames: Vec<Bytes>| {
        if let Ok((message, bodies)) = decode_from_worker(&frames) {
            prop_assert_eq!(decode_from_worker(&encode_from_worker(&message, &bodies)), Ok((message, bodies)));
        }
        if let Ok((message, bodies)) = decode_to_worker(&frames) {
            prop_assert_eq!(decode_to_worker(&encode_to_worker(&message, &bodies)), Ok((message, bodies)));
        }
        Ok(())
    };
    let frames = prop_oneof![
        from_worker().prop_map(|(message, bodies)| encode_from_worker(&message, &bodies)),
        to_worker().prop_map(|(message, bodies)| encode_to_worker(&message, &bodies)),
        vec(bytes(0..100), 0..14),
        vec(bytes(0..100), 0..14).prop_map(|mut noise| {
            noise.insert(0, Bytes::from_static(MARK));
            noise
        }),
    ];
    for_many(6_000, &(frames, vec(harm(), 0..4)), |(mut frames, harms)| {
        harms.into_iter().for_each(|harm| do_harm(&mut frames, harm));
        read(frames)
    });
}

// Case F22.
#[test]
fn a_message_is_read_the_same_whatever_came_before_it() {
    let good = FromWorker::Begun { token: TokenText("t".to_owned()) };
    let frame = |bytes: &'static [u8]| Bytes::from_static(bytes);
    let bad: [Vec<Bytes>; 9] = [
        vec![],
        vec![frame(b"")],
        vec![frame(MARK)],
        vec![frame(MARK), frame(b"")],
        vec![frame(b"DSP2"), frame(br#"{"type":"bye"}"#)],
        vec![frame(MARK), frame(br#"{"type":"bye"}"#), frame(b"")],
        vec![frame(MARK), frame(br#"{"type":"bye"} "x""#)],
        vec![frame(MARK), frame(br#"{"type":"farewell"}"#)],
        vec![frame(MARK); 12],
    ];
    for noise in bad.iter().cycle().take(1_000) {
        assert!(decode_from_worker(noise).is_err(), "{noise:?}");
        assert_eq!(decode_from_worker(&encode_from_worker(&good, &[])), Ok((good.clone(), vec![])));
    }
}

// A service may have any name, also this one.
#[test]
fn a_single_frame_is_a_legacy_request_even_if_it_reads_like_the_mark() {
    assert!(!is_v1(&[MARK]));
    assert!(!is_v1(&["tex_to_html"]));
    assert!(!is_v1::<&[u8]>(&[]));
    assert!(is_v1(&[MARK, b"{}"]));
}

#[test]
fn caps_are_told_before_anything_is_parsed() {
    let header = |bytes: usize| vec![Bytes::from_static(MARK), Bytes::from(vec![b'['; bytes])];
    assert_eq!(decode_from_worker(&header(MAX_HEADER + 1)), Err(CodecError::HeaderTooLong { bytes: MAX_HEADER + 1 }));
    assert!(matches!(decode_from_worker(&header(MAX_HEADER)), Err(CodecError::Header { .. })), "128 levels are enough");

    let mut many = header(2);
    many.extend(vec![Bytes::new(); MAX_FRAMES]);
    assert_eq!(check_frames(&many), Err(CodecError::TooManyFrames { frames: MAX_FRAMES + 2 }));

    let mut long = header(2);
    long.extend([Bytes::from(vec![0; MAX_MESSAGE / 2]), Bytes::from(vec![0; MAX_MESSAGE / 2])]);
    assert_eq!(check_frames(&long), Err(CodecError::TooLong { bytes: MAX_MESSAGE + 6 }));
}

fn part(size: u64) -> PartSpec {
    PartSpec { name: "result".to_owned(), size, sha256: String::new() }
}

fn result_of(sizes: &[u64]) -> FromWorker {
    let parts = sizes.iter().copied().map(part).collect();
    FromWorker::Result { token: TokenText(String::new()), status: Status::NoProblem, messages: vec![], parts }
}

fn zeros(length: usize) -> Bytes {
    Bytes::from(vec![0; length])
}

// Rule R1.
#[test]
fn an_answer_is_read_whatever_bytes_come_with_it_so_that_it_can_be_answered() {
    let cause =
        Message { severity: Severity::Fatal, category: "oom".into(), what: "shed".into(), details: String::new() };
    let retryable =
        FromWorker::Retryable { token: TokenText("t".into()), cause, messages: vec![], parts: vec![part(2)] };
    let announced = result_of(&[u64::MAX; 50]);
    for (answer, bodies) in [
        (result_of(&[3, 0]), vec![zeros(3), zeros(0)]),
        (result_of(&[3, 0]), vec![zeros(3)]),
        (result_of(&[3]), vec![zeros(4)]),
        (result_of(&[3]), vec![]),
        (result_of(&[]), vec![zeros(KIB_64 + 1)]),
        (retryable, vec![]),
        (announced, vec![]),
    ] {
        assert_eq!(decode_from_worker(&encode_from_worker(&answer, &bodies)), Ok((answer, bodies)));
    }
}

#[test]
fn pieces_and_inputs_carry_exactly_their_bytes_and_all_else_carries_none() {
    let token = || TokenText("t".to_owned());
    let from =
        |message: &FromWorker, bodies: &[Bytes]| decode_from_worker(&encode_from_worker(message, bodies)).is_ok();
    let to = |message: &ToWorker, bodies: &[Bytes]| decode_to_worker(&encode_to_worker(message, bodies)).is_ok();
    let chunk_max = usize::try_from(CHUNK_MAX).expect("it fits");

    let piece = FromWorker::Part { token: token(), name: "result".to_owned(), offset: 0 };
    let chunk = ToWorker::Chunk { token: token(), offset: 0 };
    for (bodies, taken) in [
        (vec![zeros(1)], true),
        (vec![zeros(chunk_max)], true),
        (vec![zeros(chunk_max + 1)], false),
        (vec![zeros(0)], false),
        (vec![], false),
        (vec![zeros(1), zeros(1)], false),
    ] {
        assert_eq!(from(&piece, &bodies), taken, "part with {} bodies", bodies.len());
        assert_eq!(to(&chunk, &bodies), taken, "chunk with {} bodies", bodies.len());
    }

    let task = |size| ToWorker::Task {
        token: token(),
        task: TaskId(1),
        service: "s".to_owned(),
        corpus: "c".to_owned(),
        entry: EntryName(b"a/\xff".to_vec()),
        size,
        limit_ms: 1,
        attempt: 0,
    };
    assert!(to(&task(0), &[zeros(0)]) && to(&task(0), &[]) && to(&task(7), &[zeros(7)]) && to(&task(u64::MAX), &[]));
    assert!(!to(&task(7), &[zeros(6)]) && !to(&task(1), &[zeros(1), zeros(0)]));
    assert!(to(&task(INLINE_MAX), &[zeros(KIB_64)]) && !to(&task(INLINE_MAX + 1), &[zeros(KIB_64 + 1)]));

    assert!(from(&FromWorker::Bye, &[]) && !from(&FromWorker::Bye, &[zeros(0)]));
    assert!(to(&ToWorker::Drain, &[]) && !to(&ToWorker::Drain, &[zeros(1)]));
}

#[test]
fn as_many_holds_as_a_worker_may_have_fit_into_a_header() {
    let hold = Hold { token: TokenText("x".repeat(TOKEN_TEXT_LEN)), state: HoldState::Finished };
    let beat = |count| FromWorker::Beat { n: u64::MAX, received: u64::MAX, holds: vec![hold.clone(); count] };
    let frames = encode_from_worker(&beat(MAX_HOLDS), &[]);
    assert_eq!(check_frames(&frames), Ok(()), "a header of {} bytes", frames[1].len());
    assert!(decode_from_worker(&frames).is_ok());
}

#[test]
fn unknown_fields_are_skipped_in_every_message() {
    let newer = |frames: &[Bytes]| {
        let mut header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&frames[1]).expect("JSON");
        header.insert("future".to_owned(), serde_json::json!({"deep": [[1, 2.5], null, {"type": "x"}]}));
        let mut frames = frames.to_vec();
        frames[1] = Bytes::from(serde_json::to_vec(&header).expect("JSON"));
        frames
    };
    for_many(500, &from_worker(), |(message, bodies)| {
        let frames = newer(&encode_from_worker(&message, &bodies));
        prop_assert_eq!(decode_from_worker(&frames), Ok((message, bodies)));
        Ok(())
    });
    for_many(500, &to_worker(), |(message, bodies)| {
        let frames = newer(&encode_to_worker(&message, &bodies));
        prop_assert_eq!(decode_to_worker(&frames), Ok((message, bodies)));
        Ok(())
    });
}

// Rule G3.
#[test]
fn what_is_said_about_an_unreadable_header_is_short_and_escaped() {
    let header = format!("{{\"type\":\"{}\"}}", "\\u001b[31m".repeat(5_000));
    let error = decode_from_worker(&[Bytes::from_static(MARK), Bytes::from(header)]).expect_err("no such message");
    let said = error.to_string();
    assert!(said.len() < 2_000 && !said.contains('\u{1b}'), "{said}");
}
