//! What callers and guards want of the task.

use super::super::request::Request;
use super::super::{Command, Ticket};
use super::{Finished, Task};
use crate::companion::Message;
use crate::error::Lost;
use crate::guard::ReleaseOutcome;
use crate::hold::Hold;

impl Task {
    /// What had to wait for a conversion.
    pub(super) fn accept_ready(&mut self) -> Result<(), Finished> {
        for command in std::mem::take(&mut self.session.ready) {
            self.accept(command)?;
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, command: Command) -> Result<(), Finished> {
        let session = &mut self.session;
        session.note_awaited(command.awaited_until());
        let is_held = command
            .hold()
            .is_some_and(|hold| hold.session_number == session.number && !hold.has_ended());
        let Some(command) = session.unless_converting(command) else { return Ok(()) };
        match command {
            Command::Acquire(call) => {
                if let Some(companion) = self.settings.companion.as_ref()
                    && call.wants_lock_delay()
                {
                    companion.tell(&Message::LockDelay);
                }
                session.stage(Request::Acquire(call));
            }
            Command::Abandon(ticket) => self.abandon(&ticket),
            Command::Release { hold, reply } if is_held => {
                session.forget_hold(&hold);
                let request = hold.release_request();
                session.requests.stage(Request::Release { request, reply });
            }
            Command::Release { hold, reply } => {
                if hold.session_number == session.number {
                    session.forget_hold(&hold);
                }
                if let Some(reply) = reply {
                    reply.send(Ok(ReleaseOutcome::Expired));
                }
            }
            Command::Convert(call) if is_held => session.start_converting(call),
            Command::Convert(call) => {
                let _ = call.reply.send(Err(lost(&call.hold).into()));
            }
            Command::Renew { hold, ttl, reply } if is_held => {
                session.requests.stage(Request::Renew { hold, ttl, reply });
            }
            Command::Renew { hold, reply, .. } => {
                let _ = reply.send(Err(lost(&hold).into()));
            }
            Command::Proclaim { hold, metadata, reply } if is_held => {
                session.requests.stage(Request::Proclaim { hold, metadata, reply });
            }
            Command::Proclaim { hold, reply, .. } => {
                let _ = reply.send(Err(lost(&hold).into()));
            }
            Command::Transfer { hold, to, reply } if is_held => {
                session.requests.stage(Request::Transfer { hold, to, reply });
            }
            Command::Transfer { hold, reply, .. } => {
                let _ = reply.send(Err(lost(&hold).into()));
            }
            Command::Status { name, reply } => drop(session.look(name, reply)),
            Command::Close { reply } => return self.start_closing(Some(reply)),
        }
        Ok(())
    }

    /// A request that never went out is forgotten. One that did is cancelled, and kept until either its
    /// own answer or that of the cancel tells whether there is something to release.
    fn abandon(&mut self, ticket: &Ticket) {
        let session = &mut self.session;
        let id = ticket.request_id();
        let known = session.requests.get(id).and_then(Request::ticket);
        if !known.is_some_and(|known| known.is_of_same_call(ticket)) {
            return;
        }
        if !session.requests.was_sent(id) {
            if let Some((Request::Convert(call), _)) = session.requests.settle(id) {
                session.stop_converting(&call.hold);
            }
        } else if let Some(request) = session.requests.get_mut(id) {
            request.abandon();
            let tier = request.tier();
            session.requests.stage(Request::Cancel { target: id, tier });
        }
    }
}

fn lost(hold: &Hold) -> Lost {
    Lost { reason: hold.loss_or_closed() }
}
