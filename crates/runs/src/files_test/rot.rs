//! Rot: any bit of a run, a sector, a file that is another one or ends too early is told, and the rest is read.

use std::path::Path;

use assent_kind::Kind;
use assent_sim::{Rng, fuzz};
use assent_world::{Access, Open};

use super::{FOLDER, Model, Stage, any_key, any_model, entry};
use crate::block::BlockBuilder;
use crate::cache::Cache;
use crate::entry::Cursor as _;
use crate::run::{FOOTER_BYTES, Footer, RunFacts, RunId};
use crate::run_reader::{OwnedEntry, Reading, Row, Run};
use crate::seal::seal;
use crate::{RunsError, filter};

#[test]
fn any_flipped_bit_is_told_and_never_another_answer() {
    let stage = Stage::new();
    let mut rng = Rng::new(7);
    let model = any_model(&mut rng, 60);
    let run = stage.run(1, &model, 128);
    let good = stage.bytes(&run);
    let strangers: Vec<_> = (0..20).map(|_| any_key(&mut rng)).filter(|key| !model.contains_key(key)).collect();
    let is_damage = |error: &RunsError| {
        assert!(matches!(error, RunsError::Damaged { file, .. } if file.ends_with("0000000000000001.run")), "{error}");
    };
    for bit in 0..good.len() * 8 {
        let at = bit / 8;
        stage.overwrite(&run, at, &[good[at] ^ (1 << (bit % 8))]);
        let run = stage.again(&run);
        for (key, expected) in
            model.iter().map(|(key, one)| (key, Some(one))).chain(strangers.iter().map(|key| (key, None)))
        {
            match run.get(key, filter::hash(key)) {
                Ok(found) => assert_eq!(found.as_ref(), expected, "bit {bit}, {key:?}"),
                Err(error) => is_damage(&error),
            }
        }
        let mut cursor = run.cursor(if bit % 2 == 0 { Reading::Cached } else { Reading::Ahead });
        let mut expected = model.iter();
        let mut moved = cursor.seek(&[]);
        loop {
            match moved {
                Ok(()) => {}
                Err(error) => break is_damage(&error),
            }
            assert_eq!(cursor.entry(), expected.next().map(|(key, one)| entry(key, one)), "bit {bit}");
            if cursor.entry().is_none() {
                break;
            }
            moved = cursor.next();
        }
        let mut told = 0;
        let found = run.verify(&mut |error| {
            is_damage(error);
            told += 1;
        });
        assert!(told > 0 && found.damaged == told, "bit {bit} of {} is told", good.len() * 8);
        stage.overwrite(&run, at, &good[at..=at]);
    }
    assert_eq!(stage.again(&run).verify(&mut |error| panic!("{error}")).damaged, 0);
}

#[test]
fn behind_a_rotten_sector_the_rest_is_read() {
    let stage = Stage::new();
    let model: Model = (0..2_000_u32)
        .map(|number| {
            (number.to_be_bytes().to_vec(), OwnedEntry { seq: number.into(), value: Some(Row::from_elem(1, 50)) })
        })
        .collect();
    let run = stage.run(1, &model, 512);
    let good = stage.bytes(&run);
    let footer = Footer::read(good.last_chunk().unwrap(), RunId(1)).unwrap();
    // In the midst of the data: other blocks are read, by key and by a walk that goes around.
    stage.overwrite(&run, 40 * 512, &[0xee; 512]);
    let rotten = stage.again(&run);
    let lost = model.keys().filter(|key| rotten.get(key, filter::hash(key)).is_err()).count();
    assert!((1..40).contains(&lost), "{lost} of 2,000 keys cannot be read");
    let (mut walked, mut breaks) = (0, 0);
    let mut cursor = rotten.cursor(Reading::Cached);
    for key in model.keys() {
        match cursor.seek(key) {
            Ok(()) => walked += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(cursor.entry().is_none());
                breaks += 1;
            }
        }
    }
    assert_eq!((walked, breaks), (2_000 - lost, lost));
    let mut told = Vec::new();
    let found = rotten.verify(&mut |error| told.push(error.clone()));
    assert_eq!(found.entries, u64::try_from(2_000 - lost).unwrap());
    assert!(
        told.iter().all(|error| matches!(error, RunsError::Damaged { offset, .. } if offset.abs_diff(40 * 512) < 1024))
    );
    stage.overwrite(&run, 40 * 512, &good[40 * 512..41 * 512]);
    // In the filter: every key is found without it.
    let at = usize::try_from(footer.filter.offset).unwrap() + 100;
    stage.overwrite(&run, at, &[0xee; 512]);
    let rotten = stage.again(&run);
    assert!(model.iter().all(|(key, one)| rotten.get(key, filter::hash(key)).unwrap().as_ref() == Some(one)));
    let mut told = Vec::new();
    assert_eq!(rotten.verify(&mut |error| told.push(error.to_string())).entries, 2_000);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&format!("at byte {}", footer.filter.offset)), "{told:?}");
}

