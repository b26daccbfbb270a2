//! The boundary in good order, over `ipc://` and the loopback interface alike.
#![expect(clippy::expect_used, reason = "functions outside tests that are parts of tests")]

use super::common::{
    addresses, dealer, dealer_options, event, frames, meet, on_one_thread, router, router_options, soon, told, until,
};
use super::raw::RawPeer;
use bytes::Bytes;
use dispatcher_transport::limits::CHUNK_MAX;
use dispatcher_transport::socket::{
    BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket,
    Sent, SocketError,
};
use futures_util::FutureExt;
use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn messages_go_both_ways_frame_by_frame_and_a_peer_departs_after_its_last_one() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            let mut dealer = dealer(router.endpoint());
            let peer = meet(&mut router, &mut dealer).await;

            let chunk = vec![7; usize::try_from(CHUNK_MAX).expect("it fits")];
            let there = frames(&[b"DSP1", b"", &chunk]);
            assert_eq!(dealer.try_send(there.clone()), Sent::Sent);
            assert_eq!(dealer.try_send(frames(&[b"second"])), Sent::Sent);
            assert!(event(&mut router).await == RouterEvent::Message { peer, frames: there });
            assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: frames(&[b"second"]) });

            let back = frames(&[b"only one"]);
            assert_eq!(router.try_send(peer, back.clone()), Sent::Sent);
            assert_eq!(told(&mut dealer).await, DealerEvent::Message { frames: back });

            assert_eq!(dealer.try_send(frames(&[b"last"])), Sent::Sent);
            dealer.close(SECONDS).await;
            assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: frames(&[b"last"]) });
            assert_eq!(event(&mut router).await, RouterEvent::Departed { peer });
            assert_eq!(router.try_send(peer, frames(&[b"too late"])), Sent::Gone);
            soon("closing", router.close(SECONDS)).await;
        }
    });
}

#[test]
fn a_worker_of_either_backend_is_served() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            for backend in BackendKind::ALL {
                let options = DealerOptions { backend, ..dealer_options() };
                let mut dealer = DealerSocket::connect(router.endpoint(), options).expect("good options");
                let peer = meet(&mut router, &mut dealer).await;
                let message = frames(&[b"DSP1", b"", &[7; 70_000]]);
                assert_eq!(dealer.try_send(message.clone()), Sent::Sent);
                assert!(event(&mut router).await == RouterEvent::Message { peer, frames: message.clone() });
                assert_eq!(router.try_send(peer, message.clone()), Sent::Sent);
                assert!(told(&mut dealer).await == DealerEvent::Message { frames: message });
                dealer.close(SECONDS).await;
                assert_eq!(event(&mut router).await, RouterEvent::Departed { peer });
            }
        }
    });
}

/// Answers every message with itself until all peers departed; returns what was told of each.
async fn echo(mut router: RouterSocket, peers: usize) -> HashMap<PeerId, Vec<RouterEvent>> {
    let (mut told, mut events, mut departed) = (HashMap::<_, Vec<_>>::new(), Vec::new(), 0);
    while departed < peers {
        soon("events", router.next_many(&mut events, 64)).await.expect("the router lives");
        for event in events.drain(..) {
            let peer = match &event {
                RouterEvent::Arrived { peer } | RouterEvent::Departed { peer } => *peer,
                RouterEvent::Message { peer, frames } => {
                    assert_eq!(router.try_send(*peer, frames.clone()), Sent::Sent);
                    *peer
                }
            };
            departed += usize::from(matches!(event, RouterEvent::Departed { .. }));
            told.entry(peer).or_default().push(event);
        }
    }
    told
}

