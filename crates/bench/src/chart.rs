//! From cells to lines: a chart is a pure function of them.
//!
//! Walk: [`plot`] picks cells, groups them into lines and orders their points · [`draw`] lays an SVG of it.
//! Deliberately absent: averages. Cells that would fall on one point get lines of their own.

pub mod draw;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Cell, ChartKind, ChartSpec};

/// The lines of one chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// In the natural order of their labels.
    pub lines: Vec<Line>,
    /// Cells that belong here by their labels and have no place on an axis of numbers.
    pub unplaced: usize,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The values of its labels, of several lines only those in which they differ.
    pub name: String,
    /// In the order of their labels.
    pub points: Vec<Point>,
}

/// One cell on a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its value of the label that orders the points.
    pub label: String,
    /// Where it stands; none for a cell that has not both figures: it failed, or was never measured so.
    pub at: Option<(f64, f64)>,
}

impl Plot {
    /// Every place that is drawn.
    pub fn places(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.at))
    }

    /// The values of the ordering label over all lines, in their order.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for point in self.lines.iter().flat_map(|line| &line.points) {
            if !labels.contains(&point.label) {
                labels.push(point.label.clone());
            }
        }
        labels.sort_by(|a, b| natural(a, b));
        labels
    }
}

impl ChartSpec {
    /// The label that orders the points.
    #[must_use]
    pub fn order(&self) -> &str {
        match self.kind {
            ChartKind::Lines | ChartKind::Bars => &self.x,
            ChartKind::Curve | ChartKind::Series => &self.along,
        }
    }

    fn takes(&self, cell: &Cell) -> bool {
        let matches =
            |(name, values): (&String, &Vec<String>)| cell.labels.get(name).is_some_and(|value| values.contains(value));
        self.only.iter().all(matches)
    }
}

/// The lines of a chart.
#[must_use]
pub fn plot(spec: &ChartSpec, cells: &[Cell]) -> Plot {
    let mut plot = Plot::default();
    let mut placed: Vec<(&Cell, f64)> = Vec::new();
    let named = named_places(spec, cells);
    for cell in cells.iter().filter(|cell| spec.takes(cell)) {
        let label = cell.labels.get(spec.order());
        let place = match spec.kind {
            ChartKind::Lines | ChartKind::Curve => label.and_then(|value| value.parse::<f64>().ok()),
            ChartKind::Bars => label.and_then(|value| named.get(&Natural(value)).copied()),
            ChartKind::Series => Some(0.0),
        };
        match place.filter(|x| x.is_finite()) {
            Some(place) => placed.push((cell, place)),
            None => plot.unplaced += 1,
        }
    }
    placed.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let labels = labels(spec, &placed);
    let figures = told_apart(&spec.y);
    let mut groups: BTreeMap<Key<'_>, Vec<(&Cell, f64)>> = BTreeMap::new();
    for (cell, place) in placed {
        let key = labels.iter().map(|name| Natural(cell.labels.get(*name).map_or("", String::as_str))).collect();
        groups.entry(key).or_default().push((cell, place));
    }
    let differs = |at: usize| groups.keys().any(|key| key.get(at) != groups.keys().next().and_then(|key| key.get(at)));
    let telling: Vec<bool> = (0..labels.len()).map(|at| groups.len() == 1 || differs(at)).collect();
    for (key, cells) in groups {
        let named = labels.iter().zip(&key).zip(&telling).filter(|(_, telling)| **telling);
        let values: Vec<String> = named.map(|((name, value), _)| told(name, value.0)).collect();
        for (y, short) in spec.y.iter().zip(&figures) {
            let figure = (spec.y.len() > 1).then(|| short.clone());
            let name: Vec<String> = values.iter().filter(|value| !value.is_empty()).cloned().chain(figure).collect();
            let point = |(cell, place): &(&Cell, f64)| Point {
                label: cell.labels.get(spec.order()).cloned().unwrap_or_default(),
                at: at(spec, cell, *place, y),
            };
            let name = if name.is_empty() { y.replace('_', " ") } else { name.join(", ") };
            let points = match spec.kind {
                ChartKind::Series => cells.iter().flat_map(|(cell, _)| series(spec, cell, y)).collect(),
                _ => cells.iter().map(point).collect(),
            };
            plot.lines.push(Line { name, points });
        }
    }
    plot
}

type Key<'k> = Vec<Natural<'k>>;

/// Of bars: the place of each value of their label, counted from 0.
fn named_places<'c>(spec: &ChartSpec, cells: &'c [Cell]) -> BTreeMap<Natural<'c>, f64> {
    let taken = cells.iter().filter(|cell| spec.kind == ChartKind::Bars && spec.takes(cell));
    let names: BTreeSet<Natural<'c>> = taken.filter_map(|cell| Some(Natural(cell.labels.get(&spec.x)?))).collect();
    names.into_iter().zip((0_u32..).map(f64::from)).collect()
}

