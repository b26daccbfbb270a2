use super::*;
use proptest::prelude::*;

fn message(severity: Severity, details: &str) -> Message {
    Message { severity, category: "c".to_owned(), what: "w".to_owned(), details: details.to_owned() }
}

// Case F52.
#[test]
fn what_a_store_or_a_terminal_would_choke_on_is_replaced_visibly() {
    let cases: &[(&[u8], &str)] = &[
        (b"nul \0 here", "nul \u{2400} here"),
        (b"bell \x07 and escape \x1b[31m", "bell \u{2407} and escape \u{241b}[31m"),
        (b"delete \x7f", "delete \u{2421}"),
        (b"stray \xFF byte", "stray \u{FFFD} byte"),
        // A lone surrogate, as a lenient decoder of JSON leaves it.
        (b"half \xED\xA0\x80 pair", "half \u{FFFD}\u{FFFD}\u{FFFD} pair"),
        ("evil \u{202e}txt.exe".as_bytes(), "evil ⟨U+202E⟩txt.exe"),
        ("next\u{85}line\u{2028}".as_bytes(), "next⟨U+0085⟩line⟨U+2028⟩"),
        ("Grüße, 世界 👩\u{200d}🔬".as_bytes(), "Grüße, 世界 👩\u{200d}🔬"),
    ];
    for (raw, clean) in cases {
        assert_eq!(clean_line(raw, 1000).text, *clean);
    }
}

// Case F52.
#[test]
fn an_escaped_nul_in_json_is_a_nul_once_decoded() {
    let decoded: String = serde_json::from_str(r#""a\u0000b""#).unwrap();
    let cleaned = clean_text(decoded.as_bytes(), 100);
    assert_eq!(cleaned.text, "a\u{2400}b");
    assert_eq!(cleaned.note.to_string(), "1 NULs replaced");
}

// Case F52.
#[test]
fn lines_and_tabs_stay_in_details_and_go_from_names() {
    assert_eq!(clean_text(b"one\n\ttwo\r", 100).text, "one\n\ttwo\u{240d}");
    assert_eq!(clean_line(b"one\n\ttwo", 100).text, "one\u{240a}\u{2409}two");
}

#[test]
fn a_cut_is_told_and_falls_between_characters() {
    let long = "ü".repeat(50);
    let cleaned = clean_line(long.as_bytes(), 41);
    assert_eq!(cleaned.text, format!("{}… (78 bytes cut)", "ü".repeat(11)));
    assert_eq!(cleaned.note.cut, 78);
    assert_eq!(clean_line(long.as_bytes(), 5).text, "üü");
    assert_eq!(clean_line(long.as_bytes(), 0).text, "");
}

#[test]
fn what_fits_exactly_is_not_cut() {
    let text = "x".repeat(40);
    assert_eq!(clean_line(text.as_bytes(), 40), Cleaned { text: Cow::Borrowed(&text), note: Note::default() });
    let with_nul = format!("{}\0", "x".repeat(37));
    assert_eq!(clean_line(with_nul.as_bytes(), 40).note.cut, 0);
}

// Case F52.
#[test]
fn messages_carry_a_note_of_what_was_done() {
    let cleaned = clean_messages(vec![message(Severity::Fatal, "a\0b"), message(Severity::Info, "fine")], 10);
    assert_eq!(cleaned.len(), 3);
    assert_eq!(cleaned[0].details, "a\u{2400}b");
    assert_eq!(cleaned[2].severity, Severity::Info);
    assert_eq!(cleaned[2].details, "1 NULs replaced");
    assert_eq!(clean_messages(vec![message(Severity::Info, "fine")], 10).len(), 1);
}

#[test]
fn of_too_many_messages_the_gravest_stay_in_their_order() {
    let many = vec![
        message(Severity::Info, "1"),
        message(Severity::Warning, "2"),
        message(Severity::Info, "3"),
        message(Severity::Fatal, "4"),
    ];
    let kept: Vec<_> = clean_messages(many, 2).into_iter().map(|m| m.details).collect();
    assert_eq!(kept, ["2", "4", "2 messages left out"]);
}

// Case F52.
#[test]
fn what_is_printed_is_one_line_that_fools_no_terminal() {
    let cases: &[(&[u8], &str)] = &[
        (b"2024/a b.tex", "2024/a b.tex"),
        (b"two\nlines\tand \x1b[2J", "two\\nlines\\tand \\u{1b}[2J"),
        ("\u{202e}gpj.exe".as_bytes(), "\\u{202e}gpj.exe"),
    ];
    for (raw, shown) in cases {
        assert_eq!(printed(std::str::from_utf8(raw).unwrap()), *shown);
        assert_eq!(printed_name(raw), *shown);
    }
    assert_eq!(printed_name(b"\xff\\n"), "\\xff\\\\n");
    for never_shown in
        ["\\", "\\q", "\\x4", "\\x41", "\\x+f", "\\u{41}", "\\u{1b", "\\u{d800}", "\\u{00202e}", "\u{202e}", "\n"]
    {
        assert_eq!(read_printed(never_shown), None, "{never_shown:?}");
    }
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        proptest::collection::vec(any::<char>(), 0..60)
            .prop_map(|chars| chars.into_iter().collect::<String>().into_bytes()),
        proptest::collection::vec(
            prop_oneof![Just('\0'), Just('\u{202e}'), Just('\u{85}'), Just('\n'), Just('x'), Just('ü')],
            0..60,
        )
        .prop_map(|chars| chars.into_iter().collect::<String>().into_bytes()),
    ]
}

proptest! {
    // Case F52.
    #[test]
    fn every_output_is_free_of_nul_within_its_cap_and_a_fixed_point(bytes in any_bytes(), cap in 0..120_usize) {
        for clean in [clean_line, clean_text] {
            let once = clean(&bytes, cap);
            prop_assert!(!once.text.contains('\0'));
            prop_assert!(once.text.len() <= cap);
            prop_assert!(!once.text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            let twice = clean(once.text.as_bytes(), cap);
            prop_assert_eq!(&twice.text, &once.text);
            prop_assert!(twice.note.is_empty());
        }
    }

    // Case F52.
    #[test]
    fn a_name_can_be_typed_as_it_is_printed(bytes in any_bytes()) {
        let shown = printed_name(&bytes);
        prop_assert!(shown.chars().all(is_plain), "{shown:?}");
        prop_assert_eq!(printed(&shown), shown.as_str());
        prop_assert_eq!(read_printed(&shown), Some(bytes));
    }

    // Case F52.
    #[test]
    fn a_clean_text_is_left_alone(text in "[a-zäöü世 ]{0,40}") {
        let cleaned = clean_line(text.as_bytes(), 200);
        prop_assert!(matches!(cleaned.text, Cow::Borrowed(_)));
        prop_assert_eq!(cleaned.text.as_ref(), text.as_str());
    }
}
