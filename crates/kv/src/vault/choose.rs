//! Which volumes to compact next: a pure function of the accounts, the end of the log and the hour.
//!
//! Nothing while the bytes on disk, with those in no account, are within what those that live allow ([`Chooser::allowed`]). Else the volume for
//! which waiting is worth least: a byte freed now costs live / dead bytes written, and that price falls while more of the volume dies.
//! With live share s, of which a part r dies in a unit of time, it falls by r * s / (1 - s)^2. What has lived for long will: r is
//! taken as 1 / age. So among volumes of one age the emptiest is taken, and of two equally empty ones the colder.
//! Neighbours of the same generation join it if they are about as empty: cold and hot stay apart, and files
//! stay few. Cells of the journal are taken oldest first: a branch's outcome is never compacted before its prepared writes. But those that are full, where emptier ones stand
//! behind them, are passed ([`Chooser::passes`]): they are kept stretches then, which count as volumes.
//!
//! Walk: [`Chooser::choose`]. Deliberately absent: I/O, clocks (the hour is handed in).

use std::collections::BTreeSet;

use crate::vault::hides::weigh;
use crate::vault::{Account, Accounts};

/// The hours of a day in which volumes may be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hours(u32);

impl Hours {
    /// All of them.
    pub(crate) const ALWAYS: Self = Self((1 << 24) - 1);

    /// From one hour to another, over midnight if the second is lower; all if they are the same.
    pub(crate) fn between(from: u8, to: u8) -> Self {
        let (from, to) = (from % 24, to % 24);
        let within = |hour: u8| if from < to { (from..to).contains(&hour) } else { hour >= from || hour < to };
        Self((0..24).filter(|hour| within(*hour)).fold(0, |hours, hour| hours | 1 << hour))
    }

    /// Whether this hour, 0 to 23, is one of them.
    pub(crate) const fn permit(self, hour: u8) -> bool {
        hour < 24 && self.0 >> hour & 1 == 1
    }
}

/// How volumes are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chooser {
    /// Bytes on disk for each byte that lives, at most.
    pub(crate) space_amplification_max: f64,
    /// Bytes on disk beyond those that live that are none too many, however little lives.
    pub(crate) room_bytes_min: u64,
    /// About the bytes of one volume.
    pub(crate) volume_bytes: u64,
    /// What is passed takes two blocks to say so: of volumes that are smaller than this that would be too much.
    pub(crate) passed_bytes_min: u64,
    /// Bytes on disk that are in no account: the room that the log holds ready, and the ledger.
    pub(crate) beside_bytes: u64,
    /// What waiting for the front of the journal is worth, by which it is compared with volumes: less than 1 where its segments are wanted.
    pub(crate) front_worth: f64,
    /// What is written has to find so much room; all that there is: nobody asks.
    pub(crate) fits_bytes: u64,
    /// And to give more than it takes, as far as the accounts know.
    pub(crate) pays: bool,
    /// What a volume has beside what lives in it and a few blocks, as such a part of what lives, as volumes show.
    pub(crate) extra: f64,
    /// When.
    pub(crate) hours: Hours,
}

impl Default for Chooser {
    fn default() -> Self {
        Self {
            space_amplification_max: 1.4,
            room_bytes_min: 0,
            volume_bytes: 64 << 20,
            passed_bytes_min: 2 << 20,
            beside_bytes: 0,
            front_worth: 1.0,
            fits_bytes: u64::MAX,
            pays: true,
            extra: 0.0,
            hours: Hours::ALWAYS,
        }
    }
}

/// What is too much on disk, as far as compactions can give it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) bytes: u64,
    /// As long as there is room for so many more, nothing is too much.
    pub(crate) room: u64,
    /// No more than this can be given back.
    pub(crate) most: u64,
}

impl Owed {
    /// Once so many bytes more were written.
    pub(crate) fn after(&self, written: u64) -> u64 {
        self.bytes.saturating_add(written.saturating_sub(self.room)).min(self.most)
    }
}

