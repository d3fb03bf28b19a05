//! What older builds stored is read, and means what it meant.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod world;

use std::fs;
use std::path::PathBuf;

use holdfast_core::command::{Intervention, OpenSession, Policy};
use holdfast_core::{
    AccessChange, Batch, ChangeAccess, Command, GroupNumber, Identity, Limits, LockTable, LogIndex,
    LogicalTime, MapEpoch, MoveId, MoveStep, Ownership, Principal, Quota, QuotaSubject, RequestId,
    RoleName, RulesVersion, Slot, SlotSet, TokenId, TokenRecord,
};

fn version_1() -> impl Iterator<Item = (String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1");
    fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    })
}

#[test]
fn entries_of_version_1_are_read_and_applied() {
    let (mut entries, mut acquires, mut releases) = (0, 0, 0);
    let mut table = LockTable::new(Limits::default());
    for (_, bytes) in version_1().filter(|(name, _)| name.starts_with("entry")) {
        let batch = Batch::decode(&bytes).unwrap();
        assert_eq!(Batch::stamp(&bytes), Ok(batch.at));
        entries += 1;
        for command in batch.commands {
            match &command {
                // That version had no search for cycles of waits, and a replay must not search either.
                Command::Acquire(acquire) => {
                    assert_eq!(acquire.terms.policy, Policy::Wait);
                    acquires += 1;
                }
                Command::Release { hold, .. } => {
                    assert_eq!(hold.acquire, RequestId(0));
                    releases += 1;
                }
                _ => {}
            }
            table.apply(LogIndex(entries), batch.at, command, &mut Vec::new());
            table.check().unwrap();
        }
    }
    assert!(entries >= 6 && acquires > 0 && releases > 0, "{entries} {acquires} {releases}");
}

#[test]
fn snapshots_of_version_1_are_read_and_go_on() {
    let mut snapshots = 0;
    for (_, bytes) in version_1().filter(|(name, _)| name.starts_with("snapshot")) {
        let mut table = LockTable::decode(&bytes, Limits::default()).unwrap();
        let rewritten = table.encode();
        let again = LockTable::decode(&rewritten, Limits::default()).unwrap();
        assert_eq!(again.digest(), table.digest());
        while let Some(next) = table.next_deadline() {
            table.apply(LogIndex(1_000), next, Command::Tick, &mut Vec::new());
            table.check().unwrap();
        }
        assert_eq!((table.lock_count(), table.session_count()), (0, 0));
        snapshots += 1;
    }
    assert_eq!(snapshots, 1);
}

/// Alice holds the wallet, Bob and Carol wait for it in this order, Bob holds the keys until 8 s.
#[test]
fn a_snapshot_of_version_1_keeps_locks_queues_and_answers() {
    let (_, bytes) = version_1().find(|(name, _)| name == "snapshot-6").unwrap();
    let mut world = world::World::new(Limits::default());
    for who in ["alice", "bob", "carol"] {
        world.session(who);
    }
    world.table = LockTable::decode(&bytes, Limits::default()).unwrap();
    world.now = LogicalTime::from_ms(3_000);
    assert_eq!(world.holder("wallet").as_deref(), Some("alice"));
    assert_eq!(world.waiters("wallet"), ["bob", "carol"]);
    let keys = &world.table.status("keys", 9).holders[0];
    assert_eq!(
        (keys.deadline, &*keys.metadata),
        (Some(LogicalTime::from_ms(8_000)), &b"hello"[..])
    );

    // A retry of what was answered before the upgrade has the answer that it had.
    assert!(matches!(world.acquire("carol", 2, "keys", 0), holdfast_core::Outcome::Busy));
    world.release("alice", 10, "wallet", 1);
    assert_eq!(world.holder("wallet").as_deref(), Some("bob"));
    assert!(world.table.last_token() == 4);
}

/// A table with holders, a queue, permits, a freeze and a past; and the entry that made it, in the end.
fn a_table_with_everything(rules: RulesVersion, publishes: bool) -> (Batch, LockTable) {
    let mut world = world::World::with_rules(Limits::default(), rules);
    if publishes {
        world.apply(published(0, 0));
    }
    for who in ["alice", "bob", "carol"] {
        world.open(who, 30_000);
    }
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 9_000);
    world.acquire("carol", 1, "wallet", 9_000);
    world.now = LogicalTime::from_ms(1_000);
    world.release("alice", 2, "wallet", 1);
    world.acquire("alice", 3, "keys", 0);
    let commands = [Command::Tick, published(4, 5)];
    let batch = Batch { at: world.now, commands: commands[..1 + usize::from(publishes)].to_vec() };
    for command in batch.commands.clone() {
        world.apply(command);
    }
    (batch, world.table)
}

