//! Who holds what, followed from event to event.

use std::collections::BTreeMap;

use holdfast_core::command::Mode;
use holdfast_core::{ActorId, Event, FenceToken, LockName, RequestId, SessionId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) session: SessionId,
    /// The acquire.
    pub(super) request: RequestId,
    pub(super) actor: ActorId,
    pub(super) mode: Mode,
    pub(super) token: FenceToken,
}

#[derive(Debug, Default)]
pub(super) struct Holders<'a> {
    by_name: BTreeMap<&'a LockName, Vec<Holder>>,
}

impl<'a> Holders<'a> {
    pub(super) fn of(&self, name: &LockName) -> &[Holder] {
        self.by_name.get(name).map_or(&[], |holders| holders)
    }

    pub(super) fn find(
        &self,
        name: &LockName,
        session: SessionId,
        request: RequestId,
    ) -> Option<&Holder> {
        self.of(name).iter().find(|holder| (holder.session, holder.request) == (session, request))
    }

    /// Takes an event into account, after it was judged.
    pub(super) fn follow(&mut self, event: &'a Event) {
        match event {
            Event::Granted { name, session, request, actor, mode, token, .. } => {
                self.by_name.entry(name).or_default().push(Holder {
                    session: *session,
                    request: *request,
                    actor: *actor,
                    mode: *mode,
                    token: *token,
                });
            }
            Event::Converted { name, session, request, mode, token, .. } => {
                let holders = self.by_name.entry(name).or_default();
                for holder in holders {
                    if (holder.session, holder.request) == (*session, *request) {
                        (holder.mode, holder.token) = (*mode, *token);
                    }
                }
            }
            Event::Released { name, session, request, .. }
            | Event::HoldEnded { name, session, request, .. } => {
                if let Some(holders) = self.by_name.get_mut(name) {
                    holders
                        .retain(|holder| (holder.session, holder.request) != (*session, *request));
                }
            }
            _ => {}
        }
    }
}