#[test]
fn sixteen_peers_at_once_each_get_their_own_answers_in_order() {
    const PEERS: usize = 16;
    const ROUNDS: u32 = 210;
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let router = router(&endpoint).await;
            let address = router.endpoint().clone();
            let server = tokio::spawn(echo(router, PEERS));
            let workers = (0..PEERS as u32).map(|worker| {
                let mut dealer = dealer(&address);
                tokio::spawn(async move {
                    assert_eq!(told(&mut dealer).await, DealerEvent::Connected);
                    for round in 0..ROUNDS {
                        let message = frames(&[&worker.to_be_bytes(), &round.to_be_bytes(), &[9; 8_000]]);
                        assert_eq!(dealer.send(message.clone(), SECONDS).await, Sent::Sent);
                        if round % 7 == 6 {
                            for back in round - 6..=round {
                                let mine = frames(&[&worker.to_be_bytes(), &back.to_be_bytes(), &[9; 8_000]]);
                                assert!(
                                    told(&mut dealer).await == DealerEvent::Message { frames: mine },
                                    "answer {back}"
                                );
                            }
                        }
                    }
                    dealer.close(SECONDS).await;
                })
            });
            for worker in workers.collect::<Vec<_>>() {
                soon("a worker", worker).await.expect("a worker's assertions hold");
            }
            let told = soon("the server", server).await.expect("the server's assertions hold");
            assert_eq!(told.len(), PEERS);
            for (peer, events) in told {
                assert_eq!(events.len(), 2 + ROUNDS as usize);
                assert_eq!(events.first(), Some(&RouterEvent::Arrived { peer }));
                assert_eq!(events.last(), Some(&RouterEvent::Departed { peer }));
            }
        }
    });
}

#[test]
fn the_departure_of_a_peer_comes_after_all_it_sent_even_while_another_never_stops() {
    on_one_thread(async {
        let (_folder, [endpoint, _]) = addresses();
        let mut router = router(&endpoint).await;
        let mut busy = dealer(&endpoint);
        let noisy = meet(&mut router, &mut busy).await;
        let flood = tokio::spawn(async move {
            while busy.send(frames(&[b"noise"]), SECONDS).await == Sent::Sent {
                let _ = busy.next().now_or_never();
            }
        });
        let mut brief = dealer(&endpoint);
        let connect = tokio::spawn(async move {
            assert_eq!(told(&mut brief).await, DealerEvent::Connected);
            for n in 0..500_u32 {
                assert_eq!(brief.send(frames(&[&n.to_be_bytes()]), SECONDS).await, Sent::Sent);
            }
            brief.close(SECONDS).await;
        });
        let mut heard = 0_u32;
        loop {
            match event(&mut router).await {
                RouterEvent::Message { peer, frames: got } if peer != noisy => {
                    assert_eq!(got, frames(&[&heard.to_be_bytes()]));
                    heard += 1;
                }
                RouterEvent::Departed { peer } if peer != noisy => break,
                RouterEvent::Departed { .. } => panic!("the noisy peer stays"),
                RouterEvent::Message { .. } | RouterEvent::Arrived { .. } => {}
            }
        }
        assert_eq!(heard, 500);
        connect.await.expect("the brief peer's assertions hold");
        router.disconnect(noisy);
        while event(&mut router).await != (RouterEvent::Departed { peer: noisy }) {}
        flood.abort();
    });
}

#[test]
fn a_hundred_inline_inputs_for_one_peer_are_taken_at_once_and_come_in_order() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            let mut dealer = dealer(router.endpoint());
            let peer = meet(&mut router, &mut dealer).await;
            let task = |n: u32| vec![Bytes::copy_from_slice(&n.to_be_bytes()), Bytes::from(vec![1; 64 * 1024])];
            for n in 0..100 {
                assert_eq!(router.try_send(peer, task(n)), Sent::Sent, "task {n}");
            }
            // What waits for a peer leaves while the router is waited for.
            let serving = tokio::spawn(async move {
                let _ = router.next().await;
            });
            for n in 0..100 {
                assert!(told(&mut dealer).await == DealerEvent::Message { frames: task(n) }, "task {n}");
            }
            serving.abort();
        }
    });
}

