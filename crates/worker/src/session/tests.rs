use super::*;
use bytes::Bytes;
use dispatcher_core::id::{EntryName, TaskId};
use dispatcher_core::wire::AckWord;

mod histories;

/// A conversation, told as lines.
struct Talk {
    session: Session,
    now: TimeMs,
}

fn config(slots: u32, prefetch: u32) -> SessionConfig {
    SessionConfig {
        name: "w".to_owned(),
        incarnation: "1".to_owned(),
        endpoints: 1,
        services: vec!["s".to_owned()],
        slots,
        prefetch,
        outbox_max_results: 1_000,
        outbox_max_bytes: 1_000_000_000,
        linger_ms: SpanMs(5_000),
        keeps_results: false,
        seed: 3,
    }
}

fn token(name: &str) -> TokenText {
    TokenText(name.to_owned())
}

/// A task of `size` bytes with a time limit of a minute; its input comes with it only where `body` says so.
fn task(name: &str, size: u64) -> ToWorker {
    ToWorker::Task {
        token: token(name),
        task: TaskId(1),
        service: "s".to_owned(),
        corpus: "c".to_owned(),
        entry: EntryName(name.into()),
        size,
        limit_ms: 60_000,
        attempt: 0,
    }
}

fn ack(name: &str, answer: AckWord) -> ToWorker {
    ToWorker::Ack { token: token(name), answer, why: None }
}

/// An effect as one line.
fn line(effect: &Effect) -> String {
    match effect {
        Effect::Send(message) => said(message),
        Effect::Connect { endpoint: 0 } => "connect".to_owned(),
        Effect::Connect { endpoint } => format!("connect {endpoint}"),
        Effect::Disconnect => "disconnect".to_owned(),
        Effect::SendFinished { token } => format!("result {}", token.0),
        Effect::SendPart { token, name, offset, length } => format!("part {} {name} {offset}+{length}", token.0),
        Effect::Write { token, offset, bytes } => format!("write {} {offset}+{}", token.0, bytes.len()),
        Effect::Start { slot, token, input, .. } => {
            format!("start {} on {slot}{}", token.0, if *input == TaskInput::Fetched { " fetched" } else { "" })
        }
        Effect::Abort { slot, why } => format!("abort {slot} {why:?}"),
        Effect::Forget { token } => format!("forget {}", token.0),
        Effect::Note(note) => format!("note {note:?}"),
        Effect::End(reason) => format!("end {reason:?}"),
    }
}

fn said(message: &FromWorker) -> String {
    let list = |holds: &[Hold]| {
        holds.iter().map(|h| format!(" {}:{:?}", h.token.0, h.state).to_lowercase()).collect::<String>()
    };
    match message {
        FromWorker::Hello { holds, slots, .. } => format!("hello slots={slots}{}", list(holds)),
        FromWorker::Ready { granted } => format!("ready {granted}"),
        FromWorker::Begun { token } => format!("begun {}", token.0),
        FromWorker::Beat { n, received, holds } => format!("beat {n} received={received}{}", list(holds)),
        FromWorker::Fetch { token, offset, length } => format!("fetch {} {offset}+{length}", token.0),
        FromWorker::Release { token } => format!("release {}", token.0),
        FromWorker::Bye => "bye".to_owned(),
        other => format!("{other:?}"),
    }
}

impl Talk {
    fn new(config: SessionConfig) -> Self {
        Self { session: Session::new(config, Vec::new(), TimeMs(0)), now: TimeMs(0) }
    }

    /// A conversation in which the dispatcher has just said welcome, and what was said then.
    fn open(slots: u32, prefetch: u32) -> Self {
        let mut talk = Self::new(config(slots, prefetch));
        assert_eq!(talk.after(0), ["connect"]);
        talk.tell(Event::Up);
        let target = slots + prefetch;
        assert_eq!(talk.welcome(&[]), [format!("ready {target}")]);
        talk
    }

    fn tell(&mut self, event: Event) -> Vec<String> {
        let mut effects = Vec::new();
        self.session.handle(event, self.now, &mut effects);
        effects.iter().map(line).collect()
    }

    fn hear(&mut self, message: ToWorker) -> Vec<String> {
        self.tell(Event::Received { message, body: Bytes::new() })
    }

    /// A task that comes with its input.
    fn hand(&mut self, name: &str) -> Vec<String> {
        self.tell(Event::Received { message: task(name, 2), body: Bytes::from_static(b"hi") })
    }

