//! The worker's side: a DEALER with one link at a time, whichever implementation runs below.

use super::omq::OmqDealer;
use super::zeromq::ZeromqDealer;
use super::{BackendKind, Endpoint, Sent, SocketError};
use crate::limits::{MAX_FRAMES, MAX_MESSAGE};
use bytes::Bytes;
use std::time::Duration;

/// What happens at a DEALER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DealerEvent {
    /// There is a link. It is a new one each time: nothing that was sent before is in it, so `hello` comes first.
    Connected,
    /// A message.
    Message {
        /// Its frames. Nothing of them was looked at.
        frames: Vec<Bytes>,
    },
    /// The link is gone, and all that was not read from it with it. Another one is being built.
    Disconnected,
}

/// The limits of a DEALER.
#[derive(Clone, Debug)]
pub struct DealerOptions {
    /// Which implementation runs. Not all of them keep every limit below; `docs/adr/0003-socket-boundary.md` has the list.
    pub backend: BackendKind,
    /// The most frames that a message has. It counts for the size only: each costs 64 bytes beside its own.
    pub max_frames: usize,
    /// The most bytes that a message has.
    pub max_message: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long it waits before it tries again, at first. The wait doubles with each failure, and varies by a tenth.
    pub retry_least: Duration,
    /// How long it waits before it tries again, at most.
    pub retry_most: Duration,
}

/// A DEALER: keeps a link to one dispatcher, and builds it again whenever it is lost.
///
/// It sets no identity: a name that two connections can claim would let one take what is meant for the other. Its events
/// have to be taken all the time: links make progress, and are built, while it is waited for them.
#[derive(Debug)]
pub struct DealerSocket {
    backend: Backend,
}

/// The implementations, chosen by [`DealerOptions::backend`].
#[derive(Debug)]
enum Backend {
    Omq(Box<OmqDealer>),
    Zeromq(Box<ZeromqDealer>),
}

impl Default for DealerOptions {
    fn default() -> Self {
        Self {
            backend: BackendKind::default(),
            max_frames: MAX_FRAMES,
            max_message: MAX_MESSAGE,
            handshake: Duration::from_secs(5),
            retry_least: Duration::from_millis(100),
            retry_most: Duration::from_secs(3),
        }
    }
}

impl DealerSocket {
    /// A DEALER for the dispatcher at `endpoint`, which need not be there yet. Must be used within one Tokio runtime.
    ///
    /// # Errors
    /// [`SocketError::Refused`] where the implementation does not take the options or the address.
    pub fn connect(endpoint: &Endpoint, options: DealerOptions) -> Result<Self, SocketError> {
        options.backend.may_use(endpoint)?;
        let backend = match options.backend {
            BackendKind::Omq => Backend::Omq(Box::new(OmqDealer::connect(endpoint, options)?)),
            BackendKind::Zeromq => Backend::Zeromq(Box::new(ZeromqDealer::connect(endpoint, options)?)),
        };
        Ok(Self { backend })
    }

    /// Waits for the next event. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// [`SocketError::Refused`] where the implementation does not take the options.
    pub async fn next(&mut self) -> Result<DealerEvent, SocketError> {
        match &mut self.backend {
            Backend::Omq(dealer) => dealer.next().await,
            Backend::Zeromq(dealer) => dealer.next().await,
        }
    }

    /// Sends `frames`, or says at once why not: [`Sent::Full`] while the link takes nothing more, [`Sent::Gone`] while
    /// there is none. What is sent may be lost with the link.
    pub fn try_send(&mut self, frames: Vec<Bytes>) -> Sent {
        match &mut self.backend {
            Backend::Omq(dealer) => dealer.try_send(frames),
            Backend::Zeromq(dealer) => dealer.try_send(frames),
        }
    }

    /// Like [`Self::try_send`], but waits up to `patience` for the link to take more.
    ///
    /// Where the wait is dropped or runs out, the message was not sent.
    pub async fn send(&mut self, frames: Vec<Bytes>, patience: Duration) -> Sent {
        match &mut self.backend {
            Backend::Omq(dealer) => dealer.send(frames, patience).await,
            Backend::Zeromq(dealer) => dealer.send(frames, patience).await,
        }
    }

    /// Whether there is a link, as far as is known.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        match &self.backend {
            Backend::Omq(dealer) => dealer.is_connected(),
            Backend::Zeromq(dealer) => dealer.is_connected(),
        }
    }

    /// Drops the link, with all that is on its way in it, and builds another one. [`DealerEvent::Disconnected`] is told
    /// where there was one.
    pub fn rebuild(&mut self) {
        match &mut self.backend {
            Backend::Omq(dealer) => dealer.rebuild(),
            Backend::Zeromq(dealer) => dealer.rebuild(),
        }
    }

    /// Waits up to `linger` until all that was to be sent has left, and closes the link.
    pub async fn close(self, linger: Duration) {
        match self.backend {
            Backend::Omq(dealer) => dealer.close(linger).await,
            Backend::Zeromq(dealer) => dealer.close(linger).await,
        }
    }
}