#[test]
fn a_check_believes_neither_the_facts_nor_the_filter() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(11), 300);
    let run = stage.run(1, &model, 256);
    let told = |change: &dyn Fn(&mut RunFacts)| {
        let mut facts = run.facts().clone();
        change(&mut facts);
        let mut told = Vec::new();
        let run = Run::open(&stage.disk, Path::new(FOLDER), facts, &Cache::new(0, 0, 256, 64).unwrap());
        run.verify(&mut |error| told.push(error.to_string()));
        told.join("\n")
    };
    assert_eq!(told(&|_| ()), "");
    let words = "not those of the manifest";
    assert!(told(&|facts| facts.value_bytes += 1).contains(words));
    assert!(told(&|facts| facts.entries += 1).contains("were written"));
    assert!(told(&|facts| facts.tombstones -= 1).contains("were written"));
    assert!(told(&|facts| facts.seq_max -= 1).contains("not one of this run"));
    assert!(told(&|facts| facts.seq_min += 1).contains("not one of this run"));
    assert!(told(&|facts| facts.first.push(0)).contains("out of order"));
    assert!(told(&|facts| _ = facts.last.pop()).contains("out of order"));
    // A filter over other keys, whole and sealed for its place.
    let bytes = stage.bytes(&run);
    let place = Footer::read(bytes.last_chunk().unwrap(), RunId(1)).unwrap().filter;
    let others = 0..u64::try_from(model.len()).unwrap();
    let mut filter = filter::lay(&mut others.map(filter::mix).collect());
    seal(&mut filter, RunId(1), place.offset);
    assert_eq!(filter.len(), usize::try_from(place.length).unwrap());
    stage.overwrite(&run, usize::try_from(place.offset).unwrap(), &filter);
    assert!(told(&|_| ()).contains("denies a key"));
}

#[test]
fn a_file_that_is_not_the_run_is_damage_and_not_an_empty_one() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 50);
    let run = stage.run(1, &model, 256);
    let other = stage.run(2, &model, 256);
    let key = model.keys().next().unwrap();
    let refused = |words: &str| {
        let error = stage.again(&run).get(key, filter::hash(key)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(words), "{error}");
    };
    let path = run.id().path(Path::new(FOLDER));
    stage.disk.rename(&other.id().path(Path::new(FOLDER)), &path).unwrap();
    refused("the file is run 0000000000000002");
    let file = stage.disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
    file.set_size(run.facts().bytes - 1).unwrap();
    refused("it was written with");
    stage.disk.unlink(&path).unwrap();
    refused("the file is not there");
}

