//! A server of a few lines, told by a closure what to do with each connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use assent_frame::Frame;
use assent_ids::{Epoch, NodeId};
use assent_link::{Address, Link, LinkConfig, LinkError};
use assent_wire::{Answer, Decoder, Hello, Limits, PAYLOAD_BYTES_MAX, Role, VERSIONS, Welcome};

/// One connection of the server's side.
pub(crate) struct Peer {
    stream: TcpStream,
    decoder: Decoder,
}

/// A request as the server keeps it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) mark: u64,
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

impl Asked {
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame { mark: self.mark, kind: self.kind, flags: 0, chain: 0, payload: &self.payload }
    }
}

impl Peer {
    /// The next message; nothing when the caller has gone.
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

    pub(crate) fn answer(&mut self, mark: u64, answer: &Answer<'_>) {
        let mut bytes = Vec::new();
        answer.lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap();
        self.write(&bytes);
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The caller may have gone: that is part of some stories.
        _ = self.stream.write_all(bytes);
    }

    fn welcome(&mut self, limits: Limits) {
        let hello = self.next().unwrap();
        let (_, version) = Hello::parse(&hello.frame(), VERSIONS).unwrap();
        let welcome = Welcome { version, node: NodeId(1), epoch: Epoch(1), session: None, limits };
        self.answer(hello.mark, &Answer::Welcome(welcome));
    }
}

pub(crate) struct Server {
    pub(crate) address: Address,
    thread: JoinHandle<()>,
}

impl Server {
    /// Takes one connection and plays its part.
    pub(crate) fn plays(part: impl FnOnce(Peer) + Send + 'static) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a server of a test blocks")]
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            part(Peer { stream, decoder: Decoder::new(PAYLOAD_BYTES_MAX) });
        });
        Self { address, thread }
    }

    /// Welcomes one connection and then plays its part.
    pub(crate) fn welcoming(limits: Limits, part: impl FnOnce(Peer) + Send + 'static) -> Self {
        Self::plays(move |mut peer| {
            peer.welcome(limits);
            part(peer);
        })
    }

    pub(crate) fn link(&self, answer_ms: u64) -> Result<Link, LinkError> {
        let config = LinkConfig { answer_ms, connect_ms: 5_000, ..LinkConfig::default() };
        Link::connect(&self.address, &Hello::new(Role::Admin), &config)
    }

    pub(crate) fn end(self) {
        self.thread.join().unwrap();
    }
}
