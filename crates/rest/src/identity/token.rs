//! `/token` and `/logout`, as published clients call them: a password for tokens, a refresh token for the next ones.
//!
//! Walk: [`token`] takes JSON or a form, whatever the body says of its type · a refresh token alone is a refresh, with or
//! without `grant_type` · [`logout`] ends the session of the token that it is given, or that came with the request.

use std::sync::Arc;
use std::time::Duration;

use assent_kind::Kind;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;
use serde_json::json;

use super::sessions::{Times, Tokens};
use super::{Means, bearer};
use crate::body;
use crate::entry::neighbourhood;
use crate::guard::{Guard, Whence};
use crate::params::Params;
use crate::problem::Problem;

/// The longest body with a name and a password.
const BODY_BYTES_MAX: usize = 16 << 10;
/// It is short, and whoever sends it may be anybody.
const BODY_MS: u64 = 5_000;
/// What a token is good for where nobody asks for one.
const OPEN: Times = Times { access: Duration::from_secs(3_600), refresh: Duration::from_secs(3_600) };

#[derive(Default, Deserialize)]
struct Asked {
    grant_type: Option<String>,
    username: Option<String>,
    password: Option<String>,
    refresh_token: Option<String>,
}

pub(crate) async fn token(
    State(guard): State<Arc<Guard>>,
    Extension(from): Extension<Whence>,
    request: Request,
) -> Result<Response, Problem> {
    let place = neighbourhood(&from.to_string());
    let asked = read(&sent(request).await?)?;
    match &guard.identity.0 {
        // Whoever develops without identity uses the same clients.
        Means::Open(_) => Ok(given(&Tokens { access: "none".to_owned(), refresh: "none".to_owned() }, OPEN)),
        Means::Oidc(oidc) => Err(Problem::invalid(format!("this server gives no tokens; {:?} does", oidc.issuer()))),
        Means::Users(_) => {
            let identity = Arc::clone(&guard.identity);
            let (tokens, times) = guard
                .passwords
                .run(move || {
                    let Means::Users(users) = &identity.0 else { return Err(Problem::not_found("no users")) };
                    let Asked { grant_type, username, password, refresh_token } = asked;
                    match (grant_type.as_deref(), username, password, refresh_token) {
                        (None | Some("refresh_token"), None, None, Some(token)) => users.refresh(&token),
                        (None | Some("password"), Some(name), Some(password), None) => {
                            users.login(&name, &password, &place)
                        }
                        _ => Err(Problem::invalid(
                            "give username and password with grant_type password, or refresh_token with grant_type \
                             refresh_token",
                        )),
                    }
                })
                .await?;
            Ok(given(&tokens, times))
        }
    }
}

pub(crate) async fn logout(State(guard): State<Arc<Guard>>, request: Request) -> Result<StatusCode, Problem> {
    let own = bearer(request.headers()).map(str::to_owned).ok();
    let asked = sent(request).await?;
    let asked = if asked.is_empty() { Asked::default() } else { read(&asked)? };
    let Means::Users(users) = &guard.identity.0 else { return Ok(StatusCode::NO_CONTENT) };
    match asked.refresh_token.or(own) {
        Some(token) if users.logout(&token) => Ok(StatusCode::NO_CONTENT),
        Some(_) => Err(Problem::unauthorized("the token is unknown, or its session has ended")),
        None => Err(Problem::invalid("give refresh_token, or send `Authorization: Bearer TOKEN`")),
    }
}

/// Where people of the original's web pages were sent.
pub(crate) async fn authorize(State(guard): State<Arc<Guard>>) -> Problem {
    let who = match &guard.identity.0 {
        Means::Oidc(oidc) => format!("ask {:?} for a code", oidc.issuer()),
        Means::Open(_) | Means::Users(_) => "POST /token takes a name and a password".to_owned(),
    };
    let detail = format!("this server sends nobody to a sign-in page; {who}");
    Problem::of(Kind::Invalid, detail).status(StatusCode::NOT_IMPLEMENTED)
}

async fn sent(request: Request) -> Result<Bytes, Problem> {
    let late =
        |_| Problem::invalid(format!("the body did not come within {BODY_MS} ms")).status(StatusCode::REQUEST_TIMEOUT);
    tokio::time::timeout(Duration::from_millis(BODY_MS), body::whole(request, BODY_BYTES_MAX)).await.map_err(late)?
}

fn read(bytes: &[u8]) -> Result<Asked, Problem> {
    if bytes.trim_ascii_start().first() == Some(&b'{') {
        return body::json(bytes);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
    let mut form = Params::of_query(text.trim_end())?;
    Ok(Asked {
        grant_type: form.take(&["grant_type"])?,
        username: form.take(&["username"])?,
        password: form.take(&["password"])?,
        refresh_token: form.take(&["refresh_token"])?,
    })
}

fn given(tokens: &Tokens, times: Times) -> Response {
    let mut response = Json(json!({
        "access_token": tokens.access,
        "token_type": "Bearer",
        "expires_in": times.access.as_secs(),
        "refresh_token": tokens.refresh,
        "refresh_expires_in": times.refresh.as_secs(),
    }))
    .into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
