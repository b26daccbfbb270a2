//! A dispatcher that a test plays: it hands out tasks and answers what the test says, and beats by itself.

use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, ToWorker, TokenText};
use dispatcher_transport::codec::decode_from_worker;
use dispatcher_transport::link::send_to_worker;
use dispatcher_transport::socket::{Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket, Sent};
use std::collections::VecDeque;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tokio::runtime::Runtime;

/// A dispatcher for any number of workers.
pub struct Desk {
    runtime: Runtime,
    router: RouterSocket,
    /// What was said and not yet listened to.
    said: VecDeque<(PeerId, FromWorker)>,
}

/// A worker that said hello.
#[derive(Debug)]
pub struct Guest {
    pub peer: PeerId,
    pub name: String,
    pub incarnation: String,
    pub services: Vec<String>,
    pub holds: Vec<(String, HoldState)>,
}

fn token(name: &str) -> TokenText {
    TokenText(name.to_owned())
}

/// Where the desk of a place is.
pub fn endpoint(dir: &Path) -> Endpoint {
    Endpoint::ipc(dir.join("desk/s")).unwrap()
}

impl Desk {
    pub fn open(dir: &Path) -> Self {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join("desk")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let router = runtime.block_on(RouterSocket::bind(&endpoint(dir), RouterOptions::default())).unwrap();
        Self { runtime, router, said: VecDeque::new() }
    }

    /// Takes events until something was said that is not a matter of course.
    fn listen(&mut self) {
        while self.said.is_empty() {
            let next = async { tokio::time::timeout(crate::kit::TOO_LONG, self.router.next()).await };
            let RouterEvent::Message { peer, frames } = self.runtime.block_on(next).unwrap().unwrap() else { continue };
            match decode_from_worker(&frames).unwrap().0 {
                FromWorker::Ready { .. } => {}
                FromWorker::Beat { n, .. } => self.say(peer, &ToWorker::Beat { n, unknown: Vec::new() }),
                said => self.said.push_back((peer, said)),
            }
        }
    }

    /// What is said next.
    pub fn hear(&mut self) -> (PeerId, FromWorker) {
        self.listen();
        self.said.pop_front().unwrap()
    }

    fn say(&mut self, peer: PeerId, message: &ToWorker) {
        // A turn of the loop is what sends it.
        let sent = send_to_worker(&mut self.router, peer, message, &[]);
        assert_eq!(sent, Sent::Sent, "{message:?}");
        self.runtime.block_on(async {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Greets the next worker that comes.
    pub fn greet(&mut self) -> Guest {
        let (peer, FromWorker::Hello { name, incarnation, services, holds, .. }) = self.hear() else {
            panic!("a hello")
        };
        let keep = holds.iter().map(|hold| hold.token.clone()).collect();
        let welcome = ToWorker::Welcome {
            beat_ms: 2_000,
            dead_after_ms: 30_000,
            inline_max: 64 * 1024,
            chunk_max: 128 * 1024,
            keep,
            drop: Vec::new(),
        };
        self.say(peer, &welcome);
        let holds = holds.into_iter().map(|hold| (hold.token.0, hold.state)).collect();
        Guest { peer, name, incarnation, services, holds }
    }

    /// Hands out an empty input, and hears that its task begins.
    pub fn hand(&mut self, to: &Guest, name: &str) {
        let task = ToWorker::Task {
            token: token(name),
            task: TaskId(7),
            service: "s".to_owned(),
            corpus: "c".to_owned(),
            entry: EntryName(name.as_bytes().to_vec()),
            size: 0,
            limit_ms: 3_600_000,
            attempt: 1,
        };
        self.say(to.peer, &task);
        assert_eq!(self.hear(), (to.peer, FromWorker::Begun { token: token(name) }));
    }

    /// Hears the result of a task.
    pub fn result(&mut self, name: &str) -> FromWorker {
        let (_, result) = self.hear();
        assert!(matches!(&result, FromWorker::Result { token: told, .. } if *told == token(name)), "{result:?}");
        result
    }

    pub fn released(&mut self, name: &str) {
        assert_eq!(self.hear().1, FromWorker::Release { token: token(name) });
    }

    pub fn stored(&mut self, to: &Guest, name: &str) {
        self.say(to.peer, &ToWorker::Ack { token: token(name), answer: AckWord::Stored, why: None });
    }

    pub fn says_bye(&mut self) {
        assert_eq!(self.hear().1, FromWorker::Bye);
    }

    /// Goes away without a word.
    pub fn close(self) {
        self.runtime.block_on(self.router.close(std::time::Duration::ZERO));
    }
}
