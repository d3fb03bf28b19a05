//! The screen of `holdfast top`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::view::{
    GROUP_HEADERS, GroupLine, LOCK_HEADERS, LockLine, NODE_HEADERS, NodeLine, SESSION_HEADERS,
    SessionLine, View,
};
use crate::live::drawing::{self, Palette};

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, palette: Palette) {
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2).min(9);
    let groups_height = if view.is_divided() { height(view.groups.len()) } else { 0 };
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(height(view.nodes.len())),
        Constraint::Length(groups_height),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ]);
    let [top, nodes, groups, busiest, queues, sessions] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(headlines(view, palette)), top);

    let rows = view.nodes.iter();
    let rows = rows.map(|node| (node.to_row(view.is_divided()), style_of(node, palette)));
    let rows: Vec<_> = rows.collect();
    drawing::table(frame, nodes, "nodes, and how fast they answer", &NODE_HEADERS, &rows, palette);
    if view.is_divided() {
        let style = |group: &GroupLine| match group.leader {
            Some(_) => Palette::plain(),
            None => palette.alarm(),
        };
        let rows =
            view.groups_by_interest().into_iter().map(|group| (group.to_row(), style(group)));
        let rows: Vec<_> = rows.collect();
        drawing::table(frame, groups, "busiest groups", &GROUP_HEADERS, &rows, palette);
    }
    let rows: Vec<_> =
        view.busiest.iter().map(|lock| (LockLine::to_row(lock), Palette::plain())).collect();
    drawing::table(frame, busiest, "busiest locks", &LOCK_HEADERS, &rows, palette);
    let rows: Vec<_> =
        view.queues.iter().map(|lock| (LockLine::to_row(lock), Palette::plain())).collect();
    drawing::table(frame, queues, "longest queues", &LOCK_HEADERS, &rows, palette);
    let rows: Vec<_> = view
        .busiest_sessions
        .iter()
        .map(|session| (SessionLine::to_row(session), Palette::plain()))
        .collect();
    drawing::table(frame, sessions, "sessions", &SESSION_HEADERS, &rows, palette);
}

fn headlines(view: &View, palette: Palette) -> Vec<Line<'_>> {
    let [cluster, counts] = view.headlines();
    let style = if view.has_leader() { palette.heading() } else { palette.alarm() };
    let last = match &view.read_error {
        Some(read_error) => Line::styled(read_error.as_str(), palette.alarm()),
        None => Line::styled("q leaves", palette.faint()),
    };
    vec![Line::styled(cluster, style), Line::raw(counts), last]
}

fn style_of(node: &NodeLine, palette: Palette) -> ratatui::style::Style {
    if node.answers { Palette::plain() } else { palette.alarm() }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::probe::Latency;
    use super::*;
    use crate::status::OwnerInfo;

    fn group(group: u32, leader: Option<u64>, grants_per_second: f64) -> GroupLine {
        GroupLine {
            group,
            leader,
            term: 4,
            applied_index: 1_000,
            grants_per_second,
            locks: 2,
            waiting: 30,
            sessions: 1,
        }
    }

    fn view() -> View {
        let latency = Latency { median_us: 240, p99_us: 1_900, longest_us: 130_000, samples: 9 };
        let node = |id: u64, answers| NodeLine {
            id,
            client_address: format!("10.0.0.{id}:7420"),
            role: if id == 1 { "leader" } else { "follower" }.to_owned(),
            leads: if id == 1 { vec![1] } else { Vec::new() },
            answers,
            lag: Some(0),
            latency: Some(latency),
        };
        let lock = |name: &str, waiter_count| LockLine {
            name: name.to_owned(),
            grants_per_second: 12.5,
            holder_count: 1,
            waiter_count,
            held_by: Some("report@host:7".to_owned()),
            held_for_ms: Some(61_000),
        };
        View {
            cluster: "test".to_owned(),
            leader: Some(1),
            term: 4,
            locks: 2,
            sessions: 1,
            waiting: 30,
            grants_per_second: 25.0,
            events_per_second: 80.25,
            read_latency: Some(latency),
            busiest: vec![lock("wallet:42", 0)],
            queues: vec![lock("deploy", 30)],
            busiest_sessions: vec![SessionLine {
                session: "80dd20e63c846eac".to_owned(),
                owner: OwnerInfo::default(),
                hold_count: 2,
                wait_count: 0,
                age_ms: 3_000,
                connected: true,
            }],
            nodes: vec![node(1, true), node(2, false)],
            groups: vec![group(1, Some(1), 12.5)],
            read_error: None,
        }
    }

    #[test]
    fn the_screen_shows_nodes_busy_locks_queues_and_sessions() {
        let mut terminal = Terminal::new(TestBackend::new(80, 19)).unwrap();
        let palette = Palette::of_environment();
        terminal.draw(|frame| draw(frame, &view(), palette)).unwrap();
        let expected = r#"
"cluster test, node 1 leads in term 4; reads 240µs median, 1.9ms p99             "
"2 locks, 30 waiting, 1 sessions; 25.0 grants/s, 80.2 events/s                   "
"q leaves                                                                        "
" nodes, and how fast they answer ───────────────────────────────────────────────"
"NODE  CLIENTS        ROLE       LAG  MEDIAN  P99    LONGEST                     "
"1     10.0.0.1:7420  leader     0    240µs   1.9ms  130ms                       "
"2     10.0.0.2:7420  no answer  0    -       -      -                           "
" busiest locks ─────────────────────────────────────────────────────────────────"
"NAME       GRANTS/S  WAITING  HOLDERS  HELD BY        FOR                       "
"wallet:42  12.5      0        1        report@host:7  1m01s                     "
"                                                                                "
" longest queues ────────────────────────────────────────────────────────────────"
"NAME    GRANTS/S  WAITING  HOLDERS  HELD BY        FOR                          "
"deploy  12.5      30       1        report@host:7  1m01s                        "
"                                                                                "
" sessions ──────────────────────────────────────────────────────────────────────"
"OWNER  SESSION           HOLDS  WAITS  AGE   CONNECTED                          "
"       80dd20e63c846eac  2      0      3.0s  yes                                "
"                                                                                "
"#;
        let drawn = terminal.backend().to_string();
        assert_eq!(drawn, expected.trim_start());
    }

    #[test]
    fn of_several_groups_those_without_a_leader_and_the_busiest_come_first() {
        let groups = vec![group(1, Some(1), 0.5), group(2, None, 0.0), group(3, Some(2), 12.0)];
        let view = View { groups, ..view() };
        let mut terminal = Terminal::new(TestBackend::new(72, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &view, Palette::of_environment())).unwrap();
        let drawn = terminal.backend().to_string();
        let expected = r#"
" busiest groups ────────────────────────────────────────────────────────"
"GROUP  LEADER     GRANTS/S  LOCKS  WAITING  SESSIONS  TERM  APPLIED     "
"2      NO LEADER  0.0       2      30       1         4     1000        "
"3      node 2     12.0      2      30       1         4     1000        "
"1      node 1     0.5       2      30       1         4     1000        "
"#;
        assert!(drawn.contains(expected.trim_start()), "{drawn}");
        assert!(drawn.contains("cluster test, NO LEADER in group 2, of 3;"), "{drawn}");
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_fail() {
        for (width, height) in [(1, 1), (10, 3), (300, 4)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &view(), Palette::of_environment())).unwrap();
        }
    }

    #[test]
    fn a_cluster_without_a_leader_says_so_first() {
        let leaderless = View { leader: None, read_error: Some("no quorum".to_owned()), ..view() };
        assert!(leaderless.headlines()[0].contains("NO LEADER"));
    }
}
