//! Checks of one task's way: handed out, begun, done, its bytes in pieces, its answer.

use anyhow::{Context, Result, bail, ensure};
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, TokenText};

use super::desk::{BEAT_MS, CHUNK_MAX, Desk, INLINE_MAX};
use super::process::SERVICE;
use super::{Check, Level};

pub(super) const CHECKS: &[Check] = &[
    Check::v1(
        Level::Basic,
        "hello",
        "says hello first, with all members, and asks for nothing before its welcome",
        "The worker may beat meanwhile and must not ask for work.",
        |desk| Box::pin(hello(desk)),
    ),
    Check::v1(
        Level::Basic,
        "ready",
        "asks for a task after its welcome, and for another one when it is done",
        "Credit is cumulative, so that it can be said again and cross tasks on their way",
        |desk| Box::pin(ready(desk)),
    ),
    Check::v1(
        Level::Basic,
        "small-task",
        "says begun, then the result, whose size and hash are those of its bytes",
        "`sha256` is in lower-case hexadecimal, of all its bytes.",
        |desk| Box::pin(small_task(desk)),
    ),
    Check::v1(
        Level::Basic,
        "empty-input",
        "works on an input of no bytes",
        "Without a body and with size 0 the input is empty.",
        |desk| Box::pin(empty_input(desk)),
    ),
    Check::v1(
        Level::Basic,
        "pieces",
        "fetches a large input and announces a large result, within the limits of its welcome",
        "A worker asks for two pieces at most before it has received one.",
        |desk| Box::pin(pieces(desk)),
    ),
    Check::v1(
        Level::Basic,
        "wanted",
        "gives the bytes of a small result again where they are wanted",
        "a worker must be able to give the bytes until the ack",
        |desk| Box::pin(wanted(desk)),
    ),
    Check::v1(
        Level::Basic,
        "acks",
        "forgets a task at each of the six words",
        "**any answer lets the worker forget the task**, with its bytes",
        |desk| Box::pin(acks(desk)),
    ),
    Check::v1(
        Level::Basic,
        "retryable",
        "says retryable with a cause, and forgets it at the ack",
        "No result will come from this attempt, and another one is worth while",
        |desk| Box::pin(retryable(desk)),
    ),
    Check::v1(
        Level::Basic,
        "beats",
        "beats while it works, with what it has",
        "Every `beat_ms`, whatever the worker is busy with.",
        |desk| Box::pin(beats(desk)),
    ),
    Check::v1(
        Level::Full,
        "wanted-again",
        "gives a part from the beginning again, and the same piece twice",
        "after a new connection, or if the dispatcher says so by asking, from the beginning again",
        |desk| Box::pin(wanted_again(desk)),
    ),
    Check::v1(
        Level::Full,
        "wanted-beyond",
        "survives a want for what it does not have, and makes no bytes up",
        "A `want` for bytes that the worker does not have",
        |desk| Box::pin(wanted_beyond(desk)),
    ),
    Check::v1(
        Level::Full,
        "task-again",
        "works once on a task that comes twice",
        "A task that the worker has already (the same token) counts as received and is otherwise ignored.",
        |desk| Box::pin(task_again(desk)),
    ),
    Check::v1(
        Level::Full,
        "credit",
        "asks for no more than it can work on, and works on no more than its slots",
        "Ask only for what can be worked on.",
        |desk| Box::pin(credit(desk)),
    ),
    Check::v1(
        Level::Full,
        "limit",
        "ends a task at its limit, says so, and takes the next one",
        "the worker ends the task then and says `retryable` with the cause `timeout:wallclock`",
        |desk| Box::pin(limit(desk)),
    ),
];

/// Bytes without a pattern that a piece in the wrong place would keep.
pub(super) fn large(size: usize) -> Vec<u8> {
    (0_u32..).flat_map(|n| n.wrapping_mul(0x9E37_79B1).to_le_bytes()).take(size).collect()
}

async fn hello(desk: &mut Desk) -> Result<()> {
    desk.start()?;
    let hello = desk.hello().await?;
    ensure!(hello.proto == 1, "proto is {}", hello.proto);
    ensure!((1..=128).contains(&hello.name.len()), "a name has 1 to 128 bytes");
    ensure!((1..=128).contains(&hello.incarnation.len()), "an incarnation has 1 to 128 bytes");
    ensure!(hello.services.iter().any(|s| s == SERVICE), "its services are {:?}", hello.services);
    ensure!(hello.slots >= 1, "it has no slots");
    ensure!(hello.holds.is_empty(), "it begins in an empty folder and holds {:?}", hello.holds);
    // Without a store there is no welcome for a while; whatever but a beat comes now is a fault.
    desk.quiet(3 * BEAT_MS).await?;
    desk.say_welcome(&hello, &[])?;
    desk.asked().await
}

async fn ready(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.whole_task(b"one").await?;
    desk.whole_task(b"two").await?;
    desk.until("ready for a third task", |ledger| ledger.granted() >= 3).await
}

