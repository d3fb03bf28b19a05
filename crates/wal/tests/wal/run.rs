//! A log beside a model of it. After each call, and at every moment within it, a crash must leave what
//! the model says was durable before or after the call, whatever the crash loses.

use holdfast_wal::{GroupLog, LogEntry, SimDisk, Snapshot, Wal};

use crate::common::{Groups, append, by_group, open, recovered};

/// Which un-synced things the crashes of a run keep.
#[derive(Clone, Copy)]
pub(crate) enum Losses {
    /// Every subset; of more than ten things only some subsets.
    Every,
    /// Nothing, everything, and one more.
    Some { seed: u64 },
}

pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) wal: Wal<SimDisk>,
    /// What a crash leaves.
    pub(crate) durable: Groups,
    /// What a crash leaves once the open turn is committed.
    pub(crate) open: Groups,
    pub(crate) losses: Losses,
    pub(crate) crashes: u64,
}

impl Run {
    pub(crate) fn new(losses: Losses) -> Run {
        let disk = SimDisk::new();
        let (wal, _) = open(&disk);
        let (durable, open) = Default::default();
        Run { disk, wal, durable, open, losses, crashes: 0 }
    }

    /// Garbage files are removed when [`Run::remove_garbage`] is called.
    pub(crate) fn deferring_removal(losses: Losses) -> Run {
        let mut run = Run::new(losses);
        run.wal.defer_removal();
        run
    }

    /// What became garbage since the last time.
    pub(crate) fn remove_garbage(&mut self) {
        self.check(|run| {
            if let Some(garbage) = run.wal.take_garbage() {
                garbage.remove().unwrap();
            }
        });
    }

    pub(crate) fn append(&mut self, group: u32, index: u64, term: u64, data: &[u8]) {
        append(&mut self.wal, group, index, term, data);
        let entries = &mut log(&mut self.open, group).entries;
        entries.retain(|entry| entry.index < index);
        entries.push(LogEntry { index, term, kind: 1, data: data.to_vec() });
    }

    pub(crate) fn set_hard_state(&mut self, group: u32, state: holdfast_wal::HardState) {
        self.wal.set_hard_state(group, state);
        log(&mut self.open, group).hard_state = state;
    }

    pub(crate) fn sync_turn(&mut self) {
        self.check(|run| {
            run.wal.sync_turn().unwrap();
            run.durable = run.open.clone();
        });
    }

    pub(crate) fn take_snapshot(&mut self, group: u32, snapshot: &Snapshot) {
        self.check(|run| {
            let written = run.wal.snapshot_writer().write(group, snapshot).unwrap();
            for groups in [&mut run.durable, &mut run.open] {
                let log = log(groups, group);
                log.entries.retain(|entry| entry.index > snapshot.index);
                replace_snapshot(log, snapshot);
            }
            run.wal.snapshot_written(written).unwrap();
        });
    }

    pub(crate) fn install_snapshot(&mut self, group: u32, snapshot: &Snapshot) {
        self.check(|run| {
            run.wal.install_snapshot(group, snapshot).unwrap();
            for groups in [&mut run.durable, &mut run.open] {
                let log = log(groups, group);
                log.entries.clear();
                replace_snapshot(log, snapshot);
            }
        });
    }

    /// A new process on the same disk: it sees what was written, synced or not.
    pub(crate) fn reopen(&mut self, disk: SimDisk, allowed: &[Groups]) {
        self.disk = disk;
        self.disk.start_moments();
        let (wal, groups) = open(&self.disk);
        assert!(allowed.contains(&groups), "recovered {groups:#?}\nallowed {allowed:#?}");
        self.wal = wal;
        self.durable = groups.clone();
        self.open = groups;
        for moment in self.disk.take_moments() {
            self.crash_at(&moment, allowed);
        }
        // Now that it was handed out it must stay.
        let handed_out = [self.durable.clone()];
        self.crash_at(&self.disk.clone(), &handed_out);
    }

    /// Crashes at every moment of the call.
    fn check(&mut self, call: impl FnOnce(&mut Run)) {
        let before = view(&self.durable);
        self.disk.start_moments();
        call(self);
        let moments = self.disk.take_moments();
        let after = view(&self.durable);
        let allowed = [before, after];
        for moment in &moments {
            self.crash_at(moment, &allowed);
        }
        self.crash_at(&self.disk.clone(), &allowed[1..]);
    }

    fn crash_at(&mut self, moment: &SimDisk, allowed: &[Groups]) {
        for keep in self.keeps(moment.unsynced().len()) {
            let groups = recovered(&crashed(moment, keep));
            assert!(
                allowed.contains(&groups),
                "kept {keep:b} of {:#?}\nrecovered {groups:#?}\nallowed {allowed:#?}",
                moment.unsynced()
            );
            self.crashes += 1;
        }
    }

    fn keeps(&self, unsynced: usize) -> Vec<u64> {
        match self.losses {
            _ if unsynced == 0 => vec![0],
            Losses::Every if unsynced <= 10 => (0..1 << unsynced).collect(),
            Losses::Every => {
                (0..1024).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
            }
            Losses::Some { seed } => vec![0, u64::MAX, seed.rotate_left(self.crashes as u32)],
        }
    }
}

/// The disk after a crash that keeps the un-synced things whose bit is set.
pub(crate) fn crashed(disk: &SimDisk, mut keep: u64) -> SimDisk {
    disk.crashed(|_| {
        let kept = keep & 1 == 1;
        keep = keep.rotate_right(1);
        kept
    })
}

fn log(groups: &mut Groups, group: u32) -> &mut GroupLog {
    groups.entry(group).or_insert_with(|| GroupLog {
        group,
        hard_state: Default::default(),
        snapshot: None,
        entries: Vec::new(),
    })
}

fn replace_snapshot(log: &mut GroupLog, snapshot: &Snapshot) {
    log.snapshot = Some(snapshot.clone());
    let state = &mut log.hard_state;
    state.commit = state.commit.max(snapshot.index);
    if state.term < snapshot.term {
        (state.term, state.vote) = (snapshot.term, 0);
    }
}

/// What the model says, in the form in which it is recovered.
pub(crate) fn view(groups: &Groups) -> Groups {
    by_group(groups.values().cloned().collect())
}
