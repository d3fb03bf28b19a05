//! `MoveSlots`: slots go from one group to another, with all that is in them.
//!
//! A move is `Seal`, then `Adopt` for each part, then either `Commit` and `Forget`, or `Abort` and `Return`. The abort
//! can come before all parts are adopted. Each step is one entry in the log of one group. A copy, or one that comes too
//! late, does no harm.
//!
//! | step | group | from that entry on |
//! |---|---|---|
//! | `Seal` | source | it does not own the slots: nothing is granted or queued there. Entries take out what is in them, in parts |
//! | `Adopt` | target | it has that part aside. Nothing of it is served, and no time of it runs |
//! | `Commit` | target | **the move is decided.** Entries put the parts into its table; with the last one it owns the slots |
//! | `Forget` | source | it has nothing of the slots any more |
//! | `Abort` | target | it will never commit this move, whether it has heard of it or not |
//! | `Return` | source | entries put the parts back into its table; with the last one it owns the slots again |
//!
//! # Invariants
//!
//! * At each moment at most one group owns a slot: the source until `Seal`, then none, then one of the two.
//! * What is in a slot is in the table of at most one group. On the way it is only in parts (bytes), of which the
//!   target has copies.
//! * A grant after the move has a higher token than each before it: the target's counter rises at least to that of the
//!   source.
//! * The target decides alone. `Forget` follows its commit, and `Return` its abort: [`next_step`] sees to that.
//! * An entry takes out or puts in a bounded part (`Limits::move_steps_max`, `Limits::move_part_bytes`).
//!
//! # What moves
//!
//! Holds with their tokens, modes and remaining times; waits in their order, with their requests and remaining times;
//! lock delays; numbers of permits that operators have set. The holds and waits of a session become those of a *guest*,
//! a session of the target with an id of its own ([`MoveId::guest`]) and the settings, owner and identity of the first.
//! The answers that are made from a hold go with it, so a retry of the request with the guest's session id gets the
//! same answer. All other answers stay: a retry that comes to the source gets them there.
//!
//! Freezes do not move, because an operator makes them in each group. Quotas count the guest where it is.
//!
//! A wait of an acquire-all for locks in these and in other slots ends with `several_groups`. No group could grant it.
//! The holds of an acquire-all move lock by lock.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::model::command::Command;
use crate::model::event::Event;
use crate::model::outcome::{Outcome, Rejection};
use crate::model::slot::{MapEpoch, SlotSet};
use crate::model::slot_move::{GroupNumber, MoveEnd, MoveId, MoveStep};
use crate::state::deferred::Promotion;
use crate::state::moves::{Arrival, Incoming, Outgoing, Parts, Progress, SOURCES_MAX, Stage};
use crate::state::ownership::Ownership;
use crate::state::snapshot::part::Part;
use crate::state::table::LockTable;

/// What a move needs next. See [`next_step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// A command for the log of the source.
    ToSource(MoveStep),
    /// A command for the log of the target.
    ToTarget(MoveStep),
    /// The source is still taking out parts, or putting them back. Each further entry of its log, whatever its command,
    /// does some of that. A `Tick` is due at once for it.
    Wait,
    /// The source has no move under way.
    Nothing,
}

/// The next step of the move that the source has under way, from what is known of the two tables. Both tables may be
/// outdated copies: each step that this asks for was right at the time that they show, and does no harm later. So
/// anything that knows both groups can drive a move, and go on with one that another has begun.
///
/// `epoch` is for the group that is to own the slots. It has to be higher than the epoch of that group now: the group
/// refuses any other. `is_to_abort` asks for the end of the move without a commit. It may be too late for that.
pub fn next_step(
    source: &LockTable,
    target: &LockTable,
    epoch: MapEpoch,
    is_to_abort: bool,
) -> NextStep {
    let Some(outgoing) = source.moves().outgoing() else { return NextStep::Nothing };
    let id = outgoing.id;
    if outgoing.is_returning() {
        return NextStep::Wait;
    }
    match target.moves().end_of(id) {
        Some(MoveEnd::Committed) => return NextStep::ToSource(MoveStep::Forget { id }),
        Some(MoveEnd::Aborted) => return NextStep::ToSource(MoveStep::Return { id, epoch }),
        None if is_to_abort => {
            #[cfg(feature = "planted")]
            if crate::planted::Bug::ReturnBeforeAbort.is_active() {
                return NextStep::ToSource(MoveStep::Return { id, epoch });
            }
            return NextStep::ToTarget(MoveStep::Abort { id });
        }
        None => {}
    }
    let Some((parts, last_token)) = outgoing.complete() else { return NextStep::Wait };
    let part = target.moves().staged_parts(id);
    NextStep::ToTarget(match parts.get(part as usize) {
        Some(bytes) => MoveStep::Adopt { id, part, bytes: bytes.clone() },
        None => {
            let (slots, parts) = (outgoing.slots.clone(), parts.len() as u32);
            MoveStep::Commit { id, epoch, slots, parts, last_token }
        }
    })
}

impl From<MoveStep> for Command {
    fn from(step: MoveStep) -> Command {
        Command::MoveSlots(Box::new(step))
    }
}

