//! The built program, used as people use it: on real files, killed, interrupted, on a full disk.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "the seed of a failed test is what repeats it")]
#![expect(unreachable_pub, reason = "a test has no callers; `pub` says what its other modules use")]

mod crowd;
mod desk;
mod ends;
mod exports;
mod farm;
mod fates;
mod faults;
mod fleets;
mod full;
mod imports;
mod inputs;
mod killed;
mod kit;
mod large;
mod legacy;
mod logs;
mod looks;
mod named;
mod operators;
mod packs;
mod parts;
mod peer;
mod poison;
mod probes;
mod python;
mod real;
mod results;
mod sandboxes;
mod serving;
mod slow;
mod starts;
mod stops;
mod waits;
mod workers;
