//! What each member was told of its group at its start, and who was told otherwise.
//!
//! Every message carries the digest of that. One with another digest is believed when it is known what its sender was told, and that
//! this may be the same group: same acknowledgement, same name. Whoever does not know asks, and is answered.
//! The arbiter's address may differ, since it may have several: that is shown, and harms nothing until a lead is to be taken over.
//!
//! Walk: [`Replica::listens_to`] before anything of a message is believed · [`Told::against`] says it to a person.

use assent_frame::{Malformed, Reader, Writer};
use assent_membership::{Ack, Member};
use xxhash_rust::xxh3::xxh3_64;

use crate::letters;
use crate::message::Said;
use crate::replica::Replica;

/// The longest name of a group, and of a place of an arbiter.
pub(crate) const NAME_BYTES_MAX: usize = 512;

/// What all members of a group should have been told alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What an acknowledgement means.
    pub ack: Ack,
    /// The group's name.
    pub group: String,
    /// Where its arbiter is.
    pub arbiter: String,
}

impl Told {
    /// All of it.
    #[must_use]
    pub fn new(ack: Ack, group: &str, arbiter: &str) -> Self {
        Self { ack, group: group.to_owned(), arbiter: arbiter.to_owned() }
    }

    /// Two that were told the same have the same.
    pub(crate) fn digest(&self) -> u64 {
        let mut out = Writer::new();
        self.lay(&mut out);
        xxh3_64(out.as_slice())
    }

    pub(crate) fn lay(&self, fields: &mut Writer) {
        fields.u8(letters::ack_byte(self.ack)).text(&self.group).text(&self.arbiter);
    }

    pub(crate) fn read(fields: &mut Reader<'_>) -> Result<Self, Malformed> {
        let ack = letters::read_ack(fields)?;
        let mut name = |field| match fields.text(field)? {
            // It is said to people as it stands.
            text if text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control) => Ok(text.to_owned()),
            _ => Err(Malformed { field }),
        };
        Ok(Self { ack, group: name("group")?, arbiter: name("arbiter")? })
    }

    /// Whether both may be of one group.
    fn fits(&self, other: &Self) -> bool {
        self.ack == other.ack && self.group == other.group
    }

    /// How `who`, who was told this, differs from `me`, who was told `own`.
    pub(crate) fn against(&self, who: Member, own: &Self, me: Member) -> String {
        if self.fits(own) {
            let (theirs, ours) = (&self.arbiter, &own.arbiter);
            let what = "if these are two and not one, neither can lead after the other";
            return format!("node {who} has the witness {theirs}, this one, node {me}, has {ours}: {what}");
        }
        let differs = |told: &Self| -> String {
            let ack = (self.ack != own.ack).then(|| format!("ack {}", told.ack.name()));
            let group = (self.group != own.group).then(|| format!("group {}", told.group));
            ack.into_iter().chain(group).collect::<Vec<_>>().join(" and ")
        };
        let (theirs, ours) = (differs(self), differs(own));
        let what = "they must have the same; until then neither listens to the other";
        format!("node {who} has {theirs}, this one, node {me}, has {ours}: {what}")
    }
}

impl Replica {
    /// Whether a member may be believed whose messages have this digest, which is not the own one.
    pub(crate) fn listens_to(&mut self, from: Member, digest: u64) -> bool {
        match self.otherwise.get(&from) {
            Some((known, told)) if *known == digest => told.fits(&self.told),
            _ => {
                let told = self.told.clone();
                self.send(from, Said::Told { told, asks: true });
                false
            }
        }
    }

    /// Another member says what it was told.
    pub(crate) fn was_told(&mut self, from: Member, told: Told, asks: bool) {
        let digest = told.digest();
        if digest == self.digest {
            self.otherwise.remove(&from);
        } else {
            self.otherwise.insert(from, (digest, told));
        }
        if asks {
            let told = self.told.clone();
            self.send(from, Said::Told { told, asks: false });
        }
    }
}
