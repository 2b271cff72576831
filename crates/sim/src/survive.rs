//! What a power cut leaves: one digit for everything that was on its way to the platter.
//!
//! Walk: [`Flight::of`] lists what is in flight · a choice gives each a digit, zero for lost, [`Flight::choices`]
//! enumerates or samples them · [`Flight::land`] builds the disk that a choice leaves.
//!
//! ```text
//!   a change of folder entries   0 lost, 1 survived (only if earlier changes of the same names did)
//!   a file's length              0 the durable one, i the i-th since
//!   a sector                     0 what is durable, i the i-th version since, then stale bytes (if its block was never written)
//!   places without a version     0 zeroes, then stale bytes (in front, everywhere, scattered)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::content::{Content, SECTOR, Sector, garbage, mix};
use crate::dice::Rng;
use crate::inode::Inode;
use crate::state::{Change, Entries, Folder, State};

/// Stale garbage fills at most so many sectors behind a length: recovery reads the first ones.
const GARBAGE_SECTORS_MAX: u64 = 64;

/// What shows at places of a file that were never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Bytes that look like nothing.
    pub garbage: bool,
    /// What a deleted file held at the same place: its blocks came back.
    pub recycled: bool,
}

impl Stale {
    /// Only zeroes.
    pub const ZEROES: Stale = Stale { garbage: false, recycled: false };
    /// Everything a disk may do.
    pub const ALL: Stale = Stale { garbage: true, recycled: true };
}

/// Something on its way to the platter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Change { folder: u64, index: usize },
    Length { file: u64 },
    Sector { file: u64, sector: u64 },
    Unwritten { file: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Item {
    what: What,
    digits: u32,
    /// The digit of the newest state.
    newest: u32,
}

/// All that is on its way to the platter at one moment.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    state: &'a State,
    stale: Stale,
    items: Vec<Item>,
}

/// One digit for each item.
pub(crate) type Choice = Vec<u32>;

impl<'a> Flight<'a> {
    pub(crate) fn of(state: &'a State, stale: Stale) -> Self {
        let mut items = Vec::new();
        let mut files = BTreeSet::new();
        for (node, folder) in &state.folders {
            for index in 0..folder.changes.len() {
                items.push(Item { what: What::Change { folder: *node, index }, digits: 2, newest: 1 });
            }
            let changed = folder.changes.iter().flat_map(|change| &change.what).filter_map(|(_, node)| *node);
            files.extend(folder.durable.values().copied().chain(changed));
        }
        let freed = if stale.recycled { u32::try_from(state.freed.len()).unwrap_or(0) } else { 0 };
        let kinds = u32::from(stale.garbage) + freed;
        for (node, file) in state.files.iter().filter(|(node, file)| files.contains(node) && !file.is_settled()) {
            add_file(&mut items, *node, file, kinds);
        }
        Flight { state, stale, items }
    }

    /// How many choices there are; many of them may leave the same disk.
    pub(crate) fn count(&self) -> u64 {
        self.items.iter().fold(1, |count: u64, item| count.saturating_mul(u64::from(item.digits)))
    }

    /// All choices if there are at most `all_max`, else everything lost, everything survived, and random ones: `samples`
    /// together.
    pub(crate) fn choices(&self, all_max: u64, samples: u64, rng: &mut Rng) -> Vec<Choice> {
        if self.count() <= all_max {
            return (0..self.count()).map(|number| self.numbered(number)).collect();
        }
        let mut choices = vec![self.lost(), self.newest()];
        choices.extend((2..samples).map(|_| self.random(rng)));
        choices
    }

    pub(crate) fn lost(&self) -> Choice {
        vec![0; self.items.len()]
    }

    pub(crate) fn newest(&self) -> Choice {
        self.items.iter().map(|item| item.newest).collect()
    }

