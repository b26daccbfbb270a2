//! The values that go into a session and come out of it.

use crate::cancel::CancelReason;
use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::time::SpanMs;
use dispatcher_core::wire::{AckWord, ErrorCode, FromWorker, ToWorker, TokenText};

/// What a session has to know from the start.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The worker's name: a label for people.
    pub name: String,
    /// Which life of that name this is.
    pub incarnation: String,
    /// How many dispatchers there are to turn to.
    pub endpoints: usize,
    /// The services it can do.
    pub services: Vec<String>,
    /// How many tasks it works on at once.
    pub slots: u32,
    /// How many more it asks for, which wait here.
    pub prefetch: u32,
    /// With this many unanswered results it asks for nothing more.
    pub outbox_max_results: usize,
    /// With this many bytes of unanswered results it asks for nothing more.
    pub outbox_max_bytes: u64,
    /// For how long answers are waited for at the end.
    pub linger_ms: SpanMs,
    /// Whether finished results survive this worker, so that nobody has to wait for a dispatcher that is away.
    pub keeps_results: bool,
    /// Where the jitter comes from; another one for each worker.
    pub seed: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The connection that was asked for is up.
    Up,
    /// The connection is gone.
    Down,
    /// The dispatcher said something.
    Received {
        /// What.
        message: ToWorker,
        /// The bytes that came with it; empty where none did.
        body: Bytes,
    },
    /// A slot's work is over and the slot is free.
    Ended {
        /// The slot.
        slot: usize,
        /// The task it worked on.
        token: TokenText,
        /// How it ended.
        how: Ended,
    },
    /// Pieces of an input have been written down, without a gap from its beginning.
    Written {
        /// The task.
        token: TokenText,
        /// Up to this byte.
        upto: u64,
    },
    /// A piece of an input could not be written down.
    InputFailed {
        /// The task.
        token: TokenText,
        /// Why.
        why: String,
    },
    /// The worker is to end.
    Stop(StopLevel),
}

/// How a slot's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a result or a cause, which is in the outbox.
    Finished {
        /// Its size in bytes.
        bytes: u64,
    },
    /// Without one: the task goes back.
    GivenBack,
}

/// How a worker ends (rule S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// What has begun is finished, what has not is given back.
    Drain,
    /// Everything is stopped and given back, uncharged.
    Now,
}

/// What is to be done, in the order of the list.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Build a connection; one that exists is dropped.
    Connect {
        /// To the dispatcher at this place of the list.
        endpoint: usize,
    },
    /// Drop the connection and what waits to be sent on it.
    Disconnect,
    /// Send this; it has no bytes beside it.
    Send(FromWorker),
    /// Send what the outbox has for this task, with its bytes where they are few.
    SendFinished {
        /// The task.
        token: TokenText,
    },
    /// Send a piece of a part from the outbox.
    SendPart {
        /// The task.
        token: TokenText,
        /// The part.
        name: String,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// How long it is at most, in bytes.
        length: u64,
    },
    /// Write down a piece of an input; [`Event::Written`] or [`Event::InputFailed`] tells how it went.
    Write {
        /// The task.
        token: TokenText,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// The piece.
        bytes: Bytes,
    },
    /// Start work, once what was sent before has left; [`Event::Ended`] tells how it went.
    Start {
        /// On this slot, which is free.
        slot: usize,
        /// The lease.
        token: TokenText,
        /// The task.
        order: Box<TaskOrder>,
        /// Where its input is.
        input: TaskInput,
    },
    /// Tell the work on this slot to stop. It still ends with [`Event::Ended`].
    Abort {
        /// The slot.
        slot: usize,
        /// Why.
        why: CancelReason,
    },
    /// Remove whatever is kept for this task: its result in the outbox, or its fetched input.
    Forget {
        /// The task.
        token: TokenText,
    },
    /// Worth a line in the log.
    Note(Note),
    /// The session is over; everything sent before still goes out.
    End(EndReason),
}

/// A task as the dispatcher gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOrder {
    /// The task's id.
    pub task: TaskId,
    /// The service.
    pub service: String,
    /// The corpus.
    pub corpus: String,
    /// The input's name.
    pub entry: EntryName,
    /// The input's size in bytes.
    pub size: u64,
    /// The time limit from the start.
    pub limit_ms: SpanMs,
    /// The attempt's number, for people.
    pub attempt: u64,
}

/// Where the input of a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskInput {
    /// It came with the task.
    Inline(Bytes),
    /// It was fetched, and every piece is written down.
    Fetched,
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was told to end.
    Stopped,
    /// The dispatcher will not have this worker.
    Refused {
        /// Why, in its words.
        message: String,
    },
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing came up, or nobody answered `hello`.
    NoAnswer,
    /// Three beats in a row were not answered: the connection is given up.
    BeatsUnanswered,
    /// The dispatcher objects.
    Error {
        /// What is wrong, as a word.
        code: ErrorCode,
        /// What is wrong, for a person.
        message: String,
    },
    /// An answer came with a reason.
    Answered {
        /// The task.
        token: TokenText,
        /// The answer.
        answer: AckWord,
        /// The reason.
        why: String,
    },
    /// An input could not be written down here.
    InputFailed {
        /// The task.
        token: TokenText,
        /// Why.
        why: String,
    },
}

/// What happened in a session, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Connections that came up.
    pub connections: u64,
    /// Tasks that came.
    pub received: u64,
    /// Results and causes that work brought.
    pub finished: u64,
    /// Tasks given back.
    pub released: u64,
    /// Tasks that the dispatcher ended.
    pub cancelled: u64,
    /// What became of results, causes and tasks given back.
    pub answers: AnswerCounts,
    /// Results and causes that wait for an answer.
    pub unanswered: u64,
    /// Tasks that were given back, without an answer to that.
    pub unconfirmed: u64,
}

/// Answers by word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// On disk and standing, or done.
    pub stored: u64,
    /// Something at least as good stood.
    pub superseded: u64,
    /// Of an earlier run.
    pub stale: u64,
    /// Of a cancelled task.
    pub cancelled: u64,
    /// The store had no such task or lease.
    pub unknown: u64,
    /// Could not be taken as it was.
    pub refused: u64,
}

impl AnswerCounts {
    /// One more answer of this word.
    pub(super) const fn count(&mut self, answer: AckWord) {
        *match answer {
            AckWord::Stored => &mut self.stored,
            AckWord::Superseded => &mut self.superseded,
            AckWord::Stale => &mut self.stale,
            AckWord::Cancelled => &mut self.cancelled,
            AckWord::Unknown => &mut self.unknown,
            AckWord::Refused => &mut self.refused,
        } += 1;
    }
}
