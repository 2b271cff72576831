//! A client as short as it can be: `xa::Commit` driven over banks.

use assent_ids::{Branch, ResourceId};
use assent_xa::{
    BranchRecord, Command, Commit, Decider, Decision, Event, Outcome, Pace, Report, Resource, Task, Trust, Verb,
};

use crate::bank::{Bank, Teller};

/// Begins, works at each bank, commits.
pub(crate) fn transfer(decider: &dyn Decider, banks: &[Bank]) -> Report {
    let (node, tx) = decider.begin().unwrap();
    let mut branches: Vec<(Teller, Branch)> = (0..)
        .zip(banks)
        .map(|(number, bank)| {
            let mut teller = bank.teller();
            let branch = Branch { node, tx, resource: ResourceId::of(teller.name()), number, flags: 0, mark: None };
            teller.call(Verb::Start(branch.xid()));
            (teller, branch)
        })
        .collect();
    let mut commit = Commit::new(&vec![Trust::KeepsVotes; banks.len()], Pace::Together);
    let mut commands = commit.step(Event::Commit).unwrap();
    loop {
        let mut next = Vec::new();
        let mut asked = Vec::new();
        for command in commands {
            match command {
                Command::Send { branch, task } => {
                    let (teller, at) = &mut branches[usize::from(branch)];
                    teller.send(Task::verb(task, at.xid()));
                    asked.push(branch);
                }
                Command::Decide { yes, first } => {
                    let record = |number: &u16| {
                        let Branch { resource, number, flags, .. } = branches[usize::from(*number)].1;
                        BranchRecord { resource, number, flags, mark: None, witness: Vec::new() }
                    };
                    let branches = yes.iter().map(record).collect();
                    let decision = Decision { tx, outcome: Outcome::Committed, first, branches };
                    next.extend(commit.step(Event::from(decider.decide(&decision))).unwrap());
                }
                Command::Settle => unreachable!("no bank is a last resource here"),
                Command::Finished => decider.finished(tx),
                Command::Acknowledged => decider.acknowledged(tx),
            }
        }
        for branch in asked {
            let reply = branches[usize::from(branch)].0.receive();
            next.extend(commit.step(Event::Answer { branch, reply }).unwrap());
        }
        if next.is_empty() {
            return commit.report().expect("a commit without commands rests");
        }
        commands = next;
    }
}
