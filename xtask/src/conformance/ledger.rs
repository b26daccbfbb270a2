//! What holds for every message of a worker, whatever a check is about.
//!
//! **Owns** the books of one program: what it was given, what it said of it, what was settled; and the counts of its
//! connection. **Refuses to know** sockets. A message that breaks a rule of `docs/protocol.md` is an error that names it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use dispatcher_core::wire::{FromWorker, Hold, HoldState, TokenText};
use dispatcher_transport::limits::MAX_HOLDS;

/// One task that the program was given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) input: Vec<u8>,
    /// How many tasks were sent on its connection up to it; none once that connection is over.
    at: Option<u64>,
    begun: bool,
    answered: bool,
    /// In which connection an answer, a cancel or the like let the program forget it.
    settled: Option<u64>,
}

/// The counts of one connection.
#[derive(Debug, Default)]
struct Connection {
    number: u64,
    said_hello: bool,
    welcomed: bool,
    granted: u64,
    sent: u64,
    beats: u64,
    /// Fetches that were not answered.
    fetches: VecDeque<(TokenText, u64, u64)>,
    /// Pieces that were asked for and did not come.
    wants: Vec<(TokenText, String, u64, u64)>,
}

/// The books.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    given: BTreeMap<TokenText, Given>,
    slots: usize,
    here: Connection,
    pub(super) chunk_max: u64,
    /// What the newest list of holds said, and how many lists there were.
    pub(super) holds: BTreeMap<TokenText, HoldState>,
    pub(super) lists: u64,
}

impl Ledger {
    /// A new connection begins.
    pub(super) fn connected(&mut self) {
        self.here = Connection { number: self.here.number + 1, ..Connection::default() };
        self.given.values_mut().for_each(|given| given.at = None);
    }

    /// A process was killed: what it had and had not finished is gone with it.
    pub(super) fn killed(&mut self) {
        let number = self.here.number;
        for given in self.given.values_mut().filter(|given| !given.answered) {
            given.settled.get_or_insert(number);
        }
    }

    pub(super) fn welcomed(&mut self, chunk_max: u64) {
        self.here.welcomed = true;
        self.chunk_max = chunk_max;
    }

    /// How many more tasks the program asks for.
    pub(super) fn credit(&self) -> u64 {
        self.here.granted.saturating_sub(self.here.sent)
    }

    pub(super) fn granted(&self) -> u64 {
        self.here.granted
    }

    pub(super) fn gave(&mut self, token: &TokenText, input: Vec<u8>) {
        self.here.sent += 1;
        let at = Some(self.here.sent);
        let fresh = Given { input, at, begun: false, answered: false, settled: None };
        self.given.entry(token.clone()).or_insert(fresh);
    }

    /// A task that was given before was sent again, which counts.
    pub(super) fn sent_again(&mut self) {
        self.here.sent += 1;
    }

    pub(super) fn has_fetches(&self) -> bool {
        !self.here.fetches.is_empty()
    }

    pub(super) fn settled(&mut self, token: &TokenText) {
        if let Some(given) = self.given.get_mut(token) {
            given.settled = Some(self.here.number);
        }
    }

    pub(super) fn input(&self, token: &TokenText) -> &[u8] {
        self.given.get(token).map_or(&[], |given| &given.input)
    }

    pub(super) fn wanted(&mut self, token: &TokenText, name: &str, offset: u64, length: u64) {
        self.here.wants.push((token.clone(), name.to_owned(), offset, length));
    }

    /// The fetch that has to be answered next.
    pub(super) fn next_fetch(&mut self) -> Option<(TokenText, u64, u64)> {
        self.here.fetches.pop_front()
    }

    /// Takes one message, or says what is wrong with it.
    pub(super) fn hear(&mut self, message: &FromWorker, bodies: &[Bytes]) -> Result<()> {
        let is_hello = matches!(message, FromWorker::Hello { .. });
        ensure!(is_hello || self.here.said_hello, "the first message of a connection is hello");
        ensure!(!is_hello || !self.here.said_hello, "hello is said once on a connection");
        let may_come_early = is_hello || matches!(message, FromWorker::Beat { .. } | FromWorker::Bye);
        ensure!(may_come_early || self.here.welcomed, "nothing but beats is said before welcome");
        match message {
            FromWorker::Hello { holds, slots, .. } => {
                self.here.said_hello = true;
                self.slots = usize::try_from(*slots)?;
                self.list(holds, 0)
            }
            FromWorker::Ready { granted } => self.ready(*granted),
            FromWorker::Begun { token } => self.begun(token),
            FromWorker::Beat { n, received, holds } => {
                self.here.beats += 1;
                ensure!(*n == self.here.beats, "beats are numbered from 1 on each connection: {n} is not the next");
                ensure!(
                    *received <= self.here.sent,
                    "it has received {received} tasks, and {} were sent",
                    self.here.sent
                );
                self.list(holds, *received)
            }
            FromWorker::Fetch { token, offset, length } => self.fetch(token, *offset, *length),
            FromWorker::Result { token, .. } | FromWorker::Retryable { token, .. } => {
                let begun = self.open(token, "answers")?.begun;
                ensure!(begun, "an answer comes after begun");
                self.note(token, |given| given.answered = true);
                Ok(())
            }
            FromWorker::Part { token, name, offset } => self.part(token, name, *offset, bodies),
            FromWorker::Release { token } => self.open(token, "releases").map(|_| ()),
            FromWorker::Bye => Ok(()),
        }
    }

