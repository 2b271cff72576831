//! A long time without a fault, with every core at work: nobody may take over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{Clock as _, RealClock};

use super::house::House;
use super::load::Orders;
use super::play::Scene;
use super::report::Played;
use crate::demo::now;
use crate::failure::Failure;

/// Between two answers of a client: their histories must fit into memory, and the cores are busy with something else.
const PACE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(100);

/// Threads that only take time. Dropped, they end.
struct Burners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burners {
    /// Two for each core.
    fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let burn = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..2 * cores).map(burn).collect();
        Self { stop, threads }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It panicked: the panic was printed where it happened.
            _ = thread.join();
        }
    }
}

/// Waits that long under load.
pub(super) fn calm(house: &mut House, orders: &Orders, length: Duration) -> Result<Played, Failure> {
    let began = now();
    let mut played = Played { fault: "calm at full CPU".to_owned(), kind: "calm", ..Played::default() };
    let orders = Orders { pace: PACE, ..orders.clone() };
    let scene = Scene::begin(house, &orders)?;
    let burners = Burners::start();
    while began.elapsed() < length {
        house.listen();
        RealClock.sleep(LOOK);
    }
    drop(burners);
    scene.end(house, &orders, &mut played, ((0, 0), false))?;
    let many = played.fail_overs;
    played.expect(many == 0, &format!("{many} fail-overs without a fault"));
    played.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(played)
}
