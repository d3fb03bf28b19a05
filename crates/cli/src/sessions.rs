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
        let rows: Vec<Vec<String>> = self.sessions.iter().map(Session::to_row).collect();
        let headers =
            ["SESSION", "OWNER", "COMMAND", "AGE", "TTL", "ENDS IN", "HOLDS", "WAITS", "CONNECTED"];
        table(&headers, &rows)
    }
}

impl Session {
    fn to_row(&self) -> Vec<String> {
        vec![
            self.session.clone(),
            self.owner.in_words(),
            self.owner.command(),
            in_words(self.age_ms),
            in_words(self.ttl_ms),
            in_words(self.remaining_ms),
            self.hold_count.to_string(),
            self.wait_count.to_string(),
            if self.connected { "yes" } else { "no" }.to_owned(),
        ]
    }
}

pub(crate) async fn run(global: &Global) -> Result<ExitCode, Problem> {
    let sessions = one_shot::calls(global)?.sessions().await?;
    let sessions = sessions.into_iter().map(Session::from).collect();
    output::show(global.output, &Sessions { sessions })
}
