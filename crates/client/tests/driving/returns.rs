//! What a resource manager answers and what the application is told: the X/Open tables, in `tables/`, each line and cell
//! played by scripted resources against a coordinator on a simulated disk.
//!
//! Walk: [`Case`] is one line, [`play`] one transaction · [`lines`] reads line tables, [`Matrix`] the square ones · an
//! answer that the drive did not ask for, or one that it did not fetch, is an error of the script.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_client::{Client, CommitError, Retries};
use assent_coordinator::{Config, Coordinator, Identity};
use assent_journal::{Config as JournalConfig, Journal};
use assent_resources::{Script, Scripted};
use assent_sim::{SimClock, SimDice, SimDisk};

const ROLLBACKS: [&str; 8] = [
    "XA_RBROLLBACK",
    "XA_RBCOMMFAIL",
    "XA_RBDEADLOCK",
    "XA_RBINTEGRITY",
    "XA_RBOTHER",
    "XA_RBPROTO",
    "XA_RBTIMEOUT",
    "XA_RBTRANSIENT",
];

fn client(attempts: u32) -> Client {
    let (disk, dice) = (SimDisk::new(), Arc::new(SimDice::new(7)));
    let clock = Arc::new(SimClock::new());
    let folder = Path::new("house");
    let config = JournalConfig { log_size: 1 << 20, ..JournalConfig::default() };
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice.clone(), folder, config).unwrap();
    let identity = Identity::load_or_create(&disk, &*dice, folder).unwrap();
    let coordinator = Arc::new(Coordinator::open(log, clock.clone(), identity, Config::default()).unwrap());
    Client::embedded(&coordinator, Retries { attempts, pause_ms: 0, clock }).unwrap()
}

/// One transaction: what is asked, and for each branch what it is told and answers.
#[derive(Clone, Debug)]
struct Case {
    commits: bool,
    branches: Vec<Vec<String>>,
}

impl Case {
    fn new(asked: &str, branches: &str) -> Self {
        let commits = asked == "commit";
        let steps = |branch: &str| {
            let mut steps: Vec<String> = branch.split(',').map(|step| step.trim().to_owned()).collect();
            steps.retain(|step| !step.is_empty());
            if !steps.first().is_some_and(|first| first.starts_with("start")) {
                if !steps.first().is_some_and(|first| first.starts_with("end")) {
                    steps.insert(0, format!("{} XA_OK", if commits { "end" } else { "end-failed" }));
                }
                steps.insert(0, "start XA_OK".to_owned());
            }
            // Whoever does not know the branch is asked what became of it; these resources keep no memory (XA has no word).
            let asked = |step: String| {
                let is_unknown = step == "commit XAER_NOTA";
                [Some(step), is_unknown.then(|| "inquire XA_OK".to_owned())].into_iter().flatten()
            };
            steps.into_iter().flat_map(asked).collect()
        };
        Self { commits, branches: branches.split('|').map(steps).collect() }
    }
}

