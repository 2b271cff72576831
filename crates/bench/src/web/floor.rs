//! The floor of a server over HTTP: one constant answer, through the stack that the server uses: the same router, the same
//! number of headers, one thread.

use std::net::SocketAddr;

use assent_kind::Kind;
use assent_world::net::{Address, tcp_listener};
use axum::Router;
use axum::body::Bytes;
use axum::http::header;

use super::network;
use crate::BenchError;

/// Serves a constant answer of so many bytes, with one thread, until the process is killed. `ready` is told where.
///
/// # Errors
/// What the network says.
pub fn serve(bytes: usize, ready: impl FnOnce(SocketAddr)) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| network(&error);
    let at: Address = "127.0.0.1:0".parse().map_err(|error| BenchError::new(Kind::Internal, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
    let listener = tcp_listener(&at).map_err(failed)?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?);
        let body = body(bytes);
        let answer = async move || {
            let headers = [
                (header::CONTENT_TYPE, "application/json"),
                (header::ETAG, "\"0123456789abcdef\""),
                (header::CACHE_CONTROL, "no-cache"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, body.clone())
        };
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| _ = stream.set_nodelay(true));
        axum::serve(listener, Router::new().fallback(answer)).await.map_err(failed)
    })
}

/// The answer.
#[must_use]
pub fn body(bytes: usize) -> Bytes {
    (b'a'..=b'z').cycle().take(bytes).collect::<Vec<u8>>().into()
}