// Case F31. Rule L9.
#[test]
fn a_peer_that_never_reads_is_full_after_a_while_and_holds_up_nobody() {
    on_one_thread(async {
        let (_folder, [_, endpoint]) = addresses();
        let mut router = router(&endpoint).await;
        let address = router.endpoint().clone();
        let (stuck_raw, arrived) = tokio::join!(RawPeer::dealer(&address), event(&mut router));
        let RouterEvent::Arrived { peer: stuck } = arrived else { panic!("{arrived:?} instead of an arrival") };
        let mut good = dealer(&address);
        let peer = meet(&mut router, &mut good).await;

        let body = Bytes::from(vec![5; 64 * 1024]);
        let (mut sent, mut rounds) = (0_u32, 0_u32);
        loop {
            let answer = router.try_send(stuck, vec![body.clone()]);
            // Whatever the stuck one is sent, a message to the good one and back goes through.
            assert_eq!(router.try_send(peer, frames(&[&rounds.to_be_bytes()])), Sent::Sent);
            let (at_good, ()) = tokio::join!(told(&mut good), async {
                let _ = router.next().now_or_never();
            });
            let DealerEvent::Message { frames: got } = at_good else { panic!("{at_good:?} instead of a message") };
            assert_eq!(good.try_send(got.clone()), Sent::Sent);
            assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: got });
            rounds += 1;
            match answer {
                Sent::Sent => sent += 1,
                Sent::Full => break,
                Sent::Gone => panic!("it is still connected"),
            }
            assert!(sent < 2_000, "125 MB for one peer that does not read are too much");
        }
        assert!(sent > 100, "a peer may be a hundred inline inputs behind");

        router.disconnect(stuck);
        assert_eq!(router.try_send(stuck, frames(&[b"x"])), Sent::Gone);
        assert_eq!(event(&mut router).await, RouterEvent::Departed { peer: stuck });
        drop(stuck_raw);
    });
}

// Case F05.
#[test]
fn a_dealer_tells_the_end_of_its_link_and_the_new_one_and_carries_nothing_over() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut first = router(&endpoint).await;
            let address = first.endpoint().clone();
            let mut dealer = dealer(&address);
            let peer = meet(&mut first, &mut dealer).await;
            assert_eq!(first.try_send(peer, frames(&[b"the last of the first"])), Sent::Sent);
            soon("closing", first.close(SECONDS)).await;

            // Not noticed yet, so that this goes nowhere.
            let _ = dealer.try_send(frames(&[b"lost with the link"]));
            assert_eq!(told(&mut dealer).await, DealerEvent::Message { frames: frames(&[b"the last of the first"]) });
            assert_eq!(told(&mut dealer).await, DealerEvent::Disconnected);
            assert_eq!(dealer.try_send(frames(&[b"too early"])), Sent::Gone);
            assert!(!dealer.is_connected());

            let mut second = router(&address).await;
            let peer = meet(&mut second, &mut dealer).await;
            assert_eq!(dealer.try_send(frames(&[b"hello"])), Sent::Sent);
            assert_eq!(event(&mut second).await, RouterEvent::Message { peer, frames: frames(&[b"hello"]) });
            soon("closing", second.close(SECONDS)).await;
        }
    });
}

// Case F05.
#[test]
fn a_send_that_waits_for_room_learns_of_the_end_of_its_link() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            let mut dealer = dealer(router.endpoint());
            meet(&mut router, &mut dealer).await;
            soon("closing", router.close(SECONDS)).await;
            // The socket finds out by itself; its owner begins to, and does not wait for the answer.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let _ = dealer.next().now_or_never();
            let told = soon("that the link is gone", async {
                loop {
                    let sent = dealer.send(frames(&[&[0; 100_000]]), 10 * SECONDS).await;
                    if sent != Sent::Sent {
                        break sent;
                    }
                }
            });
            assert_eq!(told.await, Sent::Gone);
        }
    });
}

#[test]
fn a_dealer_that_is_there_first_connects_once_somebody_listens() {
    on_one_thread(async {
        let (_folder, [endpoint, _]) = addresses();
        let mut dealer = dealer(&endpoint);
        assert!(dealer.next().now_or_never().is_none());
        let mut router = router(&endpoint).await;
        meet(&mut router, &mut dealer).await;
    });
}

#[test]
fn a_link_that_is_rebuilt_is_another_peer() {
    on_one_thread(async {
        let (_folder, [endpoint, _]) = addresses();
        let mut router = router(&endpoint).await;
        let mut dealer = dealer(&endpoint);
        let before = meet(&mut router, &mut dealer).await;
        dealer.rebuild();
        assert!(!dealer.is_connected());
        assert_eq!(told(&mut dealer).await, DealerEvent::Disconnected);
        assert_eq!(told(&mut dealer).await, DealerEvent::Connected);
        let mut told = [event(&mut router).await, event(&mut router).await];
        told.sort_by_key(|event| matches!(event, RouterEvent::Arrived { .. }));
        assert_eq!(told[0], RouterEvent::Departed { peer: before });
        assert!(matches!(told[1], RouterEvent::Arrived { peer } if peer != before), "{told:?}");
    });
}

