//! What a connection is, and which requests it may send.
//!
//! Walk: [`step`] greets a new connection, then hands each request to its role: [`decisions`], [`store`], [`admin`] ·
//! [`answer`] lays an answer, [`refuse`] a last one · [`goodbye`] tells the engines that a connection has ended.

use assent_frame::Frame;
use assent_ids::Epoch;
use assent_kind::Kind;
use assent_wire::{
    Answer, Hello, LONG, Limits, Long, PAYLOAD_BYTES_MAX, Request, Secret, Session, VERSIONS, Welcome, WireError,
};

use crate::connection::{Connection, Phase};
use crate::deferred::{Deferred, Waits};
use crate::inquiry::{self, Inquiry};
use crate::owed::{Due, Owed};
use crate::seats::Seat;
use crate::shared::{Shared, Timed};
use crate::{admin, decisions, store};

/// The request id of messages that have no answer.
const ONE_WAY: u64 = 0;

/// What a connection is.
#[derive(Debug)]
pub(crate) enum Role {
    /// Not welcomed yet.
    Nobody,
    /// A program that commits transactions.
    Client(Seat),
    /// A program that works on the store.
    Store(store::Seat),
    /// An operator.
    Admin,
}

impl Role {
    /// Whether its owner is in the middle of something that a stop waits for.
    pub(crate) fn has_work(&self) -> bool {
        matches!(self, Self::Store(seat) if !seat.branches.is_empty())
    }

    /// Whether it keeps others from resolving some node's branches.
    pub(crate) const fn has_claim(&self) -> bool {
        matches!(self, Self::Store(seat) if seat.has_claim())
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Client(_) => "client",
            Self::Store(_) => "store",
            Self::Admin => "admin",
        }
    }
}

/// Where an answer goes, and where it waits until it may go.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) connection: &'a mut Connection,
    pub(crate) owed: &'a mut Vec<Owed>,
    pub(crate) deferred: &'a mut Vec<Deferred>,
    /// What is stepped.
    pub(crate) frame: &'a Frame<'a>,
    /// Of a request that has waited for keys and is tried again.
    pub(crate) waits: Option<Waits>,
    pub(crate) desk: usize,
    pub(crate) token: usize,
    pub(crate) mark: u64,
    /// Of a request to the store that has no answer yet.
    pub(crate) timed: Option<Timed>,
}

impl Visit<'_> {
    pub(crate) fn answer(&mut self, it: &Answer<'_>) {
        // One way: nobody waits for an answer, not even to an error.
        if self.mark == ONE_WAY {
            return;
        }
        answer(self.shared, self.connection, self.mark, it);
    }

    pub(crate) fn error(&mut self, kind: Kind, message: &str) {
        self.refused(kind);
        error(self.shared, self.connection, self.mark, kind, message);
    }

    /// It is answered with an error, in whatever form.
    pub(crate) fn refused(&mut self, kind: Kind) {
        self.shared.numbers.refused(kind);
        if let Some(timed) = self.timed.take() {
            timed.ends(self.shared, true);
        }
    }

    /// A value, in parts if it is longer than a frame.
    pub(crate) fn answer_value(&mut self, value: Option<Vec<u8>>) {
        let most = usize::try_from(self.shared.limits.frame_bytes_max).unwrap_or(PAYLOAD_BYTES_MAX);
        match value {
            // With a flag and its length.
            Some(value) if self.is_long() && self.mark != ONE_WAY && value.len() + 5 > most => {
                match self.shared.budget.take(value.len() + 5) {
                    Ok(share) => match Long::value(self.mark, value) {
                        Ok(long) => self.connection.send_long(long, share),
                        Err(error) => self.error(error.kind(), &error.to_string()),
                    },
                    Err((kind, message)) => self.error(kind, &message),
                }
            }
            value => self.answer(&Answer::Value(value.as_deref())),
        }
    }

    /// Whether the other side takes an answer in parts.
    pub(crate) const fn is_long(&self) -> bool {
        self.connection.version >= LONG
    }

    /// Whether one more request of this connection may be under way; answers `Busy` if not.
    pub(crate) fn has_room(&mut self) -> bool {
        let most = self.shared.limits.pending_max;
        if self.connection.pending < most {
            return true;
        }
        self.error(Kind::Busy, &format!("{most} requests of this connection are under way; read answers first"));
        false
    }

    /// Answered at the end of this turn.
    pub(crate) fn owe(&mut self, due: Due) {
        self.connection.pending += 1;
        let timed = self.timed.take();
        self.owed.push(Owed { token: self.token, request: self.mark, due, share: None, timed });
    }
}

