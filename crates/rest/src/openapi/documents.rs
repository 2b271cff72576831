//! The rows of the documents' listener, in the order of its routes.

use assent_door::Role::{Create, Delete, Modify, View};

use super::Media::{As, Json, Text};
use super::Reach::{Anywhere, Named, Server};
use super::What::{Flag, Moment, Number, Text as Words, Word};
use super::admin::{AUTHORIZE, HEALTH, LOGOUT, METRICS, OPENAPI, TOKEN};
use super::{ONCE, Operation, PREFER, Param, answer, bare, header, query, row, sent};

const MESSAGE: Param = query("commitMessage", Words, "Said of the commit; the history tells it.");
const IF_MATCH: Param = header("If-Match", "The tag that the node must have, else 412.");
const NODE: Param = query("nodeId", Number(0), "The key of a node; without, the document's value.");
const REVISION: Param = query("revision", Number(1), "A revision's number; without, the newest.");

const HASH: Param = query("hashType", Word(&["ROLLING", "POSTORDER", "NONE"]), "Hashes are always on.");
const TAG: Param = query("tag", Words, "The revision of this tag.");

const QUERY: Param = query("query", Words, "JSONiq, as pysirix writes it; reads only.");
const FIRST: Param = query("startResultSeqIndex", Number(0), "The first result that is wanted, of a path or a query.");
const LAST: Param = query("endResultSeqIndex", Number(0), "The last result that is wanted.");

const READ: &[Param] = &[
    REVISION,
    TAG,
    query("revision-timestamp", Moment, "What was the newest then."),
    query("start-revision", Number(1), "The first of a range."),
    query("start-revision-timestamp", Moment, "The first of a range."),
    query("end-revision", Number(1), "The last of a range."),
    query("end-revision-timestamp", Moment, "The last of a range."),
    query("path", Words, "JSONPath (RFC 9535): only what it finds, as `{\"rest\":[…]}`."),
    QUERY,
    FIRST,
    LAST,
    NODE,
    query("maxLevel", Number(1), "So many levels."),
    query("maxChildren", Number(1), "So many children of each container."),
    query("numberOfNodes", Number(1), "So many nodes."),
    query("lastTopLevelNodeKey", Number(0), "Of the first node's children those behind this one."),
    query("nextTopLevelNodes", Number(1), "So many of them."),
    query(
        "withMetaData",
        Word(&["true", "false", "nodeKey", "nodeKeyAndChildCount"]),
        "What is known of each node, too.",
    ),
    query("prettyPrint", Flag, "In lines."),
    header("If-None-Match", "A tag that is known: 304 if it still holds."),
];

