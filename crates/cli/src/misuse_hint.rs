//! Hints for a caller who named the wrong lock or the wrong tier: the session holds the token under another name, or in
//! the other tier. Without the hint the caller would believe that the lock was lost or released.

use std::time::Duration;

use holdfast_client::SessionId;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use tokio::time::timeout;

use crate::text::quoted;
use crate::tier::TierArg;

/// A hint is not worth a longer wait.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MisuseHint {
    OtherTier(TierArg),
    OtherName(String),
}

/// The hold that the caller claims to have.
#[derive(Clone, Copy)]
pub(crate) struct ClaimedHold<'a> {
    pub(crate) calls: &'a Unary,
    pub(crate) session: SessionId,
    pub(crate) tier: TierArg,
    pub(crate) name: &'a str,
    pub(crate) token: u64,
}

impl ClaimedHold<'_> {
    /// None: the session holds nothing with this token now, or no node answers in time.
    pub(crate) async fn find_hint(self) -> Option<MisuseHint> {
        if let Some(found) = self.find_in_other_tier().await {
            return Some(found);
        }
        let by_name = async {
            // The efficiency tier lists nothing.
            let held = self.calls.list_held_by(self.session.public_id()).await.ok()?;
            let is_meant =
                |lock: &v1::LockSummary| lock.name != self.name && lock.token == self.token;
            held.into_iter().find(is_meant).map(|lock| MisuseHint::OtherName(lock.name))
        };
        timeout(PATIENCE, by_name).await.ok().flatten()
    }

    /// Reads one lock only, so that a script that often releases expired locks stays cheap.
    pub(crate) async fn find_in_other_tier(self) -> Option<MisuseHint> {
        let status = timeout(PATIENCE, self.calls.status(self.name)).await.ok()?.ok()?;
        let (other, public_id) = (self.tier.other(), self.session.public_id().to_string());
        let mut holders = other.part_of(status).holders.into_iter();
        holders
            .any(|holder| holder.public_session_id == public_id && holder.token == self.token)
            .then_some(MisuseHint::OtherTier(other))
    }
}

impl MisuseHint {
    /// What happened, and the command to use instead.
    pub(crate) fn in_words(&self, verb: &str, name: &str, token: u64) -> String {
        match self {
            MisuseHint::OtherTier(tier) => format!(
                "this session holds {name} under token {token} in the {} tier, where it is another lock; nothing was \
                 done: use `holdfast {verb} {} --tier {}`",
                tier.as_word(),
                quoted(name),
                tier.as_word()
            ),
            MisuseHint::OtherName(other) => format!(
                "this session holds {other}, and not {name}; nothing was done: did you mean `holdfast {verb} {}`?",
                quoted(other)
            ),
        }
    }
}

/// For a caller who asks about a lock of the correctness tier that is held in the efficiency tier alone.
pub(crate) fn only_in_efficiency_tier(status: &v1::StatusResponse) -> Option<String> {
    let efficiency = status.efficiency.as_ref().filter(|_| status.holders.is_empty())?;
    let first = efficiency.holders.first()?;
    let name = quoted(&status.name);
    Some(format!(
        "in the efficiency tier, where it is another lock, {} is held: `holdfast status {name}` shows by whom, \
         `holdfast lock {name} --tier efficiency` stands in line for it, `holdfast kill-session {} --reason TEXT` \
         takes it away with all else that session has",
        status.name, first.public_session_id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_names_the_command_to_use_instead() {
        let words = MisuseHint::OtherTier(TierArg::Efficiency).in_words("renew", "a b", 7);
        assert!(words.ends_with("use `holdfast renew 'a b' --tier efficiency`"), "{words}");
        let words = MisuseHint::OtherName("job".into()).in_words("release", "jbo", 7);
        assert!(words.ends_with("did you mean `holdfast release job`?"), "{words}");
    }

    #[test]
    fn a_lock_held_in_the_efficiency_tier_alone_is_pointed_to() {
        let holder = v1::Holder { public_session_id: "ab".into(), ..Default::default() };
        let in_memory =
            v1::EfficiencyStatus { holders: vec![holder.clone()], ..Default::default() };
        let mut status = v1::StatusResponse { name: "a".into(), ..Default::default() };
        assert_eq!(only_in_efficiency_tier(&status), None);
        status.efficiency = Some(in_memory);
        let words = only_in_efficiency_tier(&status).unwrap();
        assert!(
            words.contains("--tier efficiency") && words.contains("kill-session ab"),
            "{words}"
        );
        status.holders.push(holder);
        assert_eq!(only_in_efficiency_tier(&status), None);
    }
}
