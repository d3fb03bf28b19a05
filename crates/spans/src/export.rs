//! Where spans go.

use std::time::Duration;

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::parent::TraceParent;
use crate::receiver::{self, ReceiverTls};

/// Sends spans to a receiver, in batches, from a thread of its own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Which side of a call a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Client,
    Server,
}

/// Something that takes time. It ends when it is dropped, or before.
#[derive(Debug)]
pub struct Span(opentelemetry_sdk::trace::Span);

/// No spans can be sent there.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be sent to {endpoint}: {words}")]
pub struct ExportError {
    endpoint: String,
    words: String,
}

impl Exporter {
    /// To a receiver of OTLP over gRPC, such as `http://127.0.0.1:4317`. It need not be there yet. One that is reached
    /// by `https://` needs `tls`. What else there is to say (headers, timeouts, batches, attributes of the resource) is
    /// said in the `OTEL_` variables.
    ///
    /// To be called within tokio, which has to run as long as spans are sent.
    pub fn start(
        endpoint: &str,
        tls: Option<ReceiverTls>,
        service: &str,
        instance: &str,
    ) -> Result<Exporter, ExportError> {
        let failed = |words: String| ExportError { endpoint: endpoint.to_owned(), words };
        let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        if receiver::is_encrypted(endpoint) {
            let channel = receiver::channel(endpoint, tls);
            exporter = exporter.with_channel(channel.map_err(|error| failed(error.to_string()))?);
        }
        let exporter = exporter.build().map_err(|error| failed(error.to_string()))?;
        let resource = Resource::builder()
            .with_attributes([
                KeyValue::new("service.name", service.to_owned()),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance.to_owned()),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("holdfast");
        Ok(Exporter { provider, tracer })
    }

    /// Begins now. Without a parent it is the first of a trace.
    pub fn span(&self, name: &'static str, kind: Kind, parent: Option<&TraceParent>) -> Span {
        let kind = match kind {
            Kind::Client => SpanKind::Client,
            Kind::Server => SpanKind::Server,
        };
        let around = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent.to_context()),
            None => Context::new(),
        };
        let builder = self.tracer.span_builder(name).with_kind(kind);
        Span(builder.start_with_context(&self.tracer, &around))
    }

    /// Sends what is left, for so long at most. To be called where waiting is allowed.
    pub fn finish(&self, patience: Duration) {
        // A collector that takes no spans cannot be informed of this either.
        let _ = self.provider.shutdown_with_timeout(patience);
    }
}

impl Span {
    /// By which others name it.
    pub fn parent(&self) -> TraceParent {
        let context = self.0.span_context();
        TraceParent {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
        }
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<String>) {
        self.0.set_attribute(KeyValue::new(key, value.into()));
    }

    pub fn set_number(&mut self, key: &'static str, value: u64) {
        self.0.set_attribute(KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX)));
    }

    /// It has come so far.
    pub fn reached(&mut self, stage: &'static str) {
        self.0.add_event(stage, Vec::new());
    }

    /// This one has to do with it.
    pub fn point_at(&mut self, other: &TraceParent, relation: &'static str) {
        let attributes = vec![KeyValue::new("holdfast.relation", relation)];
        self.0.add_link(other.to_context(), attributes);
    }

    pub fn fail(&mut self, words: impl Into<String>) {
        self.0.set_status(Status::error(words.into()));
    }
}

impl TraceParent {
    fn to_context(self) -> SpanContext {
        SpanContext::new(
            TraceId::from_bytes(self.trace.to_be_bytes()),
            SpanId::from_bytes(self.span.to_be_bytes()),
            TraceFlags::new(self.flags),
            true,
            TraceState::default(),
        )
    }
}
