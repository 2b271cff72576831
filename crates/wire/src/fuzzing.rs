//! Plain functions over arbitrary bytes; they must return. Run for seconds by the tests, for hours by a fuzzer.

use assent_frame::{Frame, PAYLOAD_BYTES_MAX};

use crate::{Answer, Assembly, Decoder, Hello, Request, VERSIONS};

/// The bytes as a stream, in pieces whose sizes are taken from the bytes too.
pub fn decoder(bytes: &[u8]) {
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    let mut rest = bytes;
    while let Some((first, _)) = rest.split_first() {
        let space = decoder.space();
        let take = space.len().min(rest.len()).min(usize::from(*first) + 1);
        let (piece, behind) = rest.split_at_checked(take).unwrap_or((rest, &[]));
        space.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
        decoder.filled(take);
        rest = behind;
        loop {
            match decoder.frame() {
                Ok(Some(frame)) => message(&frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// The bytes as parts of long messages: two bytes of each part say its length and its claim.
pub fn parts(bytes: &[u8]) {
    const MOST: usize = 1 << 12;
    let (mut rest, mut begun) = (bytes, None::<Assembly>);
    while let Some(([length, claim], behind)) = rest.split_first_chunk::<2>() {
        let (payload, next) = behind.split_at_checked((*length).into()).unwrap_or((behind, &[]));
        rest = next;
        // Most claims are what follows, so that chance comes far.
        let left = if claim & 1 == 0 { payload.len() + next.len() } else { usize::from(*claim) };
        let chain = u32::try_from(left).unwrap_or(u32::MAX);
        let frame = Frame { mark: u64::from(claim >> 6), kind: 0x31, flags: 1, chain, payload };
        begun = match begun.take() {
            None if Assembly::announced(&frame) > MOST => None,
            None => Assembly::begin(&frame, claim & 2 == 0).ok(),
            Some(mut it) => it.add(&frame).is_ok().then_some(it),
        };
        if let Some(whole) = begun.take_if(|it| it.is_whole()) {
            assert!(whole.frame().payload.len() <= MOST, "no more than was announced");
            message(&whole.frame());
        }
    }
}

/// The bytes as the payload of a message whose kind are the first two.
pub fn messages(bytes: &[u8]) {
    if let Some((kind, payload)) = bytes.split_first_chunk::<2>() {
        message(&Frame { mark: 1, kind: u16::from_le_bytes(*kind), flags: 0, chain: 0, payload });
    }
}

/// The bytes as the payload of a first frame.
pub fn handshake(bytes: &[u8]) {
    hello(&Frame { mark: 0, kind: 1, flags: 0, chain: 0, payload: bytes });
}

fn message(frame: &Frame<'_>) {
    hello(frame);
    let mut out = Vec::new();
    if let Ok(request) = Request::parse(frame) {
        assert!(request.lay(&mut out, frame.mark, PAYLOAD_BYTES_MAX).is_ok(), "what came in goes out");
        assert!(again(&out).is_some_and(|frame| Request::parse(&frame) == Ok(request)), "and is the same");
    }
    out.clear();
    if let Ok(answer) = Answer::parse(frame) {
        assert!(answer.lay(&mut out, frame.mark, PAYLOAD_BYTES_MAX).is_ok(), "what came in goes out");
        assert!(again(&out).is_some_and(|frame| Answer::parse(&frame) == Ok(answer)), "and is the same");
    }
}

fn hello(frame: &Frame<'_>) {
    let mut out = Vec::new();
    if let Ok((hello, _)) = Hello::parse(frame, VERSIONS) {
        assert!(hello.lay(&mut out, frame.mark).is_ok(), "what came in goes out");
        let back = again(&out).map(|frame| Hello::parse(&frame, VERSIONS));
        assert!(back.is_some_and(|back| back.is_ok_and(|(back, _)| back == hello)), "and is the same");
    }
}

fn again(bytes: &[u8]) -> Option<Frame<'_>> {
    assent_frame::parse(bytes, PAYLOAD_BYTES_MAX).ok().flatten().map(|(frame, _)| frame)
}
