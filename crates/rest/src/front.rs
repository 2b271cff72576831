//! A connection's way in: its requests pass the guard once, and what is asked for most is answered before it is looked for among the routes.
//!
//! Walk: [`Front`] makes a [`Seat`] for each connection · the guard lets a request through · [`Inside::at_once`] or [`Inside::route`].
//! Deliberately absent: layers. Each of them, around each route, takes a request apart, boxes it and puts it together again.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::Response;
use axum::serve::IncomingStream;
use tower::Service;

use crate::docs::{self, Library};
use crate::guard::{self, Guard};
use crate::identity::Caller;
use crate::listener::{Lane, Peer};
use crate::shape::Wish;

/// What stands behind a guard.
pub(crate) struct Inside {
    pub(crate) router: Router,
    /// Of the documents' listener.
    pub(crate) library: Option<Arc<Library>>,
}

impl Inside {
    /// What takes no longer than to hand it on, and how it is to leave.
    pub(crate) fn at_once(&self, request: &Request, caller: &Caller) -> Option<(Wish, Response)> {
        let response = docs::at_once(self.library.as_deref()?, caller, request)?;
        Some((Wish::of(request), response))
    }

    /// Whether it tells of a document whose length nobody has looked at. Who asks so for what is measured is told more than 0.
    pub(crate) fn is_unmeasured(&self, method: &Method, response: &Response) -> bool {
        let length = response.headers().get(header::CONTENT_LENGTH);
        let is_head = *method == Method::HEAD && response.status().is_success();
        self.library.is_some() && is_head && length.is_some_and(|length| length == "0")
    }

    pub(crate) async fn route(&self, request: Request) -> Response {
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Of a listener.
#[derive(Clone)]
pub(crate) struct Front {
    guard: Arc<Guard>,
    inside: Arc<Inside>,
}

impl Front {
    pub(crate) fn new(guard: Arc<Guard>, inside: Inside) -> Self {
        Self { guard, inside: Arc::new(inside) }
    }
}

impl Service<IncomingStream<'_, Lane>> for Front {
    type Response = Seat;
    type Error = Infallible;
    type Future = Ready<Result<Seat, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, stream: IncomingStream<'_, Lane>) -> Self::Future {
        ready(Ok(Seat(Arc::new((self.clone(), Peer::of(&stream))))))
    }
}

/// Of a connection.
#[derive(Clone)]
pub(crate) struct Seat(Arc<(Front, Peer)>);

impl Service<Request> for Seat {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let seat = self.clone();
        Box::pin(async move {
            let (Front { guard, inside }, peer) = &*seat.0;
            Ok(guard::pass(guard, inside, peer, request).await)
        })
    }
}