/// Volumes to compact into one: all whose range lies in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Of what is written.
    pub(crate) generation: u32,
    /// Bytes that are expected to be written, and bytes that are read.
    pub(crate) live: u64,
    pub(crate) bytes: u64,
}

/// Cells to pass, from a place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) first: u64,
    /// Up to the first of these at which no entry stands across.
    pub(crate) ends: Vec<u64>,
}

/// So many cells more are passed for the sake of entries that stand across their ends.
const ENDS_MORE: usize = 7;
/// A neighbour joins if its live share is at most that much higher.
const ABOUT_AS_EMPTY: f64 = 0.1;
/// What is fuller is not worth reading.
const LIVE_SHARE_MAX: f64 = 0.95;
/// Of whatever generation, a neighbour joins if it is that small a part of a volume.
const CRUMB: u64 = 16;
/// What such a part of lives is written again before anything is too much, if something that is to be passed stands behind it.
const NEARLY_EMPTY: f64 = 0.125;
/// A volume has at least such a part of what lives in it beside that, and these few bytes, whatever it holds.
const EXTRA_MIN: f64 = 1.0 / 16.0;
pub(crate) const EXTRA_BYTES: u64 = 3 * 4096;
const EMPTY_BYTES: u64 = 2 * 4096;
/// So many files more than twice what is needed are none too many.
const FILES_SPARE: u64 = 8;
/// A volume is no more than such a part of what lives: what one that is being written takes beside what it replaces is little then.
const VOLUMES: u64 = 256;
/// But no less than such a part of the longest, or the files of a small store would be many.
const VOLUME_PARTS: u64 = 4;
/// Nor than that many bytes: three blocks of each are its own.
const VOLUME_BYTES_FEW: u64 = 64 << 10;

impl Chooser {
    /// What to compact next, if anything: volumes, or cells of the journal before `sealed_end`, which must be a place that no
    /// append under way began before: what is not complete there would be left out for ever. What has one of the `damaged` places
    /// is left as it is, and so are the cells behind such a one; no other volume is.
    pub(crate) fn choose(
        &self,
        accounts: &Accounts,
        damaged: &BTreeSet<u64>,
        sealed_end: u64,
        log_end: u64,
        hour: u8,
    ) -> Option<Choice> {
        if !self.hours.permit(hour) {
            return None;
        }
        let is_whole = |account: &Account| damaged.range(account.first..account.end).next().is_none();
        let mut compacted: Vec<Account> = accounts.compacted().map(readable).collect();
        // Where there is no room, what gives some now counts alone.
        weigh(&mut compacted, accounts.raw_from(), is_whole, self.fits_bytes == u64::MAX);
        let groups: Vec<&[Account]> = compacted.split(|volume| !is_whole(volume)).collect();
        let mut cells: Vec<Account> = accounts.cells(sealed_end).collect();
        let whole = cells.iter().take_while(|cell| is_whole(cell)).count();
        let is_cut = whole < cells.len();
        cells.truncate(whole);
        let space = if self.is_too_much(spared(accounts, log_end, |volume| !is_whole(volume))) {
            // Nobody gets past a damaged cell before those in front of it are volumes, worth it or not.
            self.emptiest(&groups, &cells, log_end).or_else(|| self.oldest(is_cut.then_some(&cells)?, 1.0, 1))
        } else {
            self.nearly_empty(&cells)
        };
        space.or_else(|| self.join(&groups))
    }