/// Plays a case; answers the TX name, and in words what else the application is told.
fn play(client: &Client, case: &Case) -> Result<(&'static str, String), String> {
    let script = |steps: &Vec<String>| {
        let lines: Vec<String> = steps.iter().map(|step| step.replacen(' ', " -> ", 1)).collect();
        Script::parse(&lines.join("\n")).unwrap()
    };
    let scripts: Vec<Script> = case.branches.iter().map(script).collect();
    let mut resources: Vec<Scripted> =
        scripts.iter().enumerate().map(|(at, script)| Scripted::new(&format!("rm{at}"), script)).collect();
    let mut tx = client.begin().unwrap();
    resources.iter_mut().for_each(|resource| drop(tx.enlist(resource)));
    let told = if case.commits {
        tx.commit().map(|done| (!done.unfinished.is_empty(), !done.inferred.is_empty()))
    } else {
        tx.rollback().map(|done| (!done.unfinished.is_empty(), false))
    };
    for script in scripts {
        script.verdict().map_err(|error| error.to_string())?;
    }
    let (name, kind, unfinished, inferred) = match &told {
        Ok((unfinished, inferred)) => ("TX_OK", "", *unfinished, *inferred),
        Err(CommitError { kind, returned, message, .. }) => {
            (returned.name(), kind.name(), message.contains("recovery tells"), false)
        }
    };
    let words = [kind, if unfinished { "unfinished" } else { "" }, if inferred { "inferred" } else { "" }];
    Ok((name, words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")))
}

fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = (1..).zip(text.lines());
    numbered.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
}

/// Plays each line of a table, with each of the eight codes where it says `XA_RB*`; tells all that differ.
fn lines(text: &str, attempts: u32) -> usize {
    let (client, mut wrong, mut played) = (client(attempts), String::new(), 0);
    for (number, line) in content(text) {
        let [asked, branches, expected] = line.split(" : ").map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("line {number}: asked : branches : expected");
        };
        let codes = if branches.contains("XA_RB*") { &ROLLBACKS[..] } else { &[""] };
        for code in codes {
            let branches = branches.replace("XA_RB*", code);
            let seen = play(&client, &Case::new(asked, &branches));
            let seen = seen.map_or_else(|error| error, |(name, words)| format!("{name} {words}").trim().to_owned());
            if seen != expected {
                wrong.push_str(&format!("line {number}: {asked} : {branches}: {seen}, the table says {expected}\n"));
            }
            played += 1;
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    played
}

/// A square table: one branch answers by the row, the other by the column.
struct Matrix<'t> {
    head: BTreeMap<&'t str, &'t str>,
    rows: Vec<(&'t str, Vec<&'t str>)>,
}

impl<'t> Matrix<'t> {
    fn read(text: &'t str) -> Self {
        let (mut head, mut rows, mut columns) = (BTreeMap::new(), Vec::new(), 0);
        for (_, line) in content(text) {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            let cells: Vec<&str> = rest.split_whitespace().collect();
            match key {
                "" => columns = cells.len(),
                _ if columns == 0 => _ = head.insert(key, rest.trim()),
                _ => rows.push((key, cells)),
            }
        }
        assert!(columns == rows.len() && rows.iter().all(|(_, cells)| cells.len() == columns), "a square");
        Self { head, rows }
    }

    fn is(&self, what: &str, code: &str) -> bool {
        let code = if code.starts_with("XA_RB") { "XA_RB*" } else { code };
        self.head[what].split_whitespace().any(|listed| listed == code)
    }

    fn branch(&self, code: &str) -> String {
        let forget = if self.is("forget", code) { ", forget XA_OK" } else { "" };
        let before = if self.head["before"].is_empty() { String::new() } else { format!("{}, ", self.head["before"]) };
        format!("{before}{} {code}{forget}", self.head["verb"])
    }

    /// What the application is told besides the return value.
    fn words(&self, codes: [&str; 2]) -> String {
        let any = |what: &str| codes.iter().any(|code| self.is(what, code));
        let commits = self.head["asked"] == "commit";
        let rolled_back = self.head["verb"] == "rollback";
        let kind = match (any("heuristic"), rolled_back) {
            (true, _) => "heuristic",
            (false, true) if commits => "rolled_back",
            _ => "",
        };
        let unfinished = if any("unfinished") { "unfinished" } else { "" };
        let inferred = if kind.is_empty() && any("inferred") { "inferred" } else { "" };
        [kind, unfinished, inferred].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn play(&self) -> usize {
        let (client, mut wrong, mut played) = (client(0), String::new(), 0);
        let each = |code: &'t str| if code == "XA_RB*" { ROLLBACKS.to_vec() } else { vec![code] };
        let first = self.head["first"];
        for (row, cells) in &self.rows {
            for ((column, _), cell) in self.rows.iter().zip(cells) {
                let name = match *cell {
                    "O" => "TX_OK",
                    "R" => "TX_ROLLBACK",
                    "M" => "TX_MIXED",
                    "H" => "TX_HAZARD",
                    "C" => "TX_COMMITTED",
                    other => panic!("{other} is no cell"),
                };
                let pairs = each(row).into_iter().flat_map(|one| each(column).into_iter().map(move |two| [one, two]));
                for codes in pairs {
                    let mut branches = codes.map(|code| self.branch(code)).join(" | ");
                    if first != "-" {
                        branches = format!("{first} | {branches}");
                    }
                    let expected = (name, self.words(codes));
                    let seen = play(&client, &Case::new(self.head["asked"], &branches));
                    if seen.as_ref() != Ok(&expected) {
                        wrong.push_str(&format!("{branches}: {seen:?}, the table says {expected:?}\n"));
                    }
                    played += 1;
                }
            }
        }
        assert!(wrong.is_empty(), "\n{wrong}");
        played
    }
}

#[test]
fn one_branch_returns_what_the_tables_say() {
    let played = lines(include_str!("tables/one.txt"), 0);
    assert!(played > 90, "{played}");
}

/// A branch that only read tells so when it ends, and is finished: what is left alone decides for itself, as if it had been alone.
#[test]
fn a_branch_behind_readers_returns_what_the_table_says_of_it_alone() {
    let table = include_str!("tables/one.txt");
    let ones = content(table)
        .map(|(_, line)| line)
        .filter(|line| line.starts_with("commit") && line.contains("commit-one-phase"));
    let mut behind = String::new();
    for line in ones {
        let [asked, branch, expected] = line.split(" : ").map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for branches in [
            format!("end XA_RDONLY | {branch}"),
            format!("{branch} | end XA_RDONLY"),
            format!("end XA_RDONLY | {branch} | end XA_RDONLY"),
        ] {
            behind.push_str(&format!("{asked} : {branches} : {expected}\n"));
        }
    }
    let played = lines(&behind, 0);
    assert!(played > 90, "{played}");
}

#[test]
fn several_branches_up_to_the_decision_return_what_the_tables_say() {
    let played = lines(include_str!("tables/several.txt"), 0);
    assert!(played > 60, "{played}");
}

#[test]
fn what_is_told_again_returns_what_it_answers_at_last() {
    assert!(lines(include_str!("tables/repeats.txt"), 2) > 15);
}

#[test]
fn two_branches_after_a_durable_commit_return_what_the_matrix_says() {
    assert_eq!(Matrix::read(include_str!("tables/commit-commit.txt")).play(), 23 * 23);
}

#[test]
fn two_branches_of_a_commit_that_a_third_refused_return_what_the_matrix_says() {
    assert_eq!(Matrix::read(include_str!("tables/commit-rollback.txt")).play(), 23 * 23);
}

#[test]
fn two_branches_of_a_rollback_return_what_the_matrix_says() {
    assert_eq!(Matrix::read(include_str!("tables/rollback-rollback.txt")).play(), 23 * 23);
}

#[test]
fn three_branches_in_every_order_return_what_the_table_says() {
    let (client, mut played) = (client(0), 0);
    let matrix = Matrix::read(include_str!("tables/commit-commit.txt"));
    for (number, line) in content(include_str!("tables/three.txt")) {
        let (codes, expected) = line.split_once(':').unwrap();
        let [a, b, c] = codes.split_whitespace().collect::<Vec<_>>()[..] else { panic!("line {number}: three codes") };
        for order in [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
            let branches = order.map(|code| matrix.branch(code)).join(" | ");
            let (name, _) = play(&client, &Case::new("commit", &branches)).unwrap();
            assert_eq!(name, expected.trim(), "line {number}: {order:?}");
            played += 1;
        }
    }
    assert_eq!(played, 56 * 6);
}
