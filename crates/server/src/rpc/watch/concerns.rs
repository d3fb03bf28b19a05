//! Which events a watch is about.

use holdfast_core::command::Action;
use holdfast_core::{Event, Outcome};

use super::Scope;

/// Is it about one of the names? Sessions are for those who watch everything.
pub(super) fn concerns(event: &Event, watched: &Scope) -> bool {
    let under = |name: &str| watched.covers(name);
    let overlaps = |other: &str| watched.overlaps(other);
    match event {
        Event::SessionOpened { .. } | Event::SessionEnded { .. } => watched.is_everything(),
        Event::Granted { name, .. }
        | Event::Queued { name, .. }
        | Event::Converted { name, .. }
        | Event::Proclaimed { name, .. }
        | Event::Released { name, .. }
        | Event::HoldEnded { name, .. }
        | Event::Reopened { name } => under(name),
        // For the audit.
        Event::AccessChanged { .. } => false,
        // For no client.
        Event::SessionEnding { .. }
        | Event::PolicyAdopted { .. }
        | Event::OwnershipChanged { .. }
        | Event::HoldMovedIn { .. } => false,
        // The grant is told by itself.
        Event::WaitEnded { outcome: Outcome::Granted(_) | Outcome::GrantedAll(_), .. } => false,
        Event::Refused { names, .. } | Event::WaitEnded { names, .. } => {
            names.iter().any(|name| under(name))
        }
        Event::Thawed { prefix: thawed } => overlaps(thawed),
        Event::Intervened(intervention) => match &intervention.action {
            Action::Break { name, .. }
            | Action::Transfer { name, .. }
            | Action::SetPermits { name, .. }
            | Action::Reopen { name } => under(name),
            Action::Freeze { prefix: other, .. } | Action::Thaw { prefix: other } => {
                overlaps(other)
            }
            Action::KillSession { .. } | Action::SetLimits { .. } => watched.is_everything(),
        },
    }
}
