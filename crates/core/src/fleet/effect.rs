//! What the fleet wants done: the words between it and whoever owns the sockets, the set and the store.

use crate::id::{LeaseId, WorkerKey};
use crate::report::{Message, Status};
use crate::session::PeerId;
use crate::wire::{HoldState, PartSpec, ToWorker};
use std::sync::Arc;

/// What is to be done, in the order in which it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Try to send `message`. Where the socket is full, give it back with [`super::Fleet::full`].
    Send {
        /// To this connection.
        peer: PeerId,
        /// This.
        message: ToWorker,
    },
    /// Cut the connection. The fleet has forgotten it already; [`super::Fleet::departed`] need not be called.
    Disconnect {
        /// Which.
        peer: PeerId,
        /// Why, for the log.
        why: Cut,
    },
    /// A worker said hello and was let in.
    Joined {
        /// On this connection.
        peer: PeerId,
        /// Who.
        worker: Arc<WorkerKey>,
        /// What it can do.
        services: Arc<[String]>,
        /// How many tasks it works on at once.
        slots: u32,
        /// Whether this life was known already: it is back on a new connection.
        returned: bool,
    },
    /// A worker says to hold leases that memory does not know to be its. Ask the store, then call
    /// [`super::Fleet::settle`]. A worker that said hello is not welcomed before.
    HoldsClaimed {
        /// Who.
        worker: Arc<WorkerKey>,
        /// Which leases, and how far each is.
        holds: Vec<(LeaseId, HoldState)>,
    },
    /// Work on the lease has begun: its clock starts (rule L1), its attempt will be charged (rule A2).
    Begun {
        /// Which.
        lease: LeaseId,
        /// Whose.
        worker: Arc<WorkerKey>,
    },
    /// A worker answered for a lease. Take it and call [`super::Fleet::ack`] in the end, after [`super::Fleet::want`]
    /// where bytes are wanted; or give it back with [`super::Fleet::defer`].
    Answered(Box<Answer>),
    /// The body of the message just heard is this piece of a part. Call [`super::Fleet::taken`] once it is written.
    PieceArrived(Piece),
    /// Every piece that was wanted has arrived and been taken.
    AllTaken {
        /// Of this lease.
        lease: LeaseId,
    },
    /// The pieces that arrived for this lease are worth nothing: the worker will answer again from the beginning. Its
    /// receipt ends (rule R3).
    TransferEnded {
        /// Which.
        lease: LeaseId,
        /// Why.
        why: Cut,
    },
    /// Read this piece of the lease's input and send it as a chunk, then call [`super::Fleet::chunk_done`]. It lies
    /// within the input.
    FetchAsked {
        /// To this connection.
        peer: PeerId,
        /// The lease.
        lease: LeaseId,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        length: u64,
    },
    /// These leases are not with their worker: undeliverable, uncharged where they have not begun (rule L9).
    NotHeld {
        /// Whose they were.
        worker: Arc<WorkerKey>,
        /// Which.
        leases: Vec<LostLease>,
        /// How that was found.
        why: NotHeldWhy,
    },
    /// The worker is lost (rule A3). Each of its leases is named once, here.
    WorkerLost {
        /// Who.
        worker: Arc<WorkerKey>,
        /// What it had and had not answered, with what counts as begun (rule A2).
        leases: Vec<LostLease>,
    },
    /// The worker left and holds nothing.
    WorkerLeft {
        /// Who.
        worker: Arc<WorkerKey>,
    },
    /// Something that a peer can repeat at will: count it (rule G3).
    Noise {
        /// Who.
        peer: PeerId,
        /// What.
        kind: NoiseKind,
    },
    /// Something an operator should read.
    Warn(Warning),
}

/// What a worker says of a lease it is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The lease.
    pub lease: LeaseId,
    /// Who answers.
    pub worker: Arc<WorkerKey>,
    /// What it says.
    pub said: Said,
    /// Whether the work had begun, as far as is known here.
    pub began: bool,
    /// Its messages, cleaned and capped.
    pub messages: Vec<Message>,
    /// What it consists of. Names are safe as file names, the digests are hexadecimal; sizes are as declared.
    pub parts: Vec<PartSpec>,
    /// Where the parts' bytes are.
    pub bytes: AnswerBytes,
}

/// The kinds of answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A result.
    Result(Status),
    /// A cause that is worth another try (rule R4).
    Retryable(Message),
    /// The task is given back.
    Release,
    /// A reply that is no result, and why (rule R1): what was declared does not fit what came.
    Unusable(String),
}

/// Where the bytes of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBytes {
    /// There are none.
    None,
    /// In the body of the message just heard, part after part.
    Here,
    /// With the worker: [`super::Fleet::want`] fetches them.
    Wanted,
}

/// A piece of a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which transfer of the lease it belongs to: a lease answered again is transferred again.
    pub transfer: u64,
    /// The lease.
    pub lease: LeaseId,
    /// Which part, as an index into the answer's parts.
    pub part: usize,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
}

/// A lease that its worker has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLease {
    /// Which.
    pub lease: LeaseId,
    /// Whether it had begun, or counts as begun (rule A2).
    pub began: bool,
}

/// How a lease was found not to be with its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeldWhy {
    /// The worker's list does not have it, and it is not on its way.
    NotListed,
    /// The worker does not read.
    Stuck,
    /// The worker was gone before the store had decided.
    Gone,
}

/// Why a connection, or what was under way on it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It departed.
    Departed,
    /// The worker said goodbye.
    Bye,
    /// The same life of the worker is here on another connection.
    Replaced,
    /// Nothing was heard for too long.
    Silent,
    /// It does not read what is sent.
    Stuck,
    /// It does not send what it promised.
    Stalled,
    /// It broke the protocol or went beyond a limit.
    Offence,
    /// It is to answer again from the beginning.
    AskedAgain,
    /// The lease was settled or moved otherwise.
    Settled,
}

/// What is counted instead of logged line by line (rule G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoiseKind {
    /// A message that cannot be read.
    Malformed,
    /// A message before `hello`.
    NoHello,
    /// A request of the legacy wire where nobody takes its results: `legacy_results` is off.
    NotServed,
    /// A version that is not spoken here.
    Version,
    /// A token that was not signed here.
    BadToken,
    /// More of something than one worker may have.
    OverLimit,
    /// A piece that nobody asked for.
    UnwantedPiece,
    /// A fetch beyond its input, too long, or of a lease without one.
    BadFetch,
    /// An answer whose parts do not fit.
    UnusableAnswer,
    /// The connection's queue was full.
    QueueFull,
    /// A connection took over the life of a live one.
    Replaced,
}

/// What an operator should read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Two live workers have one name; they count as two.
    NameShared {
        /// The one that came.
        worker: Arc<WorkerKey>,
        /// One that was there.
        other: Arc<WorkerKey>,
    },
    /// A worker's queue stayed full: it does not read.
    Stuck {
        /// Who.
        worker: Arc<WorkerKey>,
    },
}