fn published(through: u64, index: u64) -> Command {
    Command::EventsPublished { through, index: LogIndex(index), term: 1 }
}

/// As above, of a table that follows rules 2: with an ended session, and a lost shared hold.
#[test]
fn entries_and_snapshots_of_version_4_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-4");
    let (mut batch, mut table) = a_table_with_everything(RulesVersion::ONE, true);
    batch.commands.push(Command::AdoptRules { version: RulesVersion::TWO });
    let apply = |table: &mut LockTable, command| {
        table.apply(LogIndex(99), LogicalTime::from_ms(1_000), command, &mut Vec::new())
    };
    batch.commands.iter().for_each(|command| drop(apply(&mut table, command.clone())));
    let mut world = world::World::new(Limits::default());
    for who in ["alice", "bob", "carol"] {
        world.session(who);
    }
    let mut read = world.acquiring("carol", 2, "page", 0);
    read.mode = holdfast_core::command::Mode::Shared;
    apply(&mut table, Command::Acquire(read));
    let action =
        holdfast_core::command::Action::Break { name: world::lock_name("page"), token: None };
    let (by, reason) = ("olga".into(), "test".into());
    apply(&mut table, Command::Intervene(Intervention { by, reason, action, identity: None }));
    apply(&mut table, Command::CloseSession { session: world.session("alice") });
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (4, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::TWO));
    assert_eq!(read.losses(world.session("carol")).len(), 2);
}

/// As above, of a table that follows rules 4: with a policy, and a session that is checked.
#[test]
fn entries_of_version_5_and_snapshots_of_rules_4_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-5");
    let principal = Principal::parse("token:alice").unwrap();
    let role = RoleName::parse("user").unwrap();
    let token = TokenRecord {
        id: TokenId(7),
        digest: [7; 32],
        principal: principal.clone(),
        expires_at_unix_ms: Some(1_000),
        note: "a note".to_owned(),
    };
    let grant = AccessChange::Grant { principal: principal.clone(), role };
    let change = ChangeAccess {
        by: "token:admin".into(),
        identity: None,
        expected: Some(0),
        changes: [grant, AccessChange::PutToken(token)].into(),
        end_sessions: true,
    };
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::FOUR);
    let identity = Some(Box::new(Identity::of(principal)));
    let ttl = holdfast_core::Span::from_secs(60);
    let open = OpenSession { identity, ..world.opening("alice", ttl) };
    let commands = vec![Command::ChangeAccess(Box::new(change)), Command::OpenSession(open)];
    let batch = Batch { at: world.now, commands };
    batch.commands.iter().for_each(|command| drop(world.apply(command.clone())));
    let table = &world.table;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (5, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::FOUR));
    assert_eq!((read.access().generation(), read.session_count()), (1, 1));
}

/// As above, of a table that follows rules 5: with a policy, and an intervention that names its caller. A
/// build with rules 8 recorded the files.
#[test]
fn entries_of_version_6_and_snapshots_of_rules_5_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-6");
    let principal = Principal::parse("token:olga").unwrap();
    let role = RoleName::parse("admin").unwrap();
    let change = ChangeAccess {
        by: "bootstrap".into(),
        identity: None,
        expected: Some(0),
        changes: [AccessChange::Grant { principal: principal.clone(), role }].into(),
        end_sessions: false,
    };
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::FIVE);
    let open = world.opening("alice", holdfast_core::Span::from_secs(60));
    let acquire = world.acquiring("alice", 1, "wallet", 0);
    let action =
        holdfast_core::command::Action::Break { name: world::lock_name("wallet"), token: None };
    let identity = Some(Box::new(Identity::of(principal)));
    let (by, reason) = ("token:olga".into(), "test".into());
    let commands = vec![
        Command::OpenSession(open),
        Command::Acquire(acquire),
        Command::ChangeAccess(Box::new(change)),
        Command::Intervene(Intervention { by, reason, action, identity }),
    ];
    let batch = Batch { at: world.now, commands };
    batch.commands.iter().for_each(|command| drop(world.apply(command.clone())));
    let table = &world.table;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (6, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::FIVE));
    assert_eq!(read.access().generation(), 1);
    assert_eq!((read.session_count(), read.lock_count()), (1, 0));
}

