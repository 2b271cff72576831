//! Thousands of random commands against a plain map, with restarts and snapshots between them: every answer, and all state.

use std::collections::BTreeMap;

use assent_assets::{Answer, Asset, AssetId, Op, Refusal, Results, SessionName};
use assent_sim::Rng;

use super::{House, fresh};

type Map = BTreeMap<u64, (i64, u64)>;

/// The plain truth.
#[derive(Default)]
struct Model {
    assets: Map,
    prepared: BTreeMap<u64, Map>,
    removed: BTreeMap<u64, Vec<u64>>,
    /// Of each session, the answers so far.
    sessions: BTreeMap<u64, Vec<Answer>>,
    finished: BTreeMap<u64, bool>,
}

fn refused(op: usize, refusal: Refusal) -> Answer {
    Answer::Refused { op: u16::try_from(op).unwrap(), refusal }
}

impl Model {
    fn held(&self, id: u64) -> bool {
        self.prepared.values().any(|writes| writes.contains_key(&id))
            || self.removed.values().any(|removed| removed.contains(&id))
    }

    /// What the assets would be, and the results; or the refusal.
    fn tried(&self, ops: &[Op]) -> Result<(Map, Vec<Asset>), Answer> {
        let mut assets = self.assets.clone();
        let mut results = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            let id = op.id();
            let there = assets.get(&id.0).copied();
            let held = !op.is_read() && self.held(id.0);
            let result = match (op, there) {
                _ if held => Err(Refusal::Held { id }),
                (Op::Create { value, .. }, None) => Ok(Some((*value, 0))),
                (Op::Create { .. }, Some(_)) => Err(Refusal::Exists { id }),
                (_, None) => Err(Refusal::Unknown { id }),
                (Op::Get { .. }, Some(asset)) => Ok(Some(asset)),
                (Op::Remove { .. }, Some(_)) => Ok(None),
                (Op::Set { value, .. }, Some((_, updates))) => Ok(Some((*value, updates + 1))),
                (Op::Add { by, .. }, Some((value, updates))) => {
                    let sum = i128::from(value) + i128::from(*by);
                    i64::try_from(sum).map(|sum| Some((sum, updates + 1))).map_err(|_| Refusal::Overflow {
                        id,
                        value,
                        by: *by,
                    })
                }
                (Op::AddWithin { by, min, max, .. }, Some((value, updates))) => {
                    let sum = value + by;
                    match (sum < *min, sum > *max) {
                        (true, _) => Err(Refusal::Bounds { id, value: sum, bound: *min }),
                        (_, true) => Err(Refusal::Bounds { id, value: sum, bound: *max }),
                        _ => Ok(Some((sum, updates + 1))),
                    }
                }
                (Op::CompareAndSet { expected, value, .. }, Some((found, updates))) => match found == *expected {
                    true => Ok(Some((*value, updates + 1))),
                    false => Err(Refusal::Differs { id, value: found, expected: *expected }),
                },
            };
            match result {
                Ok(Some((value, updates))) => {
                    assets.insert(id.0, (value, updates));
                    results.push(Asset { value, updates });
                }
                Ok(None) => {
                    let (value, updates) = assets.remove(&id.0).unwrap();
                    results.push(Asset { value, updates });
                }
                Err(refusal) => return Err(refused(number, refusal)),
            }
        }
        Ok((assets, results))
    }

    fn run(&mut self, ops: &[Op]) -> Answer {
        match self.tried(ops) {
            Ok((assets, results)) => {
                self.assets = assets;
                Answer::Done(Results { assets: results, output: Vec::new() })
            }
            Err(refused) => refused,
        }
    }

    fn asked(&mut self, session: u64, number: u64, ops: &[Op]) -> Answer {
        let answers = self.sessions[&session].len() as u64;
        if number <= answers {
            // A window of four.
            return match answers - number < 4 && number > 0 {
                true => self.sessions[&session][number as usize - 1].clone(),
                false => Answer::InDoubt,
            };
        }
        if number > answers + 1 {
            return Answer::Gap { expected: answers + 1 };
        }
        let answer = self.run(ops);
        self.sessions.get_mut(&session).unwrap().push(answer.clone());
        answer
    }

    fn prepare(&mut self, number: u64, ops: &[Op]) -> Answer {
        if self.prepared.contains_key(&number) {
            return refused(0, Refusal::BranchKnown);
        }
        if let Some(committed) = self.finished.get(&number) {
            return refused(0, Refusal::BranchFinished { committed: *committed });
        }
        let (assets, results) = match self.tried(ops) {
            Ok(tried) => tried,
            Err(refused) => return refused,
        };
        let results = Results { assets: results, output: Vec::new() };
        let touched: Vec<u64> = ops.iter().filter(|op| !op.is_read()).map(|op| op.id().0).collect();
        if touched.is_empty() {
            return Answer::ReadOnly(results);
        }
        let writes = touched.iter().filter_map(|id| Some((*id, *assets.get(id)?))).collect();
        self.removed.insert(number, touched.into_iter().filter(|id| !assets.contains_key(id)).collect());
        self.prepared.insert(number, writes);
        Answer::Voted(results)
    }

    fn outcome(&mut self, number: u64, committed: bool) -> Answer {
        if let Some(writes) = self.prepared.remove(&number) {
            let removed = self.removed.remove(&number).unwrap();
            if committed {
                self.assets.extend(writes);
                removed.iter().for_each(|id| _ = self.assets.remove(id));
            }
            self.finished.insert(number, committed);
            return Answer::Done(Results::default());
        }
        match self.finished.get(&number) {
            Some(before) if *before == committed => Answer::Done(Results::default()),
            Some(before) => refused(0, Refusal::BranchFinished { committed: *before }),
            None => refused(0, Refusal::BranchUnknown),
        }
    }
}

