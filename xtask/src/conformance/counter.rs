//! The dispatcher's side of the legacy wire: a ROUTER for requests and a PULL for results, played by a check.
//!
//! **Owns** the sockets, the program under test and what was said. **Refuses to know** what a check is about. Plain
//! sockets, on loopback: the guards of the product's own are no part of the wire.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use omq_tokio::{Message, Options, Socket, SocketType};
use tempfile::TempDir;
use tokio::time::timeout;

use super::process::{Places, Program, Rig, SERVICE};

/// How many messages a failed check tells.
const STORY: usize = 16;

/// A request, and whom to answer.
pub(super) struct Request {
    pub(super) identity: Bytes,
}

/// A result as it came.
pub(super) struct Delivered {
    pub(super) identity: Bytes,
    pub(super) task: String,
    pub(super) file: Vec<u8>,
}

/// The dispatcher's side.
pub(super) struct Counter {
    rig: Rig,
    program: Option<Program>,
    folder: TempDir,
    sockets: Option<(Socket, Socket)>,
    places: Places,
    story: Vec<String>,
}

async fn bind(requests: &str, results: &str) -> Result<((Socket, Socket), Places)> {
    let router = Socket::try_new(SocketType::Router, Options::new())?;
    let pull = Socket::try_new(SocketType::Pull, Options::new())?;
    let connect = router.bind(requests).await?.to_string();
    let results = pull.bind(results).await?.to_string();
    Ok(((router, pull), Places { connect, results }))
}

fn frames_of(message: &Message) -> Vec<Bytes> {
    (0..message.len()).map(|at| message.part_bytes(at).unwrap_or_default()).collect()
}

impl Counter {
    /// Listens on two ports of its own; the program is not started.
    pub(super) async fn open(rig: &Rig) -> Result<Self> {
        let (sockets, places) = bind("tcp://127.0.0.1:0", "tcp://127.0.0.1:0").await?;
        let folder = tempfile::Builder::new().prefix("conform").tempdir()?;
        Ok(Self { rig: rig.clone(), program: None, folder, sockets: Some(sockets), places, story: Vec::new() })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        self.program = Some(self.rig.start(self.folder.path(), &self.places)?);
        Ok(())
    }

    /// Goes away, and is back at the same places.
    pub(super) async fn cut(&mut self) -> Result<()> {
        self.story.push("(the dispatcher goes away, and is back)".to_owned());
        if let Some((router, pull)) = self.sockets.take() {
            router.close().await?;
            pull.close().await?;
        }
        let patience = self.rig.patience;
        let places = self.places.clone();
        // The port is free once the system has let go of it.
        let again = async {
            loop {
                if let Ok((sockets, _)) = bind(&places.connect, &places.results).await {
                    return sockets;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        self.sockets = Some(timeout(patience, again).await.context("the ports are not free again")?);
        Ok(())
    }

    /// The next request, which is one frame with the service's name.
    pub(super) async fn request(&mut self) -> Result<Request> {
        let patience = self.rig.patience;
        let (router, _) = self.sockets.as_mut().context("somebody listens")?;
        let message = timeout(patience, router.recv()).await.map_err(|_| missing("a request", patience))??;
        let frames = frames_of(&message);
        let [identity, frames @ ..] = frames.as_slice() else { return Err(anyhow!("a message has an identity")) };
        self.story.push(format!("W {frames:?} from {identity:?}"));
        ensure!(frames.len() == 1, "a request is a single frame, and {} came", frames.len());
        ensure!(frames[0] == SERVICE.as_bytes(), "the frame is not the service's name");
        Ok(Request { identity: identity.clone() })
    }

    /// Answers a request.
    pub(super) async fn reply(&mut self, request: &Request, task: &str, frames: &[Bytes]) -> Result<()> {
        let patience = self.rig.patience;
        let lengths: Vec<_> = frames.iter().map(Bytes::len).collect();
        self.story.push(format!("D {task}, frames of {lengths:?} bytes"));
        let (router, _) = self.sockets.as_mut().context("somebody listens")?;
        let head = [request.identity.clone(), Bytes::copy_from_slice(task.as_bytes())];
        let frames: Vec<Bytes> = head.into_iter().chain(frames.iter().cloned()).collect();
        timeout(patience, router.send(Message::multipart(frames)))
            .await
            .map_err(|_| missing("room for a reply", patience))??;
        Ok(())
    }

    /// The next result.
    pub(super) async fn result(&mut self) -> Result<Delivered> {
        let patience = self.rig.patience;
        let (_, pull) = self.sockets.as_mut().context("somebody listens")?;
        let message = timeout(patience, pull.recv()).await.map_err(|_| missing("a result", patience))??;
        let frames = frames_of(&message);
        let lengths: Vec<_> = frames.iter().map(Bytes::len).collect();
        self.story.push(format!("W a result, frames of {lengths:?} bytes"));
        let [identity, service, task, file @ ..] = frames.as_slice() else {
            return Err(anyhow!("a result has at least four frames, and {} came", frames.len()));
        };
        ensure!(!file.is_empty(), "a result has at least four frames, and three came");
        ensure!(service == SERVICE.as_bytes(), "the second frame is not the service's name");
        let task = String::from_utf8_lossy(task).into_owned();
        Ok(Delivered { identity: identity.clone(), task, file: file.concat() })
    }

    /// The fault with the last of what was said, and of what the program printed.
    pub(super) fn with_story(&self, error: anyhow::Error) -> anyhow::Error {
        let said = std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        let printed: Vec<_> = said.lines().rev().take(STORY).collect();
        let last = self.story.iter().skip(self.story.len().saturating_sub(STORY));
        let mut lines = vec![format!("{error:#}")];
        lines.extend(last.map(|line| format!("  {line}")));
        lines.extend(printed.iter().rev().map(|line| format!("  program: {line}")));
        anyhow!(lines.join("\n"))
    }
}

fn missing(what: &str, patience: Duration) -> anyhow::Error {
    anyhow!("{what} did not come within {} s", patience.as_secs())
}
