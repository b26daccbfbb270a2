//! How much a fleet allows.

use crate::time::SpanMs;
use crate::wire::limits::{
    BEAT, CHUNK_MAX, CHUNKS_UNDER_WAY, DEAD_AFTER, INLINE_MAX, MAX_HOLDS, MAX_PARTS, WANTED_MAX,
};

/// What a fleet allows. Times are spans of the listening clock, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetLimits {
    /// How often each side gives a sign of life.
    pub beat: SpanMs,
    /// After how much silence a worker is lost.
    pub dead_after: SpanMs,
    /// After how long without reading a worker is cut off.
    pub stuck_after: SpanMs,
    /// Up to how many bytes inputs and answers travel inside their message.
    pub inline_max: u64,
    /// The longest piece of a file.
    pub chunk_max: u64,
    /// The most services of one worker.
    pub max_services: usize,
    /// The most slots of one worker; more count as this many.
    pub max_slots: u32,
    /// The most open credit of one worker; more counts as this much.
    pub max_credit: u64,
    /// The most leases of one worker, finished ones in its outbox included.
    pub max_holds: usize,
    /// The most parts of one answer.
    pub max_parts: usize,
    /// The most messages of one answer that are kept.
    pub max_messages: usize,
    /// How many tasks may be on their way to one worker without a proof of arrival. At most what its socket queues.
    pub task_window: u64,
    /// How many messages wait for one worker whose queue is full.
    pub max_waiting: usize,
    /// How many waiting messages are tried at once.
    pub retry_burst: usize,
    /// How many bytes of answers are wanted or not yet taken, over all workers.
    pub wanted_total: u64,
    /// How many pieces are outstanding on one connection, each way.
    pub outstanding_per_peer: usize,
    /// How many fetches of one worker wait for their turn.
    pub max_fetches: usize,
    /// How many bytes of answers that came inside their message are held, over all workers.
    pub inline_budget: u64,
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            beat: BEAT,
            dead_after: DEAD_AFTER,
            stuck_after: SpanMs::seconds(30),
            inline_max: INLINE_MAX,
            chunk_max: CHUNK_MAX,
            max_services: 64,
            max_slots: 4096,
            max_credit: 4096,
            max_holds: MAX_HOLDS,
            max_parts: MAX_PARTS,
            max_messages: 1000,
            task_window: 16,
            max_waiting: 4096,
            retry_burst: 16,
            wanted_total: WANTED_MAX,
            outstanding_per_peer: CHUNKS_UNDER_WAY,
            max_fetches: 1024,
            inline_budget: 64 * 1024 * 1024,
        }
    }
}
