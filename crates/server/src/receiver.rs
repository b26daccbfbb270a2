//! The receiver: makes sure that the bytes of a report are all there and the right ones.
//!
//! **Owns** hashing, the spool files of results that arrive in pieces, and the verdict "unusable" (rule R1).
//! **Refuses to know** what a report means for its task.
//!
//! Invariants: reports go on in the order in which they came in whole; a full disk makes the receiver wait, and with it
//! the workers, and loses nothing; no piece is held in memory once it is written.

use crate::clock::Clock;
use crate::hooks;
use crate::mailbox::Outlet;
use crate::progress::Progress;
use crate::report::{Arrival, Delivery, Order, PartBytes, Reported};
use crate::stage::StageFailure;
use bytes::Bytes;
use crossbeam_channel::{Receiver as Channel, Sender};
use dispatcher_core::fleet::Piece;
use dispatcher_core::id::LeaseId;
use dispatcher_core::report::{Message, Severity};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

mod spool;

use spool::{Spooled, Spooling};

/// The receiver's own state.
pub struct Receiver {
    arrivals: Channel<Arrival>,
    finaliser: Sender<Delivery>,
    router: Outlet<Order>,
    spool: PathBuf,
    under_way: HashMap<LeaseId, Spooling>,
    progress: Arc<Progress>,
    clock: Clock,
}

impl Receiver {
    /// A receiver that spools below `spool`.
    #[must_use]
    pub fn new(
        arrivals: Channel<Arrival>,
        finaliser: Sender<Delivery>,
        router: Outlet<Order>,
        spool: PathBuf,
        progress: Arc<Progress>,
        clock: Clock,
    ) -> Self {
        Self { arrivals, finaliser, router, spool, under_way: HashMap::new(), progress, clock }
    }

    /// Receives until the router is gone.
    ///
    /// # Errors
    /// Where the finaliser is gone (rule D8).
    pub fn run(mut self) -> Result<(), StageFailure> {
        while let Ok(arrival) = self.arrivals.recv() {
            self.take(arrival)?;
        }
        Ok(())
    }

    /// Handles one arrival.
    fn take(&mut self, arrival: Arrival) -> Result<(), StageFailure> {
        match arrival {
            Arrival::Note(record) => self.pass_on(Delivery::Note(record)),
            Arrival::Ask(question) => self.pass_on(Delivery::Ask(question)),
            Arrival::Workers(notes) => self.pass_on(Delivery::Workers(notes)),
            Arrival::Whole { reported, bodies } => {
                hooks::pass("received");
                let delivery = whole(reported, bodies);
                self.pass_on(delivery)
            }
            Arrival::Begin(reported) => self.begin(reported),
            Arrival::Piece { piece, bytes } => self.piece(piece, &bytes),
            Arrival::Drop(lease) => {
                self.under_way.remove(&lease);
                Ok(())
            }
        }
    }

    /// A transfer begins, in place of one under the same lease.
    fn begin(&mut self, reported: Reported) -> Result<(), StageFailure> {
        let lease = reported.lease;
        self.under_way.remove(&lease);
        match Spooling::begin(reported, &self.spool) {
            Ok(spooling) => {
                self.under_way.insert(lease, spooling);
                self.finish_if_whole(lease)
            }
            Err((reported, e)) => self.pass_on(Delivery::Unusable { why: not_writable(&e), reported: *reported }),
        }
    }

    /// A piece of a transfer; one that nobody awaits is ignored.
    fn piece(&mut self, piece: Piece, bytes: &Bytes) -> Result<(), StageFailure> {
        let lease = piece.lease;
        let Some(mut spooling) = self.under_way.remove(&lease) else { return self.told(Order::PieceTaken(piece)) };
        let written = loop {
            match spooling.write(piece.part, piece.offset, bytes) {
                Err(e) if e.kind() == io::ErrorKind::StorageFull || e.kind() == io::ErrorKind::QuotaExceeded => {
                    self.wait_for_space();
                }
                other => break other,
            }
        };
        self.progress.receiver_waits_for(None);
        self.told(Order::PieceTaken(piece))?;
        if let Err(e) = written {
            return self.pass_on(Delivery::Unusable { why: not_writable(&e), reported: spooling.into_reported() });
        }
        self.under_way.insert(lease, spooling);
        self.finish_if_whole(lease)
    }

    /// Passes a transfer on, once its last byte is there.
    fn finish_if_whole(&mut self, lease: LeaseId) -> Result<(), StageFailure> {
        let Some(spooling) = self.under_way.remove(&lease) else { return Ok(()) };
        if !spooling.is_whole() {
            self.under_way.insert(lease, spooling);
            return Ok(());
        }
        let delivery = match spooling.finish() {
            Spooled::Right { reported, bytes } => Delivery::Complete { reported, bytes },
            Spooled::Wrong { reported, part } => Delivery::Unusable { why: wrong_hash(&part), reported },
        };
        self.pass_on(delivery)
    }

    /// No space: says so once, and waits a little.
    fn wait_for_space(&self) {
        let what = format!("space below {}: free some, work goes on by itself", self.spool.display());
        if self.progress.receiver_waits_for(Some(what.clone())) {
            tracing::warn!(at = self.clock.now().0, "waiting for {what}");
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }

    fn pass_on(&self, delivery: Delivery) -> Result<(), StageFailure> {
        self.finaliser.send(delivery).map_err(|_| {
            tracing::error!("the finaliser is gone: what was received cannot be written and stays with its worker");
            StageFailure::NeighbourGone("finaliser")
        })
    }

    fn told(&self, order: Order) -> Result<(), StageFailure> {
        if self.router.send(order) { Ok(()) } else { Err(StageFailure::NeighbourGone("router")) }
    }
}

/// Checks a report whose bytes came with it.
fn whole(reported: Reported, bodies: Vec<Bytes>) -> Delivery {
    if reported.parts.len() != bodies.len() {
        return Delivery::Unusable {
            why: unusable("part_missing", "a declared part has no bytes".to_owned()),
            reported,
        };
    }
    for (spec, body) in reported.parts.iter().zip(&bodies) {
        if spec.size != body.len() as u64 {
            let why =
                unusable("part_size", format!("{} declares {} bytes and has {}", spec.name, spec.size, body.len()));
            return Delivery::Unusable { why, reported };
        }
        if hex(&Sha256::digest(body)) != spec.sha256 {
            return Delivery::Unusable { why: wrong_hash(&spec.name), reported };
        }
    }
    Delivery::Complete { reported, bytes: bodies.into_iter().map(PartBytes::Memory).collect() }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The reason of an unusable reply.
fn unusable(what: &str, details: String) -> Message {
    Message { severity: Severity::Error, category: "unusable".to_owned(), what: what.to_owned(), details }
}

fn wrong_hash(part: &str) -> Message {
    unusable("part_sha256", format!("the bytes of {part} are not those that were declared"))
}

fn not_writable(e: &io::Error) -> Message {
    unusable("not_writable", format!("the result cannot be written down: {e}"))
}