    /// The front of the journal, about a volume of it, where it stands before something emptier: a load of values of which most live for long is
    /// not written again to get at what was written behind it. It is to be left as it is, until it is worth it among the volumes. While
    /// nothing is too much there is time for it, and the front is passed for the sake of what is full behind it, too.
    pub(crate) fn passes(
        &self,
        accounts: &Accounts,
        damaged: &BTreeSet<u64>,
        (sealed_end, log_end): (u64, u64),
        hour: u8,
    ) -> Option<Front> {
        if !self.hours.permit(hour) || self.volume_bytes < self.passed_bytes_min {
            return None;
        }
        let is_whole = |account: &Account| damaged.range(account.first..account.end).next().is_none();
        let cells: Vec<Account> = accounts.cells(sealed_end).take_while(is_whole).collect();
        let front = share(cells.first()?);
        let (behind, is_behind_full) = fullness(&cells);
        let is_too_much = self.is_too_much(spared(accounts, log_end, |volume| !is_whole(volume)));
        if front <= behind + ABOUT_AS_EMPTY && (is_too_much || !is_behind_full || front <= NEARLY_EMPTY) {
            return None;
        }
        let mut bytes = 0;
        let joins = |cell: &&Account| {
            bytes += cell.bytes;
            bytes == cell.bytes || bytes <= self.volume_bytes && (share(cell) - front).abs() <= ABOUT_AS_EMPTY
        };
        let count = cells.iter().take_while(joins).count();
        let ends = cells.iter().skip(count.checked_sub(1)?).take(1 + ENDS_MORE).map(|cell| cell.end).collect();
        Some(Front { first: cells.first()?.first, ends })
    }

    /// Bytes beyond what is wished, of what [`Chooser::choose`] may take: what it may not take is nobody's debt, but for the end of the log,
    /// up to `tail_bytes`, which is always there. Where `none_bytes` are much beside what lives, that much is none either. Or how much room
    /// there is up to that.
    pub(crate) fn owed(
        &self,
        accounts: &Accounts,
        damaged: &BTreeSet<u64>,
        (sealed_end, log_end): (u64, u64),
        tail_bytes: u64,
        none_bytes: u64,
    ) -> Owed {
        let is_whole = |account: &Account| {
            let is_readable = !account.is_kept() || account.is_passed();
            is_readable && damaged.range(account.first..account.end).next().is_none()
        };
        let mut volumes: Vec<Account> = accounts.compacted().map(readable).collect();
        weigh(&mut volumes, accounts.raw_from(), is_whole, false);
        let volumes = volumes.into_iter().filter(is_whole);
        let takes: Vec<Account> = volumes.chain(accounts.cells(sealed_end).take_while(is_whole)).collect();
        let bytes: u64 = takes.iter().map(|account| account.bytes).sum();
        let live = live_of(&takes);
        // Only what is worth reading gives back what is dead in it; cells that are full stand before such as are not.
        let gives = takes.iter().filter(|account| account.generation == 0 || worth_it(account));
        let dead: u64 = gives.map(|account| account.born.min(account.bytes).saturating_sub(account.live)).sum();
        let (all_bytes, all_live) = spared(accounts, log_end, |volume| !is_whole(volume));
        let beside = self.beside(all_live);
        let rest = all_bytes.saturating_sub(bytes).min(tail_bytes);
        let rest_live = all_live.saturating_sub(live).min(rest);
        let none = self.none(none_bytes, all_live);
        let (taken, takes_up_to) = (bytes + rest + beside, self.allowed(live + rest_live) + none);
        // Whatever can be taken: a store that is within its bound owes nothing.
        let (whole, up_to) = (all_bytes + beside, self.allowed(all_live) + none);
        let room = takes_up_to.saturating_sub(taken).max(up_to.saturating_sub(whole));
        let most = dead.saturating_sub(none);
        let bytes = taken.saturating_sub(takes_up_to).min(whole.saturating_sub(up_to)).min(most);
        Owed { bytes, room, most }
    }

    /// What of so many bytes is no debt, for it is much beside what lives.
    pub(crate) fn none(&self, none_bytes: u64, live: u64) -> u64 {
        none_bytes.saturating_sub(self.beside_max(live))
    }

