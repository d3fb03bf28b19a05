//! `/api/owners`: who is behind sessions that events name by their ids alone.
//!
//! What this node's events tell comes first: they know sessions that have ended as well. For one that was opened
//! before those begin, the sessions that are open are looked through.

use std::collections::BTreeSet;

use axum::Json;
use holdfast_proto::v1::ListSessionsRequest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::page_data::{SESSIONS_AT_A_TIME, SESSIONS_MAX};
use crate::query_params::QueryParams;
use crate::source::Source;
use crate::{Dashboard, shape};

const ASKED_MAX: usize = 100;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnersQuery {
    /// Public ids, with commas between.
    sessions: String,
}

pub(crate) async fn serve<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<OwnersQuery>,
) -> Result<Json<Value>, ApiError> {
    let ids = ask.sessions.split(',').filter(|id| !id.is_empty());
    let asked: BTreeSet<String> = ids.map(str::to_owned).collect();
    if asked.len() > ASKED_MAX {
        return Err(ApiError::bad_request(format!("at most {ASKED_MAX} sessions at a time")));
    }
    let mut known = dashboard.source.owners_lately(&asked);
    let (mut seen, mut page) = (0, String::new());
    while known.len() < asked.len() && seen < SESSIONS_MAX {
        let request = ListSessionsRequest { page_size: SESSIONS_AT_A_TIME, page };
        let part = dashboard.source.sessions(request).await?;
        seen += part.sessions.len();
        let wanted = part.sessions.into_iter().filter(|session| asked.contains(&session.public_id));
        known.extend(wanted.filter_map(|session| Some((session.public_id, session.owner?))));
        page = part.next_page;
        if page.is_empty() {
            break;
        }
    }
    let owners: Map<String, Value> =
        known.into_iter().map(|(id, owner)| (id, shape::owner(Some(&owner)))).collect();
    Ok(Json(json!({ "owners": owners })))
}
