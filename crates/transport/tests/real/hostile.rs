//! The boundary against peers that break the rules: they are cut off or wait in vain, memory stays bounded, and a good
//! peer is served all the while.
#![expect(clippy::expect_used, clippy::panic, reason = "functions outside tests that are parts of tests")]

use super::common::{dealer, event, frames, on_one_thread, router_options, soon, told};
use super::raw::{RawPeer, encoded, head};
use bytes::Bytes;
use dispatcher_core::wire::{FromWorker, TokenText};
use dispatcher_transport::codec::{decode_from_worker, encode_from_worker};
use dispatcher_transport::limits::{MAX_FRAMES, MAX_MESSAGE};
use dispatcher_transport::socket::{
    DealerEvent, DealerSocket, Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket, Sent,
};
use futures_util::FutureExt;
use std::time::Duration;
use tokio::task::JoinHandle;

const MIB: usize = 1024 * 1024;

/// A router that answers every good v1 message with itself, and does so until it is dropped.
async fn serve(options: RouterOptions) -> (Endpoint, JoinHandle<()>) {
    let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
    let mut router = RouterSocket::bind(&anywhere, options).await.expect("a free port");
    let endpoint = router.endpoint().clone();
    let serving = tokio::spawn(async move {
        let mut events = Vec::new();
        while router.next_many(&mut events, 64).await.is_ok() {
            for event in events.drain(..) {
                if let RouterEvent::Message { peer, frames } = event
                    && decode_from_worker(&frames).is_ok()
                {
                    let _ = router.try_send(peer, frames);
                }
            }
        }
    });
    (endpoint, serving)
}

/// A peer that behaves, and notices if it is not served.
struct GoodPeer {
    dealer: DealerSocket,
    asked: u64,
}

impl GoodPeer {
    async fn of(endpoint: &Endpoint) -> Self {
        let mut dealer = dealer(endpoint);
        assert_eq!(told(&mut dealer).await, DealerEvent::Connected);
        Self { dealer, asked: 0 }
    }

    async fn is_served(&mut self) {
        self.asked += 1;
        let token = TokenText(format!("token {}", self.asked));
        let ask = encode_from_worker(&FromWorker::Begun { token }, &[]);
        assert_eq!(self.dealer.try_send(ask.clone()), Sent::Sent);
        assert_eq!(told(&mut self.dealer).await, DealerEvent::Message { frames: ask });
    }
}

/// What this process has in memory, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("its second number").parse().expect("a number");
    pages * 4096
}

// Case F25.
#[test]
fn frames_that_claim_to_be_huge_cost_their_sender_the_connection_and_nobody_memory() {
    on_one_thread(async {
        let (endpoint, serving) = serve(router_options()).await;
        let mut good = GoodPeer::of(&endpoint).await;
        let before = resident();
        let above_cap = (MAX_MESSAGE + MAX_FRAMES * 64 + 1) as u64;
        for claim in [u64::MAX, u64::MAX / 2, 1 << 40, 1_000_000_000_000, above_cap] {
            for more in [false, true] {
                let mut raw = RawPeer::dealer(&endpoint).await;
                raw.write(&head(claim, more)).await;
                raw.is_cut().await;
                good.is_served().await;
            }
        }
        // And with bytes behind the claim, as many as it takes until the connection is cut.
        let mut raw = RawPeer::dealer(&endpoint).await;
        raw.write(&head(1 << 40, false)).await;
        while raw.write_or_be_cut(&[0; 64 * 1024]).await {}
        good.is_served().await;
        assert!(resident().saturating_sub(before) < 50 * MIB, "{} MiB", resident().saturating_sub(before) / MIB);
        serving.abort();
    });
}

// Case F25.
#[test]
fn a_message_that_never_ends_is_cut_whether_its_frames_are_large_or_empty() {
    on_one_thread(async {
        let (endpoint, serving) = serve(router_options()).await;
        let mut good = GoodPeer::of(&endpoint).await;
        let before = resident();
        for frame in [vec![0; 4096], vec![0], vec![]] {
            let mut raw = RawPeer::dealer(&endpoint).await;
            let mut piece = Vec::new();
            for _ in 0..64 {
                piece.extend(head(frame.len() as u64, true));
                piece.extend_from_slice(&frame);
            }
            while raw.write_or_be_cut(&piece).await {}
            good.is_served().await;
        }
        assert!(resident().saturating_sub(before) < 50 * MIB);
        serving.abort();
    });
}

