//! Waiting for something to be so.

use std::time::{Duration, Instant};

use crate::failure::StoryFailure;

/// Longer than anything takes that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
pub(crate) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T, StoryFailure>
where
    F: Future<Output = Option<T>>,
{
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        if Instant::now() > give_up {
            return Err(StoryFailure::Unexpected(format!("not within {PATIENCE:?}: {what}")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
