//! A disk in memory that crashes and fails on demand: the twin of `FileDisk` for tests and for the
//! simulation.
//!
//! It keeps two versions of everything, what a running process sees and what is durable. A crash does
//! not change the disk: [`SimDisk::crashed`] makes a new one, so a test can try every possible loss of
//! one moment. The choice is the caller's, block by block and directory operation by directory
//! operation, and no order among them is assumed.
//!
//! A failed sync behaves as on Linux: the blocks count as clean afterwards although they are not
//! durable, the process still reads them, and the next sync succeeds without writing them.
//!
//! Caveat: of several un-synced writes to one block only the last can survive, never an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};

const BLOCK_BYTES: usize = 512;

/// A handle to a simulated directory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`SimDisk`]. It follows the file through renames and outlives its removal.
#[derive(Clone, Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    opened_as: String,
}

/// What can be made to fail, and what the trace records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    /// Changes nothing, so no trace records it.
    Open,
    Rename,
    Remove,
    SyncDir,
    Write,
    SyncData,
}

/// One operation that reached the disk, failed ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    pub operation: Operation,
    /// The file; of a rename the new name, of a directory sync empty.
    pub name: String,
    pub ok: bool,
}

/// Something that a crash may keep or lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// A block of a file, under the name by which the file was last opened or created.
    Block {
        file: String,
        number: u64,
    },
    Created {
        name: String,
    },
    Renamed {
        from: String,
        to: String,
    },
    Removed {
        name: String,
    },
}

#[derive(Clone, Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// The directory as a running process sees it.
    names: BTreeMap<String, u64>,
    /// The directory as of the last sync.
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<(Unsynced, u64)>,
    faults: Vec<Fault>,
    capacity_bytes: Option<u64>,
    trace: Option<Vec<TraceEvent>>,
    moments: Option<Vec<SimDisk>>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    name: String,
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Blocks, in order and each once.
    dirty: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Fault {
    operation: Operation,
    successes_left: u64,
    error: FaultError,
}

#[derive(Clone, Copy, Debug)]
enum FaultError {
    Kind(io::ErrorKind),
    /// As the operating system numbers it, for errors that have no kind.
    Os(i32),
}

impl From<FaultError> for io::Error {
    fn from(error: FaultError) -> io::Error {
        match error {
            FaultError::Kind(kind) => kind.into(),
            FaultError::Os(number) => io::Error::from_raw_os_error(number),
        }
    }
}

impl SimDisk {
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// After `successes` more operations of this kind, one fails with this error. A write that fails
    /// leaves the first half of its blocks written.
    pub fn fail_after(&self, operation: Operation, successes: u64, error: io::ErrorKind) {
        let error = FaultError::Kind(error);
        self.lock().faults.push(Fault { operation, successes_left: successes, error });
    }

    /// The same with an error by the number that the operating system gives it.
    pub fn fail_after_with_os_error(&self, operation: Operation, successes: u64, number: i32) {
        let error = FaultError::Os(number);
        self.lock().faults.push(Fault { operation, successes_left: successes, error });
    }

    /// Forgets all faults that have not struck.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Files together never grow beyond this; a write that would is refused with `StorageFull`.
    pub fn set_capacity_bytes(&self, capacity: Option<u64>) {
        self.lock().capacity_bytes = capacity;
    }

    /// Starts an empty trace.
    pub fn start_trace(&self) {
        self.lock().trace = Some(Vec::new());
    }

