//! When a certificate of the node ends, and the warning before. From its end on, no client or peer that checks it
//! accepts it, although the node runs on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_tls::Identity;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::NodeConfig;
use crate::utc::utc;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// As the alert `HoldfastCertificateEnds`.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// A certificate that the node shows at its ports.
#[derive(Clone, Debug)]
pub(super) struct ShownCertificate {
    table: &'static str,
    path: PathBuf,
    node: u64,
    ends_at: OffsetDateTime,
}

impl ShownCertificate {
    pub(super) fn new(
        table: &'static str,
        config: &NodeConfig,
        path: &Path,
        identity: &Identity,
    ) -> ShownCertificate {
        let (path, node, ends_at) = (path.to_owned(), config.node, identity.ends_at);
        ShownCertificate { table, path, node, ends_at }
    }

    pub(super) fn ends_at_unix_s(&self) -> i64 {
        self.ends_at.unix_timestamp()
    }

    /// None if it is good for long.
    fn warning(&self, now: OffsetDateTime) -> Option<String> {
        let left = self.ends_at - now;
        if left >= WARN_BEFORE {
            return None;
        }
        let ends = match left.whole_days() {
            _ if left.is_negative() => "has ended".to_owned(),
            0 => "ends in less than a day".to_owned(),
            1 => "ends in 1 day".to_owned(),
            days => format!("ends in {days} days"),
        };
        let ShownCertificate { table, path, node, ends_at } = self;
        let ends_at = utc(u64::try_from(ends_at.unix_timestamp()).unwrap_or(0) * 1_000);
        Some(format!(
            "[{table}] the certificate {} {ends} ({ends_at}): issue a new one with `holdfast cert node --id {node}`, \
             copy it to this node, and send SIGHUP",
            path.display()
        ))
    }
}

/// Warns at once, after each reload, and again after each pause. Returns when the node has stopped.
pub(super) async fn keep_warning<S>(
    mut side: watch::Receiver<Arc<S>>,
    certificate: fn(&S) -> &ShownCertificate,
    pause: Duration,
    mut warn: impl FnMut(String),
) {
    loop {
        let warning = certificate(&side.borrow_and_update()).warning(OffsetDateTime::now_utc());
        if let Some(warning) = warning {
            warn(warning);
        }
        if let Ok(Err(_)) = timeout(pause, side.changed()).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ending_at(ends_at: OffsetDateTime) -> ShownCertificate {
        ShownCertificate { table: "tls", path: "node.pem".into(), node: 3, ends_at }
    }

    #[test]
    fn a_certificate_is_warned_of_from_fourteen_days_before_its_end_and_after_it() {
        let end = OffsetDateTime::from_unix_timestamp(1_794_743_884).unwrap();
        let said = |now| ending_at(end).warning(now);
        assert_eq!(said(end - WARN_BEFORE), None);
        let warning = said(end - WARN_BEFORE + HOUR).unwrap();
        let expected = "[tls] the certificate node.pem ends in 13 days (2026-11-15T11:58:04.000Z): issue a new one with \
                        `holdfast cert node --id 3`, copy it to this node, and send SIGHUP";
        assert_eq!(warning, expected);
        for (left, words) in [(DAY + HOUR, "ends in 1 day ("), (HOUR, "ends in less than a day (")]
        {
            let warning = said(end - left).unwrap();
            assert!(warning.contains(words), "{warning}");
        }
        for over in [HOUR, 3 * DAY] {
            let warning = said(end + over).unwrap();
            assert!(warning.contains("node.pem has ended ("), "{warning}");
        }
    }

    #[tokio::test]
    async fn the_warning_is_repeated_until_a_new_certificate_is_read() {
        let now = OffsetDateTime::now_utc();
        let side = watch::Sender::new(Arc::new(ending_at(now + DAY)));
        let (warnings, mut warned) = tokio::sync::mpsc::unbounded_channel();
        let warn = move |warning| warnings.send(warning).unwrap();
        let pause = Duration::from_millis(1);
        let warning = tokio::spawn(keep_warning(side.subscribe(), |side| side, pause, warn));
        for _ in 0..3 {
            warned.recv().await.unwrap();
        }
        side.send_replace(Arc::new(ending_at(now + 300 * DAY)));
        drop(side);
        warning.await.unwrap();
        // Those that were said before the new one was read.
        while warned.recv().await.is_some() {}
    }

    #[tokio::test]
    async fn a_reload_is_warned_of_at_once() {
        let now = OffsetDateTime::now_utc();
        let side = watch::Sender::new(Arc::new(ending_at(now + 300 * DAY)));
        let (warnings, mut warned) = tokio::sync::mpsc::unbounded_channel();
        let warn = move |warning| warnings.send(warning).unwrap();
        tokio::spawn(keep_warning(side.subscribe(), |side| side, DAY, warn));
        tokio::task::yield_now().await;
        assert!(warned.try_recv().is_err());
        side.send_replace(Arc::new(ending_at(now + HOUR)));
        assert!(warned.recv().await.unwrap().contains("ends in less than a day"));
    }
}
