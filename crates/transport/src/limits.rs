//! The caps of frames and sockets, each with its reason, beside the numbers that both sides of the v1 wire agree on.
//!
//! Owns the caps of what is one message and of a socket. `docs/protocol.md` repeats those that a worker has to keep; whoever
//! changes one here changes it there.

pub use dispatcher_core::wire::limits::{CHUNK_MAX, CHUNKS_UNDER_WAY, INLINE_MAX, MAX_HOLDS, MAX_PARTS, WANTED_MAX};

/// The longest JSON header, in bytes. It has room for [`MAX_HOLDS`] holds of 90 bytes each, beside all else in it.
pub const MAX_HEADER: usize = 128 * 1024;

/// The most frames one v1 message has: the mark, the header, and one for each part.
pub const MAX_FRAMES: usize = 2 + MAX_PARTS;

/// The most bytes one message has, all frames together: a whole chunk with its header, or a full header with little
/// else. The socket cuts off whoever announces more, before any of it is held. The dispatcher's queue takes 256
/// messages of one peer, so this also bounds what one hostile peer costs: 48 MB.
pub const MAX_MESSAGE: usize = 192 * 1024;

/// The longest path of a Unix socket in bytes: the 108 of the kernel's `sun_path` less the closing NUL.
pub const SOCKET_PATH_MAX: usize = 107;
