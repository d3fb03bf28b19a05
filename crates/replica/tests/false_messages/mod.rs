//! Messages that are well formed and not true.

use proptest::prelude::*;
use protobuf::{Message as _, ProtobufEnum as _};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
    EntryType, Message, MessageType,
};

/// What is claimed in place of the truth. `None`: the truth.
#[derive(Clone, Debug)]
pub(crate) struct FalseMessage {
    kind: Option<MessageType>,
    from: Option<u64>,
    to: Option<u64>,
    term: Option<Number>,
    log_term: Option<Number>,
    index: Option<Number>,
    commit: Option<Number>,
    commit_term: Option<Number>,
    reject: Option<bool>,
    reject_hint: Option<Number>,
    request_snapshot: Option<Number>,
    context: Option<Vec<u8>>,
    snapshot: Option<(Number, Number, Option<ConfState>)>,
    entries: Option<Vec<FalseEntry>>,
}

/// Index, term, kind and data.
type FalseEntry = (Number, Number, u8, Vec<u8>);

/// A number near the true one, or an extreme one.
#[derive(Clone, Copy, Debug)]
enum Number {
    Off(i64),
    Exactly(u64),
}

impl Number {
    fn instead_of(self, truth: u64) -> u64 {
        match self {
            Number::Off(by) => truth.saturating_add_signed(by),
            Number::Exactly(number) => number,
        }
    }
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        4 => (-4_i64..=4).prop_map(Number::Off),
        1 => (-50_i64..=1_000).prop_map(Number::Off),
        2 => (0_u64..40).prop_map(Number::Exactly),
        1 => prop_oneof![
            Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63), Just((1 << 63) - 1), Just(1 << 32)
        ]
        .prop_map(Number::Exactly),
        1 => any::<u64>().prop_map(Number::Exactly),
    ]
}

pub(crate) fn false_message() -> impl Strategy<Value = FalseMessage> {
    let maybe = |share| proptest::option::weighted(share, number());
    let node = || proptest::option::weighted(0.7, 1_u64..=4);
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        change().prop_map(|change| change.write_to_bytes().unwrap()),
    ];
    let entry = (number(), number(), 0_u8..4, data);
    (
        (proptest::option::weighted(0.5, kind()), node(), node()),
        (maybe(0.4), maybe(0.4), maybe(0.5), maybe(0.5), maybe(0.3)),
        (
            proptest::option::weighted(0.3, any::<bool>()),
            maybe(0.3),
            maybe(0.05),
            proptest::option::weighted(0.1, proptest::collection::vec(any::<u8>(), 0..9)),
            proptest::option::weighted(
                0.3,
                (number(), number(), proptest::option::weighted(0.5, members())),
            ),
            proptest::option::weighted(0.3, proptest::collection::vec(entry, 0..4)),
        ),
    )
        .prop_map(
            |(
                (kind, from, to),
                (term, log_term, index, commit, commit_term),
                (reject, reject_hint, request_snapshot, context, snapshot, entries),
            )| FalseMessage {
                kind,
                from,
                to,
                term,
                log_term,
                index,
                commit,
                commit_term,
                reject,
                reject_hint,
                request_snapshot,
                context,
                snapshot,
                entries,
            },
        )
}

/// A change of the membership that parses.
fn change() -> impl Strategy<Value = ConfChangeV2> {
    let single = (0..ConfChangeType::values().len(), 0_u64..6).prop_map(|(kind, node_id)| {
        let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
        single.set_change_type(ConfChangeType::values()[kind]);
        single
    });
    let context = prop_oneof![
        4 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..9),
    ];
    let transition = 0..ConfChangeTransition::values().len();
    (proptest::collection::vec(single, 0..4), transition, context).prop_map(
        |(singles, transition, context)| {
            let mut change = ConfChangeV2::default();
            change.set_changes(singles.into());
            change.set_transition(ConfChangeTransition::values()[transition]);
            change.set_context(context.into());
            change
        },
    )
}

fn members() -> impl Strategy<Value = ConfState> {
    let ids = |most| proptest::collection::vec(0_u64..7, 0..most);
    (ids(4), ids(3), ids(3), ids(2), any::<bool>()).prop_map(
        |(voters, learners, voters_outgoing, learners_next, auto_leave)| ConfState {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
            ..ConfState::default()
        },
    )
}

fn kind() -> impl Strategy<Value = MessageType> {
    (0..MessageType::values().len()).prop_map(|number| MessageType::values()[number])
}

impl FalseMessage {
    pub(crate) fn apply_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut message = Message::parse_from_bytes(bytes).unwrap();
        if let Some(kind) = self.kind {
            message.set_msg_type(kind);
        }
        message.from = self.from.unwrap_or(message.from);
        message.to = self.to.unwrap_or(message.to);
        let replace = |claim: Option<Number>, truth: &mut u64| {
            *truth = claim.map_or(*truth, |claim| claim.instead_of(*truth));
        };
        replace(self.term, &mut message.term);
        replace(self.log_term, &mut message.log_term);
        replace(self.index, &mut message.index);
        replace(self.commit, &mut message.commit);
        replace(self.commit_term, &mut message.commit_term);
        replace(self.reject_hint, &mut message.reject_hint);
        replace(self.request_snapshot, &mut message.request_snapshot);
        if let Some(context) = &self.context {
            message.context = context.clone().into();
        }
        message.reject = self.reject.unwrap_or(message.reject);
        if let Some((index, term, members)) = &self.snapshot {
            let metadata = message.mut_snapshot().mut_metadata();
            replace(Some(*index), &mut metadata.index);
            replace(Some(*term), &mut metadata.term);
            if let Some(members) = members {
                metadata.set_conf_state(members.clone());
            }
        }
        if let Some(entries) = &self.entries {
            let (mut index, term) = (message.index, message.term);
            message.entries = entries
                .iter()
                .map(|(at, of, kind, data)| {
                    index = index.wrapping_add(1);
                    Entry {
                        entry_type: [
                            EntryType::EntryNormal,
                            EntryType::EntryConfChange,
                            EntryType::EntryConfChangeV2,
                            EntryType::EntryNormal,
                        ][usize::from(*kind)],
                        context: if *kind == 3 { "members".into() } else { "".into() },
                        index: at.instead_of(index),
                        term: of.instead_of(term),
                        data: data.clone().into(),
                        ..Entry::default()
                    }
                })
                .collect();
        }
        message.write_to_bytes().unwrap()
    }
}
