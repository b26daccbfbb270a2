//! The stages of a dispatcher process and how they start and end.
//!
//! **Owns** the threads and channels between sockets and store: the router (sessions, leases, hand-outs), the receiver
//! (bytes of results), the sink and its decoders (results of the legacy wire), the finaliser (batches, decisions, publication, claims ahead) and the input readers.
//!
//! **Refuses to know** command lines, signals, progress bars, and which database or socket library is in use.
//!
//! **Invariants**: the router never waits; "may wait for" between stages has no cycle (router → receiver → finaliser →
//! disk and database); a stage that ends unasked ends the whole process; nobody is told "stored" before the commit.
//!
//! `docs/architecture.md` has the drawing.

pub mod clock;
pub mod dispatcher;
pub mod finaliser;
pub mod hooks;
pub mod http;
pub mod inputs;
mod legacy;
pub mod mailbox;
pub mod meters;
pub mod progress;
pub mod receiver;
pub mod recovery;
pub mod report;
pub mod router;
pub mod sandboxes;
pub mod shared;
pub mod stage;
pub mod wake;

pub use dispatcher::{Dispatcher, DispatcherConfig, Ended, LegacyWire, Workers};
pub use finaliser::names::ResultNames;
pub use shared::DrainMode;
