//! Spans, exported by OpenTelemetry's protocol (OTLP over gRPC).
//!
//! - [`TraceParent`]: to which span something belongs, as it travels between programs.
//! - [`Exporter`], [`Span`]: what this program did, and for how long.
//! - [`ReceiverTls`]: how the receiver of spans is known.
//!
//! The types of OpenTelemetry stay in here. Nothing waits for the receiver: spans go into a bounded queue, and
//! what does not fit is dropped.

mod export;
mod parent;
mod receiver;

pub use export::{ExportError, Exporter, Kind, Span};
pub use parent::TraceParent;
pub use receiver::{ReceiverTls, is_encrypted};
