use holdfast_core::command::Owner;
use holdfast_core::{
    Event, Identity, LogIndex, LogicalTime, Principal, PublicSessionId, SessionId,
};
use holdfast_replica::{Configuration, FOUNDING_INDEX, NodeId};
use holdfast_service::{Caller, Credential, OnAuditFailure, Protocol};
use serde_json::{Value, json};

use super::*;
use crate::events::{EventRing, SessionOwner};
use crate::inbox::{Leaderships, inbox};
use crate::stopping::StopSwitch;

const KEPT: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(20);

fn happen(ring: &EventRing, indexes: impl IntoIterator<Item = u64>) {
    let (session, public) = (SessionId(1), PublicSessionId(1));
    let event = Event::SessionOpened { session, public, owner: Box::default(), principal: None };
    let at = LogicalTime::ZERO;
    let events = indexes.into_iter().map(|index| (LogIndex(index), at, event.clone()));
    ring.record(&mut events.collect(), 0, None);
}

/// Lets the others go on until it is so.
async fn until(is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, so).await.unwrap();
}

fn audit(settings: &AuditSettings, events: &Arc<EventRing>) -> Audit {
    led_by(&watch::Sender::new(Leadership::default()), settings, events)
}

fn led_by(
    leadership: &watch::Sender<Leadership>,
    settings: &AuditSettings,
    events: &Arc<EventRing>,
) -> Audit {
    of_electorate(&watch::Sender::default(), leadership, settings, events)
}

fn of_electorate(
    electorate: &watch::Sender<Electorate>,
    leadership: &watch::Sender<Leadership>,
    settings: &AuditSettings,
    events: &Arc<EventRing>,
) -> Audit {
    let shard = ShardHandle::new(inbox().unwrap().0, leadership.subscribe().into());
    let (events, metrics) = (EventRings::of_one(Arc::clone(events)), Arc::new(Metrics::new()));
    let (notes, gate) = (Arc::default(), Arc::default());
    Audit::open(settings, &events, shard, electorate.subscribe(), metrics, notes, gate).unwrap()
}

fn catch_up(audit: &mut Audit) {
    assert!(audit.write().unwrap());
}

#[test]
fn a_gap_line_has_the_number_of_events_that_the_ring_forgot() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    let mut audit = audit(&settings, &events);
    happen(&events, 1..=50);
    catch_up(&mut audit);
    happen(&events, 51..=300);
    catch_up(&mut audit);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, 50 + 1 + KEPT);
    let gap = &lines[50];
    assert_eq!((&gap["event"], &gap["lost"]), (&Value::from("gap"), &Value::from(150)));
    assert_eq!((&gap["after_index"], &gap["index"]), (&Value::from(50), &Value::from(201)));
    assert_eq!(audit.metrics.audit.lost.get(), 1);
    assert_eq!(audit.metrics.audit.lines.get(), 50 + KEPT);
}

#[tokio::test]
async fn a_change_of_leader_has_a_line_though_nothing_else_happens_and_the_rest_comes_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    let leadership = watch::Sender::new(Leadership::default());
    let stop = StopSwitch::new();
    let audit = led_by(&leadership, &settings, &events);
    let writing = tokio::spawn(audit.keep_writing(stop.watch()));
    let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    for (term, leader) in [(1, 1), (2, 2), (3, 1)] {
        until(|| lines() >= term).await;
        let leader = Some(NodeId(leader));
        leadership.send_replace(Leadership { leader, is_here: false, term: term as u64 });
    }
    until(|| lines() >= 4).await;
    happen(&events, 1..=20);
    stop.throw();
    writing.await.unwrap();
    assert_eq!(lines(), 4 + 20);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("\"event\":\"leadership\"").count(), 4, "{text}");
}

fn electorate(index: u64, voters: &[u64], learners: &[u64]) -> Electorate {
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
    let (voters, learners) = (nodes(voters), nodes(learners));
    Electorate { index, configuration: Configuration { voters, learners, ..Default::default() } }
}

/// A node runs: those are told one after the other, and then something happens.
async fn run_through(settings: &AuditSettings, first_term: u64, electorates: &[Electorate]) {
    let events = Arc::new(EventRing::of_root(KEPT));
    let (now, stop) = (watch::Sender::<Electorate>::default(), StopSwitch::new());
    let leadership = watch::Sender::new(Leadership::default());
    let audit = of_electorate(&now, &leadership, settings, &events);
    let writing = tokio::spawn(audit.keep_writing(stop.watch()));
    for (electorate, term) in electorates.iter().zip(first_term..) {
        now.send_replace(electorate.clone());
        // Once it has told this it has seen the other.
        leadership.send_replace(Leadership { leader: None, is_here: false, term });
        let line = format!("\"leader\":0,\"term\":{term}}}");
        until(|| std::fs::read_to_string(&settings.file).unwrap_or_default().contains(&line)).await;
    }
    happen(&events, 1..=6);
    stop.throw();
    writing.await.unwrap();
}

