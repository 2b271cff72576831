//! What every request passes: a name for it, a place, who asks, a time limit, and a line in the log.
//!
//! Walk: [`pass`] names the request · where nobody is asked who he is, `origin` looks where it comes from · strangers at open paths have
//! places of their own (`entry`) · [`Identity::who`], and those whose token is not known yet have places of their own too · the caller's rate · one
//! of the places, or 503 · what is [at once](Inside::at_once) · all else: the handler, within its time · a [`Problem`]
//! becomes its body · a long answer has its bytes counted until it is read · the line.
//! Nothing of a query or a body is written into the log: they have keys and secrets in them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_door::{Counter, Gauge, Metrics, Rates};
use assent_kind::Kind;
use assent_world::{Clock, Dice, Moment, RealDice};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use http_body::Body as _;
use tokio::sync::Semaphore;

use crate::answer::Answers;
use crate::body::Bodies;
use crate::crew::Crew;
use crate::deadline::Deadline;
use crate::digits::digits;
use crate::entry::{Entry, neighbourhood};
use crate::front::Inside;
use crate::identity::{Caller, Identity, Oidc, Who};
use crate::listener::Peer;
use crate::origin;
use crate::places::{self, Full, Places};
use crate::pool::Pool;
use crate::problem::Problem;
use crate::rest::Settings;
use crate::service::Service;
use crate::turn::Turn;
use crate::unread::Unread;
use crate::viewer;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest name of a request that a caller may give.
const REQUEST_ID_BYTES_MAX: usize = 64;
/// Readers of open paths and callers who are being asked who they are, and those of one address: a provider may be slow.
const ASKED_MAX: usize = 256;
const ASKED_FROM_MAX: usize = 64;
/// Passwords that are looked at at a time: each takes a core and 19 MiB.
const PASSWORDS: usize = 2;

/// What stands between the listener and the handlers.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) identity: Arc<Identity>,
    /// Of those who read, and of those who change something: they wait for each other's seats.
    pub(crate) pool: Pool,
    pub(crate) writes: Pool,
    /// Of those who end a transaction: whoever waits for a seat waits for them. They wait for none but that of a document whose database was
    /// dropped meanwhile.
    pub(crate) ends: Pool,
    /// What is done now and then, however many are at work.
    pub(crate) upkeep: Pool,
    pub(crate) passwords: Pool,
    /// For whoever counts: numbers are told also when all other threads are busy.
    pub(crate) scrapes: Pool,
    pub(crate) clock: Arc<dyn Clock>,
    /// Paths that anybody may ask.
    open: &'static [&'static str],
    /// Of requests, and what one caller may have of them.
    places: Places,
    entry: Entry,
    /// Strangers, by address.
    asked: Places,
    bodies: Bodies,
    pub(crate) unread: Unread,
    pub(crate) answers: Answers,
    /// Only this machine reaches the listener.
    is_loopback: bool,
    rates: Option<Rates>,
    patience: Duration,
    salt: u64,
    count: AtomicU64,
    numbers: Numbers,
}

#[derive(Debug)]
struct Numbers {
    classes: [Counter; 4],
    under_way: Gauge,
}

impl Numbers {
    fn new(metrics: &Metrics, listener: &str) -> Self {
        let class = |class: &str| {
            let label = format!("{listener}-{class}");
            metrics.counter(
                "http_requests",
                Some(("answered", &label)),
                "HTTP requests by listener and class of answer",
            )
        };
        let under_way =
            metrics.gauge("http_requests_under_way", Some(("listener", listener)), "HTTP requests under way");
        Self { classes: [class("2xx"), class("3xx"), class("4xx"), class("5xx")], under_way }
    }

    fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2).min(3);
        self.classes.get(class).inspect(|counter| _ = counter.inc());
    }
}

