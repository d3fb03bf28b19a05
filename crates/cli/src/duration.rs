//! Durations as people write them: numbers with units, the largest unit first, each unit once: `500ms`, `10s`, `1.5s`,
//! `1m30s`, `1h`, `1d`. Only the last number may have a fraction. Nothing is finer than a millisecond.
//!
//! A bare number is refused: half of its writers mean seconds, the other half milliseconds.

use std::time::Duration;

use holdfast_core::{Limits, Span};

const UNITS: &str = "use ms, s, m, h or d, for example 500ms, 10s, 1m30s or 1.5h";
/// From the largest to the smallest.
const UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DurationError {
    Empty,
    NoUnit(String),
    UnknownUnit(String),
    NotANumber(String),
    /// The units do not fall, or one of them comes twice.
    Disorder(String),
    /// A fraction that is not on the last number.
    FractionInside(String),
    TooFine(String),
    Negative,
    Zero,
    TooLong,
    /// The cluster takes no more than this.
    MoreThan(Duration),
    NotATtl,
}

impl std::fmt::Display for DurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DurationError::Empty => write!(f, "no duration given; {UNITS}"),
            DurationError::NoUnit(text) => {
                write!(f, "'{text}' has no unit: did you mean {text}s or {text}ms?")
            }
            DurationError::UnknownUnit(unit) => write!(f, "'{unit}' is not a unit; {UNITS}"),
            DurationError::NotANumber(text) => {
                write!(f, "'{text}' is not a number with a unit; {UNITS}")
            }
            DurationError::Disorder(text) => {
                write!(f, "'{text}': write the largest unit first and each unit once, as in 1h30m")
            }
            DurationError::FractionInside(text) => {
                write!(f, "'{text}': only the last number may have a fraction, as in 1m1.5s")
            }
            DurationError::TooFine(text) => {
                write!(f, "'{text}' is finer than a millisecond; round it to whole milliseconds")
            }
            DurationError::Negative => write!(f, "a duration cannot be negative"),
            DurationError::Zero => write!(f, "must be more than zero"),
            DurationError::TooLong => write!(f, "too long"),
            DurationError::MoreThan(max) => write!(f, "must be at most {}", as_written(*max)),
            DurationError::NotATtl => write!(f, "must be 100ms to 24h"),
        }
    }
}

impl std::error::Error for DurationError {}

pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let (mut rest, mut total_ms, mut last_unit_ms) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        if number.is_empty() {
            return Err(DurationError::NotANumber(text.to_owned()));
        }
        let unit_ms = match UNITS_MS.iter().find(|(name, _)| *name == unit) {
            Some((_, unit_ms)) => *unit_ms,
            None if unit.is_empty() && number == text => {
                return Err(DurationError::NoUnit(number.to_owned()));
            }
            None if unit.is_empty() => return Err(DurationError::NotANumber(text.to_owned())),
            None => return Err(DurationError::UnknownUnit(unit.to_owned())),
        };
        if unit_ms >= last_unit_ms {
            return Err(DurationError::Disorder(text.to_owned()));
        }
        if number.contains('.') && !after.is_empty() {
            return Err(DurationError::FractionInside(text.to_owned()));
        }
        let ms = to_ms(number, unit_ms, text)?;
        total_ms = total_ms.checked_add(ms).ok_or(DurationError::TooLong)?;
        (rest, last_unit_ms) = (after, unit_ms);
    }
    Ok(Duration::from_millis(total_ms))
}

fn split_where(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

/// In whole milliseconds, computed without rounding.
fn to_ms(number: &str, unit_ms: u64, text: &str) -> Result<u64, DurationError> {
    let not_a_number = || DurationError::NotANumber(text.to_owned());
    let too_fine = || DurationError::TooFine(text.to_owned());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(not_a_number());
    }
    let whole: u64 = whole.parse().map_err(|_| DurationError::TooLong)?;
    let whole_ms = whole.checked_mul(unit_ms).ok_or(DurationError::TooLong)?;
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Ok(whole_ms);
    }
    // No unit has more places that make whole milliseconds.
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 8);
    let scale = 10u64.pow(places.ok_or_else(too_fine)?);
    let numerator = fraction.parse::<u64>().map_err(|_| not_a_number())?.checked_mul(unit_ms);
    let numerator = numerator.ok_or(DurationError::TooLong)?;
    if !numerator.is_multiple_of(scale) {
        return Err(too_fine());
    }
    whole_ms.checked_add(numerator / scale).ok_or(DurationError::TooLong)
}

pub(crate) fn parse_above_zero(text: &str) -> Result<Duration, DurationError> {
    parse(text).and_then(|duration| match duration {
        Duration::ZERO => Err(DurationError::Zero),
        duration => Ok(duration),
    })
}

