//! What a path names: a database, or a document in it.
//!
//! Walk: [`is_document`] is asked before the routes · [`Place::of`] decodes · [`Place::database`] and [`Place::resource`] are names of the library's
//! · [`refuse_taken`] is asked before one is made.

use assent_docs::{Database, DocsError, Document, Edit};
use assent_door::Role;
use axum::http::Uri;

use crate::deadline::Deadline;
use crate::identity::Caller;
use crate::params::decoded;
use crate::problem::Problem;

/// What this listener has beside databases and documents. Behind a name of the first kind documents would be served, and it could neither
/// be listed nor dropped.
const TAKEN: [&str; 7] = ["health", "metrics", "token", "logout", "openapi.json", "swagger-ui", "user/authorize"];

/// What stands in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) database: String,
    /// Empty where the path names none.
    pub(crate) resource: String,
}

impl Place {
    pub(crate) fn of(uri: &Uri) -> Result<Self, Problem> {
        let mut parts = uri.path().strip_prefix('/').unwrap_or_default().split('/');
        let mut next = || parts.next().map(name).transpose();
        let database = next()?.unwrap_or_default();
        Ok(Self { database, resource: next()?.unwrap_or_default() })
    }

    /// The same, where the caller has that role in the database.
    pub(crate) fn open_to(uri: &Uri, caller: &Caller, role: Role) -> Result<Self, Problem> {
        let place = Self::of(uri)?;
        caller.may(role, Some(&place.database))?;
        Ok(place)
    }

    /// As `DATABASE/RESOURCE`.
    pub(crate) fn of_name(text: &str) -> Result<Self, Problem> {
        let parts = text.split_once('/');
        let (database, resource) =
            parts.ok_or_else(|| Problem::invalid(format!("document = {text:?}; it is DATABASE/RESOURCE")))?;
        Ok(Self { database: checked(database.to_owned())?, resource: checked(resource.to_owned())? })
    }

    /// The name of the document that says that the database is there.
    pub(crate) fn marker(&self) -> String {
        format!("{}/", self.database)
    }

    /// The name of the document.
    pub(crate) fn document(&self) -> String {
        format!("{}/{}", self.database, self.resource)
    }

    /// The document, once it has a revision.
    pub(crate) fn find(&self, library: &Database) -> Result<Document, Problem> {
        let name = self.document();
        // Most are open, and then nobody need ask the index.
        if let Some(document) = library.at_hand(&name) {
            return Ok(document);
        }
        match library.document(&name) {
            // One that is being made has none yet.
            Ok(document) if document.latest().number() > 0 => Ok(document),
            Ok(_) | Err(DocsError::NoDocument { .. }) => Err(self.missing()),
            Err(error) => Err(error.into()),
        }
    }

    /// Its writer's seat. Another one that has come in its place while its writer was waited for is the one of this name.
    pub(crate) fn edit(&self, library: &Database, deadline: &Deadline) -> Result<Edit, Problem> {
        loop {
            deadline.check()?;
            match self.find(library)?.edit() {
                Err(DocsError::NoDocument { .. }) => {}
                edit => return Ok(edit?),
            }
        }
    }

    pub(crate) fn missing(&self) -> Problem {
        Problem::not_found(format!("there is no resource {:?} in database {:?}", self.resource, self.database))
    }