    fn numbered(&self, mut number: u64) -> Choice {
        let mut digit = |item: &Item| {
            let digit = number % u64::from(item.digits);
            number /= u64::from(item.digits);
            u32::try_from(digit).unwrap_or(0)
        };
        self.items.iter().map(&mut digit).collect()
    }

    /// One choice in one of the manners in which disks lose things.
    pub(crate) fn random(&self, rng: &mut Rng) -> Choice {
        let newest = |survives: bool, item: &Item| if survives { item.newest } else { 0 };
        match rng.below(6) {
            // Nearly all lost, nearly all survived.
            0 => self.items.iter().map(|item| newest(rng.below(8) == 0, item)).collect(),
            1 => self.items.iter().map(|item| newest(rng.below(8) != 0, item)).collect(),
            // Written in order up to one operation, of which anything may survive.
            2 => self.ordered(rng),
            // One file or folder ahead of the others, or behind.
            3 => {
                let one = self.items.get(rng.index(self.items.len())).map(Item::node);
                let ahead = rng.below(2) == 0;
                self.items.iter().map(|item| newest((Some(item.node()) == one) == ahead, item)).collect()
            }
            // All metadata and no data, or all data and no metadata, with some chance in it.
            4 => {
                let data = rng.below(2) == 0;
                let survives = |item: &Item| matches!(item.what, What::Sector { .. }) == data;
                self.items.iter().map(|item| newest(survives(item) != (rng.below(16) == 0), item)).collect()
            }
            _ => self.items.iter().map(|item| rng.digit(item.digits)).collect(),
        }
    }

    fn ordered(&self, rng: &mut Rng) -> Choice {
        let operations: BTreeSet<u64> = self.items.iter().flat_map(|item| self.operations(item)).collect();
        let last = operations.iter().nth(rng.index(operations.len())).copied().unwrap_or(0);
        let digit = |item: &Item| {
            let operations = self.operations(item);
            let before = operations.iter().filter(|operation| **operation < last).count();
            let torn = operations.contains(&last) && rng.below(2) == 0;
            u32::try_from(before + usize::from(torn)).unwrap_or(0)
        };
        self.items.iter().map(digit).collect()
    }

    /// The operations behind the digits from one on.
    fn operations(&self, item: &Item) -> Vec<u64> {
        match item.what {
            What::Change { folder, index } => {
                self.change(folder, index).map(|change| change.operation).into_iter().collect()
            }
            What::Length { file } => self.file(file).lengths.iter().map(|length| length.operation).collect(),
            What::Sector { file, sector } => {
                let versions = self.file(file).sectors.get(&sector);
                versions.into_iter().flat_map(|versions| versions.iter()).map(|version| version.operation).collect()
            }
            What::Unwritten { .. } => Vec::new(),
        }
    }

