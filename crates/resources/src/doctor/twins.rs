//! Whether two names mean one server.
//!
//! Walk: each resource is compared with those before it, and told of the first that is no stranger to it.

use super::{Examined, Facts, Sheet};

/// What tells servers apart.
struct Identity<'a> {
    engine: &'static str,
    /// Given once; a copy of the data has the same.
    server: String,
    /// Two runs of one server, or a server and its copy, differ in it.
    run: &'a str,
    database: &'a str,
    /// By what recovery knows it again, where that is less than `server`.
    known_by: Option<String>,
}

fn identity(one: &Examined) -> Option<Identity<'_>> {
    match one.facts.as_ref().ok()? {
        #[cfg(feature = "postgres")]
        Facts::Postgres(facts) => Some(Identity {
            engine: "PostgreSQL",
            server: facts.system.clone()?,
            run: &facts.started,
            database: &facts.database,
            known_by: None,
        }),
        #[cfg(feature = "mariadb")]
        Facts::Mariadb(facts) => Some(Identity {
            engine: "MariaDB",
            server: facts.identity.clone(),
            run: "",
            database: &facts.database,
            known_by: facts.known_by(),
        }),
        Facts::Store(facts) => {
            Some(Identity { engine: "Assent", server: facts.node.to_string(), run: "", database: "", known_by: None })
        }
    }
}

pub(super) fn judge(before: &[Examined], one: &Examined, sheet: &mut Sheet<'_>) {
    let Some(own) = identity(one) else { return };
    let alike = before.iter().filter_map(|other| Some((&other.resource, identity(other)?)));
    let alike = alike.filter(|(_, other)| other.engine == own.engine);
    let (mut others, strangers): (Vec<_>, Vec<_>) = alike.partition(|(_, other)| other.server == own.server);
    if let Some((name, _)) =
        strangers.iter().find(|(_, other)| own.known_by.is_some() && other.known_by == own.known_by)
    {
        sheet.warning(
            format!("another server than resource {name:?} with the same server_id, port and datadir: recovery cannot tell them apart"),
            "give every server a server_id of its own, while nothing is in doubt",
        );
    }
    // The closest relative first.
    others.sort_by_key(|(_, other)| (other.run != own.run, other.database != own.database));
    let Some((name, other)) = others.first() else { return };
    if other.run != own.run {
        sheet.warning(
            format!("a copy of the server of resource {name:?}: a standby, a promoted one, or a restored backup"),
            "name only the primary; a branch that was prepared before the copy may be in both",
        );
    } else if other.database == own.database {
        sheet.warning(
            format!("the same data as resource {name:?}"),
            "name it once; two branches of one transaction on the same rows would wait for each other",
        );
    } else {
        sheet.note(
            format!("another database on the server of resource {name:?}"),
            "both share its limits, and stand still together",
        );
    }
}
