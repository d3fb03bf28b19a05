//! `holdfast freezes`: what is frozen, by whom, why and for how long.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_proto::v1;
use holdfast_server::utc;
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::freeze::prefix_in_words;
use crate::global::Global;
use crate::one_shot;
use crate::output::{self, Show};
use crate::text::{self, on_one_line, table};

#[derive(Debug, Serialize)]
struct Freezes {
    freezes: Vec<Freeze>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Freeze {
    prefix: String,
    remaining_ms: u64,
    by: String,
    reason: String,
}

impl From<v1::Frozen> for Freeze {
    fn from(frozen: v1::Frozen) -> Freeze {
        let v1::Frozen { prefix, remaining_ms, by, reason } = frozen;
        Freeze { prefix, remaining_ms, by, reason }
    }
}

impl Freeze {
    pub(crate) fn in_words(&self) -> String {
        let Freeze { prefix, remaining_ms, by, reason } = self;
        let (scope, remaining) = (prefix_in_words(prefix), in_words(*remaining_ms));
        format!("{by} froze {scope} for another {remaining}: {}", on_one_line(reason))
    }

    /// By the clock of this machine.
    pub(crate) fn until(&self) -> String {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let end = since_epoch.saturating_add(Duration::from_millis(self.remaining_ms));
        let end_ms = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        format!("until {} (another {})", utc(end_ms), in_words(self.remaining_ms))
    }

    fn to_row(&self) -> Vec<String> {
        vec![
            text::quoted(&self.prefix),
            in_words(self.remaining_ms),
            on_one_line(&self.by),
            on_one_line(&self.reason),
        ]
    }
}

impl Show for Freezes {
    fn to_table(&self) -> String {
        if self.freezes.is_empty() {
            return "nothing is frozen\n".to_owned();
        }
        let rows: Vec<Vec<String>> = self.freezes.iter().map(Freeze::to_row).collect();
        table(&["PREFIX", "ENDS IN", "BY", "REASON"], &rows)
    }
}

pub(crate) async fn run(global: &Global) -> Result<ExitCode, Problem> {
    let freezes = one_shot::calls(global)?.freezes().await?;
    output::show(
        global.output,
        &Freezes { freezes: freezes.into_iter().map(Freeze::from).collect() },
    )
}