#[test]
fn a_peer_that_is_disconnected_is_told_nothing_more_and_departs_once() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            let mut dealer = dealer(router.endpoint());
            let peer = meet(&mut router, &mut dealer).await;
            assert_eq!(dealer.try_send(frames(&[b"heard or not, it is not told"])), Sent::Sent);
            router.disconnect(peer);
            router.disconnect(peer);
            let (departed, gone) = tokio::join!(event(&mut router), told(&mut dealer));
            assert_eq!(departed, RouterEvent::Departed { peer });
            assert_eq!(gone, DealerEvent::Disconnected);
            assert_ne!(meet(&mut router, &mut dealer).await, peer, "it may come back, as somebody else");
        }
    });
}

#[test]
fn waits_that_are_dropped_lose_no_event() {
    on_one_thread(async {
        let (_folder, [endpoint, _]) = addresses();
        let mut router = router(&endpoint).await;
        let mut dealer = dealer(&endpoint);
        let peer = meet(&mut router, &mut dealer).await;
        let sender = tokio::spawn(async move {
            for n in 0..1_000_u32 {
                assert_eq!(dealer.send(frames(&[&n.to_be_bytes()]), SECONDS).await, Sent::Sent);
            }
            for n in 0..1_000_u32 {
                let got = until(|| dealer.next().now_or_never()).await.expect("the dealer lives");
                assert_eq!(got, DealerEvent::Message { frames: frames(&[&n.to_be_bytes()]) });
            }
            dealer.close(SECONDS).await;
        });
        for n in 0..1_000_u32 {
            let got = until(|| router.next().now_or_never()).await.expect("the router lives");
            assert_eq!(got, RouterEvent::Message { peer, frames: frames(&[&n.to_be_bytes()]) });
        }
        for n in 0..1_000_u32 {
            assert_eq!(router.try_send(peer, frames(&[&n.to_be_bytes()])), Sent::Sent);
        }
        let got = until(|| router.next().now_or_never()).await.expect("the router lives");
        assert_eq!(got, RouterEvent::Departed { peer });
        sender.await.expect("the sender's assertions hold");
    });
}

#[test]
fn one_connection_too_many_is_turned_away_and_comes_in_when_there_is_a_place() {
    on_one_thread(async {
        let (_folder, [endpoint, _]) = addresses();
        let options = RouterOptions { max_connections: 1, ..router_options() };
        let mut router = RouterSocket::bind(&endpoint, options).await.expect("the address is free");
        let mut first = dealer(&endpoint);
        let peer = meet(&mut router, &mut first).await;
        let mut second = dealer(&endpoint);
        let turned_away = async {
            assert_eq!(told(&mut second).await, DealerEvent::Connected);
            assert_eq!(told(&mut second).await, DealerEvent::Disconnected);
        };
        tokio::select! {
            () = turned_away => {}
            told = event(&mut router) => panic!("{told:?} of a peer that has no place"),
        }
        assert!(router.stats().turned_away >= 1);
        first.close(SECONDS).await;
        assert_eq!(event(&mut router).await, RouterEvent::Departed { peer });
        let came = tokio::spawn(async move {
            while told(&mut second).await != DealerEvent::Connected {}
            second
        });
        assert!(matches!(event(&mut router).await, RouterEvent::Arrived { .. }));
        came.await.expect("it is connected");
    });
}

#[test]
fn something_that_is_no_router_is_not_taken_for_a_dispatcher() {
    on_one_thread(async {
        let (folder, [endpoint, _]) = addresses();
        let path = folder.path().join("private/s.sock");
        std::fs::create_dir(folder.path().join("private")).expect("a folder");
        std::fs::set_permissions(folder.path().join("private"), PermissionsExt::from_mode(0o700)).expect("its mode");
        let other = omq_tokio::Socket::new(omq_tokio::SocketType::Dealer, omq_tokio::Options::new());
        let place = omq_tokio::Endpoint::Ipc(omq_tokio::IpcPath::Filesystem(path));
        other.bind(place.clone()).await.expect("the address is free");

        let retry = Duration::from_millis(20);
        let options = DealerOptions { retry_least: retry, retry_most: retry, ..dealer_options() };
        let mut dealer = DealerSocket::connect(&endpoint, options).expect("good options");
        tokio::select! {
            met = soon("a handshake", other.wait_connected(1, SECONDS)) => assert!(met.is_ok()),
            told = told(&mut dealer) => panic!("{told:?} of another DEALER"),
        }
        other.close().await.expect("closed");
        let mut router = router(&endpoint).await;
        let peer = meet(&mut router, &mut dealer).await;
        assert_eq!(dealer.try_send(frames(&[b"hello"])), Sent::Sent);
        assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: frames(&[b"hello"]) });
    });
}

