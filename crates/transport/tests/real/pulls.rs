//! The PULL on which results of the legacy wire come: good order, and senders that break the rules.
#![expect(clippy::expect_used, reason = "functions outside tests that are parts of tests")]

use super::common::{addresses, backend, frames, on_one_thread, soon};
use super::raw::{COMMAND, RawPeer, encoded, head};
use bytes::Bytes;
use dispatcher_transport::socket::{Endpoint, PullOptions, PullSocket, SocketError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

const MIB: usize = 1024 * 1024;

fn options() -> PullOptions {
    PullOptions { backend: backend(), max_message: MIB, ..PullOptions::default() }
}

async fn pull() -> (Endpoint, PullSocket) {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
    let pull = soon("a bind", PullSocket::bind(&anywhere, options())).await.expect("a free port");
    (pull.endpoint().clone(), pull)
}

async fn next(pull: &mut PullSocket) -> Vec<Bytes> {
    soon("a message", pull.next()).await.expect("the socket lives").frames
}

/// What this process has in memory, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("its second number").parse().expect("a number");
    pages * 4096
}

// Rule W2.
#[test]
fn messages_of_any_frames_arrive_in_order_and_to_the_byte() {
    on_one_thread(async {
        let (endpoint, mut pull) = pull().await;
        let mut push = RawPeer::push(&endpoint).await;
        let large = vec![7; MIB / 2];
        let sent: [&[&[u8]]; 4] =
            [&[b"w", b"s", b"1", b"x"], &[b""], &[b"w", b"s", b"2", &large, &[], b"end"], &[b"a"]];
        for message in sent {
            push.write(&encoded(message)).await;
        }
        for message in sent {
            assert_eq!(next(&mut pull).await, frames(message));
        }
    });
}

// Case F25.
#[test]
fn a_result_beyond_the_cap_costs_its_sender_the_connection_and_the_next_one_is_intact() {
    on_one_thread(async {
        let (endpoint, mut pull) = pull().await;
        let (taken, mut messages) = tokio::sync::mpsc::channel(1);
        let taking = tokio::spawn(async move {
            while let Ok(message) = pull.next().await {
                if taken.send(message.frames).await.is_err() {
                    return;
                }
            }
        });
        let mut good = RawPeer::push(&endpoint).await;
        let before = resident();
        let mut bad = Vec::new();
        for claim in [u64::MAX, 1 << 40, 2 * MIB as u64] {
            let mut raw = RawPeer::push(&endpoint).await;
            raw.write(&head(claim, false)).await;
            bad.push(raw);
        }
        // One that never ends, in pieces of 100 KB, or of nothing.
        for piece in [vec![0; 100_000], vec![]] {
            let mut raw = RawPeer::push(&endpoint).await;
            let mut frame = head(piece.len() as u64, true);
            frame.extend_from_slice(&piece);
            for _ in 0..100_000 {
                if !raw.write_or_be_cut(&frame).await {
                    break;
                }
            }
            bad.push(raw);
        }
        good.write(&encoded(&[b"w", b"s", b"1", b"x"])).await;
        let come = soon("the good result", messages.recv()).await.expect("the socket lives");
        assert_eq!(come, frames(&[b"w", b"s", b"1", b"x"]));
        for mut raw in bad {
            raw.is_cut().await;
        }
        taking.abort();
        assert!(resident().saturating_sub(before) < 50 * MIB, "{} MiB", resident().saturating_sub(before) / MIB);
    });
}

/// A message of one frame of `size` bytes, that is written in pieces: the senders of a test hold next to nothing.
async fn write_large(push: &mut RawPeer, size: usize) -> bool {
    let piece = [1; 16 * 1024];
    let mut left = size;
    let begun = push.write_or_be_cut(&head(size as u64, false)).await;
    while begun && left > 0 {
        let next = left.min(piece.len());
        if push.stream.write_all(&piece[..next]).await.is_err() {
            return false;
        }
        left -= next;
    }
    begun
}

/// Everybody has had many turns to send as much as there is room for.
async fn many_turns() {
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
}

