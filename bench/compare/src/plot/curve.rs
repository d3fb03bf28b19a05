//! W7 as a picture: p99 over the rate that was offered, both on scales of powers of ten, one line for each service.

use std::fmt::Write;

use crate::figures::{Figures, Step};
use crate::result::Comparison;
use crate::rows::OURS;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const MARGIN: f64 = 60.0;
/// Operations a second, and microseconds, as powers of ten.
const RATES: (f64, f64) = (3.0, 6.0);
const LATENCIES: (f64, f64) = (1.0, 6.0);
const COLOURS: [&str; 8] =
    ["#0b7a75", "#d1495b", "#edae49", "#30638e", "#6a4c93", "#8a8a8a", "#4f772d", "#a0522d"];

/// None if no service was offered rising rates.
pub(crate) fn svg(comparison: &Comparison) -> Option<String> {
    let lines: Vec<(&str, &[Step])> = comparison
        .turns
        .iter()
        .flat_map(|turns| &turns.by_service)
        .filter_map(|(service, figures)| match figures.first()? {
            Figures::Ramp { steps } => Some((*service, steps.as_slice())),
            _ => None,
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut body = axes();
    for (number, (service, steps)) in lines.into_iter().enumerate() {
        line(&mut body, service, steps, COLOURS[number % COLOURS.len()], number);
    }
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    ))
}

fn x(rate: f64) -> f64 {
    MARGIN + share(rate, RATES) * (WIDTH - 2.0 * MARGIN)
}

fn y(latency_us: f64) -> f64 {
    HEIGHT - MARGIN - share(latency_us, LATENCIES) * (HEIGHT - 2.0 * MARGIN)
}

fn share(value: f64, (from, to): (f64, f64)) -> f64 {
    ((value.max(f64::MIN_POSITIVE).log10() - from) / (to - from)).clamp(0.0, 1.0)
}

fn axes() -> String {
    let mut body = String::new();
    let ticks = |(from, to): (f64, f64)| (from as i32..=to as i32).map(|power| 10_f64.powi(power));
    // Writing to a string cannot fail.
    for rate in ticks(RATES) {
        let (x, top, bottom) = (x(rate), MARGIN, HEIGHT - MARGIN);
        let _ = writeln!(
            body,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{rate:.0}/s</text>",
            bottom + 16.0
        );
    }
    for latency_us in ticks(LATENCIES) {
        let (y, right) = (y(latency_us), WIDTH - MARGIN);
        let _ = writeln!(
            body,
            "<path d=\"M{MARGIN} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} ms</text>",
            MARGIN - 6.0,
            y + 4.0,
            latency_us / 1e3
        );
    }
    let _ = writeln!(
        body,
        "<text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">W7: p99 of an acquire over the operations \
         a second that were offered</text>"
    );
    body
}

fn line(body: &mut String, service: &str, steps: &[Step], colour: &str, number: usize) {
    let points: Vec<String> = steps
        .iter()
        .map(|step| format!("{:.1},{:.1}", x(step.offered_per_second), y(step.p99_us)))
        .collect();
    let width = if service == OURS { 3 } else { 2 };
    let legend_y = MARGIN + 14.0 * (number as f64 + 1.0);
    let _ = writeln!(
        body,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\
         <text x=\"{:.1}\" y=\"{legend_y:.1}\" fill=\"{colour}\">{service}</text>",
        points.join(" "),
        MARGIN + 10.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_farther_right_and_slower_is_higher() {
        assert!(x(2_000.0) < x(4_000.0));
        assert!(y(100.0) > y(1_000.0));
        assert_eq!((x(1.0), y(0.0)), (MARGIN, HEIGHT - MARGIN));
    }
}
