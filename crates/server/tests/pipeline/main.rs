//! The stages together: a dispatcher over real sockets, with real workers, broken ones and vanishing ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(unreachable_pub, reason = "a test has no callers; `pub` says what its other modules use")]

mod bounded;
mod commands;
mod kit;
mod known;
mod legacy;
mod lost;
mod restarts;
mod unusable;
mod whole;
