//! Assets: numbers in memory that many change at once, each change a command of one ordered log.
//!
//! ```text
//!   command   what is asked, and its one layout from the client to the log and the standby          (command, answer, refusal)
//!   machine   apply(sequence, time, command) -> answer: the same on every member of a group         (machine, work, logic)
//!   state     assets in a table of pages, notes of business logic, sessions, branches               (table, notes, sessions, branches)
//!   image     all of it as checksummed frames, taken without a stop                                 (image)
//!   engine    the machine over a `Log`: one ordering point, answers by watermark, two snapshots     (engine, recover, store)
//! ```
//! Walk: [`Engine::open`] loads a snapshot and replays the log behind it · [`Engine::order`] gives a command its place and its
//! answer, [`Engine::confirm`] waits until that may be told · [`Engine::snapshot`] bounds the replay · [`Subscriptions`] tell
//! who wants to know · [`Logic`] is business logic, in one atomic command (`examples/order_book.rs`).
//! [`Door`] serves it with one desk thread, [`Client`] asks it there, pipelined, and once.
//! Deliberately absent: roles of a group; who is primary is `membership`'s to say. TLS and accounts.
//!
//! ```
//! use std::sync::Arc;
//! use assent_assets::{Answer, AssetId, Command, Config, Engine, Logics, Op};
//! use assent_frame::Writer;
//! use assent_journal::Journal;
//! use assent_world::{RealClock, RealDice, RealDisk};
//!
//! # let folder = tempfile::tempdir()?; let folder = folder.path();
//! let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
//! let (log, _) = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), Default::default())?;
//! let (assets, _) = Engine::open(log, disk, clock, &folder.join("assets"), Config::default(), Logics::default())?;
//! let run = |ops: &[Op]| {
//!     let mut command = Writer::new();
//!     Command::lay_batch(&mut command, None, ops);
//!     assets.execute(command.as_slice())
//! };
//! let (cash, pens) = (AssetId(1), AssetId(2));
//! run(&[Op::Create { id: cash, value: 100 }, Op::Create { id: pens, value: 0 }])?;
//! // A pen for 30, three times; the fourth time there is not enough, and no pen either.
//! let buy = [Op::Add { id: pens, by: 1 }, Op::AddWithin { id: cash, by: -30, min: 0, max: i64::MAX }];
//! for _ in 0..3 {
//!     assert!(matches!(run(&buy)?, Answer::Done(_)));
//! }
//! assert!(matches!(run(&buy)?, Answer::Refused { op: 1, .. }));
//! let Answer::Done(results) = run(&[Op::Get { id: cash }, Op::Get { id: pens }])? else { unreachable!() };
//! assert_eq!(results.assets.iter().map(|asset| asset.value).collect::<Vec<_>>(), [10, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod asset;
mod barrier;
mod branches;
mod caller;
mod client;
mod command;
mod config;
mod door;
mod due;
mod duties;
mod engine;
mod error;
mod feed;
#[doc(hidden)]
pub mod fuzzing;
mod group_door;
mod guest;
mod handle;
mod image;
mod inspect;
mod line;
mod logic;
mod machine;
mod member;
mod message;
mod notes;
mod options;
mod recover;
mod refusal;
mod remote;
mod resource;
mod rules;
mod run;
mod sessions;
mod standing;
mod store;
mod subscribe;
mod table;
mod trace;
mod work;

pub use answer::{Answer, OUTPUT_BYTES_MAX, Results};
pub use asset::{Asset, AssetId};
pub use barrier::BARRIERS;
pub use branches::{InDoubt, Known};
pub use client::Client;
pub use command::{COMMAND_BYTES_MAX, Command, INPUT_BYTES_MAX, OPS_MAX, Op, Ops, Request, SessionName, What};
pub use config::{Config, Limits};
pub use door::{Door, Promise};
pub use engine::{Engine, KIND_COMMAND, KIND_RULES, Ordered, Snapshot, Stats};
pub use error::AssetsError;
pub use feed::Feed;
pub use group_door::{GroupDoor, GroupDoorConfig};
pub use guest::CLIENTS_MAX;
pub use handle::{Answering, AsyncClient};
pub use image::{ImageHead, Loading, View};
pub use inspect::{Compared, Found, Kept, compare, verify};
pub use line::ClientError;
pub use logic::{Logic, Logics};
pub use machine::{Begun, Machine};
pub use message::{Status, Word};
pub use notes::{NOTE_BYTES_MAX, NOTES_PER_BOOK_MAX};
pub use options::{Event, Options};
pub use recover::Recovery;
pub use refusal::Refusal;
pub use remote::{RemoteAssets, RemoteAssetsConnector};
pub use resource::{AssetsConnector, AssetsResource};
pub use rules::Rules;
pub use sessions::{SESSION_BYTES_MAX, WINDOW_MAX};
pub use standing::{GroupStatus, Role, StandbyStatus};
pub use store::Verified;
pub use subscribe::{Change, KEPT_SUM_MAX, News, SubscriptionId, Subscriptions, WANTED_MAX, WANTED_SUM_MAX};
pub use trace::{Step, StepTimes, Steps, Trace};
pub use work::Work;
