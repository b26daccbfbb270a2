//! What broken and hostile peers do to the built program's own two ports: a good worker is served all the while, memory stays
//! bounded, and afterwards everything is as it was.

use crate::farm::{Farm, Server};
use crate::kit::{full, wait_until};
use crate::peer::{Cortex, Peer, Ports, archive, head, message};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};

const MB: u64 = 1024;
/// Within this a good worker is served while a probe runs.
const PROMPT: Duration = Duration::from_secs(1);
/// How often it may try to be, on a machine that does other things.
const TRIES: usize = 5;
/// However busy the machine is, no try takes longer.
const AT_MOST: Duration = Duration::from_secs(10);
/// What a probe may add to the program's memory, in KB.
const MORE_MEMORY: u64 = 50 * MB;

/// A server on TCP with tasks enough, and a good worker at it.
struct Place {
    farm: Farm,
    ports: Ports,
    server: Server,
    good: Cortex,
    result: Vec<u8>,
    worked: usize,
    longest: Duration,
}

impl Place {
    fn new(inputs: usize, args: &[&str]) -> Self {
        let farm = Farm::with_many(inputs, 30_000);
        farm.import(&[]);
        Self::of(farm, args)
    }

    fn of(mut farm: Farm, args: &[&str]) -> Self {
        let ports = Ports::free();
        farm.listen_at(ports);
        let server = farm.serve_with(args, &[]);
        let good = Cortex::join(ports, "good");
        let mut place = Self {
            farm,
            ports,
            server,
            good,
            result: archive("Info:a:b c\n", 100),
            worked: 0,
            longest: Duration::ZERO,
        };
        // What any use costs is no cost of a probe.
        (0..20).for_each(|_| place.serve_one());
        place
    }

    /// The good worker does one task, and waits for it no longer than it may.
    fn serve_one(&mut self) {
        let is_prompt = (0..TRIES).any(|_| {
            let began = Instant::now();
            self.good.work(&self.result);
            self.worked += 1;
            let took = began.elapsed();
            self.longest = self.longest.max(took);
            assert!(took < AT_MOST, "it was served after {took:?}");
            took < PROMPT
        });
        assert!(is_prompt, "{TRIES} times in a row it was not served within {PROMPT:?}");
    }

    /// A line of the program's status, in KB or as a number.
    fn status(&self, line: &str) -> u64 {
        let path = format!("/proc/{}/status", self.server.running.pid());
        let text = std::fs::read_to_string(path).unwrap();
        let found = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        found.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    }

    fn memory(&self) -> u64 {
        self.status("VmRSS")
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.server.running.pid())).unwrap().count()
    }

    /// Every result that the good worker brought is stored, and nothing else is.
    fn end(self) {
        wait_until("what was brought is stored", || self.farm.count("done") == self.worked as u64);
        self.server.end();
        self.farm.assert_healthy();
    }
}

/// What probes leave open until all of them have run.
type Open = Vec<Peer>;

/// A probe: what a hostile peer does.
type Probe = fn(&mut Place, &mut Open);

// Cases F22, F23, F25, F31. Rules W5, G3, D1.
#[test]
fn a_good_worker_is_served_and_memory_is_bounded_whatever_others_do() {
    let probes: [(&str, Probe); 8] = [
        ("a frame that claims a terabyte", huge_claims),
        ("a message that never ends", endless),
        ("other protocols", strangers),
        ("handshakes that stop half-way", half_shaken),
        ("a flood of requests by who never reads", flood),
        ("a storm of connections", storm),
        ("namesakes", namesakes),
        ("junk on the port for results", junk),
    ];
    let mut place = Place::new(1_000, &[]);
    let mut open = Vec::new();
    for (name, probe) in probes {
        let before = place.memory();
        probe(&mut place, &mut open);
        (0..5).for_each(|_| place.serve_one());
        let grown = place.memory().saturating_sub(before);
        println!("{name}: {} MB more, served within {:?}", grown / MB, std::mem::take(&mut place.longest));
        assert!(grown < MORE_MEMORY, "{name}: {} MB more", grown / MB);
    }
    drop(open);
    place.end();
}

