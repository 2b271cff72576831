//! A line to a server that does as it is told, and what may end a transaction.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// A line to a server that greets and then does as it is told. Its folder goes with the first.
fn line_to(serve: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, Line) {
    line_heard(serve, Box::new(|_| {}))
}

fn line_heard(serve: impl FnOnce(UnixStream) + Send + 'static, notices: Notices) -> (tempfile::TempDir, Line) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(format!(".s.PGSQL.{PORT}"))).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        body(&mut stream);
        stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        serve(stream);
    });
    let mut config = Config::new();
    config.user("somebody").host_path(folder.path());
    let Ok(mut line) = Line::connect(&config, PATIENCE, notices) else { panic!("it does not greet") };
    // As for the caller's own work.
    line.limit(None);
    (folder, line)
}

fn body(stream: &mut UnixStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
}

/// Messages of these kinds.
fn hear(stream: &mut UnixStream, asked: &str) {
    for wanted in asked.bytes() {
        let mut kind = [0];
        stream.read_exact(&mut kind).unwrap();
        assert_eq!(kind, [wanted]);
        body(stream);
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &bytes.to_be_bytes(), body].concat()
}

fn error(kind: u8, code: &str) -> Vec<u8> {
    message(kind, format!("SERROR\0VERROR\0C{code}\0Mas told\0\0").as_bytes())
}

/// The server of a message that could not be written to its end waits for the rest, and says nothing.
#[test]
fn a_text_that_cannot_be_written_is_not_waited_for() {
    let (shuts, is_shut) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let (ends, is_over) = mpsc::channel::<()>();
    let (_folder, mut line) = line_to(move |stream| {
        stream.shutdown(Shutdown::Read).unwrap();
        shuts.send(()).unwrap();
        _ = is_over.recv();
    });
    is_shut.recv_timeout(PATIENCE).unwrap();
    std::thread::spawn(move || told.send(line.batch("SELECT 1").is_err()));
    assert_eq!(tells.recv_timeout(PATIENCE), Ok(true), "somebody waits for ever");
    drop(ends);
}

/// What the driver has to say of a statement that is dropped is not waited for before the words behind it are said.
#[test]
fn a_statement_that_is_dropped_takes_no_answer_of_its_own() {
    let (_folder, mut line) = line_to(|mut stream| {
        for (asked, answer) in [
            ("PDS", &b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I"[..]),
            ("CSQ", b"3\0\0\0\x04Z\0\0\0\x05IC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"),
        ] {
            hear(&mut stream, asked);
            stream.write_all(answer).unwrap();
        }
    });
    drop(line.run(async |client| client.prepare("SELECT 1").await).unwrap());
    line.batch("SELECT 1").unwrap();
}

/// Was: notices, a changed setting, a notification or 64 KiB of rows were handed to the driver, whose words could not be let go when another
/// thread had just dropped a statement: the batch was done, and told as lost.
#[test]
fn a_batch_that_is_done_is_not_lost_to_a_statement_that_is_dropped_meanwhile() {
    let (drops, dropped) = mpsc::channel::<tokio_postgres::Statement>();
    let (tells, told) = mpsc::channel();
    let serve = move |mut stream: UnixStream| {
        hear(&mut stream, "PDS");
        stream.write_all(b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I").unwrap();
        hear(&mut stream, "Q");
        drop(dropped.recv().unwrap());
        let (done, ready) = (message(b'C', b"SELECT 1\0"), message(b'Z', b"I"));
        let row = [&[0, 1, 0, 2, 0, 0][..], &vec![b'E'; 2 << 16]].concat();
        let others = [message(b'S', b"a\0b\0"), message(b'A', &[0; 6]), message(b'D', &row)].concat();
        stream.write_all(&[error(b'N', "00007"), others, done.clone(), ready.clone()].concat()).unwrap();
        hear(&mut stream, "CSQ");
        stream.write_all(&[message(b'3', &[]), ready.clone(), done, ready].concat()).unwrap();
    };
    let (_folder, mut line) = line_heard(serve, Box::new(move |code| tells.send(code.to_owned()).unwrap()));
    drops.send(line.run(async |client| client.prepare("SELECT 1").await).unwrap()).unwrap();
    line.batch("SELECT 1").unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["00007"]);
    line.batch("SELECT 1").unwrap();
}

#[test]
fn an_error_is_heard_and_an_end_noticed_wherever_the_answer_is_cut() {
    let (done, ready) = (message(b'C', b"SELECT 1\0"), message(b'Z', b"I"));
    let failed = [done.clone(), error(b'E', "22012"), ready.clone()].concat();
    let serve = move |mut stream: UnixStream| {
        hear(&mut stream, "Q");
        failed.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        hear(&mut stream, "Q");
        stream.write_all(&[done.clone(), ready].concat()).unwrap();
        hear(&mut stream, "Q");
        stream.write_all(&done).unwrap();
    };
    let (_folder, mut line) = line_to(serve);
    let told = line.batch("SELECT 1; SELECT 1/0").unwrap_err();
    assert_eq!(told.code(), Some(&SqlState::DIVISION_BY_ZERO), "{told}");
    line.batch("SELECT 1").unwrap();
    let told = line.batch("SELECT 1; SELECT 2").unwrap_err();
    assert!(told.code().is_none() && line.is_closed(), "{told}");
}

#[test]
fn a_text_that_may_end_its_transaction_is_known() {
    for sql in ["UPDATE t SET n = 1; commit", "RollBack", "ABORT", "end", "PREPARE TRANSACTION 'x'", "SELECT 'sender'"]
    {
        assert!(may_end(sql), "{sql}");
    }
    for sql in ["", "UPDATE t SET n = n + 1 WHERE id = 1", "SELECT count(*) FROM common_items"] {
        assert!(!may_end(sql), "{sql}");
    }
}