impl LockTable {
    pub(crate) fn move_slots(&mut self, step: MoveStep, events: &mut Vec<Event>) -> Outcome {
        let done = match step {
            MoveStep::Seal { id, target, slots } => self.seal(id, target, slots, events),
            MoveStep::Adopt { id, part, bytes } => self.adopt_part(id, part, bytes),
            MoveStep::Commit { id, epoch, slots, parts, last_token } => {
                self.commit_move(id, epoch, slots, parts, last_token)
            }
            MoveStep::Abort { id } => self.abort_move(id),
            MoveStep::Return { id, epoch } => self.return_slots(id, epoch),
            MoveStep::Forget { id } => self.forget_slots(id),
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(rejection) => Outcome::Rejected(rejection),
        }
    }

    fn seal(
        &mut self,
        id: MoveId,
        target: GroupNumber,
        slots: SlotSet,
        events: &mut Vec<Event>,
    ) -> Result<(), Rejection> {
        if let Some(outgoing) = self.moves().outgoing() {
            let is_same = (outgoing.id, outgoing.target, &outgoing.slots) == (id, target, &slots);
            return if is_same { Ok(()) } else { Err(Rejection::MoveUnderWay) };
        }
        let owned = self.ownership().slots();
        if id.source == target || slots.is_empty() || !owned.includes(&slots) {
            return Err(Rejection::InvalidMove);
        }
        let left = owned.without(&slots);
        self.check_next_epoch(id.epoch)?;
        let stage = Stage::TakingLocks { passed: None };
        let (parts, travellers) = (Parts::new(), BTreeSet::new());
        let outgoing = Outgoing { id, target, slots: slots.clone(), parts, travellers, stage };
        self.change_moves(|moves| moves.outgoing = Some(Box::new(outgoing)));
        #[cfg(feature = "planted")]
        if crate::planted::Bug::GrantWhileSealed.is_active() {
            return Ok(());
        }
        self.own(id.epoch, left, events);
        Ok(())
    }

    /// The epoch has to rise with each change of what the group owns. While parts are put in, a `Commit` or `Return`
    /// has fixed the next epoch, so no other change is accepted.
    fn check_next_epoch(&self, epoch: MapEpoch) -> Result<(), Rejection> {
        let in_force = self.ownership().epoch();
        if epoch <= in_force {
            return Err(Rejection::StaleEpoch { epoch: in_force });
        }
        let moves = self.moves();
        if moves.is_installing() || moves.is_returning() {
            return Err(Rejection::MoveUnderWay);
        }
        Ok(())
    }

    fn adopt_part(&mut self, id: MoveId, part: u32, bytes: Box<[u8]>) -> Result<(), Rejection> {
        self.expect_arrival(id)?;
        let staged = self.moves().staged_parts(id);
        #[cfg(feature = "planted")]
        let (part, staged) = match crate::planted::Bug::AdoptedTwice.is_active() {
            // Any part that comes is the next one.
            true => (staged, staged),
            false => (part, staged),
        };
        if part < staged {
            return Ok(());
        }
        if part > staged {
            return Err(Rejection::PartsMissing { staged });
        }
        // Whether it can be read has to be known before the move is decided.
        if Part::decode(&bytes).is_err() {
            return Err(Rejection::InvalidMove);
        }
        self.change_moves(|moves| {
            let staged = Arrival::Staged { parts: Parts::new() };
            let new = Incoming { id: id.epoch, arrival: staged };
            let incoming = moves.incoming.entry(id.source).or_insert(new.clone());
            if incoming.id != id.epoch {
                *incoming = new;
            }
            if let Arrival::Staged { parts } = &mut incoming.arrival {
                parts.push(bytes);
            }
        });
        Ok(())
    }

    /// Refuses a move that has ended here or was followed by a later one. Also refuses a move that cannot begin,
    /// because another from the same source is under way, or too many sources are known.
    fn expect_arrival(&self, id: MoveId) -> Result<(), Rejection> {
        if let Some(end) = self.moves().end_of(id) {
            return Err(Rejection::MoveEnded { end });
        }
        match self.moves().incoming.get(&id.source) {
            Some(last) if last.id > id.epoch => Err(Rejection::MoveEnded { end: MoveEnd::Aborted }),
            Some(last) if last.id == id.epoch || matches!(last.arrival, Arrival::Ended(_)) => {
                Ok(())
            }
            Some(_) => Err(Rejection::MoveUnderWay),
            None if self.moves().incoming.len() < SOURCES_MAX => Ok(()),
            None => Err(Rejection::InvalidMove),
        }
    }

