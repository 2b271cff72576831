//! One fail-over on screen: the primary dies under load, the standby goes on, the dead one comes back; then everything is counted.

use std::path::Path;
use std::time::Duration;

use assent_world::{Clock as _, RealClock};
use indicatif::{ProgressBar, ProgressStyle};

use super::house::{House, LONG, member};
use super::load::create;
use super::play::{Scene, wait};
use super::report::{FirstAnswer, Played, Report};
use super::{Arguments, orders};
use crate::demo::now;
use crate::failure::Failure;

const LOOK: Duration = Duration::from_millis(50);

/// The screen: a bar of the time that has passed, the rate, and what happens.
struct Screen {
    bar: ProgressBar,
    length: Duration,
    began: std::time::Instant,
    last: (Duration, u64),
    is_quiet: bool,
}

impl Screen {
    fn new(length: Duration, is_quiet: bool) -> Self {
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new(millis(length)) };
        let style = ProgressStyle::with_template("{bar:40} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, length, began: now(), last: (Duration::ZERO, 0), is_quiet }
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            self.bar.suspend(|| aside!("{:6.2} s  {text}", self.began.elapsed().as_secs_f64()));
        }
    }

    /// Lets the load run until that share of the whole time.
    fn run_to(&mut self, percent: u32, house: &mut House, scene: &Scene) {
        let until = self.length * percent / 100;
        while self.began.elapsed() < until {
            house.listen();
            self.look(scene);
            RealClock.sleep(LOOK);
        }
    }

    fn look(&mut self, scene: &Scene) {
        let (elapsed, answers) = (self.began.elapsed(), scene.load.answers());
        let (before, counted) = self.last;
        let took = millis(elapsed.saturating_sub(before)).max(1);
        let rate = answers.saturating_sub(counted) * 1_000 / took;
        self.last = (elapsed, answers);
        self.bar.set_position(millis(elapsed));
        self.bar.set_message(format!("{answers} answers, {rate} a second"));
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Plays it.
pub(super) fn show(arguments: &Arguments, folder: &Path, seconds: u64, json: bool) -> Result<Report, Failure> {
    let mut house = House::open(arguments, folder)?;
    let orders = orders(arguments, &house);
    create(&house.servers, arguments.assets)?;
    let began = now();
    let scene = Scene::begin(&mut house, &orders)?;
    let (primary, standby) = (scene.primary(), scene.standby());
    let mut screen = Screen::new(Duration::from_secs(seconds), json);
    let (clients, window, assets) = (orders.clients, orders.window, orders.assets);
    screen.say(&format!(
        "node {primary} is primary, node {standby} has everything; {clients} clients with {window} commands each under way, {assets} assets"
    ));
    screen.run_to(30, &mut house, &scene);
    let mut played = Played { fault: "kill primary".to_owned(), kind: "kill", ..Played::default() };
    let blow = scene.load.now();
    house.kill(&member(primary))?;
    let (struck, killed) = (scene.load.now(), now());
    screen.say(&format!("node {primary} is killed (SIGKILL)"));
    let load = &scene.load;
    let came = wait(&mut house, || load.newest() > struck);
    played.expect(came, "nobody took over");
    screen.say(&format!("node {standby} answers, {} ms later", killed.elapsed().as_millis()));
    screen.run_to(60, &mut house, &scene);
    house.start(&member(primary))?;
    screen.say(&format!("node {primary} is started again, as a standby"));
    let mut has_all = false;
    let began_again = now();
    while !has_all && began_again.elapsed() < LONG {
        screen.look(&scene);
        has_all = house.status(standby).is_some_and(|state| state.in_sync.len() == house.members.len());
    }
    played.expect(has_all, "the dead member did not come back");
    screen.say(&format!("node {primary} has everything again, while clients went on"));
    screen.run_to(100, &mut house, &scene);
    screen.bar.finish_and_clear();
    scene.end(&mut house, &orders, &mut played, ((blow, struck), true))?;
    played.took_ms = millis(began.elapsed());
    let mut report = Report { seed: arguments.seed, ack: arguments.ack.clone(), ..Report::default() };
    report.arbiter.clone_from(&arguments.arbiter);
    report.first_answer_ms = FirstAnswer::of(&played.first_answer_us.into_iter().collect::<Vec<_>>());
    report.plays.push(played);
    super::compare(&mut house, &mut report)?;
    report.elapsed_ms = millis(began.elapsed());
    Ok(report)
}