    /// The same, with volumes that are a small part of so much that lives.
    pub(crate) fn sized(self, live: u64) -> Self {
        let few = (self.volume_bytes / VOLUME_PARTS).max(VOLUME_BYTES_FEW);
        Self { volume_bytes: (live / VOLUMES).max(few).min(self.volume_bytes), ..self }
    }

    /// Where so many released segments wait for their use, of so many that may: the fewer, the sooner the journal gives some. Else it gives many at
    /// a time, of which the most go, and then none for long, and each that the log takes meanwhile is written twice: with zeroes first.
    pub(crate) fn stocked(self, waiting: Option<(usize, usize)>) -> Self {
        let front_worth =
            waiting.map_or(1.0, |(some, most)| 4_f64.powf(some.min(most) as f64 / most.max(1) as f64 - 0.5));
        Self { front_worth, ..self }
    }

    /// What is in no account counts, as far as compactions can make up for it. Beside little that lives it is more, and they would write that
    /// again and again to be rid of what they cannot give back.
    fn beside(&self, live: u64) -> u64 {
        self.beside_bytes.min(self.beside_max(live))
    }

    /// A quarter of what may be dead.
    fn beside_max(&self, live: u64) -> u64 {
        self.allowed(live).saturating_sub(live) / 4
    }

    /// Bytes on disk, for so many that live: a share of these, and never less than some beyond them. A share of little is less than what the
    /// newest segment and the volume under way take, and compactions would write all of it again and again to be within it.
    pub(crate) fn allowed(&self, live: u64) -> u64 {
        self.share(live).max(live.saturating_add(self.room_bytes_min))
    }

    /// A share of what lives alone.
    pub(crate) fn share(&self, live: u64) -> u64 {
        share_of(live, self.space_amplification_max)
    }

    /// The front of the journal where it stands before what is to be passed, and costs next to nothing.
    fn nearly_empty(&self, cells: &[Account]) -> Option<Choice> {
        let front = share(cells.first().filter(|_| self.volume_bytes >= self.passed_bytes_min)?);
        let (_, is_behind_full) = fullness(cells);
        (front <= NEARLY_EMPTY && is_behind_full).then(|| self.oldest(cells, front, 1))?
    }

    fn is_too_much(&self, (bytes, live): (u64, u64)) -> bool {
        bytes + self.beside(live) > self.allowed(live)
    }

    /// Of volumes, in groups of neighbours, and of cells.
    fn emptiest(&self, groups: &[&[Account]], cells: &[Account], now: u64) -> Option<Choice> {
        if self.fits_bytes < u64::MAX {
            return self.emptiest_that_pays(groups, cells, now);
        }
        let all =
            groups.iter().flat_map(|group| group.iter().enumerate().map(move |(at, volume)| (*group, at, volume)));
        let worthy = all.filter(|(_, _, volume)| worth_it(volume));
        let seed = worthy.min_by(|(_, _, a), (_, _, b)| worth_waiting(a, now).total_cmp(&worth_waiting(b, now)));
        let (front, count) = front(cells, now).unzip();
        let sooner = |front: &Account| {
            seed.is_none_or(|(_, _, seed)| self.front_worth * worth_waiting(front, now) <= worth_waiting(seed, now))
        };
        match (front.filter(sooner), seed) {
            (Some(front), _) => self.oldest(cells, share(&front), count.unwrap_or(0)),
            (None, Some((group, seed, _))) => self.around(group, seed),
            (None, None) => None,
        }
    }

    /// Bytes of the volume of so many that live, at most.
    fn laid_bytes(&self, live: u64) -> u64 {
        // Of nothing there is no index.
        if live == 0 { EMPTY_BYTES } else { share_of(live, 1.0 + self.extra()).saturating_add(EXTRA_BYTES) }
    }

    /// Of a volume for which there is so much room.
    pub(crate) fn live_within(&self, bytes: u64) -> u64 {
        share_of(bytes.saturating_sub(EXTRA_BYTES), 1.0 / (1.0 + self.extra()))
    }

    fn extra(&self) -> f64 {
        self.extra.clamp(EXTRA_MIN, 1.0)
    }

