//! `CheckToken`: whether a lock is still held under a token. A hint for a client that wants to give up early;
//! what protects the resource is that the resource itself checks.

use holdfast_core::{FenceToken, LogicalTime, TokenStanding};
use holdfast_engine::{Query, ReadAnswer, ReadData};
use holdfast_proto::decode::{self, lock_name};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{CheckTokenRequest, CheckTokenResponse, Failure, Reason, TokenState};
use holdfast_proto::{Fence, Guarantee, v1};
use holdfast_replica::GroupId;
use holdfast_service::Method;

use super::Rpc;
use super::failure::unsure;
use super::reads::ReadRequest;
use crate::boot_clock;
use holdfast_proto::encode::on_wire;

/// The token in question.
struct TokenQuestion {
    token: FenceToken,
    guarantee: Guarantee,
}

fn decode_question(request: &CheckTokenRequest) -> Result<TokenQuestion, Failure> {
    if request.fence.is_empty() {
        let guarantee = match decode::tier(request.tier)? {
            v1::Tier::Efficiency => Guarantee::BestEffort,
            v1::Tier::Unspecified | v1::Tier::Correctness => Guarantee::Linearizable,
        };
        return Ok(TokenQuestion { token: decode::token(request.token)?, guarantee });
    }
    if request.token != 0 {
        let words = "give the token either as a number or in full form, not both";
        return Err(refused(Reason::InvalidToken, words));
    }
    let fence: Fence = request
        .fence
        .parse()
        .map_err(|error| refused(Reason::InvalidToken, format!("{error}; give the grant's")))?;
    if !fence.is_for(&request.name) {
        let words =
            format!("the token in full form is that of another lock than '{}'", request.name);
        return Err(refused(Reason::InvalidToken, words));
    }
    Ok(TokenQuestion { token: decode::token(fence.number())?, guarantee: fence.guarantee() })
}

fn encode_answer(
    asked: &TokenQuestion,
    now: LogicalTime,
    standing: TokenStanding,
) -> CheckTokenResponse {
    CheckTokenResponse {
        state: state(asked.token, standing).into(),
        current_token: standing.current.map_or(0, |token| token.0),
        guarantee: on_wire(asked.guarantee).into(),
        logical_time_ms: now.as_ms(),
    }
}

fn state(token: FenceToken, standing: TokenStanding) -> TokenState {
    match standing.current {
        _ if token.0 > standing.last_given => TokenState::NeverGiven,
        _ if standing.is_held => TokenState::Current,
        None => TokenState::Free,
        Some(current) if current < token => TokenState::NeverGiven,
        Some(_) => TokenState::Superseded,
    }
}

impl ReadRequest for CheckTokenRequest {
    const METHOD: Method = Method::CheckToken;
    type Response = CheckTokenResponse;

    fn query(&self) -> Result<Query, Failure> {
        let name = lock_name(&self.name)?;
        let TokenQuestion { token, guarantee } = decode_question(self)?;
        Ok(match guarantee {
            Guarantee::Linearizable => Query::Token { name, token },
            Guarantee::BestEffort => Query::Confirm { asked: boot_clock::now() },
        })
    }

    fn response(&self, answer: ReadAnswer, _: GroupId) -> Option<CheckTokenResponse> {
        let asked = decode_question(self).ok()?;
        match answer.data {
            ReadData::Token(standing) => Some(encode_answer(&asked, answer.at, standing)),
            // The rest is in memory.
            ReadData::Confirmed => Some(CheckTokenResponse::default()),
            _ => None,
        }
    }

    fn complete(&self, response: &mut CheckTokenResponse, rpc: &Rpc) -> Result<(), Failure> {
        let asked = decode_question(self)?;
        if asked.guarantee == Guarantee::BestEffort {
            let standing = rpc.door.memory().token_standing(&lock_name(&self.name)?, asked.token);
            let (now, standing) = standing.ok_or_else(unsure)?;
            *response = encode_answer(&asked, now, standing);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(is_held: bool, current: Option<u64>, last_given: u64) -> TokenStanding {
        TokenStanding { is_held, current: current.map(FenceToken), last_given }
    }

    #[test]
    fn a_token_is_current_superseded_free_or_was_never_given() {
        let state = |token, standing| state(FenceToken(token), standing);
        assert_eq!(state(5, standing(true, Some(5), 9)), TokenState::Current);
        assert_eq!(state(5, standing(false, Some(7), 9)), TokenState::Superseded);
        assert_eq!(state(5, standing(false, None, 9)), TokenState::Free);
        assert_eq!(state(8, standing(false, Some(7), 9)), TokenState::NeverGiven);
        assert_eq!(state(10, standing(false, None, 9)), TokenState::NeverGiven);
        // Permits: each holder has its own.
        assert_eq!(state(5, standing(true, Some(7), 9)), TokenState::Current);
    }

    #[test]
    fn a_token_is_given_as_a_number_or_in_full_form_and_that_of_another_lock_is_refused() {
        let fence = Fence::new(Guarantee::BestEffort, "wallet", 7).unwrap().to_string();
        let ask = |name: &str, token, fence: &str| {
            decode_question(&CheckTokenRequest {
                name: name.into(),
                token,
                fence: fence.into(),
                ..Default::default()
            })
        };
        let number = ask("wallet", 7, "").ok().unwrap();
        assert_eq!((number.token.0, number.guarantee), (7, Guarantee::Linearizable));
        let full = ask("wallet", 0, &fence).ok().unwrap();
        assert_eq!((full.token.0, full.guarantee), (7, Guarantee::BestEffort));
        for (name, token, text) in
            [("wallet", 0, ""), ("wallet", 7, &*fence), ("other", 0, &*fence), ("wallet", 0, "7")]
        {
            let failure = ask(name, token, text).err().unwrap();
            assert_eq!(failure.reason(), Reason::InvalidToken, "{name} {token} {text}");
        }
    }
}