/// The points of a cell's series; one without a place where it has none.
fn series(spec: &ChartSpec, cell: &Cell, y: &str) -> Vec<Point> {
    let drawable =
        |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && (!spec.x_log || *x > 0.0) && (!spec.y_log || *y > 0.0);
    match cell.series.get(y) {
        Some(points) => {
            let point = |at: &(f64, f64)| Point { label: at.0.to_string(), at: Some(*at).filter(drawable) };
            points.iter().map(point).collect()
        }
        None => vec![Point { label: String::new(), at: None }],
    }
}

fn at(spec: &ChartSpec, cell: &Cell, place: f64, y: &str) -> Option<(f64, f64)> {
    let figure = |name: &str| cell.figures.get(name).copied().filter(|value| value.is_finite());
    let x = match spec.kind {
        ChartKind::Lines | ChartKind::Bars | ChartKind::Series => Some(place),
        ChartKind::Curve => figure(&spec.x),
    };
    let drawable = |value: f64, log: bool| !log || value > 0.0;
    let found = x.zip(figure(y))?;
    (drawable(found.0, spec.x_log) && drawable(found.1, spec.y_log)).then_some(found)
}

/// The labels that make a line: those of the chart, and each in which two cells differ that would else fall on one point.
fn labels<'n>(spec: &'n ChartSpec, placed: &[(&'n Cell, f64)]) -> Vec<&'n str> {
    let mut labels: Vec<&str> = spec.series.iter().map(String::as_str).collect();
    let mut points: BTreeMap<(Vec<Option<&String>>, &str), &Cell> = BTreeMap::new();
    let mut more: BTreeSet<&str> = BTreeSet::new();
    for (cell, _) in placed {
        let key: Vec<_> = labels.iter().map(|name| cell.labels.get(*name)).collect();
        let place = cell.labels.get(spec.order()).map_or("", String::as_str);
        let first = *points.entry((key, place)).or_insert(cell);
        let names = first.labels.keys().chain(cell.labels.keys()).map(String::as_str);
        more.extend(names.filter(|name| first.labels.get(*name) != cell.labels.get(*name)));
    }
    labels.extend(more.into_iter().filter(|name| *name != spec.order()));
    labels
}

/// A value that is a word tells itself; one that begins with a digit needs its label: `rpo 0/5`.
fn told(name: &str, value: &str) -> String {
    match value.chars().next() {
        None => String::new(),
        Some(first) if first.is_ascii_digit() => format!("{} {value}", name.replace('_', " ")),
        Some(_) => value.replace('_', "-"),
    }
}

/// Names without the words that all of them begin and end with: `total_p25_us`, `total_p50_us` are `p25`, `p50`.
fn told_apart(names: &[String]) -> Vec<String> {
    let split: Vec<Vec<&str>> = names.iter().map(|name| name.split('_').collect()).collect();
    let shortest = split.iter().map(Vec::len).min().unwrap_or(0);
    let shared = |word: &dyn Fn(&[&str], usize) -> Option<String>, most: usize| {
        let same = |at: &usize| {
            let mut words = split.iter().map(|name| word(name, *at));
            let first = words.next();
            words.all(|word| Some(word) == first)
        };
        (0..most).take_while(same).count()
    };
    let most = shortest.saturating_sub(1);
    let before = shared(&|name, at| name.get(at).map(|word| (*word).to_owned()), most);
    let after = shared(&|name, at| name.iter().rev().nth(at).map(|word| (*word).to_owned()), most - before);
    split.iter().map(|name| name.get(before..name.len() - after).unwrap_or_default().join(" ")).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Natural<'t>(&'t str);

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(self.0, other.0)
    }
}

impl PartialOrd for Natural<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As people order: `0/5` before `1/10` before `10/50`.
#[must_use]
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (one, two) = (token(&mut left), token(&mut right));
        if one.is_empty() && two.is_empty() {
            return a.cmp(b);
        }
        let numbers = one.parse::<u64>().ok().zip(two.parse::<u64>().ok());
        let order = numbers.map_or_else(|| one.cmp(two), |(one, two)| one.cmp(&two));
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// A run of digits, or of anything else.
fn token<'t>(rest: &mut &'t str) -> &'t str {
    let digit = rest.chars().next().is_some_and(|first| first.is_ascii_digit());
    let end = rest.find(|one: char| one.is_ascii_digit() != digit).unwrap_or(rest.len());
    let (token, after) = rest.split_at(end);
    *rest = after;
    token
}
