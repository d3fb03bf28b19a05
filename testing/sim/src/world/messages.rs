//! What is under way between nodes and clients, and what arrives of it.

use holdfast_replica::GroupId;

use super::{Due, World};
use crate::history::RealTime;
use crate::message::{Endpoint, Message};
use crate::node::Incoming;

/// After which a connection sends again what was lost.
const RETRANSMISSION_US: u64 = 200_000;

impl World {
    pub(super) fn send(&mut self, from: Endpoint, to: Endpoint, message: Message) {
        if message.is_on_stream() {
            return self.send_on_stream(from, to, message);
        }
        let mut arrivals = self.network.arrivals_us(from, to);
        if let Message::Consensus { group, .. } = &message
            && self.network.is_group_cut(*group)
        {
            arrivals = [None, None];
        }
        if let (Message::Consensus { is_snapshot: true, group, .. }, [None, _]) =
            (&message, arrivals)
        {
            self.snapshot_sent(*group, from, to, false);
        }
        let [mut first, second] = arrivals;
        // The answer to a call can be so late that the call was sent again.
        if second.is_some() && matches!(message, Message::Answer(_)) && self.rng.percent(50) {
            first = None;
        }
        if let Some(after_us) = second.filter(|_| message.may_come_twice()) {
            let message = message.clone();
            let due = RealTime(self.now.0 + after_us);
            self.agenda.plan(due, Due::Deliver { from, to, message });
        }
        if let Some(after_us) = first {
            let due = RealTime(self.now.0 + after_us);
            self.agenda.plan(due, Due::Deliver { from, to, message });
        }
    }

    /// A stream is a connection: what it carries arrives in order and once. What is lost on the way is sent again, unless
    /// the way is cut.
    fn send_on_stream(&mut self, from: Endpoint, to: Endpoint, message: Message) {
        let mut after_us = 0;
        let passed = loop {
            match self.network.arrivals_us(from, to) {
                [Some(us), _] => break after_us + us,
                _ if self.network.is_cut(from, to) => return,
                _ => after_us += RETRANSMISSION_US,
            }
        };
        let last = self.stream_arrivals.entry((from, to)).or_insert(RealTime(0));
        let due = RealTime(self.now.0 + passed).max(*last);
        *last = due;
        self.agenda.plan(due, Due::Deliver { from, to, message });
    }

    pub(super) fn deliver(&mut self, from: Endpoint, to: Endpoint, message: Message) {
        if matches!(from, Endpoint::Node(node) if node < self.first_node) {
            // What a cluster had said is lost with it; or else its answers would count as those of the next.
            return;
        }
        let passes = !self.network.is_cut(from, to);
        match (to, message) {
            (
                Endpoint::Node(node),
                Message::Consensus { group, log_version, bytes, is_snapshot },
            ) => {
                let Endpoint::Node(sender) = from else { return };
                let passes = passes && !self.network.is_group_cut(group);
                let arrives = passes && self.nodes[node].is_up();
                self.trace.number(self.now.0 ^ (node as u64) << 56);
                self.trace.bytes(&bytes);
                if is_snapshot {
                    self.snapshot_sent(group, from, to, arrives);
                }
                if arrives {
                    let from = self.nodes[sender].id;
                    self.nodes[node].receive(Incoming::Consensus {
                        from,
                        group,
                        log_version,
                        bytes,
                    });
                    self.wake(node, self.now);
                } else if self.rng.percent(5) {
                    let unreachable = Incoming::PeerUnreachable(self.nodes[node].id);
                    self.schedule_input(sender, unreachable, 1_000);
                }
            }
            (Endpoint::Node(node), Message::Request(request)) => {
                if passes {
                    self.nodes[node].receive(Incoming::Request(request));
                    self.wake(node, self.now);
                }
            }
            // An answer to a request that this node passed on.
            (Endpoint::Node(node), Message::Answer(answer)) => {
                if passes && self.nodes[node].listens(self.now) {
                    let client = Endpoint::Client(answer.reply_to.client);
                    self.send(to, client, Message::Answer(answer));
                }
            }
            (Endpoint::Node(_), Message::Notice { .. }) => {}
            (Endpoint::Client(client), message) => {
                if passes {
                    self.deliver_to_client(from, client, message);
                }
            }
        }
    }

    fn deliver_to_client(&mut self, from: Endpoint, client: usize, message: Message) {
        if self.clients[client].dead {
            return;
        }
        if self.clients[client].paused > 0 {
            let to = Endpoint::Client(client);
            return self.backlogs[client].push(Due::Deliver { from, to, message });
        }
        self.trace.number(self.now.0 ^ (client as u64) << 48);
        self.trace.line(self.now, || format!("{from:?} -> client {client}: {message:?}"));
        match message {
            Message::Answer(answer) => {
                self.drive(client, |client, context| client.receive(context, *answer));
            }
            Message::Notice { session, notice } => {
                self.drive(client, |client, context| client.notice(context, session, &notice));
            }
            Message::Consensus { .. } | Message::Request(_) => {}
        }
    }

    /// The sender of a snapshot hears what became of it.
    fn snapshot_sent(&mut self, group: GroupId, from: Endpoint, to: Endpoint, delivered: bool) {
        if let (Endpoint::Node(from), Endpoint::Node(to)) = (from, to) {
            let incoming = Incoming::SnapshotSent { group, to: self.nodes[to].id, delivered };
            let after_us = if delivered { 2_000 } else { 1_500_000 };
            self.schedule_input(from, incoming, after_us);
        }
    }
}
