//! `docs/protocol.md` against the code: every message has its section, every example is one, every number is in force.
#![expect(clippy::expect_used, reason = "functions outside tests that are parts of tests")]

use bytes::Bytes;
use dispatcher_core::wire::{FromWorker, PROTO, ToWorker};
use dispatcher_transport::codec::{MARK, decode_from_worker, decode_to_worker, encode_to_worker};
use dispatcher_transport::limits;

const PAGE: &str = include_str!("../../../docs/protocol.md");
const FROM_WORKER: [&str; 10] =
    ["hello", "ready", "begun", "beat", "fetch", "result", "part", "retryable", "release", "bye"];
const TO_WORKER: [&str; 9] = ["welcome", "task", "chunk", "want", "ack", "beat", "cancel", "drain", "error"];

/// Breaks the build when a message is added, so that its section is written.
fn from_worker_name(message: &FromWorker) -> &'static str {
    match message {
        FromWorker::Hello { .. } => "hello",
        FromWorker::Ready { .. } => "ready",
        FromWorker::Begun { .. } => "begun",
        FromWorker::Beat { .. } => "beat",
        FromWorker::Fetch { .. } => "fetch",
        FromWorker::Result { .. } => "result",
        FromWorker::Part { .. } => "part",
        FromWorker::Retryable { .. } => "retryable",
        FromWorker::Release { .. } => "release",
        FromWorker::Bye => "bye",
    }
}

fn to_worker_name(message: &ToWorker) -> &'static str {
    match message {
        ToWorker::Welcome { .. } => "welcome",
        ToWorker::Task { .. } => "task",
        ToWorker::Chunk { .. } => "chunk",
        ToWorker::Want { .. } => "want",
        ToWorker::Ack { .. } => "ack",
        ToWorker::Beat { .. } => "beat",
        ToWorker::Cancel { .. } => "cancel",
        ToWorker::Drain => "drain",
        ToWorker::Error { .. } => "error",
    }
}

/// The part of the page under the heading `title` of the second level.
fn chapter(title: &str) -> &'static str {
    let after = PAGE.split(&format!("\n## {title}\n")).nth(1).unwrap_or_default();
    after.split("\n## ").next().unwrap_or_default()
}

/// The lines of the first fenced block of `kind`.
fn block(text: &'static str, kind: &str) -> Vec<&'static str> {
    let after = text.split(&format!("```{kind}\n")).nth(1).unwrap_or_default();
    after.split("\n```").next().unwrap_or_default().lines().collect()
}

/// The message sections of a chapter: each name with its example.
fn sections(title: &str) -> Vec<(&'static str, &'static str)> {
    let named = chapter(title).split("\n### `").skip(1).map(|section| {
        let name = section.split('`').next().unwrap_or_default();
        (name, block(section, "json").first().copied().unwrap_or_default())
    });
    named.collect()
}

fn from_hex(line: &str) -> Vec<u8> {
    line.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits")).collect()
}

#[test]
fn every_message_has_a_section_whose_example_is_such_a_message() {
    let said = sections("What the worker says");
    assert_eq!(said.iter().map(|(name, _)| *name).collect::<Vec<_>>(), FROM_WORKER);
    for (name, example) in said {
        let message: FromWorker = serde_json::from_str(example).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(from_worker_name(&message), name);
        if let FromWorker::Hello { proto, .. } = message {
            assert_eq!(proto, PROTO);
        }
    }
    let said = sections("What the dispatcher says");
    assert_eq!(said.iter().map(|(name, _)| *name).collect::<Vec<_>>(), TO_WORKER);
    for (name, example) in said {
        let message: ToWorker = serde_json::from_str(example).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(to_worker_name(&message), name);
    }
}

#[test]
fn the_conversation_is_one_that_both_sides_can_read() {
    let talk = chapter("A conversation");
    let mut messages: Vec<(char, Vec<Bytes>)> = Vec::new();
    for line in block(talk, "conversation") {
        match line.split_at(2) {
            ("W " | "D ", header) => {
                let frames = vec![Bytes::from_static(MARK), Bytes::copy_from_slice(header.as_bytes())];
                messages.push((line.chars().next().expect("W or D"), frames));
            }
            (_, body) => messages.last_mut().expect("a header before its body").1.push(Bytes::from(from_hex(body))),
        }
    }
    assert!(messages.len() > 10);
    for (side, frames) in &messages {
        let read = if *side == 'W' { decode_from_worker(frames).err() } else { decode_to_worker(frames).err() };
        assert_eq!(read, None, "{frames:?}");
    }
    for line in block(talk, "pieces") {
        let (side, header) = line.split_at(2);
        if side == "W " {
            serde_json::from_str::<FromWorker>(header).unwrap_or_else(|e| panic!("{header}: {e}"));
        } else {
            serde_json::from_str::<ToWorker>(header).unwrap_or_else(|e| panic!("{header}: {e}"));
        }
    }
}

#[test]
fn the_bytes_of_the_example_are_those_that_travel() {
    let shown: Vec<u8> = block(chapter("A conversation"), "bytes").into_iter().flat_map(from_hex).collect();
    let frames = encode_to_worker(&ToWorker::Drain, &[]);
    let mut travelling = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        travelling.push(u8::from(index + 1 < frames.len()));
        travelling.push(u8::try_from(frame.len()).expect("a short frame"));
        travelling.extend_from_slice(frame);
    }
    assert_eq!(shown, travelling);
}

#[test]
fn the_limits_of_the_page_are_those_in_force() {
    let rows = chapter("Limits");
    let as_u64 = |n: usize| u64::try_from(n).expect("it fits");
    for (name, value) in [
        ("MAX_FRAMES", as_u64(limits::MAX_FRAMES)),
        ("MAX_HEADER", as_u64(limits::MAX_HEADER)),
        ("MAX_MESSAGE", as_u64(limits::MAX_MESSAGE)),
        ("INLINE_MAX", limits::INLINE_MAX),
        ("CHUNK_MAX", limits::CHUNK_MAX),
        ("MAX_HOLDS", as_u64(limits::MAX_HOLDS)),
        ("MAX_PARTS", as_u64(limits::MAX_PARTS)),
        ("CHUNKS_UNDER_WAY", as_u64(limits::CHUNKS_UNDER_WAY)),
        ("WANTED_MAX", limits::WANTED_MAX),
    ] {
        let row = rows.lines().find(|row| row.contains(&format!("`{name}`"))).unwrap_or_default();
        let shown = row.split('|').nth(2).map(str::trim);
        assert_eq!(shown, Some(value.to_string().as_str()), "{name}");
    }
}