impl Guard {
    pub(crate) fn new(
        settings: &Settings,
        identity: Arc<Identity>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        service: &Service,
        (is_loopback, crew): (bool, &Crew),
    ) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(Semaphore::MAX_PERMITS).max(1);
        let second = Duration::from_secs(1);
        let writers = count(settings.threads / 2);
        let readers = count(settings.threads).saturating_sub(writers);
        let many = settings.requests_per_second;
        // Where nobody says who he is, all are one caller. Else there is a quarter that one alone does not get.
        let requests = count(settings.requests_max);
        let share = if identity.is_open() { requests } else { requests - requests / 4 };
        let bodies = Bodies::new(settings.body_bytes_max, !identity.is_open());
        Self {
            identity,
            pool: Pool::new(readers.max(1), crew),
            writes: Pool::of_writers(writers, crew),
            ends: Pool::of_writers(writers, crew),
            upkeep: Pool::new(1, crew),
            passwords: Pool::new(PASSWORDS, crew),
            scrapes: Pool::new(1, crew),
            clock,
            open: service.open(),
            places: Places::new(requests, share),
            entry: Entry::default(),
            asked: Places::new(ASKED_MAX, ASKED_FROM_MAX),
            bodies,
            unread: Unread::default(),
            answers: Answers::default(),
            is_loopback,
            rates: (many > 0).then(|| Rates::new(many, second, many.saturating_mul(2))),
            patience: Duration::from_millis(settings.request_ms.into()),
            salt: RealDice.roll(),
            count: AtomicU64::new(0),
            numbers: Numbers::new(metrics, service.name()),
        }
    }

    /// The caller's own name for it, if that is one; else ours.
    fn name(&self, headers: &HeaderMap) -> HeaderValue {
        let is_name = |name: &&HeaderValue| {
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
            (1..=REQUEST_ID_BYTES_MAX).contains(&name.len()) && name.as_bytes().iter().all(fits)
        };
        // Only distinctness matters.
        let own = || digits(self.salt.wrapping_add(self.count.fetch_add(1, Ordering::Relaxed)));
        let given = headers.get(REQUEST_ID).filter(is_name).cloned();
        given.or_else(|| HeaderValue::from_bytes(&own()).ok()).unwrap_or(HeaderValue::from_static("-"))
    }

    fn rate(&self, name: &str) -> Result<(), Problem> {
        let Some(rates) = &self.rates else { return Ok(()) };
        let wait = rates.take(name, self.clock.now());
        wait.map_err(|wait| Problem::of(Kind::Busy, format!("{name} asks too often; wait")).retry(wait))
    }

    /// Until when the work of a request that comes in now is worth doing.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(&self.clock, self.patience)
    }

    fn place(&self, caller: &Caller) -> Result<places::Place, Problem> {
        self.places.take(&caller.name).map_err(|full| {
            let whose = match full {
                Full::All(_) => "",
                Full::Own(_) => " of this caller",
            };
            let detail = format!("as many requests{whose} are under way as there may be; ask again");
            Problem::of(Kind::Unavailable, detail)
        })
    }

    /// A place of those of whom nobody knows who they are: readers of open paths, and callers who are being asked.
    fn asked(&self, from: &str) -> Result<places::Place, Problem> {
        let full = |_| Problem::of(Kind::Unavailable, "as many strangers as there may be ask just now; ask again");
        self.asked.take(&neighbourhood(from).into()).map_err(full)
    }

    /// Whose token it is, which nobody has looked at yet.
    async fn checked(&self, oidc: &Oidc, token: &str, from: Whence) -> Result<Caller, Problem> {
        let asked = self.asked(&from.to_string())?;
        let who = oidc.who(token, &self.pool).await;
        drop(asked);
        let caller = who.map_err(|problem| self.refused(problem, from))?;
        self.rate(&caller.name).map(|()| caller)
    }

    /// Whoever tries tokens is bounded by where he is.
    fn refused(&self, problem: Problem, from: Whence) -> Problem {
        self.rate(&neighbourhood(&from.to_string())).err().unwrap_or(problem)
    }

    async fn answer(
        &self,
        inside: &Inside,
        mut request: Request,
        from: Whence,
        who: &mut Option<Caller>,
    ) -> Result<Response, Problem> {
        let path = request.uri().path();
        let is_open = self.open.contains(&path) || viewer::OPEN.contains(&path);
        // How it stands is told also when it is full.
        let is_health = is_open && request.uri().path().contains("/health");
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if self.identity.is_open() && !is_health {
            origin::judge(request.uri(), request.headers(), self.is_loopback)?;
        }
        let _stranger = match (is_open && !is_health, changes) {
            (false, _) => None,
            (true, true) => Some(self.entry.enter(&from.to_string(), self.clock.now())?),
            (true, false) => Some(self.asked(&from.to_string())?),
        };
        let (mut _place, mut unchecked) = (None, None);
        if !is_open {
            match self.identity.who(request.headers()).map_err(|problem| self.refused(problem, from))? {
                Who::Known(caller) => {
                    self.rate(&caller.name)?;
                    let caller = who.insert(caller);
                    _place = Some(self.place(caller)?);
                    if let Some((wish, response)) = inside.at_once(&request, caller) {
                        return Ok(wish.shape(&self.unread, response, Some(&caller.name)).await);
                    }
                }
                Who::Unchecked(oidc, token) => unchecked = Some((oidc, token)),
            }
        }
        let work = async {
            if let Some((oidc, token)) = unchecked {
                let caller = who.insert(self.checked(oidc, &token, from).await?);
                _place = Some(self.place(caller)?);
            }
            if let Some(caller) = who.clone() {
                request.extensions_mut().insert(self.bodies.of(&caller.name));
                request.extensions_mut().insert(caller);
            }
            request.extensions_mut().insert(from);
            Ok(inside.route(request).await)
        };
        tokio::time::timeout(self.patience, Box::pin(work)).await.unwrap_or_else(|_| {
            let waited = self.patience.as_millis();
            Err(if changes {
                Problem::of(Kind::InDoubt, format!("not done within {waited} ms: it may be done or not, look"))
            } else {
                Problem::of(Kind::Unavailable, format!("not done within {waited} ms; ask again"))
            })
        })
    }
}

