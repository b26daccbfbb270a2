//! Checks of what a program does with messages of another shape than it expects, and with errors.

use anyhow::{Result, ensure};
use bytes::Bytes;
use dispatcher_core::wire::{AckWord, ErrorCode, ToWorker};
use serde_json::{Value, json};

use super::desk::Desk;
use super::{Check, Level};

pub(super) const CHECKS: &[Check] = &[
    Check::v1(
        Level::Basic,
        "unknown-members",
        "ignores members that it does not know, at every depth",
        "Members of the header that are not described here must be ignored, at every depth.",
        |desk| Box::pin(unknown_members(desk)),
    ),
    Check::v1(
        Level::Basic,
        "unknown-types",
        "ignores messages that it does not know",
        "A worker that receives a `type` it does not know ignores it.",
        |desk| Box::pin(unknown_types(desk)),
    ),
    Check::v1(
        Level::Basic,
        "errors",
        "goes on after an error that needs nothing else, also one with a code that it does not know",
        "Codes may be added: an unknown one is treated like `malformed`.",
        |desk| Box::pin(errors(desk)),
    ),
    Check::v1(
        Level::Basic,
        "ipc",
        "speaks over a Unix socket as well",
        "Addresses are `ipc://PATH` and `tcp://127.0.0.1:PORT`",
        |desk| Box::pin(ipc(desk)),
    ),
    Check::v1(
        Level::Full,
        "odd-names",
        "takes a name that is no UTF-8",
        "An `entry` is a JSON string where the name is UTF-8, and `{\"base64\": \"…\"}`",
        |desk| Box::pin(odd_names(desk)),
    ),
    Check::v1(
        Level::Full,
        "fresh-start",
        "builds the connection again after the errors that ask for it",
        "| `no_hello` | something was said before `hello` | builds the connection again |",
        |desk| Box::pin(fresh_start(desk)),
    ),
    Check::v1(
        Level::Full,
        "version",
        "ends where its version is not spoken",
        "| `version` | this version is not spoken here | ends, and tells its user; the connection is cut |",
        |desk| Box::pin(version(desk)),
    ),
];

/// The message with members that no page describes, on top and in every object within.
fn odd(message: &ToWorker) -> Result<Value> {
    let mut value = serde_json::to_value(message)?;
    decorate(&mut value);
    Ok(value)
}

fn decorate(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(decorate);
        members.insert("colour".to_owned(), json!({"type": "welcome", "token": ["x", {"n": null}]}));
    }
}

async fn unknown_members(desk: &mut Desk) -> Result<()> {
    desk.start()?;
    let hello = desk.hello().await?;
    desk.ledger.welcomed(super::desk::CHUNK_MAX);
    desk.say_raw(&odd(&Desk::welcome(&hello, &[]))?, &[])?;
    desk.asked().await?;
    let input = b"an input with a strange header";
    let (token, task) = desk.compose(input);
    desk.say_raw(&odd(&task)?, &[Bytes::from_static(input)])?;
    desk.begun(&token).await?;
    desk.echoed(&token).await?;
    desk.ledger.settled(&token);
    desk.say_raw(&odd(&ToWorker::Ack { token: token.clone(), answer: AckWord::Stored, why: None })?, &[])?;
    desk.forgotten(&token).await
}

async fn unknown_types(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.say_raw(&json!({"type": "weather", "token": "abc", "n": 3}), &[])?;
    desk.say_raw(&json!({"type": "weather", "offset": 0}), &[Bytes::from_static(b"rain")])?;
    desk.whole_task(b"after the weather").await
}

async fn errors(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.say(&error(ErrorCode::Malformed))?;
    desk.say_raw(&json!({"type": "error", "code": "weather", "message": "it rains"}), &[])?;
    desk.whole_task(b"after the errors").await
}

fn error(code: ErrorCode) -> ToWorker {
    ToWorker::Error { code, message: "said by a check".to_owned() }
}

async fn ipc(desk: &mut Desk) -> Result<()> {
    desk.move_to_ipc().await?;
    desk.begin().await?;
    desk.whole_task(b"over a socket of the file system").await
}

async fn odd_names(desk: &mut Desk) -> Result<()> {
    desk.begin().await?;
    desk.asked().await?;
    let input = b"its name is bytes";
    let (token, task) = desk.compose(input);
    let mut task = serde_json::to_value(task)?;
    task["entry"] = json!({"base64": "YS__"});
    desk.say_raw(&task, &[Bytes::from_static(input)])?;
    desk.begun(&token).await?;
    desk.echoed(&token).await?;
    desk.ack(&token, AckWord::Stored)?;
    desk.forgotten(&token).await
}

async fn fresh_start(desk: &mut Desk) -> Result<()> {
    let first = desk.begin().await?;
    for code in [ErrorCode::NoHello, ErrorCode::Limit] {
        desk.asked().await?;
        desk.say(&error(code))?;
        let hello = desk.greet().await?;
        ensure!(hello.incarnation == first.incarnation, "the incarnation is that of the process, and it is another");
    }
    desk.whole_task(b"after two fresh starts").await
}

async fn version(desk: &mut Desk) -> Result<()> {
    desk.start()?;
    desk.hello().await?;
    desk.say(&error(ErrorCode::Version))?;
    desk.end().await.map(|_| ())
}