    fn welcome(&mut self, drop: &[&str]) -> Vec<String> {
        let drop = drop.iter().map(|name| token(name)).collect();
        self.hear(ToWorker::Welcome {
            beat_ms: 2_000,
            dead_after_ms: 30_000,
            inline_max: 65_536,
            chunk_max: 131_072,
            keep: Vec::new(),
            drop,
        })
    }

    fn after(&mut self, ms: u64) -> Vec<String> {
        self.now = self.now.after(SpanMs(ms));
        self.tell(Event::Tick)
    }

    fn ended(&mut self, slot: usize, name: &str, how: Ended) -> Vec<String> {
        self.tell(Event::Ended { slot, token: token(name), how })
    }

    fn finish(&mut self, slot: usize, name: &str) -> Vec<String> {
        self.ended(slot, name, Ended::Finished { bytes: 10 })
    }

    /// Ends the connection and builds the next one, up to the answer to its hello.
    fn reconnect(&mut self) -> Vec<String> {
        assert!(self.tell(Event::Down).ends_with(&["disconnect".to_owned()]));
        assert_eq!(self.after(5_000), ["connect"]);
        self.tell(Event::Up)
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_task_is_begun_before_it_starts_and_forgotten_once_its_result_is_answered() {
    let mut talk = Talk::open(2, 0);
    assert_eq!(talk.hand("a"), ["begun a", "start a on 0"]);
    assert_eq!(talk.hand("b"), ["begun b", "start b on 1"]);
    assert_eq!(talk.finish(0, "a"), ["result a", "ready 3"]);
    assert_eq!(talk.hear(ack("a", AckWord::Stored)), ["forget a"]);
    assert_eq!(talk.hear(ack("b", AckWord::Stored)), NOTHING, "what still runs is not forgotten by an answer");
    assert_eq!(talk.after(2_000), ["beat 1 received=2 b:running"]);
}

#[test]
fn credit_is_cumulative_and_counts_what_waits_and_runs() {
    let mut talk = Talk::open(1, 4);
    assert_eq!(talk.hand("a"), ["begun a", "start a on 0"]);
    ["b", "c", "d"].into_iter().for_each(|name| assert_eq!(talk.hand(name), NOTHING));
    assert_eq!(talk.finish(0, "a"), ["result a", "begun b", "start b on 0"], "one place alone is not worth a message");
    talk.finish(0, "b");
    assert_eq!(talk.finish(0, "c"), ["result c", "begun d", "start d on 0", "ready 8"]);
}

// Rule D7; case F05.
#[test]
fn after_a_lost_connection_everything_held_is_told_and_what_is_finished_sent_again() {
    let mut talk = Talk::open(2, 1);
    ["a", "b", "c"].into_iter().for_each(|name| drop(talk.hand(name)));
    talk.finish(0, "a");
    assert_eq!(talk.tell(Event::Down), ["disconnect"]);
    assert_eq!(
        talk.ended(1, "b", Ended::Finished { bytes: 1 }),
        NOTHING,
        "nothing is sent or begun without a connection"
    );
    let wait = talk.session.wake_at().unwrap();
    assert!((50..=100).contains(&wait.0), "{wait:?}");
    talk.now = wait;
    assert_eq!(talk.after(0), ["connect"]);
    assert_eq!(talk.tell(Event::Up), ["hello slots=2 a:finished b:finished c:running"]);
    assert_eq!(
        talk.welcome(&["c"]),
        ["abort 0 Stopping", "forget c", "result a", "result b", "ready 2"].map(|l| l.replace("Stopping", "Unknown"))
    );
    assert_eq!(talk.finish(0, "c"), ["forget c", "ready 3"], "the slot is free only now");
}

// Case F05.
#[test]
fn the_link_is_dropped_after_three_unanswered_beats_and_built_anew() {
    let mut talk = Talk::open(1, 0);
    assert_eq!(talk.after(2_000), ["beat 1 received=0"]);
    talk.hear(ToWorker::Beat { n: 1, unknown: Vec::new() });
    for n in 2..=4 {
        assert_eq!(talk.after(2_000), [format!("beat {n} received=0")]);
    }
    assert_eq!(talk.after(2_000), ["note BeatsUnanswered", "disconnect"]);
    assert_eq!(talk.after(5_000), ["connect"]);
    assert_eq!(talk.tell(Event::Up), ["hello slots=1"]);
    assert_eq!(talk.after(10_000), ["note NoAnswer", "disconnect"], "a hello is not waited for without end");
}

// Case F05.
#[test]
fn however_long_a_dispatcher_was_away_the_next_try_is_at_most_five_seconds_off() {
    let mut talk = Talk::open(1, 0);
    talk.tell(Event::Down);
    for _ in 0..1_000 {
        let (wait, lines) = next_turn(&mut talk);
        assert_eq!((wait <= 5_000, lines), (true, vec!["connect".to_owned()]));
        // A try lasts long enough for the socket to dial a few times.
        assert_eq!(next_turn(&mut talk).0, 10_000);
    }
}

/// A conversation with the first of three dispatchers.
fn open_with_three() -> Talk {
    let mut talk = Talk::new(SessionConfig { endpoints: 3, ..config(1, 0) });
    assert_eq!(talk.after(0), ["connect"]);
    talk.tell(Event::Up);
    talk.welcome(&[]);
    talk
}

/// Waits as long as the session does, and returns for how long and what it then does.
fn next_turn(talk: &mut Talk) -> (u64, Vec<String>) {
    let wait = talk.session.wake_at().unwrap().since(talk.now).0;
    (wait, talk.after(wait))
}

// Case F05.
#[test]
fn of_several_dispatchers_the_same_one_is_tried_first_and_then_the_others_in_turn() {
    let mut talk = open_with_three();
    talk.tell(Event::Down);
    for (round, turn) in ["connect", "connect 1", "connect 2", "connect", "connect 1"].into_iter().enumerate() {
        let (wait, lines) = next_turn(&mut talk);
        assert_eq!(lines, [turn]);
        // Only a whole round without a link makes the waits longer.
        assert!(wait <= if round < 3 { 100 } else { 200 }, "{wait} ms before turn {round}");
        assert_eq!(next_turn(&mut talk), (2_000, vec!["note NoAnswer".to_owned(), "disconnect".to_owned()]));
    }
    assert_eq!(next_turn(&mut talk).1, ["connect 2"]);
    talk.tell(Event::Up);
    talk.welcome(&[]);
    talk.tell(Event::Down);
    assert_eq!(next_turn(&mut talk).1, ["connect 2"], "what worked is tried first");
}

// Case F05.
#[test]
fn a_silent_dispatcher_and_one_without_room_are_left_for_the_next() {
    let mut talk = open_with_three();
    for _ in 0..3 {
        talk.after(2_000);
    }
    assert_eq!(talk.after(2_000), ["note BeatsUnanswered", "disconnect"]);
    assert_eq!(next_turn(&mut talk).1, ["connect 1"]);
    talk.tell(Event::Up);
    talk.hear(ToWorker::Error { code: ErrorCode::Limit, message: "full".to_owned() });
    assert_eq!(next_turn(&mut talk).1, ["connect 2"]);
    talk.tell(Event::Down);
    assert_eq!(next_turn(&mut talk).1, ["connect"]);
}

#[test]
fn only_when_every_dispatcher_speaks_another_version_the_worker_ends() {
    let mut talk = open_with_three();
    let refuse = || ToWorker::Error { code: ErrorCode::Version, message: "speak 2".to_owned() };
    for turn in ["connect 1", "connect 2"] {
        assert_eq!(talk.hear(refuse()).last().unwrap(), "disconnect");
        assert_eq!(next_turn(&mut talk).1, [turn]);
        talk.tell(Event::Up);
    }
    assert!(talk.hear(refuse()).last().unwrap().starts_with("end Refused"));
}

// Case F07.
#[test]
fn a_worker_that_slept_neither_drops_its_link_nor_insists_on_what_it_lost() {
    let mut talk = Talk::open(1, 0);
    talk.hand("a");
    assert_eq!(talk.after(50_000), ["beat 1 received=1 a:running"]);
    talk.finish(0, "a");
    assert_eq!(talk.hear(ToWorker::Beat { n: 1, unknown: vec![token("a")] }), ["forget a"]);
    assert_eq!(talk.hear(ack("a", AckWord::Superseded)), NOTHING);
    assert_eq!(talk.hand("b"), ["begun b", "start b on 0"], "it takes new work");
}

// Rule A3.
#[test]
fn the_time_limit_runs_from_begun_and_is_told_once() {
    let mut talk = Talk::open(1, 1);
    talk.hand("a");
    talk.hand("b");
    talk.after(30_000);
    assert_eq!(talk.finish(0, "a"), ["result a", "begun b", "start b on 0", "ready 3"]);
    talk.hear(ToWorker::Beat { n: 1, unknown: Vec::new() });
    assert!(!talk.after(59_999).iter().any(|line| line.starts_with("abort")));
    assert_eq!(talk.session.wake_at(), Some(talk.now.after(SpanMs(1))));
    assert_eq!(talk.after(1), ["abort 0 TimeLimit"]);
    assert_eq!(talk.after(1), NOTHING);
}

#[test]
fn a_cancelled_task_is_stopped_and_forgotten_and_its_slot_waits_for_its_end() {
    let mut talk = Talk::open(1, 1);
    talk.hand("a");
    talk.hand("b");
    let cancel = |name| ToWorker::Cancel { token: token(name), why: "asked".to_owned() };
    assert_eq!(talk.hear(cancel("a")), ["abort 0 Cancelled", "forget a"]);
    assert_eq!(talk.hear(cancel("b")), ["forget b", "ready 3"]);
    assert_eq!(talk.ended(0, "a", Ended::GivenBack), ["ready 4"]);
    assert_eq!(talk.hear(cancel("a")), NOTHING);
}

// Rules S1, A2.
#[test]
fn a_drain_gives_back_what_has_not_begun_and_finishes_what_has() {
    let mut talk = Talk::open(1, 2);
    ["a", "b", "c"].into_iter().for_each(|name| drop(talk.hand(name)));
    assert_eq!(talk.hear(ToWorker::Drain), ["forget b", "release b", "forget c", "release c"]);
    assert_eq!(talk.hand("late"), ["release late"]);
    assert_eq!(talk.finish(0, "a"), ["result a"], "and nothing is asked for");
    assert_eq!(talk.hear(ack("a", AckWord::Stored)), ["forget a"]);
    talk.hear(ack("b", AckWord::Stored));
    // The next dispatcher is asked again, and told of what it has not confirmed.
    assert_eq!(talk.reconnect(), ["hello slots=1 c:queued late:queued"]);
    assert_eq!(talk.welcome(&[]), ["release c", "release late", "ready 3"]);
}

// Rule S1.
#[test]
fn stopping_finishes_what_has_begun_and_leaves_when_everything_is_answered() {
    let mut talk = Talk::open(1, 1);
    talk.hand("a");
    talk.hand("b");
    assert_eq!(talk.tell(Event::Stop(StopLevel::Drain)), ["forget b", "release b"]);
    assert_eq!(talk.finish(0, "a"), ["result a"]);
    assert_eq!(talk.hear(ack("b", AckWord::Stored)), ["forget b"]);
    assert_eq!(talk.hear(ack("a", AckWord::Stored)), ["forget a", "bye", "end Stopped"]);
    assert_eq!(talk.after(1_000_000), NOTHING);
}

// Rules S1, A2.
#[test]
fn stopping_at_once_gives_everything_back_and_waits_for_answers_only_so_long() {
    let mut talk = Talk::open(1, 0);
    talk.hand("a");
    assert_eq!(talk.tell(Event::Stop(StopLevel::Now)), ["abort 0 Stopping"]);
    assert_eq!(talk.ended(0, "a", Ended::GivenBack), ["release a"]);
    assert_eq!(talk.after(4_999), ["beat 1 received=1 a:running"]);
    assert_eq!(talk.after(1), ["bye", "end Stopped"]);
}

// Rule S1.
#[test]
fn answers_are_waited_for_as_long_as_was_said_unless_nobody_is_there_or_it_is_to_end_at_once() {
    let patient = |keeps_results| {
        let config = SessionConfig { linger_ms: SpanMs(30_000), keeps_results, ..config(1, 0) };
        let mut talk = Talk::new(config);
        talk.after(0);
        talk.tell(Event::Up);
        talk.welcome(&[]);
        talk.hand("a");
        talk
    };
    // On disk and without a connection: nothing is gained by waiting.
    for (keeps_results, is_away, wait) in
        [(true, true, 5_000), (true, false, 30_000), (false, true, 30_000), (false, false, 30_000)]
    {
        let mut talk = patient(keeps_results);
        talk.finish(0, "a");
        if is_away {
            talk.tell(Event::Down);
        }
        talk.tell(Event::Stop(StopLevel::Drain));
        assert!(!talk.after(wait - 1).iter().any(|line| line.starts_with("end")), "{keeps_results} {is_away}");
        assert_eq!(talk.after(1).last().unwrap(), "end Stopped", "{keeps_results} {is_away}");
        assert_eq!((talk.session.counts().unanswered, talk.session.counts().unconfirmed), (1, 0));
    }
    let mut talk = patient(true);
    talk.tell(Event::Stop(StopLevel::Now));
    talk.ended(0, "a", Ended::GivenBack);
    assert!(talk.after(4_999).iter().all(|line| !line.starts_with("end")));
    assert_eq!(talk.after(1).last().unwrap(), "end Stopped");
    assert_eq!((talk.session.counts().unanswered, talk.session.counts().unconfirmed), (0, 1));
}

#[test]
fn an_idle_worker_stops_at_once_with_or_without_a_connection() {
    assert_eq!(Talk::open(1, 0).tell(Event::Stop(StopLevel::Drain)), ["bye", "end Stopped"]);
    let mut talk = Talk::new(config(1, 0));
    assert_eq!(talk.tell(Event::Stop(StopLevel::Now)), ["connect", "end Stopped"]);
}

#[test]
fn an_input_that_did_not_come_is_fetched_piece_by_piece_before_its_task_begins() {
    let mut talk = Talk::open(1, 0);
    assert_eq!(talk.hear(task("a", 300_000)), ["fetch a 0+131072", "fetch a 131072+131072"]);
    let chunk = |offset, length: usize| Event::Received {
        message: ToWorker::Chunk { token: token("a"), offset },
        body: vec![0; length].into(),
    };
    let written = |upto| Event::Written { token: token("a"), upto };
    assert_eq!(talk.tell(chunk(0, 131_072)), ["write a 0+131072", "fetch a 262144+37856"]);
    assert_eq!(talk.tell(chunk(262_144, 37_856)), NOTHING, "pieces come in order");
    assert_eq!(talk.tell(chunk(131_072, 131_072)), ["write a 131072+131072"]);
    assert_eq!(talk.tell(written(131_072)), NOTHING);
    talk.tell(written(262_144));
    // The connection is lost: what came stays, what was under way is asked for again.
    assert_eq!(talk.reconnect(), ["hello slots=1 a:queued"]);
    assert_eq!(talk.welcome(&[]), ["fetch a 262144+37856"]);
    assert_eq!(
        talk.tell(chunk(262_144, 37_000)),
        ["write a 262144+37000", "fetch a 299144+856"],
        "a short piece is no end"
    );
    assert_eq!(talk.tell(chunk(299_144, 856)), ["write a 299144+856"]);
    assert_eq!(talk.tell(written(300_000)), ["begun a", "start a on 0 fetched"]);
}

#[test]
fn an_input_that_cannot_be_written_down_goes_back_and_nothing_new_is_asked_for_a_while() {
    let mut talk = Talk::open(1, 0);
    talk.hear(task("a", 300_000));
    let failed = Event::InputFailed { token: token("a"), why: "disk full".to_owned() };
    let lines = talk.tell(failed);
    assert!(lines[0].starts_with("note InputFailed"));
    assert_eq!(lines[1..], ["forget a", "release a"]);
    assert_eq!(talk.hear(ack("a", AckWord::Stored)), ["forget a"]);
    talk.after(4_999);
    assert_eq!(talk.after(1), ["ready 2"]);
}

#[test]
fn a_full_outbox_asks_for_nothing_more_until_answers_come() {
    for (max_results, max_bytes) in [(2, 1_000), (1_000, 20)] {
        let limits = SessionConfig { outbox_max_results: max_results, outbox_max_bytes: max_bytes, ..config(1, 0) };
        let mut talk = Talk { session: Session::new(limits, vec![(token("old"), 10)], TimeMs(0)), now: TimeMs(0) };
        talk.after(0);
        assert_eq!(talk.tell(Event::Up), ["hello slots=1 old:finished"]);
        assert_eq!(talk.welcome(&[]), ["result old", "ready 1"]);
        talk.hand("a");
        assert_eq!(talk.finish(0, "a"), ["result a"]);
        assert_eq!(talk.hear(ack("old", AckWord::Stored)), ["forget old", "ready 2"]);
    }
}

#[test]
fn pieces_of_results_are_sent_only_while_they_wait_for_their_answer() {
    let mut talk = Talk::open(1, 0);
    let want = |length| ToWorker::Want { token: token("a"), name: "result".to_owned(), offset: 7, length };
    talk.hand("a");
    assert_eq!(talk.hear(want(10)), NOTHING);
    talk.finish(0, "a");
    assert_eq!(talk.hear(want(u64::MAX)), ["part a result 7+131072"]);
    talk.hear(ack("a", AckWord::Refused));
    assert_eq!(talk.hear(want(10)), NOTHING);
    assert_eq!(talk.session.counts().answers.refused, 1);
}

#[test]
fn a_dispatcher_of_another_version_ends_the_worker_and_one_without_room_is_tried_again() {
    let refuse = |code| ToWorker::Error { code, message: "speak 2".to_owned() };
    let mut talk = Talk::open(1, 0);
    assert!(talk.hear(refuse(ErrorCode::Limit)).ends_with(&["disconnect".to_owned()]));
    let mut talk = Talk::open(1, 0);
    assert!(talk.hear(refuse(ErrorCode::NoService)).iter().all(|line| line.starts_with("note")));
    assert!(talk.hear(refuse(ErrorCode::Version)).last().unwrap().starts_with("end Refused"));
}
