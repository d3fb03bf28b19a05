//! `/api/events`: what happens, as it happens.
//!
//! The source's watch ends when the leader moves; the stream to the browser goes on with the next one, from
//! the last position that was told. No eye follows more than [`EVENTS_PER_SECOND_MAX`]: of what is more, only
//! the number is told.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::response::Response;
use holdfast_proto::WatchPositions;
use holdfast_proto::v1::{EventPosition, Reason, WatchEvent, WatchFrame, WatchRequest};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;
use tokio_stream::StreamExt;

use crate::api_error::ApiError;
use crate::page_data::kinds;
use crate::query_params::QueryParams;
use crate::source::Source;
use crate::stream::{CutOff, SseSender};
use crate::{Dashboard, shape, stream};

const EVENTS_PER_SECOND_MAX: u32 = 100;
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsQuery {
    prefix: String,
    /// Names of kinds with commas between them; empty: all.
    kinds: String,
}

pub(crate) async fn serve<S: Source>(
    dashboard: Dashboard<S>,
    QueryParams(ask): QueryParams<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let kinds = kinds(&ask.kinds)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after = last.and_then(position);
    let (sse, response) = stream::open(&dashboard.streams)?;
    let mut positions = WatchPositions::default();
    positions.note(after);
    let sender = EventSender { sse, kinds, second: Instant::now(), sent: 0, skipped: 0 };
    tokio::spawn(async move {
        let gone = sender.sse.closed();
        tokio::select! {
            _ = follow(dashboard, ask.prefix, positions, sender) => {}
            () = gone => {}
        }
    });
    Ok(response)
}

async fn follow<S: Source>(
    dashboard: Dashboard<S>,
    prefix: String,
    mut positions: WatchPositions,
    mut sender: EventSender,
) -> Result<(), CutOff> {
    loop {
        let (prefix, without_snapshot) = (prefix.clone(), positions.is_empty());
        let request =
            positions.add_to(WatchRequest { prefix, without_snapshot, ..Default::default() });
        let ended = match dashboard.source.watch(request).await {
            Err(failure) => failure,
            Ok(mut frames) => {
                sender.sse.send_event("watching", "", &json!({})).await?;
                loop {
                    match frames.next().await {
                        Some(Ok(frame)) => {
                            positions.note(frame.position);
                            sender.send_frame(frame).await?;
                        }
                        Some(Err(failure)) => break failure,
                        None => break Default::default(),
                    }
                }
            }
        };
        if matches!(ended.reason(), Reason::Compacted | Reason::SlowReader) {
            positions.clear();
            sender.sse.send_event("gap", "", &json!({})).await?;
        } else {
            let words = json!({ "words": ended.message });
            sender.sse.send_event("interrupted", "", &words).await?;
        }
        sleep(AGAIN_AFTER).await;
    }
}

struct EventSender {
    sse: SseSender,
    kinds: Vec<i32>,
    second: Instant,
    sent: u32,
    skipped: u64,
}

impl EventSender {
    async fn send_frame(&mut self, frame: WatchFrame) -> Result<(), CutOff> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.second = Instant::now();
            self.sent = 0;
            if self.skipped > 0 {
                let skipped = std::mem::take(&mut self.skipped);
                self.sse.send_event("skipped", "", &json!({ "events": skipped })).await?;
            }
        }
        let room = EVENTS_PER_SECOND_MAX.saturating_sub(self.sent) as usize;
        // The latest are worth most.
        let (wanted, shown) = if self.kinds.is_empty() {
            (frame.events.len(), frame.events.latest(room).collect())
        } else {
            let of_kind = |event: &WatchEvent| self.kinds.contains(&event.kind);
            let mut events: Vec<WatchEvent> = frame.events.iter().filter(of_kind).collect();
            (events.len(), events.split_off(events.len().saturating_sub(room)))
        };
        self.skipped += (wanted - shown.len()) as u64;
        self.sent += u32::try_from(shown.len()).unwrap_or(u32::MAX);
        let Some(last) = shown.last() else { return Ok(()) };
        let events: Vec<_> = shown.iter().map(shape::event).collect();
        self.sse.send_event("events", &shape::position(last), &json!(events)).await
    }
}

fn position(text: &str) -> Option<EventPosition> {
    let mut parts = text.split('.');
    let position = EventPosition {
        group: parts.next()?.parse().ok()?,
        index: parts.next()?.parse().ok()?,
        number: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_as_it_went_and_nothing_else_is_one() {
        let there = EventPosition { group: 1, index: 70, number: 3 };
        let event = WatchEvent { position: Some(there), ..Default::default() };
        assert_eq!(position(&shape::position(&event)), Some(there));
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.-3"] {
            assert_eq!(position(wrong), None, "{wrong}");
        }
    }
}
