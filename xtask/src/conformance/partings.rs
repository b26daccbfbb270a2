//! Checks of tasks that end otherwise: given back, cancelled, forgotten; and of a program's leave.

use anyhow::{Result, bail, ensure};
use dispatcher_core::wire::{AckWord, FromWorker, HoldState, ToWorker, TokenText};
use rustix::process::Signal;

use super::desk::{CHUNK_MAX, Desk};
use super::errands::large;
use super::{Check, Level};

pub(super) const CHECKS: &[Check] = &[
    Check::v1(
        Level::Basic,
        "drain-gives-back",
        "gives back what has not begun",
        "Give back with `release` what has not begun, finish what has.",
        |desk| Box::pin(drain_gives_back(desk)),
    ),
    Check::v1(
        Level::Basic,
        "drain-finishes",
        "finishes what has begun, waits for its ack, and asks for nothing more",
        "A worker stays connected for its acks",
        |desk| Box::pin(drain_finishes(desk)),
    ),
    Check::v1(Level::Basic, "leave", "says bye when it is stopped, and ends", "To leave, it says **`bye`**", |desk| {
        Box::pin(leave(desk))
    }),
    Check::v1(
        Level::Full,
        "leave-gives-back",
        "gives back what has not begun when it is stopped, waits for the ack, and says bye",
        "It does as after `drain`, waits for the acks as long as its user lets it, and says `bye`.",
        |desk| Box::pin(leave_gives_back(desk)),
    ),
    Check::v1(
        Level::Full,
        "cancel-before",
        "never begins a task that was cancelled",
        "Stop working on the task and forget it. It is not answered.",
        |desk| Box::pin(cancel_before(desk)),
    ),
    Check::v1(
        Level::Full,
        "cancel-amid",
        "stops work that is cancelled, says nothing of it, and takes the next task",
        "Forget on `ack`, `cancel`, `unknown`, `drop`.",
        |desk| Box::pin(cancel_amid(desk)),
    ),
    Check::v1(
        Level::Full,
        "unknown",
        "stops and forgets what is not its any more, results included",
        "it stops working on them and forgets them, results included",
        |desk| Box::pin(unknown(desk)),
    ),
    Check::v1(
        Level::Full,
        "chunk-never-comes",
        "waits for a piece, gives its task back at a drain, or asks again on a new connection",
        "A chunk has no time limit of its own",
        |desk| Box::pin(chunk_never_comes(desk)),
    ),
];

/// Hands out a task whose input does not come, so that it cannot begin.
async fn stuck(desk: &mut Desk) -> Result<TokenText> {
    let token = desk.hand(&large(2 * usize::try_from(CHUNK_MAX)?)).await?;
    desk.expect("a fetch", |said| matches!(said, FromWorker::Fetch { .. })).await?;
    Ok(token)
}

async fn drain_gives_back(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = stuck(desk).await?;
    desk.say(&ToWorker::Drain)?;
    released_after_fetches(desk, &token).await?;
    // Until the ack it is listed.
    desk.beats(3).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

/// Hears the release; a second fetch may have been on its way before it.
async fn released_after_fetches(desk: &mut Desk, token: &TokenText) -> Result<()> {
    loop {
        match desk.hear("release").await?.0 {
            FromWorker::Fetch { .. } => {}
            FromWorker::Release { token: told } if told == *token => return Ok(()),
            other => bail!("expected release, and it said {other:?}"),
        }
    }
}

async fn drain_finishes(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (gate, input) = desk.gated("gate");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.say(&ToWorker::Drain)?;
    desk.beats(2).await?;
    let granted = desk.ledger.granted();
    std::fs::write(gate, "")?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await?;
    desk.beats(3).await?;
    ensure!(desk.ledger.granted() == granted, "it asks for more during a drain");
    Ok(())
}

async fn said_bye(desk: &mut Desk) -> Result<()> {
    desk.expect("bye", |said| matches!(said, FromWorker::Bye)).await?;
    desk.disconnect();
    desk.end().await.map(|_| ())
}

async fn leave(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.whole_task(b"before it leaves").await?;
    desk.signal(Signal::TERM)?;
    said_bye(desk).await
}

async fn leave_gives_back(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = stuck(desk).await?;
    desk.signal(Signal::TERM)?;
    released_after_fetches(desk, &token).await?;
    desk.beats(2).await?;
    desk.ack(&token, AckWord::Stored)?;
    said_bye(desk).await
}

async fn cancel_before(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = stuck(desk).await?;
    desk.cancel(&token)?;
    // A chunk that crosses the cancel is nobody's.
    while desk.ledger.has_fetches() {
        desk.serve_next()?;
    }
    forgotten_after_fetches(desk, &token).await?;
    desk.whole_task(b"the next").await?;
    desk.beats(2).await
}

/// Waits until the task is listed no more; a fetch may have been on its way.
async fn forgotten_after_fetches(desk: &mut Desk, token: &TokenText) -> Result<()> {
    let target = desk.ledger.lists + 2;
    while desk.ledger.lists < target || desk.ledger.holds.contains_key(token) {
        match desk.hear_or_list("a beat that lists the task no more").await? {
            None | Some(FromWorker::Fetch { .. }) => {}
            Some(other) => bail!("the task was cancelled, and it said {other:?}"),
        }
    }
    Ok(())
}

async fn cancel_amid(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (_never, input) = desk.gated("never");
    let token = desk.hand(&input).await?;
    desk.begun(&token).await?;
    desk.cancel(&token)?;
    desk.forgotten(&token).await?;
    desk.whole_task(b"the next").await?;
    desk.beats(2).await
}

async fn unknown(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let (_never, input) = desk.gated("never");
    let running = desk.hand(&input).await?;
    desk.begun(&running).await?;
    forget_by_beat(desk, &running).await?;
    let finished = desk.hand(b"done").await?;
    desk.begun(&finished).await?;
    desk.echoed(&finished).await?;
    desk.until_listed(&finished, HoldState::Finished).await?;
    forget_by_beat(desk, &finished).await?;
    // What was forgotten does not come again.
    desk.disconnect();
    let hello = desk.greet().await?;
    ensure!(hello.holds.is_empty(), "it lists {:?}", hello.holds);
    desk.whole_task(b"the next").await
}

async fn forget_by_beat(desk: &mut Desk, token: &TokenText) -> Result<()> {
    desk.ledger.settled(token);
    // The number of a beat that was answered already.
    desk.say(&ToWorker::Beat { n: 0, unknown: vec![token.clone()] })?;
    desk.forgotten(token).await
}

async fn chunk_never_comes(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    let token = stuck(desk).await?;
    let target = desk.ledger.lists + 5;
    while desk.ledger.lists < target {
        if let Some(said) = desk.hear_or_list("beats").await? {
            ensure!(!matches!(said, FromWorker::Begun { .. }), "it begins without its input");
        }
    }
    desk.disconnect();
    desk.greet().await?;
    match desk.hear("a fetch, release or retryable").await?.0 {
        FromWorker::Release { .. } => {}
        FromWorker::Fetch { .. } => {
            desk.serve_next()?;
            desk.begun(&token).await?;
            desk.echoed(&token).await?;
        }
        other => bail!("expected a fetch or release, and it said {other:?}"),
    }
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}
