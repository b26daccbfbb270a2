//! A peer of the legacy wire made by hand, byte by byte: it can be as good as a real one, or break every rule.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// How long one read or write may take before the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The flag of a frame that another one of its message follows.
const MORE: u8 = 1;
/// The flag of a frame whose length has eight bytes.
const LONG: u8 = 2;
/// The flag of a command.
const COMMAND: u8 = 4;

/// The ports of a server.
#[derive(Clone, Copy)]
pub struct Ports {
    pub requests: u16,
    pub results: u16,
    pub http: u16,
}

impl Ports {
    /// Some that are free now.
    pub fn free() -> Self {
        let bound = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [requests, results, http] = bound.map(|listener| listener.local_addr().unwrap().port());
        Self { requests, results, http }
    }

    /// As arguments of `serve`.
    pub fn arguments(self) -> [String; 3] {
        let Self { requests, results, http } = self;
        [
            format!("--listen=tcp://127.0.0.1:{requests}"),
            format!("--legacy-results=tcp://127.0.0.1:{results}"),
            format!("--http=127.0.0.1:{http}"),
        ]
    }

    /// The server's metrics.
    pub fn metrics(self) -> String {
        self.page("/metrics")
    }

    /// A page of the server, with its head.
    pub fn page(self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }
}

/// One connection.
pub struct Peer(TcpStream);

impl Peer {
    /// Connects and says nothing.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// A DEALER with this identity, at the port for requests.
    pub fn dealer(ports: Ports, name: &str) -> Self {
        Self::shaken(ports.requests, b"DEALER", name.as_bytes())
    }

    /// A PUSH at the port for results.
    pub fn push(ports: Ports) -> Self {
        Self::shaken(ports.results, b"PUSH", b"")
    }

    fn shaken(port: u16, kind: &[u8], name: &[u8]) -> Self {
        let mut peer = Self::connect(port);
        let mut greeting = [0_u8; 64];
        greeting[0] = 0xff;
        greeting[9] = 0x7f;
        greeting[10] = 3;
        greeting[12..16].copy_from_slice(b"NULL");
        peer.write(&greeting);
        let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
        let mut property = |value: &[u8]| {
            ready.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
            ready.extend_from_slice(value);
        };
        property(kind);
        if !name.is_empty() {
            ready.extend_from_slice(b"\x08Identity");
            ready.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
            ready.extend_from_slice(name);
        }
        peer.write(&[COMMAND, u8::try_from(ready.len()).unwrap()]);
        peer.write(&ready);
        peer.read(64);
        let head = peer.read(2);
        assert_eq!(head[0], COMMAND, "the other side is ready, too");
        peer.read(usize::from(head[1]));
        peer
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Writes; whether the other side still takes it.
    pub fn write_or_be_cut(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Writes without waiting for room; whether there was some.
    pub fn write_if_there_is_room(&mut self, bytes: &[u8]) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let written = self.0.write_all(bytes);
        self.0.set_nonblocking(false).unwrap();
        !matches!(written, Err(e) if e.kind() == ErrorKind::WouldBlock)
    }

    fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends a message.
    pub fn send(&mut self, frames: &[&[u8]]) {
        self.write(&message(frames));
    }

    /// The next message.
    pub fn hear(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let flags = self.read(1)[0];
            let length = if flags & LONG == 0 {
                usize::from(self.read(1)[0])
            } else {
                usize::try_from(u64::from_be_bytes(self.read(8).try_into().unwrap())).unwrap()
            };
            let body = self.read(length);
            if flags & COMMAND != 0 {
                continue;
            }
            frames.push(body);
            if flags & MORE == 0 {
                return frames;
            }
        }
    }

    /// Waits until the other side ends the connection, whatever it still says.
    pub fn is_cut(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => panic!("it is not cut"),
                Err(_) => return,
            }
        }
    }
}

/// The head of a frame of `length` bytes, whether they follow or not.
pub fn head(length: u64, more: bool) -> Vec<u8> {
    let mut head = vec![LONG | if more { MORE } else { 0 }];
    head.extend_from_slice(&length.to_be_bytes());
    head
}

/// A message as it travels.
pub fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        bytes.extend(head(frame.len() as u64, at + 1 < frames.len()));
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// A worker that does as it should.
pub struct Cortex {
    name: String,
    requests: Peer,
    results: Peer,
}

impl Cortex {
    pub fn join(ports: Ports, name: &str) -> Self {
        Self { name: name.to_owned(), requests: Peer::dealer(ports, name), results: Peer::push(ports) }
    }

    /// Asks for one task; none where there is nothing now.
    pub fn ask(&mut self) -> Option<(String, Vec<u8>)> {
        self.send_request();
        self.hear_task()
    }

    /// Asks, and does not wait for the answer.
    pub fn send_request(&mut self) {
        self.requests.send(&[b"echo"]);
    }

    /// The answer to a request.
    pub fn hear_task(&mut self) -> Option<(String, Vec<u8>)> {
        let frames = self.requests.hear();
        let id = String::from_utf8(frames[0].clone()).unwrap();
        (id != "0").then(|| (id, frames[1..].concat()))
    }

    /// Asks until there is one.
    pub fn task(&mut self) -> (String, Vec<u8>) {
        loop {
            if let Some(task) = self.ask() {
                return task;
            }
        }
    }

    pub fn bring(&mut self, id: &str, file: &[u8]) {
        self.results.send(&[self.name.as_bytes(), b"echo", id.as_bytes(), file]);
    }

    /// One task from beginning to end.
    pub fn work(&mut self, file: &[u8]) {
        let (id, _) = self.task();
        self.bring(&id, file);
    }
}

/// A result's archive: a log, and a body of so many bytes.
pub fn archive(log: &str, body: usize) -> Vec<u8> {
    use zip::write::SimpleFileOptions;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("body", stored).unwrap();
    writer.write_all(&vec![7; body]).unwrap();
    writer.start_file("cortex.log", stored).unwrap();
    writer.write_all(log.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}