/// Where a request comes from, without its port. Its letters are made where somebody asks for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whence(IpAddr);

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lets one request through.
pub(crate) async fn pass(guard: &Guard, inside: &Inside, peer: &Peer, mut request: Request) -> Response {
    let began = guard.clock.now();
    let name = guard.name(request.headers());
    let (method, path, from) = (request.method().clone(), request.uri().path().to_owned(), Whence(peer.address.ip()));
    let turn = Turn::of(peer.clone());
    if !request.body().is_end_stream() {
        request = request.map(|body| turn.watch(body));
    }
    guard.numbers.under_way.inc();
    let under_way = UnderWay(&guard.numbers.under_way);
    let mut who = None;
    let answered = guard.answer(inside, request, from, &mut who).await;
    let mut response = answered.unwrap_or_else(axum::response::IntoResponse::into_response);
    if response.body().size_hint().exact().is_none() {
        response = response.map(|body| turn.owe(body));
    }
    let told = name.to_str().unwrap_or_default();
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = explained(&problem, response, &method, &path, told);
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    if response.status() == StatusCode::NOT_MODIFIED || inside.is_unmeasured(&method, &response) {
        // RFC 9110, 8.6: it would be the length of what the caller has, or would be told. The router lays 0.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    guard.numbers.answered(response.status());
    let line = Line { name: told, method: &method, path: &path, from, who: who.as_ref() };
    line.write(response.status(), began, guard.clock.now());
    response.headers_mut().insert(REQUEST_ID, name);
    turn.end();
    drop(under_way);
    response
}

/// A problem with its body. What a route says of its methods stays; who asks only for what is told beside a body is not told that.
fn explained(problem: &Problem, empty: Response, method: &Method, path: &str, name: &str) -> Response {
    let mut response = problem.lay(path, name);
    if let Some(allow) = empty.headers().get(header::ALLOW) {
        response.headers_mut().insert(header::ALLOW, allow.clone());
    }
    if *method == Method::HEAD {
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        *response.body_mut() = Body::empty();
    }
    response
}

/// Counted until it is answered, also where the caller leaves first.
struct UnderWay<'a>(&'a Gauge);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// One line of the access log.
struct Line<'a> {
    name: &'a str,
    method: &'a Method,
    path: &'a str,
    from: Whence,
    who: Option<&'a Caller>,
}

impl Line<'_> {
    fn write(&self, status: StatusCode, began: Moment, ended: Moment) {
        let Self { name, method, path, from, who } = self;
        let us = ended.since(began).as_micros();
        let shown = who.and_then(|caller| caller.shown.as_deref());
        let who = who.map_or("-", |caller| &*caller.name);
        let (status, from) = (status.as_u16(), || from.to_string());
        if matches!(*path, "/health" | "/metrics" | "/v1/health/live" | "/v1/health/ready") && status < 500 {
            // Asked every few seconds by machines.
            tracing::debug!(target: "assent_rest::access", request = name, %method, path, status, us, from = from(), who, shown);
        } else {
            tracing::info!(target: "assent_rest::access", request = name, %method, path, status, us, from = from(), who, shown);
        }
    }
}
