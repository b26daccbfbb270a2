use super::*;
use proptest::prelude::*;

fn key() -> TokenKey {
    TokenKey::new(*b"0123456789abcdef0123456789abcdef")
}

fn any_lease() -> impl Strategy<Value = LeaseId> {
    (any::<i64>(), any::<u32>(), any::<u64>()).prop_map(|(task, run, epoch)| LeaseId {
        task: TaskId(task),
        run: Run(run),
        epoch: Epoch(epoch),
    })
}

// Rule C11.
#[test]
fn a_token_names_its_lease_and_its_form_stays() {
    let lease = LeaseId { task: TaskId(42), run: Run(7), epoch: Epoch(9) };
    let text = key().sign(lease);
    assert_eq!(text.0, "AQAAAAAAAAAqAAAABwAAAAAAAAAJyEHq4OsRcyxrelcNy9LOzg");
    assert_eq!(text.0.len(), TOKEN_TEXT_LEN);
    assert_eq!(key().read(&text), Ok(lease));
}

// Rule C13.
#[test]
fn another_database_does_not_read_our_tokens() {
    let text = key().sign(LeaseId { task: TaskId(1), run: Run(1), epoch: Epoch(1) });
    assert_eq!(TokenKey::new([0; 32]).read(&text), Err(TokenError::Signature));
}

// Rule C13.
#[test]
fn a_text_of_any_other_length_is_refused_before_it_is_decoded() {
    for text in ["", "AQ", &"A".repeat(TOKEN_TEXT_LEN + 1), &"A".repeat(1 << 20)] {
        assert_eq!(key().read(&TokenText(text.to_owned())), Err(TokenError::Length(text.len())));
    }
}

// Rule C13.
#[test]
fn a_later_version_is_named_as_such() {
    let mut bytes = [0; BYTES];
    bytes[0] = 2;
    assert_eq!(key().read(&TokenText(URL_SAFE_NO_PAD.encode(bytes))), Err(TokenError::Version(2)));
}

#[test]
fn a_key_shows_none_of_its_bytes() {
    assert_eq!(format!("{:?}", key()), "TokenKey(…)");
}

proptest! {
    // Rules C11, C13.
    #[test]
    fn what_was_signed_is_read_and_one_changed_character_is_refused(
        lease in any_lease(),
        at in 0..TOKEN_TEXT_LEN,
        with in "[A-Za-z0-9_-]",
    ) {
        let text = key().sign(lease);
        prop_assert_eq!(key().read(&text), Ok(lease));
        let mut forged = text.0.clone();
        forged.replace_range(at..=at, &with);
        if forged != text.0 {
            prop_assert!(key().read(&TokenText(forged)).is_err());
        }
    }

    // Rule C13.
    #[test]
    fn no_text_whatever_makes_reading_panic(text in any::<String>(), padded in "\\PC{40,60}") {
        prop_assert!(key().read(&TokenText(text)).is_err());
        prop_assert!(key().read(&TokenText(padded)).is_err());
    }
}