fn random_op(rng: &mut Rng) -> Op {
    let id = AssetId(rng.below(24));
    let number = |rng: &mut Rng| rng.below(40) as i64 - 20;
    match rng.below(16) {
        0 | 1 => Op::Create { id, value: number(rng) },
        2 => Op::Remove { id },
        3 | 4 => Op::Get { id },
        5 => Op::Set { id, value: if rng.below(8) == 0 { i64::MAX - 5 } else { number(rng) } },
        6..=9 => Op::Add { id, by: number(rng) },
        10..=12 => Op::AddWithin { id, by: -rng.below(9).cast_signed(), min: -20, max: 30 },
        _ => Op::CompareAndSet { id, expected: number(rng), value: number(rng) },
    }
}

fn same_state(house: &House, model: &Model, seed: u64) {
    let all: Map = (0..24)
        .filter_map(|id| house.engine.peek(AssetId(id)).map(|asset| (id, (asset.value, asset.updates))))
        .collect();
    assert_eq!(all, model.assets, "seed {seed}");
    let stats = house.engine.stats();
    assert_eq!((stats.assets, stats.in_doubt), (model.assets.len(), model.prepared.len()), "seed {seed}");
}

#[test]
fn every_answer_is_that_of_a_plain_map() {
    for seed in 1..=12 {
        let (mut rng, mut model, mut house) = (Rng::new(seed), Model::default(), fresh());
        let mut restarts = 0;
        for step in 0..1_500 {
            let count = if rng.below(3) == 0 { rng.range(2..6) } else { 1 };
            let ops: Vec<Op> = (0..count).map(|_| random_op(&mut rng)).collect();
            let branch = rng.below(12) + step / 100 * 6;
            let (found, expected) = match rng.below(20) {
                0..=9 => (house.run(&ops), model.run(&ops)),
                10..=12 if !model.sessions.is_empty() => {
                    let names: Vec<u64> = model.sessions.keys().copied().collect();
                    let session = names[rng.index(names.len())];
                    let number = (model.sessions[&session].len() as u64 + 2).saturating_sub(rng.below(4));
                    (house.asked(SessionName(session), number, &ops), model.asked(session, number, &ops))
                }
                13 if model.sessions.len() < 5 => {
                    model.sessions.insert(house.session().0, Vec::new());
                    continue;
                }
                14 | 15 => (house.prepare(branch, &ops), model.prepare(branch, &ops)),
                16..=18 => {
                    let committed = rng.below(3) > 0;
                    (house.outcome(branch, committed), model.outcome(branch, committed))
                }
                19 if rng.below(4) == 0 => {
                    let before = house.engine.stats().hash;
                    if rng.below(2) == 0 {
                        house.engine.snapshot().unwrap();
                    }
                    house = house.again(seed * 10_000 + step);
                    restarts += 1;
                    assert_eq!(house.engine.stats().hash, before, "seed {seed}, step {step}");
                    same_state(&house, &model, seed);
                    continue;
                }
                _ => (house.run(&ops), model.run(&ops)),
            };
            assert_eq!(found, expected, "seed {seed}, step {step}: {ops:?}");
        }
        same_state(&house, &model, seed);
        assert!(restarts > 5 && model.finished.len() > 10, "{restarts} {}", model.finished.len());
    }
}
