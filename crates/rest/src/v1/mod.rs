//! `/v1`, on the admin listener: transactions, keys, and the server itself.
//!
//! Walk: [`routes`] each path with its handler · `transactions` begin, write, commit, list, inspect, force, history ·
//! `desk` those that are open, `branches` what they work on · `records` what was done once · `keys` get, put, head, delete, `scan` many · `server` version, configuration, log level ·
//! `views` the coordinator's words as JSON. Every handler asks first whether the caller may, then takes the request apart,
//! and works where it may block.
//! Deliberately absent: documents but as part of a transaction. They have a listener of their own.

mod branches;
mod desk;
mod keys;
mod records;
mod scan;
mod server;
mod share;
mod transactions;
mod views;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::Coordinator;
use assent_docs::Database;
use assent_door::{Health, Metrics};
use assent_ids::{NodeId, ResourceId};
use assent_journal::Log;
use assent_kv::Kv;
use axum::Router;
use axum::routing::{get, post, put};
use serde_json::Value;

use crate::guard::Guard;
use crate::health;
use crate::problem::Problem;
use crate::rest::Settings;
use crate::service::Upkeep;
use branches::Stores;
use desk::Desk;
use records::Records;

/// Takes a level, or says what is wrong with it.
type Take = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// How much the server says of itself, read and changed while it runs.
pub struct LogLevel {
    /// What it is now.
    pub get: Box<dyn Fn() -> String + Send + Sync>,
    /// Takes another one, or says what is wrong with it.
    pub set: Box<Take>,
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLevel").finish_non_exhaustive()
    }
}

/// What the admin listener serves. Engines may be absent; their paths then say so.
#[derive(Debug)]
pub struct Admin {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How it stands.
    pub health: Arc<Health>,
    /// The data folder's identity.
    pub node: NodeId,
    /// Decisions.
    pub coordinator: Option<Arc<Coordinator>>,
    /// Its log, for what was decided so far.
    pub coordinator_log: Option<Arc<dyn Log>>,
    /// Keys and values.
    pub kv: Option<Arc<Kv>>,
    /// The name under which the store of this process is registered as a resource; without, no transaction takes its keys.
    pub own_store: Option<String>,
    /// Documents.
    pub documents: Option<Arc<Database>>,
    /// The same name of the documents of this process.
    pub own_documents: Option<String>,
    /// The names of the registered resources.
    pub resources: Vec<String>,
    /// The configuration as it was read, without secrets.
    pub configuration: Value,
    /// How much is logged.
    pub log_level: Option<LogLevel>,
}

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct House {
    guard: Arc<Guard>,
    node: NodeId,
    coordinator: Option<Arc<Coordinator>>,
    coordinator_log: Option<Arc<dyn Log>>,
    kv: Option<Arc<Kv>>,
    records: Arc<Records>,
    desk: Desk,
    resources: Vec<String>,
    configuration: Value,
    log_level: Option<LogLevel>,
    body_bytes_max: usize,
}

impl House {
    fn kv(&self) -> Result<&Arc<Kv>, Problem> {
        self.kv.as_ref().ok_or_else(|| Problem::not_found("this server has no key-value store: write [kv]"))
    }

    fn coordinator(&self) -> Result<&Arc<Coordinator>, Problem> {
        self.coordinator
            .as_ref()
            .ok_or_else(|| Problem::not_found("this server has no coordinator: write [coordinator]"))
    }

    /// The registered name of a resource, or its id.
    fn resource(&self, id: ResourceId) -> String {
        let name = self.resources.iter().find(|name| ResourceId::of(name) == id);
        name.map_or_else(|| id.to_string(), Clone::clone)
    }
}

/// How often transactions are looked at whose time may be over.
const SWEEP: Duration = Duration::from_millis(500);

/// The routes, and the work beside them.
pub(crate) fn routes(admin: Admin, guard: Arc<Guard>, settings: &Settings) -> (Router, Option<Upkeep>) {
    let Admin {
        metrics,
        health,
        node,
        coordinator,
        coordinator_log,
        kv,
        own_store,
        documents,
        own_documents,
        resources,
        configuration,
        log_level,
    } = admin;
    let open = health::routes(&guard, &metrics, &health);
    let clock = Arc::clone(&guard.clock);
    let keep = Duration::from_secs(settings.idempotency_seconds.into());
    let records = Arc::new(Records::new(kv.clone(), documents.clone(), Arc::clone(&clock), keep));
    let stores = Stores { kv: own_store.zip(kv.clone()), documents: own_documents.zip(documents) };
    let desk = Desk::new(coordinator.clone(), stores, Arc::clone(&records), clock);
    let body_bytes_max = usize::try_from(settings.body_bytes_max).unwrap_or(usize::MAX);
    let house = Arc::new(House {
        guard,
        node,
        coordinator,
        coordinator_log,
        kv,
        records,
        desk,
        resources,
        configuration,
        log_level,
        body_bytes_max,
    });
    let router = Router::new()
        .route("/v1/version", get(server::version))
        .route("/v1/config", get(server::configuration))
        .route("/v1/log-level", get(server::log_level).put(server::set_log_level))
        .route("/v1/keyspaces", get(keys::keyspaces))
        .route("/v1/keyspaces/{name}", put(keys::create).delete(keys::drop))
        .route("/v1/keys/{keyspace}", get(scan::scan))
        .route("/v1/keys/{keyspace}/{*key}", get(keys::get).head(keys::head).put(keys::put).delete(keys::delete))
        .route("/v1/transactions", get(transactions::list).post(transactions::begin))
        .route("/v1/transactions/{tx}", get(transactions::show).delete(transactions::roll_back))
        .route("/v1/transactions/{tx}/writes", post(transactions::write))
        .route("/v1/transactions/{tx}/commit", post(transactions::commit))
        .route("/v1/transactions/{tx}/rollback", post(transactions::roll_back))
        .route("/v1/transactions/{tx}/force", post(transactions::force))
        .route("/v1/transactions/{tx}/forget", post(transactions::forget))
        .route("/v1/history", get(transactions::history))
        .with_state(Arc::clone(&house));
    let upkeep: Upkeep = Box::pin(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let house_ = Arc::clone(&house);
            _ = house
                .guard
                .upkeep
                .run(move || {
                    house_.desk.sweep();
                    Ok(())
                })
                .await;
        }
    });
    (router.merge(open), Some(upkeep))
}
