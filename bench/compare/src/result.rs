//! What came out: for each row the median of each service, and how Holdfast's compares to it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::goals::{self, Checked};
use crate::machine::Machine;
use crate::measure::Measure;
use crate::plan::Case;
use crate::task::Figures;

pub(crate) const OURS: &str = "holdfast";

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
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) more_is_better: bool,
    /// By service.
    pub(crate) medians: BTreeMap<&'static str, f64>,
    /// Holdfast's median, divided by that of the service.
    pub(crate) ratios: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Turns {
    pub(crate) workload: String,
    pub(crate) title: String,
    pub(crate) by_service: BTreeMap<&'static str, Vec<Figures>>,
}

/// The rows of one case.
pub(crate) fn rows(case: &Case, by_service: &BTreeMap<&'static str, Vec<Figures>>) -> Vec<Row> {
    let row = |measure: &Measure| {
        let medians: BTreeMap<&'static str, f64> = by_service
            .iter()
            .filter_map(|(service, turns)| {
                let values: Vec<f64> = turns.iter().filter_map(|it| measure.of(it)).collect();
                Some((*service, median(values)?))
            })
            .collect();
        let ours = medians.get(OURS).copied();
        let ratios = medians
            .iter()
            .filter(|(service, theirs)| **service != OURS && **theirs > 0.0)
            .filter_map(|(service, theirs)| Some((*service, ours? / theirs)))
            .collect();
        Row {
            workload: case.workload_name(),
            title: case.title.clone(),
            unit: measure.unit(),
            more_is_better: measure.more_is_better(),
            medians,
            ratios,
        }
    };
    case.measures.iter().map(row).filter(|row| !row.medians.is_empty()).collect()
}

/// The lower one of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
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

/// Three digits, or all before the point.
pub(crate) fn in_short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [in_short(0.414), in_short(52.34), in_short(271_828.4)],
            ["0.41", "52.3", "271828"]
        );
    }
}