fn impatient() -> RouterOptions {
    RouterOptions { bind_patience: Duration::ZERO, ..router_options() }
}

#[test]
fn an_address_in_use_is_said_to_be_so_and_its_server_is_left_alone() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut here = router(&endpoint).await;
            let address = here.endpoint().clone();
            let refused = RouterSocket::bind(&address, impatient()).await.expect_err("somebody listens there");
            assert!(matches!(refused, SocketError::InUse { .. }), "{refused}");
            meet(&mut here, &mut dealer(&address)).await;

            // With patience it waits for the other to leave.
            let (next, ()) = tokio::join!(RouterSocket::bind(&address, router_options()), here.close(SECONDS));
            meet(&mut next.expect("the address is free by now"), &mut dealer(&address)).await;
        }
    });
}

#[test]
fn a_live_server_that_knows_no_lock_keeps_its_socket_and_a_dead_ones_is_replaced() {
    on_one_thread(async {
        let (folder, _) = addresses();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).expect("its mode");
        let path = folder.path().join("s.sock");
        let endpoint = Endpoint::ipc(&path).expect("a short path");
        let foreign = std::os::unix::net::UnixListener::bind(&path).expect("the path is free");
        let refused = RouterSocket::bind(&endpoint, impatient()).await.expect_err("somebody listens there");
        assert!(matches!(&refused, SocketError::InUse { why, .. } if why.contains("answers")), "{refused}");
        foreign.accept().expect("its socket is still there, and was looked at");

        drop(foreign);
        assert!(path.exists(), "a killed server leaves its socket behind");
        let mut router = router(&endpoint).await;
        meet(&mut router, &mut dealer(&endpoint)).await;
        assert!(std::fs::metadata(&path).expect("it is there").file_type().is_socket());
    });
}

#[test]
fn two_dispatchers_that_find_the_same_dead_socket_cannot_both_take_its_place() {
    on_one_thread(async {
        let (folder, [endpoint, _]) = addresses();
        drop(router(&endpoint).await);
        let lock = std::fs::File::open(folder.path().join("private/s.sock.lock")).expect("it stays");
        until(|| lock.try_lock().ok()).await;
        let refused = RouterSocket::bind(&endpoint, impatient()).await.expect_err("the other one is about to bind");
        assert!(matches!(&refused, SocketError::InUse { why, .. } if why.contains("lock")), "{refused}");
        drop(lock);
        meet(&mut router(&endpoint).await, &mut dealer(&endpoint)).await;
    });
}

#[test]
fn a_file_in_the_way_and_a_folder_open_to_others_are_refused_and_left_as_they_are() {
    on_one_thread(async {
        let (folder, _) = addresses();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).expect("a folder");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("its mode");
        let endpoint = Endpoint::ipc(open.join("s.sock")).expect("a short path");
        let refused = RouterSocket::bind(&endpoint, impatient()).await.expect_err("others may enter");
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
        assert_eq!(std::fs::read_dir(&open).expect("readable").count(), 0, "nothing was put there");

        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o700)).expect("its mode");
        std::fs::write(open.join("s.sock"), "a letter").expect("written");
        let refused = RouterSocket::bind(&endpoint, impatient()).await.expect_err("it is no socket");
        assert!(refused.to_string().contains("is no socket"), "{refused}");
        assert_eq!(std::fs::read(open.join("s.sock")).expect("it is there"), b"a letter");

        let inside_a_file = Endpoint::ipc(open.join("s.sock/deeper/s.sock")).expect("a short path");
        assert!(RouterSocket::bind(&inside_a_file, impatient()).await.is_err());

        let new = folder.path().join("new/er");
        let _router = router(&Endpoint::ipc(new.join("s.sock")).expect("a short path")).await;
        let mode = std::fs::metadata(&new).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "made for its owner alone");
    });
}
