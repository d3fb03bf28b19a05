//! A store with one account. It has a fence, or it has none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_fence::in_process::{CheckError, HighWaterMarks};
use holdfast_fence::{Accepts, admit};

#[derive(Debug)]
pub(super) struct Bank {
    account: String,
    /// None: every write is taken.
    marks: Option<HighWaterMarks>,
    balance: Mutex<i64>,
    /// What it has said "done" to.
    acknowledged: Mutex<i64>,
}

impl Bank {
    pub(super) fn open(account: &str, balance: i64, has_fence: bool) -> Bank {
        let marks = has_fence.then(|| HighWaterMarks::new(1));
        let (balance, acknowledged) = (Mutex::new(balance), Mutex::default());
        Bank { account: account.to_owned(), marks, balance, acknowledged }
    }

    /// A fence is shown the token already here.
    pub(super) fn read(&self, fence: &str) -> Result<i64, CheckError> {
        self.checked(fence, || self.balance())
    }

    /// The new balance after a deposit, as its writer computed it from what it had read.
    pub(super) fn write(&self, fence: &str, balance: i64, deposit: i64) -> Result<(), CheckError> {
        self.checked(fence, || {
            *lock(&self.balance) = balance;
            *lock(&self.acknowledged) += deposit;
        })
    }

    pub(super) fn balance(&self) -> i64 {
        *lock(&self.balance)
    }

    pub(super) fn acknowledged(&self) -> i64 {
        *lock(&self.acknowledged)
    }

    fn checked<T>(&self, fence: &str, access: impl FnOnce() -> T) -> Result<T, CheckError> {
        match &self.marks {
            Some(marks) => {
                let claim = admit(fence, &self.account, Accepts::Linearizable)?;
                marks.write(&claim, access)
            }
            None => Ok(access()),
        }
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