/// Every operation of the documents' listener.
pub(crate) const DOCUMENTS: &[Operation] = &[
    HEALTH,
    METRICS,
    TOKEN,
    LOGOUT,
    AUTHORIZE,
    OPENAPI,
    Operation {
        takes: &[(View, Anywhere)],
        asks: &[query("withResources", Flag, "With the names of their documents."), QUERY, FIRST, LAST],
        answers: &[answer(200, "Those that the caller may see; of a query its results.", Json("Object"))],
        ..row("GET", "/", "databases", "The databases.")
    },
    Operation {
        takes: &[(View, Anywhere)],
        asks: &[ONCE, PREFER],
        body: sent(&[Json("Query")]),
        answers: &[answer(200, "Its results; a write has none.", Json("Results"))],
        ..row("POST", "/", "query", "JSONiq, as pysirix writes it; takes also the role of what it does.")
    },
    Operation {
        takes: &[(Delete, Server)],
        asks: &[ONCE],
        answers: &[bare(204, "They are gone.")],
        ..row("DELETE", "/", "dropAll", "Drops every database.")
    },
    Operation {
        takes: &[(View, Named)],
        answers: &[answer(200, "The names of its documents.", Json("Resources"))],
        ..row("GET", "/{database}", "database", "The documents of a database.")
    },
    Operation {
        takes: &[(Create, Named)],
        asks: &[ONCE],
        answers: &[bare(200, "It was there."), bare(201, "It is made.")],
        ..row("PUT", "/{database}", "createDatabase", "Makes a database.")
    },
    Operation {
        takes: &[(Create, Named)],
        asks: &[MESSAGE, HASH, ONCE, PREFER],
        body: sent(&[As("multipart/form-data", "Files")]),
        answers: &[answer(201, "All of them are there, in one commit.", Json("Resources"))],
        ..row("POST", "/{database}", "upload", "Several documents at once, a file each; all of them or none.")
    },
    Operation {
        takes: &[(Delete, Named)],
        asks: &[ONCE],
        answers: &[bare(204, "It is gone, with all its documents.")],
        ..row("DELETE", "/{database}", "dropDatabase", "Drops a database.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: READ,
        answers: &[
            answer(200, "A value; of a range `{\"sirix\":[…]}`. `ETag` is the node's hash.", Json("Any")),
            bare(304, "It is as the caller knows it."),
        ],
        ..row("GET", "/{database}/{resource}", "read", "Reads a document: one revision or several, whole or in part.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: READ,
        answers: &[bare(200, "Its tag."), bare(304, "It is as the caller knows it.")],
        ..row("HEAD", "/{database}/{resource}", "readHead", "The tag of a document or a node.")
    },
    Operation {
        takes: &[(Create, Named), (Modify, Named)],
        asks: &[
            MESSAGE,
            query("overwrite", Flag, "Drops the history; takes `delete` too."),
            HASH,
            IF_MATCH,
            ONCE,
            PREFER,
        ],
        body: sent(&[Json("Any")]),
        answers: &[answer(200, "It has another revision.", Json("Any")), answer(201, "It is made.", Json("Any"))],
        ..row("PUT", "/{database}/{resource}", "putDocument", "Makes a document, or gives it another revision.")
    },
    Operation {
        takes: &[(Modify, Named)],
        asks: &[
            NODE,
            query("insert", Word(&["asFirstChild", "asLeftSibling", "asRightSibling", "replace"]), "Where."),
            MESSAGE,
            IF_MATCH,
            ONCE,
            PREFER,
        ],
        body: sent(&[Json("Any")]),
        answers: &[answer(200, "The document as it is now, if it is short.", Json("Any"))],
        ..row("POST", "/{database}/{resource}", "insert", "Puts a value into a document.")
    },
    Operation {
        takes: &[(Modify, Named)],
        asks: &[MESSAGE, IF_MATCH, ONCE, PREFER],
        body: sent(&[As("application/json-patch+json", "JsonPatch"), As("application/merge-patch+json", "Any")]),
        answers: &[answer(200, "The document as it is now, if it is short.", Json("Any"))],
        ..row("PATCH", "/{database}/{resource}", "patch", "Changes a document, all of it or nothing.")
    },
    Operation {
        takes: &[(Delete, Named)],
        asks: &[NODE, MESSAGE, IF_MATCH, ONCE],
        answers: &[bare(204, "It is gone.")],
        ..row("DELETE", "/{database}/{resource}", "deleteDocument", "Drops a document, or a node of it.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[
            query("revisions", Number(1), "So many, the newest first."),
            query("startRevision", Number(1), "From this one on."),
            query("endRevision", Number(1), "Up to this one."),
        ],
        answers: &[answer(200, "The newest first.", Json("History"))],
        ..row("GET", "/{database}/{resource}/history", "documentHistory", "The revisions of a document.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[
            query("first-revision", Words, "A revision's number, or a moment."),
            query("second-revision", Words, "A revision's number, or a moment."),
            query("startNodeKey", Number(0), "Only below this node."),
            query("maxDepth", Number(1), "So many levels."),
            query("include-data", Flag, "With what is new."),
        ],
        answers: &[answer(200, "What differs.", Json("Diff"))],
        ..row("GET", "/{database}/{resource}/diff", "diff", "What differs between two revisions.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[query("revision", Words, "A revision's number, or a moment."), TAG],
        answers: &[answer(200, "Distinct paths, with how many nodes have each.", Json("PathSummary"))],
        ..row("GET", "/{database}/{resource}/pathSummary", "pathSummary", "The paths of a document.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[
            query("after", Words, "What the page before gave as `next`."),
            query("limit", Number(1), "So many on a page: at most 1000."),
        ],
        answers: &[answer(200, "A page of tags, in order.", Json("Tags"))],
        ..row("GET", "/{database}/{resource}/tags", "tags", "The tags of a document.")
    },
    Operation {
        takes: &[(Modify, Named)],
        asks: &[query("revision", Words, "A revision's number, or a moment; without, the newest."), ONCE, PREFER],
        answers: &[
            answer(200, "It was there, and names this revision now.", Json("Tag")),
            answer(201, "It is there.", Json("Tag")),
        ],
        ..row("PUT", "/{database}/{resource}/tags/{tag}", "putTag", "Names a revision.")
    },
    Operation {
        takes: &[(Delete, Named)],
        asks: &[ONCE],
        answers: &[bare(204, "It is gone; the revision stays.")],
        ..row("DELETE", "/{database}/{resource}/tags/{tag}", "deleteTag", "Takes a tag away.")
    },
    Operation {
        takes: &[(View, Named)],
        asks: &[
            query("since", Words, "All behind this one: a revision's number, or a moment."),
            query("lastEventId", Words, "As the header."),
            header("Last-Event-ID", "The id of the last event that was seen; it goes on behind it."),
        ],
        answers: &[answer(
            200,
            "An event for each revision, until the document is dropped.",
            Text("text/event-stream"),
        )],
        ..row("GET", "/{database}/{resource}/watch", "watch", "Tells each revision of a document as it comes.")
    },
];