#[tokio::test]
async fn membership_changes_have_one_audit_line_each_and_none_on_replay() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let (founded, learns) = (electorate(0, &[1, 2, 3], &[]), electorate(4, &[1, 2, 3], &[4]));
    let (votes, leaves) = (electorate(5, &[1, 2, 3, 4], &[]), electorate(9, &[1, 2, 4], &[]));
    run_through(&settings, 1, &[founded.clone(), learns.clone(), votes.clone()]).await;
    run_through(&settings, 11, &[founded, learns, votes, leaves]).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reported = lines.filter(|line| line["event"] == "membership");
    let reported: Vec<Value> =
        reported.map(|line| json!([line["voters"], line["learners"]])).collect();
    let expected = [
        json!([[1, 2, 3], null]),
        json!([[1, 2, 3], [4]]),
        json!([[1, 2, 3, 4], null]),
        json!([[1, 2, 4], null]),
    ];
    assert_eq!(reported, expected, "{text}");
}

#[test]
fn an_audit_file_that_begins_after_the_log_has_one_line_about_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    for through in [50, 50, 53, 55] {
        let events = Arc::new(EventRing::of_root(KEPT));
        let mut audit = audit(&settings, &events);
        // As when a snapshot has stood for the first fifty.
        events.restart_after(50);
        catch_up(&mut audit);
        happen(&events, 51..=through);
        catch_up(&mut audit);
        assert_eq!(audit.metrics.audit.lost.get(), 0, "no reader was too slow");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1 + 5, "{text}");
    assert_eq!((&lines[0]["event"], &lines[0]["index"]), (&"beginning".into(), &50.into()));
    assert_eq!(lines[1]["index"], Value::from(51));
}

#[tokio::test]
async fn the_line_about_a_late_begin_comes_before_the_leader_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    events.restart_after(50);
    let leadership = watch::Sender::new(Leadership::default());
    let stop = StopSwitch::new();
    stop.throw();
    led_by(&leadership, &settings, &events).keep_writing(stop.watch()).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(kinds, ["beginning", "leadership"], "though it stops in its first round");
}

#[test]
fn after_a_restart_no_audit_line_is_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    for through in [5, 8] {
        let events = Arc::new(EventRing::of_root(KEPT));
        let mut audit = audit(&settings, &events);
        happen(&events, 1..=through);
        catch_up(&mut audit);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(!text.contains("gap"), "{text}");
}

#[tokio::test]
async fn a_disk_that_does_not_answer_is_noticed_and_so_is_a_writer_that_panics() {
    const MOMENT: Duration = Duration::from_millis(1);
    let (answer, answered) = oneshot::channel::<()>();
    let (told, mut times) = tokio::sync::mpsc::unbounded_channel();
    let writing = tokio::spawn(answered);
    let written = tokio::spawn(until_written(writing, MOMENT, move || told.send(()).unwrap()));
    for _ in 0..3 {
        times.recv().await.unwrap();
    }
    answer.send(()).unwrap();
    written.await.unwrap().unwrap().unwrap();
    let broken = tokio::spawn(async { panic!("a bug") });
    assert!(until_written::<()>(broken, MOMENT, || ()).await.is_err());
}

#[test]
fn a_login_has_its_line_when_its_session_is_open_and_none_if_the_session_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    let mut audit = audit(&settings, &events);
    let identity = Identity::of(Principal::parse("token:billing").unwrap());
    let known = Caller::client(Protocol::Framed, None);
    let known = known.authenticated(identity, Credential::Bootstrap);
    for number in [1, 2] {
        audit.notes.logged_in(
            &known,
            GroupId::FIRST,
            SessionId(number),
            PublicSessionId(number as u64),
            true,
        );
    }
    catch_up(&mut audit);
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text(), "", "no session is open yet");
    // Session 1 is opened, and session 2 never is.
    happen(&events, 1..=1);
    catch_up(&mut audit);
    let lines: Vec<Value> =
        text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(kinds, ["login", "session_opened"], "{lines:?}");
    assert_eq!(lines[0]["session"], lines[1]["session"]);
    // One that comes again is told of at once.
    audit.notes.logged_in(&known, GroupId::FIRST, SessionId(1), PublicSessionId(1), false);
    catch_up(&mut audit);
    assert_eq!(text().matches("\"event\":\"login\"").count(), 2, "{}", text());
}

