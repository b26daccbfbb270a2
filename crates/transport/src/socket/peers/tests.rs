use super::*;

/// A table and what it told, driven without any socket.
struct Desk {
    peers: Peers,
    told: VecDeque<RouterEvent>,
    now: Instant,
}

const UNREAD: u64 = 10;

impl Desk {
    fn new(options: RouterOptions) -> Self {
        Self { peers: Peers::new(options, UNREAD), told: VecDeque::new(), now: Instant::now() }
    }

    fn look(&mut self, there: &[u64]) {
        let number = self.peers.begin_look();
        self.answer(number, there);
    }

    fn answer(&mut self, number: u64, there: &[u64]) {
        let there = there.iter().map(|id| (PeerId(*id), route(*id)));
        self.peers.looked(number, there, self.now, &mut self.told);
    }

    fn hear(&mut self, id: u64) {
        self.peers.heard(PeerId(id), || route(id), message(), self.now, &mut self.told);
    }

    fn drained(&mut self) {
        self.peers.drained(&mut self.told);
    }

    fn told(&mut self) -> Vec<RouterEvent> {
        self.told.drain(..).collect()
    }
}

fn desk() -> Desk {
    Desk::new(RouterOptions::default())
}

fn route(id: u64) -> Bytes {
    Bytes::copy_from_slice(&id.to_be_bytes())
}

fn message() -> Vec<Bytes> {
    vec![Bytes::from_static(b"hello")]
}

fn arrived(id: u64) -> RouterEvent {
    RouterEvent::Arrived { peer: PeerId(id) }
}

fn said(id: u64) -> RouterEvent {
    RouterEvent::Message { peer: PeerId(id), frames: message() }
}

fn departed(id: u64) -> RouterEvent {
    RouterEvent::Departed { peer: PeerId(id) }
}

#[test]
fn a_peer_arrives_once_whether_a_look_or_its_message_tells_of_it_first() {
    let mut desk = desk();
    desk.look(&[1]);
    desk.hear(1);
    desk.hear(2);
    desk.look(&[1, 2]);
    assert_eq!(desk.told(), [arrived(1), said(1), arrived(2), said(2)]);
}

#[test]
fn a_peer_departs_only_after_the_messages_that_were_still_unread() {
    let mut desk = desk();
    desk.look(&[1]);
    desk.look(&[]);
    assert_eq!(desk.told(), [arrived(1)], "something of it may be unread");
    desk.hear(1);
    desk.drained();
    desk.drained();
    assert_eq!(desk.told(), [said(1), departed(1)]);
}

#[test]
fn a_peer_departs_in_bounded_time_even_if_there_is_always_something_to_read() {
    let mut desk = desk();
    desk.look(&[1, 2]);
    desk.look(&[2]);
    desk.told();
    for _ in 1..UNREAD {
        desk.hear(2);
    }
    assert!(!desk.told().contains(&departed(1)));
    desk.hear(2);
    assert_eq!(desk.told(), [said(2), departed(1)]);
}

#[test]
fn a_look_that_was_asked_for_before_a_peer_was_known_does_not_miss_it() {
    let mut desk = desk();
    let early = desk.peers.begin_look();
    desk.hear(1);
    desk.answer(early, &[]);
    desk.drained();
    assert_eq!(desk.told(), [arrived(1), said(1)]);
    assert!(desk.peers.look_is_due(), "nothing else would tell that it is gone");
    desk.look(&[]);
    desk.drained();
    assert_eq!(desk.told(), [departed(1)]);
    assert!(!desk.peers.look_is_due());
}

#[test]
fn nothing_is_told_of_a_peer_that_was_cut_but_its_departure() {
    let mut desk = desk();
    desk.look(&[1]);
    desk.peers.cut(PeerId(1));
    desk.peers.cut(PeerId(1));
    assert_eq!(desk.peers.take_cuts(), [PeerId(1)], "it is closed once");
    assert_eq!(desk.peers.route(PeerId(1)), None, "and not sent to");
    desk.hear(1);
    desk.look(&[]);
    desk.hear(1);
    desk.drained();
    assert_eq!(desk.told(), [arrived(1), departed(1)]);
}

#[test]
fn nothing_at_all_is_told_of_a_peer_for_which_there_is_no_place() {
    let mut desk = Desk::new(RouterOptions { max_connections: 1, ..RouterOptions::default() });
    desk.look(&[1, 2]);
    desk.hear(2);
    assert_eq!(desk.peers.take_cuts(), [PeerId(2)]);
    assert_eq!(desk.peers.stats().turned_away, 1);
    desk.look(&[1]);
    desk.drained();
    assert_eq!(desk.told(), [arrived(1)]);
    desk.look(&[3]);
    assert_eq!(desk.peers.take_cuts(), [PeerId(3)], "the place is taken until its peer departed");
    desk.drained();
    desk.look(&[3, 4]);
    assert_eq!(desk.told(), [departed(1), arrived(4)], "and then it is free, whoever waits to be closed");
}

// Case F27.
#[test]
fn a_chosen_identity_moves_to_the_last_connection_and_nothing_meant_for_the_first_follows_it() {
    let mut desk = desk();
    let name = Bytes::from_static(b"worker");
    let number = desk.peers.begin_look();
    desk.peers.looked(number, [(PeerId(1), name.clone())], desk.now, &mut desk.told);
    assert_eq!(desk.peers.route(PeerId(1)), Some(&name));
    let number = desk.peers.begin_look();
    desk.peers.looked(number, [(PeerId(2), name.clone())], desk.now, &mut desk.told);
    assert_eq!(desk.peers.route(PeerId(1)), None);
    assert_eq!(desk.peers.route(PeerId(2)), Some(&name));
    desk.drained();
    assert_eq!(desk.peers.route(PeerId(2)), Some(&name), "the departure of the first takes nothing from the second");
}

#[test]
fn a_peer_that_sends_more_than_it_may_is_cut_and_the_others_are_not() {
    let mut desk = Desk::new(RouterOptions { burst_bytes: 100, bytes_per_second: 0, ..RouterOptions::default() });
    desk.look(&[1, 2]);
    desk.hear(1);
    desk.hear(1);
    desk.hear(2);
    assert_eq!(desk.told(), [arrived(1), arrived(2), said(1), said(2)]);
    assert_eq!(desk.peers.take_cuts(), [PeerId(1)]);
    assert_eq!(desk.peers.stats(), RouterStats { connections: 1, turned_away: 0, over_allowance: 1 });
    desk.peers.expect(PeerId(2), 1_000);
    desk.hear(2);
    assert_eq!(desk.told(), [said(2)], "what was asked for is not held against it");
}

#[test]
fn what_waits_for_a_peer_is_forgotten_with_it() {
    let mut desk = desk();
    desk.look(&[1, 2]);
    for peer in [PeerId(1), PeerId(2)] {
        assert_eq!(desk.peers.queue(peer, message()), Sent::Sent);
    }
    assert!(desk.peers.waiting() > 0);
    desk.peers.cut(PeerId(1));
    desk.look(&[]);
    assert_eq!(desk.peers.waiting(), 0);
    assert_eq!(desk.peers.next_queued(PeerId(2)), None);
    assert_eq!(desk.peers.queue(PeerId(3), message()), Sent::Gone);
}
