//! ZeroMQ sockets behind one boundary, and the codecs of both wires.
//!
//! **Owns** how bytes get from one process to another: [`socket`] with its guards against broken and hostile peers,
//! [`codec`] between frames and the messages of [`dispatcher_core::wire`], [`legacy`] for the legacy wire, [`link`] that puts the two together, and the
//! numbers that both sides agree on ([`limits`]).
//!
//! **Refuses to know** what a message means: leases, credit, tokens and answers are the session's, in core. Nothing above
//! [`socket`] knows which ZeroMQ implementation runs.
//!
//! **Invariants**: sizes are capped before bytes are held; no byte from outside makes a function of this crate panic;
//! sending to a peer never waits for that peer.
//!
//! Read `docs/protocol.md` for the wire, and `docs/adr/0003-socket-boundary.md` for why the boundary is where it is.

pub mod codec;
pub mod legacy;
pub mod limits;
pub mod link;
pub mod socket;