fn huge_claims(place: &mut Place, open: &mut Open) {
    for claim in [u64::MAX, 1 << 40, 1_000_000_000_000, 65 << 20] {
        for more in [false, true] {
            for mut peer in [Peer::dealer(place.ports, "claims"), Peer::push(place.ports)] {
                peer.write(&head(claim, more));
                place.serve_one();
                open.push(peer);
            }
        }
    }
    for peer in open.iter_mut() {
        peer.is_cut();
    }
}

fn endless(place: &mut Place, _: &mut Open) {
    for piece in [vec![0; 100_000], vec![]] {
        for mut peer in [Peer::dealer(place.ports, "endless"), Peer::push(place.ports)] {
            let frame = [head(piece.len() as u64, true), piece.clone()].concat();
            let frames = frame.repeat(if piece.is_empty() { 1000 } else { 1 });
            while peer.write_or_be_cut(&frames) {}
        }
        place.serve_one();
    }
}

fn strangers(place: &mut Place, open: &mut Open) {
    let hello = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 500]].concat();
    for port in [place.ports.requests, place.ports.results] {
        for said in
            [&b"GET / HTTP/1.1\r\nHost: here\r\nCookie: a=b\r\n\r\n"[..], &hello, b"\xff\x00\x80 what is this\n", b""]
        {
            let mut peer = Peer::connect(port);
            peer.write(said);
            open.push(peer);
        }
    }
    place.serve_one();
}