// Case F23.
#[test]
fn what_does_not_speak_zmtp_is_cut_off_and_what_says_nothing_is_not_waited_for() {
    on_one_thread(async {
        let options = RouterOptions { handshake: Duration::from_millis(200), ..router_options() };
        let (endpoint, serving) = serve(options).await;
        let mut good = GoodPeer::of(&endpoint).await;
        let http = b"GET / HTTP/1.1\r\nHost: dispatcher\r\n\r\n".as_slice();
        let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03].as_slice();
        // No randomness, so that it is the same each time: a sequence that looks like noise.
        let noise: Vec<u8> = (0..5_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let before_the_greeting = head(1_000_000_000_000, false);
        let nothing = [].as_slice();
        let mut strangers = Vec::new();
        for said in [http, tls, &noise, &before_the_greeting, nothing, &[0xff], &[0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f]] {
            let mut raw = RawPeer::connect(&endpoint).await;
            raw.write_or_be_cut(said).await;
            strangers.push(raw);
            good.is_served().await;
        }
        for _ in 0..200 {
            strangers.push(RawPeer::connect(&endpoint).await);
        }
        good.is_served().await;
        for mut stranger in strangers {
            stranger.is_cut().await;
        }
        good.is_served().await;
        serving.abort();
    });
}

// Case F23.
#[test]
fn a_storm_of_strangers_while_the_router_is_busy_loses_no_departure() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = super::common::router(&anywhere).await;
        let mut good = dealer(router.endpoint());
        let peer = super::common::meet(&mut router, &mut good).await;
        // More than any queue of events has room for.
        for _ in 0..1_200 {
            let mut stranger = RawPeer::connect(router.endpoint()).await;
            stranger.write_or_be_cut(&[0; 64]).await;
            stranger.is_cut().await;
        }
        good.close(Duration::from_secs(10)).await;
        assert_eq!(event(&mut router).await, RouterEvent::Departed { peer });
        assert_eq!(router.stats().connections, 0);
    });
}

// Cases F22, F23.
#[test]
fn malformed_messages_of_any_number_of_frames_leave_the_next_good_one_unharmed() {
    on_one_thread(async {
        let (endpoint, serving) = serve(router_options()).await;
        let mut good = GoodPeer::of(&endpoint).await;
        let mut raw = RawPeer::dealer(&endpoint).await;
        let noise: [&[&[u8]]; 8] = [
            &[b""],
            &[b"tex_to_html"],
            &[b"DSP1"],
            &[b"DSP1", b""],
            &[b"DSP1", b"{\"type\":\"bye\"}", b"bytes that it may not have"],
            &[b"", b"", b""],
            &[b"DSP1", b"[[[[[[", b"", b""],
            &[b"DSP1", b"{}", b"", b"", b"", b"", b"", b"", b"", b"", b"", b""],
        ];
        // The same connection is served, too, each time it makes sense.
        let bye = encode_from_worker(&FromWorker::Bye, &[]);
        let bye: Vec<&[u8]> = bye.iter().map(Bytes::as_ref).collect();
        for round in 0..1_000 {
            raw.write(&encoded(noise[round % noise.len()])).await;
            raw.write(&encoded(&bye)).await;
            good.is_served().await;
        }
        // Its answers, short frames all of them: the mark, then the header.
        let answer = [&[1, 4][..], b"DSP1", &[0, 14], b"{\"type\":\"bye\"}"].concat();
        for _ in 0..1_000 {
            assert_eq!(raw.read(answer.len()).await, answer);
        }
        serving.abort();
    });
}

// Cases F23, F31.
#[test]
fn a_flood_of_small_messages_by_a_peer_that_never_reads_keeps_nobody_from_being_served() {
    on_one_thread(async {
        let (endpoint, serving) = serve(router_options()).await;
        let mut good = GoodPeer::of(&endpoint).await;
        let before = resident();
        let mut raw = RawPeer::dealer(&endpoint).await;
        let flood = tokio::spawn(async move {
            let request = encode_from_worker(&FromWorker::Begun { token: TokenText("x".into()) }, &[]);
            let request: Vec<&[u8]> = request.iter().map(Bytes::as_ref).collect();
            let many = encoded(&request).repeat(500);
            while raw.write_or_be_cut(&many).await {}
        });
        for _ in 0..50 {
            good.is_served().await;
            assert!(!flood.is_finished(), "it goes on all the while");
        }
        flood.abort();
        assert!(resident().saturating_sub(before) < 50 * MIB, "{} MiB", resident().saturating_sub(before) / MIB);
        serving.abort();
    });
}

