use super::*;
use proptest::prelude::*;

fn kinds(log: &Log) -> Vec<String> {
    log.messages.iter().map(|m| format!("{:?}:{}:{} {}", m.severity, m.category, m.what, m.details)).collect()
}

// Rule W4.
#[test]
fn the_worst_line_is_the_status() {
    let words = [
        ("nothing of interest\n", Status::NoProblem),
        ("Info:a:b\n", Status::NoProblem),
        ("Info:a:b\nWarning:a:b\n", Status::Warning),
        ("Error:a:b\nWarning:a:b\n", Status::Error),
        ("Fatal:a:b\nError:a:b\n", Status::Fatal),
        ("Fatal:a:b\nFatal:invalid:no_tex\n", Status::Invalid),
    ];
    for (text, status) in words {
        assert_eq!(Log::read(text.as_bytes()).status, status, "{text}");
    }
}

// Rule W4.
#[test]
fn a_line_gives_its_category_what_and_details() {
    let log =
        Log::read(b"Warning:missing_file:iopams.sty Can't find it: at all\nError:x:y:z\r\nFatal:timeout:wallclock");
    assert_eq!(
        kinds(&log),
        ["Warning:missing_file:iopams.sty Can't find it: at all", "Error:x:y:z ", "Fatal:timeout:wallclock "]
    );
}

// Rule W4.
#[test]
fn a_line_of_another_form_is_no_message() {
    let others = "error:0A000086:SSL routines::certificate verify failed\nWarning: be careful: now\nError:\nError::b\n\
                  Error:a:\nError:a: b\n Error:a:b\nStatus:conversion:3\nFatal\n";
    let log = Log::read(others.as_bytes());
    assert_eq!(log, Log { messages: vec![], status: Status::NoProblem, retryable: None });
}

// Rule W4.
#[test]
fn a_line_that_begins_with_a_tab_goes_on_with_the_details() {
    let log = Log::read(b"\tlost\nError:a:b first\n\tsecond\n\tthird\nelse\n");
    assert_eq!(log.messages[0].details, "first\nsecond\nthird");
    assert_eq!(log.messages.len(), 1);
}

// Rules W4, R4. Case F52.
#[test]
fn a_stray_byte_spoils_its_own_line_only_and_the_true_status_line_decides() {
    let log = Log::read(b"Info:a:b fine\n\xFF\xFE\0\0\nFatal\xFF:a:b\nWarning:a:b odd \xFF and \0\nError:a:b end\n");
    assert_eq!(log.status, Status::Error);
    assert_eq!(
        kinds(&log),
        [
            "Info:a:b fine",
            "Warning:a:b odd \u{FFFD} and \u{2400}",
            "Error:a:b end",
            "Info:dispatcher:text_replaced 1 sequences that are not UTF-8 replaced, 1 NULs replaced",
        ]
    );
}

// Rules R4, W4.
#[test]
fn the_mark_makes_the_gravest_message_a_retryable_cause() {
    let log = Log::read(b"Error:a:b\nFatal:net:down no route\nFatal:c:d\nInfo:cortex:retryable\n");
    let cause = log.retryable.unwrap();
    assert_eq!((cause.category.as_str(), cause.what.as_str()), ("net", "down"));
    let alone = Log::read(b"Info:cortex:retryable\n").retryable.unwrap();
    assert_eq!((alone.category.as_str(), alone.what.as_str()), ("cortex", "retryable"));
    assert_eq!(Log::read(b"Warning:cortex:retryable\n").retryable, None);
}

// Rule R4.
#[test]
fn the_known_causes_are_retryable_as_fatals() {
    for kind in ["timeout:wallclock", "oom:shed", "crash:unrecorded", "crash:SIGKILL", "crash:SIGSEGV"] {
        assert!(Log::read(format!("Fatal:{kind} x").as_bytes()).retryable.is_some(), "{kind}");
        assert!(Log::read(format!("Warning:{kind} x").as_bytes()).retryable.is_none(), "{kind}");
    }
    for (category, what) in [("timeout", "cpu"), ("oom", "killed"), ("crash", "SIG"), ("crash", "exit")] {
        assert!(!is_retryable_cause(category, what));
    }
}

#[test]
fn of_too_many_messages_the_gravest_stay_and_all_count() {
    let mut reader = LogReader::new(2);
    reader.push(b"Info:a:1\nInfo:a:2\nWarning:a:3\nFatal:a:4\nError:a:5\n");
    let log = reader.finish();
    assert_eq!(log.status, Status::Fatal);
    assert_eq!(kinds(&log), ["Fatal:a:4 ", "Error:a:5 ", "Info:dispatcher:text_replaced 3 messages left out"]);
}

#[test]
fn a_line_without_end_costs_no_more_than_its_cap() {
    let mut reader = LogReader::default();
    reader.push(b"Error:a:b ");
    for _ in 0..1000 {
        reader.push(&[b'x'; 4096]);
    }
    assert!(reader.line.capacity() <= 2 * LINE_MAX);
    for _ in 0..10_000 {
        reader.push(b"\n\tmore");
    }
    let log = reader.finish();
    assert!(log.messages[0].details.len() <= text::DETAILS_MAX);
    assert!(log.messages[0].details.ends_with("bytes cut)"));
}

proptest! {
    // Case F52.
    #[test]
    fn no_bytes_whatever_make_reading_panic_and_pieces_read_like_the_whole(
        bytes in proptest::collection::vec(prop_oneof![
            any::<u8>().prop_map(|b| vec![b]),
            "(Info|Warning|Error|Fatal|Invalid):[a-z]{0,3}:[a-z]{0,3} ?[a-z\t:]{0,5}\n?".prop_map(String::into_bytes),
            Just(b"Info:cortex:retryable\n".to_vec()),
        ], 0..40).prop_map(|pieces| pieces.concat()),
        cuts in proptest::collection::vec(0..200_usize, 0..5),
    ) {
        let whole = Log::read(&bytes);
        let mut reader = LogReader::default();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let mut at = 0;
        for cut in cuts {
            reader.push(&bytes[at..cut]);
            at = cut;
        }
        reader.push(&bytes[at..]);
        prop_assert_eq!(&reader.finish(), &whole);
        let kept = whole.messages.iter().map(|m| m.severity.status()).max().unwrap_or(Status::NoProblem);
        prop_assert_eq!(kept, whole.status);
        prop_assert!(whole.messages.iter().all(|m| !m.details.contains('\0')));
    }
}
