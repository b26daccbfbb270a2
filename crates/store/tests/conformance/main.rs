//! One suite for every store: each test runs against each implementation.
//!
//! A test is an `async fn` that gets a [`Kit`] with an empty store; `both_stores!` at the end of its file makes a test of
//! it for each implementation.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on says so and stops")]

mod kit;

/// Makes a test for each store out of each function named.
macro_rules! both_stores {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[test] fn $name() { crate::kit::run(crate::kit::Kind::Memory, |kit| Box::pin(super::$name(kit))); })*
        }
        mod in_sqlite {
            $(#[test] fn $name() { crate::kit::run(crate::kit::Kind::Sqlite, |kit| Box::pin(super::$name(kit))); })*
        }
    };
}

mod accounts;
mod batches;
mod claims;
mod commands;
mod control;
mod dropped;
mod imports;
mod listings;
mod packs;
mod results;
mod sandboxes;
mod sizes;
mod texts;
mod times;
mod trails;
mod twins;
mod workers;
