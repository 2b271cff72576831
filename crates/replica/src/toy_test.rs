//! A small machine, and callers that ask it for one thing after the other: what the simulation of a group is held against where the
//! machine does not matter.

use std::collections::BTreeMap;
use std::io;

use assent_membership::{Ack, Member, Sequence};
use assent_sim::SimClock;

use crate::simulation_test::{Play, Stage};
use crate::{Entry, Machine, Mark, Next, Put};

/// Those who ask.
pub(crate) const CLIENTS: u8 = 2;

/// A request of a client: its number, and how much it adds to which asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) client: u8,
    pub(crate) number: u64,
}

impl Request {
    pub(crate) fn asset(self) -> u8 {
        (self.client ^ self.number.to_le_bytes()[0]) % 5
    }

    pub(crate) fn adds(self) -> u64 {
        self.number * 3 + u64::from(self.client)
    }

    /// Whether its answer waits until it is on the disk of everybody in the set.
    pub(crate) fn is_vote(self) -> bool {
        self.number.is_multiple_of(3)
    }

    /// Of different lengths, so that segments and batches are full at different moments.
    pub(crate) fn payload(self) -> Vec<u8> {
        let mut bytes = vec![self.client];
        bytes.extend(self.number.to_le_bytes());
        bytes.resize(9 + usize::try_from(self.number * 37 % 300).unwrap(), 0xa5);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self { client: bytes[0], number: u64::from_le_bytes(*bytes[1..].first_chunk().unwrap()) }
    }
}

/// What the log leads to. A request that was executed is answered again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toy {
    pub(crate) assets: BTreeMap<u8, u64>,
    /// The last request of each client, and its answer.
    pub(crate) last: BTreeMap<u8, (u64, u64)>,
}

impl Toy {
    fn take(&mut self, request: Request) -> Result<u64, String> {
        let last = self.last.get(&request.client).copied().unwrap_or_default();
        if request.number <= last.0 {
            return Ok(last.1);
        }
        if request.number != last.0 + 1 {
            return Err(format!("{request:?} is applied after {}: a client asks for one after the other", last.0));
        }
        let value = self.assets.entry(request.asset()).or_default();
        *value += request.adds();
        let answer = *value;
        self.last.insert(request.client, (request.number, answer));
        Ok(answer)
    }

    fn save(&self) -> Vec<u8> {
        let mut fields = assent_frame::Writer::new();
        fields.u32(u32::try_from(self.assets.len()).unwrap());
        for (asset, value) in &self.assets {
            fields.u8(*asset).u64(*value);
        }
        for (client, (number, answer)) in &self.last {
            fields.u8(*client).u64(*number).u64(*answer);
        }
        fields.into_vec()
    }
}

impl Machine for Toy {
    type View = Self;

    fn apply(&mut self, _: Sequence, _: u16, command: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
        answer.extend(self.take(Request::parse(command))?.to_le_bytes());
        Ok(())
    }

