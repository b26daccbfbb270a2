//! What the tests over real sockets share: addresses of both kinds, and waits that fail with what was awaited.
#![expect(clippy::expect_used, clippy::panic, reason = "these functions are parts of tests")]

use crate::declared;
use bytes::Bytes;
use dispatcher_transport::socket::{
    BackendKind, DealerEvent, DealerOptions, DealerSocket, Endpoint, PeerId, RouterEvent, RouterOptions, RouterSocket,
};
use std::future::Future;
use std::time::Duration;
use tempfile::TempDir;

/// The backend that this copy of the suite runs on: each module of `main.rs` that has one is named like it.
pub(crate) fn backend() -> BackendKind {
    let name = module_path!().split("::").nth(1).expect("this file lies in a module");
    name.parse().expect("the module has the name of a backend")
}

pub(crate) fn router_options() -> RouterOptions {
    RouterOptions { backend: backend(), ..RouterOptions::default() }
}

pub(crate) fn dealer_options() -> DealerOptions {
    DealerOptions { backend: backend(), ..DealerOptions::default() }
}

/// An address of each kind, and the folder in which one of them lies.
pub(crate) fn addresses() -> (TempDir, [Endpoint; 2]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ipc = Endpoint::ipc(folder.path().join("private/s.sock")).expect("a short path");
    let tcp = "tcp://127.0.0.1:0".parse().expect("the loopback interface");
    (folder, [ipc, tcp])
}

/// Runs `test` on a current-thread runtime, as the product does; in another process, and to see it fail, where it is
/// declared to fail.
pub(crate) fn on_one_thread<F: Future<Output = ()>>(test: F) {
    if let Some(failure) = declared::failure_of(test_of::<F>()) {
        return failure.is_seen();
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

/// The test that `F` is the body of, as `cargo test` names it.
fn test_of<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, within_the_crate)| within_the_crate);
    name.split_once("::{{").map_or(name, |(test, _)| test)
}

/// The output of `future`, unless it hangs.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(declared::patience(what), future).await {
        Ok(output) => output,
        Err(_) => panic!("{}", declared::nothing_came(what)),
    }
}

pub(crate) async fn router(endpoint: &Endpoint) -> RouterSocket {
    soon("a bind", RouterSocket::bind(endpoint, router_options())).await.expect("the address is free")
}

pub(crate) fn dealer(endpoint: &Endpoint) -> DealerSocket {
    let options = DealerOptions { retry_least: Duration::from_millis(10), ..dealer_options() };
    DealerSocket::connect(endpoint, options).expect("good options")
}

/// The next event of `router`.
pub(crate) async fn event(router: &mut RouterSocket) -> RouterEvent {
    soon("an event of the router", router.next()).await.expect("the router lives")
}

/// The next event of `dealer`.
pub(crate) async fn told(dealer: &mut DealerSocket) -> DealerEvent {
    soon("an event of the dealer", dealer.next()).await.expect("the dealer lives")
}

/// Runs the router until `dealer` is connected, and returns the peer that it is there.
pub(crate) async fn meet(router: &mut RouterSocket, dealer: &mut DealerSocket) -> PeerId {
    let (arrived, connected) = tokio::join!(event(router), told(dealer));
    assert_eq!(connected, DealerEvent::Connected);
    match arrived {
        RouterEvent::Arrived { peer } => peer,
        other => panic!("{other:?} instead of an arrival"),
    }
}

pub(crate) fn frames(parts: &[&[u8]]) -> Vec<Bytes> {
    parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
}

/// Tries again and again, with a turn for everybody else in between, until something comes.
pub(crate) async fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    soon("what was tried again and again", async {
        loop {
            if let Some(come) = attempt() {
                return come;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}
