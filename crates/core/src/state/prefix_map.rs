//! Values for all names that begin in the same way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

/// To find those for a name costs one lookup for each length that a prefix has, however many prefixes there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixMap<T> {
    by_prefix: BTreeMap<Arc<str>, T>,
    /// In bytes.
    lengths: BTreeSet<usize>,
}

impl<T> Default for PrefixMap<T> {
    fn default() -> PrefixMap<T> {
        PrefixMap { by_prefix: BTreeMap::new(), lengths: BTreeSet::new() }
    }
}

impl<T> PrefixMap<T> {
    pub fn insert(&mut self, prefix: Arc<str>, value: T) -> Option<T> {
        self.lengths.insert(prefix.len());
        self.by_prefix.insert(prefix, value)
    }

    pub fn by_prefix(&self) -> &BTreeMap<Arc<str>, T> {
        &self.by_prefix
    }

    /// Those of the prefixes with which the text begins.
    pub fn covering<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a T)> {
        let prefixes = self.lengths.range(..=text.len()).filter_map(|length| text.get(..*length));
        prefixes.filter_map(|prefix| self.by_prefix.get_key_value(prefix))
    }

    pub fn change_covering(&mut self, text: &str, mut change: impl FnMut(&mut T)) {
        let prefixes = self.lengths.range(..=text.len()).filter_map(|length| text.get(..*length));
        for prefix in prefixes {
            self.by_prefix.get_mut(prefix).into_iter().for_each(&mut change);
        }
    }
}
