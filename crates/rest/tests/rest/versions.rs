//! HTTP/2 beside HTTP/1.1: the same answers, on one connection for many requests at once, streamed both ways.

use std::time::Duration;

use assent_door::Limits;
use assent_rest::Settings;
use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode};
use h2::client::{SendRequest, handshake};
use tokio::net::TcpStream;

use crate::house::{Archive, Rules, archive, house};

type Told = (StatusCode, HeaderMap, Vec<u8>);

/// Sends a body piece by piece, and reads the answer to its end.
async fn ask(
    client: SendRequest<Bytes>,
    archive: &Archive,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[&'static str],
) -> Told {
    let at = format!("http://{}{path}", archive.rest.address());
    let mut request = Request::builder().method(method).uri(at);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut client = client.ready().await.unwrap();
    let (answer, mut sending) = client.send_request(request.body(()).unwrap(), body.is_empty()).unwrap();
    for (at, piece) in body.iter().enumerate() {
        sending.send_data(Bytes::from_static(piece.as_bytes()), at + 1 == body.len()).unwrap();
        tokio::task::yield_now().await;
    }
    let (head, mut reading) = answer.await.unwrap().into_parts();
    let mut all = Vec::new();
    while let Some(piece) = reading.data().await {
        let piece = piece.unwrap();
        reading.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    (head.status, head.headers, all)
}

#[test]
fn one_connection_of_http_2_carries_many_requests_at_once_with_all_that_http_1_has() {
    let archive = archive(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = TcpStream::connect(archive.rest.address()).await.unwrap();
        let (client, connection) = handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let ask = |method, path, headers, body| ask(client.clone(), &archive, method, path, headers, body);
        let once = [("idempotency-key", "k"), ("prefer", "return=minimal"), ("content-type", "application/json")];
        for is_again in [false, true] {
            let (status, headers, body) = ask("PUT", "/db/doc", &once, &["[1", ",2", "]"]).await;
            assert_eq!((status.as_u16(), body.len(), headers.contains_key("idempotency-replayed")), (201, 0, is_again));
            assert_eq!(headers["preference-applied"], "return=minimal");
        }
        let long = "0123456789".repeat(100_000);
        let put = archive.ask("PUT", "/db/long", &[], format!("[\"{long}\"]").as_bytes());
        assert_eq!(put.status, 201);
        // What HTTP/1.1 leaves out by itself.
        let tag = archive.get("/db/doc").header("etag").unwrap();
        let known = [("if-none-match", tag.as_str())];
        for path in ["/db/doc", "/db/doc?revision-timestamp=2999-01-01T00:00"] {
            let (status, headers, _) = ask("GET", path, &known, &[]).await;
            assert_eq!((status.as_u16(), headers.get("content-length")), (304, None), "{path}");
        }
        // All at once, a long one among them, and one that is wrong.
        let many = (0..16).map(|at| {
            let path = ["/db/doc", "/db/long", "/db/none", "/health"][at % 4];
            let ask = &ask;
            async move { (path, ask("GET", path, &[("accept-encoding", "gzip")], &[]).await) }
        });
        let mut under_way: Vec<_> = many.map(Box::pin).collect();
        let mut told = Vec::new();
        std::future::poll_fn(|context| {
            under_way.retain_mut(|one| match one.as_mut().poll(context) {
                std::task::Poll::Ready(answer) => {
                    told.push(answer);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if under_way.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        assert_eq!(told.len(), 16);
        for (path, (status, headers, body)) in told {
            let plain = archive.get(path);
            assert_eq!(status.as_u16(), plain.status, "{path}");
            assert!(headers.contains_key("x-request-id"), "{path}");
            match path {
                "/db/long" => {
                    assert_eq!(headers["content-encoding"], "gzip");
                    assert!(body.len() < long.len() / 10, "{} bytes", body.len());
                }
                "/db/none" => assert_eq!(headers["content-type"], "application/problem+json"),
                _ => assert_eq!(body, plain.body, "{path}"),
            }
        }
    });
}

#[test]
fn who_says_something_now_and_then_and_reads_nothing_is_not_waited_for() {
    // Each ping was answered, each answer wound the connection's clock up, and a megabyte nobody read was kept for ever.
    let limits = Limits { partial_frame_ms: 2_000, ..Limits::default() };
    let house = house(Rules { settings: Settings { limits, ..Settings::default() }, ..Rules::default() });
    let long = format!("[\"{}\"]", "0123456789".repeat(100_000));
    assert_eq!(house.docs("PUT", "/db/long", &[], &long).status, 201);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = TcpStream::connect(house.docs_address()).await.unwrap();
        let (mut client, mut connection) = handshake(socket).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get(format!("http://{}/db/long", house.docs_address())).body(()).unwrap();
        let answer = client.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let mut pauses = tokio::time::interval(Duration::from_millis(20));
        for answered in 0.. {
            pauses.tick().await;
            if connection.is_finished() || pings.ping(h2::Ping::opaque()).await.is_err() {
                assert!(answered > 0, "it is let go for its silence, and not at once");
                break;
            }
            assert!(answered < 1_000, "forty times as long as anybody is waited for");
        }
    });
}
