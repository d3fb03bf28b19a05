//! What a client tells of itself, for a program that has a page of metrics of its own.

use std::fmt;

use holdfast_client_core::circuit::CircuitState;

use crate::efficiency::EfficiencyCounts;

/// How a client is doing at one moment. As text ([`Display`](fmt::Display)) it is what Prometheus reads, to be
/// put on a page as it is; there is no lock's name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientMetrics {
    /// Of the session with the cluster: see [`Client::circuit`](crate::Client::circuit).
    pub circuit: CircuitState,
    /// See [`Client::efficiency_circuit`](crate::Client::efficiency_circuit).
    pub efficiency_circuit: CircuitState,
    pub efficiency: EfficiencyCounts,
}

impl fmt::Display for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = "holdfast_client_circuit";
        writeln!(f, "# HELP {name} 1 for the state in which the circuit breaker is")?;
        writeln!(f, "# TYPE {name} gauge")?;
        for (tier, now) in [("correctness", self.circuit), ("efficiency", self.efficiency_circuit)]
        {
            for (state, word) in [
                (CircuitState::Closed, "closed"),
                (CircuitState::HalfOpen, "half_open"),
                (CircuitState::Open, "open"),
            ] {
                let is_it = u8::from(state == now);
                writeln!(f, "{name}{{tier=\"{tier}\",state=\"{word}\"}} {is_it}")?;
            }
        }
        let name = "holdfast_client_efficiency_total";
        writeln!(f, "# HELP {name} What came of asking the efficiency tier")?;
        writeln!(f, "# TYPE {name} counter")?;
        let counts = &self.efficiency;
        for (outcome, count) in [
            ("granted", counts.granted),
            ("busy", counts.busy),
            ("down", counts.down),
            ("went_without", counts.went_without),
            ("fell_back", counts.fell_back),
            ("refused", counts.refused),
            ("renewed", counts.renewed),
            ("lost", counts.lost),
        ] {
            writeln!(f, "{name}{{outcome=\"{outcome}\"}} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_state_of_each_breaker_is_marked() {
        for (state, word) in [
            (CircuitState::Closed, "closed"),
            (CircuitState::HalfOpen, "half_open"),
            (CircuitState::Open, "open"),
        ] {
            let metrics = ClientMetrics {
                circuit: state,
                efficiency_circuit: CircuitState::Open,
                efficiency: EfficiencyCounts::default(),
            };
            let text = metrics.to_string();
            let marked: Vec<&str> = text.lines().filter(|line| line.ends_with(" 1")).collect();
            let of = |tier: &str, state: &str| {
                format!("holdfast_client_circuit{{tier=\"{tier}\",state=\"{state}\"}} 1")
            };
            assert_eq!(marked, [of("correctness", word), of("efficiency", "open")]);
        }
    }
}
