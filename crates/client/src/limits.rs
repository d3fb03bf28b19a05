//! What no node takes is refused before it is sent: a frame with it might be too large for any node, and
//! would be sent again and again, with all that travels beside it.

use holdfast_proto::v1::Reason;

use holdfast_client_core::error::Rejection;

const NAME_BYTES_MAX: usize = 512;
const METADATA_BYTES_MAX: usize = 1_024;
const MEMBERS_MAX: usize = 256;

pub(crate) fn check_name(name: &str) -> Result<(), Rejection> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(refused(Reason::InvalidName, "a lock's name has at most 512 bytes"))
}

/// All that the cluster would look at, for who does not ask it.
#[cfg(feature = "redis")]
pub(crate) fn check_whole_name(name: &str) -> Result<(), Rejection> {
    check_name(name)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        let words = "a lock's name has at least 1 byte and no control characters";
        return Err(refused(Reason::InvalidName, words));
    }
    Ok(())
}

pub(crate) fn check_metadata(metadata: &[u8]) -> Result<(), Rejection> {
    if metadata.len() <= METADATA_BYTES_MAX {
        return Ok(());
    }
    Err(refused(Reason::InvalidMetadata, "the metadata must be at most 1,024 bytes"))
}

pub(crate) fn check_names<'a>(
    mut names: impl ExactSizeIterator<Item = &'a str>,
) -> Result<(), Rejection> {
    if names.len() > MEMBERS_MAX {
        return Err(refused(Reason::TooManyNames, "one acquire-all takes 1 to 256 locks"));
    }
    names.try_for_each(check_name)
}

fn refused(reason: Reason, words: &str) -> Rejection {
    Rejection {
        reason,
        message: words.to_owned(),
        may_have_happened: false,
        retry_after: None,
        map_epoch: 0,
    }
}
