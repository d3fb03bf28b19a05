//! What `/metrics` says: every name, unit and word of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use holdfast_replica::GroupId;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::distribution::Distribution;
use super::{ENDINGS, GroupLevels, Metrics, QUOTA_KINDS, process};
use crate::connections::PortUse;

/// What is known elsewhere in the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) node: u64,
    pub(crate) ready: bool,
    pub(crate) uptime_seconds: f64,
    pub(crate) started_unix_seconds: f64,
    pub(crate) inbox_operations: u64,
    pub(crate) inbox_refusals: u64,
    /// The client port and the HTTP port.
    pub(crate) ports: [PortUse; 2],
    /// Of the client port and the HTTP port, in seconds since 1970. None if they have none.
    pub(crate) client_certificate_ends: Option<i64>,
    /// The same of the peer port.
    pub(crate) peer_certificate_ends: Option<i64>,
    /// Of each group.
    pub(crate) policy_generations: BTreeMap<GroupId, u64>,
}

/// In the OpenMetrics text format, or in the older one of Prometheus, which most tools still ask for.
pub(crate) fn page(
    metrics: &Arc<Metrics>,
    extra: Extra,
    open_metrics: bool,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Shown { metrics: Arc::clone(metrics), extra }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(if open_metrics { text } else { classic(&text) })
}

/// The older format names a counter with its suffix in the lines about it too, and knows no units and no end.
fn classic(open_metrics: &str) -> String {
    let counters: Vec<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let about = line.strip_prefix("# ").and_then(|about| about.split_once(' '));
        match about {
            None if line.starts_with('#') => continue,
            None => text.push_str(line),
            Some(("UNIT", _)) => continue,
            Some((what, rest)) => {
                let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
                let suffix = if counters.contains(&name) { "_total" } else { "" };
                text.push_str(&format!("# {what} {name}{suffix} {words}"));
            }
        }
        text.push('\n');
    }
    text
}

#[derive(Debug)]
struct Shown {
    metrics: Arc<Metrics>,
    extra: Extra,
}

struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

