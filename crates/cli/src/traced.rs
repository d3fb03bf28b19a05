//! The span of an acquire, if the environment says where spans go, or of which span this command is part.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says where, as everywhere; `TRACEPARENT` which span this command belongs to. Without
//! the first our own span is not recorded, but what the cluster does is still part of the second.

use std::time::Duration;

use holdfast_spans::{Exporter, Kind, ReceiverTls, Span, TraceParent};

use crate::otlp::{self, ENDPOINT, variable};
use crate::output;

const PARENT: &str = "TRACEPARENT";
/// A receiver that is away must not keep a command from ending.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Traced {
    exporter: Option<Exporter>,
    span: Option<Span>,
    around: Option<TraceParent>,
}

impl Traced {
    /// The acquire begins. To be called within tokio.
    pub(crate) fn begin(locks: &str) -> Traced {
        let around = variable(PARENT).and_then(|text| text.parse().ok());
        let exporter = variable(ENDPOINT).and_then(|endpoint| {
            let instance = std::process::id().to_string();
            let tls = otlp::tls(&endpoint, None);
            let tls = tls.map(|tls| ReceiverTls::new(&tls.ca, tls.identity()));
            Exporter::start(&endpoint, tls, "holdfast-cli", &instance)
                .inspect_err(|error| output::message(&error.to_string()))
                .ok()
        });
        let span = exporter.as_ref().map(|exporter| {
            let mut span = exporter.span("acquire", Kind::Client, around.as_ref());
            span.set("holdfast.lock", locks);
            span
        });
        Traced { exporter, span, around }
    }

    /// What the cluster is told; empty if there is nothing to tell.
    pub(crate) fn traceparent(&self) -> String {
        let own = self.span.as_ref().map(Span::parent);
        own.or(self.around).map(|parent| parent.to_string()).unwrap_or_default()
    }

    /// The lock is held, or will not be.
    pub(crate) fn answered<T, E: std::fmt::Display>(&mut self, answer: &Result<T, E>) {
        if let (Some(span), Err(error)) = (&mut self.span, answer) {
            span.fail(error.to_string());
        }
        // It ends here.
        self.span = None;
    }

    /// Sends what was not sent yet. An acquire that was given up ends here.
    pub(crate) async fn finish(self) {
        drop(self.span);
        if let Some(exporter) = self.exporter {
            let _ = tokio::task::spawn_blocking(move || exporter.finish(PATIENCE)).await;
        }
    }
}
