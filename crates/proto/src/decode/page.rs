//! Listings come in pages. A page token says after what to go on, so that a listing goes on at the
//! right place whatever came and went in between.

use holdfast_core::{LockName, PublicSessionId};

use crate::failure::refused;
use crate::v1::{Failure, Reason};

const DEFAULT_SIZE: usize = 100;
const SIZE_MAX: usize = 1_000;

/// How many lines to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(usize);

impl PageSize {
    pub fn new(asked: u32) -> Result<PageSize, Failure> {
        match usize::try_from(asked) {
            Ok(0) => Ok(PageSize(DEFAULT_SIZE)),
            Ok(size) if size <= SIZE_MAX => Ok(PageSize(size)),
            _ => {
                let words = format!("page_size {asked} is too large; at most {SIZE_MAX}");
                Err(refused(Reason::InvalidPage, words))
            }
        }
    }

    /// One more than is shown, to learn whether there is more.
    pub fn limit(self) -> usize {
        self.0 + 1
    }

    /// Cuts the lines to the page; gives the last one shown if there is more after it.
    pub fn cut<T>(self, lines: &mut Vec<T>) -> Option<&T> {
        if lines.len() <= self.0 {
            return None;
        }
        lines.truncate(self.0);
        lines.last()
    }
}

/// The name after which to go on.
pub fn after_name(page: &str) -> Result<Option<String>, Failure> {
    if page.is_empty() {
        return Ok(None);
    }
    LockName::new(page).map_err(|_| not_ours())?;
    Ok(Some(page.to_owned()))
}

/// The session after which to go on.
pub fn after_session(page: &str) -> Result<Option<PublicSessionId>, Failure> {
    if page.is_empty() {
        return Ok(None);
    }
    let plain = page.len() == 16 && page.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    match u64::from_str_radix(page, 16) {
        Ok(number) if plain => Ok(Some(PublicSessionId(number))),
        _ => Err(not_ours()),
    }
}

pub fn not_ours() -> Failure {
    refused(Reason::InvalidPage, "the page is not one that was given as next_page; start over")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_100_lines_by_default_and_1000_at_most() {
        assert_eq!(PageSize::new(0), Ok(PageSize(100)));
        assert_eq!(PageSize::new(1_000), Ok(PageSize(1_000)));
        for too_large in [1_001, u32::MAX] {
            assert_eq!(PageSize::new(too_large).unwrap_err().reason(), Reason::InvalidPage);
        }
    }

    #[test]
    fn there_is_a_next_page_only_if_there_is_more() {
        let size = PageSize::new(2).unwrap();
        assert_eq!(size.limit(), 3);
        let mut lines = vec![1, 2, 3];
        assert_eq!(size.cut(&mut lines), Some(&2));
        assert_eq!(lines, [1, 2]);
        assert_eq!(size.cut(&mut lines), None);
        assert_eq!(size.cut(&mut Vec::<u8>::new()), None);
    }

    #[test]
    fn page_tokens_survive_the_way_to_the_client_and_back() {
        assert_eq!(after_name(""), Ok(None));
        assert_eq!(after_name("a/ü"), Ok(Some("a/ü".to_owned())));
        let session = PublicSessionId(0xbe45);
        assert_eq!(after_session(&session.to_string()), Ok(Some(session)));
        assert_eq!(after_session(""), Ok(None));
    }

    #[test]
    fn a_forged_token_is_refused() {
        for wrong in ["x", "+000000000000001", "BE45000000000000", &"0".repeat(17)] {
            assert_eq!(after_session(wrong).unwrap_err().reason(), Reason::InvalidPage, "{wrong}");
        }
        for wrong in ["a\nb", &"x".repeat(513)] {
            assert_eq!(after_name(wrong).unwrap_err().reason(), Reason::InvalidPage);
        }
    }
}
