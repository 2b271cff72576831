//! Products of the axes: the ones somebody asks for, and the three that have a name.
//!
//! A matrix is a union of products, as the tuning charts vary other axes than the rest. A cell that two of them share is run
//! once. Whoever names values of an axis narrows every product to them.

use std::collections::BTreeSet;

use super::axes::{Case, Engine, Mode, Place, Rpo, Workload};

/// Values of each axis; the product is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    /// Workloads, each with the cycles of a client.
    pub workloads: Vec<(Workload, u32)>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Places.
    pub places: Vec<Place>,
    /// Engines.
    pub engines: Vec<Engine>,
    /// What may be lost.
    pub rpos: Vec<Rpo>,
    /// Threads of a server.
    pub threads: Vec<u32>,
    /// Client threads.
    pub clients: Vec<u32>,
}

/// The matrices with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// Every chart, in minutes.
    Short,
    /// Threads of the server, RPO and both modes.
    Tuning,
    /// What the field published.
    Published,
}

/// Values that somebody gave; they take the place of a matrix's own.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Cycles.
    pub cycles: Option<u32>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Places.
    pub places: Vec<Place>,
    /// Engines.
    pub engines: Vec<Engine>,
    /// What may be lost.
    pub rpos: Vec<Rpo>,
    /// Threads of a server.
    pub threads: Vec<u32>,
    /// Client threads.
    pub clients: Vec<u32>,
}

/// RPO of the main chapter: minimum and maximum milliseconds.
const RPOS: [Rpo; 3] = [Rpo { min_ms: 0, max_ms: 0 }, Rpo { min_ms: 0, max_ms: 5 }, Rpo { min_ms: 1, max_ms: 10 }];
/// And of the tuning chapter, on top.
const RPOS_TUNING: [Rpo; 2] = [Rpo { min_ms: 10, max_ms: 50 }, Rpo { min_ms: 20, max_ms: 100 }];

fn workloads(cycles: [(&str, u32); 3]) -> Vec<(Workload, u32)> {
    cycles.into_iter().filter_map(|(name, cycles)| Some((Workload::named(name)?, cycles))).collect()
}

impl Axes {
    /// The field's defaults: ten clients, a hundred cycles, slow resources, open once.
    #[must_use]
    pub fn of_the_field() -> Self {
        Self {
            workloads: Workload::named("medium").map(|workload| (workload, 100)).into_iter().collect(),
            modes: vec![Mode::Batch],
            places: vec![Place::Served],
            engines: vec![Engine::Journal],
            rpos: vec![Rpo::default()],
            threads: vec![1],
            clients: vec![10],
        }
    }

    fn narrowed(self, given: &Given) -> Self {
        fn or<T: Clone>(given: &[T], own: Vec<T>) -> Vec<T> {
            if given.is_empty() { own } else { given.to_vec() }
        }
        let mut workloads = self.workloads;
        if !given.workloads.is_empty() {
            // A workload that the matrix has keeps its cycles there.
            let fallback = workloads.first().map_or(100, |(_, cycles)| *cycles);
            let cycles = |it: &Workload| workloads.iter().find(|(own, _)| own == it).map_or(fallback, |own| own.1);
            workloads = given.workloads.iter().map(|it| (it.clone(), cycles(it))).collect();
        }
        if let Some(cycles) = given.cycles {
            workloads.iter_mut().for_each(|workload| workload.1 = cycles);
        }
        Self {
            workloads,
            modes: or(&given.modes, self.modes),
            places: or(&given.places, self.places),
            engines: or(&given.engines, self.engines),
            rpos: or(&given.rpos, self.rpos),
            threads: or(&given.threads, self.threads),
            clients: or(&given.clients, self.clients),
        }
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (workload, cycles) in &self.workloads {
            for (mode, place) in product(&self.modes, &self.places) {
                for (rpo, engine) in product(&self.rpos, &self.engines) {
                    for (threads, clients) in product(&self.threads, &self.clients) {
                        let workload = workload.clone();
                        cases.push(Case { workload, mode, place, engine, rpo, threads, clients, cycles: *cycles });
                    }
                }
            }
        }
        cases
    }
}

fn product<A: Copy, B: Copy>(one: &[A], two: &[B]) -> Vec<(A, B)> {
    one.iter().flat_map(|a| two.iter().map(|b| (*a, *b))).collect()
}

impl Matrix {
    /// Its products.
    #[must_use]
    pub fn products(self) -> Vec<Axes> {
        let both = vec![Engine::Table, Engine::Journal];
        let tens: Vec<u32> = (1..=10).map(|tens| tens * 10).collect();
        let all: Vec<Rpo> = RPOS.into_iter().chain(RPOS_TUNING).collect();
        let main = |workloads, clients| Axes {
            workloads,
            modes: vec![Mode::OpenClose],
            engines: both.clone(),
            rpos: RPOS.to_vec(),
            clients,
            ..Axes::of_the_field()
        };
        let tuning = |workloads, rpos, threads, clients| Axes {
            modes: vec![Mode::OpenClose, Mode::Batch],
            rpos,
            threads,
            ..main(workloads, clients)
        };
        let extreme = |cycles| Workload::named("extreme").map(|it| (it, cycles)).into_iter().collect();
        match self {
            Self::Short => {
                let ends = vec![RPOS[0], RPOS_TUNING[0]];
                vec![
                    main(workloads([("medium", 20), ("high", 120), ("extreme", 300)]), vec![10, 50, 100]),
                    tuning(extreme(300), ends, vec![1, 2], vec![10, 50, 100]),
                ]
            }
            Self::Tuning => vec![tuning(extreme(1_000), all, vec![1, 2, 3], tens)],
            Self::Published => vec![main(workloads([("medium", 1_000), ("high", 1_000), ("extreme", 1_000)]), tens)],
        }
    }
}