    /// Ends the trace and returns it.
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.lock().trace.take().unwrap_or_default()
    }

    /// From now on keeps a copy of the disk as it is before each operation. A test can then crash at
    /// every moment of a call, also within it.
    pub fn start_moments(&self) {
        self.lock().moments = Some(Vec::new());
    }

    /// Ends the keeping of moments and returns them, oldest first.
    pub fn take_moments(&self) -> Vec<SimDisk> {
        self.lock().moments.take().unwrap_or_default()
    }

    /// Inverts one bit of a file, both as seen and as durable. False if the file has no such bit.
    pub fn flip_bit(&self, name: &str, bit: u64) -> bool {
        let mut state = self.lock();
        let Some(inode) = state.names.get(name).copied() else { return false };
        let Some(inode) = state.inodes.get_mut(&inode) else { return false };
        let Ok(byte) = usize::try_from(bit / 8) else { return false };
        let mask = 1 << (bit % 8);
        if let Some(durable) = inode.durable.get_mut(byte) {
            *durable ^= mask;
        }
        match inode.seen.get_mut(byte) {
            Some(seen) => *seen ^= mask,
            None => return false,
        }
        true
    }

    /// The content of a file as a running process sees it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let inode = state.names.get(name)?;
        state.inodes.get(inode).map(|inode| inode.seen.clone())
    }

    /// All that a crash at this moment may lose, in a fixed order.
    pub fn unsynced(&self) -> Vec<Unsynced> {
        let state = self.lock();
        let names = state.unsynced_names.iter().map(|(change, _)| change.clone());
        let blocks = state.inodes.values().flat_map(|inode| {
            let block =
                |number: &u64| Unsynced::Block { file: inode.name.clone(), number: *number };
            inode.dirty.iter().map(block)
        });
        names.chain(blocks).collect()
    }

    /// The disk that a crash at this moment leaves behind; `keep` is asked about each un-synced thing,
    /// in the order of [`SimDisk::unsynced`]. The new disk has no faults, no trace and no limit.
    pub fn crashed(&self, mut keep: impl FnMut(&Unsynced) -> bool) -> SimDisk {
        let state = self.lock();
        let mut names = state.durable_names.clone();
        for (change, inode) in &state.unsynced_names {
            if keep(change) {
                apply(&mut names, change, *inode);
            }
        }
        let mut inodes = BTreeMap::new();
        for (id, inode) in &state.inodes {
            let content = inode.crashed(&mut keep);
            inodes.insert(*id, content);
        }
        inodes.retain(|id, _| names.values().any(|named| named == id));
        for (name, id) in &names {
            if let Some(inode) = inodes.get_mut(id) {
                inode.name.clone_from(name);
            }
        }
        let crashed = State {
            inodes,
            next_inode: state.next_inode,
            durable_names: names.clone(),
            names,
            ..State::default()
        };
        SimDisk { state: Arc::new(Mutex::new(crashed)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, inode: u64, name: &str) -> SimFile {
        SimFile { disk: self.clone(), inode, opened_as: name.to_owned() }
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Unsynced, inode: u64) {
    match change {
        Unsynced::Created { name } => {
            names.insert(name.clone(), inode);
        }
        Unsynced::Renamed { from, to } => {
            names.remove(from);
            names.insert(to.clone(), inode);
        }
        Unsynced::Removed { name } => {
            names.remove(name);
        }
        Unsynced::Block { .. } => {}
    }
}

impl Inode {
    fn crashed(&self, keep: &mut impl FnMut(&Unsynced) -> bool) -> Inode {
        let mut content = self.durable.clone();
        for number in &self.dirty {
            if !keep(&Unsynced::Block { file: self.name.clone(), number: *number }) {
                continue;
            }
            copy_blocks(&self.seen, &mut content, *number, 1);
        }
        Inode { name: String::new(), seen: content.clone(), durable: content, dirty: Vec::new() }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        put(&mut self.seen, offset, bytes);
        let blocks = (offset / BLOCK_BYTES) as u64..=((end - 1) / BLOCK_BYTES) as u64;
        let is_in_order = self.dirty.last().is_none_or(|last| last < blocks.start());
        self.dirty.extend(blocks);
        if !is_in_order {
            self.dirty.sort_unstable();
            self.dirty.dedup();
        }
    }

    fn sync(&mut self) {
        for run in self.dirty.chunk_by(|number, next| number + 1 == *next) {
            copy_blocks(&self.seen, &mut self.durable, run[0], run.len());
        }
        self.dirty.clear();
    }
}

fn copy_blocks(from: &[u8], to: &mut Vec<u8>, first: u64, count: usize) {
    let start = (first as usize * BLOCK_BYTES).min(from.len());
    let end = (start + count * BLOCK_BYTES).min(from.len());
    put(to, start, &from[start..end]);
}

fn put(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if offset == to.len() {
        return to.extend_from_slice(bytes);
    }
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

impl State {
    /// Counts the operation, records it, and fails if a fault says so.
    fn perform(&mut self, operation: Operation, name: &str) -> io::Result<()> {
        if let Some(mut moments) = self.moments.take() {
            let trace = self.trace.take();
            moments.push(SimDisk { state: Arc::new(Mutex::new(self.clone())) });
            self.trace = trace;
            self.moments = Some(moments);
        }
        let result = self.fault_of(operation);
        if let Some(trace) = &mut self.trace {
            trace.push(TraceEvent { operation, name: name.to_owned(), ok: result.is_ok() });
        }
        result
    }

    fn fault_of(&mut self, operation: Operation) -> io::Result<()> {
        let mut result = Ok(());
        for fault in self.faults.iter_mut().filter(|fault| fault.operation == operation) {
            if fault.successes_left == 0 {
                result = Err(io::Error::from(fault.error));
            }
            fault.successes_left = fault.successes_left.wrapping_sub(1);
        }
        self.faults.retain(|fault| fault.successes_left != u64::MAX);
        result
    }

    fn named(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, change: Unsynced, inode: u64) {
        apply(&mut self.names, &change, inode);
        self.unsynced_names.push((change, inode));
    }

    fn has_room_for(&self, inode: u64, end: u64) -> bool {
        let Some(capacity) = self.capacity_bytes else { return true };
        let linked: BTreeSet<u64> = self.names.values().copied().collect();
        let length = |id: &u64| self.inodes.get(id).map_or(0, |inode| inode.seen.len() as u64);
        let used: u64 = linked.iter().map(length).sum();
        let growth = end.saturating_sub(length(&inode));
        growth == 0 || used + growth <= capacity
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.lock();
        state.perform(Operation::Create, name)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode { name: name.to_owned(), ..Inode::default() });
        state.change(Unsynced::Created { name: name.to_owned() }, inode);
        Ok(self.handle(inode, name))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.lock();
        state.fault_of(Operation::Open)?;
        let inode = state.named(name)?;
        Ok(self.handle(inode, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.perform(Operation::Rename, to)?;
        let inode = state.named(from)?;
        state.change(Unsynced::Renamed { from: from.to_owned(), to: to.to_owned() }, inode);
        if let Some(inode) = state.inodes.get_mut(&inode) {
            to.clone_into(&mut inode.name);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.perform(Operation::Remove, name)?;
        let inode = state.named(name)?;
        state.change(Unsynced::Removed { name: name.to_owned() }, inode);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        let result = state.perform(Operation::SyncDir, "");
        let state = &mut *state;
        let changes = std::mem::take(&mut state.unsynced_names);
        if result.is_ok() {
            for (change, inode) in &changes {
                apply(&mut state.durable_names, change, *inode);
            }
            // Nothing can bring these back. A handle that is still open on one reads it as empty.
            let named: BTreeSet<u64> =
                state.names.values().chain(state.durable_names.values()).copied().collect();
            state.inodes.retain(|id, _| named.contains(id));
        }
        result
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().inodes.get(&self.inode).map_or(0, |inode| inode.seen.len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.disk.lock();
        let seen = state.inodes.get(&self.inode).map_or(&[][..], |inode| &inode.seen);
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| seen.get(start..start.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let outcome = state.perform(Operation::Write, &self.opened_as);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if !state.has_room_for(self.inode, offset + bytes.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            let blocks = bytes.len().div_ceil(BLOCK_BYTES);
            let half = (blocks / 2 * BLOCK_BYTES).min(bytes.len());
            let written = if outcome.is_ok() { bytes.len() } else { half };
            inode.write(start, &bytes[..written]);
        }
        outcome
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let outcome = state.perform(Operation::SyncData, &self.opened_as);
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            match &outcome {
                Ok(()) => inode.sync(),
                Err(_) => inode.dirty.clear(),
            }
        }
        outcome
    }
}
