//! A line to a server that does as it is told, and what may end a transaction.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// A line to a server that greets and then does as it is told. Its folder goes with the first.
fn line_to(serve: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, Line) {
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
    let Ok(mut line) = Line::connect(&config, PATIENCE, Box::new(|_| {})) else { panic!("it does not greet") };
    // As for the caller's own work.
    line.limit(None);
    (folder, line)
}

fn body(stream: &mut UnixStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
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
            for wanted in asked.bytes() {
                let mut kind = [0];
                stream.read_exact(&mut kind).unwrap();
                assert_eq!(kind, [wanted]);
                body(&mut stream);
            }
            stream.write_all(answer).unwrap();
        }
    });
    drop(line.run(async |client| client.prepare("SELECT 1").await).unwrap());
    line.batch("SELECT 1").unwrap();
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
