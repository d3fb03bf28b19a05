//! The way back in when no administrator can prove who it is.
//!
//! A user who can write the data directory of a node can do everything with that node. `holdfast access reset` leaves a
//! file there while the node is stopped. When the node starts, it has the leadership handed over to itself. It then takes
//! the verb `access` from all users, and makes one of them an administrator with a new token. It does so by an ordinary
//! change of the policy, in the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::{Access, BuiltInRole, Identity, Principal, TokenId, Verb};
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::{AccessToken, v1};
use holdfast_wal::{DirectoryError, FileDisk};
use serde::{Deserialize, Serialize};

use crate::config::NodeConfig;
use crate::durable_file::{self, FileError};
use crate::identity::LOG_DIR;

const FILE: &str = "access-reset.toml";

/// Before the next step.
pub(crate) const RESET_PAUSE: Duration = Duration::from_millis(200);

/// After a step that failed: this node may be behind, and a leader that hands over to it grants nothing for a moment.
pub(crate) const HAND_OVER_PAUSE: Duration = Duration::from_secs(1);

/// With the three changes for the new administrator, fewer than one request may make.
const REVOKED_AT_ONCE_MAX: usize = 32;

/// What the node does at its next start. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessReset {
    principal: String,
    token_id: u64,
    digest: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is damaged: {what}; run `holdfast access reset` again", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("there is no data of a node in {}; look at data_dir in the configuration", path.display())]
    NoData { path: PathBuf },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl ResetError {
    /// A node runs on the directory: the same later may succeed.
    pub fn is_in_use(&self) -> bool {
        matches!(self, ResetError::Directory(DirectoryError::InUse { .. }))
    }
}

/// Makes the stopped node take the verb `access` from all users at its next start, and give it to this one.
pub fn reset_access(
    config: &NodeConfig,
    principal: &Principal,
    token: &AccessToken,
) -> Result<(), ResetError> {
    let log = config.data_dir.join(LOG_DIR);
    if !log.is_dir() {
        return Err(ResetError::NoData { path: config.data_dir.clone() });
    }
    let _locked = FileDisk::open(log)?;
    let reset = AccessReset {
        principal: principal.to_string(),
        token_id: token.id,
        digest: token.digest().to_vec(),
    };
    let path = config.data_dir.join(FILE);
    let damaged = |error: toml::ser::Error| damaged(&path, &error);
    Ok(durable_file::replace_readable(&path, &toml::to_string(&reset).map_err(damaged)?)?)
}

fn damaged(path: &Path, error: &impl ToString) -> ResetError {
    ResetError::Damaged { path: path.to_owned(), what: error.to_string() }
}

impl AccessReset {
    pub(crate) fn load(data_dir: &Path) -> Result<Option<AccessReset>, ResetError> {
        let path = data_dir.join(FILE);
        let Some(text) = durable_file::read(&path)? else { return Ok(None) };
        toml::from_str(&text).map(Some).map_err(|error| damaged(&path, &error))
    }

    pub(crate) fn forget(data_dir: &Path) -> Result<(), FileError> {
        let path = data_dir.join(FILE);
        std::fs::remove_file(&path).map_err(FileError::of("remove", &path))
    }

    /// What is still to be done; none if that policy is as it should be.
    pub(crate) fn next_request(&self, access: &Access) -> Option<v1::ChangeAccessRequest> {
        let may_change = |principal: &Principal| {
            let identity = Identity::of(principal.clone());
            access.grants(&identity).allow_cluster(Verb::Access)
        };
        let others = access.roles().bindings.keys();
        let others = others.filter(|other| other.as_str() != self.principal && may_change(other));
        let others = others.take(REVOKED_AT_ONCE_MAX).map(|other| Change::Ban(other.to_string()));
        let mut changes: Vec<Change> = others.collect();
        if access.token(TokenId(self.token_id)).is_none() {
            changes.extend(self.new_administrator());
        }
        if changes.is_empty() {
            return None;
        }
        let changes = changes.into_iter().map(|change| v1::AccessChange { change: Some(change) });
        Some(v1::ChangeAccessRequest {
            changes: changes.collect(),
            expected_generation: Some(access.generation()),
            end_sessions: false,
        })
    }

    /// Its earlier tokens may be in wrong hands.
    fn new_administrator(&self) -> [Change; 3] {
        let principal = self.principal.clone();
        let info = v1::AccessTokenInfo {
            id: format!("{:016x}", self.token_id),
            principal: principal.clone(),
            expires_at_unix_ms: None,
            note: "made by `holdfast access reset`".to_owned(),
        };
        let token = v1::NewAccessToken { info: Some(info), digest: self.digest.clone() };
        let roles = vec![BuiltInRole::Admin.name().to_owned()];
        [
            Change::Ban(principal.clone()),
            Change::Grant(v1::AccessBinding { principal, roles }),
            Change::PutToken(token),
        ]
    }
}
