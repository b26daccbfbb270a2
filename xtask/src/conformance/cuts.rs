//! Checks of what outlives a connection, a dispatcher and the program's own process.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dispatcher_core::wire::{AckWord, HoldState, ToWorker, TokenText};

use super::desk::{CHUNK_MAX, Desk};
use super::errands::large;
use super::{Check, Level};

pub(super) const CHECKS: &[Check] = &[
    Check::v1(
        Level::Full,
        "cut-amid-work",
        "goes on working while the dispatcher is away, comes back, and lists the task",
        "Nothing else ends with a connection: the worker keeps its tasks and results, and lists them in its next `hello`.",
        |desk| Box::pin(cut_amid_work(desk)),
    ),
    Check::v1(
        Level::Full,
        "until-acked",
        "sends a result again after every welcome, until it is answered",
        "must send it again after every `welcome` until there is an ack",
        |desk| Box::pin(until_acked(desk)),
    ),
    Check::v1(
        Level::Full,
        "cut-amid-pieces",
        "gives a result from its beginning again after a cut amid its pieces",
        "The first message of a connection, and said once.",
        |desk| Box::pin(cut_amid_pieces(desk)),
    ),
    Check::v1(
        Level::Full,
        "keep",
        "goes on with what welcome keeps",
        "| `keep` | list of token | of `holds`: go on with these |",
        |desk| Box::pin(keep(desk)),
    ),
    Check::v1(
        Level::Full,
        "drop",
        "stops and forgets what welcome drops, results included",
        "| `drop` | list of token | of `holds`: stop and forget these |",
        |desk| Box::pin(drop_all(desk)),
    ),
    Check::v1(
        Level::Full,
        "silence",
        "drops a connection on which three beats stay unanswered",
        "A worker that has three beats unanswered drops the connection and builds a new one.",
        |desk| Box::pin(silence(desk)),
    ),
    Check::v1(
        Level::Full,
        "next-dispatcher",
        "takes what a drained dispatcher did not acknowledge to the next one",
        "builds the connection again when the dispatcher ends it: the next dispatcher takes its results",
        |desk| Box::pin(next_dispatcher(desk)),
    ),
    Check::v1(
        Level::Full,
        "killed",
        "sends what a killed process had finished in its next life",
        "A result is synced to the outbox before it is announced, survives a restart of the worker, and is sent again until its ack.",
        |desk| Box::pin(killed(desk)),
    ),
    Check::v1(
        Level::Full,
        "waits",
        "tries again by itself where nobody answers, and waits between tries",
        "doubles with each failure, has an upper bound of a few seconds, and is varied at random",
        |desk| Box::pin(waits(desk)),
    ),
    Check::v1(
        Level::Full,
        "several",
        "turns to the next dispatcher where one is not there",
        "a worker may know several addresses",
        |desk| Box::pin(several(desk)),
    ),
];

async fn cut_amid_work(desk: &mut Desk) -> Result<()> {
    let first = desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.cut().await;
    desk.listen().await?;
    let second = desk.greet().await?;
    ensure!(second.incarnation == first.incarnation, "the incarnation is that of the process, and it is another");
    ensure!(second.holds == [(token.clone(), HoldState::Running)], "it lists {:?}", second.holds);
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    desk.whole_task(b"the next").await
}

async fn until_acked(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(b"said three times").await?;
    desk.begun(&token).await?;
    let first = desk.echoed(&token).await?;
    for _ in 0..2 {
        desk.cut().await;
        desk.listen().await?;
        let hello = desk.greet().await?;
        ensure!(hello.holds == [(token.clone(), HoldState::Finished)], "it lists {:?}", hello.holds);
        let again = desk.echoed(&token).await?;
        ensure!((again.status, &again.parts) == (first.status, &first.parts), "it is another result than before");
    }
    desk.ack(&token, AckWord::Superseded)?;
    desk.forgotten(&token).await?;
    desk.disconnect();
    let hello = desk.greet().await?;
    ensure!(hello.holds.is_empty(), "it lists {:?}", hello.holds);
    Ok(())
}