    fn commit_move(
        &mut self,
        id: MoveId,
        epoch: MapEpoch,
        slots: SlotSet,
        parts: u32,
        last_token: u64,
    ) -> Result<(), Rejection> {
        match self.moves().end_of(id) {
            Some(MoveEnd::Committed) => return Ok(()),
            Some(end) => return Err(Rejection::MoveEnded { end }),
            None => self.expect_arrival(id)?,
        }
        let staged = self.moves().staged_parts(id);
        #[cfg(feature = "planted")]
        let staged = match crate::planted::Bug::AdoptedTwice.is_active() {
            true => staged.min(parts),
            false => staged,
        };
        if staged != parts {
            return Err(Rejection::PartsMissing { staged });
        }
        if self.ownership().slots().overlaps(&slots) {
            return Err(Rejection::InvalidMove);
        }
        // These slots left in this group's own outgoing move, which is not forgotten yet. That they come back shows
        // that it was committed. Its `Forget` must be applied first.
        let leaves = self.moves().outgoing().is_some_and(|it| it.slots.overlaps(&slots));
        if leaves {
            return Err(Rejection::MoveUnderWay);
        }
        self.check_next_epoch(epoch)?;
        #[cfg(feature = "planted")]
        let last_token = if crate::planted::Bug::CounterNotHandedOver.is_active() {
            self.highest_token_in(id)
        } else {
            last_token
        };
        self.raise_last_token(last_token);
        let progress = Progress::default();
        self.change_moves(|moves| {
            let parts = match moves.incoming.remove(&id.source).map(|it| it.arrival) {
                Some(Arrival::Staged { parts }) => parts,
                _ => Parts::new(),
            };
            let arrival = Arrival::Installing { epoch, slots, parts, progress };
            moves.incoming.insert(id.source, Incoming { id: id.epoch, arrival });
        });
        Ok(())
    }

    fn abort_move(&mut self, id: MoveId) -> Result<(), Rejection> {
        match self.moves().end_of(id) {
            Some(MoveEnd::Aborted) => return Ok(()),
            Some(end) => return Err(Rejection::MoveEnded { end }),
            None => {}
        }
        match self.expect_arrival(id) {
            // A later move from there has begun, so this one has ended, by a commit or not. It cannot be committed any
            // more.
            Err(Rejection::MoveEnded { .. }) => return Ok(()),
            checked => checked?,
        }
        let arrival = Arrival::Ended(MoveEnd::Aborted);
        let ended = Incoming { id: id.epoch, arrival };
        self.change_moves(|moves| moves.incoming.insert(id.source, ended));
        Ok(())
    }

    fn return_slots(&mut self, id: MoveId, epoch: MapEpoch) -> Result<(), Rejection> {
        let Some(outgoing) = self.moves().outgoing().filter(|outgoing| outgoing.id == id) else {
            return self.expect_ended(id);
        };
        if outgoing.is_returning() {
            return Ok(());
        }
        self.check_next_epoch(epoch)?;
        let progress = Progress::default();
        self.change_moves(|moves| {
            if let Some(outgoing) = &mut moves.outgoing {
                outgoing.stage = Stage::Returning { epoch, progress };
            }
        });
        Ok(())
    }

    fn forget_slots(&mut self, id: MoveId) -> Result<(), Rejection> {
        let Some(outgoing) = self.moves().outgoing().filter(|outgoing| outgoing.id == id) else {
            return self.expect_ended(id);
        };
        if outgoing.complete().is_none() {
            return Err(Rejection::InvalidMove);
        }
        self.change_moves(|moves| moves.outgoing = None);
        Ok(())
    }

    /// Accepts a late copy of a `Return` or `Forget`; refuses one of a move whose epoch this group has not reached.
    fn expect_ended(&self, id: MoveId) -> Result<(), Rejection> {
        let is_past = id.epoch <= self.ownership().epoch();
        if is_past { Ok(()) } else { Err(Rejection::InvalidMove) }
    }

    /// Goes on with what leaves, comes or returns, as far as the steps of this entry suffice.
    pub(crate) fn continue_moves(&mut self, events: &mut Vec<Event>) {
        if !self.moves().has_work() {
            return;
        }
        self.take_out(events);
        self.put_in(events);
    }

    /// All is put in: the group owns these slots as well. What waits there is granted as far as it can be, by this entry
    /// and later ones.
    pub(super) fn own_more(&mut self, epoch: MapEpoch, more: &SlotSet, events: &mut Vec<Event>) {
        let mut slots = self.ownership().slots().clone();
        slots.extend(more.iter());
        #[cfg(feature = "planted")]
        let epoch = if crate::planted::Bug::MoveKeepsEpoch.is_active() {
            self.ownership().epoch()
        } else {
            epoch
        };
        self.own(epoch, slots, events);
        self.defer(Promotion::Prefix { prefix: "".into(), passed: None });
    }

    fn own(&mut self, epoch: MapEpoch, slots: SlotSet, events: &mut Vec<Event>) {
        self.set_ownership(Ownership { epoch, slots: slots.clone() });
        events.push(Event::OwnershipChanged { epoch, slots });
    }

    #[cfg(feature = "planted")]
    fn highest_token_in(&self, id: MoveId) -> u64 {
        let Some(Arrival::Staged { parts }) = self.moves().incoming(id).map(|it| &it.arrival)
        else {
            return 0;
        };
        let parts = parts.iter().filter_map(|bytes| Part::decode(bytes).ok());
        parts.flat_map(|part| part.holds).map(|moved| moved.hold.token.0).max().unwrap_or(0)
    }
}
