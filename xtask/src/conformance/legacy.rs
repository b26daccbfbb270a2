//! Checks of the legacy wire (rules W1, W2 and W4).

use std::io::{Cursor, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::Check;
use super::counter::{Counter, Delivered};

pub(super) const CHECKS: &[Check] = &[
    Check::legacy(
        "request",
        "asks with one frame, the service's name, under an identity of its own",
        "A request is a single frame: the service's name.",
        |counter| Box::pin(request(counter)),
    ),
    Check::legacy(
        "result",
        "delivers an archive with a log, with its identity, the service and the task's number",
        "A zip archive with a member `cortex.log`.",
        |counter| Box::pin(result(counter)),
    ),
    Check::legacy(
        "frames",
        "puts an input together that comes in several frames",
        "one or more frames, whose bytes one after the other are the input",
        |counter| Box::pin(frames(counter)),
    ),
    Check::legacy(
        "log",
        "writes its messages down as the log's lines",
        "Each of its lines of the form `Severity:category:what details` is a message",
        |counter| Box::pin(log(counter)),
    ),
    Check::legacy(
        "nothing-now",
        "asks again when there is nothing, and not without a pause",
        "| `0` · one empty frame | nothing now: no work, too much in flight, or no such service. Ask again later |",
        |counter| Box::pin(nothing_now(counter)),
    ),
    Check::legacy(
        "failure",
        "says so where an input is no archive, and goes on",
        "A worker that fails says so with an archive whose log has a `Fatal` line",
        |counter| Box::pin(failure(counter)),
    ),
    Check::legacy(
        "restart",
        "asks a dispatcher again that was away, and delivers to it",
        "A worker that hears nothing for a while asks again.",
        |counter| Box::pin(restart(counter)),
    ),
];

fn archive(members: &[(&str, &[u8])]) -> Result<Bytes> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default())?;
        writer.write_all(bytes)?;
    }
    Ok(Bytes::from(writer.finish()?.into_inner()))
}

fn member(delivered: &Delivered, name: &str) -> Result<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(&delivered.file)).context("the result is no zip archive")?;
    let member = archive.by_name(name).with_context(|| format!("the archive has no member {name}"))?;
    let mut bytes = Vec::new();
    member.take(1024 * 1024).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One task from its request to its result.
async fn task(counter: &mut Counter, number: &str, frames: &[Bytes]) -> Result<Delivered> {
    let request = counter.request().await?;
    counter.reply(&request, number, frames).await?;
    let delivered = counter.result().await?;
    ensure!(delivered.task == number, "the result is that of task {}, not of {number}", delivered.task);
    ensure!(delivered.identity == request.identity, "the first frame is not the identity under which it asked");
    Ok(delivered)
}

async fn request(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    let request = counter.request().await?;
    // ZeroMQ makes up identities that begin with a zero byte.
    let is_own = request.identity.first().is_some_and(|first| *first != 0) && request.identity.len() <= 255;
    ensure!(is_own, "it has set no identity");
    ensure!(std::str::from_utf8(&request.identity).is_ok(), "its identity is its name, and no UTF-8");
    Ok(())
}

async fn result(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    for number in ["1", "9223372036854775807"] {
        let delivered = task(counter, number, &[archive(&[("input.txt", b"hello")])?]).await?;
        ensure!(member(&delivered, "input.txt")? == b"hello", "the result is not made of the input");
        ensure!(!member(&delivered, "cortex.log")?.is_empty(), "the log is empty");
    }
    Ok(())
}

async fn frames(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    let input = archive(&[("input.txt", &super::errands::large(100_000))])?;
    let pieces: Vec<_> = input.chunks(40_000).map(Bytes::copy_from_slice).collect();
    let delivered = task(counter, "7", &pieces).await?;
    ensure!(member(&delivered, "input.txt")? == super::errands::large(100_000), "the input was not put together");
    Ok(())
}

async fn log(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    let log = b"Info:stage:begin now\nWarning:missing_file:fig1.png not found\n";
    let delivered = task(counter, "8", &[archive(&[("log", log), ("input.txt", b"x")])?]).await?;
    ensure!(member(&delivered, "cortex.log")? == log, "the log is not what the input asks for");
    Ok(())
}

async fn nothing_now(counter: &mut Counter) -> Result<()> {
    const REPLIES: u32 = 10;
    counter.start()?;
    let began = Instant::now();
    for _ in 0..REPLIES {
        let request = counter.request().await?;
        counter.reply(&request, "0", &[Bytes::new()]).await?;
    }
    counter.request().await.map(|_| ())?;
    let least = Duration::from_millis(10) * REPLIES;
    ensure!(began.elapsed() >= least, "it asked {REPLIES} times in {} ms", began.elapsed().as_millis());
    Ok(())
}

async fn failure(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    let delivered = task(counter, "9", &[Bytes::from_static(b"no archive")]).await?;
    let log = String::from_utf8_lossy(&member(&delivered, "cortex.log")?).to_lowercase();
    ensure!(log.lines().any(|line| line.starts_with("fatal:")), "its log says {log:?}");
    let delivered = task(counter, "10", &[archive(&[("input.txt", b"again")])?]).await?;
    ensure!(member(&delivered, "input.txt")? == b"again", "the result is not made of the input");
    Ok(())
}

async fn restart(counter: &mut Counter) -> Result<()> {
    counter.start()?;
    counter.request().await?;
    // The request is lost with the dispatcher.
    counter.cut().await?;
    let delivered = task(counter, "11", &[archive(&[("input.txt", b"after the restart")])?]).await?;
    ensure!(member(&delivered, "input.txt")? == b"after the restart", "the result is not made of the input");
    Ok(())
}