async fn cut_amid_pieces(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(&large(3 * usize::try_from(CHUNK_MAX)?)).await?;
    desk.begun(&token).await?;
    desk.announced(&token).await?;
    desk.want(&token, "result", 0, CHUNK_MAX)?;
    desk.part(0).await?;
    desk.want(&token, "result", CHUNK_MAX, CHUNK_MAX)?;
    desk.disconnect();
    desk.greet().await?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn keep(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    for _ in 0..3 {
        desk.disconnect();
        let hello = desk.greet().await?;
        ensure!(hello.holds == [(token.clone(), HoldState::Running)], "it lists {:?}", hello.holds);
        desk.until_listed(&token, HoldState::Running).await?;
    }
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn drop_all(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (_never, input) = desk.gated("never");
    let running = desk.hand(&input).await?;
    desk.begun(&running).await?;
    drop_at_hello(desk, &running).await?;
    let finished = desk.hand(b"done, and dropped").await?;
    desk.begun(&finished).await?;
    desk.echoed(&finished).await?;
    drop_at_hello(desk, &finished).await?;
    desk.whole_task(b"the next").await
}

async fn drop_at_hello(desk: &mut Desk, token: &TokenText) -> Result<()> {
    desk.disconnect();
    let hello = desk.hello().await?;
    desk.say_welcome(&hello, std::slice::from_ref(token))?;
    desk.forgotten(token).await
}

async fn silence(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.answers_beats = false;
    let hello = desk.hello().await?;
    desk.answers_beats = true;
    desk.say_welcome(&hello, &[])?;
    ensure!(hello.holds == [(token.clone(), HoldState::Running)], "it lists {:?}", hello.holds);
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn next_dispatcher(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(b"not acknowledged").await?;
    desk.begun(&token).await?;
    desk.echoed(&token).await?;
    desk.say(&ToWorker::Drain)?;
    desk.beats(1).await?;
    desk.cut().await;
    desk.listen().await?;
    desk.greet().await?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    desk.whole_task(b"the next").await
}

async fn killed(desk: &mut Desk) -> Result<()> {
    let first = desk.begin().await?;
    for input in [b"small".to_vec(), large(2 * usize::try_from(CHUNK_MAX)? + 1)] {
        let token = desk.hand(&input).await?;
        desk.begun(&token).await?;
        desk.echoed(&token).await?;
        desk.kill().await?;
        let hello = desk.begin().await?;
        ensure!(hello.incarnation != first.incarnation, "the incarnation is random for each start, and it is the same");
        ensure!(hello.holds == [(token.clone(), HoldState::Finished)], "it lists {:?}", hello.holds);
        desk.echoed(&token).await?;
        desk.ack(&token, AckWord::Stored)?;
        desk.forgotten(&token).await?;
    }
    desk.kill().await?;
    let hello = desk.begin().await?;
    ensure!(hello.holds.is_empty(), "everything was acknowledged, and it lists {:?}", hello.holds);
    Ok(())
}

/// Takes connections and ends them at once, and counts them.
async fn waits(desk: &mut Desk) -> Result<()> {
    const WATCHED: Duration = Duration::from_secs(2);
    const MOST: usize = 60;
    desk.begin().await?;
    let address = desk.address();
    let address = address.trim_start_matches("tcp://").to_owned();
    desk.cut().await;
    let closed = TcpListener::bind(&address)?;
    closed.set_nonblocking(true)?;
    let (began, mut tries) = (Instant::now(), 0);
    while began.elapsed() < WATCHED {
        if closed.accept().is_ok() {
            tries += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ensure!((2..=MOST).contains(&tries), "it tried {tries} times in {} s: a few times is right", WATCHED.as_secs());
    drop(closed);
    desk.listen().await?;
    desk.greet().await?;
    desk.whole_task(b"back again").await
}

async fn several(desk: &mut Desk) -> Result<()> {
    // A port that nobody listens on while this one is held.
    let nobody = TcpListener::bind("127.0.0.1:0")?;
    let dead = nobody.local_addr()?;
    drop(nobody);
    desk.start_at(&format!("tcp://{dead},{}", desk.address()))?;
    desk.greet().await?;
    desk.whole_task(b"at the second address").await
}
