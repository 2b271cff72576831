//! Documents watched over HTTP: each revision once, on from where one was, ends that are told, and nobody who waits for ever.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::house::{Archive, archive};

/// A stream of events, read line by line.
struct Stream {
    socket: TcpStream,
    /// What was read and not yet taken.
    rest: String,
}

/// An event: its id, its name and its data.
type Event = (Option<String>, String, Value);

fn watch(archive: &Archive, path: &str, last: Option<&str>) -> Stream {
    let mut socket = TcpStream::connect(archive.rest.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
    socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{last}\r\n").as_bytes()).unwrap();
    let mut stream = Stream { socket, rest: String::new() };
    let head = stream.until("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    // From here on everything that is committed is told.
    assert!(stream.until("\n\n").unwrap().ends_with(": watching\n\n"));
    stream
}

impl Stream {
    /// Up to and with a text; none where the stream ends before.
    fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.rest.find(end) {
                let behind = self.rest.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.rest, behind));
            }
            let mut bytes = [0; 4096];
            let many = self.socket.read(&mut bytes).unwrap();
            if many == 0 {
                return None;
            }
            self.rest.push_str(std::str::from_utf8(&bytes[..many]).unwrap());
        }
    }

    /// The next piece as it was sent.
    fn piece(&mut self) -> Vec<u8> {
        let bytes = usize::from_str_radix(self.until("\r\n").unwrap().trim_end(), 16).unwrap();
        while self.rest.len() < bytes + 2 {
            let mut more = vec![0; 64 << 10];
            let many = self.socket.read(&mut more).unwrap();
            assert!(many > 0, "the stream ends within a piece");
            self.rest.push_str(std::str::from_utf8(&more[..many]).unwrap());
        }
        let behind = self.rest.split_off(bytes + 2);
        let mut piece = std::mem::replace(&mut self.rest, behind).into_bytes();
        piece.truncate(bytes);
        piece
    }

    /// The next event, whatever is said to keep the stream alive; none at the end.
    fn next(&mut self) -> Option<Event> {
        loop {
            let piece = self.until("\n\n")?;
            // How long each piece is, is said in lines of their own.
            let lines: Vec<&str> = piece.lines().map(str::trim_end).collect();
            let of = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            if let Some(event) = of("event: ") {
                let data = of("data: ").unwrap();
                return Some((of("id: "), event, serde_json::from_str(&data).unwrap()));
            }
        }
    }
}

fn push(archive: &Archive, message: &str) {
    let told = archive.ask("POST", &format!("/db/doc?commitMessage={message}"), &[], b"0");
    assert_eq!(told.status, 200, "{}", told.text());
}

fn documented() -> Archive {
    let archive = archive(None);
    assert_eq!(archive.ask("PUT", "/db/doc", &[], b"[]").status, 201);
    archive
}

#[test]
fn each_revision_is_told_once_from_now_on_or_on_from_where_one_was() {
    let archive = documented();
    let (mut one, mut other) = (watch(&archive, "/db/doc/watch", None), watch(&archive, "/db/doc/watch", None));
    (2..5).for_each(|number| push(&archive, &format!("m{number}")));
    let told: Vec<Event> = (0..3).map(|_| one.next().unwrap()).collect();
    for ((id, event, data), number) in told.iter().zip(2..) {
        assert_eq!(
            (event.as_str(), &data["revision"], &data["author"]),
            ("revision", &json!(number), &json!("anonymous"))
        );
        assert_eq!(data["commitMessage"], format!("m{number}"));
        assert!(id.as_ref().unwrap().starts_with(&format!("{number}.")));
    }
    assert_eq!((0..3).map(|_| other.next().unwrap()).collect::<Vec<_>>(), told);
    // Whoever comes again is told what came meanwhile, and whoever asks from a revision on, what came behind it.
    drop(one);
    push(&archive, "m5");
    let last = told[1].0.clone().unwrap();
    for mut again in [
        watch(&archive, "/db/doc/watch", Some(&last)),
        watch(&archive, &format!("/db/doc/watch?lastEventId={last}"), None),
        watch(&archive, "/db/doc/watch?since=3", None),
    ] {
        assert_eq!(again.next().as_ref(), Some(&told[2]));
        assert_eq!(again.next().unwrap().2["revision"], 5);
    }
    for (path, headers, status) in [
        ("/db/doc/watch", &[("last-event-id", "x")][..], 400),
        ("/db/doc/watch?since=99", &[], 404),
        ("/db/doc/watch?colour=1", &[], 400),
        ("/db/none/watch", &[], 404),
    ] {
        assert_eq!(archive.ask("GET", path, headers, b"").status, status, "{path}");
    }
}

#[test]
fn many_revisions_come_in_pieces_and_none_is_left_out() {
    let archive = documented();
    (0..250).for_each(|_| push(&archive, ""));
    let mut all = watch(&archive, "/db/doc/watch?since=1", None);
    let told: Vec<Value> = (0..250).map(|_| all.next().unwrap().2["revision"].clone()).collect();
    assert_eq!(told, (2..252).map(|number| json!(number)).collect::<Vec<_>>());
}

/// A piece was a hundred revisions: of the longest messages 39 MB, for each stream that read slowly.
#[test]
fn a_piece_ends_where_messages_are_long_and_the_next_goes_on_behind() {
    let archive = documented();
    // A byte that takes six in JSON.
    let message = "%01".repeat(3_000);
    (0..100).for_each(|_| push(&archive, &message));
    let mut all = watch(&archive, "/db/doc/watch?since=1", None);
    assert_eq!(all.until("\r\n").as_deref(), Some("\r\n"), "the end of the first piece");
    let mut told = String::new();
    while told.matches("event: revision").count() < 100 {
        let piece = all.piece();
        assert!(piece.len() <= 1 << 20, "a piece of {} bytes", piece.len());
        told.push_str(std::str::from_utf8(&piece).unwrap());
    }
    let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
    let data: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    for (data, number) in data.iter().zip(2..) {
        assert_eq!((&data["revision"], data["commitMessage"].as_str().unwrap().len()), (&json!(number), 3_000));
    }
    assert_eq!(data.len(), 100);
}

#[test]
fn a_drop_ends_the_stream_and_so_does_the_end_of_the_listener() {
    let archive = documented();
    let mut one = watch(&archive, "/db/doc/watch", None);
    push(&archive, "");
    assert_eq!(one.next().unwrap().1, "revision");
    assert_eq!(archive.ask("DELETE", "/db/doc", &[], b"").status, 204);
    assert_eq!((one.next().unwrap().1.as_str(), one.next()), ("gone", None));
    // Somebody who was told of a document that is another one by now.
    assert_eq!(archive.ask("PUT", "/db/doc", &[], b"[]").status, 201);
    let mut other = watch(&archive, "/db/doc/watch", Some("7.4096"));
    assert_eq!((other.next().unwrap().1.as_str(), archive.get("/db/doc").status), ("truncated", 200));
    // A stream on another thread than the first is told, too: else the stop takes all of its time.
    let began = Instant::now();
    archive.rest.stop(Duration::from_secs(60));
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert_eq!(other.next(), None);
}