/// As above, of a table that follows rules 6: with quotas, of which some is taken.
#[test]
fn entries_of_version_7_and_snapshots_of_rules_6_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-7");
    let principal = Principal::parse("token:alice").unwrap();
    let identity = Some(Box::new(Identity::of(principal.clone())));
    let quota = Quota { locks: Some(3), waits: Some(1), ..Quota::default() };
    let subjects = ["token:alice", "jobs/*"].map(|text| QuotaSubject::parse(text).unwrap());
    let role = RoleName::parse("user").unwrap();
    let change = ChangeAccess {
        by: "token:admin".into(),
        identity: None,
        expected: Some(0),
        changes: [
            AccessChange::Grant { principal, role },
            AccessChange::SetQuotas(subjects.map(|subject| (subject, quota)).into()),
        ]
        .into(),
        end_sessions: false,
    };
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::SIX);
    let ttl = holdfast_core::Span::from_secs(60);
    let open = OpenSession { identity, ..world.opening("alice", ttl) };
    let acquire = world.acquiring("alice", 1, "jobs/1", 0);
    let commands = vec![
        Command::ChangeAccess(Box::new(change)),
        Command::OpenSession(open),
        Command::Acquire(acquire),
    ];
    let batch = Batch { at: world.now, commands };
    batch.commands.iter().for_each(|command| drop(world.apply(command.clone())));
    let table = &world.table;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (7, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::SIX));
    assert_eq!((read.quota_use().count(), read.lock_count()), (2, 1));
    assert_eq!(read.ownership(), &Ownership::default());
}

/// As above, of a table that follows rules 7, and owns some slots.
#[test]
fn entries_of_version_8_and_snapshots_of_rules_7_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-8");
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::SEVEN);
    let open = world.opening("alice", holdfast_core::Span::from_secs(60));
    let acquire = world.acquiring("alice", 1, "wallet", 0);
    let slots: SlotSet = [0, 1, 2, 700, 4_095].into_iter().filter_map(Slot::new).collect();
    let commands = vec![
        Command::OpenSession(open),
        Command::Acquire(acquire),
        Command::SetOwnership { epoch: MapEpoch(300), slots: slots.clone() },
    ];
    let batch = Batch { at: world.now, commands };
    batch.commands.iter().for_each(|command| drop(world.apply(command.clone())));
    let table = &world.table;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (8, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::SEVEN));
    assert_eq!((read.ownership().epoch(), read.ownership().slots()), (MapEpoch(300), &slots));
    assert_eq!(read.lock_count(), 1);
}

/// As above, of a table that follows rules 8, and has a session that is ending. Rules 8 have no new command.
#[test]
fn snapshots_of_rules_8_are_what_they_were_and_are_read() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-9/snapshot");
    let limits = Limits { ended_parts_per_entry_max: 1, ..Limits::default() };
    let mut world = world::World::with_rules(limits, RulesVersion::EIGHT);
    world.open("alice", 60_000);
    for (request, name) in [(1, "wallet"), (2, "keys"), (3, "hat")] {
        world.acquire("alice", request, name, 0);
    }
    let session = world.session("alice");
    world.apply(Command::CloseSession { session });
    let table = &world.table;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, table.encode()).unwrap();
    }
    let snapshot = fs::read(file).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::EIGHT));
    assert_eq!((read.session_count(), read.ending_session_count(), read.lock_count()), (0, 1, 2));
}

/// As above, of a table that follows rules 9, and knows which sessions a change of the policy has ended.
#[test]
fn entries_of_version_10_and_snapshots_of_rules_9_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-10");
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::NINE);
    let principal = Principal::parse("token:alice").unwrap();
    let change = ChangeAccess {
        by: "token:root".into(),
        identity: None,
        expected: None,
        changes: [AccessChange::Ban { principal }].into(),
        end_sessions: true,
    };
    world.apply(Command::ChangeAccess(Box::new(change)));
    let table = &world.table;
    let adopt = Command::AdoptPolicy(Box::new(table.access().clone()));
    let batch = Batch { at: world.now, commands: vec![adopt] };
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        fs::write(folder.join("snapshot"), table.encode()).unwrap();
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (10, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    let snapshot = fs::read(folder.join("snapshot")).unwrap();
    assert_eq!((snapshot[0], &snapshot), (4, &table.encode()));
    let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
    assert_eq!((read.digest(), read.rules()), (table.digest(), RulesVersion::NINE));
    assert_eq!(read.access(), table.access());
}

