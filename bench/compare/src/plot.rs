//! The rows as a picture: a group of bars for each, on a scale of powers of ten.

pub(crate) mod curve;

use std::fmt::Write;

use crate::result::Comparison;
use crate::rows::{OURS, Row};
use crate::text_table::in_short;

const WIDTH: f64 = 960.0;
const BAR: f64 = 14.0;
const GAP: f64 = 18.0;
const TITLE: f64 = 20.0;
const LABEL: f64 = 150.0;
/// For the figure behind the longest bar.
const FIGURE: f64 = 110.0;
const OUR_COLOUR: &str = "#0b7a75";
const THEIR_COLOUR: &str = "#9aa5b1";

pub(crate) fn svg(comparison: &Comparison) -> String {
    let mut body = String::new();
    let mut y = GAP;
    for row in &comparison.rows {
        y = group(&mut body, row, &comparison.services, y) + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Returns where it ends.
fn group(body: &mut String, row: &Row, services: &[&'static str], top: f64) -> f64 {
    let better = if row.more_is_better { "more is better" } else { "less is better" };
    let title = escaped(&format!("{} {}: {} ({better})", row.workload, row.title, row.unit));
    // Writing to a string cannot fail.
    let _ =
        writeln!(body, "<text x=\"8\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>", top + 11.0);
    let shown: Vec<(&str, f64)> = services
        .iter()
        .filter_map(|service| Some((*service, *row.medians.get(service)?)))
        .collect();
    let largest = shown.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let smallest =
        shown.iter().map(|(_, value)| *value).filter(|it| *it > 0.0).fold(largest, f64::min);
    // The scale begins at the power of ten below the smallest.
    let (from, to) = (smallest.log10().floor(), largest.log10());
    let mut y = top + TITLE;
    for (service, value) in shown {
        let share =
            if value > 0.0 && to > from { (value.log10() - from) / (to - from) } else { 0.0 };
        let width = (share.clamp(0.0, 1.0) * (WIDTH - LABEL - FIGURE)).max(1.0);
        let colour = if service.starts_with(OURS) { OUR_COLOUR } else { THEIR_COLOUR };
        let ratio = row.ratios.get(service).map(|ratio| format!(" (x{})", in_short(*ratio)));
        let text_y = y + BAR - 3.0;
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\">{service}</text>\
             <rect x=\"{LABEL}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text_y:.1}\">{}{}</text>",
            LABEL - 6.0,
            BAR - 2.0,
            LABEL + width + 4.0,
            in_short(value),
            ratio.unwrap_or_default()
        );
        y += BAR;
    }
    y
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