type Label<'a> = [(&'static str, &'a str); 1];
const NO_EXEMPLAR: Option<&prometheus_client::metrics::exemplar::Exemplar<NoLabelSet, f64>> = None;

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter(&value, NO_EXEMPLAR)
    }

    fn counter_in(&mut self, name: &str, help: &str, unit: &Unit, value: f64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, Some(unit), MetricType::Counter)?
            .encode_counter(&value, NO_EXEMPLAR)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn gauge_in(&mut self, name: &str, help: &str, unit: &Unit, value: f64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, Some(unit), MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        each: impl IntoIterator<Item = (Label<'l>, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in each {
            family.encode_family(&labels)?.encode_counter(&value, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        each: impl IntoIterator<Item = (Label<'l>, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in each {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn times(&mut self, name: &str, help: &str, values: &Distribution) -> fmt::Result {
        self.distribution(name, help, Some(&Unit::Seconds), values)
    }

    fn distribution(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: &Distribution,
    ) -> fmt::Result {
        let mut histogram =
            self.encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let buckets = values.buckets();
        let count = buckets.iter().map(|(_, count)| count).sum();
        histogram.encode_histogram::<NoLabelSet>(values.sum(), count, &buckets, None)
    }
}

impl Collector for Shown {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        self.node(&mut page)?;
        self.locks(&mut page)?;
        self.consensus(&mut page)?;
        self.disk(&mut page)?;
        self.load(&mut page)?;
        self.connections(&mut page)?;
        self.certificates(&mut page)?;
        self.policy(&mut page)?;
        self.groups(&mut page)?;
        self.audit(&mut page)?;
        self.kafka(&mut page)?;
        self.process(&mut page)
    }
}

impl Shown {
    fn node(&self, page: &mut Page<'_>) -> fmt::Result {
        let node = self.extra.node.to_string();
        page.encoder
            .encode_descriptor(
                "holdfast_build_info",
                "Always 1; the version and the node are in its labels",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&[("version", env!("CARGO_PKG_VERSION")), ("node", node.as_str())])?
            .encode_gauge(&1_i64)?;
        page.gauge(
            "holdfast_ready",
            "1 if the node can serve clients, as /readyz says",
            u64::from(self.extra.ready),
        )?;
        page.gauge_in(
            "holdfast_uptime",
            "Time since the node started",
            &Unit::Seconds,
            self.extra.uptime_seconds,
        )
    }

    fn locks(&self, page: &mut Page<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        let mut operations = page.encoder.encode_descriptor(
            "holdfast_operations",
            "Operations of clients that were settled, by what was asked, what came of it and the tier; counted by the leader",
            None,
            MetricType::Counter,
        )?;
        let efficiency = &metrics.efficiency;
        let tiers = [("correctness", &metrics.operations), ("efficiency", &efficiency.operations)];
        for (tier, counted) in tiers {
            for (kind, outcome, count) in counted.each() {
                operations
                    .encode_family(&[("kind", kind), ("outcome", outcome), ("tier", tier)])?
                    .encode_counter(&count, NO_EXEMPLAR)?;
            }
        }
        let mut waits = page.encoder.encode_descriptor(
            "holdfast_acquire_wait",
            "Time from the arrival of an acquire at the leader to its grant, by whether it stood in the queue",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (queued, values) in
            [("no", &metrics.granted_at_once), ("yes", &metrics.granted_after_wait)]
        {
            let buckets = values.buckets();
            let count = buckets.iter().map(|(_, count)| count).sum();
            waits.encode_family(&[("queued", queued)])?.encode_histogram::<NoLabelSet>(
                values.sum(),
                count,
                &buckets,
                None,
            )?;
        }
        page.times(
            "holdfast_hold_time",
            "For how long locks were held, counted by the leader when they ended",
            &metrics.hold_time,
        )?;
        page.distribution(
            "holdfast_queue_position",
            "At which place acquires entered a queue; 1 is next in line",
            None,
            &metrics.queue_position,
        )?;
        page.counter(
            "holdfast_grants",
            "Holds that began, counted by the leader",
            metrics.grants.get(),
        )?;
        page.counter(
            "holdfast_queued",
            "Places taken in queues, counted by the leader",
            metrics.queued.get(),
        )?;
        page.counter(
            "holdfast_deadlocks_refused",
            "Waits that were refused because they would have closed a cycle, counted by the leader",
            metrics.deadlocks_refused.get(),
        )?;
        page.counter(
            "holdfast_deadlock_searches_skipped",
            "Requests queued without a search for deadlocks, because the searches of their log entry, or of 10 ms in the efficiency tier, had reached their bound; counted by the leader",
            metrics.deadlock_searches_skipped.get() + efficiency.deadlock_searches_skipped.get(),
        )?;
        page.counters(
            "holdfast_holds_ended",
            "Holds that ended, by why; counted by the leader",
            ENDINGS
                .iter()
                .zip(&metrics.holds_ended)
                .map(|(reason, count)| ([("reason", *reason)], count.get())),
        )?;
        page.counter(
            "holdfast_sessions_opened",
            "Sessions that began, counted by the leader",
            metrics.sessions_opened.get(),
        )?;
        page.counters(
            "holdfast_sessions_ended",
            "Sessions that ended, by why; counted by the leader",
            ENDINGS
                .iter()
                .zip(&metrics.sessions_ended)
                .filter(|(reason, _)| {
                    ["ttl", "closed", "disconnected", "session_expired", "killed"].contains(reason)
                })
                .map(|(reason, count)| ([("reason", *reason)], count.get())),
        )?;
        page.counter(
            "holdfast_interventions",
            "What operators did: break, transfer, freeze, thaw, reopen, permits, kill; counted by the leader",
            metrics.interventions.get(),
        )?;
        page.gauge("holdfast_locks", "Names that are held or waited for", metrics.locks.get())?;
        page.gauge(
            "holdfast_locks_limit",
            "Names that may be held or waited for; an operator can change it",
            metrics.locks_limit.get(),
        )?;
        page.gauge(
            "holdfast_table_bytes",
            "Size of the lock table, as all nodes estimate it",
            metrics.table_bytes.get(),
        )?;
        page.gauge(
            "holdfast_table_bytes_limit",
            "How large the lock table may become; an operator can change it",
            metrics.table_bytes_limit.get(),
        )?;
        page.gauge(
            "holdfast_efficiency_locks",
            "Names of the efficiency tier that are held or waited for; 0 on a node that does not lead",
            efficiency.locks.get(),
        )?;
        page.gauge(
            "holdfast_efficiency_table_bytes",
            "Estimated size of the efficiency tier's table; 0 on a node that does not lead",
            efficiency.table_bytes.get(),
        )?;
        page.counters(
            "holdfast_full_table_refusals",
            "Requests that were refused because the lock table of their tier, or the session's part of it, is full",
            [("correctness", &metrics.full_refusals), ("efficiency", &efficiency.full_refusals)]
                .map(|(tier, count)| ([("tier", tier)], count.get())),
        )?;
        let counted = QUOTA_KINDS.iter().zip(&metrics.quota_refusals);
        let counted = counted.map(|((_, kind), count)| ([("kind", *kind)], count.get()));
        page.counters(
            "holdfast_quota_refusals",
            "Requests that were refused because of a quota",
            counted.chain([([("kind", "rate")], metrics.rate_limited.get())]),
        )?;
        page.gauge("holdfast_waiters", "Places in all queues", metrics.waiters.get())?;
        page.gauge(
            "holdfast_longest_queue",
            "Places in the longest queue",
            metrics.longest_queue.get(),
        )?;
        page.gauge("holdfast_sessions", "Sessions that are open", metrics.sessions.get())
    }

    fn consensus(&self, page: &mut Page<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        page.gauge("holdfast_is_leader", "1 if this node leads", metrics.is_leader.get())?;
        page.gauge(
            "holdfast_leader",
            "The node that leads; 0 if none is known",
            metrics.leader.get(),
        )?;
        page.gauge("holdfast_term", "The term of consensus", metrics.term.get())?;
        page.gauge(
            "holdfast_rules_version",
            "The version of the rules that the lock table follows",
            metrics.rules_version.get(),
        )?;
        page.counter(
            "holdfast_elections_won",
            "How often this node became the leader",
            metrics.elections_won.get(),
        )?;
        page.counter(
            "holdfast_leader_changes",
            "How often this node learned of another leader",
            metrics.leader_changes.get(),
        )?;
        page.gauge(
            "holdfast_applied_index",
            "The log entry that was applied last",
            metrics.applied_index.get(),
        )?;
        page.gauge(
            "holdfast_committed_index",
            "The last log entry that is known to be committed",
            metrics.committed_index.get(),
        )?;
        page.gauge(
            "holdfast_last_index",
            "The last entry of this node's log",
            metrics.last_index.get(),
        )?;
        let mut lag = page.encoder.encode_descriptor(
            "holdfast_peer_lag_entries",
            "Log entries that a peer is not known to have; shown by the leader",
            None,
            MetricType::Gauge,
        )?;
        for (peer, entries) in metrics.peer_lag() {
            lag.encode_family(&[("peer", peer.to_string())])?
                .encode_gauge(&i64::try_from(entries).unwrap_or(i64::MAX))?;
        }
        page.counter(
            "holdfast_proposals",
            "Log entries that this node proposed as the leader",
            metrics.proposals.get(),
        )?;
        page.distribution(
            "holdfast_batch_operations",
            "Operations that went into one turn of the loop, and so into one write",
            None,
            &metrics.batch,
        )
    }

    fn disk(&self, page: &mut Page<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        page.times(
            "holdfast_log_sync",
            "Time for one write to the log and its sync",
            &metrics.sync_time,
        )?;
        page.counter("holdfast_log_entries", "Log entries written", metrics.entries_written.get())?;
        page.counter_in(
            "holdfast_log_written",
            "What was written to the log, without its framing",
            &Unit::Bytes,
            metrics.bytes_written.get() as f64,
        )?;
        page.gauge(
            "holdfast_disk_full",
            "1 while the node waits for room on its disk",
            metrics.disk_full.get(),
        )?;
        page.times("holdfast_apply", "Time to apply what a turn committed", &metrics.apply_time)?;
        page.times(
            "holdfast_snapshot_take",
            "Time to take and save a snapshot, beside the other work",
            &metrics.snapshots_taken,
        )?;
        page.times(
            "holdfast_snapshot_send",
            "Time to send a snapshot to a peer",
            &metrics.snapshots_sent,
        )?;
        page.times(
            "holdfast_snapshot_install",
            "Time to write a snapshot that the leader sent",
            &metrics.snapshots_installed,
        )?;
        page.counter(
            "holdfast_snapshots_failed",
            "Snapshots that could not be saved or sent",
            metrics.snapshots_failed.get(),
        )?;
        page.gauge_in(
            "holdfast_snapshot_size",
            "Size of the last snapshot that was saved",
            &Unit::Bytes,
            metrics.snapshot_bytes.get() as f64,
        )
    }

    fn load(&self, page: &mut Page<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        page.counter("holdfast_turns", "Turns of the loop", metrics.turns.get())?;
        page.gauge(
            "holdfast_inbox_operations",
            "Operations of clients that wait for the loop",
            self.extra.inbox_operations,
        )?;
        page.counter(
            "holdfast_inbox_refusals",
            "What clients asked for and was refused because the loop was too far behind",
            self.extra.inbox_refusals,
        )?;
        page.gauge(
            "holdfast_session_streams",
            "Session streams that this node serves as the leader",
            metrics.session_streams.get(),
        )?;
        page.gauge(
            "holdfast_framed_connections",
            "Framed connections of clients that the loop owns",
            metrics.framed_connections.get(),
        )?;
        page.gauge(
            "holdfast_watch_streams",
            "Watches that this node serves as the leader",
            metrics.watch_streams.get(),
        )?;
        page.counter(
            "holdfast_watches_left_behind",
            "Watches that ended because their readers did not keep up",
            metrics.watches_left_behind.get(),
        )?;
        page.counter(
            "holdfast_denied_actions",
            "Actions that callers had no right to; also counted where they pass, in the mode permissive",
            metrics.denied.get(),
        )?;
        page.counter(
            "holdfast_events",
            "Events that this node recorded for those who watch",
            metrics.events.get(),
        )
    }

    fn connections(&self, page: &mut Page<'_>) -> fmt::Result {
        let [clients, http] = self.extra.ports;
        let ports = |value: fn(&PortUse) -> u64| {
            [([("port", "client")], value(&clients)), ([("port", "http")], value(&http))]
        };
        page.gauges(
            "holdfast_connections",
            "Connections of clients that are open",
            ports(|port| port.connections as u64),
        )?;
        page.gauges(
            "holdfast_idle_connections",
            "Connections of clients without an open session and without a request that is being answered",
            ports(|port| port.idle as u64),
        )?;
        page.counters(
            "holdfast_connections_rejected",
            "Connections that were closed as soon as they came, because there were too many",
            ports(|port| port.rejected),
        )?;
        page.counters(
            "holdfast_idle_connections_closed",
            "Idle connections that were closed because others needed the room, or because their time was up",
            ports(|port| port.gave_way + port.timed_out),
        )?;
        page.gauges(
            "holdfast_unfinished_requests",
            "Requests that have not arrived whole",
            ports(|port| port.unfinished as u64),
        )?;
        page.gauges(
            "holdfast_request_bytes_in_flight",
            "Bytes of requests, from their arrival to the end of their answers",
            ports(|port| port.bytes as u64),
        )?;
        page.gauges(
            "holdfast_answer_bytes_unwritten",
            "Bytes of answers that clients have not read",
            ports(|port| port.unwritten as u64),
        )?;
        page.counters(
            "holdfast_requests_refused_by_limits",
            "Requests that were refused or broken off because of a limit on requests, bytes or time",
            ports(|port| port.refused_requests),
        )
    }

    fn certificates(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut family = page.encoder.encode_descriptor(
            "holdfast_certificate_expires_timestamp",
            "When the certificate of the port ends, since 1970; a port without TLS has no value",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        let clients = self.extra.client_certificate_ends;
        let ports =
            [("client", clients), ("http", clients), ("peer", self.extra.peer_certificate_ends)];
        for (port, ends_at) in ports {
            if let Some(ends_at) = ends_at {
                family.encode_family(&[("port", port)])?.encode_gauge(&ends_at)?;
            }
        }
        Ok(())
    }

    fn policy(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut family = page.encoder.encode_descriptor(
            "holdfast_policy_generation",
            "Which generation of the policy this node has in the group",
            None,
            MetricType::Gauge,
        )?;
        for (group, generation) in &self.extra.policy_generations {
            let generation = i64::try_from(*generation).unwrap_or(i64::MAX);
            family.encode_family(&[("group", group.0)])?.encode_gauge(&generation)?;
        }
        Ok(())
    }

    fn groups(&self, page: &mut Page<'_>) -> fmt::Result {
        let groups = self.metrics.groups();
        type Gauge = (&'static str, &'static str, fn(&GroupLevels) -> u64);
        let gauges: [Gauge; 6] = [
            ("holdfast_group_is_leader", "1 if this node leads the group", |group| {
                u64::from(group.is_here)
            }),
            (
                "holdfast_group_leader",
                "The node that leads the group; 0 if this node knows none",
                |group| group.leader,
            ),
            ("holdfast_group_term", "The term of consensus in the group", |group| group.term),
            (
                "holdfast_group_applied_index",
                "The log entry of the group that was applied last",
                |group| group.applied_index,
            ),
            ("holdfast_group_locks", "Names of the group that are held or waited for", |group| {
                group.locks
            }),
            ("holdfast_group_waiters", "Places in all queues of the group", |group| group.waiters),
        ];
        for (name, help, value) in gauges {
            let mut family = page.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (group, levels) in &groups {
                let value = i64::try_from(value(levels)).unwrap_or(i64::MAX);
                family.encode_family(&[("group", group.0)])?.encode_gauge(&value)?;
            }
        }
        let mut family = page.encoder.encode_descriptor(
            "holdfast_group_grants",
            "Holds that began in the group, counted by its leader",
            None,
            MetricType::Counter,
        )?;
        for (group, levels) in &groups {
            let labels = [("group", group.0)];
            family.encode_family(&labels)?.encode_counter(&levels.grants.led, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    fn audit(&self, page: &mut Page<'_>) -> fmt::Result {
        let audit = &self.metrics.audit;
        page.counter("holdfast_audit_lines", "Lines written to the audit file", audit.lines.get())?;
        page.counter_in(
            "holdfast_audit_written",
            "Bytes written to the audit file",
            &Unit::Bytes,
            audit.bytes.get() as f64,
        )?;
        page.gauge(
            "holdfast_audit_behind_entries",
            "Log entries between the last event and the last one in the audit file",
            audit.behind.get(),
        )?;
        page.counter(
            "holdfast_audit_gaps",
            "How often events were lost to the audit file because it was too far behind",
            audit.lost.get(),
        )?;
        page.counter(
            "holdfast_audit_failures",
            "How often the audit file could not be written",
            audit.failures.get(),
        )?;
        page.gauge(
            "holdfast_audit_failing",
            "1 while the audit file cannot be written",
            audit.failing.get(),
        )?;
        page.counter(
            "holdfast_audit_rotations",
            "How often the audit file was rotated",
            audit.rotations.get(),
        )
    }

    fn kafka(&self, page: &mut Page<'_>) -> fmt::Result {
        let kafka = &self.metrics.kafka;
        let worst = kafka.furthest_behind();
        page.counter(
            "holdfast_kafka_records",
            "Records that Kafka has acknowledged; repeated ones count again",
            kafka.records.get(),
        )?;
        page.counter_in(
            "holdfast_kafka_written",
            "Bytes of keys and values that Kafka has acknowledged",
            &Unit::Bytes,
            kafka.bytes.get() as f64,
        )?;
        page.gauge(
            "holdfast_kafka_behind_events",
            "Events that happened and are not published yet, in the group that is furthest behind; shown by its leader",
            worst.behind,
        )?;
        page.gauge(
            "holdfast_kafka_behind_group",
            "The group that is furthest behind, of those that this node leads and publishes; 0 if there is none",
            u64::from(worst.group),
        )?;
        page.counter(
            "holdfast_kafka_dropped_events",
            "Events that were never published, because they were no longer kept or Kafka refuses their size",
            kafka.dropped.get(),
        )?;
        page.counter(
            "holdfast_kafka_failures",
            "How often Kafka could not be reached, or did not take records",
            kafka.failures.get(),
        )?;
        page.gauge(
            "holdfast_kafka_connected",
            "1 while this node is connected to Kafka; only the leader of a group is",
            kafka.connected.get(),
        )?;
        page.gauge(
            "holdfast_kafka_published_index",
            "The log entry of the last event that this node published, in the group that is furthest behind",
            worst.published_index,
        )
    }

    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let process = process::look();
        if let Some(seconds) = process.cpu_seconds {
            page.counter_in("process_cpu", "Time of all processors", &Unit::Seconds, seconds)?;
        }
        if let Some(bytes) = process.resident_bytes {
            page.gauge_in("process_resident_memory", "Memory in use", &Unit::Bytes, bytes as f64)?;
        }
        if let Some(files) = process.open_files {
            page.gauge("process_open_fds", "Open files and connections", files)?;
        }
        page.gauge_in(
            "process_start_time",
            "When the node started, since 1970",
            &Unit::Seconds,
            self.extra.started_unix_seconds,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bucket_of_every_histogram_has_no_bound() {
        let metrics = Arc::new(Metrics::new());
        metrics.hold_time.record(u64::MAX / 2);
        for open_metrics in [true, false] {
            let page = page(&metrics, Extra::default(), open_metrics).unwrap();
            let histograms = page.lines().filter(|line| line.ends_with(" histogram")).count();
            // One of them has two series.
            let unbounded = page.lines().filter(|line| line.contains("le=\"+Inf\"")).count();
            assert!(histograms > 5 && unbounded == histograms + 1, "{page}");
            assert!(page.contains("holdfast_hold_time_seconds_bucket{le=\"+Inf\"} 1\n"), "{page}");
            assert!(!page.contains("e308"), "{page}");
        }
    }

    #[test]
    fn both_metric_formats_have_the_same_counters() {
        let metrics = Arc::new(Metrics::new());
        metrics.grants.add(3);
        let open = page(&metrics, Extra::default(), true).unwrap();
        assert!(
            open.contains("# TYPE holdfast_grants counter\nholdfast_grants_total 3\n"),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"));
        let classic = page(&metrics, Extra::default(), false).unwrap();
        let expected = "# HELP holdfast_grants_total Holds that began, counted by the leader\n\
                        # TYPE holdfast_grants_total counter\nholdfast_grants_total 3\n";
        assert!(classic.contains(expected), "{classic}");
        assert!(!classic.contains("# UNIT") && !classic.contains("# EOF"), "{classic}");
    }
}