    fn change(&self, folder: u64, index: usize) -> Option<&'a Change> {
        self.state.folders.get(&folder).and_then(|folder| folder.changes.get(index))
    }

    fn file(&self, file: u64) -> &'a Inode {
        static NONE: std::sync::LazyLock<Inode> = std::sync::LazyLock::new(Inode::default);
        self.state.files.get(&file).map_or(&NONE, |file| &**file)
    }

    /// The disk that a choice leaves.
    pub(crate) fn land(&self, choice: &[u32]) -> State {
        let mut digits = BTreeMap::<u64, Vec<(Item, u32)>>::new();
        for (item, digit) in self.items.iter().zip(choice) {
            digits.entry(item.node()).or_default().push((*item, *digit));
        }
        let none = Vec::new();
        let of = |node: &u64| digits.get(node).unwrap_or(&none);
        let mut folders = BTreeMap::new();
        let mut files = BTreeMap::new();
        let mut hidden = Vec::new();
        let mut reached = vec![State::root()];
        while let Some(node) = reached.pop() {
            if let Some(folder) = self.state.folders.get(&node) {
                let landed = land_folder(folder, of(&node));
                reached.extend(landed.seen.values());
                folders.insert(node, landed);
            } else if let Some(file) = self.state.files.get(&node) {
                let landed =
                    if file.is_settled() { file.clone() } else { self.land_file(file, of(&node), &mut hidden) };
                files.insert(node, landed);
            }
        }
        let lost: Vec<_> =
            self.state.files.iter().filter(|(node, file)| !file.freed && !files.contains_key(node)).collect();
        let mut landed = self.state.with(files, folders);
        for content in hidden.into_iter().chain(lost.into_iter().map(|(_, file)| file.durable.clone())) {
            landed.free(content);
        }
        landed
    }

    fn land_file(&self, file: &Inode, digits: &[(Item, u32)], hidden: &mut Vec<Content>) -> Arc<Inode> {
        let mut content = file.durable.clone();
        let mut bytes = file.durable_bytes;
        let survived = digits.iter().find_map(|(item, digit)| match item.what {
            What::Length { .. } => Some(usize::try_from(*digit).unwrap_or(0)),
            _ => None,
        });
        let lengths = file.lengths.get(..survived.unwrap_or(0)).unwrap_or_default();
        for length in lengths {
            if length.bytes < bytes {
                content.truncate(length.bytes);
            }
            bytes = length.bytes;
        }
        // A version written before its sector was cut off, or bound to a length that is lost, cannot show.
        let shows = |sector: u64, operation: u64, tied: bool| {
            let cut = lengths.iter().any(|length| length.operation > operation && length.bytes <= sector * SECTOR);
            let bound = tied && lengths.last().is_none_or(|length| length.operation < operation);
            !cut && !bound
        };
        for (item, digit) in digits {
            match (item.what, digit.checked_sub(1)) {
                (What::Sector { sector, .. }, Some(index)) => {
                    let index = usize::try_from(index).unwrap_or(0);
                    let versions = file.sectors.get(&sector).map(|versions| versions.as_slice()).unwrap_or_default();
                    match versions.get(index) {
                        Some(version) if shows(sector, version.operation, version.tied) => {
                            content.write_sector(sector, &version.bytes);
                        }
                        Some(_) => {}
                        None => content.write_sector(sector, &self.stale_sector(index - versions.len(), sector)),
                    }
                }
                (What::Unwritten { .. }, Some(kind)) => self.fill(&mut content, file, bytes, kind),
                _ => {}
            }
        }
        if content.ends_behind(bytes) {
            hidden.push(content.clone());
        }
        content.truncate(bytes);
        if let Some(zeroed) = file.zeroing_bytes {
            content.own(zeroed.min(bytes));
        }
        Arc::new(Inode::settled(content, bytes))
    }

    fn stale_sector(&self, kind: usize, sector: u64) -> Sector {
        match kind.checked_sub(usize::from(self.stale.garbage)) {
            None => garbage(sector),
            Some(freed) => self.state.freed.get(freed).map_or([0; _], |content| *content.sector(sector)),
        }
    }

    /// Shows stale bytes where the file was made longer and nothing was written.
    fn fill(&self, content: &mut Content, file: &Inode, bytes: u64, kind: u32) {
        let unwritten = file.durable_bytes.div_ceil(SECTOR)..bytes.div_ceil(SECTOR);
        let free = |sector: &u64| !file.sectors.contains_key(sector) && !file.durable.owns(*sector);
        let garbage_digits = if self.stale.garbage { 2 } else { 0 };
        if kind < garbage_digits {
            let end = unwritten.end.min(unwritten.start.saturating_add(GARBAGE_SECTORS_MAX));
            let scattered = |sector: &u64| kind == 0 || mix(*sector, 3).is_multiple_of(2);
            for sector in (unwritten.start..end).filter(free).filter(scattered) {
                content.write_sector(sector, &garbage(sector));
            }
            return;
        }
        let freed = usize::try_from(kind - garbage_digits).unwrap_or(0);
        if let Some(freed) = self.state.freed.get(freed) {
            for sector in freed.sectors().filter(|sector| unwritten.contains(sector)).filter(free) {
                content.write_sector(sector, freed.sector(sector));
            }
        }
    }

    /// What was in flight and what became of it, for a person.
    pub(crate) fn describe(&self, choice: &[u32]) -> Vec<String> {
        let one = |(item, digit): (&Item, &u32)| {
            let fate = |versions: usize| match usize::try_from(*digit).unwrap_or(0) {
                0 => "lost".to_owned(),
                digit if digit <= versions => format!("{digit} of {versions} survived"),
                digit => format!("stale bytes, kind {}", digit - versions),
            };
            let name = self.state.name(item.node());
            match item.what {
                What::Change { folder, index } => {
                    let what = self.change(folder, index).map(|change| change.what.as_slice()).unwrap_or_default();
                    let one = |(name, node): &(Arc<str>, Option<u64>)| match node {
                        Some(node) => format!("{name} = node {node}"),
                        None => format!("no {name}"),
                    };
                    format!("{name}, {}: {}", what.iter().map(one).collect::<Vec<_>>().join(", "), fate(1))
                }
                What::Length { file } => {
                    let lengths: Vec<u64> = self.file(file).lengths.iter().map(|length| length.bytes).collect();
                    let durable = self.file(file).durable_bytes;
                    format!("{name}, length {durable} -> {lengths:?}: {}", fate(lengths.len()))
                }
                What::Sector { sector, .. } => {
                    let operations = self.operations(item);
                    format!("{name}, sector {sector}, written by {operations:?}: {}", fate(operations.len()))
                }
                What::Unwritten { .. } => format!("{name}, unwritten places: kind {digit}"),
            }
        };
        self.items.iter().zip(choice).map(one).collect()
    }
}

