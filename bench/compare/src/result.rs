//! What came out of a comparison, and its table.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figures::Figures;
use crate::goals::{self, Checked};
use crate::machine::Machine;
use crate::rows::Row;
use crate::text_table::{aligned, in_short};

#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) machine: Machine,
    pub(crate) seconds_per_turn: f64,
    pub(crate) repeats: usize,
    /// In the order in which they had their turns.
    pub(crate) services: Vec<&'static str>,
    pub(crate) rows: Vec<Row>,
    /// What the rows are meant to show, and whether they do.
    pub(crate) goals: Vec<Checked>,
    /// All that was measured.
    pub(crate) turns: Vec<Turns>,
    /// Turns that broke off, in words; those services lack them.
    pub(crate) failures: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Turns {
    pub(crate) workload: String,
    pub(crate) title: String,
    pub(crate) by_service: BTreeMap<&'static str, Vec<Figures>>,
}

impl Comparison {
    /// A line for each row: the figures, and in brackets Holdfast's divided by that of the service. Then one for each
    /// goal.
    pub(crate) fn to_table(&self) -> String {
        let mut lines = vec![
            ["", "WORKLOAD", "UNIT"]
                .into_iter()
                .chain(self.services.iter().copied())
                .map(str::to_owned)
                .collect::<Vec<String>>(),
        ];
        for row in &self.rows {
            let mut line = vec![row.workload.clone(), row.title.clone(), row.unit.to_owned()];
            for service in &self.services {
                let median = row.medians.get(service).map(|median| in_short(*median));
                let ratio =
                    row.ratios.get(service).map(|ratio| format!(" (x{})", in_short(*ratio)));
                line.push(median.unwrap_or_else(|| "-".to_owned()) + &ratio.unwrap_or_default());
            }
            lines.push(line);
        }
        format!("{}\n{}", aligned(&lines), goals::to_table(&self.goals))
    }
}
