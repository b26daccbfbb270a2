//! The numbers that both sides of the v1 wire agree on, each with its reason.
//!
//! Owns them: what a fleet allows unless something else is said, what the codec and the sockets let through and what a
//! worker keeps in memory are these. `docs/protocol.md` repeats those that a worker has to keep; whoever changes one here
//! changes it there.

use crate::time::SpanMs;

/// Up to how many bytes an input or a result (all its parts together) travels inside its message. Most documents are
/// smaller, so one message does; and 1,000 of them under way are 64 MB.
pub const INLINE_MAX: u64 = 64 * 1024;

/// The longest piece of a file in one message, in bytes. It fills a socket buffer, so larger ones gain nothing; smaller
/// ones cost a round trip more each.
pub const CHUNK_MAX: u64 = 128 * 1024;

/// How many pieces a connection asks for before it waits for one. Two keep the line busy while one is written down.
pub const CHUNKS_UNDER_WAY: usize = 2;

/// How many bytes a dispatcher wants at once over all its connections: what the results under way may cost in memory.
pub const WANTED_MAX: u64 = 16 * 1024 * 1024;

/// How many tasks a worker may have at once: 1,000 results waiting in its outbox (after which it asks for nothing more),
/// and 400 queued or running.
pub const MAX_HOLDS: usize = 1_400;

/// The most parts that bring their bytes inside one message. There are three names for parts today.
pub const MAX_PARTS: usize = 8;

/// How often each side gives a sign of life.
pub const BEAT: SpanMs = SpanMs::seconds(2);

/// After how much silence the other side counts as lost: 15 beats, so that a machine that swaps is not taken for dead.
pub const DEAD_AFTER: SpanMs = SpanMs::seconds(30);