#[test]
fn a_peer_that_sends_more_bytes_than_any_worker_is_disconnected_and_counted() {
    on_one_thread(async {
        let options = RouterOptions { burst_bytes: 4 * MIB as u64, bytes_per_second: 1024, ..router_options() };
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = RouterSocket::bind(&anywhere, options).await.expect("a free port");
        let endpoint = router.endpoint().clone();
        let mut raw = RawPeer::dealer(&endpoint).await;
        let flood = tokio::spawn(async move {
            let body = vec![0; 128 * 1024];
            let chunk = encoded(&[b"DSP1", b"{}", &body]);
            while raw.write_or_be_cut(&chunk).await {}
        });
        let (mut heard, mut flooder) = (0, None);
        let departed = loop {
            match event(&mut router).await {
                RouterEvent::Arrived { peer } => flooder = Some(peer),
                RouterEvent::Message { frames, .. } => heard += frames.iter().map(Bytes::len).sum::<usize>(),
                RouterEvent::Departed { peer } => break peer,
            }
        };
        assert_eq!(Some(departed), flooder);
        assert!(heard <= 4 * MIB && heard > 3 * MIB, "{heard} bytes were told");
        assert_eq!(router.stats().over_allowance, 1);
        soon("the flooder", flood).await.expect("it was cut off");

        let mut good = dealer(&endpoint);
        let peer = super::common::meet(&mut router, &mut good).await;
        assert_eq!(good.try_send(frames(&[b"hello"])), Sent::Sent);
        assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: frames(&[b"hello"]) });
    });
}

/// Sends `body` to `stuck`, which does not read, again and again until there is no more room.
async fn fill(router: &mut RouterSocket, stuck: PeerId, body: &Bytes) {
    while router.try_send(stuck, vec![body.clone()]) != Sent::Full {
        // The socket needs its turn, too, and nothing is told meanwhile.
        assert!(router.next().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

async fn arrival(router: &mut RouterSocket) -> PeerId {
    match event(router).await {
        RouterEvent::Arrived { peer } => peer,
        other => panic!("{other:?} instead of an arrival"),
    }
}

// Case F31.
#[test]
fn a_peer_that_never_reads_loses_its_connection_when_it_is_disconnected() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = super::common::router(&anywhere).await;
        let endpoint = router.endpoint().clone();
        let (mut raw, stuck) = tokio::join!(RawPeer::dealer(&endpoint), arrival(&mut router));
        fill(&mut router, stuck, &Bytes::from(vec![5; 64 * 1024])).await;
        router.disconnect(stuck);
        assert_eq!(event(&mut router).await, RouterEvent::Departed { peer: stuck });
        let serving = tokio::spawn(async move {
            let _ = router.next().await;
        });
        while raw.write_or_be_cut(&[0; 64 * 1024]).await {}
        serving.abort();
    });
}

/// Two connections of one name: an old one that is stuck, and a new one. Both with what the router calls them.
async fn namesakes(router: &mut RouterSocket) -> [(RawPeer, PeerId); 2] {
    let endpoint = router.endpoint().clone();
    let (old_raw, old) = tokio::join!(RawPeer::named(&endpoint, b"worker"), arrival(router));
    fill(router, old, &Bytes::from(vec![5; 64 * 1024])).await;
    let (new_raw, new) = tokio::join!(RawPeer::named(&endpoint, b"worker"), async {
        loop {
            match event(router).await {
                RouterEvent::Arrived { peer } => break peer,
                told => assert_eq!(told, RouterEvent::Departed { peer: old }),
            }
        }
    });
    assert_eq!(router.try_send(old, frames(&[b"x"])), Sent::Gone, "its name is another one's now");
    [(old_raw, old), (new_raw, new)]
}

