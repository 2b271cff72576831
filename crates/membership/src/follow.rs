//! A member that follows: it cuts what diverged, holds what it is sent, and says so.

use assent_ids::Epoch;

use crate::event::{Action, Body};
use crate::history::{History, Place, Sequence};
use crate::member::{Life, Member};
use crate::node::{Node, Role};
use crate::rules::Rule;
use crate::wait::Waiting;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    /// Whom.
    pub(crate) primary: Member,
    /// The highest beat of the primary.
    pub(crate) beat: u64,
    /// The primary needs the arbiter and does not reach it.
    pub(crate) aside: bool,
    /// The arbiter has said what it holds since.
    pub(crate) read: bool,
}

impl Node {
    /// A primary said that it leads.
    pub(crate) fn led(&mut self, from: Member, epoch: Epoch, base: &History, said: (u64, bool), out: &mut Vec<Action>) {
        let current = epoch == self.known.epoch && self.known.primary == Some(from);
        if !current && self.keeps(Rule::Fence) {
            return;
        }
        if matches!(self.role, Role::Leading(_)) || !self.confirms() {
            return;
        }
        if !matches!(self.role, Role::Following(_)) {
            // What this epoch wrote came from this primary alone, so all of it is shared, however old the base is.
            let mut theirs = base.clone();
            theirs.grew(epoch, Sequence(u64::MAX));
            let cut = if self.keeps(Rule::CutTail) { self.history.meets(&theirs) } else { self.sequence() };
            self.history.cut(cut);
            self.reach = self.reach.cut(cut);
            self.role = Role::Following(Following { primary: from, beat: 0, aside: false, read: false });
            out.push(Action::Follow { primary: from, epoch, cut });
        }
        let Role::Following(following) = &mut self.role else { return };
        let (beat, aside) = said;
        following.beat = following.beat.max(beat);
        if aside && !following.aside {
            following.read = false;
            out.push(Action::Read);
        }
        following.aside = aside;
        self.say_held(out);
    }

    /// The primary asked for somebody who reaches the arbiter, and here is one.
    pub(crate) fn step_in(&mut self, out: &mut Vec<Action>) {
        // Who cannot lead stays: to come back is to begin anew with what was on its way here.
        let may_lead = self.is_whole() && !self.out && self.pause == 0;
        if matches!(&self.role, Role::Following(following) if following.aside && following.read && may_lead) {
            self.wait(Waiting { read: true, ..Waiting::lost_primary() }, out);
            self.campaign(out);
        }
    }

    pub(crate) fn say_held(&self, out: &mut Vec<Action>) {
        if let Role::Following(following) = &self.role
            && self.confirms()
        {
            let (life, reach, beat, told) = (self.setup.life, self.reach, following.beat, self.out);
            // Whoever keeps a promise says so.
            let body = Body::Held { life, reach, beat, out: told, promised_ms: 0 };
            out.push(self.letter(following.primary, body));
        }
    }

    /// Another member follows nobody.
    pub(crate) fn greeted(&mut self, from: Member, epoch: Epoch, said: (u64, Life, Place), out: &mut Vec<Action>) {
        let (version, life, place) = said;
        match &mut self.role {
            // Its epoch is over, or it has not heard of ours: both are for the arbiter to say.
            Role::Leading(_) if epoch > self.known.epoch => self.stop_leading(out),
            Role::Leading(leading) => {
                leading.greeted(from, life, place.sequence, self.setup.ack);
                out.push(self.lead_letter(from));
            }
            // The primary has stopped leading. An older greeting of its is no news.
            Role::Following(_) if self.known.primary == Some(from) && epoch >= self.known.epoch => {
                let heard = vec![(from, life, place)];
                self.wait(Waiting { heard, ..Waiting::lost_primary() }, out);
            }
            Role::Following(_) => {}
            Role::Waiting(waiting) => {
                let newer = waiting.heard.iter().all(|(of, then, held)| {
                    *of != from || then.disk != life.disk || (then.memory, *held) <= (life.memory, place)
                });
                if newer {
                    waiting.heard.retain(|(of, ..)| *of != from);
                    waiting.heard.push((from, life, place));
                    waiting.heard.sort_unstable();
                }
                waiting.lost |= self.known.primary == Some(from) && epoch >= self.known.epoch;
                if version > self.known.version {
                    out.push(Action::Read);
                }
            }
        }
    }
}