/// So many half seconds of the sockets' time pass, each of them seen.
async fn pass(half_seconds: u32) {
    for _ in 0..half_seconds {
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(510)).await;
        tokio::time::resume();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

// Rule D1.
#[test]
fn who_takes_nothing_makes_the_senders_wait_in_bounded_memory_and_loses_nothing() {
    on_one_thread(async {
        let (endpoint, mut pull) = pull().await;
        let before = resident();
        let mut senders = Vec::new();
        for _ in 0..100 {
            let mut push = RawPeer::push(&endpoint).await;
            senders.push(tokio::spawn(async move {
                let mut all = true;
                for _ in 0..2 {
                    all &= write_large(&mut push, MIB - 100_000).await;
                }
                all
            }));
        }
        many_turns().await;
        let grown = resident().saturating_sub(before);
        assert!(grown < 50 * MIB, "{} MiB of 180", grown / MIB);
        for _ in 0..200 {
            assert_eq!(next(&mut pull).await.last().map(Bytes::len), Some(MIB - 100_000));
        }
        for sender in senders {
            assert!(sender.await.expect("no panic"));
        }
    });
}

// Rule D1. Case F25.
#[test]
fn large_results_that_are_half_here_never_wait_for_each_other_for_ever() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let limits = PullOptions { max_message: 8 * MIB, held_max: 2 * MIB, ..options() };
        let mut pull = PullSocket::bind(&anywhere, limits).await.expect("a free port");
        let endpoint = pull.endpoint().clone();
        let before = resident();
        let mut senders = Vec::new();
        for _ in 0..40 {
            let mut push = RawPeer::push(&endpoint).await;
            senders.push(tokio::spawn(async move { write_large(&mut push, 7 * MIB).await }));
        }
        many_turns().await;
        let grown = resident().saturating_sub(before);
        assert!(grown < 50 * MIB, "{} MiB of 280", grown / MIB);
        for _ in 0..40 {
            assert_eq!(next(&mut pull).await.last().map(Bytes::len), Some(7 * MIB));
        }
        for sender in senders {
            assert!(sender.await.expect("no panic"));
        }
    });
}

/// A socket with room for 2 MiB of results, which may have 8 MiB each.
async fn narrow() -> (Endpoint, PullSocket) {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
    let limits = PullOptions { max_message: 8 * MIB, held_max: 2 * MIB, ..options() };
    let pull = PullSocket::bind(&anywhere, limits).await.expect("a free port");
    (pull.endpoint().clone(), pull)
}

/// Somebody brings 2 MiB of a result, whose frames are said by `head`, and no more of it: from then on `after` every half second.
async fn stops(endpoint: &Endpoint, head: Vec<u8>, after: Vec<u8>) -> JoinHandle<()> {
    let mut push = RawPeer::push(endpoint).await;
    tokio::spawn(async move {
        push.write(&head).await;
        let mut is_there = push.write_or_be_cut(&vec![1; 2 * MIB]).await;
        let mut half_seconds = tokio::time::interval(Duration::from_millis(500));
        while is_there {
            half_seconds.tick().await;
            is_there = push.write_or_be_cut(&after).await;
        }
    })
}

/// A short and a large result of others come through, the large one before `half_seconds` are over.
async fn assert_others_come(endpoint: &Endpoint, pull: &mut PullSocket, half_seconds: u32) {
    many_turns().await;
    let mut small = RawPeer::push(endpoint).await;
    small.write(&encoded(&[b"w", b"s", b"1", b"x"])).await;
    assert_eq!(next(pull).await.len(), 4, "a short one has a share of its own");
    let mut large = RawPeer::push(endpoint).await;
    let sender = tokio::spawn(async move { write_large(&mut large, 4 * MIB).await && large.is_open().await });
    many_turns().await;
    pass(half_seconds).await;
    let come = soon("the large one", pull.next()).await.expect("the socket lives");
    assert_eq!(come.frames.last().map(Bytes::len), Some(4 * MIB));
    assert!(sender.await.expect("no panic"), "who brings something is not cut off");
}

// Rules D1, W5.
#[test]
fn who_stops_in_the_middle_of_a_large_result_keeps_no_other_out() {
    on_one_thread(async {
        let (endpoint, mut pull) = narrow().await;
        for _ in 0..2 {
            stops(&endpoint, head(8_000_000, false), Vec::new()).await;
        }
        // The time of one after the other is over, and somebody waits for their places.
        assert_others_come(&endpoint, &mut pull, 42).await;
    });
}

// Rules D1, W5.
#[test]
fn many_who_stop_do_not_keep_others_out_one_after_the_other() {
    on_one_thread(async {
        let (endpoint, mut pull) = narrow().await;
        for _ in 0..20 {
            stops(&endpoint, head(8_000_000, false), Vec::new()).await;
        }
        assert_others_come(&endpoint, &mut pull, 60).await;
    });
}

