//! Who a client is, as far as its rights go.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use super::principal::{Principal, read_principal, write_principal};
use super::role::{RoleName, read_role, write_role};
use crate::model::codec::{DecodeError, Reader, Sink, in_order};

/// How many roles one credential may name.
pub const CLAIMED_ROLES_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub principal: Principal,
    /// Roles that its credential names. Those that do not exist give nothing.
    pub claimed: BTreeSet<RoleName>,
}

impl Identity {
    /// Of a credential that names no roles.
    pub fn of(principal: Principal) -> Identity {
        Identity { principal, claimed: BTreeSet::new() }
    }

    /// What it takes of the table's bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        let roles: usize = self.claimed.iter().map(|role| role.as_str().len()).sum();
        (self.principal.as_str().len() + roles) as u64
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        write_principal(sink, &self.principal);
        sink.count(self.claimed.len());
        self.claimed.iter().for_each(|role| write_role(sink, role));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Box<Identity>, DecodeError> {
        let mut identity = Identity::of(read_principal(reader)?);
        for _ in 0..reader.count()? {
            let role = read_role(reader)?;
            in_order(identity.claimed.last(), &role, "claimed roles")?;
            identity.claimed.insert(role);
        }
        Ok(Box::new(identity))
    }
}
