//! Object stores: the check by a conditional put.
//!
//! An object store compares no numbers, but it can write on condition that the object is still the one
//! that was read. So the mark is kept in the object's metadata, and a write has three steps:
//! 1. look at the object (`HeadObject`): its ETag, and the metadata [`METADATA_KEY`];
//! 2. [`plan_put`] judges by the rule, and gives the precondition and the new metadata;
//! 3. put with both. If the store answers 412 or 409, another writer wrote in between: begin at 1.
//!
//! Between 1 and 3 no write goes unnoticed, so that is one step in effect. `If-Match` and `If-None-Match`
//! on puts are known to S3, R2, MinIO and Azure; GCS has `x-goog-if-generation-match` with the generation in
//! the place of the ETag, and 0 for none.
//!
//! Caveats:
//! - a store that ignores the headers fences nothing: try it once with a wrong ETag, before it matters;
//! - a deleted object takes its mark along: put an empty one in its place;
//! - an ETag that is a digest of the content is the same again when the content is. With the mark in
//!   metadata alone, a put of equal content may go unnoticed; the mark that it set is then lost. Let the
//!   content differ with the token (a field in it is enough) where the store's ETag is a digest;
//! - read for a later write by putting what was read back under the new mark, and use the ETag of that put.

use crate::rule::{Claim, HighWaterMark, Refusal};

/// The user metadata that keeps the mark; on the wire of S3 `x-amz-meta-holdfast-token`.
pub const METADATA_KEY: &str = "holdfast-token";

/// The object as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    pub etag: &'a str,
    /// The value of [`METADATA_KEY`], if it has one.
    pub mark: Option<&'a str>,
}

/// A put that the store carries out only if nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub precondition: Precondition,
    /// [`METADATA_KEY`] and its new value.
    pub metadata: (&'static str, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// The object is still this one.
    IfMatch(String),
    /// There is still none.
    IfNoneMatchAny,
}

impl Precondition {
    /// As a header of the request.
    pub fn header(&self) -> (&'static str, &str) {
        match self {
            Precondition::IfMatch(etag) => ("if-match", etag),
            Precondition::IfNoneMatchAny => ("if-none-match", "*"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "the object's metadata `{METADATA_KEY}` is not a number of a token: `{0}`; mend it to the \
         highest token that was granted before any write"
    )]
    InvalidMark(String),
}

/// `found` is the object as it is now, or none. An object without a mark was never fenced: it passes.
pub fn plan_put(claim: &Claim, found: Option<Found<'_>>) -> Result<Put, PlanError> {
    let mut mark = match found.and_then(|found| found.mark) {
        None => HighWaterMark::NONE,
        Some(text) => {
            let number = text.parse().map_err(|_| PlanError::InvalidMark(text.to_owned()))?;
            HighWaterMark::from_token(number)
        }
    };
    mark.raise(claim)?;
    let precondition = match found {
        Some(found) => Precondition::IfMatch(found.etag.to_owned()),
        None => Precondition::IfNoneMatchAny,
    };
    Ok(Put { precondition, metadata: (METADATA_KEY, mark.to_string()) })
}