#[test]
fn what_all_look_ups_ask_is_read_at_once_and_by_itself_where_a_sector_is_lost() {
    let stage = Stage::new();
    let value = Some(Row::from_elem(1, 30));
    let model: Model =
        (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), OwnedEntry { seq: 1, value: value.clone() })).collect();
    let run = stage.run(1, &model, 256);
    let filter = Footer::read(stage.bytes(&run).last_chunk().unwrap(), RunId(1)).unwrap().filter;
    let get = |run: &Run, number: u32| run.get(&number.to_be_bytes(), filter::hash(&number.to_be_bytes()));
    let calls = |run: &Run| {
        let before = stage.sim.calls();
        assert!(get(run, 0).unwrap().is_some());
        stage.sim.calls() - before
    };
    // Some 190 blocks of the index: the file is opened and asked for its size, its end is read, filter and index, one block.
    assert_eq!(calls(&stage.again(&run)), 5);
    // The last block of the index stands before the filter: keys that neither it nor its neighbours lead to are found.
    stage.sim.set_unreadable(&run.id().path(Path::new(FOLDER)), filter.offset / 512 - 1, true);
    let rotten = stage.again(&run);
    assert!(calls(&rotten) > 100, "each by itself");
    let lost = (0..20_000).filter(|number| get(&rotten, *number).is_err()).count();
    assert!((1..1_000).contains(&lost), "{lost} of 20,000 keys are lost with one sector");
    stage.sim.set_unreadable(&run.id().path(Path::new(FOLDER)), filter.offset / 512 - 1, false);
    // A sector of the filter costs no key, and is not asked for with each.
    stage.sim.set_unreadable(&run.id().path(Path::new(FOLDER)), filter.offset / 512 + 1, true);
    let lent = Cache::new(u64::from(filter.length) * 2, 0, 256, 64).unwrap();
    let through = Run::open(&stage.disk, Path::new(FOLDER), run.facts().clone(), &lent);
    assert!(!lent.take_out(u64::from(filter.length) + 1));
    for run in [stage.again(&run), through] {
        assert!((0..20_000).all(|number| get(&run, number).unwrap().is_some()));
        assert!(get(&run, 20_000).unwrap().is_none());
        assert!(calls(&run) < 4);
    }
}

#[test]
fn a_file_that_was_cut_in_its_filter_is_read_without_one() {
    // A file was cut after its end had been read: every look-up was told `Corrupt`, also of keys in blocks that are whole.
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 300);
    let run = stage.run(1, &model, 256);
    let filter = Footer::read(stage.bytes(&run).last_chunk().unwrap(), RunId(1)).unwrap().filter;
    // Held by the run, and through a cache that lends it nothing.
    let lent = stage.again(&run);
    let cache = Cache::new(u64::from(filter.length) * 2, 0, 256, 64).unwrap();
    let through = Run::open(&stage.disk, Path::new(FOLDER), run.facts().clone(), &cache);
    assert!(cache.takes(filter.length.into()) && !cache.take_out(u64::from(filter.length) + 1));
    assert!(lent.top().is_ok() && through.top().is_ok());
    let access = Open { access: Access::Write, direct: false };
    let file = stage.disk.open(&run.id().path(Path::new(FOLDER)), access).unwrap();
    file.set_size(filter.offset + 1).unwrap();
    for run in [lent, through] {
        for (key, one) in &model {
            assert_eq!(run.get(key, filter::hash(key)).unwrap().as_ref(), Some(one));
        }
    }
}

#[test]
fn fuzz_run_file_takes_any_bytes() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(7), 200);
    let run = stage.run(1, &model, 256);
    let good = stage.bytes(&run);
    let footer = Footer::read(good.last_chunk::<FOOTER_BYTES>().unwrap(), RunId(1)).unwrap();
    let mut builder = BlockBuilder::default();
    model.iter().for_each(|(key, one)| builder.push(&entry(key, one)));
    let block = builder.finish();
    let filter = filter::lay(&mut model.keys().map(|key| filter::hash(key)).collect());
    assert!(usize::try_from(footer.facts.offset).unwrap() < good.len());
    let runs = fuzz(7, &[&good, &block, &filter, b"x"], crate::fuzzing::fuzz_run_file);
    assert!(runs > 1000, "{runs} inputs");
}
