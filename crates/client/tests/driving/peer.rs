//! A coordinator of a few lines: each connection plays the part that the test wrote for it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use assent_client::{Address, ClientConfig, LinkConfig, Retries};
use assent_frame::Frame;
use assent_ids::{Epoch, Incarnation, NodeId};
use assent_kind::Kind;
use assent_wire::{
    Answer, Decoder, Hello, Limits, Outcome, PAYLOAD_BYTES_MAX, Request, Role, Secret, Session, VERSIONS, Welcome,
};

pub(crate) const NODE: NodeId = NodeId(1);

pub(crate) fn session(number: u32) -> Session {
    Session { incarnation: Incarnation { epoch: Epoch(1), number }, secret: Secret(u128::from(number) << 100) }
}

/// One connection of the coordinator's side.
pub(crate) struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

/// A message as the coordinator keeps it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) mark: u64,
    kind: u16,
    payload: Vec<u8>,
}

impl Asked {
    fn frame(&self) -> Frame<'_> {
        Frame { mark: self.mark, kind: self.kind, flags: 0, chain: 0, payload: &self.payload }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request::parse(&self.frame()).unwrap()
    }
}

impl Peer {
    /// The next message; nothing when the client has gone.
    pub(crate) fn next(&mut self) -> Option<Asked> {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                return Some(Asked { mark: frame.mark, kind: frame.kind, payload: frame.payload.to_vec() });
            }
            match self.stream.read(self.decoder.space()) {
                Ok(read @ 1..) => self.decoder.filled(read),
                _ => return None,
            }
        }
    }

    /// The next message that is no heartbeat; those are answered.
    pub(crate) fn next_but_pings(&mut self) -> Option<Asked> {
        loop {
            let asked = self.next()?;
            match asked.request() {
                Request::Ping => self.answer(asked.mark, &Answer::Pong),
                _ => return Some(asked),
            }
        }
    }

    pub(crate) fn answer(&mut self, mark: u64, answer: &Answer<'_>) {
        let mut bytes = Vec::new();
        answer.lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap();
        // The client may have gone: that is part of some stories.
        _ = self.stream.write_all(&bytes);
    }

    /// Answers the greeting; what it asked to resume.
    pub(crate) fn greets(&mut self, node: NodeId, session: Session) -> Option<Session> {
        self.greets_in(Epoch(1), node, session)
    }

    /// The same, after so many starts.
    pub(crate) fn greets_in(&mut self, epoch: Epoch, node: NodeId, session: Session) -> Option<Session> {
        let hello = self.next().unwrap();
        let frame = hello.frame();
        let (hello, version) = Hello::parse(&frame, VERSIONS).unwrap();
        let Role::Client { resume, .. } = hello.role else { panic!("a client greets as one") };
        let limits = Limits::default();
        let welcome = Welcome { version, node, epoch, session: Some(session), limits };
        self.answer(frame.mark, &Answer::Welcome(welcome));
        resume
    }

    pub(crate) fn refuses(&mut self, kind: Kind) {
        let hello = self.next().unwrap();
        self.answer(hello.mark, &Answer::Error { kind, message: "no" });
    }

    /// Answers a decision; whether it was asked for the first time.
    pub(crate) fn decides(&mut self, outcome: Outcome) -> bool {
        let asked = self.next_but_pings().unwrap();
        let Request::Decide(decide) = asked.request() else { panic!("{:?}", asked.request()) };
        let first = decide.first;
        self.answer(asked.mark, &Answer::Decided(outcome));
        first
    }

    /// Answers everything as if all were well, until the client goes.
    pub(crate) fn goes_on(&mut self) {
        while let Some(asked) = self.next_but_pings() {
            match asked.request() {
                Request::Decide(_) => self.answer(asked.mark, &Answer::Decided(Outcome::Committed)),
                Request::Finished(_) | Request::Acknowledged(_) => assert_eq!(asked.mark, 0),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A machine whose kernel takes connections, and where nobody answers.
pub(crate) fn silent() -> (TcpListener, Address) {
    #[expect(clippy::disallowed_methods, reason = "nobody waits on it")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    (listener, address)
}

pub(crate) type Part = Box<dyn FnOnce(Peer) + Send>;

pub(crate) struct Coordinator {
    pub(crate) address: Address,
    thread: JoinHandle<()>,
}

impl Coordinator {
    /// Takes one connection after the other, a part each, and then no more.
    pub(crate) fn plays(parts: Vec<Part>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a coordinator of a test blocks")]
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let thread = std::thread::spawn(move || {
            for part in parts {
                let (stream, _) = listener.accept().unwrap();
                part(Peer { stream, decoder: Decoder::new(PAYLOAD_BYTES_MAX) });
            }
        });
        Self { address, thread }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig {
            link: LinkConfig { connect_ms: 5_000, ..LinkConfig::default() },
            pause_ms: 1,
            decide_ms: 10_000,
            retries: Retries { pause_ms: 0, ..Retries::default() },
            ..ClientConfig::new(self.address.clone(), "test")
        }
    }

    pub(crate) fn end(self) {
        self.thread.join().unwrap();
    }
}
