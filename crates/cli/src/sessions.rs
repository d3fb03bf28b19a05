//! `holdfast sessions`: who is connected to the cluster. Shows public ids only.

use std::process::ExitCode;

use holdfast_proto::v1;
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::OwnerInfo;
use crate::text::table;

#[derive(Debug, Serialize)]
struct Sessions {
    sessions: Vec<Session>,
}

#[derive(Debug, Serialize)]
struct Session {
    session: String,
    owner: OwnerInfo,
    /// By whom it was opened, as its credential says; null if the nodes demand none.
    principal: Option<String>,
    ttl_ms: u64,
    remaining_ms: u64,
    age_ms: u64,
    hold_count: u64,
    wait_count: u64,
    connected: bool,
}

impl From<v1::SessionInfo> for Session {
    fn from(session: v1::SessionInfo) -> Session {
        Session {
            session: session.public_id,
            owner: session.owner.into(),
            principal: Some(session.principal).filter(|principal| !principal.is_empty()),
            ttl_ms: session.ttl_ms,
            remaining_ms: session.remaining_ms,
            age_ms: session.age_ms,
            hold_count: session.hold_count,
            wait_count: session.wait_count,
            connected: session.connected,
        }
    }
}

impl Show for Sessions {
    fn to_table(&self) -> String {
        if self.sessions.is_empty() {
            return "no sessions\n".to_owned();
        }
        let has_principals = self.sessions.iter().any(|session| session.principal.is_some());
        let mut headers = vec!["SESSION", "OWNER", "COMMAND"];
        headers.extend(has_principals.then_some("PRINCIPAL"));
        headers.extend(["AGE", "TTL", "ENDS IN", "HOLDS", "WAITS", "CONNECTED"]);
        let rows: Vec<Vec<String>> =
            self.sessions.iter().map(|session| session.to_row(has_principals)).collect();
        table(&headers, &rows)
    }
}

impl Session {
    fn to_row(&self, with_principal: bool) -> Vec<String> {
        let mut row = vec![self.session.clone(), self.owner.in_words(), self.owner.command()];
        if with_principal {
            row.push(self.principal.clone().unwrap_or_else(|| "-".to_owned()));
        }
        row.extend([
            in_words(self.age_ms),
            in_words(self.ttl_ms),
            in_words(self.remaining_ms),
            self.hold_count.to_string(),
            self.wait_count.to_string(),
            if self.connected { "yes" } else { "no" }.to_owned(),
        ]);
        row
    }
}

pub(crate) async fn run(global: &Global) -> Result<ExitCode, Problem> {
    let sessions = one_shot::calls(global)?.sessions().await?;
    let sessions = sessions.into_iter().map(Session::from).collect();
    output::show(global.output, &Sessions { sessions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_shown_where_a_session_has_one() {
        let info = |principal: &str| v1::SessionInfo {
            public_id: "ab".to_owned(),
            principal: principal.to_owned(),
            ..Default::default()
        };
        let list = |principals: &[&str]| Sessions {
            sessions: principals.iter().map(|principal| info(principal).into()).collect(),
        };
        let shown = list(&["token:billing", ""]).to_table();
        assert!(shown.contains("PRINCIPAL") && shown.contains("token:billing"), "{shown}");
        assert!(!list(&[""]).to_table().contains("PRINCIPAL"));
    }
}
