//! What flows back to the router: a bounded channel that wakes an async reader.
//!
//! Owns the pairing of a channel with a notice. The router always reads, so a sender waits at most for one turn of it;
//! the router itself never sends here.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use tokio::sync::Notify;

/// The sending half; any thread may have a copy.
#[derive(Debug)]
pub struct Outlet<T> {
    sender: Sender<T>,
    notice: Arc<Notify>,
}

/// The receiving half.
#[derive(Debug)]
pub struct Mailbox<T> {
    receiver: Receiver<T>,
    notice: Arc<Notify>,
}

/// A mailbox for `capacity` messages.
#[must_use]
pub fn mailbox<T>(capacity: usize) -> (Outlet<T>, Mailbox<T>) {
    let (sender, receiver) = bounded(capacity);
    let notice = Arc::new(Notify::new());
    (Outlet { sender, notice: Arc::clone(&notice) }, Mailbox { receiver, notice })
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), notice: Arc::clone(&self.notice) }
    }
}

impl<T> Outlet<T> {
    /// Sends `message`; `false` where the reader is gone.
    #[must_use]
    pub fn send(&self, message: T) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.notice.notify_one();
        sent
    }
}

impl<T> Mailbox<T> {
    /// The next message that is there already.
    pub fn try_next(&self) -> Option<T> {
        self.receiver.try_recv().ok()
    }

    /// Returns when something may have come. Cancel-safe: a notice that nobody awaited is kept for the next call.
    pub async fn noticed(&self) {
        if self.receiver.is_empty() {
            self.notice.notified().await;
        }
    }
}
