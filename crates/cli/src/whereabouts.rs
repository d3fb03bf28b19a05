//! Where a session holds what was looked for in vain: under another name, or in the other tier. For whoever
//! mistyped the name or left the tier out, and would otherwise believe the lock lost, or given back.

use std::time::Duration;

use holdfast_client::SessionId;
use holdfast_client::unary::Unary;
use holdfast_proto::v1;
use tokio::time::timeout;

use crate::text::quoted;
use crate::tier::TierArg;

/// It is only a hint.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    InTier(TierArg),
    UnderName(String),
}

/// What was said to be held, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'a> {
    pub(crate) calls: &'a Unary,
    pub(crate) session: SessionId,
    pub(crate) tier: TierArg,
    pub(crate) name: &'a str,
    pub(crate) token: u64,
}

impl Sought<'_> {
    /// Of what the session holds now; none if it is nothing that could have been meant, or nobody tells in time.
    pub(crate) async fn anywhere(self) -> Option<Elsewhere> {
        if let Some(found) = self.in_other_tier().await {
            return Some(found);
        }
        let look = async {
            // The efficiency tier lists nothing.
            let held = self.calls.list_held_by(self.session.public_id()).await.ok()?;
            let is_meant =
                |lock: &v1::LockSummary| lock.name != self.name && lock.token == self.token;
            held.into_iter().find(is_meant).map(|lock| Elsewhere::UnderName(lock.name))
        };
        timeout(PATIENCE, look).await.ok().flatten()
    }

    /// Asks about one lock only: for whoever asks often, because what it holds is often over.
    pub(crate) async fn in_other_tier(self) -> Option<Elsewhere> {
        let status = timeout(PATIENCE, self.calls.status(self.name)).await.ok()?.ok()?;
        let (other, public_id) = (self.tier.other(), self.session.public_id().to_string());
        let mut holders = other.part_of(status).holders.into_iter();
        holders
            .any(|holder| holder.public_session_id == public_id && holder.token == self.token)
            .then_some(Elsewhere::InTier(other))
    }
}

impl Elsewhere {
    /// What to do about it.
    pub(crate) fn in_words(&self, verb: &str, name: &str, token: u64) -> String {
        match self {
            Elsewhere::InTier(tier) => format!(
                "this session holds {name} under token {token} in the {} tier, where it is another lock; nothing was \
                 done: use `holdfast {verb} {} --tier {}`",
                tier.as_word(),
                quoted(name),
                tier.as_word()
            ),
            Elsewhere::UnderName(other) => format!(
                "this session holds {other}, and not {name}; nothing was done: did you mean `holdfast {verb} {}`?",
                quoted(other)
            ),
        }
    }
}

/// For people who look for a lock among the replicated ones, and it is held in the other tier alone.
pub(crate) fn only_in_memory(status: &v1::StatusResponse) -> Option<String> {
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
    fn each_place_is_told_with_the_command_that_finds_it() {
        let words = Elsewhere::InTier(TierArg::Efficiency).in_words("renew", "a b", 7);
        assert!(words.ends_with("use `holdfast renew 'a b' --tier efficiency`"), "{words}");
        let words = Elsewhere::UnderName("job".into()).in_words("release", "jbo", 7);
        assert!(words.ends_with("did you mean `holdfast release job`?"), "{words}");
    }

    #[test]
    fn only_what_is_in_one_tier_alone_is_pointed_to() {
        let holder = v1::Holder { public_session_id: "ab".into(), ..Default::default() };
        let in_memory =
            v1::EfficiencyStatus { holders: vec![holder.clone()], ..Default::default() };
        let mut status = v1::StatusResponse { name: "a".into(), ..Default::default() };
        assert_eq!(only_in_memory(&status), None);
        status.efficiency = Some(in_memory);
        let words = only_in_memory(&status).unwrap();
        assert!(
            words.contains("--tier efficiency") && words.contains("kill-session ab"),
            "{words}"
        );
        status.holders.push(holder);
        assert_eq!(only_in_memory(&status), None);
    }
}
