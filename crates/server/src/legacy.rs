//! Results of the legacy wire, from the socket to the finaliser.
//!
//! Owns the sink (`sink.rs`: takes what comes and knows who may have sent it) and the decoders (`decode.rs`: what the log
//! inside a result says). Knows nothing of rows: to which attempt a result belongs is the finaliser's to say.

pub(crate) mod decode;
pub(crate) mod sink;

use bytes::Bytes;
use dispatcher_core::id::{ServiceId, TaskId};
use dispatcher_core::in_flight::Receipt;
use dispatcher_core::report::Message;
use dispatcher_core::time::TimeMs;
use dispatcher_core::wire::PartSpec;
use dispatcher_transport::socket::Held;
use std::time::Instant;

use crate::report::Reporting;

/// A reply of the legacy wire: it names its worker and no attempt.
#[derive(Debug)]
pub struct LegacyReply {
    /// The task.
    pub task: TaskId,
    /// The service that it names, which is one of ours.
    pub service: ServiceId,
    /// Who says that it made it.
    pub worker: String,
    /// What the log inside says; an error where it is no result (rule R1).
    pub said: Result<LegacySaid, Message>,
    /// When it came.
    pub at: TimeMs,
    /// The same moment, to measure from.
    pub arrived: Instant,
    /// Keeps the reaper away until the decision (rule R3).
    pub receipt: Option<Receipt>,
    /// Its place among the bytes that may be held at once.
    pub held: Held,
}

/// What a result of the legacy wire says (rule W4).
#[derive(Debug)]
pub struct LegacySaid {
    /// How it went.
    pub verdict: Reporting,
    /// The messages of its log.
    pub messages: Vec<Message>,
    /// The result file; none where it is above its service's cap.
    pub part: Option<PartSpec>,
    /// Its bytes.
    pub bytes: Bytes,
}