/// Within what the cluster takes, so that the mistake is told with the name of the flag.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, DurationError> {
    let Limits { ttl_min, ttl_max, .. } = Limits::default();
    let allowed = duration_of(ttl_min)..=duration_of(ttl_max);
    let ttl = parse(text)?;
    if allowed.contains(&ttl) { Ok(ttl) } else { Err(DurationError::NotATtl) }
}

/// `--wait`: the time in a queue.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, DurationError> {
    at_most(Limits::default().wait_max, parse(text)?)
}

pub(crate) fn parse_max_hold(text: &str) -> Result<Duration, DurationError> {
    at_most(Limits::default().max_hold_max, parse_above_zero(text)?)
}

pub(crate) fn parse_lock_delay(text: &str) -> Result<Duration, DurationError> {
    at_most(Limits::default().lock_delay_max, parse(text)?)
}

pub(crate) fn parse_freeze(text: &str) -> Result<Duration, DurationError> {
    at_most(Limits::default().freeze_max, parse_above_zero(text)?)
}

fn at_most(max: Span, duration: Duration) -> Result<Duration, DurationError> {
    let max = duration_of(max);
    if duration <= max { Ok(duration) } else { Err(DurationError::MoreThan(max)) }
}

fn duration_of(span: Span) -> Duration {
    Duration::from_millis(span.as_ms())
}

/// As it would be written on the command line. One day is 24h.
pub(crate) fn as_written(duration: Duration) -> String {
    const DAY_MS: u128 = 86_400_000;
    let ms = duration.as_millis();
    let units = [("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let fits =
        |unit_ms: u128| ms > 0 && ms.is_multiple_of(unit_ms) && (ms, unit_ms) != (DAY_MS, DAY_MS);
    let fitting = units.iter().find(|(_, unit_ms)| fits(*unit_ms));
    fitting.map_or_else(|| format!("{ms}ms"), |(unit, unit_ms)| format!("{}{unit}", ms / unit_ms))
}

/// For tables: one or two units are precise enough.
pub(crate) fn in_words(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}.{}s", ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_with_a_unit_are_taken() {
        for (text, ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn several_units_and_a_fraction_are_taken() {
        for (text, ms) in [
            ("1m30s", 90_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("2h5ms", 7_200_005),
            ("1.5s", 1_500),
            ("0.25s", 250),
            ("1.50h", 5_400_000),
            ("1m1.5s", 61_500),
            ("0.00001d", 864),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_own_words() {
        use DurationError::*;
        let cases = [
            ("", Empty),
            ("10", NoUnit("10".into())),
            ("10sec", UnknownUnit("sec".into())),
            ("10 s", UnknownUnit(" s".into())),
            ("ten", NotANumber("ten".into())),
            ("1,5s", UnknownUnit(",".into())),
            ("1.s", NotANumber("1.s".into())),
            (".5s", NotANumber(".5s".into())),
            ("1.2.3s", NotANumber("1.2.3s".into())),
            ("1m30", NotANumber("1m30".into())),
            ("30s1m", Disorder("30s1m".into())),
            ("1s1s", Disorder("1s1s".into())),
            ("1.5m30s", FractionInside("1.5m30s".into())),
            ("1.5ms", TooFine("1.5ms".into())),
            ("1.0001s", TooFine("1.0001s".into())),
            ("0.333333333333h", TooFine("0.333333333333h".into())),
            ("-5s", Negative),
            ("99999999999999999999s", TooLong),
            ("18446744073709551615h", TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        assert_eq!(parse_above_zero("0ms"), Err(Zero));
        let hint = parse("10").unwrap_err().to_string();
        assert!(hint.contains("10s") && hint.contains("10ms"), "{hint}");
    }

    #[test]
    fn a_ttl_is_100ms_to_24h() {
        for (text, is_ttl) in [("99ms", false), ("100ms", true), ("1d", true), ("86401s", false)] {
            assert_eq!(parse_ttl(text).is_ok(), is_ttl, "{text}");
        }
    }

    #[test]
    fn what_no_cluster_takes_is_told_with_what_it_takes() {
        assert!(parse_wait("24h").is_ok() && parse_wait("0s").is_ok());
        assert_eq!(parse_wait("999d").unwrap_err().to_string(), "must be at most 24h");
        assert!(parse_lock_delay("61m").is_err() && parse_max_hold("31d").is_err());
        assert_eq!(parse_freeze("31d").unwrap_err().to_string(), "must be at most 30d");
        assert!(parse_max_hold("0s").is_err() && parse_freeze("0s").is_err());
    }

    #[test]
    fn durations_are_told_as_they_were_written() {
        for text in ["1s", "1500ms", "90s", "2m", "24h", "25h", "30d", "0ms"] {
            assert_eq!(as_written(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn durations_in_tables_are_short() {
        for (ms, words) in
            [(0, "0ms"), (999, "999ms"), (1_250, "1.2s"), (61_000, "1m01s"), (7_260_000, "2h01m")]
        {
            assert_eq!(in_words(ms), words);
        }
    }
}
