//! The built program, used as people use it: on real files, killed, interrupted, on a full disk.

mod faults;
mod inputs;
mod kit;
mod killed;
mod looks;
mod poison;
mod results;
mod stops;