    /// It finds room, and room comes of it: what is nearly full gives less than its index takes.
    fn pays(&self, choice: &Choice) -> bool {
        let laid = self.laid_bytes(choice.live);
        laid <= self.fits_bytes && (laid < choice.bytes || !self.pays)
    }

    /// The same where there is no room for all of them.
    fn emptiest_that_pays(&self, groups: &[&[Account]], cells: &[Account], now: u64) -> Option<Choice> {
        let front = front(cells, now)
            .and_then(|(front, count)| Some((worth_waiting(&front, now), self.oldest(cells, share(&front), count)?)));
        let all = groups.iter().flat_map(|group| (0..).zip(*group).map(move |(at, volume)| (*group, at, volume)));
        let worthy = all.filter(|(_, _, volume)| worth_it(volume));
        let volumes =
            worthy.filter_map(|(group, at, volume)| Some((worth_waiting(volume, now), self.around(group, at)?)));
        let paying = front.into_iter().chain(volumes).filter(|(_, choice)| self.pays(choice));
        paying.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, choice)| choice)
    }

    /// The oldest cells, as many as fill a volume: those of the front, and behind it those about as empty.
    fn oldest(&self, cells: &[Account], share: f64, front: usize) -> Option<Choice> {
        let mut live = 0;
        let mut count = 0;
        for cell in cells {
            live += cell.live;
            let empty = count < front || self::share(cell) <= share + ABOUT_AS_EMPTY;
            if count > 0 && !(empty && live <= self.volume_bytes) {
                break;
            }
            count += 1;
        }
        choice(cells.get(..count)?)
    }

    /// A volume, and its neighbours while they are kin.
    fn around(&self, volumes: &[Account], seed: usize) -> Option<Choice> {
        let emptiest = volumes.get(seed)?;
        // Of one in which nothing lived only the place is left to say, and what it remembers.
        let is_short =
            |volume: &Account| volume.born <= volume.hides.bytes || volume.bytes <= self.volume_bytes / CRUMB;
        let is_crumb = |volume: &Account| !volume.is_passed() && is_short(volume);
        let joins = |volume: &Account, live: u64| {
            let about = share(volume) <= share(emptiest) + ABOUT_AS_EMPTY;
            let kin = volume.generation == emptiest.generation && about;
            (kin || is_crumb(volume)) && live + volume.live <= self.volume_bytes
        };
        let (mut from, mut to, mut live) = (seed, seed, emptiest.live);
        while let Some(next) = volumes.get(to + 1).filter(|next| joins(next, live)) {
            live += next.live;
            to += 1;
        }
        while let Some(before) = from.checked_sub(1).and_then(|at| volumes.get(at)).filter(|it| joins(it, live)) {
            live += before.live;
            from -= 1;
        }
        choice(volumes.get(from..=to)?)
    }

    /// Two neighbours, when there are many more files than needed: of one generation if there are such. Not what was passed: it is not to be
    /// written.
    fn join(&self, groups: &[&[Account]]) -> Option<Choice> {
        let volumes = || groups.iter().flat_map(|group| group.iter()).filter(|volume| !volume.is_passed());
        let born: u64 = volumes().map(|volume| volume.born).sum();
        let few = 2 * (born / self.volume_bytes.max(1)) + FILES_SPARE;
        let files = volumes().count();
        if u64::try_from(files).unwrap_or(u64::MAX) <= few {
            return None;
        }
        let fits = |pair: &&[Account]| live_of(pair) <= self.volume_bytes && !pair.iter().any(Account::is_passed);
        let pairs = groups.iter().flat_map(|group| group.windows(2)).filter(fits);
        let best = pairs.min_by_key(|pair| match pair {
            [a, b] => (a.generation != b.generation, live_of(pair)),
            _ => (true, u64::MAX),
        })?;
        choice(best)
    }
}