/// Every cell once, in the order they are run. Without a matrix the field's defaults are narrowed.
#[must_use]
pub fn cases(matrix: Option<Matrix>, given: &Given) -> Vec<Case> {
    let products = matrix.map_or_else(|| vec![Axes::of_the_field()], Matrix::products);
    let mut seen = BTreeSet::new();
    let all = products.into_iter().flat_map(|axes| axes.narrowed(given).cases());
    // Two products that differ in cycles only would be two cells of one name.
    all.map(one_server_setting).filter(|case| seen.insert(case.labels())).collect()
}

/// No server, no threads of it: the embedded cell is the same for all of them.
fn one_server_setting(case: Case) -> Case {
    match case.place {
        Place::Embedded => Case { threads: 1, ..case },
        Place::Served => case,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(matrix: Matrix) -> usize {
        cases(Some(matrix), &Given::default()).len()
    }

    #[test]
    fn every_matrix_has_its_cells_and_none_twice() {
        // workloads x RPO x engines x clients
        assert_eq!(count(Matrix::Published), 3 * 3 * 2 * 10);
        // modes x RPO x threads x engines x clients
        assert_eq!(count(Matrix::Tuning), 2 * 5 * 3 * 2 * 10);
        // extreme, open-close, 0/0, one thread is in both of its products
        assert_eq!(count(Matrix::Short), 3 * 3 * 2 * 3 + 2 * 2 * 2 * 2 * 3 - 2 * 3);
        for matrix in [Matrix::Short, Matrix::Tuning, Matrix::Published] {
            let all = cases(Some(matrix), &Given::default());
            let names: BTreeSet<_> = all.iter().map(Case::labels).collect();
            assert_eq!(names.len(), all.len(), "{matrix:?}");
        }
    }

    #[test]
    fn what_somebody_names_takes_the_place_of_a_matrixs_own_values() {
        let given = Given {
            engines: vec![Engine::Journal],
            clients: vec![50],
            workloads: Workload::named("extreme").into_iter().collect(),
            ..Given::default()
        };
        let all = cases(Some(Matrix::Published), &given);
        assert_eq!(all.len(), 3, "one of each RPO");
        assert!(all.iter().all(|case| case.engine == Engine::Journal && case.clients == 50 && case.cycles == 1_000));
        let given = Given { cycles: Some(7), ..given };
        assert!(cases(Some(Matrix::Short), &given).iter().all(|case| case.cycles == 7));
        let rpos = vec!["3/4".parse().unwrap()];
        assert_eq!(cases(Some(Matrix::Tuning), &Given { rpos, ..given }).len(), 2 * 3);
    }

    #[test]
    fn without_a_matrix_the_fields_defaults_are_run_and_embedded_has_no_server_threads() {
        let all = cases(None, &Given::default());
        let [case] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((case.clients, case.cycles, case.mode, case.rpo), (10, 100, Mode::Batch, Rpo::default()));
        assert_eq!((case.workload.t1.median_us, case.workload.t1.delta_us), (1_000, 1_000));
        assert_eq!((case.workload.t2.median_us, case.workload.t2.delta_us), (100_000, 100_000));
        let given = Given { places: vec![Place::Embedded, Place::Served], threads: vec![1, 2, 3], ..Given::default() };
        assert_eq!(cases(None, &given).len(), 4);
    }

    #[test]
    fn the_workloads_are_the_fields() {
        let sizes =
            |name| Workload::named(name).map(|it| (it.t2.median_us, it.log_size, it.max_buffer_log_size)).unwrap();
        assert_eq!(sizes("medium"), (100_000, None, None));
        assert_eq!(sizes("high"), (10_000, Some(5_242_880), Some(1_310_720)));
        assert_eq!(sizes("extreme"), (1_000, Some(52_428_800), Some(13_107_200)));
        assert_eq!(sizes("none"), (0, Some(52_428_800), Some(13_107_200)));
        assert!(Workload::named("light").is_none());
        for name in Workload::NAMES {
            let it = Workload::named(name).unwrap();
            assert_eq!(it.clone().with(it.t1, it.t2), it);
        }
        let own = Workload::named("medium").unwrap();
        let (t1, t2) = (own.t1, crate::pace::Think { median_us: 50, delta_us: 20 });
        assert_eq!(own.with(t1, t2).name, "t1=1000±500 t2=50±10");
    }

    #[test]
    fn an_rpo_is_two_numbers_of_which_the_first_is_not_the_larger() {
        for (text, min_ms, max_ms) in [("0/0", 0, 0), ("0/5", 0, 5), ("20/100", 20, 100)] {
            assert_eq!(text.parse::<Rpo>().unwrap(), Rpo { min_ms, max_ms });
            assert_eq!(Rpo { min_ms, max_ms }.to_string(), text);
        }
        for wrong in ["", "5", "5/", "/5", "6/5", "a/b", "1/2/3", "-1/5"] {
            assert!(wrong.parse::<Rpo>().is_err(), "{wrong}");
        }
    }
}
