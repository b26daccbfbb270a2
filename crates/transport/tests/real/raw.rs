//! A peer made by hand, byte by byte, so that it can break every rule of ZMTP and of good behaviour.
#![expect(clippy::expect_used, reason = "these functions are parts of tests")]

use super::common::soon;
use dispatcher_transport::socket::Endpoint;
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A TCP connection to a ROUTER.
pub(crate) struct RawPeer {
    pub(crate) stream: TcpStream,
}

/// The flag of a frame that another one of its message follows.
const MORE: u8 = 1;
/// The flag of a frame whose length has eight bytes.
const LONG: u8 = 2;
/// The flag of a command.
pub(crate) const COMMAND: u8 = 4;

impl RawPeer {
    /// Connects and says nothing.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Self {
        let text = endpoint.to_string();
        let address = text.strip_prefix("tcp://").expect("a TCP address");
        Self { stream: soon("a connection", TcpStream::connect(address)).await.expect("the router listens") }
    }

    /// Connects, and shakes hands as a DEALER without an identity.
    pub(crate) async fn dealer(endpoint: &Endpoint) -> Self {
        Self::named(endpoint, b"").await
    }

    /// Connects, and shakes hands as a DEALER with the routing identity `name`, if that is not empty.
    pub(crate) async fn named(endpoint: &Endpoint, name: &[u8]) -> Self {
        Self::shaken(endpoint, b"DEALER", name).await
    }

    /// Connects, and shakes hands as a PUSH.
    pub(crate) async fn push(endpoint: &Endpoint) -> Self {
        Self::shaken(endpoint, b"PUSH", b"").await
    }

    async fn shaken(endpoint: &Endpoint, kind: &[u8], name: &[u8]) -> Self {
        let mut peer = Self::connect(endpoint).await;
        let mut greeting = [0_u8; 64];
        greeting[0] = 0xff;
        greeting[9] = 0x7f;
        greeting[10] = 3;
        greeting[12..16].copy_from_slice(b"NULL");
        peer.write(&greeting).await;
        let length = |text: &[u8]| u32::try_from(text.len()).expect("short").to_be_bytes();
        let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
        ready.extend_from_slice(&length(kind));
        ready.extend_from_slice(kind);
        if !name.is_empty() {
            ready.extend_from_slice(b"\x08Identity");
            ready.extend_from_slice(&length(name));
            ready.extend_from_slice(name);
        }
        peer.write(&[COMMAND, u8::try_from(ready.len()).expect("short")]).await;
        peer.write(&ready).await;
        peer.read(64).await;
        let head = peer.read(2).await;
        assert_eq!(head[0], COMMAND, "the other side is ready, too");
        peer.read(usize::from(head[1])).await;
        peer
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon("a write", self.stream.write_all(bytes)).await.expect("the connection holds");
    }

    /// Writes until all is written or the other side has had enough.
    pub(crate) async fn write_or_be_cut(&mut self, bytes: &[u8]) -> bool {
        soon("a write", self.stream.write_all(bytes)).await.is_ok()
    }

    pub(crate) async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        soon("bytes of the router", self.stream.read_exact(&mut bytes)).await.expect("the connection holds");
        bytes
    }

    /// Reads one frame, whatever it belongs to.
    pub(crate) async fn frame(&mut self) -> Vec<u8> {
        let head = self.read(2).await;
        let length = if head[0] & LONG == 0 {
            usize::from(head[1])
        } else {
            let rest = self.read(7).await;
            rest.iter().fold(usize::from(head[1]), |length, byte| length << 8 | usize::from(*byte))
        };
        self.read(length).await
    }

    /// Whether the other side has not closed the connection, as far as is known.
    pub(crate) async fn is_open(&mut self) -> bool {
        tokio::task::yield_now().await;
        let mut bytes = [0; 4096];
        matches!(self.stream.try_read(&mut bytes), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Waits until the other side ends the connection, whatever it still says.
    pub(crate) async fn is_cut(&mut self) {
        let mut bytes = [0; 4096];
        while soon("the end of the connection", self.stream.read(&mut bytes)).await.is_ok_and(|count| count > 0) {}
    }
}

/// The head of a frame of `length` bytes, whether they follow or not.
pub(crate) fn head(length: u64, more: bool) -> Vec<u8> {
    let mut head = vec![LONG | if more { MORE } else { 0 }];
    head.extend_from_slice(&length.to_be_bytes());
    head
}

/// A message as it travels.
pub(crate) fn encoded(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        bytes.extend(head(frame.len() as u64, index + 1 < frames.len()));
        bytes.extend_from_slice(frame);
    }
    bytes
}
