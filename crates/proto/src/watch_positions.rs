//! After what a watch goes on: the last position of each group.

use std::collections::BTreeMap;

use crate::v1::{EventPosition, WatchRequest};

#[derive(Clone, Debug, Default)]
pub struct WatchPositions(BTreeMap<u32, EventPosition>);

impl WatchPositions {
    /// The position of a frame.
    pub fn note(&mut self, position: Option<EventPosition>) {
        if let Some(position) = position {
            self.0.insert(position.group, position);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The request, to go on after these positions. Older nodes know one group.
    pub fn add_to(&self, request: WatchRequest) -> WatchRequest {
        let mut after_groups: Vec<EventPosition> = self.0.values().copied().collect();
        let after = if after_groups.len() == 1 { after_groups.pop() } else { None };
        WatchRequest { after, after_groups, ..request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_position_of_each_group_is_sent_and_of_one_group_as_before() {
        let at = |group, index| EventPosition { group, index, number: 0 };
        let mut positions = WatchPositions::default();
        let fresh = WatchRequest { prefix: "a".into(), ..Default::default() };
        assert_eq!(positions.add_to(fresh.clone()), fresh);
        for position in [Some(at(1, 3)), None, Some(at(1, 5))] {
            positions.note(position);
        }
        let one = WatchRequest { after: Some(at(1, 5)), ..fresh.clone() };
        assert_eq!(positions.add_to(fresh.clone()), one);
        positions.note(Some(at(2, 1)));
        let several = WatchRequest { after_groups: vec![at(1, 5), at(2, 1)], ..fresh.clone() };
        assert_eq!(positions.add_to(fresh), several);
    }
}
