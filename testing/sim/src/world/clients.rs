//! What clients do: they think, send, and write to what the locks protect.

use super::{Due, World};
use crate::client::{self, Client, ClientContext, Write};
use crate::history::{RealTime, StoreWrite};
use crate::message::{Body, Endpoint, Message, Request};
use crate::node::Incoming;
use crate::recorder::place;
use crate::workload::CommandKind;

/// After which a client gives up connecting.
const CONNECT_TIMEOUT_US: u64 = 1_000_000;

impl World {
    /// A paused client acts when it goes on; a dead one never.
    pub(super) fn may_act(&mut self, client: usize, what: Due) -> bool {
        if self.clients[client].dead {
            return false;
        }
        if self.clients[client].paused > 0 {
            self.backlogs[client].push(what);
            return false;
        }
        true
    }

    pub(crate) fn catch_up(&mut self, client: usize) {
        if self.clients[client].paused == 0 {
            for what in std::mem::take(&mut self.backlogs[client]) {
                self.agenda.plan(self.now, what);
            }
        }
    }

    pub(super) fn think(&mut self, client: usize) {
        let pace_us = self.plan.pace_us;
        let pause = self.drive(client, |client, context| client.think(context, pace_us));
        self.agenda.plan(RealTime(self.now.0 + pause), Due::Think(client));
    }

    /// Gives a client some input, and does what it wants.
    pub(super) fn drive<R>(
        &mut self,
        client: usize,
        input: impl FnOnce(&mut Client, &mut ClientContext<'_>) -> R,
    ) -> R {
        let mut outputs = std::mem::take(&mut self.client_outputs);
        let (now, group) = (self.now, self.clients[client].group);
        let recorder = self.recorder.of(group);
        let is_checked = self.administrators[place(group)].is_checked;
        let mut context = ClientContext { now, is_checked, recorder, outputs: &mut outputs };
        let result = input(&mut self.clients[client], &mut context);
        for output in outputs.drain(..) {
            match output {
                client::Output::Send { to, request } => {
                    self.note_in_flight(&request);
                    self.trace
                        .line(self.now, || format!("client {client} -> node {to}: {request:?}"));
                    self.send(
                        Endpoint::Client(client),
                        Endpoint::Node(to),
                        Message::Request(request),
                    );
                }
                client::Output::Wake { after_us } => {
                    self.agenda.plan(RealTime(self.now.0 + after_us), Due::Wake(client));
                }
                client::Output::Connect { to, attempt } => self.connect(client, to, attempt),
                client::Output::Write { after_us, write } => {
                    self.agenda.plan(RealTime(self.now.0 + after_us), Due::Write(client, write));
                }
                client::Output::StreamEnded { node, ended } => {
                    let after_us = self.rng.between(1_000, 2_000_000);
                    self.schedule_input(node, Incoming::StreamEnded(ended), after_us);
                }
            }
        }
        self.client_outputs = outputs;
        result
    }

    /// There is a connection if a message comes through there and back, and the node takes it.
    fn connect(&mut self, client: usize, node: usize, attempt: u64) {
        let (here, there) = (Endpoint::Client(client), Endpoint::Node(node));
        let [forth, _] = self.network.arrivals_us(here, there);
        let [back, _] = self.network.arrivals_us(there, here);
        let listens = self.nodes.get(node).is_some_and(|node| node.listens(self.now));
        let round_trip = forth.zip(back).map(|(forth, back)| forth + back).filter(|_| listens);
        let due = RealTime(self.now.0 + round_trip.unwrap_or(CONNECT_TIMEOUT_US));
        let is_connected = round_trip.is_some();
        self.agenda.plan(due, Due::Connected { client, attempt, is_connected });
    }

    pub(super) fn write(&mut self, client: usize, write: Write) {
        let Write { believed, session, name, token, clock_stood_still } = write;
        let accepted = self.store.write(&name, token);
        self.trace.number(token.0 << 1 | u64::from(accepted));
        self.trace.line(self.now, || {
            format!("client {client} writes under {name} with token {token}: accepted {accepted}")
        });
        let at = self.now;
        let group = self.clients[client].group;
        self.recorder.of(group).wrote(StoreWrite {
            at,
            believed,
            session,
            name,
            token,
            clock_stood_still,
            accepted,
        });
    }

    fn note_in_flight(&mut self, request: &Request) {
        if let (Some(coverage), Body::Command(command)) = (&mut self.coverage, &request.body) {
            coverage.in_flight(CommandKind::of(command), &self.active);
        }
    }
}
