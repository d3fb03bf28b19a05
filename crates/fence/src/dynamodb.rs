//! DynamoDB: the check as the condition of the write itself.
//!
//! Here the parts of a request are built, for any client library: an expression, and the names and values
//! that stand in it. The mark is an attribute of the item, so it is as durable as the item.
//!
//! - [`condition`] goes into `ConditionExpression` of a `PutItem`, `UpdateItem`, `DeleteItem` or of an item of
//!   `TransactWriteItems`. A put must contain the new mark ([`Condition::mark`]); an update sets it
//!   ([`Condition::set_clause`]).
//! - If the condition fails, ask for the old item (`ReturnValuesOnConditionCheckFailure = ALL_OLD`) and hand
//!   its mark to [`Condition::why_failed`], which tells stale from missing.
//!
//! Caveats:
//! - a deleted item takes its mark along, and a late writer may create it again. Keep a tombstone with
//!   the mark instead, or demand that the item exists;
//! - read for a later write with an update that sets the mark and returns the item (`ReturnValues =
//!   ALL_NEW`). A plain `GetItem`, also a consistent one, does not keep late writers out.

use crate::rule::{Claim, HighWaterMark, Refusal};

/// Placeholders, named so that they do not meet those of the caller.
const NAME: &str = "#holdfast_token";
const VALUE: &str = ":holdfast_token";
const KEY_NAME: &str = "#holdfast_key";

/// What a conditional write needs besides what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// For `ConditionExpression`. Join it to another with `AND`; it stands in brackets.
    pub expression: String,
    /// For `ExpressionAttributeNames`.
    pub names: Vec<(String, String)>,
    /// For `ExpressionAttributeValues`; the second is the decimal of a number, type `N`.
    pub values: Vec<(String, String)>,
    /// The attribute that an item must have after the write, and its number.
    pub mark: (String, String),
    claim: Claim,
}

/// Why a condition failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionFailure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("there is no such item: it was never written, or is deleted")]
    Missing,
    #[error("the item's mark is not a number of a token: `{0}`")]
    InvalidMark(String),
    #[error("the fence would let this write pass: another part of the condition failed")]
    OtherCondition,
}

/// Passes if the item has no mark, or none that is higher. `attribute` keeps the mark.
pub fn condition(claim: &Claim, attribute: &str) -> Condition {
    Condition {
        expression: format!("(attribute_not_exists({NAME}) OR {NAME} <= {VALUE})"),
        names: vec![(NAME.to_owned(), attribute.to_owned())],
        values: vec![(VALUE.to_owned(), claim.token().to_string())],
        mark: (attribute.to_owned(), claim.token().to_string()),
        claim: claim.clone(),
    }
}

impl Condition {
    /// The item must exist besides; `key_attribute` is its partition key.
    pub fn and_exists(mut self, key_attribute: &str) -> Condition {
        self.expression = format!("(attribute_exists({KEY_NAME}) AND {})", self.expression);
        self.names.push((KEY_NAME.to_owned(), key_attribute.to_owned()));
        self
    }

    /// For the `SET` of an `UpdateExpression`, besides the caller's own.
    pub fn set_clause(&self) -> String {
        format!("{NAME} = {VALUE}")
    }

    /// `old_item` is whether there was one, and its mark.
    pub fn why_failed(&self, old_item: Option<Option<&str>>) -> ConditionFailure {
        let Some(mark) = old_item else { return ConditionFailure::Missing };
        let Some(mark) = mark else { return ConditionFailure::OtherCondition };
        let Ok(number) = mark.parse() else {
            return ConditionFailure::InvalidMark(mark.to_owned());
        };
        match HighWaterMark::from_token(number).raise(&self.claim) {
            Ok(()) => ConditionFailure::OtherCondition,
            Err(refusal) => ConditionFailure::Refused(refusal),
        }
    }
}
