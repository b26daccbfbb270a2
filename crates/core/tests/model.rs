//! Random histories against the set and against a naive model of the rules: every answer and every counter is compared
//! after each step.
//!
//! The model (`model/naive.rs`, `model/replies.rs`) is one list, searched from end to end, written from the rules and sharing no code with
//! the set. `DISPATCHER_FULL=1` runs 100,000 histories instead of some hundred; `DISPATCHER_SEED=n` picks the long
//! history, whose seed is printed when it fails.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "model/drive.rs"]
mod drive;
#[path = "model/naive.rs"]
mod naive;
#[path = "model/replies.rs"]
mod replies;

use drive::{Drive, Op, Setting};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

fn is_full() -> bool {
    std::env::var_os("DISPATCHER_FULL").is_some_and(|value| value == "1")
}

fn settings() -> impl Strategy<Value = Setting> {
    (any::<bool>(), 1..5usize, 1..3usize, prop_oneof![Just(0i64), Just(-5), Just(40), Just(1000)], 0..4usize).prop_map(
        |(own, max_in_flight, above, window_ms, max_held)| Setting {
            own,
            max_in_flight,
            hard_limit: max_in_flight + above,
            window_ms,
            max_held,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    (0..Op::KINDS, any::<[u8; 4]>()).prop_map(|(kind, dice)| Op { kind, dice })
}

fn run(setting: Setting, ops: impl IntoIterator<Item = Op>) -> Result<(), String> {
    let mut drive = Drive::new(setting);
    for (step, op) in ops.into_iter().enumerate() {
        drive.step(op).map_err(|wrong| format!("step {step}, {op:?}: {wrong}\n{}", drive.story()))?;
    }
    Ok(())
}

// Rules L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12.
// Rules R1, R2, R3, R4, R5, R6, R8, X1, X2, X3, X4, X5, X6, X7, X8, S3, G5.
#[test]
fn the_set_answers_and_counts_like_a_naive_model_through_random_histories() {
    let cases = if is_full() { 100_000 } else { 500 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let histories = (settings(), prop::collection::vec(op(), 1..80));
    runner
        .run(&histories, |(setting, ops)| run(setting, ops).map_err(TestCaseError::fail))
        .unwrap_or_else(|wrong| panic!("{wrong}"));
}

// Rules G5, L10, X4.
#[test]
fn one_long_history_stays_equal_to_the_model() {
    let seed = std::env::var("DISPATCHER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_u64);
    let steps = if is_full() { 400_000 } else { 4_000 };
    for own in [false, true] {
        let setting = Setting { own, max_in_flight: 4, hard_limit: 5, window_ms: 200, max_held: 3 };
        let mut state = seed;
        let ops = std::iter::repeat_with(|| {
            // A plain 64-bit congruential generator; its upper half is well mixed.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = (state >> 16).to_le_bytes();
            Op { kind: bytes[4] % Op::KINDS, dice: [bytes[0], bytes[1], bytes[2], bytes[3]] }
        });
        if let Err(wrong) = run(setting, ops.take(steps)) {
            panic!("DISPATCHER_SEED={seed}: {wrong}");
        }
    }
}
