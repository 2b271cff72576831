//! The folder of documents: opened for one command, left so that the next one finds everything at once.
//!
//! ```text
//!   DIR/docs        the journal: every commit
//!   DIR/docs-index  what leads to them; built anew if it is lost
//! ```
//! Walk: [`House::open`] · [`House::leave`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_docs::{Config, Database, Document, JsonPath, Look, Meta, NodeKey, QueryLimits, Revision};
use assent_journal::{Journal, Keeper};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock, RealDice, RealDisk};

use super::options::{Data, Saying, When};
use crate::failure::Failure;
use crate::tx::{moment, user};

/// A command replays at most about this much of the journal.
const CHECKPOINT_BYTES: u64 = 4 << 20;
/// So long a command waits for the folder.
const LOCKED: Duration = Duration::from_secs(5);
/// And looks that often whether it may have it.
const GLANCE: Duration = Duration::from_millis(10);

/// The documents of a folder.
pub(super) struct House {
    pub(super) db: Database,
    journal: Arc<Journal>,
    keeper: Keeper,
}

impl House {
    /// Opens it; with `make`, it is made if it is missing.
    fn open(data: &Data, make: bool) -> Result<Self, Failure> {
        let folder = &data.data;
        if !make && !folder.join("docs").is_dir() {
            let message = format!(
                "{} has no documents: assent docs create makes the first, --data names another",
                folder.display()
            );
            return Err(Failure::new(Kind::NotFound, message));
        }
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
        let kept = assent_journal::Config {
            kept_until_released: true,
            settles_late: true,
            writes_in_flight: Config::WRITES_IN_FLIGHT,
            ..Default::default()
        };
        std::fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder.display(), &error))?;
        let journal = open(&folder.join("docs"), kept)?;
        let keeper = Keeper::start(Arc::clone(&journal), clock.clone());
        let config = Config { trims: true, checkpoint_bytes: CHECKPOINT_BYTES, ..Config::default() };
        let db = Database::open(journal.clone(), disk, clock, &folder.join("docs-index"), config)?;
        Ok(Self { db, journal, keeper })
    }

    /// Opens it, works, and leaves it in order, whatever came of the work.
    pub(super) fn work<T>(
        data: &Data,
        make: bool,
        work: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let house = Self::open(data, make)?;
        let worked = work(&house.db);
        let left = house.leave();
        worked.and_then(|done| left.map(|()| done))
    }

    fn leave(self) -> Result<(), Failure> {
        let Self { db, journal, keeper } = self;
        // The index is written out when that is worth it. Nobody needs it: the journal has everything.
        db.tick();
        drop(db);
        keeper.stop();
        Ok(journal.close()?)
    }
}

/// Opens the journal; where another process has it, that is likely to be another command, which is done soon.
fn open(folder: &Path, config: assent_journal::Config) -> Result<Arc<Journal>, Failure> {
    let begun = RealClock.now();
    loop {
        match Journal::open(Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice), folder, config.clone()) {
            Ok((journal, _)) => return Ok(journal),
            Err(error) if error.kind() == Kind::Busy && RealClock.now().since(begun) < LOCKED => {
                RealClock.sleep(GLANCE)
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Saying {
    /// What a commit says of itself.
    pub(super) fn meta(&self) -> Meta {
        let author = self.author.clone().unwrap_or_else(user);
        Meta { author, message: self.message.clone(), fields: Vec::new() }
    }
}

impl When {
    /// The revision that is meant.
    pub(super) fn find(&self, doc: &Document) -> Result<Revision, Failure> {
        revision(doc, self.revision, self.tag.as_deref(), self.as_of.as_deref())
    }
}

/// The revision of this number, of this name, or as of this time; the newest without any of them.
pub(super) fn revision(
    doc: &Document,
    number: Option<u32>,
    tag: Option<&str>,
    as_of: Option<&str>,
) -> Result<Revision, Failure> {
    match (number, tag, as_of) {
        (Some(number), ..) => Ok(doc.at(number)?),
        (None, Some(tag), _) => Ok(doc.tagged(tag)?),
        (None, None, Some(time)) => Ok(doc.as_of(moment::parse(time, RealClock.wall_ms())?)?),
        (None, None, None) => Ok(doc.latest()),
    }
}

/// The one node that a path leads to; the document's value without a path.
pub(super) fn node(look: &impl Look, name: &str, at: Option<&str>) -> Result<NodeKey, Failure> {
    let Some(text) = at else {
        let empty =
            || Failure::new(Kind::NotFound, format!("document {name:?} is empty at revision {}", look.revision()));
        return look.value().ok_or_else(empty);
    };
    let path = JsonPath::parse(text)?;
    let mut matches = path.query(look, QueryLimits::default())?;
    let first = matches.next().transpose()?;
    match (first, matches.next().transpose()?) {
        (Some(found), None) => Ok(found.key()),
        (None, _) => Err(Failure::new(
            Kind::NotFound,
            format!("{text} leads to nothing in {name:?} at revision {}", look.revision()),
        )),
        (Some(_), Some(_)) => Err(Failure::invalid(format!("{text} leads to more than one node: one is needed"))),
    }
}

/// Opens a file to read; - is stdin.
#[expect(clippy::disallowed_methods, reason = "a front door reads the file that it is given")]
pub(super) fn input(path: &Path) -> Result<(Box<dyn std::io::Read>, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = std::fs::File::open(path).map_err(|error| Failure::io("read", path.display(), &error))?;
    let bytes = file.metadata().ok().map(|found| found.len());
    Ok((Box::new(file), bytes))
}
