//! The rows of the admin listener, in the order of its routes.

use assent_door::Role::{Admin, Create, Delete, Modify, View};

use super::Media::{As, Bytes, Json, Text};
use super::Reach::{Anywhere, Named, Server};
use super::What::{Flag, Number, Text as Words, Word};
use super::{Answer, ONCE, Operation, PREFER, Param, answer, bare, header, perhaps, query, row, sent};

pub(super) const OPEN_METRICS: &str = "application/openmetrics-text";
const FORM: &str = "application/x-www-form-urlencoded";

const TX: Param = query("tx", Words, "Within this transaction, which sees its own writes.");
const DURABILITY: Param =
    query("durability", Word(&["durable", "buffered"]), "Buffered: answered before it is on the disk.");
const IF_MATCH: Param = header("If-Match", "The tag that the key must have, else 412; `*`: it must be there.");
const IF_ABSENT: Param = header("If-None-Match", "`*`: the key must not be there, else 412.");
const AFTER: Param = query("after", Words, "What the page before gave as `next`.");
const LIMIT: Param = query("limit", Number(1), "So many on a page.");

const STANDS: &[Answer] = &[answer(200, "How it stands.", Json("State"))];

/// What anybody may ask.
pub(super) const fn open(method: &'static str, path: &'static str, id: &'static str, says: &'static str) -> Operation {
    Operation { method, path, id, says, takes: &[], asks: &[], body: None, answers: STANDS }
}

pub(super) const HEALTH: Operation = Operation {
    answers: &[answer(200, "It serves.", Json("State")), answer(503, "A part of it does not.", Json("State"))],
    ..open("GET", "/health", "health", "How the server stands.")
};

pub(super) const METRICS: Operation = Operation {
    answers: &[answer(200, "OpenMetrics.", Text(OPEN_METRICS))],
    ..open("GET", "/metrics", "metrics", "Numbers, for Prometheus.")
};

pub(super) const TOKEN: Operation = Operation {
    body: sent(&[Json("Login"), As(FORM, "Login")]),
    answers: &[answer(200, "Tokens. A refresh token is taken once.", Json("Tokens"))],
    ..open("POST", "/token", "token", "Tokens for a password, or for a refresh token.")
};

pub(super) const LOGOUT: Operation = Operation {
    body: perhaps(&[Json("Logout"), As(FORM, "Logout")]),
    answers: &[bare(204, "The session has ended.")],
    ..open("POST", "/logout", "logout", "Ends the session of a token.")
};

pub(super) const AUTHORIZE: Operation = Operation {
    answers: &[],
    ..open("GET", "/user/authorize", "authorize", "Not served (501): there is no page to sign in at.")
};

pub(super) const OPENAPI: Operation = Operation {
    answers: &[answer(200, "This document.", Json("Object"))],
    ..open("GET", "/openapi.json", "openapi", "What this listener serves, as OpenAPI 3.1.")
};

