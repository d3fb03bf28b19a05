//! `/api/actions/…`: what an operator does from the page. Each is the same intervention that the command line
//! makes, with who and why; the lock table records it.

use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use holdfast_proto::v1::{
    BreakRequest, FreezeRequest, Intervention, KillSessionRequest, MoveLockRequest, ThawRequest,
};
use holdfast_proto::{Fence, Guarantee};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Dashboard;
use crate::api_error::ApiError;
use crate::source::Source;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Break {
    by: String,
    reason: String,
    name: String,
    /// As text; 0: whatever is held.
    token: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    by: String,
    reason: String,
    name: String,
    token: String,
    to: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Close {
    by: String,
    reason: String,
    session: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    by: String,
    reason: String,
    prefix: String,
    ttl_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thaw {
    by: String,
    reason: String,
    prefix: String,
}

pub(crate) async fn serve<S: Source>(
    dashboard: Dashboard<S>,
    Path(action): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let source = &dashboard.source;
    let known = source.principal();
    dashboard.guard.admit(&headers, known.is_some(), Instant::now())?;
    let intervention = |by, reason| intervention(known.clone().unwrap_or(by), reason);
    let done = match action.as_str() {
        // The page asks whether the secret is the right one before it shows what can be done with it.
        "check" => json!({ "secret": "right" }),
        "break" => {
            let Break { by, reason, name, token } = read(&body)?;
            let intervention = intervention(by, reason)?;
            let request = BreakRequest { intervention, token: number(&token, &name)?, name };
            json!({ "holds": source.break_holds(request).await?.holds })
        }
        "transfer" => {
            let Transfer { by, reason, name, token, to } = read(&body)?;
            let intervention = intervention(by, reason)?;
            let token = number(&token, &name)?;
            let request = MoveLockRequest { intervention, name, token, to_public_session_id: to };
            json!({ "token": source.move_lock(request).await?.token.to_string() })
        }
        "close-session" => {
            let Close { by, reason, session } = read(&body)?;
            let intervention = intervention(by, reason)?;
            let request = KillSessionRequest { intervention, public_session_id: session };
            source.kill_session(request).await?;
            json!({})
        }
        "freeze" => {
            let Freeze { by, reason, prefix, ttl_ms } = read(&body)?;
            let intervention = intervention(by, reason)?;
            let request = FreezeRequest { intervention, prefix, ttl_ms };
            json!({ "remaining_ms": source.freeze(request).await?.remaining_ms })
        }
        "thaw" => {
            let Thaw { by, reason, prefix } = read(&body)?;
            let intervention = intervention(by, reason)?;
            source.thaw(ThawRequest { intervention, prefix }).await?;
            json!({})
        }
        _ => return Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_action", "no such action")),
    };
    Ok(Json(done))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the request is not understood: {error}")))
}

/// The record says that it came by this way: a user who knows the secret can give any name.
fn intervention(by: String, reason: String) -> Result<Option<Intervention>, ApiError> {
    let (by, reason) = (by.trim(), reason.trim());
    if by.is_empty() || reason.is_empty() {
        return Err(ApiError::bad_request("say who you are and why; both are recorded"));
    }
    Ok(Some(Intervention { by: format!("{by} (dashboard)"), reason: reason.to_owned() }))
}

/// Of a number, or of the full form of a token, which belongs to one lock.
fn number(text: &str, name: &str) -> Result<u64, ApiError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match text.parse::<Fence>() {
        Ok(fence) if fence.is_for(name) && fence.guarantee() == Guarantee::Linearizable => {
            Ok(fence.number())
        }
        Ok(_) => Err(ApiError::bad_request("the token belongs to another lock; nothing was done")),
        Err(_) => Err(ApiError::bad_request("a token is a number, or has the form hf1.L.….42")),
    }
}
