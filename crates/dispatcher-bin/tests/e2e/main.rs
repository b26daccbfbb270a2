//! The built program, used as people use it: on real files, killed, interrupted, on a full disk.

#![expect(unreachable_pub, reason = "a test has no callers; `pub` says what its other modules use")]

mod faults;
mod inputs;
mod killed;
mod kit;
mod looks;
mod parts;
mod poison;
mod results;
mod stops;
