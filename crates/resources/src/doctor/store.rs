//! A store in another Assent process: whether it takes us, and who it is.
//!
//! Deliberately absent: its own resources and numbers; `/health` and `/metrics` of its server tell them.

use std::sync::Arc;

use assent_ids::{Epoch, NodeId};
use assent_kind::Kind;
use assent_link::{Address, Link, LinkConfig};
use assent_wire::{Hello, Role, VERSIONS};
use assent_world::Clock;

use super::{NoFacts, Sheet};
use crate::kept::Limits;

/// What a store says when it is greeted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// Where it is.
    pub place: String,
    /// The version of the protocol that both speak.
    pub version: u16,
    /// Its data folder.
    pub node: NodeId,
    /// How often its journal was opened.
    pub epoch: Epoch,
}

pub(super) fn gather(url: &str, limits: Limits, clock: &Arc<dyn Clock>) -> Result<StoreFacts, NoFacts> {
    let address: Address = url
        .parse()
        .map_err(|error: assent_world::net::AddressError| NoFacts::new(Kind::Invalid, format!("url: {error}")))?;
    let config =
        LinkConfig { connect_ms: limits.connect_ms_max, answer_ms: limits.answer_ms_max, clock: Arc::clone(clock) };
    let place = address.to_string();
    super::within(
        &place.clone(),
        // The link keeps its own limit, so this one only catches a name that is not resolved.
        Limits { connect_ms_max: limits.connect_ms_max.saturating_add(limits.answer_ms_max), ..limits },
        move || {
            let hello = Hello::new(Role::Store { label: "assent doctor" });
            Link::connect(&address, &hello, &config).map_err(|error| NoFacts::new(error.kind(), error.to_string()))
        },
        move |link| {
            let welcome = *link.welcome();
            link.close("the examination is over");
            Ok(StoreFacts { place, version: welcome.version, node: welcome.node, epoch: welcome.epoch })
        },
    )
}

pub(super) fn judge(facts: &StoreFacts, sheet: &mut Sheet<'_>) {
    let StoreFacts { place, version, node, epoch } = facts;
    sheet.ok(format!("Assent store at {place}, protocol {version}, node {node}, epoch {epoch}"));
    if *version < VERSIONS.max {
        sheet.note(
            format!("it speaks protocol {version}, this program {VERSIONS}"),
            "update it when the release is rolled out",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Examined, Facts, Severity, judge};
    use super::*;

    fn store(name: &str, node: u64, version: u16) -> Examined {
        let facts = StoreFacts { place: "127.0.0.1:7430".into(), version, node: NodeId(node), epoch: Epoch(3) };
        Examined { resource: name.into(), facts: Ok(Facts::Store(facts)) }
    }

    #[test]
    fn a_store_is_known_by_its_node_and_an_old_one_by_its_protocol() {
        let severities = |examined: &[Examined]| judge(examined).iter().map(|it| it.severity).collect::<Vec<_>>();
        assert_eq!(severities(&[store("a", 1, VERSIONS.max), store("b", 2, VERSIONS.max)]), [Severity::Ok; 2]);
        assert_eq!(severities(&[store("a", 1, 0)]), [Severity::Ok, Severity::Note]);
        let twice = judge(&[store("a", 1, VERSIONS.max), store("b", 1, VERSIONS.max)]);
        let last = twice.last().unwrap();
        assert_eq!((last.resource.as_str(), last.severity), ("b", Severity::Warning));
        assert!(last.what.contains("\"a\""), "{}", last.what);
    }
}