// Rules D1, W5.
#[test]
fn signs_of_life_are_no_part_of_a_result_and_keep_no_place() {
    on_one_thread(async {
        let (endpoint, mut pull) = narrow().await;
        for _ in 0..2 {
            let whole_frame = head(2 * MIB as u64, true);
            stops(&endpoint, whole_frame, b"\x04\x07\x04PING\x00\x64".repeat(10_000)).await;
        }
        assert_others_come(&endpoint, &mut pull, 42).await;
    });
}

// Rules D1, W5.
#[test]
fn a_long_command_costs_its_sender_the_connection_and_nobody_memory() {
    on_one_thread(async {
        let (endpoint, mut pull) = pull().await;
        let before = resident();
        let mut senders = Vec::new();
        for _ in 0..20 {
            let mut push = RawPeer::push(&endpoint).await;
            senders.push(tokio::spawn(async move {
                let mut head = head(MIB as u64 - 1000, false);
                head[0] |= COMMAND;
                push.write(&head).await;
                push.write_or_be_cut(&vec![1; MIB - 2000]).await;
                push.is_cut().await;
            }));
        }
        let all = async {
            for sender in senders {
                sender.await.expect("each is cut off");
            }
        };
        tokio::select! {
            () = all => {}
            _ = pull.next() => panic!("there is no message"),
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 16 * MIB, "{} MiB", grown / MIB);
    });
}

// Rule W6.
#[test]
fn a_sender_that_asks_for_a_sign_of_life_is_given_one() {
    on_one_thread(async {
        let (endpoint, mut pull) = pull().await;
        let mut push = RawPeer::push(&endpoint).await;
        // PING with a time to live of 10 s and a context of four bytes.
        push.write(b"\x04\x0b\x04PING\x00\x64ctxt").await;
        let pong = tokio::select! {
            pong = push.read(2 + 9) => pong,
            _ = pull.next() => Vec::new(),
        };
        assert_eq!(pong, b"\x04\x09\x04PONGctxt");
        push.write(&encoded(&[b"w", b"s", b"1", b"x"])).await;
        assert_eq!(next(&mut pull).await.len(), 4);
    });
}

// Rule W6.
#[test]
fn keep_alive_is_set_before_the_bind_and_connections_have_it() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let keep_alive = Some(Duration::from_secs(77));
        let mut pull = PullSocket::bind(&anywhere, PullOptions { keep_alive, ..options() }).await.expect("a free port");
        let endpoint = pull.endpoint().clone();
        let mut push = RawPeer::push(&endpoint).await;
        push.write(&encoded(&[b"w", b"s", b"1", b"x"])).await;
        assert_eq!(next(&mut pull).await.len(), 4);
        let port = push.stream.peer_addr().expect("connected").port();
        assert!(timer_of(port).is_some_and(|timer| timer == KEEP_ALIVE_TIMER), "the system's table has the timer");
    });
}

/// The kind of timer that `/proc/net/tcp` shows for keep-alive.
const KEEP_ALIVE_TIMER: u8 = 2;

/// The timer of the established connection whose own end has `port`.
fn timer_of(port: u16) -> Option<u8> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let line = table.lines().find(|line| {
        let mut fields = line.split_ascii_whitespace();
        let own = fields.nth(1).unwrap_or_default();
        let state = fields.nth(1).unwrap_or_default();
        own.ends_with(&format!(":{port:04X}")) && state == "01"
    })?;
    line.split_ascii_whitespace().nth(5)?.split(':').next()?.parse().ok()
}

#[test]
fn a_place_where_somebody_listens_is_refused_with_words_and_free_again_after_the_close() {
    on_one_thread(async {
        let (_folder, places) = addresses();
        for place in places {
            let first = PullSocket::bind(&place, options()).await.expect("free");
            let endpoint = first.endpoint().clone();
            let impatient = PullOptions { bind_patience: Duration::ZERO, ..options() };
            let second = PullSocket::bind(&endpoint, impatient.clone()).await.expect_err("taken");
            assert!(matches!(second, SocketError::InUse { .. }), "{second}");
            soon("a close", first.close()).await;
            soon("a bind", PullSocket::bind(&endpoint, options())).await.expect("free again");
        }
    });
}