/// Takes one frame.
pub(crate) fn step(mut visit: Visit<'_>) {
    let frame = visit.frame;
    let visit = &mut visit;
    if visit.connection.phase == Phase::New {
        return greet(visit, frame);
    }
    let request = match Request::parse(frame) {
        Ok(request) => request,
        Err(error) => return visit.error(error.kind(), &error.to_string()),
    };
    if visit.mark == ONE_WAY && !is_one_way(&request) {
        let message = "request id 0 is for messages without an answer; number this one from 1";
        visit.shared.numbers.refused(Kind::Invalid);
        return refuse(visit.connection, ONE_WAY, Kind::Invalid, message);
    }
    let (since, version) = (request.since(), visit.connection.version);
    if since > version {
        let error = WireError::Since { since, version };
        return visit.error(error.kind(), &error.to_string());
    }
    let name = name(&request);
    visit.shared.numbers.request(name);
    match (&visit.connection.role, request) {
        (_, Request::Ping) => visit.answer(&Answer::Pong),
        (Role::Client(_) | Role::Admin, Request::Ask(tx)) => decisions::ask(visit, tx),
        (Role::Client(client), Request::Decide(decide)) => decisions::decide(visit, *client, &decide),
        (Role::Client(client), Request::Finished(list)) => decisions::finished(visit.shared, client.client, &list),
        (Role::Client(client), Request::Acknowledged(list)) => {
            decisions::acknowledged(visit.shared, client.client, &list)
        }
        (Role::Client(client), Request::Heuristic { tx, told, branches }) => {
            decisions::heuristic(visit.shared, client.client, tx, told, &branches)
        }
        (Role::Client(client), Request::Votes { tx, outcome, votes }) => {
            decisions::voted(visit.shared, client.client, tx, outcome, &votes)
        }
        (Role::Client(client), Request::Noted(noted)) => decisions::noted(visit.shared, client.client, &noted),
        (Role::Client(client), Request::Settle { tx, mark }) => {
            let client = client.client;
            decisions::settle(visit, client, tx, mark);
        }
        (Role::Store(_), Request::Stats) => admin::store_stats(visit),
        (Role::Store(_), request) if store::knows(&request) => {
            visit.timed = Some(Timed { verb: name, began: visit.shared.clock.now() });
            to_store(visit, request);
        }
        (Role::Admin, Request::TxList { after, limit }) => admin::list(visit, after, limit),
        (Role::Admin, Request::TxShow(tx)) => admin::show(visit, tx),
        (Role::Admin, Request::TxRecover) => admin::recover(visit),
        (Role::Admin, Request::Stats) => admin::stats(visit),
        (Role::Admin, request) if let Some(inquiry) = Inquiry::of(&request, || visit.connection.who()) => {
            inquiry::ask(visit, inquiry);
        }
        (role, _) => {
            let message = format!("a {} connection may not send {name}; connect in another role", role.name());
            visit.error(Kind::Denied, &message);
        }
    }
}

/// Takes a request again that has waited for keys: the store's.
pub(crate) fn again(mut visit: Visit<'_>) {
    match Request::parse(visit.frame) {
        Ok(request) => to_store(&mut visit, request),
        Err(error) => visit.error(error.kind(), &error.to_string()),
    }
}

fn to_store(visit: &mut Visit<'_>, request: Request<'_>) {
    store::step(visit, request);
    // What is answered later takes it along.
    if let Some(timed) = visit.timed.take() {
        timed.ends(visit.shared, false);
    }
}

/// What has no answer, and so no request id.
const fn is_one_way(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Finished(_)
            | Request::Acknowledged(_)
            | Request::Heuristic { .. }
            | Request::Votes { .. }
            | Request::Noted(_)
    )
}