impl Item {
    fn node(&self) -> u64 {
        match self.what {
            What::Change { folder: node, .. }
            | What::Length { file: node }
            | What::Sector { file: node, .. }
            | What::Unwritten { file: node } => node,
        }
    }
}

fn add_file(items: &mut Vec<Item>, node: u64, file: &Inode, kinds: u32) {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX - 8);
    if !file.lengths.is_empty() {
        let newest = count(file.lengths.len());
        items.push(Item { what: What::Length { file: node }, digits: newest + 1, newest });
    }
    for (sector, versions) in &file.sectors {
        let newest = count(versions.len());
        let stale = if file.durable.owns(*sector) { 0 } else { kinds };
        items.push(Item { what: What::Sector { file: node, sector: *sector }, digits: newest + 1 + stale, newest });
    }
    let longest = file.lengths.iter().map(|length| length.bytes).max().unwrap_or(0);
    let mut unwritten = file.durable_bytes.div_ceil(SECTOR)..longest.div_ceil(SECTOR);
    if kinds > 0 && unwritten.any(|sector| !file.sectors.contains_key(&sector)) {
        // Garbage comes in two forms, everywhere and scattered.
        let digits = if kinds > 0 { kinds + 2 } else { 1 };
        items.push(Item { what: What::Unwritten { file: node }, digits, newest: 0 });
    }
}

fn land_folder(folder: &Arc<Folder>, digits: &[(Item, u32)]) -> Arc<Folder> {
    if folder.changes.is_empty() {
        return folder.clone();
    }
    let mut entries: Entries = folder.durable.clone();
    let mut lost: Vec<&Change> = Vec::new();
    for (change, (_, digit)) in folder.changes.iter().zip(digits) {
        // Per name in order: what follows a lost change of the same name is lost too.
        if *digit == 0 || lost.iter().any(|lost| lost.touches(change)) {
            lost.push(change);
        } else {
            change.apply(&mut entries);
        }
    }
    Arc::new(Folder { seen: entries.clone(), durable: entries, changes: Vec::new() })
}
