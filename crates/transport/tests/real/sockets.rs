//! The boundary over real sockets, `ipc://` and the loopback interface alike.

use crate::common::{addresses, dealer, event, frames, meet, on_one_thread, router, soon, told};
use dispatcher_transport::socket::{DealerEvent, RouterEvent, Sent};
use std::time::Duration;

#[test]
fn messages_go_both_ways_frame_by_frame_and_a_peer_departs_after_its_last_one() {
    on_one_thread(async {
        let (_folder, endpoints) = addresses();
        for endpoint in endpoints {
            let mut router = router(&endpoint).await;
            let mut dealer = dealer(router.endpoint());
            let peer = meet(&mut router, &mut dealer).await;

            let long = vec![7; 128 * 1024];
            let there = frames(&[b"DSP1", b"", &long]);
            assert_eq!(dealer.try_send(there.clone()), Sent::Sent);
            assert_eq!(dealer.try_send(frames(&[b"second"])), Sent::Sent);
            assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: there });

            let back = frames(&[b"only one"]);
            assert_eq!(router.try_send(peer, back.clone()), Sent::Sent);
            let (second, got) = tokio::join!(event(&mut router), told(&mut dealer));
            assert_eq!(second, RouterEvent::Message { peer, frames: frames(&[b"second"]) });
            assert_eq!(got, DealerEvent::Message { frames: back });

            assert_eq!(dealer.try_send(frames(&[b"last"])), Sent::Sent);
            dealer.close(Duration::from_secs(5)).await;
            assert_eq!(event(&mut router).await, RouterEvent::Message { peer, frames: frames(&[b"last"]) });
            assert_eq!(event(&mut router).await, RouterEvent::Departed { peer });
            assert_eq!(router.try_send(peer, frames(&[b"too late"])), Sent::Gone);
            soon("closing", router.close(Duration::from_secs(5))).await;
        }
    });
}