#[test]
fn a_login_has_its_line_when_a_snapshot_stands_for_the_entry_that_opened_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    let mut audit = audit(&settings, &events);
    happen(&events, 1..=1);
    catch_up(&mut audit);
    let identity = Identity::of(Principal::parse("token:billing").unwrap());
    let known = Caller::client(Protocol::Framed, None);
    let known = known.authenticated(identity, Credential::Bootstrap);
    for number in [2, 3] {
        audit.notes.logged_in(
            &known,
            GroupId::FIRST,
            SessionId(number),
            PublicSessionId(number as u64),
            true,
        );
    }
    catch_up(&mut audit);
    // The entry that opened session 2 is in the snapshot, and session 3 never is opened.
    events.restart_after(50);
    let owner = SessionOwner { owner: Owner::default(), principal: None };
    events.set_sessions(vec![(PublicSessionId(2), owner)]);
    happen(&events, 51..=51);
    catch_up(&mut audit);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(kinds, ["session_opened", "gap", "login", "session_opened"], "{text}");
    assert_eq!(lines[2]["session"], PublicSessionId(2).to_string());
}

#[test]
fn a_note_about_a_caller_does_not_hide_a_gap_that_has_no_line_yet() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::of_root(KEPT));
    let mut writer = audit(&settings, &events);
    happen(&events, 1..=5);
    catch_up(&mut writer);
    // A snapshot stands for what happened up to here, and nothing has happened since.
    events.restart_after(50);
    writer.notes.logged_in_at_dashboard(&Caller::client(Protocol::Http, None));
    catch_up(&mut writer);
    drop(writer);
    let mut writer = audit(&settings, &events);
    happen(&events, 51..=51);
    catch_up(&mut writer);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = lines.iter().skip(5).map(|line| (line["event"].as_str(), line["index"].as_u64()));
    let told: Vec<_> = told.map(|(event, index)| (event.unwrap(), index.unwrap())).collect();
    assert_eq!(told, [("login", 5), ("gap", 51), ("session_opened", 51)], "{text}");
}

fn groups(count: u32) -> impl ExactSizeIterator<Item = GroupId> {
    (0..count as usize).map(|place| GroupId(place as u32 + 1))
}

/// The rings of a node that starts: each group began with a snapshot.
fn rings_of(count: u32) -> EventRings {
    let rings = EventRings::new(groups(count), KEPT);
    rings.all().for_each(|ring| ring.restart_after(FOUNDING_INDEX));
    rings
}

fn audit_of_groups(settings: &AuditSettings, events: &EventRings) -> Audit {
    let (_, leaderships) = Leaderships::new(events.all().map(|ring| ring.group()));
    let shard = ShardHandle::new(inbox().unwrap().0, leaderships);
    let electorate = watch::Sender::<Electorate>::default().subscribe();
    let (notes, gate) = (Arc::default(), Arc::default());
    let metrics = Arc::new(Metrics::new());
    Audit::open(settings, events, shard, electorate, metrics, notes, gate).unwrap()
}

/// Of all files from the oldest to the newest, the lines of a group: their events and indexes.
fn told_of(settings: &AuditSettings, group: u32) -> Vec<(String, u64)> {
    let numbered = |number| format!("{}.{number}", settings.file.display());
    let older = (1..=settings.kept).rev().map(|number| PathBuf::from(numbered(number)));
    let files = older.chain([settings.file.clone()]);
    let text: String =
        files.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines = lines.filter(|line| line["group"] == group && line["event"] != line::POSITIONS);
    let told =
        |line: Value| (line["event"].as_str().unwrap().to_owned(), line["index"].as_u64().unwrap());
    lines.map(told).collect()
}

fn opened(indexes: impl IntoIterator<Item = u64>) -> Vec<(String, u64)> {
    indexes.into_iter().map(|index| ("session_opened".to_owned(), index)).collect()
}

#[test]
fn after_a_restart_each_group_goes_on_where_it_was_and_no_line_is_missing_or_written_twice() {
    for bytes_max in [1 << 20, 4_096] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.jsonl");
        let settings = AuditSettings { file, bytes_max, kept: 100 };
        // Nothing happens in group 3 but at the beginning, and nothing at all in group 4.
        for (first, second) in [(10, 5), (60, 5), (90, 8)] {
            let events = rings_of(4);
            let mut audit = audit_of_groups(&settings, &events);
            for (group, through) in [(1, first), (2, second), (3, 3)] {
                happen(events.of(GroupId(group)), 2..=through);
            }
            catch_up(&mut audit);
            assert_eq!(audit.metrics.audit.lost.get(), 0);
        }
        assert_eq!(told_of(&settings, 1), opened(2..=90));
        assert_eq!(told_of(&settings, 2), opened(2..=8));
        assert_eq!(told_of(&settings, 3), opened(2..=3));
        assert_eq!(told_of(&settings, 4), []);
    }
}

