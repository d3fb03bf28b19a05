//! The network between all participants: every message gets a delay of its own, so they overtake each
//! other; some are lost, some arrive twice, a few of those much later. Links can be cut, each direction
//! by itself.

use holdfast_replica::GroupId;

use crate::message::Endpoint;
use crate::rng::Rng;

/// How bad the network is. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    pub(crate) delay_us: (u64, u64),
    pub(crate) loss_permille: u64,
    pub(crate) duplication_permille: u64,
    /// How much later than the first a second copy can come.
    pub(crate) straggler_us: u64,
}

impl Quality {
    /// A network that has the worst of both.
    fn worse(self, other: Quality) -> Quality {
        let (low, high) = (self.delay_us, other.delay_us);
        Quality {
            delay_us: (low.0.max(high.0), low.1.max(high.1)),
            loss_permille: self.loss_permille.max(other.loss_permille),
            duplication_permille: self.duplication_permille.max(other.duplication_permille),
            straggler_us: self.straggler_us.max(other.straggler_us),
        }
    }
}

/// There are never more nodes in a run, those included that are gone.
pub(crate) const NODES_MAX: usize = 32;

/// A cut in one direction.
pub(crate) type Cut = (Endpoint, Endpoint);

#[derive(Debug)]
pub(crate) struct Network {
    rng: Rng,
    places: usize,
    /// How many faults cut this direction; by sender, then receiver.
    cuts: Vec<u32>,
    base: Quality,
    overlays: Vec<(u64, Quality)>,
    /// Groups whose messages are all lost, once for each fault.
    cut_groups: Vec<GroupId>,
    now: Quality,
}

impl Network {
    pub(crate) fn new(rng: Rng, clients: usize, base: Quality) -> Network {
        let places = NODES_MAX + clients;
        let cuts = vec![0; places * places];
        Network { rng, places, cuts, base, overlays: Vec::new(), cut_groups: Vec::new(), now: base }
    }

    /// After how long the copies of a message arrive: none, one or two.
    pub(crate) fn arrivals_us(&mut self, from: Endpoint, to: Endpoint) -> [Option<u64>; 2] {
        if self.is_cut(from, to) || self.rng.permille(self.now.loss_permille) {
            return [None, None];
        }
        let (low, high) = self.now.delay_us;
        let first = self.rng.between(low, high);
        let twice = self.rng.permille(self.now.duplication_permille);
        let second = twice.then(|| first + self.rng.between(0, self.now.straggler_us));
        [Some(first), second]
    }

    /// So much is lost that what a few messages do can take many seconds.
    pub(crate) fn is_lossy(&self) -> bool {
        self.now.loss_permille > self.base.loss_permille
    }

    pub(crate) fn is_cut(&self, from: Endpoint, to: Endpoint) -> bool {
        self.cuts[self.link(from, to)] > 0
    }

    pub(crate) fn cut(&mut self, cuts: &[Cut]) {
        for (from, to) in cuts {
            let link = self.link(*from, *to);
            self.cuts[link] += 1;
        }
    }

    pub(crate) fn mend(&mut self, cuts: &[Cut]) {
        for (from, to) in cuts {
            let link = self.link(*from, *to);
            self.cuts[link] = self.cuts[link].saturating_sub(1);
        }
    }

    pub(crate) fn is_group_cut(&self, group: GroupId) -> bool {
        self.cut_groups.contains(&group)
    }

    pub(crate) fn cut_group(&mut self, group: GroupId) {
        self.cut_groups.push(group);
    }

    pub(crate) fn mend_group(&mut self, group: GroupId) {
        if let Some(place) = self.cut_groups.iter().position(|cut| *cut == group) {
            self.cut_groups.swap_remove(place);
        }
    }

    /// Makes it worse until the fault of this number is over.
    pub(crate) fn worsen(&mut self, fault: u64, quality: Quality) {
        self.overlays.push((fault, quality));
        self.reckon();
    }

    pub(crate) fn improve(&mut self, fault: u64) {
        self.overlays.retain(|(number, _)| *number != fault);
        self.reckon();
    }

    fn reckon(&mut self) {
        self.now = self.overlays.iter().fold(self.base, |now, (_, worse)| now.worse(*worse));
    }

    fn link(&self, from: Endpoint, to: Endpoint) -> usize {
        self.number(from) * self.places + self.number(to)
    }

    fn number(&self, place: Endpoint) -> usize {
        match place {
            Endpoint::Node(index) => index,
            Endpoint::Client(index) => NODES_MAX + index,
        }
    }
}
