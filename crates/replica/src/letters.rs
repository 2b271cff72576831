//! The letters of `membership` in bytes, and what they are made of.
//!
//! ```text
//!   configuration   | version 8 | epoch 4 | primary 1 (255: nobody) | forced 1 | in sync 1 | ( member 1 | disk 8 | memory 8 ) ... |
//!   history         | tenures 4 | ( epoch 4 | last sequence 8 ) ... |
//! ```
//! Deliberately absent: any judgement but whether the bytes are what a member lays.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Epoch;
use assent_membership::{Ack, Body, Configuration, History, InSync, Life, MEMBERS_MAX, Member, Place, Reach, Sequence};

const KIND_HELLO: u16 = 1;
const KIND_LEAD: u16 = 2;
const KIND_HELD: u16 = 3;
const KIND_NEWS: u16 = 4;
const NOBODY: u8 = u8::MAX;

/// The kind of a letter.
pub(crate) const fn kind(body: &Body) -> u16 {
    match body {
        Body::Hello { .. } => KIND_HELLO,
        Body::Lead { .. } => KIND_LEAD,
        Body::Held { .. } => KIND_HELD,
        Body::News(_) => KIND_NEWS,
    }
}

/// Lays a letter's body.
pub(crate) fn lay(body: &Body, fields: &mut Writer) {
    match body {
        Body::Hello { version, life, place } => {
            fields.u64(*version);
            lay_life(fields, *life);
            fields.u32(place.epoch.0).u64(place.sequence.0);
        }
        Body::Lead { configuration, base, beat, aside } => {
            lay_configuration(fields, configuration);
            lay_history(fields, base);
            fields.u64(*beat).u8(u8::from(*aside));
        }
        Body::Held { life, reach, beat, out, promised_ms } => {
            lay_life(fields, *life);
            fields.u64(reach.received.0).u64(reach.written.0).u64(reach.durable.0);
            fields.u64(*beat).u8(u8::from(*out)).u64(*promised_ms);
        }
        Body::News(configuration) => lay_configuration(fields, configuration),
    }
}

/// Reads a letter's body; none if no letter is of that kind.
pub(crate) fn read(kind: u16, fields: &mut Reader<'_>) -> Result<Option<Body>, Malformed> {
    Ok(Some(match kind {
        KIND_HELLO => {
            let (version, life) = (fields.u64("version")?, read_life(fields)?);
            let place = Place { epoch: Epoch(fields.u32("epoch")?), sequence: Sequence(fields.u64("sequence")?) };
            Body::Hello { version, life, place }
        }
        KIND_LEAD => {
            let (configuration, base) = (read_configuration(fields)?, read_history(fields)?);
            Body::Lead { configuration, base, beat: fields.u64("beat")?, aside: flag(fields, "aside")? }
        }
        KIND_HELD => {
            let life = read_life(fields)?;
            let received = Sequence(fields.u64("received")?);
            let written = Sequence(fields.u64("written")?);
            let durable = Sequence(fields.u64("durable")?);
            if received < written || written < durable {
                return Err(Malformed { field: "durable" });
            }
            let reach = Reach { received, written, durable };
            let (beat, out) = (fields.u64("beat")?, flag(fields, "out")?);
            Body::Held { life, reach, beat, out, promised_ms: fields.u64("promised")? }
        }
        KIND_NEWS => Body::News(read_configuration(fields)?),
        _ => return Ok(None),
    }))
}

pub(crate) fn lay_configuration(fields: &mut Writer, configuration: &Configuration) {
    let primary = configuration.primary.map_or(NOBODY, |member| member.0);
    let count = u8::try_from(configuration.in_sync.len()).unwrap_or(u8::MAX);
    fields.u64(configuration.version).u32(configuration.epoch.0).u8(primary);
    fields.u8(u8::from(configuration.forced)).u8(count);
    for (member, life) in configuration.in_sync.iter() {
        fields.u8(member.0);
        lay_life(fields, life);
    }
}

pub(crate) fn read_configuration(fields: &mut Reader<'_>) -> Result<Configuration, Malformed> {
    let (version, epoch) = (fields.u64("version")?, Epoch(fields.u32("epoch")?));
    let primary = Some(fields.u8("primary")?).filter(|member| *member != NOBODY).map(Member);
    let forced = flag(fields, "forced")?;
    let count = usize::from(fields.u8("in sync")?);
    if count > MEMBERS_MAX {
        return Err(Malformed { field: "in sync" });
    }
    let mut in_sync = InSync::default();
    for _ in 0..count {
        let member = Member(fields.u8("member")?);
        in_sync = in_sync.with(member, read_life(fields)?);
    }
    if in_sync.len() != count {
        return Err(Malformed { field: "member" });
    }
    Ok(Configuration { version, epoch, primary, in_sync, forced })
}

pub(crate) fn lay_history(fields: &mut Writer, history: &History) {
    fields.u32(u32::try_from(history.tenures().count()).unwrap_or(u32::MAX));
    for (epoch, last) in history.tenures() {
        fields.u32(epoch.0).u64(last.0);
    }
}

pub(crate) fn read_history(fields: &mut Reader<'_>) -> Result<History, Malformed> {
    let count = fields.u32("tenures")?;
    let mut history = History::default();
    for _ in 0..count {
        let (epoch, last) = (Epoch(fields.u32("epoch")?), Sequence(fields.u64("last")?));
        let end = history.end();
        if last <= end.sequence || (epoch <= end.epoch && end.sequence > Sequence(0)) {
            return Err(Malformed { field: "last" });
        }
        history.grew(epoch, last);
    }
    Ok(history)
}

pub(crate) fn lay_life(fields: &mut Writer, life: Life) {
    fields.u64(life.disk).u64(life.memory);
}

pub(crate) fn read_life(fields: &mut Reader<'_>) -> Result<Life, Malformed> {
    Ok(Life { disk: fields.u64("disk")?, memory: fields.u64("memory")? })
}

pub(crate) fn flag(fields: &mut Reader<'_>, field: &'static str) -> Result<bool, Malformed> {
    match fields.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed { field }),
    }
}

const ACKS: [Ack; 4] = [Ack::None, Ack::Received, Ack::Written, Ack::Durable];

pub(crate) fn ack_byte(ack: Ack) -> u8 {
    ACKS.iter().position(|one| *one == ack).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

pub(crate) fn read_ack(fields: &mut Reader<'_>) -> Result<Ack, Malformed> {
    let byte = fields.u8("ack")?;
    ACKS.get(usize::from(byte)).copied().ok_or(Malformed { field: "ack" })
}