fn half_shaken(place: &mut Place, open: &mut Open) {
    for port in [place.ports.requests, place.ports.results] {
        for _ in 0..100 {
            let mut peer = Peer::connect(port);
            peer.write(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03");
            open.push(peer);
        }
        place.serve_one();
    }
}

fn flood(place: &mut Place, open: &mut Open) {
    let times = if full() { 1_000_000 } else { 200_000 };
    let mut peer = Peer::dealer(place.ports, "flood");
    let requests = message(&[b"x"]).repeat(1000);
    let mut sent = 0;
    let mut looks = 0;
    while sent < times {
        if peer.write_if_there_is_room(&requests) {
            sent += 1000;
        } else {
            // Half a block may be written by now; whatever comes of it harms nobody else.
            looks += 1;
            place.serve_one();
            if looks > 50 {
                break;
            }
        }
    }
    place.serve_one();
    open.push(peer);
}

fn storm(place: &mut Place, _: &mut Open) {
    let times = if full() { 10_000 } else { 1_000 };
    for n in 0..times {
        if n % 2 == 0 {
            drop(Peer::dealer(place.ports, &format!("storm {}", n % 10)));
        } else {
            drop(Peer::connect(if n % 3 == 0 { place.ports.requests } else { place.ports.results }));
        }
        if n % 100 == 0 {
            place.serve_one();
        }
    }
}

fn namesakes(place: &mut Place, open: &mut Open) {
    // An old connection that does not read, and a new one under its name while the old one lives and dies.
    let mut old = Peer::dealer(place.ports, "good");
    old.write(&message(&[b"x"]).repeat(5000));
    let mut new = Cortex::join(place.ports, "good");
    let (id, _) = new.task();
    new.bring(&id, &place.result);
    place.worked += 1;
    drop(old);
    let (id, _) = new.task();
    new.bring(&id, &place.result);
    place.worked += 1;
    // The worker of that name that was there before has lost its name, and takes a new one by coming again.
    place.good = Cortex::join(place.ports, "good again");
    open.push(Peer::dealer(place.ports, "good"));
}

fn junk(place: &mut Place, open: &mut Open) {
    let mut push = Peer::push(place.ports);
    let times = if full() { 60_000 } else { 20_000 };
    let good = place.result.clone();
    for n in 0..times {
        match n % 6 {
            0 => push.send(&[b""]),
            1 => push.send(&[b"w", b"echo"]),
            2 => push.send(&[b"w", b"echo", b"nobody", b"x"]),
            3 => push.send(&[b"w", b"nowhere", b"1", b"x"]),
            4 => push.send(&[b"\x1b[31m", b"\xff\xfe", b"1", b"x"]),
            _ => push.send(&[b"w", b"echo", b"999999999", &good]),
        }
        if n % 1000 == 0 {
            place.serve_one();
        }
    }
    open.push(push);
}

// Case F22. Rule W5.
#[test]
fn a_good_message_between_bad_ones_is_answered_and_stored_to_the_byte() {
    let rounds = if full() { 10_000 } else { 300 };
    let mut place = Place::new(rounds + 20, &[]);
    let (mut dealer, mut push) = (Peer::dealer(place.ports, "bad"), Peer::push(place.ports));
    for round in 0..rounds {
        let bad: Vec<&[u8]> =
            [&[][..], &[&b""[..]], &[b"", b""], &[b"a", b"b", b"c"], &[&b"x"[..]; 4], &[&b"y"[..]; 12]][round % 6]
                .to_vec();
        if bad.is_empty() {
            // A frame of nothing that says more, and the rest.
            dealer.write(&head(0, true));
            push.write(&head(0, true));
        }
        let bad = if bad.is_empty() { vec![&b"z"[..]; 2] } else { bad };
        dealer.send(&bad);
        push.send(&bad);
        place.serve_one();
    }
    place.end();
}

// Case F31.
#[test]
fn twenty_workers_that_once_got_a_large_input_and_one_that_never_reads_cost_no_memory_for_long() {
    let mut place = Place::new(20, &[]);
    let before = place.memory();
    (0..21).for_each(|n| place.farm.input(&format!("large{n}"), &vec![1; 20 << 20]));
    place.farm.import(&[]);
    let mut idle = Vec::new();
    let mut got = 0;
    while got < 20 {
        let mut worker = Cortex::join(place.ports, &format!("idle {}", idle.len()));
        let (id, input) = worker.task();
        got += usize::from(input.len() > 1_000_000);
        worker.bring(&id, &place.result);
        place.worked += 1;
        idle.push(worker);
    }
    let mut stuck = Peer::dealer(place.ports, "stuck");
    stuck.send(&[b"echo"]);
    wait_until("the large inputs are let go", || place.memory().saturating_sub(before) < MORE_MEMORY);
    drop(stuck);
    wait_until("what was brought is stored", || place.farm.count("done") == place.worked as u64);
    place.server.end();
}

// Case F34.
#[test]
fn short_connections_leave_nothing_behind() {
    let mut place = Place::new(200, &[]);
    let (descriptors, before) = (place.descriptors(), place.memory());
    storm(&mut place, &mut Vec::new());
    wait_until("the descriptors are back", || place.descriptors() <= descriptors + 10);
    let grown = place.memory().saturating_sub(before);
    assert!(grown < 20 * MB, "{} MB more", grown / MB);
    place.end();
}

// Case F34.
#[test]
fn at_the_limit_of_open_files_newcomers_are_turned_away_and_old_workers_go_on() {
    let farm = Farm::with_many(200, 30_000);
    farm.import(&[]);
    // A test has a process of its own, whose limit the server inherits.
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..all }).unwrap();
    let mut place = Place::of(farm, &[]);
    setrlimit(Resource::Nofile, all).unwrap();
    let descriptors = place.descriptors();
    let mut crowd: Vec<Peer> = Vec::new();
    for n in 0..300 {
        crowd.push(Peer::connect(if n % 2 == 0 { place.ports.requests } else { place.ports.results }));
        if n % 50 == 0 {
            place.serve_one();
        }
    }
    (0..10).for_each(|_| place.serve_one());
    drop(crowd);
    wait_until("the crowd is gone", || place.descriptors() <= descriptors + 10);
    let mut later = Cortex::join(place.ports, "later");
    later.work(&place.result);
    place.worked += 1;
    place.end();
}

// Case F25. Rule R7.
#[test]
fn a_result_above_the_cap_ends_its_task_and_the_next_one_is_intact() {
    let farm = Farm::with_many(30, 30_000);
    farm.import(&["--result-cap", "100KB"]);
    let mut place = Place::of(farm, &["--archive", "files"]);
    let (id, _) = place.good.task();
    place.good.bring(&id, &archive("Info:a:b c\n", 200_000));
    wait_until("it has ended", || place.farm.look(&["show", &id])["task"]["standing"]["status"] == "invalid");
    place.worked += 1;
    (0..5).for_each(|_| place.serve_one());
    place.end();
}