fn greet(visit: &mut Visit<'_>, frame: &Frame<'_>) {
    visit.shared.numbers.request("hello");
    let welcomed = Hello::parse(frame, VERSIONS)
        .map_err(|error| (error.kind(), error.to_string()))
        .and_then(|(hello, version)| welcome(visit.shared, &hello.role).map(|it| (it, version)));
    match welcomed {
        Ok(((role, session), version)) => {
            let shared = visit.shared;
            visit.connection.role = role;
            visit.connection.phase = Phase::Open;
            let frame_bytes_max = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(PAYLOAD_BYTES_MAX);
            visit.connection.agreed(version, frame_bytes_max);
            let limits = Limits {
                payload_bytes_max: shared.limits.frame_bytes_max,
                message_bytes_max: u32::try_from(shared.budget.message_bytes_max()).unwrap_or(u32::MAX),
                in_flight_max: shared.limits.pending_max,
                heartbeat_ms: shared.heartbeat_ms,
                client_lost_ms: shared.client_lost_ms,
            };
            let it = Welcome { version, node: shared.node, epoch: shared.epoch(), session, limits };
            // Whatever its id: a hello is always answered.
            answer(shared, visit.connection, visit.mark, &Answer::Welcome(it));
        }
        Err((kind, message)) => {
            visit.shared.numbers.refused(kind);
            refuse(visit.connection, visit.mark, kind, &message);
        }
    }
}

type Refusal = (Kind, String);

fn welcome(shared: &Shared, role: &assent_wire::Role<'_>) -> Result<(Role, Option<Session>), Refusal> {
    if shared.drain.until().is_some() {
        return Err((Kind::Unavailable, "this server is stopping".to_owned()));
    }
    let absent = |what| Err((Kind::NotFound, format!("this server has no {what}; connect to one that has")));
    match role {
        assent_wire::Role::Admin => Ok((Role::Admin, None)),
        assent_wire::Role::Store { .. } => match &shared.kv {
            Some(_) => Ok((Role::Store(store::Seat::default()), None)),
            None => absent("store"),
        },
        assent_wire::Role::Client { label, resume, resources } => {
            let Some(coordinator) = &shared.coordinator else { return absent("coordinator") };
            if let Some(name) = resources.iter().find(|name| !shared.registered.contains_key(**name)) {
                let known: Vec<&str> = shared.registered.keys().map(String::as_str).collect();
                let message = format!("resource {name:?} is not registered here; registered are: {}", known.join(", "));
                return Err((Kind::Invalid, message));
            }
            let session = match resume {
                Some(session) => coordinator.resume(session.incarnation, session.secret.0),
                None => coordinator.handshake(label),
            }
            .map_err(|error| (error.kind(), error.to_string()))?;
            let assent_coordinator::Session { incarnation, secret } = session;
            Ok((Role::Client(shared.seats.take(incarnation)), Some(Session { incarnation, secret: Secret(secret) })))
        }
    }
}

/// Answers with an error, unless nobody waits.
pub(crate) fn error(shared: &Shared, connection: &mut Connection, mark: u64, kind: Kind, message: &str) {
    if mark != ONE_WAY {
        answer(shared, connection, mark, &Answer::Error { kind, message });
    }
}

/// Lays an answer; one that does not fit a message is answered as an error.
pub(crate) fn answer(shared: &Shared, connection: &mut Connection, mark: u64, it: &Answer<'_>) {
    let most = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(PAYLOAD_BYTES_MAX);
    if let Err(error) = it.lay(&mut connection.out, mark, most) {
        shared.numbers.refused(error.kind());
        let message = error.to_string();
        _ = Answer::Error { kind: error.kind(), message: &message }.lay(&mut connection.out, mark, PAYLOAD_BYTES_MAX);
    }
}

/// Lays a last answer; nothing more of this connection is looked at.
pub(crate) fn refuse(connection: &mut Connection, mark: u64, kind: Kind, message: &str) {
    _ = Answer::Error { kind, message }.lay(&mut connection.out, mark, PAYLOAD_BYTES_MAX);
    connection.phase = Phase::Closing;
}