/// As above, of a table that follows rules 10: one group has made parts of what was in a slot, another has put them in,
/// and a third one has one of them aside.
#[test]
fn entries_of_version_11_and_snapshots_of_rules_10_are_what_they_were_and_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-11");
    let mut world = world::World::with_rules(Limits::default(), RulesVersion::TEN);
    world.open("alice", 60_000);
    world.open("bob", 60_000);
    world.acquire("alice", 1, "wallet", 0);
    world.acquire("bob", 1, "wallet", 9_000);
    let (id, target) = (MoveId { source: GroupNumber(1), epoch: MapEpoch(300) }, GroupNumber(2));
    let slots: SlotSet = [Slot::of("wallet")].into_iter().collect();
    let mut steps = vec![MoveStep::Seal { id, target, slots: slots.clone() }];
    world.apply(Command::from(steps[0].clone()));
    let sealed = world.table.encode();
    let (parts, last_token) = world.table.moves().outgoing().unwrap().complete().unwrap();
    assert_eq!((parts.len(), last_token), (1, 1));
    steps.extend([
        MoveStep::Adopt { id, part: 0, bytes: parts[0].clone() },
        MoveStep::Commit { id, epoch: MapEpoch(301), slots, parts: 1, last_token },
        MoveStep::Forget { id },
        MoveStep::Return { id, epoch: MapEpoch(302) },
        MoveStep::Abort { id },
    ]);
    world.go_to_group(3);
    world.apply(Command::from(steps[1].clone()));
    let staged = world.table.encode();
    world.go_to_group(2);
    world.apply(Command::from(steps[1].clone()));
    world.apply(Command::from(steps[2].clone()));
    let moved = world.table.encode();
    let commands = steps.into_iter().map(Command::from).collect();
    let batch = Batch { at: world.now, commands };
    let snapshots = [("sealed", sealed), ("staged", staged), ("moved", moved)];
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("entry"), batch.encode()).unwrap();
        for (what, bytes) in &snapshots {
            fs::write(folder.join(what), bytes).unwrap();
        }
    }
    let entry = fs::read(folder.join("entry")).unwrap();
    assert_eq!((entry[0], &entry), (11, &batch.encode()));
    assert_eq!(Batch::decode(&entry), Ok(batch));
    for (what, bytes) in snapshots {
        let snapshot = fs::read(folder.join(what)).unwrap();
        assert_eq!((snapshot[0], &snapshot), (4, &bytes), "{what}");
        let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
        assert_eq!((read.encode(), read.rules()), (snapshot, RulesVersion::TEN));
        let places = [("sealed", (2, 0, 0)), ("staged", (0, 0, 0)), ("moved", (2, 1, 1))];
        let here = (read.session_count(), read.lock_count(), read.waiter_count());
        assert!(places.contains(&(what, here)), "{what}: {here:?}");
    }
}

/// `UPDATE_GOLDEN=1` writes the files; they change only if the format does, and then the version must.
#[test]
fn entries_and_snapshots_of_versions_2_and_3_are_what_they_were_and_are_read() {
    let rules = RulesVersion::ONE;
    for (version, publishes) in [(2, false), (3, true)] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/fixtures/version-{version}"));
        let (batch, table) = a_table_with_everything(rules, publishes);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("entry"), batch.encode()).unwrap();
            fs::write(folder.join("snapshot"), table.encode()).unwrap();
        }
        let entry = fs::read(folder.join("entry")).unwrap();
        assert_eq!((entry[0], &entry), (version, &batch.encode()));
        assert_eq!(Batch::decode(&entry), Ok(batch));
        let snapshot = fs::read(folder.join("snapshot")).unwrap();
        assert_eq!((snapshot[0], &snapshot), (version, &table.encode()));
        let read = LockTable::decode(&snapshot, Limits::default()).unwrap();
        assert_eq!((read.digest(), read.publication()), (table.digest(), table.publication()));
        let through =
            read.publication().map(|publication| (publication.events, publication.through));
        assert_eq!(through, publishes.then_some((9, 4)));
    }
}