    /// Whether the database is there.
    pub(crate) fn is_there(&self, library: &Database) -> Result<bool, Problem> {
        match library.document(&self.marker()) {
            // It is there also where nobody can read what was noted in it last.
            Ok(_) | Err(DocsError::Damaged { .. }) => Ok(true),
            Err(DocsError::NoDocument { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a path that not everybody may ask is a document's: behind `/swagger-ui` stand files.
pub(super) fn is_document(path: &str) -> bool {
    let names = path.strip_prefix('/').and_then(|names| names.split_once('/'));
    names.is_some_and(|(database, resource)| {
        !database.is_empty() && database != "swagger-ui" && !resource.is_empty() && !resource.contains('/')
    })
}

/// A name of a database or a resource, as a path has it.
fn name(text: &str) -> Result<String, Problem> {
    checked(decoded(text)?)
}

fn checked(name: String) -> Result<String, Problem> {
    let is_path = matches!(name.as_str(), "" | "." | "..") || name.contains('/') || name.chars().any(char::is_control);
    if is_path || name.len() > 255 {
        let shown: String = name.chars().take(40).collect();
        return Err(Problem::invalid(format!(
            "{shown:?} is no name: it has 1 to 255 bytes, no / and no control characters, and is neither . nor .."
        )));
    }
    Ok(name)
}

/// Refuses to make a database, or a document, where something else is served.
pub(crate) fn refuse_taken(name: &str) -> Result<(), Problem> {
    if TAKEN.contains(&name) {
        return Err(Problem::invalid(format!("/{name} is something else of this listener: take another name")));
    }
    Ok(())
}

/// The names of the documents that say which databases are there. Nothing of what is in those is looked at.
pub(crate) fn markers(library: &Database, deadline: &Deadline) -> Result<Vec<String>, Problem> {
    let (mut all, mut behind) = (Vec::new(), String::new());
    loop {
        deadline.check()?;
        let Some(name) = library.names(Some(&behind), 1)?.pop() else { return Ok(all) };
        behind = match name.split_once('/') {
            None => name,
            // The character 0 follows /: all that is in the database stands before it.
            Some((database, resource)) => {
                let next = format!("{database}0");
                if resource.is_empty() {
                    all.push(name);
                }
                next
            }
        };
    }
}

/// All names of documents that begin with this, behind it. Before each page it is asked whether they are still wanted.
pub(crate) fn names(
    library: &Database,
    prefix: &str,
    wanted: impl Fn() -> Result<(), Problem>,
) -> Result<Vec<String>, Problem> {
    const PAGE: usize = 1_000;
    let mut all: Vec<String> = Vec::new();
    let mut behind = prefix.to_owned();
    loop {
        wanted()?;
        let page = library.names(Some(&behind), PAGE)?;
        let is_last = page.len() < PAGE;
        for name in page {
            if !name.starts_with(prefix) {
                return Ok(all);
            }
            behind.clone_from(&name);
            all.push(name);
        }
        if is_last {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;

    #[test]
    fn what_is_answered_before_it_is_looked_for_among_the_routes_has_the_documents_own() {
        let rows = openapi::document("", openapi::DOCUMENTS);
        let routes: Vec<_> = rows["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let open = ["/health", "/metrics", "/token", "/logout", "/user/authorize"];
        assert!(routes.contains(&"/{database}/{resource}") && routes.contains(&"/user/authorize"), "{routes:?}");
        for route in routes.into_iter().filter(|route| !open.contains(route)) {
            let path = route.replace(['{', '}'], "");
            assert_eq!(is_document(&path), route == "/{database}/{resource}", "{route}");
        }
        for files in ["/swagger-ui", "/swagger-ui/", "/swagger-ui/index.html", "/swagger-ui/x", "/openapi.json"] {
            assert!(!is_document(files), "{files}");
        }
        for none in ["", "/", "//", "/a", "/a/", "//b", "/a/b/", "a/b"] {
            assert!(!is_document(none), "{none}");
        }
    }

    #[test]
    fn what_has_a_route_of_its_own_is_no_name_of_a_database_or_a_document() {
        let rows = openapi::document("", openapi::DOCUMENTS);
        let routes = rows["paths"].as_object().unwrap().keys().map(|path| path.trim_start_matches('/'));
        let own = routes.filter(|path| !path.is_empty() && !path.starts_with('{')).chain(["swagger-ui"]);
        assert_eq!(own.clone().count(), TAKEN.len());
        for name in own {
            assert!(refuse_taken(name).is_err(), "{name}");
        }
        for name in ["user", "authorize", "healthy", "metrics/a", "v1"] {
            assert!(refuse_taken(name).is_ok(), "{name}");
        }
    }
}
