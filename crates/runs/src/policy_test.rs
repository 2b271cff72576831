//! The judgement, as a table.

use super::*;
use crate::entry::Range;

static SOUND: BTreeSet<RunId> = BTreeSet::new();

fn config() -> Config {
    Config { level0_runs: 2, level1_bytes: 1 << 10, level_ratio: 2, ..Config::default() }
}

fn run(id: u64, keys: &str, bytes: u64) -> RunFacts {
    let (first, last) = keys.split_at(1);
    RunFacts {
        id: RunId(id),
        bytes,
        first: first.into(),
        last: last.into(),
        seq_min: 10,
        seq_max: 20,
        entries: 10,
        tombstones: 0,
        value_bytes: 0,
        knows: 5,
    }
}

fn dense(id: u64, keys: &str) -> RunFacts {
    RunFacts { tombstones: 5, ..run(id, keys, 100) }
}

fn erased(ranges: &[(&str, u64)]) -> Erased {
    let range = |(keys, seq): &(&str, u64)| {
        let (from, to) = keys.split_at(1);
        Range { from: from.into(), to: Some(to.into()), seq: *seq }
    };
    Erased::of(&ranges.iter().map(range).collect::<Vec<_>>())
}

fn judge(frozen: usize, levels: &[Vec<RunFacts>], erased: &Erased) -> Option<Work> {
    next(Shape { frozen, levels, erased, gathers: false, hurries: false, shunned: &SOUND }, &config())
}

fn merge(inputs: &[u64], to: usize) -> Option<Work> {
    Some(Work::Merge { inputs: inputs.iter().copied().map(RunId).collect(), to })
}