/// Every operation of the admin listener.
pub(crate) const ADMIN: &[Operation] = &[
    HEALTH,
    METRICS,
    TOKEN,
    LOGOUT,
    AUTHORIZE,
    OPENAPI,
    Operation { path: "/v1/health", id: "healthToo", ..HEALTH },
    Operation { path: "/v1/health/ready", id: "ready", says: "Whether it takes requests.", ..HEALTH },
    open("GET", "/v1/health/live", "live", "Whether it is alive."),
    Operation { path: "/v1/metrics", id: "metricsToo", ..METRICS },
    Operation {
        takes: &[(View, Anywhere)],
        answers: &[answer(200, "Version, node, and what it has.", Json("Version"))],
        ..row("GET", "/v1/version", "version", "Who this is.")
    },
    Operation {
        takes: &[(Admin, Server)],
        answers: &[answer(200, "Without secrets.", Json("Object"))],
        ..row("GET", "/v1/config", "config", "The configuration as it was read.")
    },
    Operation {
        takes: &[(Admin, Server)],
        answers: &[answer(200, "As `ASSENT_LOG` has it.", Json("Level"))],
        ..row("GET", "/v1/log-level", "logLevel", "How much is logged.")
    },
    Operation {
        takes: &[(Admin, Server)],
        body: sent(&[Json("Level")]),
        answers: &[answer(200, "Until the next start.", Json("Level"))],
        ..row("PUT", "/v1/log-level", "setLogLevel", "Changes how much is logged.")
    },
    Operation {
        takes: &[(View, Anywhere)],
        answers: &[answer(200, "Those that the caller may see.", Json("Keyspaces"))],
        ..row("GET", "/v1/keyspaces", "keyspaces", "The keyspaces that have names.")
    },
    Operation {
        takes: &[(Create, Named)],
        asks: &[ONCE],
        answers: &[answer(201, "It is there.", Json("Keyspace"))],
        ..row("PUT", "/v1/keyspaces/{name}", "createKeyspace", "Makes a keyspace.")
    },
    Operation {
        takes: &[(Delete, Named)],
        asks: &[ONCE],
        answers: &[bare(204, "It is gone, with all its keys.")],
        ..row("DELETE", "/v1/keyspaces/{name}", "dropKeyspace", "Drops a keyspace.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[
            query("prefix", Words, "Keys that begin so; or `from` and `to`."),
            query("from", Words, "The first key."),
            query("to", Words, "The last key."),
            query("limit", Number(1), "So many on a page: 100, at most 10000."),
            query("values", Flag, "With their values."),
            AFTER,
        ],
        answers: &[answer(200, "A page of keys, in order.", Json("Keys"))],
        ..row("GET", "/v1/keys/{keyspace}", "scan", "Several keys.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[TX, header("If-None-Match", "A tag that is known: 304 if it still holds.")],
        answers: &[answer(200, "The value.", Bytes), bare(304, "It is as the caller knows it.")],
        ..row("GET", "/v1/keys/{keyspace}/{*key}", "get", "A key's value.")
    },
    Operation {
        takes: &[(View, Named)],
        answers: &[bare(200, "What is known of it, in headers.")],
        ..row("HEAD", "/v1/keys/{keyspace}/{*key}", "head", "What is known of a key; no value is read.")
    },
    Operation {
        takes: &[(Modify, Named)],
        asks: &[
            TX,
            DURABILITY,
            query("expires_ms", Number(0), "When it ends, in milliseconds since 1970."),
            query("ttl_ms", Number(0), "When it ends, in milliseconds from now."),
            IF_MATCH,
            IF_ABSENT,
            header("Assent-Metadata", "Bytes beside the value, in Base64."),
            ONCE,
        ],
        body: perhaps(&[Bytes]),
        answers: &[bare(204, "It is written."), answer(202, "It is written in the transaction.", Json("Transaction"))],
        ..row("PUT", "/v1/keys/{keyspace}/{*key}", "put", "Writes a key; the body is the value.")
    },
    Operation {
        takes: &[(Delete, Named)],
        asks: &[TX, DURABILITY, IF_MATCH, IF_ABSENT, ONCE],
        answers: &[bare(204, "It is gone."), answer(202, "It is gone in the transaction.", Json("Transaction"))],
        ..row("DELETE", "/v1/keys/{keyspace}/{*key}", "delete", "Deletes a key.")
    },
    Operation {
        takes: &[(View, Server)],
        asks: &[AFTER, LIMIT],
        answers: &[answer(200, "The caller's open ones, and all in doubt.", Json("Transactions"))],
        ..row("GET", "/v1/transactions", "transactions", "Transactions that are open, in doubt or unfinished.")
    },
    Operation {
        takes: &[(Modify, Anywhere)],
        asks: &[ONCE, PREFER],
        body: perhaps(&[Json("Begin")]),
        answers: &[
            answer(200, "It is committed, as was asked.", Json("Transaction")),
            answer(201, "It is open.", Json("Transaction")),
        ],
        ..row(
            "POST",
            "/v1/transactions",
            "begin",
            "Begins a transaction; with writes, and commits it at once if asked.",
        )
    },
    Operation {
        takes: &[(Modify, Anywhere), (View, Server)],
        answers: &[answer(200, "How it stands.", Json("Transaction"))],
        ..row("GET", "/v1/transactions/{tx}", "transaction", "One transaction.")
    },
    Operation {
        takes: &[(Modify, Anywhere)],
        answers: &[answer(200, "It is undone.", Json("Transaction"))],
        ..row("DELETE", "/v1/transactions/{tx}", "abandon", "Rolls a transaction back.")
    },
    Operation {
        takes: &[(Modify, Anywhere)],
        asks: &[ONCE, PREFER],
        body: sent(&[Json("Writes")]),
        answers: &[answer(202, "They are in the transaction.", Json("Transaction"))],
        ..row("POST", "/v1/transactions/{tx}/writes", "write", "Writes keys and documents within a transaction.")
    },
    Operation {
        takes: &[(Modify, Anywhere)],
        asks: &[ONCE, PREFER],
        answers: &[answer(200, "It is committed.", Json("Transaction"))],
        ..row("POST", "/v1/transactions/{tx}/commit", "commit", "Commits; asked again it tells the same.")
    },
    Operation {
        takes: &[(Modify, Anywhere)],
        answers: &[answer(200, "It is undone.", Json("Transaction"))],
        ..row("POST", "/v1/transactions/{tx}/rollback", "rollback", "Rolls a transaction back.")
    },
    Operation {
        takes: &[(Admin, Server)],
        asks: &[ONCE],
        body: sent(&[Json("Force")]),
        answers: &[answer(200, "It is decided.", Json("Forced"))],
        ..row("POST", "/v1/transactions/{tx}/force", "force", "A person decides a transaction in doubt.")
    },
    Operation {
        takes: &[(Admin, Server)],
        asks: &[ONCE],
        body: sent(&[Json("Forget")]),
        answers: &[bare(204, "It is not listed any more.")],
        ..row(
            "POST",
            "/v1/transactions/{tx}/forget",
            "forget",
            "A person has seen to a transaction that ended otherwise.",
        )
    },
    Operation {
        takes: &[(View, Server)],
        asks: &[
            query("since_ms", Number(0), "Decided then or later."),
            query("until_ms", Number(0), "Decided then or before."),
            query("state", Word(&["committed", "rolled_back", "heuristic", "in_doubt", "forced"]), "Only these."),
            query("resource", Words, "With a branch there."),
            query("tx", Words, "Only this one."),
            AFTER,
            LIMIT,
        ],
        answers: &[answer(200, "What was decided, from the log.", Json("Transactions"))],
        ..row("GET", "/v1/history", "history", "What became of transactions.")
    },
];
