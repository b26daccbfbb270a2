//! The worker's side of the dispatcher: the conversation, the outbox, and the harness that runs a command per task.
//!
//! **Owns** what happens between "a task arrives" and "its answer lets us forget it": [`session`] (pure: what to say and
//! when), the outbox (a result is kept until it is answered for), the slots, and [`exec`] (a command per task, ended from
//! outside when its time is over).
//!
//! **Refuses to know** the dispatcher's store, its queue, and who else works for it. Tokens are opaque.
//!
//! **Invariants**: a busy task cannot keep back a beat; what was finished is sent until an answer comes; `begun` leaves
//! before its task starts; no input or output has to fit into memory.
//!
//! [`run_worker`] puts it together; read [`session`] first, and `docs/protocol.md` for what it speaks.

mod backoff;
mod cancel;
mod delivery;
pub mod exec;
mod files;
mod leftover;
mod link;
mod outbox;
mod run;
mod scratch;
pub mod session;
mod slot;
mod work;

pub use cancel::{Cancel, CancelReason};
pub use outbox::OutboxKind;
pub use run::{Stop, WorkerConfig, WorkerError, WorkerSummary, run_worker};
pub use scratch::{SlotFolder, base_name, tokens_worked_on};
pub use session::{AnswerCounts, StopLevel};
pub use work::{Assignment, Input, OutPart, Outcome, PartBody, Worker};