    fn note(&mut self, token: &TokenText, change: impl FnOnce(&mut Given)) {
        if let Some(given) = self.given.get_mut(token) {
            change(given);
        }
    }

    /// A task that was given and that the program may still speak of: what lets it forget may be on its way to it.
    fn open(&self, token: &TokenText, verb: &str) -> Result<&Given> {
        let Some(given) = self.given.get(token) else {
            bail!("it {verb} the token {}, which it was never given", token.0)
        };
        let is_late = given.settled.is_some_and(|number| number < self.here.number);
        ensure!(!is_late, "it {verb} {}, which it was told to forget on an earlier connection", token.0);
        Ok(given)
    }

    fn ready(&mut self, granted: u64) -> Result<()> {
        self.here.granted = self.here.granted.max(granted);
        let credit = usize::try_from(self.credit())?;
        ensure!(credit <= MAX_HOLDS, "it asks for {credit} tasks, and may have {MAX_HOLDS}");
        Ok(())
    }

    fn begun(&mut self, token: &TokenText) -> Result<()> {
        let given = self.open(token, "begins")?;
        ensure!(!given.begun, "it begins {} twice", token.0);
        self.note(token, |given| given.begun = true);
        let runs = |given: &&Given| given.begun && !given.answered && given.settled.is_none();
        let running = self.given.values().filter(runs).count();
        ensure!(running <= self.slots, "it works on {running} tasks at once and said that it has {} slots", self.slots);
        Ok(())
    }

    /// A list of holds is authoritative: everything is in it, and nothing else.
    fn list(&mut self, holds: &[Hold], received: u64) -> Result<()> {
        let listed: BTreeSet<_> = holds.iter().map(|hold| &hold.token).collect();
        for (token, given) in self.given.iter().filter(|(_, given)| given.settled.is_none()) {
            let ought = given.at.is_none_or(|at| at <= received);
            ensure!(
                !ought || listed.contains(token),
                "{} is not among its holds, and nothing let it forget that",
                token.0
            );
        }
        for hold in holds {
            let given = self.open(&hold.token, "lists")?;
            let fits = match hold.state {
                HoldState::Queued => !given.begun,
                HoldState::Running => !given.answered,
                HoldState::Finished => true,
            };
            ensure!(fits || given.settled.is_some(), "it lists {} as {:?}, and that is over", hold.token.0, hold.state);
        }
        self.holds = holds.iter().map(|hold| (hold.token.clone(), hold.state)).collect();
        self.lists += 1;
        Ok(())
    }

    fn fetch(&mut self, token: &TokenText, offset: u64, length: u64) -> Result<()> {
        let size = self.open(token, "fetches")?.input.len() as u64;
        let is_within = offset.checked_add(length).is_some_and(|end| end <= size);
        ensure!(is_within, "it fetches {length} bytes from {offset} on of an input of {size}");
        let most = self.chunk_max;
        ensure!((1..=most).contains(&length), "it fetches {length} bytes at once: 1 to chunk_max, which is {most}");
        self.here.fetches.push_back((token.clone(), offset, length));
        let waiting = self.here.fetches.len();
        ensure!(waiting <= 2, "it waits for {waiting} pieces at once: two at most");
        Ok(())
    }

    fn part(&mut self, token: &TokenText, name: &str, offset: u64, bodies: &[Bytes]) -> Result<()> {
        let length = bodies.first().map_or(0, Bytes::len) as u64;
        let is_it = |want: &(TokenText, String, u64, u64)| {
            (&want.0, want.1.as_str(), want.2, want.3) == (token, name, offset, length)
        };
        let Some(at) = self.here.wants.iter().position(is_it) else {
            bail!("it sends {length} bytes of {name} from {offset} on, which nobody wants");
        };
        self.here.wants.remove(at);
        Ok(())
    }
}