    fn hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.save())
    }

    fn view(&self) -> Self {
        self.clone()
    }

    /// In chunks as they come: small ones, so that a snapshot has many pieces.
    fn lay(view: &Self, put: Put<'_>) -> io::Result<()> {
        view.save().chunks(32).try_for_each(put)
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn load(&mut self, next: Next<'_>) -> Result<(), String> {
        let bytes: Vec<u8> = std::iter::from_fn(next).flatten().collect();
        if bytes.is_empty() {
            return Ok(());
        }
        let mut fields = assent_frame::Reader::new(&bytes);
        for _ in 0..fields.u32("count").unwrap() {
            self.assets.insert(fields.u8("asset").unwrap(), fields.u64("value").unwrap());
        }
        while !fields.rest().is_empty() {
            let client = fields.u8("client").unwrap();
            self.last.insert(client, (fields.u64("number").unwrap(), fields.u64("answer").unwrap()));
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Client {
    /// The request that has no answer yet, or the next one.
    number: u64,
    asking: bool,
    since_ms: u64,
    member: usize,
}

/// What was told to those who ask a group of toys; one more reads.
#[derive(Debug)]
pub(crate) struct Toys {
    clients: Vec<Client>,
    is_quiet: bool,
    may_lose: bool,
    /// What clients were told.
    pub(crate) acked: BTreeMap<Request, (Mark, u64)>,
    highest_acked: Sequence,
    /// The last vote that was told, which must be on the disk of everybody in the set.
    pub(crate) voted: Sequence,
}

impl Toys {
    /// With `Ack::None` what was acknowledged may be lost.
    pub(crate) fn new(ack: Ack) -> Self {
        let client = Client { number: 1, asking: false, since_ms: 0, member: 0 };
        Self {
            clients: vec![client; usize::from(CLIENTS)],
            is_quiet: false,
            may_lose: ack == Ack::None,
            acked: BTreeMap::new(),
            highest_acked: Sequence(0),
            voted: Sequence(0),
        }
    }

    /// Anybody is asked whether all of it is seen that was acknowledged.
    fn read(&self, stage: &mut Stage<'_, Self>) -> Option<usize> {
        let at = stage.rng.index(stage.seats.len());
        let must = if self.may_lose { Sequence(0) } else { self.highest_acked };
        let time = stage.seats[at].time(stage.now_ms);
        stage.awake(at)?.read(time, must);
        Some(at)
    }
}

impl Play for Toys {
    type Machine = Toy;
    type Front = ();

    fn machine(&self) -> Toy {
        Toy::default()
    }

    fn front(&mut self, _: Member, _: &SimClock) {}

    fn clients(&self) -> u8 {
        CLIENTS + 1
    }

    fn client(&mut self, client: u8, stage: &mut Stage<'_, Self>) -> Result<Option<usize>, String> {
        if self.is_quiet {
            return Ok(None);
        }
        if client == CLIENTS {
            return Ok(self.read(stage));
        }
        let members = stage.seats.len();
        let known = &mut self.clients[usize::from(client)];
        if known.asking && stage.now_ms.saturating_sub(known.since_ms) <= 150 {
            return Ok(None);
        }
        known.member = if known.asking { (known.member + 1) % members } else { known.member };
        (known.asking, known.since_ms) = (true, stage.now_ms);
        let (request, at) = (Request { client, number: known.number }, known.member);
        if stage.awake(at).is_some_and(|up| up.submit(request.payload(), request.is_vote())) {
            return Ok(Some(at));
        }
        // Refused: the next one is asked with the next turn.
        known.since_ms = 0;
        Ok(None)
    }

    fn executed(&mut self, _: Member, _: &Entry, _: &[u8], _: bool) -> Result<(), String> {
        Ok(())
    }

    fn told(&mut self, entry: Mark, command: &[u8], answer: &[u8]) {
        let (request, answer) = (Request::parse(command), u64::from_le_bytes(answer.try_into().unwrap()));
        self.acked.insert(request, (entry, answer));
        self.highest_acked = self.highest_acked.max(entry.sequence);
        let known = self.clients.get_mut(usize::from(request.client));
        if let Some(known) = known.filter(|known| known.number == request.number) {
            (known.asking, known.number) = (false, request.number + 1);
        }
    }

    fn kept(&mut self, entry: Mark) {
        self.voted = self.voted.max(entry.sequence);
    }

    fn voted(&self) -> Sequence {
        self.voted
    }

    fn acknowledged(&self) -> (usize, Sequence) {
        (self.acked.len(), self.highest_acked)
    }

    fn quiet(&mut self) {
        // Their requests would not be understood where some are gone.
        self.is_quiet = true;
    }

    fn is_idle(&self) -> bool {
        true
    }

    /// What clients were told is there, and every request was executed once.
    fn audit(&self, member: Member, toy: &Toy) -> Result<(), String> {
        for (request, (_, answer)) in &self.acked {
            let last = toy.last.get(&request.client).copied().unwrap_or_default();
            if last.0 < request.number || (last.0 == request.number && last.1 != *answer) {
                return Err(format!("{request:?} was answered {answer}; member {member} has {last:?}"));
            }
        }
        let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
        for (client, (last, _)) in &toy.last {
            for number in 1..=*last {
                let request = Request { client: *client, number };
                *sums.entry(request.asset()).or_default() += request.adds();
            }
        }
        if sums != toy.assets {
            return Err(format!("member {member} has {:?}; each request once makes {sums:?}", toy.assets));
        }
        Ok(())
    }
}
