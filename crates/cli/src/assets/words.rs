//! What a person says to a group: who shall lead, who shall stay out.
//!
//! Walk: [`say`] tells exactly the node that was named · [`hand_over`] finds the primary, tells it, and waits until the other one leads.

use std::time::Duration;

use assent_assets::{Client, Options, Role, Status, Word};
use assent_kind::Kind;
use assent_membership::Member;
use assent_world::{Clock as _, RealClock};

use super::{PATIENCE, address, show};
use crate::failure::Failure;

/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(5);

/// Exactly this node.
pub(super) fn node(server: &str, patience: Duration) -> Result<Client, Failure> {
    let options = Options { patience, session: false, ..Options::to(address(server)?) };
    Ok(Client::connect(options, std::sync::Arc::new(RealClock))?)
}

/// Says it to the one node that is named.
pub(super) fn say(servers: &[String], word: Word, as_json: bool) -> Result<(), Failure> {
    let [server] = servers else {
        let message = format!("--server names {} nodes; this word is for one: name it", servers.len());
        return Err(Failure::invalid(message));
    };
    show::status(&node(server, PATIENCE)?.word(word)?, as_json)
}

/// How the first node is of which this is true, among those that answer; else what the last one said.
fn find(servers: &[String], is: impl Fn(&Status) -> bool) -> Result<(String, Status), Failure> {
    let mut failed = Failure::new(Kind::Unavailable, "no node that was named leads".to_owned());
    for server in servers {
        match node(server, PATIENCE).and_then(|mut node| Ok(node.status()?)) {
            Ok(status) if is(&status) => return Ok((server.clone(), status)),
            Ok(status) if status.group.is_none() => {
                return Err(Failure::invalid(format!("{server} is alone: there is nobody to hand the lead to")));
            }
            Ok(_) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn leads(status: &Status) -> bool {
    status.group.as_ref().is_some_and(|group| matches!(group.role, Role::Primary | Role::Stalled))
}

/// Gives the lead to this node.
pub(super) fn hand_over(servers: &[String], to: u8, patience: Duration, as_json: bool) -> Result<(), Failure> {
    let to = Member(to);
    let is_there =
        |status: &Status| status.group.as_ref().is_some_and(|group| group.node == to && group.role == Role::Primary);
    let (server, status) = find(servers, leads)?;
    if is_there(&status) {
        return show::status(&status, as_json);
    }
    node(&server, PATIENCE)?.word(Word::HandOver(to))?;
    let until = RealClock.now().after(patience);
    loop {
        if let Ok((_, status)) = find(servers, is_there) {
            return show::status(&status, as_json);
        }
        if RealClock.now() >= until {
            let message = format!("node {to} does not lead yet: is its server named by --server, and does it run?");
            return Err(Failure::new(Kind::Unavailable, message));
        }
        RealClock.sleep(LOOK);
    }
}
