//! For each row of the table the median of each service, and how Holdfast's compares to it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figures::Figures;
use crate::measure::Measure;
use crate::plan::Case;

pub(crate) const OURS: &str = "holdfast";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }
}