#[test]
fn a_gap_in_one_group_has_a_line_in_this_group_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file, bytes_max: 1 << 20, kept: 1 };
    let events = rings_of(3);
    let mut audit = audit_of_groups(&settings, &events);
    for group in 1..=3 {
        happen(events.of(GroupId(group)), 2..=4);
    }
    catch_up(&mut audit);
    drop(audit);

    // While the node was down a snapshot has come to stand for some of group 2.
    let events = rings_of(3);
    events.of(GroupId(2)).restart_after(8);
    let mut audit = audit_of_groups(&settings, &events);
    for group in [1, 3] {
        happen(events.of(GroupId(group)), 2..=6);
    }
    catch_up(&mut audit);
    assert_eq!(told_of(&settings, 2), opened(2..=4), "what comes next tells of the gap");
    happen(events.of(GroupId(2)), 9..=9);
    // The ring of group 3 forgets some before the writer looks.
    happen(events.of(GroupId(3)), 7..=6 + KEPT + 10);
    catch_up(&mut audit);
    let gap = |index| vec![("gap".to_owned(), index)];
    assert_eq!(told_of(&settings, 1), opened(2..=6));
    assert_eq!(told_of(&settings, 2), [opened(2..=4), gap(9), opened(9..=9)].concat());
    let rest = opened(17..=16 + KEPT);
    assert_eq!(told_of(&settings, 3), [opened(2..=6), gap(17), rest].concat());
    assert_eq!(audit.metrics.audit.lost.get(), 2);
}

#[test]
fn a_group_whose_lines_are_gone_tells_where_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file, bytes_max: 1 << 20, kept: 1 };
    let events = rings_of(2);
    events.of(GroupId(2)).restart_after(50);
    let mut audit = audit_of_groups(&settings, &events);
    for group in [1, 2] {
        happen(events.of(GroupId(group)), 51..=51);
    }
    catch_up(&mut audit);
    assert_eq!(told_of(&settings, 1), opened(51..=51));
    let beginning = vec![("beginning".to_owned(), 50)];
    assert_eq!(told_of(&settings, 2), [beginning, opened(51..=51)].concat());
}

#[test]
fn a_busy_group_does_not_keep_the_writer_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file, bytes_max: 1 << 20, kept: 1 };
    let events = EventRings::new(groups(3), 1_000_000);
    let mut audit = audit_of_groups(&settings, &events);
    happen(events.of(GroupId(1)), 1..=20_000);
    happen(events.of(GroupId(3)), 1..=1);
    assert!(!audit.take_events(), "there is more");
    let waiting = String::from_utf8(audit.file.lines().clone()).unwrap();
    assert!(waiting.contains("\"group\":3,\"index\":1,"), "{}", waiting.len());
}

#[test]
fn a_login_has_its_line_in_the_group_of_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file, bytes_max: 1 << 20, kept: 1 };
    let events = rings_of(2);
    let mut audit = audit_of_groups(&settings, &events);
    let identity = Identity::of(Principal::parse("token:billing").unwrap());
    let known = Caller::client(Protocol::Framed, None);
    let known = known.authenticated(identity, Credential::Bootstrap);
    for group in [1, 2] {
        let (session, public) = (SessionId(1), PublicSessionId(1));
        audit.notes.logged_in(&known, GroupId(group), session, public, true);
    }
    happen(events.of(GroupId(2)), 2..=2);
    catch_up(&mut audit);
    assert_eq!(told_of(&settings, 1), [], "the session is not open there");
    let login = vec![("login".to_owned(), FOUNDING_INDEX)];
    assert_eq!(told_of(&settings, 2), [login, opened(2..=2)].concat());
}

#[test]
fn a_node_that_cannot_write_hands_all_groups_over_that_it_leads() {
    let (sender, mut inbox) = inbox().unwrap();
    let (leaderships, watch) = Leaderships::new(groups(4));
    for group in [2, 4] {
        let leadership = Leadership { leader: Some(NodeId(1)), is_here: true, term: 1 };
        leaderships.set(GroupId(group), leadership);
    }
    let gate = Arc::new(AuditGate::new(OnAuditFailure::RefuseChanges));
    let shard = ShardHandle::new(sender, watch);
    let groups = groups(4).collect();
    let mut hand_over = HandOver { groups, shard, gate: Arc::clone(&gate), done_at: None };
    let mut asked = |hand_over: &mut HandOver| {
        hand_over.begin();
        let inputs = inbox.waiting().map(|input| match input {
            Input::HandOver { group, to: None, .. } => group.0,
            other => panic!("{other:?}"),
        });
        inputs.collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut hand_over), [0; 0], "the file can be written");
    gate.set_failing(true);
    assert_eq!(asked(&mut hand_over), [2, 4]);
    assert_eq!(asked(&mut hand_over), [0; 0], "not all the time");
}