/// Tells the engines that a connection has ended.
pub(crate) fn goodbye(shared: &Shared, connection: &mut Connection) {
    match std::mem::replace(&mut connection.role, Role::Nobody) {
        Role::Nobody | Role::Admin => {}
        Role::Client(seat) => {
            shared.seats.leave(seat);
            if let Some(coordinator) = &shared.coordinator {
                coordinator.lost(seat.client);
                shared.recovery.ring();
            }
        }
        Role::Store(seat) => {
            if let Some(kv) = &shared.kv {
                // A prepared one stays: its coordinator will ask.
                seat.branches.iter().for_each(|xid| kv.abandon(xid));
            }
        }
    }
}

/// The names under which requests are counted.
pub(crate) const KINDS: &[&str] = &[
    "hello",
    "ping",
    "decide",
    "finished",
    "acknowledged",
    "ask",
    "start",
    "end",
    "prepare",
    "commit",
    "commit_one_phase",
    "rollback",
    "recover",
    "forget",
    "claim",
    "inquire",
    "get",
    "write",
    "scan",
    "look",
    "rows",
    "write_if",
    "expect",
    "patience",
    "as_of",
    "keyspace_create",
    "keyspace_drop",
    "keyspaces",
    "store_verify",
    "store_compact",
    "tx_list",
    "tx_show",
    "tx_recover",
    "stats",
    "heuristic",
    "votes",
    "noted",
    "settle",
    "tx_force",
    "tx_forget",
    "tx_log",
    "tx_verify",
];

const fn name(request: &Request<'_>) -> &'static str {
    match request {
        Request::Ping => "ping",
        Request::Decide(_) => "decide",
        Request::Finished(_) => "finished",
        Request::Acknowledged(_) => "acknowledged",
        Request::Ask(_) => "ask",
        Request::Start(_) => "start",
        Request::End { .. } => "end",
        Request::Prepare(_) => "prepare",
        Request::Commit(_) => "commit",
        Request::CommitOnePhase(_) => "commit_one_phase",
        Request::Rollback(_) => "rollback",
        Request::Recover(_) => "recover",
        Request::Forget(_) => "forget",
        Request::Claim(_) => "claim",
        Request::Inquire { .. } => "inquire",
        Request::Get { .. } => "get",
        Request::Write(_) => "write",
        Request::Scan(_) => "scan",
        Request::Look(_) => "look",
        Request::Rows(_) => "rows",
        Request::WriteIf(_) => "write_if",
        Request::Expect(_) => "expect",
        Request::Patience(_) => "patience",
        Request::AsOf(_) => "as_of",
        Request::KeyspaceCreate(_) => "keyspace_create",
        Request::KeyspaceDrop(_) => "keyspace_drop",
        Request::Keyspaces(_) => "keyspaces",
        Request::StoreVerify => "store_verify",
        Request::StoreCompact => "store_compact",
        Request::TxList { .. } => "tx_list",
        Request::TxShow(_) => "tx_show",
        Request::TxRecover => "tx_recover",
        Request::Stats => "stats",
        Request::Heuristic { .. } => "heuristic",
        Request::Votes { .. } => "votes",
        Request::Noted(_) => "noted",
        Request::Settle { .. } => "settle",
        Request::TxForce { .. } => "tx_force",
        Request::TxForget { .. } => "tx_forget",
        Request::TxLog(_) | Request::TxLogVotes(_) | Request::TxLogWitnesses(_) => "tx_log",
        Request::TxVerify { .. } => "tx_verify",
    }
}

impl Shared {
    /// The coordinator's epoch, else the store's.
    fn epoch(&self) -> Epoch {
        let store = || self.kv_log.as_ref().map_or(Epoch(0), |log| log.epoch());
        self.coordinator.as_ref().map_or_else(store, |coordinator| coordinator.epoch())
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation, Mark, ResourceId, TxId};
    use assent_wire::{Decide, Outcome};

    use super::*;

    /// Was: counted nowhere.
    #[test]
    fn what_clients_of_a_last_resource_say_is_counted() {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter: 1 };
        let noted = Decide { tx, outcome: Outcome::Committed, first: true, branches: Vec::new() };
        let mark = Mark { resource: ResourceId::of("bank"), table: 1, timeline: 1 };
        for said in [Request::Noted(noted), Request::Settle { tx, mark }] {
            assert!(KINDS.contains(&name(&said)), "{}", name(&said));
        }
    }
}
