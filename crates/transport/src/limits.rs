//! The numbers that both sides of the v1 wire agree on, each with its reason.
//!
//! Owns the caps of the wire and of the sockets. `docs/protocol.md` repeats those that a worker has to keep; whoever
//! changes one here changes it there.

use std::time::Duration;

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

/// The longest JSON header, in bytes. It has room for [`MAX_HOLDS`] holds of 90 bytes each, beside all else in it.
pub const MAX_HEADER: usize = 128 * 1024;

/// How many tasks a worker may have at once: 1,000 results waiting in its outbox (after which it asks for nothing more),
/// and 400 queued or running.
pub const MAX_HOLDS: usize = 1_400;

/// The most parts that bring their bytes inside one message. There are three names for parts today.
pub const MAX_PARTS: usize = 8;

/// The most frames one v1 message has: the mark, the header, and one for each part.
pub const MAX_FRAMES: usize = 2 + MAX_PARTS;

/// The most bytes one message has, all frames together: a whole chunk with its header, or a full header with little
/// else. The socket cuts off whoever announces more, before any of it is held. The dispatcher's queue takes 256
/// messages of one peer, so this also bounds what one hostile peer costs: 48 MB.
pub const MAX_MESSAGE: usize = 192 * 1024;

/// How often each side gives a sign of life.
pub const BEAT: Duration = Duration::from_secs(2);

/// After how much silence the other side counts as lost: 15 beats, so that a machine that swaps is not taken for dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The longest path of a Unix socket in bytes: the 108 of the kernel's `sun_path` less the closing NUL.
pub const SOCKET_PATH_MAX: usize = 107;