/// Of cells behind the first: the live share of the emptiest that is worth reading, and whether one of them stands before another that is much
/// emptier.
fn fullness(cells: &[Account]) -> (f64, bool) {
    let (mut emptiest, mut is_full) = (1.0_f64, false);
    for cell in cells.iter().skip(1).rev() {
        is_full |= share(cell) > emptiest + ABOUT_AS_EMPTY;
        if worth_it(cell) {
            emptiest = emptiest.min(share(cell));
        }
    }
    (emptiest, is_full)
}

/// The front of the journal: so many of the oldest cells that, as one, waiting for them is worth least. A full cell does not
/// hide the empty ones behind it.
fn front(cells: &[Account], now: u64) -> Option<(Account, usize)> {
    let mut front = *cells.first()?;
    let mut fronts: Vec<(Account, usize)> = Vec::new();
    for (count, cell) in (1..).zip(cells) {
        if count > 1 {
            front = {
                let (bytes, live) = (front.bytes + cell.bytes, front.live + cell.live);
                Account { end: cell.end, bytes, live, born: bytes, ..front }
            };
        }
        fronts.push((front, count));
    }
    let worthy = fronts.into_iter().filter(|(front, _)| worth_it(front));
    worthy.min_by(|(a, _), (b, _)| worth_waiting(a, now).total_cmp(&worth_waiting(b, now)))
}

/// Bytes on disk and bytes that live, without those volumes: what is left as it is gives nothing back, whatever else is written.
fn spared(accounts: &Accounts, log_end: u64, is_left: impl Fn(&Account) -> bool) -> (u64, u64) {
    let left = accounts.compacted().filter(|volume| is_left(volume));
    left.fold(accounts.sums(log_end), |(bytes, live), volume| {
        (bytes.saturating_sub(volume.disk_bytes()), live.saturating_sub(volume.live))
    })
}

/// A kept stretch is read as the journal that it is.
fn readable(volume: &Account) -> Account {
    if volume.is_kept() {
        Account { bytes: volume.disk_bytes(), born: volume.end - volume.first, ..*volume }
    } else {
        *volume
    }
}

fn choice(volumes: &[Account]) -> Option<Choice> {
    let (first, last) = (volumes.first()?, volumes.last()?);
    let generation = volumes.iter().map(|volume| volume.generation).max()?;
    let bytes = volumes.iter().map(|volume| volume.bytes).sum();
    let (first, end, live) = (first.first, last.end, live_of(volumes));
    Some(Choice { first, end, generation: generation.saturating_add(1), live, bytes })
}

fn live_of(volumes: &[Account]) -> u64 {
    volumes.iter().map(|volume| volume.live).sum()
}

/// Precision is of no matter to a ratio.
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at least 0, and precision is of no matter"
)]
fn share_of(bytes: u64, share: f64) -> u64 {
    (real(bytes) * share) as u64
}

/// What of it a compaction would write again. Its index and what it remembers are not worth reading it for: a volume that has
/// just been written is full, whatever it holds, so that compacting comes to an end.
fn share(volume: &Account) -> f64 {
    let stays = volume.bytes.saturating_sub(volume.born) + volume.live.min(volume.born);
    (real(stays) / real(volume.bytes.max(1))).min(1.0)
}

fn worth_it(volume: &Account) -> bool {
    share(volume) <= LIVE_SHARE_MAX
}

/// By how much the price of its bytes falls in a unit of the log: the lower, the sooner it should be compacted.
fn worth_waiting(volume: &Account, now: u64) -> f64 {
    let share = share(volume);
    if share <= 0.0 {
        return 0.0;
    }
    let is_raw = volume.generation == 0 || volume.is_kept();
    let born = if is_raw { volume.first + (volume.end - volume.first) / 2 } else { volume.as_of };
    let age = real(now.saturating_sub(born).max(1));
    let dead = 1.0 - share;
    share / (dead * dead * age)
}

#[cfg(test)]
#[path = "choose_test.rs"]
mod tests;
