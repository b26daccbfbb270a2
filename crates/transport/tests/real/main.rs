//! The boundary over real sockets, on each backend: in good order (`sockets`), and against broken and hostile peers
//! (`hostile`). What a backend is known to fail is in `declared`, and seen to fail.
#![expect(clippy::duplicate_mod, reason = "one suite, compiled once for each backend")]

mod declared;
#[path = "suite.rs"]
mod omq;
#[path = "suite.rs"]
mod zeromq;