/// Lets the router run until `raw` has the next frame; nothing may be told meanwhile but the departure of `old`.
async fn frame_for(raw: &mut RawPeer, router: &mut RouterSocket, old: PeerId) -> Vec<u8> {
    tokio::select! {
        frame = raw.frame() => frame,
        told = async {
            loop {
                let told = event(router).await;
                if told != (RouterEvent::Departed { peer: old }) {
                    break told;
                }
            }
        } => panic!("{told:?} instead of a frame: the new connection lives no more"),
    }
}

#[test]
fn an_old_connection_that_dies_takes_no_new_one_of_the_same_name_with_it() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = super::common::router(&anywhere).await;
        let [(old_raw, old), (mut new_raw, new)] = namesakes(&mut router).await;
        drop(old_raw);
        for _ in 0..100 {
            assert_eq!(router.try_send(new, frames(&[b"x"])), Sent::Sent, "the new connection lives");
            while frame_for(&mut new_raw, &mut router, old).await != b"x" {}
        }
    });
}

#[test]
fn nothing_that_waits_for_a_connection_goes_to_another_one_of_the_same_name() {
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = super::common::router(&anywhere).await;
        let [(_old_raw, old), (mut new_raw, new)] = namesakes(&mut router).await;
        for _ in 0..100 {
            assert_eq!(router.try_send(new, frames(&[b"x"])), Sent::Sent);
            let got = frame_for(&mut new_raw, &mut router, old).await;
            assert!(got == b"x", "{} bytes came: it was meant for the old connection", got.len());
        }
    });
}

#[test]
fn a_peer_that_asks_for_a_sign_of_life_is_given_one() {
    on_one_thread(async {
        let (endpoint, serving) = serve(router_options()).await;
        let mut raw = RawPeer::dealer(&endpoint).await;
        // As libzmq does with heart-beats: for how long it lives without, in tenths of a second, and what is to come back.
        raw.write(b"\x04\x0b\x04PING\x00\x64back").await;
        assert_eq!(raw.read(11).await, b"\x04\x09\x04PONGback");
        serving.abort();
    });
}

#[test]
fn what_idle_peers_once_got_is_not_held_for_them() {
    const MESSAGES: usize = 160;
    on_one_thread(async {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = super::common::router(&anywhere).await;
        let endpoint = router.endpoint().clone();
        let before = resident();
        let body = Bytes::from(vec![5; 128 * 1024]);
        let mut idle = Vec::new();
        for _ in 0..20 {
            let (mut raw, peer) = tokio::join!(RawPeer::dealer(&endpoint), arrival(&mut router));
            for _ in 0..MESSAGES / 8 {
                for _ in 0..8 {
                    assert_eq!(router.try_send(peer, vec![body.clone()]), Sent::Sent);
                }
                tokio::select! {
                    _ = raw.read(8 * (9 + body.len())) => {}
                    told = router.next() => panic!("{told:?} of a peer that only reads"),
                }
            }
            idle.push(raw);
        }
        assert!(resident().saturating_sub(before) < 50 * MIB, "{} MiB", resident().saturating_sub(before) / MIB);
    });
}

// Case F34.
#[test]
fn short_connections_leave_no_descriptor_and_no_peer_behind() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    on_one_thread(async move {
        let anywhere = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
        let mut router = RouterSocket::bind(&anywhere, router_options()).await.expect("a free port");
        let endpoint = router.endpoint().clone();
        let before = open();
        let visits = tokio::spawn(async move {
            for visit in 0..1_000 {
                if visit % 2 == 0 {
                    drop(RawPeer::connect(&endpoint).await);
                } else {
                    drop(RawPeer::dealer(&endpoint).await);
                }
            }
        });
        let (mut arrived, mut departed) = (0, 0);
        while !visits.is_finished() || arrived > departed || open() > before + 10 {
            tokio::select! {
                event = router.next() => match event.expect("the router lives") {
                    RouterEvent::Arrived { .. } => arrived += 1,
                    RouterEvent::Departed { .. } => departed += 1,
                    RouterEvent::Message { .. } => panic!("nobody sent anything"),
                },
                // The last visitors may leave without having been told of.
                () = tokio::task::yield_now() => {}
            }
        }
        visits.await.expect("the visitors' assertions hold");
        assert_eq!(router.stats().connections, 0);
    });
}
