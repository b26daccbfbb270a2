//! A driver of the fleet for tests: says what workers say, and writes down what comes of it, one line each.

use dispatcher_core::fleet::{AnswerBytes, Effect, Fleet, FleetLimits, LostLease, Piece, Said, Warning};
use dispatcher_core::id::{Epoch, LeaseId, Run, TaskId, WorkerKey};
use dispatcher_core::report::{Message, Severity, Status};
use dispatcher_core::session::PeerId;
use dispatcher_core::time::TimeMs;
use dispatcher_core::token::TokenKey;
use dispatcher_core::wire::{FromWorker, Hold, HoldState, PROTO, PartSpec, ToWorker, TokenText};

/// The key of every test.
pub(crate) fn key() -> TokenKey {
    TokenKey::new([7; 32])
}

/// The lease of `task` in its first run, under its first claim.
pub(crate) fn lease(task: i64) -> LeaseId {
    LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(1) }
}

/// The token of [`lease`].
pub(crate) fn token(task: i64) -> TokenText {
    key().sign(lease(task))
}

/// A hold of [`lease`].
pub(crate) fn hold(task: i64, state: HoldState) -> Hold {
    Hold { token: token(task), state }
}

/// A part with a digest that looks like one.
pub(crate) fn part(name: &str, size: u64) -> PartSpec {
    PartSpec { name: name.to_owned(), size, sha256: "a".repeat(64) }
}

/// A fatal message of this kind.
pub(crate) fn fatal(category: &str, what: &str) -> Message {
    Message { severity: Severity::Fatal, category: category.into(), what: what.into(), details: String::new() }
}

/// The worker of a name and an incarnation.
pub(crate) fn worker(name: &str, incarnation: &str) -> WorkerKey {
    WorkerKey { name: name.into(), incarnation: incarnation.into() }
}

/// A hello.
pub(crate) fn hello(name: &str, incarnation: &str, slots: u32, holds: Vec<Hold>) -> FromWorker {
    FromWorker::Hello {
        proto: PROTO,
        name: name.into(),
        incarnation: incarnation.into(),
        services: vec!["ocr".into()],
        slots,
        holds,
    }
}

/// A usable result.
pub(crate) fn result(task: i64, parts: Vec<PartSpec>) -> FromWorker {
    FromWorker::Result { token: token(task), status: Status::NoProblem, messages: vec![], parts }
}

/// The fleet, the time, and what was written down.
pub(crate) struct Talk {
    pub(crate) fleet: Fleet,
    pub(crate) now: TimeMs,
    pub(crate) log: Vec<String>,
    pub(crate) effects: Vec<Effect>,
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::with(FleetLimits::default())
    }

    pub(crate) fn with(limits: FleetLimits) -> Self {
        Self { fleet: Fleet::new(limits, key()), now: TimeMs(1_000_000), log: vec![], effects: vec![] }
    }

    /// A worker says something without a body.
    pub(crate) fn say(&mut self, peer: u64, message: FromWorker) -> &mut Self {
        self.say_with(peer, message, 0)
    }

    /// A worker says something with a body of this many bytes.
    pub(crate) fn say_with(&mut self, peer: u64, message: FromWorker, body: u64) -> &mut Self {
        let now = self.now;
        self.call(|fleet, effects| fleet.heard(PeerId(peer), message, body, now, effects))
    }

    /// Calls the fleet and writes down what comes of it.
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut Fleet, &mut Vec<Effect>)) -> &mut Self {
        let mut effects = Vec::new();
        call(&mut self.fleet, &mut effects);
        self.log.extend(effects.iter().map(show));
        self.effects.extend(effects);
        self
    }

    /// Time passes, with a tick every quarter of a second.
    pub(crate) fn pass(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds * 4 {
            self.now.0 += 250;
            let now = self.now;
            self.call(|fleet, effects| fleet.tick(now, effects));
        }
        self
    }

    /// Hands the task to whoever's turn it is.
    pub(crate) fn hand_out(&mut self, task: i64) -> &mut Self {
        match self.fleet.next_taker("ocr") {
            Some(peer) => {
                assert!(self.fleet.sent(peer, lease(task), 1_000_000, self.now));
                self.log.push(format!("> {} task {task}", peer.0));
            }
            None => self.log.push(format!("nobody takes {task}")),
        }
        self
    }

    /// A worker with this many slots that is welcomed and asks for `granted` tasks.
    pub(crate) fn join(&mut self, peer: u64, name: &str, slots: u32, granted: u64) -> &mut Self {
        self.say(peer, hello(name, "a", slots, vec![])).say(peer, FromWorker::Ready { granted })
    }

    /// What was written down since the last call.
    pub(crate) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Forgets what was written down.
    pub(crate) fn quietly(&mut self) -> &mut Self {
        self.log.clear();
        self
    }

    /// The pieces that arrived and were not asked for here before.
    pub(crate) fn pieces(&mut self) -> Vec<Piece> {
        let effects = std::mem::take(&mut self.effects);
        effects
            .into_iter()
            .filter_map(|e| if let Effect::PieceArrived(piece) = e { Some(piece) } else { None })
            .collect()
    }
}

