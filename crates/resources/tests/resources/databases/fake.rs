//! A PostgreSQL server that lets everybody in and answers what it is told to: for what a real one does once in a year.
//!
//! Source: PostgreSQL's manual, "Frontend/Backend Protocol", message formats.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What to do with a statement; the others succeed.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// A result with one row for each statement of the message; `NULL` is nothing.
    Rows(&'static [&'static str]),
    /// Never answer.
    Hang,
    /// An error of this severity and SQLSTATE.
    Error(&'static str, &'static str),
    /// Close the connection.
    Close,
}

/// What a connection asks before it is used, and the answers of a primary that prepares.
const USUAL: &[(&str, Behaviour)] = &[
    ("SHOW transaction_read_only", Behaviour::Rows(&["off"])),
    ("SHOW max_prepared_transactions", Behaviour::Rows(&["10", "f"])),
];

/// Starts it; a statement behaves as the first entry says whose text it begins with. Gives its URL.
pub(crate) fn postgres(behaviours: &'static [(&'static str, Behaviour)]) -> String {
    postgres_that_hears(behaviours).0
}

/// The same, and every text that it has heard.
pub(crate) fn postgres_that_hears(
    behaviours: &'static [(&'static str, Behaviour)],
) -> (String, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    #[allow(clippy::disallowed_methods, reason = "a server outside of what is tested")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let hears = Arc::clone(&hears);
            std::thread::spawn(move || serve(stream.unwrap(), behaviours, &hears));
        }
    });
    (format!("postgresql://fake:secret@127.0.0.1:{port}/fake"), heard)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &bytes.to_be_bytes(), body].concat()
}

fn serve(mut stream: TcpStream, behaviours: &[(&str, Behaviour)], hears: &Mutex<Vec<String>>) -> Option<()> {
    read_body(&mut stream)?;
    let ready = message(b'Z', b"I");
    stream.write_all(&[message(b'R', &0_u32.to_be_bytes()), ready.clone()].concat()).ok()?;
    loop {
        let mut kind = [0];
        stream.read_exact(&mut kind).ok()?;
        let body = read_body(&mut stream)?;
        let sql = String::from_utf8(body).ok()?;
        if kind != *b"Q" {
            return None;
        }
        hears.lock().unwrap().push(sql.trim_end_matches('\0').to_owned());
        let done = message(b'C', b"FAKE\0");
        match behaviours
            .iter()
            .chain(USUAL)
            .find(|(beginning, _)| sql.starts_with(beginning))
            .map(|(_, behaviour)| *behaviour)
        {
            Some(Behaviour::Rows(values)) => {
                for value in values {
                    let column = [&b"\0\x01value\0"[..], &[0; 18]].concat();
                    let bytes = u32::try_from(value.len()).unwrap().to_be_bytes();
                    let row = match *value {
                        "NULL" => [&b"\0\x01"[..], &[0xff; 4]].concat(),
                        value => [&b"\0\x01"[..], &bytes, value.as_bytes()].concat(),
                    };
                    stream.write_all(&[message(b'T', &column), message(b'D', &row), done.clone()].concat()).ok()?;
                }
                stream.write_all(&ready).ok()?;
            }
            Some(Behaviour::Hang) => {
                // Until the other side gives up.
                let _ = stream.read(&mut [0]);
                return None;
            }
            Some(Behaviour::Error(severity, state)) => {
                let fields = format!("S{severity}\0V{severity}\0C{state}\0Mas told\0\0");
                stream.write_all(&message(b'E', fields.as_bytes())).ok()?;
                if severity == "FATAL" {
                    return None;
                }
                stream.write_all(&ready).ok()?;
            }
            Some(Behaviour::Close) => return None,
            None => stream.write_all(&[done, ready.clone()].concat()).ok()?,
        }
    }
}

fn read_body(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).ok()?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(bytes)).ok()?.checked_sub(4)?];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}