#[test]
fn what_is_most_urgent() {
    let nothing = Erased::default();
    let some = |count: u64| (0..count).map(|id| run(id, "az", 100)).collect::<Vec<_>>();
    type Row = (&'static str, usize, Vec<Vec<RunFacts>>, Option<Work>);
    let rows: [Row; 17] = [
        ("an empty map", 0, vec![], None),
        ("a memtable waits", 1, vec![], Some(Work::Flush)),
        ("a memtable goes before a merge", 1, vec![some(2)], Some(Work::Flush)),
        ("a memtable waits while level 0 is far too full", 1, vec![some(6)], merge(&[0, 1, 2, 3, 4, 5], 1)),
        ("two memtables go first", 2, vec![some(6)], Some(Work::Flush)),
        ("too few runs to merge", 0, vec![some(1)], None),
        (
            "level 0 takes what it meets",
            0,
            vec![vec![run(1, "bd", 9), run(2, "cf", 9)], vec![run(3, "aa", 9), run(4, "bb", 9), run(5, "fz", 9)]],
            merge(&[1, 2, 4, 5], 1),
        ),
        ("a level within its bytes", 0, vec![vec![], vec![run(1, "ab", 1024)]], None),
        ("a run moves where there is nothing", 0, vec![vec![], vec![run(1, "ab", 1025)]], Some(Work::Move(RunId(1)))),
        (
            "the run that meets least",
            0,
            vec![vec![], vec![run(1, "ab", 600), run(2, "cd", 600)], vec![run(3, "aa", 900), run(4, "cc", 10)]],
            merge(&[2, 4], 2),
        ),
        (
            "a level three times too full goes before level 0 that has what it takes",
            0,
            vec![some(2), vec![run(3, "ab", 3075)]],
            Some(Work::Move(RunId(3))),
        ),
        ("of two that are as full the upper one", 0, vec![some(2), vec![run(3, "yz", 1025)]], merge(&[0, 1, 3], 1)),
        ("level 0 four times too full goes first", 0, vec![some(8), vec![run(9, "bc", 3075)]], {
            merge(&[0, 1, 2, 3, 4, 5, 6, 7, 9], 1)
        }),
        ("half of it tombstones, and nothing below", 0, vec![vec![], vec![dense(1, "ab")]], merge(&[1], 1)),
        (
            "half of it tombstones, and what they hide",
            0,
            vec![vec![], vec![dense(1, "ab")], vec![run(2, "bc", 9)]],
            merge(&[1, 2], 2),
        ),
        (
            "half of it tombstones, above a level that it does not meet",
            0,
            vec![vec![], vec![dense(1, "ab")], vec![run(2, "cd", 9)]],
            Some(Work::Move(RunId(1))),
        ),
        (
            "too full, but with tombstones: written again",
            0,
            vec![vec![], vec![RunFacts { tombstones: 1, ..run(1, "ab", 1025) }]],
            merge(&[1], 1),
        ),
    ];
    for (name, frozen, levels, expected) in rows {
        assert_eq!(judge(frozen, &levels, &nothing), expected, "{name}");
    }
}

#[test]
fn runs_that_are_little_beside_what_they_meet_are_gathered_before_all_of_them_go_down() {
    type Row = (&'static str, &'static [u64], u64, Option<Work>);
    // Bytes of the runs of level 0, of which two are enough and six are many, and of the one that they meet.
    let rows: [Row; 9] = [
        ("they wait until they would be three times the longest", &[10, 10], 1000, None),
        ("three of one length become one", &[10, 10, 10], 1000, merge(&[0, 1, 2], 0)),
        ("a longer one behind them waits for its like", &[10, 10, 10, 30], 1000, merge(&[0, 1, 2], 0)),
        ("a short one is no obstacle", &[1, 10, 10, 10, 90], 1000, merge(&[0, 1, 2, 3], 0)),
        ("as many as possible", &[10, 10, 10, 30, 30], 1000, merge(&[0, 1, 2, 3, 4], 0)),
        ("those of different lengths wait", &[10, 30, 90], 1000, None),
        ("a third of what is below goes down", &[10, 30, 60], 300, merge(&[0, 1, 2, 9], 1)),
        ("so do too many", &[1, 3, 9, 27, 81, 100], 1000, merge(&[0, 1, 2, 3, 4, 5, 9], 1)),
        ("and what meets nothing", &[10, 10], 0, merge(&[0, 1], 1)),
    ];
    let nothing = Erased::default();
    for (name, above, below, expected) in rows {
        let level0 = (0..).zip(above).map(|(id, bytes)| run(id, "bf", *bytes)).collect();
        let met = if below > 0 { vec![run(8, "AA", 1), run(9, "az", below)] } else { vec![run(8, "AA", 1)] };
        let levels = [level0, met];
        let judge = |gathers| {
            next(
                Shape { frozen: 0, levels: &levels, erased: &nothing, gathers, hurries: false, shunned: &SOUND },
                &config(),
            )
        };
        assert_eq!(judge(true), expected, "{name}");
        let down = judge(false);
        assert!(matches!(down, Some(Work::Merge { to: 1, .. })), "{name}: {down:?}");
    }
    // What meets values that were erased goes down: nobody knows of them before they are written again.
    let levels = [(0..3).map(|id| run(id, "bf", 10)).collect(), vec![run(9, "az", 1000)]];
    for (ranges, expected) in [(vec![("bc", 21)], merge(&[0, 1, 2, 9], 1)), (vec![("bc", 5)], merge(&[0, 1, 2], 0))] {
        let shape = Shape {
            frozen: 0,
            levels: &levels,
            erased: &erased(&ranges),
            gathers: true,
            hurries: false,
            shunned: &SOUND,
        };
        assert_eq!(next(shape, &config()), expected, "{ranges:?}");
    }
}

#[test]
fn below_what_is_gathered_level_1_may_be_twice_as_long() {
    let nothing = Erased::default();
    for (bytes, may) in [(1024, [true, true]), (1025, [false, true]), (2048, [false, true]), (2049, [false, false])] {
        let levels = [vec![], vec![run(1, "ab", bytes)]];
        let shape =
            |gathers| Shape { frozen: 0, levels: &levels, erased: &nothing, gathers, hurries: false, shunned: &SOUND };
        assert_eq!([false, true].map(|gathers| next(shape(gathers), &config()).is_none()), may, "{bytes}");
    }
}

#[test]
fn a_run_goes_only_if_all_of_it_was_erased_later() {
    let levels = [vec![run(1, "bd", 9)]];
    for (name, ranges, goes) in [
        ("all of it", vec![("ae", 21)], true),
        ("by two together", vec![("ac", 21), ("ce", 30)], true),
        ("its last key is not in it", vec![("ad", 21)], false),
        ("a hole", vec![("ab", 21), ("ce", 21)], false),
        ("its newest entry came later", vec![("ae", 20)], false),
    ] {
        let expected = goes.then_some(Work::Drop(RunId(1)));
        assert_eq!(judge(0, &levels, &erased(&ranges)), expected, "{name}");
    }
    assert_eq!(judge(1, &levels, &erased(&[("ae", 21)])), Some(Work::Flush), "a memtable goes first");
}

#[test]
fn a_range_is_needed_while_a_run_may_hold_what_it_erased() {
    let with = |change: fn(&mut RunFacts)| {
        let mut run = run(1, "ce", 9);
        change(&mut run);
        run
    };
    for (name, facts, needed) in [
        ("it was written before", with(|_| ()), true),
        ("it was written with it", with(|run| run.knows = 15), false),
        ("all of it is newer", with(|run| run.seq_min = 15), false),
        (
            "its last key is the first of the range",
            with(|run| (run.first, run.last) = (b"a".into(), b"b".into())),
            true,
        ),
        ("it ends before the range", with(|run| (run.first, run.last) = (b"a".into(), b"a~".into())), false),
        ("it begins where the range ends", with(|run| (run.first, run.last) = (b"d".into(), b"e".into())), false),
    ] {
        let erased = erased(&[("bd", 15)]);
        let fragment = &erased.fragments()[0];
        assert_eq!(is_needed(&[vec![facts.clone()]], fragment), needed, "level 0: {name}");
        let beside = [run(2, "AA", 9), facts, run(3, "yz", 9)];
        assert_eq!(is_needed(&[vec![], vec![], beside.to_vec()], fragment), needed, "level 2: {name}");
    }
    assert!(!is_needed(&[], &erased(&[("bd", 15)]).fragments()[0]), "no runs at all");
}

#[test]
fn too_many_ranges_rewrite_the_run_that_keeps_most_of_them() {
    let ranges = |from: u8, count: usize| {
        let key =
            move |number: usize| vec![from, u8::try_from(number / 200).unwrap(), u8::try_from(number % 200).unwrap()];
        (0..count).map(move |number| Range {
            from: key(number),
            to: Some(key(number + 1)),
            seq: 15 + (number % 2) as u64,
        })
    };
    let levels = [vec![], vec![run(1, "bc", 9), run(2, "de", 9)]];
    let few = Erased::of(&ranges(b'd', RANGES_MAX).collect::<Vec<_>>());
    assert_eq!(judge(0, &levels, &few), None);
    let many = Erased::of(&ranges(b'd', RANGES_MAX).chain(ranges(b'b', 1)).collect::<Vec<_>>());
    assert_eq!(judge(0, &levels, &many), merge(&[2], 1));
    let above = [vec![run(3, "dd", 9), run(4, "ez", 9)][..1].to_vec(), vec![run(2, "de", 9)]];
    assert!(matches!(judge(0, &above, &many), Some(Work::Merge { .. })));
}

#[test]
fn debt_is_what_is_too_much() {
    let debt = |levels: &[(usize, u64)]| debt_bytes(levels.iter().copied(), &config());
    assert_eq!(debt(&[]), 0);
    assert_eq!(debt(&[(1, 900), (1, 1024), (1, 2048)]), 0);
    assert_eq!(debt(&[(2, 900), (1, 1025), (1, 2050)]), 903);
}

#[test]
fn who_hurries_has_level_0_go_down_however_few_its_runs_are() {
    let nothing = Erased::default();
    let next = |levels: &[Vec<RunFacts>]| {
        let judge = |hurries| {
            next(Shape { frozen: 0, levels, erased: &nothing, gathers: true, hurries, shunned: &SOUND }, &config())
        };
        [false, true].map(judge)
    };
    assert_eq!(next(&[vec![run(2, "ac", 9)], vec![run(1, "ab", 900)]]), [None, merge(&[2, 1], 1)]);
    assert_eq!(next(&[vec![], vec![run(1, "ab", 900)]]), [None, None]);
}

#[test]
fn what_cannot_be_read_is_gone_round() {
    let judge = |levels: &[Vec<RunFacts>], erased: &Erased, shunned: &[u64]| {
        let shunned = &shunned.iter().copied().map(RunId).collect();
        next(Shape { frozen: 0, levels, erased, gathers: false, hurries: false, shunned }, &config())
    };
    let nothing = Erased::default();
    for (name, above, shunned, expected) in [
        ("all can", &[10, 10, 10][..], &[][..], merge(&[0, 1, 2, 9], 1)),
        ("what they meet: they become one", &[10, 10, 10], &[9], merge(&[0, 1, 2], 0)),
        ("and so do those that are alike", &[10, 10, 10, 900], &[9], merge(&[0, 1, 2], 0)),
        ("if they are worth it", &[10, 10, 900], &[9], None),
        ("one of them: what is newer becomes one", &[10, 10, 10, 10, 10], &[3], merge(&[0, 1, 2], 0)),
        ("nothing is newer", &[10, 10, 10, 10], &[0], None),
    ] {
        let level0 = (0..).zip(above).map(|(id, bytes)| run(id, "az", *bytes)).collect();
        assert_eq!(judge(&[level0, vec![run(9, "az", 100)]], &nothing, shunned), expected, "{name}");
    }
    let levels = [vec![], vec![run(1, "ab", 2_000), run(2, "cd", 3_000)], vec![run(3, "ab", 500)]];
    assert_eq!(judge(&levels, &nothing, &[]), Some(Work::Move(RunId(2))));
    assert_eq!(judge(&levels, &nothing, &[2]), merge(&[1, 3], 2));
    assert_eq!([judge(&levels, &nothing, &[2, 3]), judge(&levels, &nothing, &[1, 2])], [None, None]);
    // The next full level, where the fullest can do nothing.
    let levels = [vec![run(5, "xy", 9), run(6, "xy", 9)], vec![run(1, "ab", 9_000)], vec![run(3, "ab", 500)]];
    assert_eq!([judge(&levels, &nothing, &[]), judge(&levels, &nothing, &[3])], [merge(&[1, 3], 2), merge(&[5, 6], 1)]);
    let of_tombstones = [vec![], vec![dense(1, "ab"), dense(2, "cd")]];
    assert_eq!(judge(&of_tombstones, &nothing, &[2]), merge(&[1], 1));
    let gone = erased(&[("ae", 21)]);
    assert_eq!(judge(&[vec![], vec![run(1, "ab", 9), run(2, "cd", 9)]], &gone, &[1]), Some(Work::Drop(RunId(2))));
    assert_eq!(judge(&[vec![], vec![run(1, "ab", 9)]], &gone, &[1]), None);
}
