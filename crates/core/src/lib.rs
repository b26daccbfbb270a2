//! The rules of a durable task dispatcher: who may work on a task, for how long, and which result stands.
//!
//! **Owns** the vocabulary (ids, statuses, endings), the state of one task in memory and each transition of it, the one
//! function that decides which result wins, and the pure halves of a worker's session and of the finaliser.
//!
//! **Refuses to know** sockets, files, databases, clocks, randomness and logs. Time is an argument, what is to be sent,
//! written or logged is a return value. Waiting in [`hold`] is the one exception.
//!
//! **Invariants**: no input from outside makes a function of this crate panic; a refusal is data; whatever has a bound
//! says so.
//!
//! Read `docs/states.md` for the tables, and `slot` first of the code.

pub mod batch;
pub mod claim;
pub mod finalise;
pub mod fleet;
pub mod guard;
pub mod hold;
pub mod id;
pub mod in_flight;
pub mod lease;
pub mod legacy;
pub mod lookup;
pub mod noise;
pub mod reap;
pub mod report;
pub mod retry;
pub mod session;
pub mod slot;
pub mod text;
pub mod time;
pub mod token;
pub mod wire;