async fn small_task(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.whole_task(b"a small input\n").await?;
    desk.whole_task(&[0, 255, 10, 13, 128]).await
}

async fn empty_input(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.whole_task(b"").await
}

async fn pieces(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    // Neither is a multiple of the longest piece; the second one is just too large to travel in its message.
    for size in [5 * usize::try_from(CHUNK_MAX)? + 7, INLINE_MAX + 1] {
        desk.whole_task(&large(size)).await?;
    }
    Ok(())
}

async fn wanted(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(b"bytes that had no room").await?;
    desk.begun(&token).await?;
    let report = desk.echoed(&token).await?;
    let part = report.parts.iter().find(|part| part.name == "result").context("a part named result")?;
    ensure!(desk.pull(&token, part).await? == desk.ledger.input(&token), "the bytes are others than before");
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn acks(desk: &mut Desk) -> Result<()> {
    use AckWord::{Cancelled, Refused, Stale, Stored, Superseded, Unknown};
    desk.begin().await?;
    for word in [Stored, Superseded, Stale, Cancelled, Unknown, Refused] {
        let token = desk.hand(format!("{word:?}").as_bytes()).await?;
        desk.begun(&token).await?;
        desk.echoed(&token).await?;
        desk.ack(&token, word)?;
        desk.forgotten(&token).await.with_context(|| format!("after {word:?}"))?;
    }
    Ok(())
}

async fn retryable(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(b"retry: not this time\n").await?;
    desk.begun(&token).await?;
    let is_it = |said: &FromWorker| matches!(said, FromWorker::Retryable { token: told, .. } if *told == token);
    let (message, bodies) = desk.expect("retryable", is_it).await?;
    let FromWorker::Retryable { cause, parts, .. } = message else { bail!("a cause is a cause") };
    ensure!(!cause.category.is_empty(), "the cause has no category");
    ensure!(parts.len() == bodies.len(), "{} parts and {} bodies: one for each", parts.len(), bodies.len());
    desk.until_listed(&token, HoldState::Finished).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    desk.whole_task(b"and now").await
}

async fn beats(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.until_listed(&token, HoldState::Running).await?;
    desk.beats(5).await?;
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.until_listed(&token, HoldState::Finished).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn wanted_again(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(&large(3 * usize::try_from(CHUNK_MAX)?)).await?;
    desk.begun(&token).await?;
    let report = desk.echoed(&token).await?;
    let part = report.parts.iter().find(|part| part.name == "result").context("a part named result")?;
    for _ in 0..2 {
        desk.want(&token, "result", CHUNK_MAX, CHUNK_MAX)?;
    }
    let (first, second) = (desk.part(CHUNK_MAX).await?, desk.part(CHUNK_MAX).await?);
    ensure!(first == second, "a piece that is wanted twice is the same twice");
    ensure!(desk.pull(&token, part).await? == desk.ledger.input(&token), "the bytes are others than before");
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn wanted_beyond(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = desk.hand(b"twelve bytes").await?;
    desk.begun(&token).await?;
    let report = desk.echoed(&token).await?;
    for (name, offset) in [("result", 12), ("result", 1_000_000), ("weather", 0)] {
        desk.want(&token, name, offset, 10)?;
    }
    desk.want(&TokenText("nobody-had-this".to_owned()), "result", 0, 10)?;
    let part = report.parts.iter().find(|part| part.name == "result").context("a part named result")?;
    ensure!(desk.pull(&token, part).await? == b"twelve bytes", "the bytes are others than before");
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn task_again(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.ledger.sent_again();
    desk.hand_again(&token, 600_000)?;
    desk.beats(3).await?;
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    // It counted: whoever did not count it asks for one less now.
    desk.whole_task(b"the next").await
}

async fn credit(desk: &mut Desk) -> Result<()> {
    const RESERVE: usize = 32;
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let mut given = vec![desk.hand(&input).await?];
    desk.begun(&given[0]).await?;
    desk.beats(3).await?;
    while desk.ledger.credit() > 0 {
        ensure!(given.len() < RESERVE, "one slot is busy, {} tasks wait, and it asks for more", given.len() - 1);
        given.push(desk.hand(&input).await?);
        desk.beats(2).await?;
    }
    std::fs::write(gate, "")?;
    for (at, token) in given.iter().enumerate() {
        if at > 0 {
            desk.begun(token).await?;
        }
        desk.echoed(token).await?;
        desk.ack(token, AckWord::Stored)?;
    }
    desk.asked().await
}

async fn limit(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (_never, input) = desk.gated("never");
    let token = desk.hand_within(&input, 300).await?;
    desk.begun(&token).await?;
    let is_it = |said: &FromWorker| matches!(said, FromWorker::Retryable { token: told, .. } if *told == token);
    let (message, _) = desk.expect("retryable, at the limit", is_it).await?;
    let FromWorker::Retryable { cause, .. } = message else { bail!("a cause is a cause") };
    let told = format!("{}:{}", cause.category, cause.what);
    ensure!(told == "timeout:wallclock", "the cause is {told}");
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    desk.whole_task(b"the next").await
}
