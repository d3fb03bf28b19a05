//! Something worth protecting: an account with a fence.

use holdfast_fence::in_process::{CheckError, HighWaterMarks};
use holdfast_fence::{Accepts, Refusal, admit};

/// Money, behind the crate `holdfast-fence`. It lives in this process, wherever its writers do.
#[derive(Debug)]
pub(crate) struct Account {
    name: &'static str,
    marks: HighWaterMarks,
    cents: i64,
}

impl Account {
    pub(crate) fn with(name: &'static str, cents: i64) -> Account {
        Account { name, marks: HighWaterMarks::new(1), cents }
    }

    /// Shows the token, so that from now on no older holder writes, and reads.
    pub(crate) fn read(&self, fence: &str) -> Result<i64, CheckError> {
        let claim = admit(fence, self.name, Accepts::Linearizable)?;
        self.marks.check(&claim)?;
        Ok(self.cents)
    }

    pub(crate) fn write(&mut self, fence: &str, cents: i64) -> Result<(), CheckError> {
        let claim = admit(fence, self.name, Accepts::Linearizable)?;
        let now = &mut self.cents;
        self.marks.write(&claim, || *now = cents)
    }

    pub(crate) fn cents(&self) -> i64 {
        self.cents
    }
}

/// The two tokens of a write that came too late: its own, and the highest seen.
pub(crate) fn as_stale(answer: &Result<(), CheckError>) -> Option<(u64, u64)> {
    match answer {
        Err(CheckError::Refused(Refusal::Stale { token, highest, .. })) => Some((*token, *highest)),
        _ => None,
    }
}