/// One effect as a line; `>` is what is sent, with the connection's number.
pub(crate) fn show(effect: &Effect) -> String {
    match effect {
        Effect::Send { peer, message } => format!("> {} {}", peer.0, show_message(message)),
        Effect::Disconnect { peer, why } => format!("cut {} {why:?}", peer.0),
        Effect::Joined { peer, worker, slots, returned, .. } => {
            format!("joined {worker} on {} slots {slots}{}", peer.0, if *returned { " again" } else { "" })
        }
        Effect::HoldsClaimed { worker, holds } => {
            let holds: Vec<_> = holds.iter().map(|(lease, state)| format!("{} {state:?}", lease.task)).collect();
            format!("{worker} claims [{}]", holds.join(", "))
        }
        Effect::Begun { lease, worker } => format!("begun {} at {worker}", lease.task),
        Effect::Answered(answer) => {
            let said = match &answer.said {
                Said::Result(status) => format!("{status:?}"),
                Said::Retryable(cause) => format!("retryable {}:{}", cause.category, cause.what),
                Said::Release => "release".to_owned(),
                Said::Unusable(why) => format!("unusable: {why}"),
            };
            let bytes = match answer.bytes {
                AnswerBytes::None => "",
                AnswerBytes::Here => " with bytes",
                AnswerBytes::Wanted => " bytes wanted",
            };
            let began = if answer.began { "" } else { " unbegun" };
            format!("answer {} of {}: {said}{bytes}{began}", answer.lease.task, answer.worker)
        }
        Effect::PieceArrived(p) => format!("piece {} part {} at {} len {}", p.lease.task, p.part, p.offset, p.length),
        Effect::AllTaken { lease } => format!("all taken {}", lease.task),
        Effect::TransferEnded { lease, why } => format!("transfer ended {} {why:?}", lease.task),
        Effect::FetchAsked { peer, lease, offset, length } => {
            format!("read {} at {offset} len {length} for {}", lease.task, peer.0)
        }
        Effect::NotHeld { worker, leases, why } => format!("not held by {worker} {} {why:?}", show_lost(leases)),
        Effect::WorkerLost { worker, leases } => format!("lost {worker} {}", show_lost(leases)),
        Effect::WorkerLeft { worker } => format!("left {worker}"),
        Effect::Noise { peer, kind } => format!("noise {} {kind:?}", peer.0),
        Effect::Warn(Warning::NameShared { worker, other }) => format!("warn {worker} shares its name with {other}"),
        Effect::Warn(Warning::Stuck { worker }) => format!("warn {worker} does not read"),
    }
}

fn show_lost(leases: &[LostLease]) -> String {
    let leases: Vec<_> =
        leases.iter().map(|l| format!("{}{}", l.lease.task, if l.began { " begun" } else { "" })).collect();
    format!("[{}]", leases.join(", "))
}

fn show_message(message: &ToWorker) -> String {
    match message {
        ToWorker::Welcome { keep, drop, .. } => {
            format!("welcome keep {} drop {}", show_tokens(keep), show_tokens(drop))
        }
        ToWorker::Task { token, .. } => format!("task {}", show_token(token)),
        ToWorker::Chunk { token, offset } => format!("chunk {} at {offset}", show_token(token)),
        ToWorker::Want { token, name, offset, length } => {
            format!("want {} {name} at {offset} len {length}", show_token(token))
        }
        ToWorker::Ack { token, answer, why } => {
            format!("ack {} {answer:?}{}", show_token(token), why.as_ref().map_or(String::new(), |w| format!(" ({w})")))
        }
        ToWorker::Beat { n, unknown } => format!("beat {n} unknown {}", show_tokens(unknown)),
        ToWorker::Cancel { token, why } => format!("cancel {} ({why})", show_token(token)),
        ToWorker::Drain => "drain".to_owned(),
        ToWorker::Error { code, message } => format!("error {code:?}: {message}"),
    }
}

fn show_tokens(tokens: &[TokenText]) -> String {
    let tokens: Vec<_> = tokens.iter().map(show_token).collect();
    format!("[{}]", tokens.join(", "))
}

fn show_token(token: &TokenText) -> String {
    key().read(token).map_or("forged".to_owned(), |lease| lease.task.to_string())
}
